"""The reference saver: everything in this process's memory, by the same rules and bytes as the SQL saver.

Values go through the codec and are kept encoded, so that what memory gives back is what a database would.
A commit changes nothing until nothing can refuse it any more. Nothing survives the process, and nothing is
shared between processes; one saver may serve several event loops of one thread, one after the other.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, ClassVar, Self

from everstep_savers.addresses import Address, address_of, checked_key
from everstep_savers.base import Config, MaintainedSaver
from everstep_savers.body import unpack_body
from everstep_savers.checkpoint import (
    Chain,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    Commit,
    DeltaChannelHistory,
    Loaded,
    TaskPlace,
    ThreadRecord,
    Version,
)
from everstep_savers.codec import Encoded
from everstep_savers.decoding import (
    decode_results,
    decode_thread,
    decode_tuple,
    decode_writes,
    metadata_of,
    version_keys,
)
from everstep_savers.encoding import encode_commit, encode_put, encode_put_writes, joined, task_writes
from everstep_savers.errors import ThreadConflict
from everstep_savers.fencing import checkpoint_missing, copy_refused, refusal
from everstep_savers.history import HistoryWalk, values_of, visit_row
from everstep_savers.memory_thread import (
    MemoryThread,
    add_rows,
    change_row,
    check_values,
    copy_of,
    is_admitted,
    prunable,
    remove,
    remove_runs,
    rows_of,
    take_back,
)
from everstep_savers.metadata import encode_metadata, has_values
from everstep_savers.parts import gathered
from everstep_savers.parts import joined as joined_parts
from everstep_savers.retention import Pruned, Strategy, checked_runs, policy_of
from everstep_savers.rows import CheckpointRow, EncodedCommit


class InMemorySaver(MaintainedSaver[EncodedCommit]):
    """Keeps checkpoints in memory: for tests, for scripts, and as the reference for other savers."""

    never_waits: ClassVar[bool] = True

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._threads: dict[str, MemoryThread] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def prepare(self, commit: Commit) -> EncodedCommit:
        return encode_commit(self.codec, commit)

    async def acommit(self, prepared: EncodedCommit) -> int:
        return self._commit(prepared)

    def join(self, first: EncodedCommit, second: EncodedCommit) -> EncodedCommit | None:
        return joined(first, second)

    async def atake_back(self, thread_id: str, token: int, tasks: Sequence[TaskPlace]) -> None:
        thread = self._living(thread_id)
        if thread is not None and thread.token == token:
            take_back(thread, tasks)

    async def aget_tuple(self, config: Config) -> CheckpointTuple | None:
        row = self._find(address_of(config))
        return self._decode(row) if row else None

    async def aload(self, config: Config) -> Loaded:
        address = address_of(config)
        row = self._find(address)
        if row is None and address.checkpoint_id:
            raise checkpoint_missing(address)
        thread = self._living(address.thread_id)
        chains: dict[str, Chain] = {}
        return Loaded(
            saved=self._decode(row, chains=chains) if row else None,
            thread=decode_thread(self.codec, thread.row()) if thread else None,
            newest_version=thread.newest_version if thread else 0,
            chains=chains,
        )

    async def alist(
        self,
        config: Config | None,
        *,
        filter: Mapping[str, Any] | None = None,
        before: Config | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        wanted = encode_metadata(filter or {})
        left = limit
        for row in self._listed(config, address_of(before).checkpoint_id if before else None):
            if left is not None and left <= 0:
                return
            if self._find(Address(*row[:3])) is row and has_values(metadata_of(row), wanted):
                left = None if left is None else left - 1
                yield self._decode(row, with_results=True)

    async def aget_delta_channel_history(
        self, *, config: Config, channels: Sequence[str]
    ) -> dict[str, DeltaChannelHistory]:
        walk = HistoryWalk(channels)
        child = self._find(address_of(config))
        if child is None:
            return walk.result()
        namespace = self._threads[child.thread_id].namespaces[child.checkpoint_ns]
        walk.start(values_of(self.codec, child, channels, namespace.find))
        seen: set[str] = set()
        while walk.open and (row := namespace.checkpoints.get(child.parent_id or "")) and row.checkpoint_id not in seen:
            seen.add(row.checkpoint_id)
            writes = namespace.writes.get(row.checkpoint_id, {}).values()
            visit_row(walk, self.codec, row, child, writes, namespace.find)
            child = row
        return walk.result()

    async def aput(
        self,
        config: Config,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: Mapping[str, Version],
    ) -> dict[str, Any]:
        parent = address_of(config)
        try:
            self._commit(encode_put(self.codec, parent, checkpoint, metadata, new_versions))
        except ThreadConflict:
            # Another value is stored under one of these versions already, and may be shared.
            self._commit(encode_put(self.codec, parent, checkpoint, metadata, new_versions, is_apart=True))
        return parent._replace(checkpoint_id=checkpoint["id"]).config()

    async def aput_writes(
        self, config: Config, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        address = address_of(config)
        task = task_writes(address, writes, task_id, task_path)
        self._commit(encode_put_writes(self.codec, address, task))

    async def adelete_thread(self, thread_id: str) -> None:
        thread = self._living(checked_key("thread_id", thread_id))
        if thread is not None:
            token = thread.token + 1
            self._threads[thread_id] = MemoryThread(
                thread_id, thread.created_at, thread.updated_at, token, generation=token, is_deleted=True
            )

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        source = self._living(checked_key("thread_id", source_thread_id))
        if source is None or self._living(checked_key("thread_id", target_thread_id)) is not None:
            raise copy_refused(source_thread_id, target_thread_id)
        buried = self._threads.get(target_thread_id)
        self._threads[target_thread_id] = copy_of(source, target_thread_id, buried)

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        runs = set(checked_runs(run_ids))
        for thread in list(self._threads.values()):
            if not thread.is_deleted and remove_runs(thread, runs):
                await self.adelete_thread(thread.thread_id)

    async def aprune(
        self,
        thread_ids: Sequence[str] | None = None,
        *,
        older_than: datetime | timedelta | None = None,
        keep_last: int = 1,
        strategy: Strategy | None = None,
        dry_run: bool = False,
    ) -> Pruned:
        policy = policy_of(thread_ids, older_than, keep_last, strategy)
        removed, gone = {}, []
        for thread_id in self._threads if thread_ids is None else dict.fromkeys(thread_ids):
            thread = self._living(checked_key("thread_id", thread_id))
            if thread is None or policy.leaves_alone(has_input=thread.input is not None):
                continue
            if policy.takes_whole(thread.status, thread.updated_at):
                gone.append(thread_id)
                doomed = list(rows_of(thread, None))
            else:
                doomed = prunable(thread, policy)
            if doomed:
                removed[thread_id] = len(doomed)
            if doomed and not dry_run:
                remove(thread, doomed)
        for thread_id in () if dry_run else gone:
            await self.adelete_thread(thread_id)
        return Pruned(removed, tuple(gone))

    async def aget_thread(self, thread_id: str) -> ThreadRecord | None:
        thread = self._living(thread_id)
        return decode_thread(self.codec, thread.row()) if thread else None

    async def alist_threads(
        self, *, status: str | None = None, limit: int | None = None
    ) -> AsyncIterator[ThreadRecord]:
        found = [
            thread.row()
            for thread in self._threads.values()
            if not thread.is_deleted and (status is None or thread.status == status)
        ]
        found.sort(key=lambda row: (row.updated_at, row.thread_id), reverse=True)
        for row in found[: None if limit is None else max(limit, 0)]:
            yield decode_thread(self.codec, row)

    async def araw_value(
        self, thread_id: str, channel: str, checkpoint_id: str | None = None, checkpoint_ns: str = ""
    ) -> Encoded | None:
        row = self._find(Address(thread_id, checkpoint_ns, checkpoint_id))
        if row is None:
            return None
        if (kept := unpack_body(row).transient.get(channel)) is not None:
            return kept[0], kept[1]
        version = version_keys(row.versions).get(channel)
        rows = gathered(self._threads[thread_id].namespaces[checkpoint_ns].find, channel, version or "")
        return joined_parts(rows) if rows else None

    def _commit(self, commit: EncodedCommit) -> int:
        thread = self._threads.get(commit.thread_id)
        if not is_admitted(commit, thread):
            raise refusal(commit, thread.state() if thread else None)
        if thread is None:
            thread = self._threads[commit.thread_id] = MemoryThread(commit.thread_id, commit.at, commit.at)
        check_values(thread, commit)
        change_row(thread, commit)
        add_rows(thread, commit)
        return thread.token

    def _living(self, thread_id: str) -> MemoryThread | None:
        thread = self._threads.get(thread_id)
        return None if thread is None or thread.is_deleted else thread

    def _find(self, address: Address) -> CheckpointRow | None:
        thread = self._living(address.thread_id)
        namespace = thread.namespaces.get(address.checkpoint_ns) if thread else None
        if thread is None or namespace is None:
            return None
        newest = namespace.newest if address.checkpoint_ns else thread.head
        return namespace.checkpoints.get(address.checkpoint_id or newest or "")

    def _listed(self, config: Config | None, before: str | None) -> list[CheckpointRow]:
        """The rows that a config and a bound select, newest first."""
        threads: Iterable[MemoryThread | None] = self._threads.values()
        ns = checkpoint_id = None
        if config is not None:
            thread_id, _, checkpoint_id = address_of(config)
            ns = config["configurable"].get("checkpoint_ns")
            threads = (self._threads.get(thread_id),)
        rows = [
            row
            for thread in threads
            if thread is not None
            for row in rows_of(thread, ns)
            if (checkpoint_id is None or row.checkpoint_id == checkpoint_id)
            and (before is None or row.checkpoint_id < before)
        ]
        return sorted(rows, key=lambda row: (row.checkpoint_id, *row[:2]), reverse=True)

    def _decode(
        self, row: CheckpointRow, *, with_results: bool = False, chains: dict[str, Chain] | None = None
    ) -> CheckpointTuple:
        namespace = self._threads[row.thread_id].namespaces[row.checkpoint_ns]
        writes = decode_writes(self.codec, namespace.writes.get(row.checkpoint_id, {}).values())
        if with_results:
            for child_id in namespace.children.get(row.checkpoint_id, ()):
                writes += decode_results(self.codec, namespace.checkpoints[child_id], namespace.find)
        return decode_tuple(self.codec, row, namespace.find, writes, chains)


MemorySaver = InMemorySaver

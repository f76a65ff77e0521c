"""The reference saver: everything in this process's memory, by the same rules and bytes as the SQL saver.

Values go through the codec and are kept encoded, so that what memory gives back is what a database would.
A commit changes nothing until nothing can refuse it any more. Nothing survives the process, and nothing is
shared between processes; one saver may serve several event loops of one thread, one after the other.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, ClassVar, Self

from everstep_savers.addresses import Address, address_of, checked_key
from everstep_savers.base import Config, MaintainedSaver
from everstep_savers.body import unpack_body
from everstep_savers.checkpoint import (
    INTERRUPT,
    WRITES_IDX_MAP,
    Chain,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    Commit,
    DeltaChannelHistory,
    Loaded,
    Status,
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
from everstep_savers.delta import ValueKey, needed_values
from everstep_savers.encoding import encode_commit, encode_put, encode_put_writes, task_writes
from everstep_savers.errors import ThreadConflict
from everstep_savers.fencing import ThreadState, checkpoint_missing, copy_refused, refusal, value_conflict
from everstep_savers.history import HistoryWalk, values_of, visit_row
from everstep_savers.metadata import encode_metadata, has_values
from everstep_savers.parts import StoredValue, gathered, joined
from everstep_savers.retention import Policy, Pruned, Strategy, outline, policy_of, removable
from everstep_savers.rows import CheckpointRow, EncodedCommit, ThreadRow, WriteRow

_QUESTION = WRITES_IDX_MAP[INTERRUPT]


@dataclass(slots=True)
class _Thread:
    """One thread: its row, and its rows of the other tables by key."""

    thread_id: str
    created_at: int
    updated_at: int
    token: int = 0
    generation: int = 0
    is_deleted: bool = False
    head: str | None = None
    status: Status = "done"
    newest_version: int = 0
    error: str | None = None
    run_id: str | None = None
    graph: str | None = None
    attempt: int = 1
    input: Encoded | None = None
    starting_point: str | None = None
    namespaces: dict[str, _Namespace] = field(default_factory=dict)

    def row(self) -> ThreadRow:
        return ThreadRow(
            thread_id=self.thread_id,
            head=self.head,
            status=self.status,
            token=self.token,
            run_id=self.run_id,
            graph=self.graph,
            attempt=self.attempt,
            error=self.error,
            input_tag=self.input[0] if self.input else None,
            input_data=self.input[1] if self.input else None,
            created_at=self.created_at,
            updated_at=self.updated_at,
            starting_point=self.starting_point,
        )

    def state(self) -> ThreadState:
        return ThreadState(self.token, self.head, self.generation, self.is_deleted)


@dataclass(slots=True)
class _Namespace:
    """The rows of one checkpoint namespace."""

    checkpoints: dict[str, CheckpointRow] = field(default_factory=dict)
    newest: str | None = None
    children: dict[str, list[str]] = field(default_factory=dict)
    values: dict[ValueKey, StoredValue] = field(default_factory=dict)
    writes: dict[str, dict[tuple[str, int], WriteRow]] = field(default_factory=dict)

    def find(self, channel: str, version: str) -> StoredValue | None:
        return self.values.get((channel, version))


class InMemorySaver(MaintainedSaver[EncodedCommit]):
    """Keeps checkpoints in memory: for tests, for scripts, and as the reference for other savers."""

    never_waits: ClassVar[bool] = True

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._threads: dict[str, _Thread] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def prepare(self, commit: Commit) -> EncodedCommit:
        return encode_commit(self.codec, commit)

    async def acommit(self, prepared: EncodedCommit) -> int:
        return self._commit(prepared)

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
            self._threads[thread_id] = _Thread(
                thread_id, thread.created_at, thread.updated_at, token, generation=token, is_deleted=True
            )

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        source = self._living(checked_key("thread_id", source_thread_id))
        if source is None or self._living(checked_key("thread_id", target_thread_id)) is not None:
            raise copy_refused(source_thread_id, target_thread_id)
        buried = self._threads.get(target_thread_id)
        self._threads[target_thread_id] = _copy(source, target_thread_id, buried)

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        runs = {checked_key("run_id", run_id) for run_id in run_ids}
        for thread in list(self._threads.values()):
            if not thread.is_deleted and _remove_runs(thread, runs):
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
                doomed = list(_rows_of(thread, None))
            else:
                doomed = _doomed(thread, policy)
            if doomed:
                removed[thread_id] = len(doomed)
            if doomed and not dry_run:
                _remove(thread, doomed)
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
        return joined(rows) if rows else None

    def _commit(self, commit: EncodedCommit) -> int:
        thread = self._threads.get(commit.thread_id)
        if not _is_admitted(commit, thread):
            raise refusal(commit, thread.state() if thread else None)
        if thread is None:
            thread = self._threads[commit.thread_id] = _Thread(commit.thread_id, commit.at, commit.at)
        _check_values(thread, commit)
        _change_row(thread, commit)
        _add_rows(thread, commit)
        return thread.token

    def _living(self, thread_id: str) -> _Thread | None:
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
        threads: Iterable[_Thread | None] = self._threads.values()
        ns = checkpoint_id = None
        if config is not None:
            thread_id, _, checkpoint_id = address_of(config)
            ns = config["configurable"].get("checkpoint_ns")
            threads = (self._threads.get(thread_id),)
        rows = [
            row
            for thread in threads
            if thread is not None
            for row in _rows_of(thread, ns)
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


def _is_admitted(commit: EncodedCommit, thread: _Thread | None) -> bool:
    claim = commit.claim
    if claim is None:
        return not commit.is_fenced or (thread is not None and not thread.is_deleted and thread.token == commit.token)
    if thread is None or thread.is_deleted:
        return claim.seen_token is None
    return thread.token == claim.seen_token and thread.head == claim.seen_head


def _check_values(thread: _Thread, commit: EncodedCommit) -> None:
    """Refuse a second, different value under one channel version: other checkpoints may share the first."""
    for row in commit.values:
        namespace = thread.namespaces.get(row.checkpoint_ns)
        stored = namespace.values.get((row.channel, row.version)) if namespace else None
        if stored is not None and stored != row[3:]:
            raise value_conflict(commit.thread_id)


def _change_row(thread: _Thread, commit: EncodedCommit) -> None:
    if thread.is_deleted:
        thread.is_deleted, thread.created_at = False, commit.at
    head = commit.head
    if head is not None:
        if commit.is_fenced or thread.head is None or thread.head < head:
            thread.head = head
        thread.input = None
    if (claim := commit.claim) is not None:
        thread.token += 1
        thread.run_id, thread.graph, thread.attempt = claim.run_id, claim.graph, claim.attempt
        thread.starting_point = claim.starting_point
        thread.input = None if claim.input_tag is None else (claim.input_tag, claim.input_data or b"")
    if commit.status is not None:
        thread.status, thread.error = commit.status, commit.error
    if commit.newest_version > thread.newest_version:
        thread.newest_version = commit.newest_version
    thread.updated_at = commit.at


def _add_rows(thread: _Thread, commit: EncodedCommit) -> None:
    for row in commit.checkpoints:
        namespace = _namespace(thread, row.checkpoint_ns)
        checkpoint_id, parent_id = row.checkpoint_id, row.parent_id
        if parent_id is not None and checkpoint_id not in namespace.checkpoints:
            namespace.children.setdefault(parent_id, []).append(checkpoint_id)
        namespace.checkpoints[checkpoint_id] = row
        if namespace.newest is None or namespace.newest < checkpoint_id:
            namespace.newest = checkpoint_id
    for _, ns, channel, version, tag, data, base in commit.values:
        _namespace(thread, ns).values[channel, version] = StoredValue(version, tag, data, base)
    for write in commit.writes:
        kept = _namespace(thread, write.checkpoint_ns).writes.setdefault(write.checkpoint_id, {})
        if write.idx < 0:
            kept[write.task_id, write.idx] = write
        else:
            kept.setdefault((write.task_id, write.idx), write)


def _namespace(thread: _Thread, name: str) -> _Namespace:
    namespace = thread.namespaces.get(name)
    if namespace is None:
        namespace = thread.namespaces[name] = _Namespace()
    return namespace


def _copy(source: _Thread, thread_id: str, buried: _Thread | None) -> _Thread:
    at = time.time_ns() // 1000
    copy = _Thread(thread_id, at, at)
    if buried is not None:
        copy.token, copy.generation = buried.token, buried.generation
    copy.head, copy.newest_version, copy.input = source.head, source.newest_version, source.input
    copy.status = "drained" if source.status == "running" else source.status
    copy.graph, copy.error, copy.starting_point = source.graph, source.error, source.starting_point
    for name, kept in source.namespaces.items():
        namespace = _namespace(copy, name)
        namespace.newest, namespace.values = kept.newest, dict(kept.values)
        namespace.children = {parent: list(ids) for parent, ids in kept.children.items()}
        namespace.checkpoints = {key: row._replace(thread_id=thread_id) for key, row in kept.checkpoints.items()}
        namespace.writes = {
            key: {place: row._replace(thread_id=thread_id) for place, row in rows.items()}
            for key, rows in kept.writes.items()
        }
    return copy


def _remove_runs(thread: _Thread, runs: set[str]) -> bool:
    """Remove what only these runs made; whether anything was removed and nothing is left."""
    was_theirs = thread.run_id in runs
    doomed = [row for row in _rows_of(thread, None) if row.run_id in runs]
    if was_theirs:
        thread.token += 1
    _remove(thread, doomed)
    return (was_theirs or bool(doomed)) and not any(_rows_of(thread, None))


def _remove(thread: _Thread, doomed: Iterable[CheckpointRow]) -> None:
    """Remove checkpoints, and what only they used; the head moves back if it is among them."""
    for row in doomed:
        namespace = thread.namespaces[row.checkpoint_ns]
        del namespace.checkpoints[row.checkpoint_id]
        namespace.writes.pop(row.checkpoint_id, None)
        if row.parent_id is not None and row.checkpoint_id in namespace.children.get(row.parent_id, ()):
            namespace.children[row.parent_id].remove(row.checkpoint_id)
    for namespace in thread.namespaces.values():
        bases = {key: value.base for key, value in namespace.values.items()}
        used = needed_values((version_keys(row.versions) for row in namespace.checkpoints.values()), bases)
        namespace.values = {key: value for key, value in namespace.values.items() if key in used}
        namespace.newest = max(namespace.checkpoints, default=None)
    root = thread.namespaces.get("")
    if root is not None and thread.head not in root.checkpoints:
        thread.head = root.newest


def _doomed(thread: _Thread, policy: Policy) -> list[CheckpointRow]:
    """The checkpoints that are to be pruned."""
    outlines = [
        outline(
            row.checkpoint_ns,
            row.checkpoint_id,
            row.parent_id,
            row.created_at,
            row.metadata,
            any(idx == _QUESTION for _, idx in thread.namespaces[row.checkpoint_ns].writes.get(row.checkpoint_id, ())),
        )
        for row in _rows_of(thread, None)
    ]
    places = removable(outlines, thread.head, policy)
    return [thread.namespaces[ns].checkpoints[checkpoint_id] for ns, checkpoint_id in places]


def _rows_of(thread: _Thread, checkpoint_ns: str | None) -> Iterator[CheckpointRow]:
    for name, namespace in thread.namespaces.items():
        if checkpoint_ns is None or name == checkpoint_ns:
            yield from namespace.checkpoints.values()

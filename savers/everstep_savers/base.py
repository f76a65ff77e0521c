"""The contract of a saver: where checkpoints and writes are kept.

`BaseCheckpointSaver` has the methods the neighbouring ecosystem uses. `AtomicSaver` adds what the engine
wants: a whole superstep in one transaction, fenced by the token of the run's claim. The engine takes
the second road where a saver offers it (`atomic` is true) and the first where it does not. `MaintainedSaver`
adds what operators want. Savers know nothing of graphs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, ClassVar, Generic, TypeVar

from everstep_savers.addresses import address_of
from everstep_savers.blocking import run_blocking
from everstep_savers.checkpoint import (
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
from everstep_savers.codec import Codec, Encoded, default_codec
from everstep_savers.fencing import checkpoint_missing
from everstep_savers.history import HistoryWalk
from everstep_savers.retention import Pruned, Strategy
from everstep_savers.script import ScriptMethods

Config = Mapping[str, Any]
PreparedT = TypeVar("PreparedT")


class BaseCheckpointSaver(ScriptMethods, ABC):
    """Keeps checkpoints and pending writes by thread, namespace and checkpoint id.

    A config is ``{"configurable": {"thread_id": ..., "checkpoint_ns": "", "checkpoint_id": None}}``;
    the namespace defaults to the root graph's, the id to the newest checkpoint. Numbers are thread ids by their text.

    What is put comes back equal and of the same type, or is refused before anything is stored: a value that the codec
    cannot keep, or metadata that is not JSON, with `CodecError`; a name that cannot be a key (it has a NUL character
    or a lone surrogate), or a config without a thread, with ``ValueError``. What a program does to its values after
    it has put them, or to those it has read, changes nothing that is stored. `everstep_savers.conformance` has a test
    for each sentence here.
    """

    atomic: ClassVar[bool] = False

    def __init__(self, *, codec: Codec | None = None) -> None:
        # What is sealed is so where it is stored, and nowhere else.
        self.sealing = codec or default_codec
        self.codec = self.sealing.plain

    @abstractmethod
    async def aget_tuple(self, config: Config) -> CheckpointTuple | None:
        """Return the named checkpoint, or the newest of the namespace (of the root: the head), or None.

        The returned `config` names the checkpoint by all three keys; `parent_config` names its parent,
        None for the first. `pending_writes` holds the writes stored against it, in the order of task,
        then index.
        """

    @abstractmethod
    def alist(
        self,
        config: Config | None,
        *,
        filter: Mapping[str, Any] | None = None,
        before: Config | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """Iterate over checkpoints, newest first.

        Args:
            config: Thread, and optionally namespace and id; without a namespace all namespaces of the
                thread are listed, with None all threads.
            filter: Metadata keys that must have exactly these values, of the same type.
            before: Only checkpoints older than this config's `checkpoint_id`.
            limit: At most this many.

        No lock or transaction is held between items: a paused reader holds back no writer. A listing whose thread is
        deleted meanwhile ends.
        """

    @abstractmethod
    async def aput(
        self,
        config: Config,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: Mapping[str, Version],
    ) -> dict[str, Any]:
        """Store a checkpoint as child of the one `config` names, and return the config that names it.

        The newest by its id is the head, in whatever order they are put; one that is there already is replaced.
        Only the channels in `new_versions` are stored; the others are found under the version they had.
        A version holds one value for good, since other checkpoints may share it: a checkpoint that brings
        another value under one of `new_versions` keeps its own, and changes no other.
        """

    @abstractmethod
    async def aput_writes(
        self,
        config: Config,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """Store writes of a task against the checkpoint `config` names, which must have an id.

        Ordinary writes count from 0 and are kept as first written; special writes (`WRITES_IDX_MAP`)
        replace an earlier one of the same task and kind.
        """

    @abstractmethod
    async def adelete_thread(self, thread_id: str) -> None:
        """Remove everything stored for a thread, all namespaces; deleting an unknown thread does nothing.

        The thread id can be used again.
        """

    def get_next_version(self, current: Any, channel: Any = None) -> Any:
        """Return a version greater than `current` (None for the first); `channel` is not used."""
        return (current or 0) + 1

    async def aget(self, config: Config) -> Checkpoint | None:
        """Return the checkpoint alone, see `aget_tuple`."""
        found = await self.aget_tuple(config)
        return found.checkpoint if found else None

    async def aload(self, config: Config) -> Loaded:
        """Return what a run needs to start from `config`.

        Raises:
            CheckpointNotFound: `config` names a checkpoint that the thread does not have.
        """
        found = await self.aget_tuple(config)
        address = address_of(config)
        if found is None and address.checkpoint_id:
            raise checkpoint_missing(address)
        return Loaded(found)

    async def aget_delta_channel_history(
        self, *, config: Config, channels: Sequence[str]
    ) -> dict[str, DeltaChannelHistory]:
        """Return what some channels got on the line that leads to a checkpoint.

        The walk goes from parent to parent, so that branches beside the line count for nothing, and ends for a
        channel at the nearest ancestor with a stored value. The writes of one checkpoint come in the order in which
        they are applied.
        """
        walk = HistoryWalk(channels)
        found = await self.aget_tuple(config)
        if found is not None:
            walk.start(found.checkpoint["channel_values"])
        seen: set[str] = set()
        while walk.open and found is not None and found.checkpoint["id"] not in seen and found.parent_config:
            seen.add(found.checkpoint["id"])
            found = await self.aget_tuple(found.parent_config)
            if found is not None:
                walk.visit(found.checkpoint["channel_values"], found.pending_writes or ())
        return walk.result()

    def get_delta_channel_history(self, *, config: Config, channels: Sequence[str]) -> dict[str, DeltaChannelHistory]:
        """Return the same to a plain script, see `aget_delta_channel_history`."""
        return run_blocking(
            lambda: self.aget_delta_channel_history(config=config, channels=channels),
            "get_delta_channel_history",
            getattr(self, "_loop", None),
        )

    async def aclose(self) -> None:
        """Release what the saver holds; it opens again at its next use."""


class AtomicSaver(BaseCheckpointSaver, Generic[PreparedT]):
    """A saver that stores a `Commit` in one transaction and guards each thread by a fencing token."""

    atomic: ClassVar[bool] = True
    # Does a new checkpoint have to hold all channel values, not only the changed and transient ones?
    wants_whole: ClassVar[bool] = False

    @abstractmethod
    def prepare(self, commit: Commit) -> PreparedT:
        """Encode a commit; the values may change afterwards without changing what is stored.

        Does not wait and touches no storage.

        Raises:
            CodecError: A value cannot be kept; names channel, path inside the value, type and thread.
        """

    @abstractmethod
    async def acommit(self, prepared: PreparedT) -> int:
        """Make a prepared commit durable, all of it or nothing, and return the thread's token.

        Commits of one thread take effect in the order in which they are awaited; repeating a commit
        whose fate is unknown (the connection broke) stores it at most once. Whoever is killed, or gives up, leaves
        whole commits; a refused one does not spoil those of other threads. A claim makes the thread's row if there
        is none, raises the token by one, and clears the error of the run before. The input it brings is kept until
        a later commit brings a root checkpoint. The head moves to the last root checkpoint of the commit. An id
        that was deleted can be claimed anew, under tokens that were never given out.

        Raises:
            ThreadConflict: The commit claims a thread which is no longer as it was seen, or brings another
                value for a channel version that is stored already.
            LeaseLost: The commit's token is not the thread's.
            ThreadDeleted: The thread was deleted since the claim.
            DatabaseUnavailable: The storage cannot be reached.
        """

    def join(self, first: PreparedT, second: PreparedT) -> PreparedT | None:
        """Return one commit that leaves the thread as two that follow each other would; None if there is none.

        The run stores commits together that wait at the same time. A saver whose `prepare` returns something of its
        own joins it in its own way.
        """
        return None

    @abstractmethod
    async def atake_back(self, thread_id: str, token: int, tasks: Sequence[TaskPlace]) -> None:
        """Remove the results of tasks, all or none: they run again when the thread goes on.

        Their special writes stay. Nothing is removed if the token is not the thread's.

        Raises:
            DatabaseUnavailable: The storage cannot be reached.
        """

    @abstractmethod
    async def aget_thread(self, thread_id: str) -> ThreadRecord | None:
        """Return the thread's row, or None."""

    @abstractmethod
    def alist_threads(self, *, status: str | None = None, limit: int | None = None) -> AsyncIterator[ThreadRecord]:
        """Iterate over threads, most recently updated first, optionally those of one status."""


class MaintainedSaver(AtomicSaver[PreparedT]):
    """A saver whose threads can be copied, pruned and cleared of runs; the engine itself needs none of this."""

    @abstractmethod
    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy a thread with all its history, namespaces and pending writes to a new one.

        Nobody owns the copy: that of a running thread has status "drained". It goes its own way from then on.

        Raises:
            ThreadConflict: There is no such thread, or the target exists; or it is encrypted, and was written to
                whenever it was read.
            CodecError: It is encrypted, and this saver has not the key.
        """

    @abstractmethod
    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Remove the checkpoints of some runs, by their ``run_id``, from whatever threads have them.

        The head moves back to the newest checkpoint that is left; a thread of which nothing is left is deleted.
        A run that is under way stores nothing more if it is among them, or if the head it goes on from is removed.
        So does one that may have loaded a state of a subgraph that is removed. Unknown runs are passed over.

        Raises:
            ValueError: `run_ids` is one text, not a list.
        """

    @abstractmethod
    async def aprune(
        self,
        thread_ids: Sequence[str] | None = None,
        *,
        older_than: datetime | timedelta | None = None,
        keep_last: int = 1,
        strategy: Strategy | None = None,
        dry_run: bool = False,
    ) -> Pruned:
        """Remove old checkpoints, and the values and writes that nothing else uses.

        Never removed: the head and the tip of every branch, each with its open questions and the results of finished
        siblings; the points at which branches part, and the first checkpoint of each branch; the states of subgraphs
        that a kept checkpoint continues or is replayed from; values that a kept checkpoint shares with a removed one,
        and the parts of lists that it continues. Pruning may go on while runs write;
        it holds back none of them for longer than a batch, and a prune that is killed can be repeated.

        Args:
            thread_ids: Only these threads; unknown ones are passed over.
            older_than: Only what was made before this moment, or so long ago.
            keep_last: So many checkpoints of each branch are kept. With 0, threads that are done are removed
                altogether, as by `adelete_thread`; of all others the tips are kept.
            strategy: The neighbouring ecosystem's word: ``"keep_latest"`` for ``keep_last=1``, ``"delete"`` removes
                the threads, whatever state they are in.
            dry_run: Only tell what would be removed.

        Raises:
            ValueError: Neither `thread_ids` nor `older_than` is given, or one of the arguments makes no sense.
        """

    @abstractmethod
    async def araw_value(
        self, thread_id: str, channel: str, checkpoint_id: str | None = None, checkpoint_ns: str = ""
    ) -> Encoded | None:
        """Return a channel's value as it is stored, tag and bytes, decodable or not; None if there is none."""

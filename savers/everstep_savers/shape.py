"""Savers of the neighbouring ecosystem, taken by their shape.

`as_atomic` gives any saver the interface the engine uses. A saver without atomic commits gets ordinary and
special writes through `aput_writes` and checkpoints through `aput`: all of a step's writes are stored
before its checkpoint is. It has no claims, so two runs of one thread are not kept apart.

What such a saver does to a value is its own affair: many turn a tuple into a list, and none knows our types. Values
that are not plain go to it as bytes made by our codec, and so come back as they were.

What can be seen to be wrong with such a saver is an error that names the method: one that is not async, that gives
back something else than was asked for, or a version that is not greater than the last. That it has dropped what it
was given cannot be seen.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from inspect import isawaitable, iscoroutine
from typing import Any, ClassVar

from everstep_savers.base import AtomicSaver, BaseCheckpointSaver, Config
from everstep_savers.checkpoint import (
    ERROR,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    Commit,
    TaskPlace,
    TaskWrites,
    ThreadRecord,
    Version,
    copy_checkpoint,
)
from everstep_savers.errors import CodecError
from everstep_savers.listings import closing

_METHODS = ("aget_tuple", "alist", "aput", "aput_writes", "get_next_version")
# What engine and savers read of a stored checkpoint.
_PARTS = ("config", "checkpoint", "metadata", "parent_config", "pending_writes")
_KEYS = ("v", "id", "ts", "channel_values", "channel_versions", "versions_seen")

# The keys of a value that went through our codec.
_TAG, _DATA = "__everstep__", "data"
_MARKS = {_TAG, _DATA}
_INT64 = range(-(2**63), 2**63)


def as_atomic(saver: Any) -> AtomicSaver[Any]:
    """The saver itself if it commits atomically, else an adapter around it.

    Raises:
        TypeError: It is not a saver.
    """
    if isinstance(saver, AtomicSaver):
        return saver
    missing = [name for name in _METHODS if not callable(getattr(saver, name, None))]
    if isinstance(saver, type) or missing:
        what = f"the class {saver.__name__}" if isinstance(saver, type) else f"{type(saver).__name__} {saver!r:.100}"
        lack = f", which has no {', '.join(missing)}" if missing and len(missing) < len(_METHODS) else ""
        raise TypeError(
            f"checkpointer must be a saver such as InMemorySaver() or SQLSaver.from_url(...), got {what}{lack}"
        )
    return ShapeSaver(saver)


class ShapeSaver(AtomicSaver[Commit]):
    """Gives a saver without atomic commits the interface of one that has them."""

    wants_whole: ClassVar[bool] = True

    def __init__(self, saver: BaseCheckpointSaver) -> None:
        super().__init__()
        self.saver = saver

    def prepare(self, commit: Commit) -> Commit:
        thread = f"thread {commit.thread_id!r}"
        checkpoints = [
            replace(
                new,
                checkpoint=self._lowered(new.checkpoint, thread),
                changed=dict(new.changed),
                results=[self._lowered_task(task, thread) for task in new.results],
            )
            for new in commit.checkpoints
        ]
        writes = [self._lowered_task(task, thread) for task in commit.writes]
        return replace(commit, checkpoints=checkpoints, writes=writes)

    async def acommit(self, prepared: Commit) -> int:
        for task in prepared.writes:
            await self._put_writes(prepared.thread_id, task)
        for new in prepared.checkpoints:
            for task in new.results:
                await self._put_writes(prepared.thread_id, task)
            config = _config(prepared.thread_id, new.checkpoint_ns, new.parent_id)
            await self._call("aput", config, new.checkpoint, new.metadata, dict(new.changed))
        return prepared.token

    async def atake_back(self, thread_id: str, token: int, tasks: Sequence[TaskPlace]) -> None:
        """Nothing: such a saver keeps every write."""

    async def _put_writes(self, thread_id: str, task: TaskWrites) -> None:
        config = _config(thread_id, task.checkpoint_ns, task.checkpoint_id)
        await self._call("aput_writes", config, list(task.writes), task.task_id, task.task_path)

    async def _call(self, method: str, *arguments: Any) -> Any:
        """Call a method of the saver.

        Raises:
            TypeError: It has none that is async.
        """
        try:
            answer = getattr(self.saver, method)(*arguments)
            if isawaitable(answer):
                return await answer
        except NotImplementedError as error:
            raise TypeError(self._not_async(method)) from error
        raise TypeError(self._not_async(method))

    def _not_async(self, method: str) -> str:
        return (
            f"{self._name(method)} is not async, and graphs await their saver; compile with the async saver of its "
            "kind, such as AsyncSqliteSaver in place of SqliteSaver"
        )

    def _name(self, method: str) -> str:
        return f"{type(self.saver).__name__}.{method}"

    def _lowered(self, checkpoint: Checkpoint, *place: str) -> Checkpoint:
        lowered = copy_checkpoint(checkpoint)
        values = checkpoint["channel_values"].items()
        lowered["channel_values"] = {
            channel: self._lower(channel, value, f"state key {channel!r}", *place) for channel, value in values
        }
        return lowered

    def _lowered_task(self, task: TaskWrites, *place: str) -> TaskWrites:
        node = (f"node {task.node!r}", *place) if task.node else place
        writes = [
            (channel, self._lower(channel, value, f"write to {channel!r}", *node)) for channel, value in task.writes
        ]
        return replace(task, writes=writes)

    def _lower(self, channel: str, value: Any, *place: str) -> Any:
        try:
            return _plain_copy(value)
        except (_NotPlainError, RecursionError):
            pass
        if channel == ERROR and isinstance(value, BaseException):
            tag, data = self.codec.encode_exception(value)
        else:
            try:
                tag, data = self.codec.encode(value)
            except CodecError as error:
                raise error.within(*place) from error
        return {_TAG: tag, _DATA: data}

    def _lift(self, value: Any) -> Any:
        return self.codec.decode(value[_TAG], value[_DATA]) if type(value) is dict and value.keys() == _MARKS else value

    def _lifted(self, found: CheckpointTuple, method: str, config: Config | None) -> CheckpointTuple:
        if (lack := _lack(found)) is not None:
            raise TypeError(f"{self._name(method)} gave {type(found).__name__} {found!r:.100}, {lack}")
        wanted = (config or {}).get("configurable", {}).get("checkpoint_id")
        if wanted and found.checkpoint["id"] != wanted:
            raise ValueError(
                f"{self._name(method)} gave checkpoint {found.checkpoint['id']!r}, and was asked for {wanted!r}"
            )
        checkpoint = copy_checkpoint(found.checkpoint)
        values = found.checkpoint["channel_values"]
        checkpoint["channel_values"] = {channel: self._lift(value) for channel, value in values.items()}
        writes = [(task_id, channel, self._lift(value)) for task_id, channel, value in found.pending_writes or ()]
        return CheckpointTuple(found.config, checkpoint, found.metadata, found.parent_config, writes)

    async def aget_tuple(self, config: Config) -> CheckpointTuple | None:
        found = await self._call("aget_tuple", config)
        return None if found is None else self._lifted(found, "aget_tuple", config)

    async def alist(
        self,
        config: Config | None,
        *,
        filter: Mapping[str, Any] | None = None,
        before: Config | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        try:
            listing: Any = self.saver.alist(config, filter=filter, before=before, limit=limit)
            if not hasattr(listing, "__aiter__"):
                if iscoroutine(listing):
                    listing.close()
                raise TypeError(f"{self._name('alist')} gave {type(listing).__name__}, which is no async iterator")
            async with closing(listing):
                async for found in listing:
                    yield self._lifted(found, "alist", config)
        except NotImplementedError as error:
            raise TypeError(self._not_async("alist")) from error

    async def aput(
        self,
        config: Config,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: Mapping[str, Version],
    ) -> dict[str, Any]:
        stored: dict[str, Any] = await self._call("aput", config, self._lowered(checkpoint), metadata, new_versions)
        return stored

    async def aput_writes(
        self, config: Config, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        lowered = [(channel, self._lower(channel, value, f"write to {channel!r}")) for channel, value in writes]
        await self._call("aput_writes", config, lowered, task_id, task_path)

    async def adelete_thread(self, thread_id: str) -> None:
        await self._call("adelete_thread", thread_id)

    async def aget_thread(self, thread_id: str) -> ThreadRecord | None:
        """None: such a saver keeps no row of a thread."""
        return None

    async def alist_threads(
        self, *, status: str | None = None, limit: int | None = None
    ) -> AsyncIterator[ThreadRecord]:
        """Nothing: such a saver keeps no rows of threads."""
        nothing: tuple[ThreadRecord, ...] = ()
        for record in nothing:
            yield record

    def get_next_version(self, current: Any, channel: Any = None) -> Any:
        version = self.saver.get_next_version(current, channel)
        if version is None or (current is not None and not version > current):
            raise ValueError(
                f"{self._name('get_next_version')} gave {version!r} after {current!r}; a version has to be greater "
                "than the one before, or nodes that should run do not"
            )
        return version


def _lack(found: Any) -> str | None:
    """What something lacks to be a stored checkpoint with its writes; None if nothing."""
    if missing := [name for name in _PARTS if not hasattr(found, name)]:
        return f"which is no checkpoint tuple: it has no {', '.join(missing)}"
    checkpoint = found.checkpoint
    if not isinstance(checkpoint, Mapping) or not isinstance(found.metadata, Mapping):
        return "whose checkpoint or metadata is no mapping"
    if missing := [name for name in _KEYS if name not in checkpoint]:
        return f"whose checkpoint has no {', '.join(missing)}"
    if any(not isinstance(write, tuple | list) or len(write) != 3 for write in found.pending_writes or ()):
        return "whose pending writes are not task id, channel and value each"
    return None


class _NotPlainError(Exception):
    """A value is of a type that not every saver keeps."""


def _plain_copy(value: Any) -> Any:
    """A copy of a value of JSON's types, and bytes: every saver can be trusted with it.

    Raises:
        _NotPlainError: It is of another type, or has a part that is.
    """
    kind = type(value)
    if value is None or kind in (bool, float, bytes) or (kind is int and value in _INT64):
        return value
    if kind is str and (value.isascii() or not _has_surrogates(value)):
        return value
    if kind is list:
        return [_plain_copy(item) for item in value]
    if kind is dict and _TAG not in value and all(type(key) is str for key in value):
        return {_plain_copy(key): _plain_copy(item) for key, item in value.items()}
    raise _NotPlainError


def _has_surrogates(text: str) -> bool:
    return any("\ud800" <= character <= "\udfff" for character in text)


def _config(thread_id: str, checkpoint_ns: str, checkpoint_id: str | None) -> dict[str, Any]:
    configurable: dict[str, Any] = {"thread_id": thread_id, "checkpoint_ns": checkpoint_ns}
    if checkpoint_id is not None:
        configurable["checkpoint_id"] = checkpoint_id
    return {"configurable": configurable}

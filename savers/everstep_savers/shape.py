"""Savers of the neighbouring ecosystem, taken by their shape.

`as_atomic` gives any saver the interface the engine uses. A saver without atomic commits gets ordinary and
special writes through `aput_writes` and checkpoints through `aput`: all of a step's writes are stored
before its checkpoint is. It has no claims, so two runs of one thread are not kept apart.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, ClassVar

from everstep_savers.base import AtomicSaver, BaseCheckpointSaver, Config
from everstep_savers.checkpoint import (
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    Commit,
    TaskWrites,
    ThreadRecord,
    Version,
    copy_checkpoint,
)

_METHODS = ("aget_tuple", "alist", "aput", "aput_writes")


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
        raise TypeError(f"checkpointer must be a saver such as InMemorySaver() or SQLSaver.from_url(...), got {what}")
    return ShapeSaver(saver)


class ShapeSaver(AtomicSaver[Commit]):
    """Gives a saver without atomic commits the interface of one that has them."""

    wants_whole: ClassVar[bool] = True

    def __init__(self, saver: BaseCheckpointSaver) -> None:
        super().__init__()
        self.saver = saver

    def prepare(self, commit: Commit) -> Commit:
        return commit

    async def acommit(self, prepared: Commit) -> int:
        for writes in prepared.writes:
            await self._put_writes(prepared.thread_id, writes)
        for new in prepared.checkpoints:
            for writes in new.results:
                await self._put_writes(prepared.thread_id, writes)
            config = _config(prepared.thread_id, new.checkpoint_ns, new.parent_id)
            await self.saver.aput(config, copy_checkpoint(new.checkpoint), new.metadata, dict(new.changed))
        return prepared.token

    async def _put_writes(self, thread_id: str, task: TaskWrites) -> None:
        config = _config(thread_id, task.checkpoint_ns, task.checkpoint_id)
        await self.saver.aput_writes(config, list(task.writes), task.task_id, task.task_path)

    async def aget_tuple(self, config: Config) -> CheckpointTuple | None:
        return await self.saver.aget_tuple(config)

    async def alist(
        self,
        config: Config | None,
        *,
        filter: Mapping[str, Any] | None = None,
        before: Config | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        async for found in self.saver.alist(config, filter=filter, before=before, limit=limit):
            yield found

    async def aput(
        self,
        config: Config,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: Mapping[str, Version],
    ) -> dict[str, Any]:
        return await self.saver.aput(config, checkpoint, metadata, new_versions)

    async def aput_writes(
        self, config: Config, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        await self.saver.aput_writes(config, writes, task_id, task_path)

    async def adelete_thread(self, thread_id: str) -> None:
        await self.saver.adelete_thread(thread_id)

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
        return self.saver.get_next_version(current, channel)


def _config(thread_id: str, checkpoint_ns: str, checkpoint_id: str | None) -> dict[str, Any]:
    configurable: dict[str, Any] = {"thread_id": thread_id, "checkpoint_ns": checkpoint_ns}
    if checkpoint_id is not None:
        configurable["checkpoint_id"] = checkpoint_id
    return {"configurable": configurable}

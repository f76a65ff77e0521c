"""A saver with a valve on its commits: they can be counted, held, delayed, failed or cut.

It wraps a real saver and changes nothing of what that one stores.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any

from everstep_savers.base import AtomicSaver, Config
from everstep_savers.checkpoint import (
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    Commit,
    Loaded,
    TaskPlace,
    ThreadRecord,
    Version,
)

Hook = Callable[[int, Any], Awaitable[None]]


async def _nothing(number: int, commit: Any) -> None:
    """Let a commit pass."""


class WatchedSaver(AtomicSaver[Any]):
    """Counts the commits of a saver; calls `before` and `after` each with its number, from 1, and what it stores.

    Attributes:
        on_load: Called when a run has read the thread it is about to claim.
    """

    def __init__(self, saver: AtomicSaver[Any], *, before: Hook = _nothing, after: Hook = _nothing) -> None:
        super().__init__(codec=saver.codec)
        self.saver = saver
        self.before = before
        self.after = after
        self.on_load: Callable[[], Awaitable[Any]] | None = None
        self.commits = 0

    def prepare(self, commit: Commit) -> Any:
        return self.saver.prepare(commit)

    async def acommit(self, prepared: Any) -> int:
        self.commits += 1
        number = self.commits
        await self.before(number, prepared)
        token = await self.saver.acommit(prepared)
        await self.after(number, prepared)
        return token

    async def atake_back(self, thread_id: str, token: int, tasks: Sequence[TaskPlace]) -> None:
        await self.saver.atake_back(thread_id, token, tasks)

    async def aload(self, config: Config) -> Loaded:
        loaded = await self.saver.aload(config)
        if self.on_load is not None:
            await self.on_load()
        return loaded

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
        return await self.saver.aget_thread(thread_id)

    async def alist_threads(
        self, *, status: str | None = None, limit: int | None = None
    ) -> AsyncIterator[ThreadRecord]:
        async for found in self.saver.alist_threads(status=status, limit=limit):
            yield found


class StoreBroke(OSError):
    """What a failing store raises in these tests."""


def failing(*numbers: int) -> Hook:
    """Fail the commits of these numbers before they take effect."""

    async def hook(number: int, commit: Any) -> None:
        if number in numbers:
            raise StoreBroke(f"commit {number} failed")

    return hook


def failing_from(first: int) -> Hook:
    """Fail this commit and all that follow: the store is gone."""

    async def hook(number: int, commit: Any) -> None:
        if number >= first:
            raise StoreBroke(f"commit {number} failed")

    return hook


class Gate:
    """Holds one commit until it is let go; tells when the commit has come."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.reached = asyncio.Event()
        self.opened = asyncio.Event()

    async def __call__(self, number: int, commit: Any) -> None:
        if number == self.number:
            self.reached.set()
            await self.opened.wait()

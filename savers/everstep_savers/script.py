"""The methods of a saver for plain scripts: each is its async twin over the blocking bridge.

They are served by the event loop on which the saver is open, or else by the one behind `invoke`. Where an event loop
runs they raise and name the async method; a saver that never waits answers there too. Nothing is stored or read here.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Protocol, Self, TypeVar, cast

from everstep_savers.blocking import iterate_blocking, run_at_once, run_blocking, runs_in_loop
from everstep_savers.checkpoint import Checkpoint, CheckpointMetadata, CheckpointTuple, Version

Config = Mapping[str, Any]
T = TypeVar("T")


class Saves(Protocol):
    """The async methods behind them."""

    never_waits: ClassVar[bool]

    async def aget_tuple(self, config: Config) -> CheckpointTuple | None: ...

    async def aget(self, config: Config) -> Checkpoint | None: ...

    def alist(
        self,
        config: Config | None,
        *,
        filter: Mapping[str, Any] | None = None,
        before: Config | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]: ...

    async def aput(
        self,
        config: Config,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: Mapping[str, Version],
    ) -> dict[str, Any]: ...

    async def aput_writes(
        self, config: Config, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None: ...

    async def adelete_thread(self, thread_id: str) -> None: ...


class ScriptMethods:
    """The sync methods of a saver; see their async twins for what they promise."""

    # Do the async methods end without ever waiting?
    never_waits: ClassVar[bool] = False

    def get_tuple(self: Saves, config: Config) -> CheckpointTuple | None:
        """`aget_tuple` for plain scripts."""
        return _served(self, lambda: self.aget_tuple(config), "get_tuple")

    def get(self: Saves, config: Config) -> Checkpoint | None:
        """`aget` for plain scripts."""
        return _served(self, lambda: self.aget(config), "get")

    def list(self: Saves, config: Config | None, **selection: Any) -> Iterator[CheckpointTuple]:
        """`alist` for plain scripts."""
        if not (self.never_waits and runs_in_loop()):
            return iterate_blocking(lambda: self.alist(config, **selection), "list", _home_of(self))
        return _at_once(self.alist(config, **selection))

    def put(
        self: Saves,
        config: Config,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: Mapping[str, Version],
    ) -> dict[str, Any]:
        """`aput` for plain scripts."""
        return _served(self, lambda: self.aput(config, checkpoint, metadata, new_versions), "put")

    def put_writes(
        self: Saves, config: Config, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """`aput_writes` for plain scripts."""
        _served(self, lambda: self.aput_writes(config, writes, task_id, task_path), "put_writes")

    def delete_thread(self: Saves, thread_id: str) -> None:
        """`adelete_thread` for plain scripts."""
        _served(self, lambda: self.adelete_thread(thread_id), "delete_thread")


class Opens(Protocol):
    """The async methods behind opening and closing."""

    async def __aenter__(self) -> Any: ...

    async def aclose(self) -> None: ...


class ScriptOpening:
    """What is opened and closed, for plain scripts: a sync context manager, and `close`."""

    def __enter__(self) -> Self:
        run_blocking(cast(Opens, self).__aenter__, "enter", _home_of(self))
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """`aclose` for plain scripts."""
        run_blocking(cast(Opens, self).aclose, "close", _home_of(self))


def _served(saver: Saves, call: Callable[[], Awaitable[T]], name: str) -> T:
    if saver.never_waits and runs_in_loop():
        return run_at_once(call())
    return run_blocking(call, name, _home_of(saver))


def _home_of(saver: Any) -> Any:
    """The event loop on which a saver of a database is open."""
    return getattr(saver, "_loop", None)


def _at_once(items: AsyncIterator[T]) -> Iterator[T]:
    ended: Any = object()
    while (item := run_at_once(_next(items, ended))) is not ended:
        yield item


async def _next(items: AsyncIterator[T], ended: T) -> T:
    return await anext(items, ended)

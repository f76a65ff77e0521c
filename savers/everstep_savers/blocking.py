"""The one bridge from plain scripts to async code.

A sync method of a graph, a store or a cache runs its async twin on one background event loop of the process
and waits for it. Called where an event loop runs it would block that loop, so it raises at once and names the
async method. Whoever knows a better loop than the background one, such as the engine for sync nodes in worker
threads, says so by `serve_from`.
"""

from __future__ import annotations

import asyncio
import atexit
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from anyio.from_thread import BlockingPortal

T = TypeVar("T")
Loop = asyncio.AbstractEventLoop

_lock = threading.Lock()
_portal: BlockingPortal | None = None
_manager: AbstractContextManager[BlockingPortal] | None = None
_finders: list[Callable[[], Loop | None]] = []


def serve_from(find: Callable[[], Loop | None]) -> None:
    """Ask `find` for the loop that serves a blocking call, before the background loop does."""
    _finders.append(find)


def run_blocking(call: Callable[[], Awaitable[T]], name: str, loop: Loop | None = None) -> T:
    """Run an async call to its end and return its result.

    Args:
        call: Makes the awaitable; called on the loop that serves it.
        name: The sync method, for the message; the async one is named ``a`` + `name`.
        loop: Serves the call if it runs.
    """
    _refuse_in_loop(name)
    serving = _serving_loop(loop)
    if serving is not None:
        return asyncio.run_coroutine_threadsafe(_await(call), serving).result()
    return _open_portal().call(_await, call)


def iterate_blocking(make: Callable[[], AsyncIterator[T]], name: str) -> Iterator[T]:
    """Iterate over an async iterator; leaving early closes it."""
    _refuse_in_loop(name)
    iterator: Any = run_blocking(lambda: _made(make), name)
    ended = object()

    async def following() -> Any:
        return await anext(iterator, ended)

    try:
        while (item := run_blocking(following, name)) is not ended:
            yield item
    finally:
        if hasattr(iterator, "aclose"):
            run_blocking(iterator.aclose, name)


def _refuse_in_loop(name: str) -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise RuntimeError(f"{name}() would block the running event loop; use the async a{name}() here")


def _serving_loop(own: Loop | None) -> Loop | None:
    for find in (lambda: own, *_finders):
        found = find()
        if found is not None and found.is_running():
            return found
    return None


async def _await(call: Callable[[], Awaitable[T]]) -> T:
    return await call()


async def _made(make: Callable[[], T]) -> T:
    return make()


def _open_portal() -> BlockingPortal:
    global _portal, _manager
    from anyio.from_thread import start_blocking_portal  # async programs never need it

    with _lock:
        if _portal is None:
            _manager = start_blocking_portal(name="everstep")
            _portal = _manager.__enter__()
            atexit.register(_close_portal)
        return _portal


def _close_portal() -> None:
    global _portal, _manager
    with _lock:
        manager, _portal, _manager = _manager, None, None
    if manager is not None:
        manager.__exit__(None, None, None)

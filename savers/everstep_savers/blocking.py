"""The one bridge from plain scripts to async code.

A sync method of a graph, a store or a cache runs its async twin on one background event loop of the process
and waits for it. Called where an event loop runs it would block that loop, so it raises at once and names the
async method. Whoever knows a better loop than the background one, such as the engine for sync nodes in worker
threads, says so by `serve_from`.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import os
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import Future
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from anyio.from_thread import BlockingPortal

T = TypeVar("T")
Loop = asyncio.AbstractEventLoop

# Seconds that a call interrupted by Ctrl-C may take to end.
_CANCEL_DEADLINE = 30.0

_lock = threading.Lock()
_portal: BlockingPortal | None = None
_manager: AbstractContextManager[BlockingPortal] | None = None
# The program ends: the background loop has closed what was left open, and no thread can be started any more.
_is_ending = False
_finders: list[Callable[[], Loop | None]] = []
# Portals of the processes from which this one was forked; one that is collected waits for its thread for ever.
_of_parents: list[AbstractContextManager[BlockingPortal]] = []


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
    result: T = _wait_for(_open_portal().start_task_soon(_contained, call))
    return result


def _wait_for(future: Future[tuple[BaseException | None, Any]]) -> Any:
    """Wait for a call; a Ctrl-C cancels it and waits until it has ended."""
    try:
        raised, result = future.result()
    except BaseException:
        if not future.done():
            future.cancel()
        with contextlib.suppress(BaseException):
            future.result(_CANCEL_DEADLINE)
        raise
    if raised is not None:
        raise raised
    return result


async def _contained(call: Callable[[], Awaitable[Any]]) -> tuple[BaseException | None, Any]:
    """Run a call; what would end the loop that serves everybody is handed to the one who waits."""
    try:
        return None, await call()
    except (KeyboardInterrupt, SystemExit) as signal:
        return signal, None


def iterate_blocking(make: Callable[[], AsyncIterator[T]], name: str, loop: Loop | None = None) -> Iterator[T]:
    """Iterate over an async iterator; leaving early closes it. The arguments are those of `run_blocking`."""
    _refuse_in_loop(name)
    iterator: Any = run_blocking(lambda: _made(make), name, loop)
    ended = object()

    async def following() -> Any:
        return await anext(iterator, ended)

    try:
        while (item := run_blocking(following, name, loop)) is not ended:
            yield item
    finally:
        if hasattr(iterator, "aclose") and not _is_ending:
            run_blocking(iterator.aclose, name, loop)


def run_at_once(call: Awaitable[T]) -> T:
    """Run an async call that never waits, whether or not an event loop is running."""
    steps = call.__await__()
    try:
        next(steps)
    except StopIteration as ended:
        result: T = ended.value
        return result
    raise RuntimeError("an async call that never waits has waited")


def runs_in_loop() -> bool:
    """Does an event loop run in this thread?"""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _refuse_in_loop(name: str) -> None:
    if runs_in_loop():
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
    global _portal, _manager, _is_ending
    with _lock:
        manager, _portal, _manager, _is_ending = _manager, None, None, True
    if manager is not None:
        # As if the program had been broken off: what still runs on the loop is cancelled, not waited for.
        ending = SystemExit()
        manager.__exit__(SystemExit, ending, None)


def _begin_child() -> None:
    """A forked child has the threads of its parent no more: its bridge opens anew."""
    global _lock, _portal, _manager
    if _manager is not None:
        _of_parents.append(_manager)
    _lock, _portal, _manager = threading.Lock(), None, None


os.register_at_fork(after_in_child=_begin_child)

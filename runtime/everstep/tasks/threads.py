"""Sync nodes in worker threads, and the slots that bodies hold.

A thread cannot be stopped: when its attempt times out or is cancelled it goes on, its result is dropped,
and its slot is given back when it really ends. Subgraphs and `@task` calls take their threads from a pool of
their own level, so that nodes which wait for them never keep them from running.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from contextvars import Context
from typing import Any
from weakref import WeakKeyDictionary

import anyio
import anyio.to_thread

from everstep.constants import NS_SEP
from everstep.tasks.current import Attempt

# Sync bodies that run at once per level of subgraphs, in one event loop.
THREADS = 40

_pools: WeakKeyDictionary[asyncio.AbstractEventLoop, list[anyio.CapacityLimiter]] = WeakKeyDictionary()


async def run_in_thread(attempt: Attempt, context: Context, body: Callable[[], Any]) -> Any:
    """Run a sync body in a worker thread, in `context`; a cancelled caller does not wait for the thread."""
    loop = attempt.run.loop

    def run() -> Any:
        attempt.flow = threading.get_ident()
        try:
            return None, context.run(body)
        except BaseException as error:
            # As a value: a future gives no GeneratorExit or StopIteration on to who awaits it.
            return error, None
        finally:
            with contextlib.suppress(RuntimeError):  # the loop may be closed by the time a late thread ends
                loop.call_soon_threadsafe(_thread_ended, attempt)

    attempt.in_thread = True
    error, result = await anyio.to_thread.run_sync(run, abandon_on_cancel=True, limiter=_pool_of(attempt))
    if error is not None:
        raise error
    return result


@asynccontextmanager
async def slot_of(attempt: Attempt) -> AsyncIterator[None]:
    """Hold one of the run's slots (`max_concurrency`) while the body runs."""
    slots = attempt.run.slots
    if slots is None:
        yield
        return
    await slots.acquire()
    attempt.holds_slot = attempt.in_body = True
    try:
        yield
    finally:
        attempt.in_body = False
        if not attempt.in_thread:
            give_slot(attempt)


@asynccontextmanager
async def lending_slot(attempt: Attempt) -> AsyncIterator[None]:
    """Run something of the body's own, which needs slots: the body holds none until the last such thing has ended."""
    attempt.lent += 1
    give_slot(attempt)
    try:
        yield
    except asyncio.CancelledError:
        attempt.lent -= 1  # the body is about to end, or does not want to wait
        raise
    except BaseException:
        await _take_back(attempt)
        raise
    else:
        await _take_back(attempt)


async def _take_back(attempt: Attempt) -> None:
    attempt.lent -= 1
    if attempt.holds_slot or not _wants_slot(attempt):
        return
    await take_slot(attempt)
    if not _wants_slot(attempt):  # it has changed while there was none free
        give_slot(attempt)


def _wants_slot(attempt: Attempt) -> bool:
    return attempt.in_body and not attempt.lent


def give_slot(attempt: Attempt) -> bool:
    """Give the attempt's slot back, if it holds one."""
    held, attempt.holds_slot = attempt.holds_slot, False
    if held and attempt.run.slots is not None:
        attempt.run.slots.release()
    return held


async def take_slot(attempt: Attempt) -> None:
    """Take a slot again."""
    if attempt.run.slots is not None:
        await attempt.run.slots.acquire()
        attempt.holds_slot = True


def _thread_ended(attempt: Attempt) -> None:
    attempt.in_thread = False
    if attempt.closed:
        give_slot(attempt)


def _pool_of(attempt: Attempt) -> anyio.CapacityLimiter:
    ns = attempt.run.config.checkpoint_ns
    level = (ns.count(NS_SEP) + 1 if ns else 0) + attempt.task.depth
    pools = _pools.setdefault(attempt.run.loop, [])
    while len(pools) <= level:
        pools.append(anyio.CapacityLimiter(THREADS))
    return pools[level]

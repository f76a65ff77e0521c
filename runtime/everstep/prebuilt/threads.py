"""Sync code of the user's, in the middle of an async node."""

from __future__ import annotations

import contextvars
from collections.abc import Callable
from typing import TypeVar

import anyio.to_thread

from everstep.context import current_task
from everstep.tasks.current import Attempt
from everstep.tasks.threads import run_in_thread

T = TypeVar("T")


async def in_thread(body: Callable[[], T]) -> T:
    """Run it in a worker thread: in a run, one of the run's, so that what it does there belongs to the running node."""
    running = current_task.get(None)
    if not isinstance(running, Attempt):
        return await anyio.to_thread.run_sync(body, abandon_on_cancel=True)
    flow = running.flow
    try:
        found: T = await run_in_thread(running, contextvars.copy_context(), body)
    finally:
        # While it ran, what it called was in the flow of the node.
        running.flow = flow
    return found

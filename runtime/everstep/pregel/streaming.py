"""A run that somebody reads: its task, and the events that come from it.

The run is a task of its own, owned by its reader: a reader that leaves early must not tear open a scope of
the run. What was put into the buffer is read to the end before the run's result or error is told.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from everstep.pregel.commits import shielded
from everstep.stream.buffer import Outlet
from everstep.stream.events import Event
from everstep.stream.parts import View, as_text
from everstep.tasks.current import Attempt

# Seconds that a run whose reader has left may take to end.
_CLOSE_DEADLINE = 30.0


class Reading:
    """A run under way, seen by its reader."""

    def __init__(self, run: asyncio.Task[Any], outlet: Outlet, view: View) -> None:
        self._run = run
        self._outlet = outlet
        self._view = view
        self._reader: asyncio.Task[Any] | None = None

    async def next(self) -> Event | None:
        """The next event that is yielded, those that are printed being printed; None if there are no more."""
        self._reader = asyncio.current_task()
        while (event := await self._outlet.get()) is not None:
            if event.mode in self._view.printed:
                print(as_text(event, with_style=sys.stdout is not None and sys.stdout.isatty()))
            if event.mode in self._view.modes:
                return event
        return None

    async def result(self) -> Any:
        """What the run returned, once all events are read."""
        while await self.next() is not None:
            pass
        return await self._run

    def end_if_left_by(self, task: asyncio.Task[Any] | None) -> None:
        """End the run if `task`, which has ended, was its reader: an iterator may outlive who iterated."""
        if self._reader is None or self._reader is task or self._reader.done():
            self._run.cancel()


@asynccontextmanager
async def reading(
    run: Coroutine[Any, Any, Any], outlet: Outlet, view: View, parent: Attempt | None
) -> AsyncIterator[Reading]:
    """Start a run and read it; leaving the context ends the run.

    Args:
        parent: The attempt of the node that reads it.
    """
    task = asyncio.create_task(run)
    task.add_done_callback(lambda _: outlet.close())
    read = Reading(task, outlet, view)
    if parent is not None:
        parent.reads.append(read)
    try:
        yield read
    finally:
        outlet.close()
        if not task.done():
            task.cancel()
            await shielded(_ended(task), _CLOSE_DEADLINE)
        if parent is not None:
            parent.reads.remove(read)
        if not task.cancelled():
            task.exception()  # whoever leaves early does not want to hear of it


async def _ended(run: asyncio.Task[Any]) -> None:
    await asyncio.wait([run])

"""A run that somebody reads: its task, and the events that come from it.

The run is a task of its own, owned by its reader: a reader that leaves early must not tear open a scope of
the run. What was put into the buffer is read to the end before the run's result or error is told.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Coroutine
from typing import Any, Self

from everstep.pregel.commits import shielded
from everstep.stream.buffer import Outlet
from everstep.stream.events import Event
from everstep.stream.parts import View, as_text
from everstep.tasks.current import Attempt

# Seconds that a run whose reader has left may take to end.
_CLOSE_DEADLINE = 30.0


class Reading:
    """A run under way, seen by its reader; leaving the context ends it.

    Not made of an async generator: a loop that ends closes all generators at once, this one and the iterator around it.

    Args:
        parent: The attempt of the node that reads the run.
    """

    def __init__(self, run: Coroutine[Any, Any, Any], outlet: Outlet, view: View, parent: Attempt | None) -> None:
        self._outlet = outlet
        self._view = view
        self._parent = parent
        self._reader: asyncio.Task[Any] | None = None
        self._run = asyncio.create_task(run)
        self._run.add_done_callback(lambda _: outlet.close())

    async def __aenter__(self) -> Self:
        if self._parent is not None:
            self._parent.reads.append(self)
        return self

    async def __aexit__(self, *raised: object) -> None:
        self._outlet.close()
        if not self._run.done():
            self._run.cancel()
            await shielded(_ended(self._run), _CLOSE_DEADLINE)
        if self._parent is not None:
            self._parent.reads.remove(self)
        if not self._run.cancelled():
            self._run.exception()  # whoever leaves early does not want to hear of it

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


async def _ended(run: asyncio.Task[Any]) -> None:
    await asyncio.wait([run])

"""The buffer between a run and the reader of its stream.

Bounded: a run whose reader is slow waits in `room`, so that memory stays flat. Events come out in the
order in which they were put in. The buffer does not own the run.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Collection
from typing import Any

# Namespace of the graph it comes from (one name and task id per level), stream mode, payload.
Event = tuple[tuple[str, ...], str, Any]

# Events that wait before the run does.
DEFAULT_SIZE = 64


class Outlet:
    """Where a run puts its events.

    Attributes:
        modes: The stream modes that somebody reads; the run makes no other events.
        subgraphs: Are the events of subgraphs read too?
    """

    __slots__ = ("_closed", "_events", "_loop", "_reader", "_size", "_thread", "_writers", "modes", "subgraphs")

    def __init__(self, modes: Collection[str], *, subgraphs: bool = False, size: int = DEFAULT_SIZE) -> None:
        self.modes = frozenset(modes)
        self.subgraphs = subgraphs
        self._size = size
        self._events: deque[Event] = deque()
        self._reader: asyncio.Future[None] | None = None
        self._writers: list[asyncio.Future[None]] = []
        self._closed = False
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()

    def put(self, event: Event) -> None:
        """Add an event, from the run's loop or from a worker thread; does not wait."""
        if threading.get_ident() == self._thread:
            self._put(event)
        else:
            self._loop.call_soon_threadsafe(self._put, event)

    async def room(self) -> None:
        """Wait until the reader has caught up."""
        while len(self._events) >= self._size and not self._closed:
            turn = self._loop.create_future()
            self._writers.append(turn)
            await turn

    def close(self) -> None:
        """No more events come, or nobody reads any more."""
        self._closed = True
        self._wake(self._reader)
        self._wake_writers()

    async def get(self) -> Event | None:
        """The next event, or None once the buffer is closed and empty."""
        while not self._events:
            if self._closed:
                return None
            self._reader = self._loop.create_future()
            await self._reader
        event = self._events.popleft()
        if len(self._events) < self._size:
            self._wake_writers()
        return event

    def _put(self, event: Event) -> None:
        if not self._closed:
            self._events.append(event)
            self._wake(self._reader)

    def _wake_writers(self) -> None:
        writers, self._writers = self._writers, []
        for turn in writers:
            self._wake(turn)

    @staticmethod
    def _wake(waiting: asyncio.Future[None] | None) -> None:
        if waiting is not None and not waiting.done():
            waiting.set_result(None)

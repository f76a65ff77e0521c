"""The buffer between a run and the reader of its stream.

Bounded: a run whose reader is slow waits, so that memory stays flat. On the event loop it waits in `room`;
a worker thread waits in `wait_for_room`. Putting an event in never waits, so the buffer may go beyond its
size by what is put in between two waits. Events come out in the order in which they were put in. The buffer
does not own the run.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Collection

from everstep.stream.events import Event

# Events that wait before the run does.
DEFAULT_SIZE = 64
# Seconds after which a waiting thread looks whether the program is ending: nobody may be left to wake it.
_LOOK = 1.0


class Outlet:
    """Where a run puts its events.

    Attributes:
        modes: The stream modes that somebody reads; the run makes no other events.
        subgraphs: Are the events of subgraphs read too?
        seen: Ids of the messages that mode "messages" need not tell any more; see `everstep.pregel.messages`.
    """

    __slots__ = (
        "_closed",
        "_events",
        "_freed",
        "_loop",
        "_reader",
        "_size",
        "_thread",
        "_threads",
        "_waiting",
        "modes",
        "seen",
        "subgraphs",
    )

    def __init__(self, modes: Collection[str], *, subgraphs: bool = False, size: int = DEFAULT_SIZE) -> None:
        self.modes = frozenset(modes)
        self.subgraphs = subgraphs
        # Id -> the node that has told it, and in which attempts; None for what was there before.
        self.seen: dict[str, tuple[str, tuple[int, ...]] | None] = {}
        self._size = size
        self._events: deque[Event] = deque()
        self._closed = False
        self._reader: asyncio.Future[None] | None = None
        # The runs (and nodes) that wait for room on the loop, and how many threads do.
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._threads = 0
        self._freed = threading.Condition()
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()

    @property
    def is_full(self) -> bool:
        """Has the reader fallen behind?"""
        return len(self._events) >= self._size and not self._closed

    def put(self, event: Event) -> None:
        """Add an event, from any thread; does not wait."""
        if self._closed:
            return
        self._events.append(event)
        # Read after the event is in, as the reader looks for events after it has said that it waits: one of
        # the two sees the other.
        reader = self._reader
        if reader is None:
            return
        if threading.get_ident() == self._thread:
            _wake(reader)
        else:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody reads any more
                self._loop.call_soon_threadsafe(_wake, reader)

    async def room(self) -> None:
        """Wait until the reader has caught up."""
        if not self.is_full:
            return
        if asyncio.get_running_loop() is not self._loop:
            # A node that runs a subgraph on a loop of its own.
            await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self.room(), self._loop))
            return
        while self.is_full:
            turn = self._loop.create_future()
            self._waiting.append(turn)
            await turn

    def wait_for_room(self) -> None:
        """Block the calling thread until the reader has caught up; the loop's own is not blocked."""
        if not self.is_full or threading.get_ident() == self._thread:
            return
        with self._freed:
            # Counted before looking, as the reader takes an event out before it looks at the count.
            self._threads += 1
            try:
                while self.is_full and threading.main_thread().is_alive():
                    self._freed.wait(_LOOK)
            finally:
                self._threads -= 1

    def close(self) -> None:
        """No more events come, or nobody reads any more."""
        self._closed = True
        if self._reader is not None:
            _wake(self._reader)
        self._give_turns()

    async def get(self) -> Event | None:
        """The next event, or None once the buffer is closed and empty."""
        while not self._events:
            if self._closed:
                return None
            self._reader = self._loop.create_future()
            if self._events:
                break
            await self._reader
        self._reader = None
        event = self._events.popleft()
        if (self._waiting or self._threads) and len(self._events) <= self._size // 2:
            # Not at the first free place: a run that goes on for one event only to wait again is a slow run.
            self._give_turns()
        return event

    def _give_turns(self) -> None:
        while self._waiting:
            _wake(self._waiting.popleft())
        if self._threads:
            with self._freed:
                self._freed.notify_all()


def _wake(waiting: asyncio.Future[None]) -> None:
    if not waiting.done():
        waiting.set_result(None)

"""The commits of one run, in order: now, or behind the run.

A queue belongs to a root run and serves its subgraphs too, so that everything the run does to its thread
carries one token and takes effect in one order. It knows what a commit is and how urgent, not what a task or a
superstep is.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Coroutine
from itertools import islice
from typing import Any

from everstep.pregel.held import Held
from everstep.types import Durability
from everstep_savers.base import AtomicSaver
from everstep_savers.checkpoint import Commit

# Step commits that may be under way while the run goes on.
MAX_BEHIND = 2
# Seconds that the last commit of a cancelled run may take.
LEAVE_DEADLINE = 10.0


class CommitQueue:
    """Commits of one run of one thread.

    Attributes:
        token: The fencing token of the run's claim.
        rejected: Questions whose answers did not fit: they are open again when the run has failed.
        held: What subgraphs have left to be stored when the root run leaves.
    """

    def __init__(self, saver: AtomicSaver[Any], thread_id: str, durability: Durability) -> None:
        self.saver = saver
        self.thread_id = thread_id
        self.durability = durability
        self.token = 0
        self.held = Held(thread_id)
        self.rejected: set[str] = set()
        self._behind: deque[asyncio.Future[int]] = deque()
        self._waiting: deque[tuple[Any, asyncio.Future[int]]] = deque()
        self._last: asyncio.Future[int] | None = None
        self._error: BaseException | None = None
        self._storing: asyncio.Task[None] | None = None

    async def claim(self, commit: Commit) -> None:
        """Store the first commit of a run, which claims the thread.

        A cancelled claim is waited for, so that it is known whether the thread has to be given back.
        """
        if self.saver.never_waits:
            self.token = await self.saver.acommit(self.saver.prepare(commit))
            return
        storing = asyncio.ensure_future(self.saver.acommit(self.saver.prepare(commit)))
        try:
            self.token = await unbroken(storing)
        except asyncio.CancelledError as cancelled:
            if storing.cancelled() or not storing.done():
                raise
            if (error := storing.exception()) is not None:
                raise cancelled from error
            self.token = storing.result()
            await shielded(self.now(Commit(self.thread_id, token=self.token, status="cancelled")))
            raise

    async def step(self, prepared: Any) -> asyncio.Future[int] | None:
        """Store a superstep: before the next one starts ("sync"), or behind it ("async"), as what is returned tells."""
        if self.durability == "sync" or self.saver.never_waits:
            await self.store(prepared)
            return None
        stored = self.soon(prepared)
        # It waits in the queue, where it can be joined with others, and the run for the oldest.
        while self._behind and (len(self._behind) > MAX_BEHIND or self._behind[0].done()):
            oldest = self._behind[0]
            await unbroken(oldest)
            if self._behind and self._behind[0] is oldest:  # a subgraph beside this one may have taken it
                _ = self._behind.popleft()
        return stored

    def in_the_way(self) -> asyncio.Future[int] | None:
        """The commit to wait for before another one goes behind the run with `soon`; None if there is room.

        Raises:
            PersistenceError: What a commit under way has failed with.
        """
        while self._behind and self._behind[0].done():
            _ = self._behind.popleft().result()
        return self._behind[0] if len(self._behind) >= MAX_BEHIND else None

    def soon(self, prepared: Any) -> asyncio.Future[int]:
        """Store a commit behind the run; it counts among those that may be under way."""
        self._behind.append(self.behind(prepared))
        return self._behind[-1]

    async def now(self, commit: Commit) -> None:
        """Store a commit after everything handed over before."""
        await self.store(self.saver.prepare(commit))

    async def store(self, prepared: Any) -> None:
        """Store a prepared commit after everything handed over before, or together with it."""
        if not self.saver.never_waits:
            _ = self.behind(prepared)
        await self.drain()
        if self.saver.never_waits:
            await self.saver.acommit(prepared)

    def behind(self, prepared: Any) -> asyncio.Future[int]:
        """Store a commit behind the run, after everything handed over before."""
        self._last = asyncio.get_running_loop().create_future()
        self._last.add_done_callback(_retrieve)
        self._waiting.append((prepared, self._last))
        if self._error is not None:
            self._fail(self._error)
        elif self._storing is None:
            self._storing = asyncio.ensure_future(self._store_waiting())
        return self._last

    async def drain(self) -> None:
        """Wait until everything handed over is stored."""
        last = self._last
        if last is not None:
            # Commits follow each other, and a failed one fails those behind it: the last stands for all.
            try:
                await unbroken(last)
            finally:
                if self._last is last:
                    self._last = self._error = None
                    self._behind.clear()

    async def _store_waiting(self) -> None:
        """Store what has been handed over, in order, until nothing waits; what waits together is stored together."""
        try:
            while self._waiting:
                prepared, number = self._joined()
                token = await self.saver.acommit(prepared)
                for _ in range(number):
                    self._waiting.popleft()[1].set_result(token)
        except BaseException as error:
            self._fail(error)
            if not isinstance(error, Exception):
                raise
        finally:
            self._storing = None

    def _joined(self) -> tuple[Any, int]:
        """The first commit that waits, joined with those behind it as far as the saver can; how many they are."""
        joined, number = self._waiting[0][0], 1
        for later, _ in islice(self._waiting, 1, None):
            both = self.saver.join(joined, later)
            if both is None:
                break
            joined, number = both, number + 1
        return joined, number

    def _fail(self, error: BaseException) -> None:
        """Fail what waits, and whatever is handed over from now on: nothing is stored behind a commit that was not."""
        self._error = error
        while self._waiting:
            stored = self._waiting.popleft()[1]
            if isinstance(error, asyncio.CancelledError):
                stored.cancel()
            else:
                stored.set_exception(error)


async def unbroken(commit: asyncio.Future[int]) -> int:
    """Await a commit; a cancellation of the run does not cut it, but is raised once the commit has ended."""
    commit.add_done_callback(_retrieve)
    try:
        return await asyncio.shield(commit)
    except asyncio.CancelledError:
        if not commit.done():
            await _wait(commit, LEAVE_DEADLINE)
        raise


async def shielded(awaitable: Coroutine[Any, Any, Any], deadline: float = LEAVE_DEADLINE) -> Any:
    """Run what must be done although the current task is cancelled.

    Raises:
        TimeoutError: It took more than `deadline` seconds; it is cancelled then.
        asyncio.CancelledError: A further cancellation came meanwhile; raised when it is done.
    """
    inner = asyncio.ensure_future(awaitable)
    inner.add_done_callback(_retrieve)
    cancelled = await _wait(inner, deadline)
    if not inner.done():
        inner.cancel()
        raise TimeoutError(f"storing the end of a run took more than {deadline:g} s")
    if cancelled is not None:
        raise cancelled
    return inner.result()


async def _wait(inner: asyncio.Future[Any], seconds: float) -> asyncio.CancelledError | None:
    """Wait until it is done or the time is up, whatever is cancelled; return the last cancellation."""
    loop = asyncio.get_running_loop()
    ends = loop.time() + seconds
    cancelled = None
    while not inner.done() and (left := ends - loop.time()) > 0:
        try:
            await asyncio.wait({inner}, timeout=left)
        except asyncio.CancelledError as error:
            cancelled = error
    return cancelled


def _retrieve(task: asyncio.Future[Any]) -> None:
    """Mark a commit's error as seen: it is raised to the run at its next step, or when it leaves."""
    if not task.cancelled():
        task.exception()

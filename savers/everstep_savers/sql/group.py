"""Group commit: what is ready at the same time is stored at the same time.

A lone commit is stored by whoever asks for it, in place. Commits that come while one is under way wait; one
task then stores them in groups, until none waits. That task belongs to the queue and not to anybody who
waits, so that cancelling one of them touches no other. Commits of one thread keep their order and never
share a group.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence

from everstep_savers.rows import EncodedCommit

# What became of a commit: the thread's token, or why not.
Outcome = int | Exception
Store = Callable[[Sequence[EncodedCommit]], Awaitable[Sequence[Outcome]]]

# So many commits share a statement at most.
GROUP_SIZE = 100


class CommitQueue:
    """Stores commits through `store`, one group at a time."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._waiting: deque[tuple[EncodedCommit, asyncio.Future[int]]] = deque()
        self._is_busy = False
        self._task: asyncio.Task[None] | None = None
        self._idle = asyncio.Event()

    async def submit(self, commit: EncodedCommit) -> int:
        """Store a commit, and return the thread's token or raise why not."""
        if self._is_busy:
            future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
            self._waiting.append((commit, future))
            return await future
        self._is_busy = True
        try:
            (outcome,) = await self._store((commit,))
        finally:
            self._hand_over()
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    async def close(self) -> None:
        """Wait until nothing is under way."""
        while self._is_busy:
            self._idle.clear()
            await self._idle.wait()

    def _hand_over(self) -> None:
        if self._waiting:
            self._task = asyncio.get_running_loop().create_task(self._store_waiting())
        else:
            self._rest()

    def _rest(self) -> None:
        self._task = None
        self._is_busy = False
        self._idle.set()

    async def _store_waiting(self) -> None:
        try:
            while self._waiting:
                group = self._next_group()
                outcomes = await self._outcomes([commit for commit, _ in group])
                for (_, future), outcome in zip(group, outcomes, strict=True):
                    _settle(future, outcome)
        finally:
            self._rest()

    async def _outcomes(self, commits: Sequence[EncodedCommit]) -> Sequence[Outcome]:
        try:
            return await self._store(commits)
        except Exception as error:
            return [error] * len(commits)

    def _next_group(self) -> list[tuple[EncodedCommit, asyncio.Future[int]]]:
        """Take the first commit of each thread; what else a thread has waits for the next group."""
        group: dict[str, tuple[EncodedCommit, asyncio.Future[int]]] = {}
        later = []
        while self._waiting and len(group) < GROUP_SIZE:
            commit, future = self._waiting.popleft()
            if future.done():
                continue  # cancelled while it waited: never begun
            if commit.thread_id in group:
                later.append((commit, future))
            else:
                group[commit.thread_id] = (commit, future)
        self._waiting.extendleft(reversed(later))
        return list(group.values())


def _settle(future: asyncio.Future[int], outcome: Outcome) -> None:
    if future.done():
        return  # cancelled; the commit is stored all the same
    if isinstance(outcome, Exception):
        future.set_exception(outcome)
    else:
        future.set_result(outcome)

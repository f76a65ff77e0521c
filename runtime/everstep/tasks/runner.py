"""Runs the tasks of one superstep: alone in place, several at once, each with its retries.

Every task ends in an outcome, given to `on_outcome` as it comes; it may name a task that goes on in the place of
one that has failed. A failure that nothing takes over cancels the siblings that still run, unless the run lets them
finish. Nothing is left running when `run_tasks` returns, however it returns.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable, Sequence

from everstep.errors import error_text
from everstep.policies import RetryPolicy
from everstep.tasks.attempt import run_attempt
from everstep.tasks.caching import run_cached
from everstep.tasks.current import Attempt, RunScope
from everstep.tasks.outcome import Failed, Outcome
from everstep.tasks.task import Task

logger = logging.getLogger("everstep")

# Returns the task that takes over, to be awaited, or None.
OnOutcome = Callable[[Task, Outcome], Awaitable[Task] | None]


async def run_tasks(run: RunScope, tasks: Sequence[Task], on_outcome: OnOutcome) -> None:
    """Run the tasks until each has an outcome, or one has failed and the others are cancelled."""
    if len(tasks) > 1:
        await _Siblings(run, on_outcome).run(tasks)
        return
    # In place: no asyncio task, no queue. The same coroutine as below.
    task = tasks[0]
    while (following := on_outcome(task, await run_task(run, task))) is not None:
        task = await following


async def run_task(run: RunScope, task: Task) -> Outcome:
    """Run one task with its retries; or take its result from the cache, if its node has a policy for that."""
    if run.cache is not None and task.node.cache is not None:
        return await run_cached(run, task, _run_with_retries)
    return await _run_with_retries(run, task)


async def _run_with_retries(run: RunScope, task: Task) -> Outcome:
    requests = cancel_requests()
    number, first_time = 1, time.time()
    while True:
        outcome = await run_attempt(Attempt(run, task, number, first_time), requests)
        if type(outcome) is not Failed:
            return outcome
        policy = _policy_for(task, outcome.error)
        if policy is None or number >= policy.max_attempts:
            outcome.error.add_note(f"in {task.title} (attempt {number}, {run.place})")
            return outcome
        delay = policy.delay(number, random.random())
        logger.info(
            "%s failed with %s; attempt %d of %d follows in %.3f s (%s)",
            task.title,
            error_text(outcome.error),
            number + 1,
            policy.max_attempts,
            delay,
            run.place,
        )
        if run.told is not None:
            run.told.retried(task, outcome.error, delay)
        await asyncio.sleep(delay)
        number += 1
        task.attempt = number
        if run.told is not None:
            run.told.started(task)


def cancel_requests() -> int:
    """How often the current asyncio task has been asked to cancel."""
    current = asyncio.current_task()
    return current.cancelling() if current is not None else 0


def _policy_for(task: Task, error: BaseException) -> RetryPolicy | None:
    if not isinstance(error, Exception):
        return None
    return next((policy for policy in task.node.retry if policy.matches(error)), None)


class _Siblings:
    """Several tasks at once; owns their asyncio tasks."""

    def __init__(self, run: RunScope, on_outcome: OnOutcome) -> None:
        self.run_scope = run
        self.on_outcome = on_outcome
        self.running: set[asyncio.Task[None]] = set()
        self.failed = False
        self.all_done: asyncio.Future[None] = run.loop.create_future()
        self.broken: BaseException | None = None

    async def run(self, tasks: Sequence[Task]) -> None:
        loop = self.run_scope.loop
        for task in tasks:
            child = loop.create_task(self._run_one(task))
            self.running.add(child)
            child.add_done_callback(self._ended)
        try:
            await self.all_done
        finally:
            await self._stop()
        if self.broken is not None:
            raise self.broken

    async def _run_one(self, task: Task) -> None:
        upcoming: Task | None = task
        while upcoming is not None:
            task = upcoming
            try:
                outcome = await run_task(self.run_scope, task)
            except (KeyboardInterrupt, SystemExit) as signal:
                # Raised in an asyncio task of its own it would stop the whole loop; the run raises it.
                self.broken = self.broken or signal
                self._cancel_others()
                return
            if self.failed and type(outcome) is Failed:
                return  # a sibling that failed while it was being cancelled: the first failure is the one to tell
            following = self.on_outcome(task, outcome)
            upcoming = None if following is None else await following
        # An answer that does not fit is its giver's mistake, and no reason to cut short what others do.
        if type(outcome) is Failed and not (self.run_scope.drains or self.run_scope.rejected):
            self.failed = True
            self._cancel_others()

    def _ended(self, child: asyncio.Task[None]) -> None:
        self.running.discard(child)
        if not child.cancelled() and (error := child.exception()) is not None:
            # Not a node's: the engine's own (an event handler), or KeyboardInterrupt.
            self.broken = self.broken or error
            self._cancel_others()
        if not self.running and not self.all_done.done():
            self.all_done.set_result(None)

    def _cancel_others(self) -> None:
        current = asyncio.current_task()
        for child in self.running:
            if child is not current:
                child.cancel()

    async def _stop(self) -> None:
        """Cancel what still runs and wait until it has ended; a further cancellation does not cut that short."""
        requested: asyncio.CancelledError | None = None
        for child in self.running:
            child.cancel()
        while self.running:
            try:
                await asyncio.wait(self.running)
            except asyncio.CancelledError as cancelled:
                requested = cancelled
        if requested is not None:
            raise requested

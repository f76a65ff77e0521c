"""The superstep loop: plan, execute, update, commit, until nothing is left to run.

`Run` is one call of a graph on one thread. It owns the live channels and the tasks of the current
superstep; what to do is decided by the pure modules beside it, when to store by the journal, how to run
tasks by the runner. A run ends in exactly one status, which is stored before the caller hears of it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Sequence
from typing import Any, Literal

from everstep.callbacks import GraphLifecycleStatus, RunEnding
from everstep.errors import (
    DeadlineExceededError,
    GraphDrained,
    GraphInterrupt,
    GraphRecursionError,
    InvalidUpdateError,
    NoParentError,
    ParentCommand,
    StepTimeoutError,
    error_text,
)
from everstep.pregel.breakpoints import stops_at
from everstep.pregel.checkpoints import Point, Taken, next_id
from everstep.pregel.enter import Start, start_run
from everstep.pregel.events import events_of
from everstep.pregel.io import earlier_output, output_of
from everstep.pregel.joins import check_joins, has_unsatisfied
from everstep.pregel.lifecycle import lifecycle_of
from everstep.pregel.plan import At, plan
from everstep.pregel.request import NodeNames, RunRequest
from everstep.pregel.subgraphs import nesting_of
from everstep.pregel.update import apply_writes
from everstep.stream.parts import as_model, with_questions
from everstep.tasks.handlers import hand_over
from everstep.tasks.models import models_of
from everstep.tasks.outcome import BubbledUp, Drained, Failed, Interrupted, Outcome, Returned
from everstep.tasks.runner import cancel_requests, run_tasks
from everstep.tasks.task import Task, path_order
from everstep.types import GraphOutput, Interrupt
from everstep_savers.checkpoint import Status
from everstep_savers.errors import PersistenceError

logger = logging.getLogger("everstep")

# Seconds a run may go on without giving the other tasks of its loop a turn, though its nodes never wait.
_TURN = 0.001


async def execute(request: RunRequest) -> Any:
    """Run a graph to its end; return the output, with open questions under ``"__interrupt__"``.

    Raises:
        Exception: What a node raised, with a note that names node, attempt, step and thread.
        ExceptionGroup: Several nodes failed, where `on_error` is "drain".
        GraphRecursionError: The recursion limit is used up and nodes are still to run.
        DeadlineExceededError: The run took longer than the request allows.
        GraphDrained: The run was asked to stop, and has stopped at a barrier.
    """
    if request.deadline is None:
        return await _execute(request, None)
    timer = asyncio.timeout(request.deadline)
    try:
        async with timer:
            return await _execute(request, timer)
    except TimeoutError as error:
        if isinstance(error, DeadlineExceededError) or not timer.expired():
            raise
        # The time was up before the thread was claimed.
        raise DeadlineExceededError(request.deadline, request.graph.name) from None


async def _execute(request: RunRequest, deadline: asyncio.Timeout | None) -> Any:
    run = Run(request, await start_run(request))
    try:
        if run.lifecycle is not None:
            await run.lifecycle.started(run.checkpoint_id, is_resumed=run.is_resumed)
        if run.stops(request.interrupt_before, run.tasks):
            return await run.suspend("interrupt_before")
        while run.tasks:
            await run.give_turn()
            if (reason := run.scope.control.drain_reason) is not None:
                return await run.drain(reason)
            run.check_limit()
            await run.execute_tasks()
            if run.is_suspended():
                return await run.suspend()
            if run.cut_short is not None:
                return await run.drain(run.cut_short)
            if (stop := await run.update_and_commit()) is not None:
                return await run.suspend(stop)
        return await run.finish()
    except asyncio.CancelledError:
        if deadline is not None and deadline.expired() and run.times_cancelled() == 1:
            error = run.deadline_exceeded(request.deadline or 0.0)
            await run.leave_failed(error)
            raise error from None
        await run.leave_cancelled()
        raise
    except BaseException as error:
        if not run.has_left:  # else a question on its way up, or drained: stored already
            await run.leave_failed(error)
        raise


class Run:
    """The state of one call.

    Attributes:
        tasks: Of the superstep under way, or that would be next.
        failures: What failed tasks raised that nothing handles: one, or all that failed if siblings may finish.
        cut_short: Why a run inside one of the tasks was drained, so that the superstep cannot be finished.
        has_left: How the run ended is stored, though it ends with an exception.
    """

    def __init__(self, request: RunRequest, start: Start) -> None:
        self.request = request
        self.graph = request.graph
        self.channels, self.scope, self.at, self.lineage = start.channels, start.scope, start.at, start.lineage
        self.tasks, self.journal = start.tasks, start.journal
        self.checkpoint_id, self.last_stop = start.checkpoint_id, start.last_stop
        self.failures: list[BaseException] = []
        self.cut_short: str | None = None
        self.has_left = False
        self.is_resumed = start.is_resumed
        self.lifecycle = lifecycle_of(request, self.scope.run_id)
        self.events = events_of(request, start.scope)
        self._earlier = None if start.is_resumed else earlier_output(self.graph, self.channels)
        self._unfinished = 0
        self._cancel_requests = cancel_requests()
        self._turn_ends = self.scope.loop.time() + _TURN
        self.scope.models = models_of(request.config, self.events.messages if self.events is not None else None)
        if self.events is not None:
            self.scope.told = self.events
            self.scope.emit = self.events.custom if "custom" in self.events.modes else None
            self.events.entered(self.channels, self.tasks, start.point, is_resumed=start.is_resumed)

    async def give_turn(self) -> None:
        """Let other tasks of the loop run, if this one has run for a while."""
        if self.scope.loop.time() >= self._turn_ends:
            await asyncio.sleep(0)
            self._turn_ends = self.scope.loop.time() + _TURN

    def check_limit(self) -> None:
        """Raise if the recursion limit does not allow another superstep."""
        if self.at.step > self.at.stop:
            nodes = ", ".join(repr(task.name) for task in self.tasks[:5])
            raise GraphRecursionError(
                f"the run took {self.request.config.recursion_limit} supersteps, as its recursion_limit allows, "
                f"and would go on with {nodes} ({self.scope.place}); raise recursion_limit, or look for a "
                f"cycle that does not end"
            )

    def times_cancelled(self) -> int:
        """How often the run has been cancelled since it began."""
        return cancel_requests() - self._cancel_requests

    def stops(self, names: NodeNames, tasks: Sequence[Task]) -> bool:
        """Is there a static breakpoint at these tasks?"""
        return bool(names) and bool(tasks) and stops_at(names, tasks, self.channels, self.last_stop)

    def is_suspended(self) -> bool:
        """Is a task of this superstep suspended?"""
        return any(task.suspended for task in self.tasks)

    async def execute_tasks(self) -> None:
        """Run the tasks of this superstep that have not finished and wait for no answer."""
        waiting = [task for task in self.tasks if not task.finished and not task.suspended]
        self._unfinished = len(waiting)
        self.scope.step, self.scope.stop, self.scope.checkpoint_id = self.at.step, self.at.stop, self.checkpoint_id
        if self.events is not None:
            self.events.begun(self.tasks)
        if waiting:
            await self._run_tasks(waiting)
        if self.failures:
            raise self._failure()
        if self.times_cancelled():
            # A node swallowed the cancellation that was meant for the run.
            raise asyncio.CancelledError
        if self.events is not None:
            await self.events.room()

    async def _run_tasks(self, waiting: Sequence[Task]) -> None:
        limit = self.request.step_timeout
        if limit is None:
            await run_tasks(self.scope, waiting, self._on_outcome)
            return
        timer = asyncio.timeout(limit)
        try:
            async with timer:
                await run_tasks(self.scope, waiting, self._on_outcome)
        except TimeoutError:
            if not timer.expired():
                raise
        if timer.expired():
            raise StepTimeoutError(limit, self.at.step, self._unfinished_nodes())

    def _unfinished_nodes(self) -> list[str]:
        return [task.name for task in self.tasks if not (task.finished or task.suspended)]

    def _failure(self) -> BaseException:
        if len(self.failures) == 1 or not self.scope.drains:
            return self.failures[0]
        return BaseExceptionGroup(f"{len(self.failures)} nodes failed in {self.scope.place}", self.failures)

    def _on_outcome(self, task: Task, outcome: Outcome) -> Awaitable[Task] | None:
        """Take note of how a task ended; the handler that takes over, if there is one."""
        self._unfinished -= 1
        if self.request.parent is not None:
            self.request.parent.sign_of_life()
        if type(outcome) is Returned:
            task.writes, task.finished = outcome.writes, True
            if self.journal is not None and self._unfinished:
                self.journal.task_finished(task)
            if self.events is not None:
                self.events.finished(task)
        elif type(outcome) is BubbledUp:
            task.commands, task.finished = outcome.commands, True
        elif type(outcome) is Interrupted:
            task.questions, task.suspended = outcome.questions, True
            if self.events is not None:
                self.events.suspended(task, self.channels)
        elif type(outcome) is Drained:
            self.cut_short = outcome.reason
        elif type(outcome) is Failed:
            task.error = outcome.error
            if self.events is not None:
                self.events.failed(task)
            if (handler := hand_over(task, outcome.error)) is not None:
                return self._handed_over(task, handler)
            self.failures.append(outcome.error)
        return None

    async def _handed_over(self, task: Task, handler: Task) -> Task:
        """Store the failure; the handler may start."""
        self.tasks.append(handler)
        self._unfinished += 1
        logger.info("node %r failed, %r takes over (%s)", task.name, handler.name, self.scope.place)
        if self.journal is not None:
            await self.journal.handed_over(task)
        if self.events is not None:
            self.events.started(handler)
        return handler

    async def update_and_commit(self) -> GraphLifecycleStatus | None:
        """The barrier; plan the next superstep and store this one; tell at which breakpoint the run stops, if any."""
        done = self.tasks
        if self.scope.calls is not None:
            self.scope.calls.clear()
        self._raise_commands(done)
        updated = apply_writes(self.graph, self.channels, done)
        step, taken = self.at.step, None
        if self.journal is not None:
            parent_id, self.checkpoint_id = self.checkpoint_id, next_id(self.lineage, self.checkpoint_id)
            self.scope.first_made = self.scope.first_made or self.checkpoint_id
            taken = Taken(self.channels, self.lineage, self.checkpoint_id, parent_id, step, updated, done)
        ns = self.at.checkpoint_ns
        self.at = At(self.checkpoint_id or f"{ns}/{step + 1}", ns, step + 1, self.at.stop)
        if self.scope.nesting.may_continue:
            # What the run continues lies behind it: the subgraphs of later steps begin anew.
            self.scope.nesting = nesting_of(self.request, self.scope.nesting.queue)
        following = plan(self.graph, self.channels, self.at, updated)
        stop: GraphLifecycleStatus | None = None
        if self.stops(self.request.interrupt_after, done):
            stop = "interrupt_after"
        elif self.stops(self.request.interrupt_before, following):
            stop = "interrupt_before"
        if self.journal is not None and taken is not None:
            is_done = not following and not has_unsatisfied(self.graph, self.channels)
            try:
                await self.journal.step(taken, "interrupted" if stop else "done" if is_done else None)
            except InvalidUpdateError:  # under debug: what is stored was changed in place
                self.channels.refused = tuple(task.name for task in done)
                raise
        self.tasks = following
        if self.events is not None:
            self.events.updated(done, self.channels)
            if self.journal is not None and taken is not None:
                point = Point(taken.checkpoint_id, self.journal.parent_of(taken), taken.metadata)
                self.events.stored(point, following, self.channels)
            await self.events.room()
        return stop

    def _raise_commands(self, tasks: Sequence[Task]) -> None:
        """Send the commands for the containing graph up, in path order; this run ends with them."""
        ordered = sorted((task for task in tasks if task.commands), key=path_order)
        if not ordered:
            return
        commands = [command for task in ordered for command in task.commands]
        if self.request.parent is None:
            self.channels.refused = tuple(task.name for task in ordered)
            raise NoParentError(ordered[0].name, self.graph.name, commands)
        raise ParentCommand(*commands)

    async def suspend(self, status: GraphLifecycleStatus = "pending") -> Any:
        """Store open questions and the results beside them, and leave."""
        if self.journal is not None:
            await self.journal.leave("interrupted", tasks=self.tasks, at_breakpoint=not self.is_suspended())
        questions = [question for task in self.tasks for question in task.questions]
        if self.lifecycle is not None:
            await self.lifecycle.interrupted(self.checkpoint_id, status, questions)
        await self._told("interrupted")
        if self.events is not None:
            self.events.stopped(self.tasks, self.channels)
        if self.request.parent is not None:
            # The question rises: the task of the containing graph is suspended with it.
            self.request.parent.questions += questions
            self.has_left = True
            raise GraphInterrupt(questions)
        if finished := [task for task in self.tasks if task.finished]:
            # Shown, not stored: what is stored are the tasks' writes, which count at the barrier.
            apply_writes(self.graph, self.channels, finished)
            if self.events is not None:
                self.events.updated(finished, self.channels)
        return self._result(questions)

    async def drain(self, reason: str) -> Any:
        """Store what has been done, and leave with `GraphDrained`."""
        if self.journal is not None:
            await self.journal.leave("drained", tasks=self.tasks)
        if self.request.parent is not None:
            # Whatever the node makes of the exception: its task is not finished.
            self.request.parent.drained = reason
        error = GraphDrained(reason)
        self.has_left = True
        await self._told("drained", error)
        raise error

    async def finish(self) -> Any:
        """Wait until everything is stored; the output."""
        check_joins(self.graph, self.channels)
        if self.journal is not None:
            await self.journal.leave("done")
        await self._told("done")
        return self._result()

    def _result(self, questions: Sequence[Interrupt] = ()) -> Any:
        names = self.request.output
        output = output_of(self.channels, names)
        if self._earlier is not None and names == self.graph.output_channels:
            # Of a run with a new input, what an earlier run has put out is not the output.
            output = None if self.channels.versions[str(names)] == self._earlier else output
        if self.request.version == "v2":
            return GraphOutput(as_model(self.request.output_model, output), tuple(questions))
        return with_questions(output, questions, list)

    def deadline_exceeded(self, deadline: float) -> DeadlineExceededError:
        """The error of a run whose time is up."""
        return DeadlineExceededError(deadline, self.graph.name, self._unfinished_nodes())

    async def leave_cancelled(self) -> None:
        """Store the results of finished tasks and that the run was cancelled."""
        if self.journal is not None:
            await self._leave("cancelled", None)
        await self._told("cancelled", asyncio.CancelledError())

    async def leave_failed(self, error: BaseException) -> None:
        """Store the results of finished tasks and why the run failed."""
        status: Literal["out_of_steps", "failed"] = "failed"
        if isinstance(error, GraphRecursionError):
            status = "out_of_steps"
        if self.journal is not None:
            await self._leave(status, error_text(error))
        await self._told(status, error)

    async def _told(self, status: RunEnding, error: BaseException | None = None) -> None:
        if self.lifecycle is not None:
            await self.lifecycle.ended(self.checkpoint_id, status, error)

    async def _leave(self, status: Status, text: str | None) -> None:
        assert self.journal is not None
        # Writes that the barrier refused are not a result: once their node is mended it has to run again.
        names = self.channels.refused
        refused = [task for task in self.tasks if task.name in names]
        tasks = [task for task in self.tasks if task.name not in names]
        try:
            await self.journal.leave_shielded(status, text, tasks, refused)
        except (PersistenceError, OSError, TimeoutError) as error:
            # The caller is to see what ended the run, not that its end could not be stored.
            logger.warning("the end of a run could not be stored (%s): %s: %s", status, type(error).__name__, error)

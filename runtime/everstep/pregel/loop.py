"""The superstep loop: plan, execute, update, commit, until nothing is left to run.

`Run` is one call of a graph on one thread. It owns the live channels and the tasks of the current
superstep; what to do is decided by the pure modules beside it, when to store by the journal, how to run
tasks by the runner. A run ends in exactly one status, which is stored before the caller hears of it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any

from everstep.errors import GraphInterrupt, GraphRecursionError, InvalidUpdateError, ParentCommand, error_text
from everstep.pregel.breakpoints import stops_at
from everstep.pregel.checkpoints import Point, make_checkpoint
from everstep.pregel.enter import Start, start_run
from everstep.pregel.events import events_of
from everstep.pregel.io import output_of
from everstep.pregel.joins import check_joins, has_unsatisfied
from everstep.pregel.plan import At, plan
from everstep.pregel.request import NodeNames, RunRequest
from everstep.pregel.subgraphs import nesting_of
from everstep.pregel.update import apply_writes
from everstep.stream.parts import as_model, with_questions
from everstep.tasks.outcome import BubbledUp, Failed, Interrupted, Outcome, Returned
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
        GraphRecursionError: The recursion limit is used up and nodes are still to run.
    """
    run = Run(request, await start_run(request))
    try:
        if run.stops(request.interrupt_before, run.tasks):
            return await run.suspend()
        while run.tasks:
            await run.give_turn()
            run.check_limit()
            await run.execute_tasks()
            if run.is_suspended():
                return await run.suspend()
            if await run.update_and_commit():
                return await run.suspend()
        return await run.finish()
    except asyncio.CancelledError:
        await run.leave_cancelled()
        raise
    except GraphInterrupt:
        raise  # a subgraph's question on its way up; stored by `suspend`
    except BaseException as error:
        await run.leave_failed(error)
        raise


class Run:
    """The state of one call.

    Attributes:
        tasks: Of the superstep under way, or that would be next.
        failure: What the first failed task raised.
    """

    def __init__(self, request: RunRequest, start: Start) -> None:
        self.request = request
        self.graph = request.graph
        self.channels, self.scope, self.at, self.lineage = start.channels, start.scope, start.at, start.lineage
        self.tasks, self.journal = start.tasks, start.journal
        self.checkpoint_id, self.last_stop = start.checkpoint_id, start.last_stop
        self.failure: BaseException | None = None
        self.events = events_of(request, start.scope)
        self._unfinished = 0
        self._cancel_requests = cancel_requests()
        self._turn_ends = self.scope.loop.time() + _TURN
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
            await run_tasks(self.scope, waiting, self._on_outcome)
        if self.failure is not None:
            raise self.failure
        if cancel_requests() > self._cancel_requests:
            # A node swallowed the cancellation that was meant for the run.
            raise asyncio.CancelledError
        if self.events is not None:
            await self.events.room()

    def _on_outcome(self, task: Task, outcome: Outcome) -> None:
        self._unfinished -= 1
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
        elif type(outcome) is Failed:
            task.error = outcome.error
            self.failure = self.failure or outcome.error
            if self.events is not None:
                self.events.failed(task)

    async def update_and_commit(self) -> bool:
        """The barrier; plan the next superstep and store this one; tell whether the run stops at a breakpoint."""
        done = self.tasks
        if self.scope.calls is not None:
            self.scope.calls.clear()
        self._raise_commands(done)
        updated = apply_writes(self.graph, self.channels, done)
        step = self.at.step
        new = None
        if self.journal is not None:
            new = make_checkpoint(
                self.channels,
                self.lineage,
                parent_id=self.checkpoint_id,
                source="loop",
                step=step,
                updated=updated,
                results=self.journal.results_of(done),
            )
            self.checkpoint_id = new.checkpoint["id"]
            self.scope.first_made = self.scope.first_made or self.checkpoint_id
        ns = self.at.checkpoint_ns
        self.at = At(self.checkpoint_id or f"{ns}/{step + 1}", ns, step + 1, self.at.stop)
        if self.scope.nesting.may_continue:
            # What the run continues lies behind it: the subgraphs of later steps begin anew.
            self.scope.nesting = nesting_of(self.request, self.scope.nesting.queue)
        following = plan(self.graph, self.channels, self.at, updated)
        stops = self.stops(self.request.interrupt_after, done) or self.stops(self.request.interrupt_before, following)
        if self.journal is not None and new is not None:
            is_done = not following and not has_unsatisfied(self.graph, self.channels)
            try:
                await self.journal.step(new, done, "interrupted" if stops else "done" if is_done else None)
            except InvalidUpdateError:  # under debug: what is stored was changed in place
                self.channels.refused = tuple(task.name for task in done)
                raise
        self.tasks = following
        if self.events is not None:
            self.events.updated(done, self.channels)
            if self.journal is not None and new is not None:
                point = Point(new.checkpoint["id"], self.journal.parent_of(new), new.metadata)
                self.events.stored(point, following, self.channels)
            await self.events.room()
        return stops

    def _raise_commands(self, tasks: Sequence[Task]) -> None:
        """Send the commands for the containing graph up, in path order; this run ends with them."""
        ordered = sorted((task for task in tasks if task.commands), key=path_order)
        if not ordered:
            return
        if self.request.parent is None:
            raise InvalidUpdateError(
                f"node {ordered[0].name!r} returned a Command with graph=Command.PARENT, but graph {self.graph.name!r} "
                f"has no parent here; leave out graph=, or run this graph as a node of another"
            )
        raise ParentCommand(*(command for task in ordered for command in task.commands))

    async def suspend(self) -> Any:
        """Store open questions and the results beside them, and leave."""
        if self.journal is not None:
            await self.journal.leave("interrupted", tasks=self.tasks, at_breakpoint=not self.is_suspended())
        questions = [question for task in self.tasks for question in task.questions]
        if self.events is not None:
            self.events.stopped(self.tasks, self.channels)
        if finished := [task for task in self.tasks if task.finished]:
            # Shown, not stored: what is stored are the tasks' writes, which count at the barrier.
            apply_writes(self.graph, self.channels, finished)
            if self.events is not None:
                self.events.updated(finished, self.channels)
        if self.request.parent is not None:
            # The question rises: the task of the containing graph is suspended with it.
            self.request.parent.questions += questions
            raise GraphInterrupt(questions)
        return self._result(questions)

    async def finish(self) -> Any:
        """Wait until everything is stored; the output."""
        check_joins(self.graph, self.channels)
        if self.journal is not None:
            await self.journal.leave("done")
        return self._result()

    def _result(self, questions: Sequence[Interrupt] = ()) -> Any:
        output = output_of(self.channels, self.request.output)
        if self.request.version == "v2":
            return GraphOutput(as_model(self.request.output_model, output), tuple(questions))
        return with_questions(output, questions, list)

    async def leave_cancelled(self) -> None:
        """Store the results of finished tasks and that the run was cancelled."""
        if self.journal is not None:
            await self._leave("cancelled", None)

    async def leave_failed(self, error: BaseException) -> None:
        """Store the results of finished tasks and why the run failed."""
        if self.journal is not None:
            status: Status = "out_of_steps" if isinstance(error, GraphRecursionError) else "failed"
            await self._leave(status, error_text(error))

    async def _leave(self, status: Status, text: str | None) -> None:
        assert self.journal is not None
        # Writes that the barrier refused are not a result: once their node is mended it has to run again.
        tasks = [task for task in self.tasks if task.name not in self.channels.refused]
        try:
            await self.journal.leave_shielded(status, text, tasks)
        except (PersistenceError, OSError, TimeoutError) as error:
            # The caller is to see what ended the run, not that its end could not be stored.
            logger.warning("the end of a run could not be stored (%s): %s: %s", status, type(error).__name__, error)

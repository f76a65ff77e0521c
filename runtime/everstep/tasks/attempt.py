"""One attempt of a node: its body run with its timeout, its result turned into writes.

The body runs in a copied context: awaited in place if async, in a worker thread if sync. A timed-out
thread cannot be stopped; its result is dropped and its attempt closed.
"""

from __future__ import annotations

import asyncio
import contextvars
from dataclasses import replace
from typing import Any

from everstep.channels.snapshot import input_copy
from everstep.constants import PULL
from everstep.context import current_task
from everstep.errors import GraphDrained, ParentCommand
from everstep.tasks.current import Attempt
from everstep.tasks.idle import within
from everstep.tasks.isolated import await_in
from everstep.tasks.outcome import Drained, Outcome, outcome_of
from everstep.tasks.threads import run_in_thread, slot_of
from everstep.tasks.unchanged import Snapshot


async def run_attempt(attempt: Attempt, cancel_requests: int) -> Outcome:
    """Run one attempt to its outcome.

    Args:
        attempt: The attempt.
        cancel_requests: How often the current asyncio task had been asked to cancel when the run began;
            a `CancelledError` without a further request is the node's own.

    Raises:
        asyncio.CancelledError: The run (or this task as a sibling of a failed one) is cancelled.
    """
    error: BaseException | None = None
    ends_run = False
    try:
        if attempt.run.slots is None:
            await _body_and_writes(attempt)
        else:
            async with slot_of(attempt):
                await _body_and_writes(attempt)
    except GeneratorExit:
        raise  # the loop is gone, and nothing can be waited for
    except BaseException as failure:
        error, ends_run = failure, _ends_run(failure, cancel_requests)
    try:
        if attempt.inner:
            await end_inner(attempt, cancels=ends_run or (error is not None and not attempt.questions))
    finally:
        attempt.closed = True
    if error is not None and ends_run:
        raise error
    if attempt.called is not None:
        attempt.questions = attempt.called.in_order(attempt.questions)
        error = error or attempt.called.unseen_failure()
        if (refusal := attempt.called.refusal()) is not None:
            # Its giver has to hear of it, whatever else is still asked.
            error, attempt.questions = refusal, []
    if not attempt.questions and (reason := _drained(attempt, error)) is not None:
        return Drained(reason)
    return outcome_of(error, attempt.writes, attempt.questions, attempt.node)


def _ends_run(error: BaseException, cancel_requests: int) -> bool:
    """Is this no failure of the node, but the end of the run, or of this task as a sibling of a failed one?"""
    if isinstance(error, asyncio.CancelledError):
        current = asyncio.current_task()
        return current is not None and current.cancelling() > cancel_requests
    return isinstance(error, KeyboardInterrupt | SystemExit)


async def write_result(attempt: Attempt, output: Any, context: contextvars.Context | None = None) -> None:
    """Turn what a node returned into the attempt's writes."""
    context = context or _context_of(attempt)
    for writer in attempt.task.node.writers:
        if writer.waits:
            found = await await_in(context, writer(output, attempt))
        else:
            found = context.run(writer, output, attempt)
        attempt.writes.extend(found)


def _drained(attempt: Attempt, error: BaseException | None) -> str | None:
    """Why a run that the node awaited stopped at a barrier, if this one has to stop with it."""
    if attempt.drained is None and isinstance(error, GraphDrained):
        # A run on a thread of its own: only if this one is to stop too.
        return attempt.run.control.drain_reason
    return attempt.drained


async def end_inner(attempt: Attempt, *, cancels: bool) -> None:
    """Wait for `@task` calls and subgraph runs that the node started and left: none goes on once it has ended.

    Those of a suspended node may still ask; those of a failed one are cancelled. A cancellation that comes
    meanwhile cancels them, and is raised once they have ended.
    """
    requested: asyncio.CancelledError | None = None
    own = asyncio.current_task()
    for read in attempt.reads:
        read.end_if_left_by(own)
    while inner := {task for task in attempt.inner if task is not own and not task.done()}:
        if cancels:
            for task in inner:
                task.cancel()
        try:
            await asyncio.wait(inner)
        except asyncio.CancelledError as error:
            requested, cancels = error, True
    if requested is not None:
        raise requested


async def _body_and_writes(attempt: Attempt) -> None:
    context = _context_of(attempt)
    told = attempt.run.told
    if told is not None and told.is_full:
        # Of many tasks in one step, those still to begin wait until what the others told is read.
        await told.room()
    # What a `@task` call is given is its caller's to change.
    snapshot = Snapshot(attempt.task.input) if attempt.run.verifies and not attempt.task.depth else None
    try:
        output = await _run_body(attempt, context)
    except ParentCommand as signal:
        # A subgraph of this node sent commands up; they are what the node returns.
        output = [replace(command, graph=None) for command in signal.commands]
    if not attempt.questions:  # a swallowed question: what the body returned does not count
        await write_result(attempt, output, context)
        if attempt.task.cache_use is not None:
            attempt.task.cache_use.value = output
    if snapshot is not None:
        snapshot.check(attempt.node, {key for key, _ in attempt.writes})


def _context_of(attempt: Attempt) -> contextvars.Context:
    context = contextvars.copy_context()
    context.run(current_task.set, attempt)
    if attempt.run.models is not None:
        attempt.run.models.enter(attempt, context)
    return context


async def _run_body(attempt: Attempt, context: contextvars.Context) -> Any:
    use = attempt.task.cache_use
    if use is not None and use.is_hit:
        return use.value
    policy = attempt.task.timeout
    if policy is None:
        return await _call(attempt, context)
    return await within(policy, attempt, _call(attempt, context))


async def _call(attempt: Attempt, context: contextvars.Context) -> Any:
    task = attempt.task
    action = task.node.action
    if action is None:
        return task.input
    # Another attempt, or a handler, must not see what this one does to its input in place.
    value = input_copy(task.input) if task.node.retry or task.node.error_handler else task.input
    if task.node.mapper is not None and task.path[0] == PULL:  # what a Send carries is the input as it is
        value = context.run(task.node.mapper, value)
    attempt.flow = asyncio.current_task()
    if action.is_async:
        return await await_in(context, context.run(action.call, value, attempt), attempt.run.told)
    result = await run_in_thread(attempt, context, action.bind(value, attempt))
    if asyncio.iscoroutine(result):  # a sync function that returns a coroutine: a lambda around an async one
        attempt.flow = asyncio.current_task()
        return await await_in(context, result, attempt.run.told)
    return result

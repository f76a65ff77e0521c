"""`@task` calls: parts of a node's work that are journalled one by one, while the node runs.

A call is a task of the running superstep. It starts at once and gives its caller something to wait for; before that
is told the result, the result is journalled. A caller that runs again gets journalled results without running the
calls again. Calls belong to the attempt that made them: none outlives it. What is stored, and when, is the keeper's.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from everstep.channels.snapshot import one_level_copy
from everstep.constants import PUSH, RETURN
from everstep.context import current_task
from everstep.errors import EverstepError, GraphDrained, GraphInterrupt
from everstep.tasks.current import Attempt, Told
from everstep.tasks.node import Node
from everstep.tasks.outcome import Drained, Failed, Interrupted, Outcome, Returned
from everstep.tasks.promises import AnyPromise, ThreadPromise, promise_here
from everstep.tasks.replay import CallRecord, Journalled, Replay, digest_of, shown_call
from everstep.tasks.runner import run_task
from everstep.tasks.task import Path, Task, TaskIds
from everstep.tasks.threads import lending_slot
from everstep.types import MISSING, Interrupt
from everstep_savers.codec import Codec

# Threads of a sync node may call tasks at the same time.
_planning = threading.Lock()


class CallTask(Task):
    """One planned call.

    Attributes:
        place: Whether it was made beside the flow of its caller's code, and its number among such calls.
        record: How the journal knows it; None in a run that nothing outlives.
    """

    __slots__ = ("above", "caller", "is_repeated", "place", "record")

    def __init__(self, node: Node, caller: Task, place: tuple[int, bool], value: tuple[Any, Any]) -> None:
        number, aside = place
        path = (PUSH, *caller.path, *(("aside",) if aside else ()), number)
        super().__init__(TaskIds(caller.id, caller.ns), node, path, (PUSH,), value)
        self.caller = caller
        self.above = (*caller.above, caller.attempt)
        self.place = (aside, number)
        self.answers = caller.answers
        self.is_repeated = caller.is_repeated
        self.record: CallRecord | None = None

    @classmethod
    def of(cls, caller: Task, record: CallRecord) -> CallTask:
        """A call as its caller made it before; it cannot be run."""
        call = cls(Node(record.name, (PUSH,), (), None), caller, (record.number, record.aside), ((), {}))
        call.record = record
        return call

    @property
    def stable_path(self) -> Path:
        """The path with the first names that renamed nodes had."""
        return (PUSH, *self.caller.stable_path, *self.path[len(self.caller.path) + 1 :])

    @property
    def title(self) -> str:
        """What messages call it."""
        return f"task {self.name!r}"

    @property
    def arguments(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """What a cache key is made of."""
        args, kwargs = self.input
        return args, kwargs

    @property
    def result(self) -> Any:
        """What it has returned."""
        return next(value for channel, value in self.writes if channel == RETURN)


class Keeper(Protocol):
    """Stores the calls of a run."""

    @property
    def codec(self) -> Codec:
        """Encodes what is stored."""

    async def keep(self, call: CallTask) -> None:
        """Journal a call that has returned.

        Raises:
            CodecError: The result cannot be stored.
            PersistenceError: Storing has failed.
        """

    def hold(self, call: CallTask) -> None:
        """Note a call that has failed or asked; it is stored along with what is stored next."""


class CallLog:
    """The journalled calls of a run's superstep, of earlier attempts and runs and of this one."""

    __slots__ = ("_calls", "keeper")

    def __init__(self, keeper: Keeper) -> None:
        self.keeper = keeper
        self._calls: dict[str, dict[tuple[bool, int], Journalled]] = {}

    def note(self, *calls: Journalled) -> None:
        """Add calls, in place of what was known of them."""
        for call in calls:
            self._calls.setdefault(call.record.caller, {})[call.record.aside, call.record.number] = call

    def replay_of(self, caller: Task) -> Replay:
        """What the code of a task finds when it runs again, from its first call on."""
        return Replay(caller.title, self._calls.get(caller.id, {}).values())

    def clear(self) -> None:
        """The superstep is over."""
        self._calls.clear()


class Calls:
    """The calls of one attempt."""

    __slots__ = ("_asked", "_attempt", "_failed", "_replay")

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt
        log: CallLog | None = attempt.run.calls
        self._replay = Replay(attempt.task.title) if log is None else log.replay_of(attempt.task)
        # Question id -> the place of the call that asked it.
        self._asked: dict[str, tuple[bool, int]] = {}
        self._failed: list[AnyPromise] = []

    def start(self, node: Node, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> AnyPromise:
        """Start a call, from the loop or from a worker thread; or find what it returned before."""
        attempt = self._attempt
        attempt.sign_of_life()
        # What the caller does to them from now on is not the call's business.
        value = tuple(map(one_level_copy, args)), {key: one_level_copy(item) for key, item in kwargs.items()}
        promise = promise_here(attempt.run.loop)
        promise.is_suspending = lambda: bool(attempt.questions)
        with _planning:
            call, found = self._planned(node, value, aside=_here(promise) != attempt.flow)
        if found is not None and found.value is not MISSING:
            promise.settle(one_level_copy(found.value))
        elif found is not None and self._waits(found.questions):
            self._suspend(call, found.questions, promise)
        else:
            call.is_repeated = call.is_repeated or found is not None or attempt.number > 1
            promise.begin(lambda: self._begin(call, promise))
        return promise

    def in_order(self, questions: list[Interrupt]) -> list[Interrupt]:
        """The open questions, those of calls in the order of the calls."""
        return sorted(questions, key=lambda question: (question.id in self._asked, self._asked.get(question.id, ())))

    def unseen_failure(self) -> BaseException | None:
        """What a call has failed with for whose result nobody has asked."""
        return next((promise.error for promise in self._failed if not promise.is_seen), None)

    def refusal(self) -> BaseException | None:
        """What a call has failed with in a run in which an answer did not fit its question."""
        if not self._attempt.run.rejected:
            return None
        return next((promise.error for promise in self._failed), None)

    def _planned(self, node: Node, value: tuple[Any, Any], *, aside: bool) -> tuple[CallTask, Journalled | None]:
        caller, run = self._attempt.task, self._attempt.run
        if run.calls is None:
            return CallTask(node, caller, self._replay.next_place(aside=aside), value), None
        log: CallLog = run.calls
        shown, arguments = shown_call(node.name, *value), digest_of(log.keeper.codec, *value)
        answers = len({**run.answers, **caller.answers})
        found = self._replay.find(node.name, arguments, shown, aside=aside)
        if found is None:
            number, aside = self._replay.next_place(aside=aside)
            record = CallRecord(caller.id, number, node.name, shown, arguments, aside, answers)
        else:
            known = found.record
            record = replace(known, answers=answers, ended=True, again=known.again or not known.ended)
        call = CallTask(node, caller, (record.number, record.aside), value)
        call.record = record
        return call, found

    def _waits(self, questions: Sequence[Interrupt]) -> bool:
        """Does a call still wait for an answer to all it has asked?"""
        run, caller = self._attempt.run, self._attempt.task
        if not questions or run.nesting.reask:
            return False
        return not any(question.id in caller.answers or question.id in run.answers for question in questions)

    def _begin(self, call: CallTask, promise: AnyPromise) -> None:
        """On the loop: let the call run in a task of its own, which the attempt owns."""
        attempt = self._attempt
        if attempt.closed:
            promise.fail(_too_late(call.name, attempt))
            return
        context = promise.context
        work = attempt.run.loop.create_task(self._run(call, promise), name=f"everstep {call.title}", context=context)
        attempt.inner[work] = None
        promise.work = work
        work.add_done_callback(lambda _: self._ended(work, promise))

    def _ended(self, work: asyncio.Task[None], promise: AnyPromise) -> None:
        self._attempt.inner.pop(work, None)
        promise.call_off()

    async def _run(self, call: CallTask, promise: AnyPromise) -> None:
        run = self._attempt.run
        if run.told is not None:
            run.told.started(call)
        outcome: Outcome | None = None
        try:
            async with lending_slot(self._attempt):
                outcome = await run_task(run, call)
                if type(outcome) is Returned:
                    call.writes, call.finished = outcome.writes, True
                    await self._keep(call)
        except Exception as error:  # it could not be journalled: so it has no result
            outcome = Failed(error)
        finally:
            if outcome is None:
                self._hold(call, ended=False)
        self._attempt.sign_of_life()
        self._note(call, outcome)
        if run.told is not None:
            await self._tell(run.told, call)
        self._settle(call, outcome, promise)

    async def _keep(self, call: CallTask) -> None:
        log: CallLog | None = self._attempt.run.calls
        if log is not None and call.record is not None:
            log.note(Journalled(call.record, call.result))
            await log.keeper.keep(call)
            self._went_on(call.record)

    def _note(self, call: CallTask, outcome: Outcome) -> None:
        """What a call that has not returned leaves."""
        if type(outcome) is Interrupted:
            call.questions, call.suspended = outcome.questions, True
            self._hold(call, ended=True)
        elif type(outcome) is Failed:
            call.error, call.finished = outcome.error, False
            self._hold(call, ended=False)
        elif type(outcome) is Drained:
            self._attempt.drained = outcome.reason
            self._hold(call, ended=False)

    async def _tell(self, told: Told, call: CallTask) -> None:
        """Tell the readers of the run, before the caller; questions are told as its caller's."""
        if call.finished:
            told.finished(call)
        elif call.error is not None:
            told.failed(call)
        await told.room()

    def _settle(self, call: CallTask, outcome: Outcome, promise: AnyPromise) -> None:
        if type(outcome) is Returned:
            promise.settle(call.result if call.record is None else one_level_copy(call.result))
        elif type(outcome) is Interrupted:
            self._suspend(call, outcome.questions, promise)
        elif type(outcome) is Failed:
            self._failed.append(promise)
            promise.fail(outcome.error)
        elif type(outcome) is Drained:
            promise.fail(GraphDrained(outcome.reason))

    def _suspend(self, call: CallTask, questions: Sequence[Interrupt], promise: AnyPromise) -> None:
        """The caller is suspended with its call; other calls of it go on."""
        for question in questions:
            self._asked[question.id] = call.place
        self._attempt.questions += questions
        promise.fail(GraphInterrupt(questions))

    def _hold(self, call: CallTask, *, ended: bool) -> None:
        log: CallLog | None = self._attempt.run.calls
        if log is None or call.record is None:
            return
        if ended:
            self._went_on(call.record)
        call.record = replace(call.record, ended=ended)
        log.note(Journalled(call.record, questions=tuple(call.questions)))
        log.keeper.hold(call)

    def _went_on(self, record: CallRecord) -> None:
        """A call has ended; if it had failed before, the code may now go where it did not go then."""
        self._replay.is_strict = self._replay.is_strict and not record.again


def start_call(node: Node, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> AnyPromise:
    """Start a `@task` call in the node that runs here.

    Raises:
        EverstepError: No node runs here, or its attempt has ended.
        DeterminismError: The node runs again, and its journal holds another call at this place.
    """
    attempt = current_task.get(None)
    if not isinstance(attempt, Attempt):
        raise EverstepError(
            f"task {node.name!r} was called outside of a run; call it in an entrypoint, in a node of a graph, or in a "
            f"function that one of these calls"
        )
    if attempt.closed:
        raise _too_late(node.name, attempt)
    with _planning:
        calls: Calls = attempt.called or Calls(attempt)
        attempt.called = calls
    return calls.start(node, args, kwargs)


def _too_late(name: str, attempt: Attempt) -> EverstepError:
    return EverstepError(f"task {name!r} was called by {attempt.task.title} after its attempt had ended")


def _here(promise: AnyPromise) -> Any:
    """What tells the flow of a node's code from what it does beside: the asyncio task, or the thread."""
    return threading.get_ident() if isinstance(promise, ThreadPromise) else asyncio.current_task()

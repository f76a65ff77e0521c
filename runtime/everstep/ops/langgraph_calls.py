"""`@task` calls of LangGraph's, made into calls of ours.

Pure. LangGraph stores what a call returned under the path of its caller and its number there, but not which task was
called. A result is found again by its number alone. A call that waits has to be known by name, since the ids of its
questions hash it; of the names that a program has, the right one gives the id that LangGraph gave the question.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from xxhash import xxh3_128_hexdigest

from everstep.constants import INTERRUPT, NS_END, NS_SEP, PUSH, RESUME, RETURN, SCHEDULED
from everstep.tasks.replay import CallRecord
from everstep.tasks.task import Answer, Path, TaskIds
from everstep.types import MISSING, Interrupt
from everstep_savers.checkpoint import ERROR, TaskWrites
from everstep_savers.errors import PersistenceError

Writes = Sequence[tuple[str, Any]]

# What the paths of calls begin with; the path of the caller follows, then the call's number and a mark.
_PREFIX = f"~{PUSH}, "


class NotImportableError(PersistenceError):
    """A thread cannot be continued by our engine; the message says why."""


@dataclass(frozen=True, slots=True)
class Caller:
    """A task, or a call, as both know it.

    Attributes:
        their_ns: Its namespace in LangGraph.
        their_path: Its path as LangGraph stores it.
    """

    their_ns: str
    their_path: str
    id: str
    ns: str
    path: Path

    def call(self, name: str, call: TheirCall) -> Caller:
        """One of its calls, under this name."""
        path = (PUSH, *self.path, call.number)
        called = TaskIds(self.id, self.ns).id_of(name, path)
        return Caller(
            f"{self.their_ns}{NS_SEP}{name}{NS_END}{call.id}",
            call.path,
            called,
            f"{self.ns}{NS_SEP}{name}{NS_END}{called}",
            path,
        )

    def question_id(self, number: int) -> str:
        """The id of its question at this position, counted from 0, as ours."""
        return xxh3_128_hexdigest((f"{self.ns}#{number}" if number else self.ns).encode())

    @property
    def path_text(self) -> str:
        return "~" + ", ".join(map(str, self.path))


@dataclass(frozen=True, slots=True)
class TheirCall:
    """A call as LangGraph has stored it."""

    id: str
    path: str
    caller: str
    number: int
    writes: Writes

    @classmethod
    def of(cls, task_id: str, path: str, writes: Writes) -> TheirCall:
        caller, *more = path.removeprefix(_PREFIX).rsplit(", ", 2)
        if len(more) != 2 or not more[0].isdecimal():
            raise NotImportableError(f"the task {task_id} has the path {path!r}, which tells no call")
        return cls(task_id, path, caller, int(more[0]), writes)

    def of_channel(self, channel: str) -> Any:
        """What was written to a channel; `MISSING` if nothing."""
        return next((value for name, value in self.writes if name == channel), MISSING)

    @property
    def answers(self) -> list[Any]:
        found = self.of_channel(RESUME)
        return [] if found is MISSING else list(found)

    @property
    def questions(self) -> list[Interrupt]:
        """What it waits for. One that failed after an answer has an old question beside the error."""
        found = self.of_channel(INTERRUPT)
        has_failed_later = self.of_channel(ERROR) is not MISSING and bool(self.answers)
        return [] if found is MISSING or has_failed_later else list(found)


def is_call(path: str) -> bool:
    """Whether a task's path is that of a call."""
    return path.startswith(f"{_PREFIX}~")


def main_path(path: str) -> str:
    """The path of the node's task in which a call was made, by whatever calls."""
    while is_call(path):
        path = TheirCall.of("", path, ()).caller
    return path


def their_question(their_ns: str, number: int) -> str:
    """The id of a task's question at this position, as LangGraph has it."""
    return xxh3_128_hexdigest((f"{their_ns}{NS_SEP}{number}" if number else their_ns).encode())


@dataclass(slots=True)
class Calls:
    """The calls of one task that has not finished.

    Attributes:
        writes: What is stored of them, by checkpoint namespace and id of the caller.
        answers: What their questions were answered with; ours are bound to the task.
        questions: The open ones, as ours.
        renamed: Ids of open questions, LangGraph's -> ours.
        asked_again: Ids of questions that are asked anew when the thread goes on, LangGraph's.
    """

    names: Sequence[str]
    writes: list[tuple[Caller, str, Writes]] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)
    questions: list[Interrupt] = field(default_factory=list)
    renamed: dict[str, str] = field(default_factory=dict)
    asked_again: list[str] = field(default_factory=list)
    _by_caller: Mapping[str, list[TheirCall]] = field(default_factory=dict)
    _answered: int = 0

    def add(self, main: Caller, calls: Sequence[TheirCall], answered: int) -> None:
        """Take the calls that were made within a task, which had been given so many answers itself."""
        by_caller: dict[str, list[TheirCall]] = defaultdict(list)
        for call in calls:
            by_caller[call.caller].append(call)
        self._by_caller = by_caller
        # After which of the answers a call was made is not known; on a branch that answers anew none of them counts.
        self._answered = answered + sum(len(call.answers) for call in calls)
        self._take(main)

    def at(self, checkpoint_ns: str, checkpoint_id: str) -> Iterator[TaskWrites]:
        """What is stored of the calls at a checkpoint."""
        for caller, name, writes in self.writes:
            yield TaskWrites(checkpoint_ns, checkpoint_id, caller.id, writes, caller.path_text, name)

    def _take(self, caller: Caller) -> None:
        for call in sorted(self._by_caller.get(caller.their_path, ()), key=lambda call: call.number):
            if (returned := call.of_channel(RETURN)) is not MISSING:
                self._add(caller, "", call, [(RETURN, returned)])
            elif (name := self._name_of(caller, call)) is not None:
                self._take_waiting(caller, name, call)
            elif self._has_kept(call):
                raise NotImportableError(
                    "it waits in a @task that has called others, or was answered; which @task that is, the stored data "
                    "does not tell: name the graph (--graph package.module:graph) and, unless they are in its module, "
                    "the tasks (--task NAME)"
                )
            else:
                self.asked_again += [question.id for question in call.questions]

    def _take_waiting(self, caller: Caller, name: str, call: TheirCall) -> None:
        own = caller.call(name, call)
        answers = [Answer(own.question_id(number), given, MISSING) for number, given in enumerate(call.answers)]
        self.answers += answers
        inner = {question.id for each in self._by_caller.get(call.path, ()) for question in each.questions}
        asked = [
            Interrupt(question.value, own.question_id(len(answers) + number), question.response_schema)
            for number, question in enumerate(each for each in call.questions if each.id not in inner)
        ]
        theirs = [question.id for question in call.questions if question.id not in inner]
        self.renamed |= {old: new.id for old, new in zip(theirs, asked, strict=True)}
        before = len(self.questions)
        self._take(own)
        self.questions += asked
        waiting = self.questions[before:]
        if waiting:
            self._add(caller, name, call, [(INTERRUPT, waiting)])

    def _add(self, caller: Caller, name: str, call: TheirCall, writes: Writes) -> None:
        record = CallRecord(
            caller.id, call.number, name, name or "a @task of LangGraph's", None, answers=self._answered
        )
        self.writes.append((caller.call(name, call), name, [*writes, (SCHEDULED, record.stored())]))

    def _name_of(self, caller: Caller, call: TheirCall) -> str | None:
        """Which of the names gives the question of a call, or of one that it has made, the id that it has."""
        return next((name for name in self.names if self._fits(caller.call(name, call), call)), None)

    def _fits(self, own: Caller, call: TheirCall) -> bool:
        if their_question(own.their_ns, len(call.answers)) in {question.id for question in call.questions}:
            return True
        return any(self._name_of(own, each) is not None for each in self._by_caller.get(call.path, ()))

    def _has_kept(self, call: TheirCall) -> bool:
        """Has it got results or answers that would be lost if it ran again?"""
        inner = self._by_caller.get(call.path, ())
        return bool(call.answers) or any(
            each.of_channel(RETURN) is not MISSING or self._has_kept(each) for each in inner
        )

"""Which question an answer belongs to.

Pure. `Command(resume=...)` is matched with the questions that are open now, and with answers accepted
before: every answer is bound to exactly one question, an accepted one may be repeated, and anything else is
refused before anything runs or is written.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from everstep.errors import UnknownInterruptError
from everstep.tasks.responses import plain_answer
from everstep.tasks.task import Answer, Task
from everstep.types import Interrupt

_ID = re.compile(r"[0-9a-f]{32}\Z")


@dataclass(frozen=True, slots=True)
class Binding:
    """What a resume value means on this thread.

    Attributes:
        accepted: New answers, with the task each belongs to.
        repeated: The value only repeats answers that were accepted before: nothing is to be run.
        elsewhere: Answers by id whose question is neither open nor of a pending task; an earlier
            checkpoint may know them.
        plain_elsewhere: A plain value where no question is open and no pending task has an answer.
    """

    accepted: tuple[tuple[Task, Answer], ...] = ()
    repeated: bool = False
    elsewhere: Mapping[str, Any] = field(default_factory=dict)
    plain_elsewhere: bool = False


def is_answer_map(value: Any) -> bool:
    """Is this a map from question ids to answers? Any other dict is a plain answer."""
    return isinstance(value, dict) and bool(value) and all(isinstance(key, str) and _ID.match(key) for key in value)


def bind(value: Any, tasks: Sequence[Task]) -> Binding:
    """Match a resume value with the pending tasks of a thread.

    Raises:
        UnknownInterruptError: A plain value with several questions open, or another value for an answered
            question.
    """
    questions = [(task, question) for task in tasks for question in task.questions]
    if not is_answer_map(value):
        _refuse_mistyped_map(value, questions)
    else:
        return _bind_map(value, tasks, questions)
    if len(questions) > 1:
        raise UnknownInterruptError(
            f"{len(questions)} questions are open and the answer names none; answer by id: "
            f"Command(resume={{id: answer, ...}}). {describe_open(questions)}"
        )
    if questions:
        task, question = questions[0]
        return Binding(accepted=((task, answer_to(question, value)),))
    answers = [answer for task in tasks for answer in task.answers.values()]
    if not answers:
        return Binding(plain_elsewhere=True)
    check_repeated(value, answers[-1], questions)
    return Binding(repeated=True)


def _refuse_mistyped_map(value: Any, questions: Sequence[tuple[Task, Interrupt]]) -> None:
    """Refuse a dict that means to answer by id and has a key which is none: it would be the answer, for good."""
    if not isinstance(value, dict):
        return
    open_ids = [question.id for _, question in questions]
    for key in value:
        if isinstance(key, str) and _resembles(key.strip().lower(), open_ids):
            wrong = [other for other in value if not (isinstance(other, str) and _ID.match(other))]
            raise UnknownInterruptError(
                f"the answer looks like a map by question id, but {wrong[0]!r} is no id (32 lowercase hex digits). "
                f"{describe_open(questions)}"
            )


def _resembles(key: str, ids: Sequence[str]) -> bool:
    """Is this one of the ids, or the better part of one?"""
    return any(key == known or (len(key) > 8 and known.startswith(key)) for known in ids)


def answer_to(question: Interrupt, value: Any) -> Answer:
    """The answer to a question as it is kept."""
    return Answer(question.id, plain_answer(question.response_schema, value), question.value)


def _bind_map(value: Mapping[str, Any], tasks: Sequence[Task], questions: Sequence[tuple[Task, Interrupt]]) -> Binding:
    by_id = {question.id: (task, question) for task, question in questions}
    answered = {answer.id: answer for task in tasks for answer in task.answers.values()}
    accepted = []
    elsewhere = {}
    for question_id, answer in value.items():
        if question_id in by_id:
            task, question = by_id[question_id]
            accepted.append((task, answer_to(question, answer)))
        elif question_id in answered:
            check_repeated(answer, answered[question_id], questions)
        else:
            elsewhere[question_id] = answer
    return Binding(tuple(accepted), repeated=not accepted, elsewhere=elsewhere)


def check_repeated(value: Any, answer: Answer, questions: Iterable[tuple[Task, Interrupt]] = ()) -> None:
    """Refuse another value for a question that was answered."""
    if not (same_value(value, answer.value) or same_value(plain_answer({}, value), answer.value)):
        raise UnknownInterruptError(
            f"question {answer.id} ({answer.question!r}) was answered with {answer.value!r}; the different answer "
            f"{value!r} is refused. {describe_open(questions)}"
        )


def unknown_id(question_id: str, questions: Iterable[tuple[Task, Interrupt]]) -> UnknownInterruptError:
    """The error for an answer to a question that this thread never asked."""
    return UnknownInterruptError(
        f"no question with id {question_id} is open on this thread. {describe_open(questions)}"
    )


def nothing_open(value: Any) -> UnknownInterruptError:
    """The error for a plain answer on a thread that asks nothing and never did."""
    return UnknownInterruptError(
        f"the answer {value!r} has no question: none is open on this thread. Continue it with input None, or start "
        f"anew with an input"
    )


def describe_open(questions: Iterable[tuple[Task, Interrupt]]) -> str:
    """The open questions as the end of a message."""
    listed = [f"{question.id} (node {task.name!r} asks {question.value!r:.100})" for task, question in questions]
    return f"Open: {', '.join(listed)}." if listed else "No question is open."


def same_value(left: Any, right: Any) -> bool:
    """Equal, or both not a number; values that cannot be compared are different."""
    try:
        return bool(left == right) or (left != left and right != right)
    except Exception:  # a user's __eq__ may refuse, or give no single truth
        return left is right

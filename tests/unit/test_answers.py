"""Which question an answer belongs to: the table of bindings."""

from __future__ import annotations

from typing import Any

import pytest

from everstep.constants import PULL
from everstep.errors import UnknownInterruptError
from everstep.pregel.answers import Binding, bind, is_answer_map, same_value
from everstep.tasks.node import Node
from everstep.tasks.task import Answer, Task, TaskIds
from everstep.types import Interrupt

A, B, UNKNOWN = "a" * 32, "b" * 32, "c" * 32


def task(name: str, open_: dict[str, str] | None = None, answered: dict[str, Any] | None = None) -> Task:
    """A task with open questions (id -> value) and accepted answers (id -> answer to "q")."""
    made = Task(TaskIds("c", ""), Node(name, (), name, None), (PULL, name), (), None)
    made.questions = [Interrupt(value, question_id) for question_id, value in (open_ or {}).items()]
    made.answers = {question_id: Answer(question_id, value, "q") for question_id, value in (answered or {}).items()}
    return made


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({A: 1}, True),
        ({A: 1, B: 2}, True),
        ({}, False),
        ({A: 1, "b": 2}, False),
        ({A.upper(): 1}, False),
        ({A + "0": 1}, False),
        ({A + "\n": 1}, False),
        ({1: 1}, False),
        ([A], False),
        (A, False),
        (None, False),
    ],
)
def test_only_a_map_of_ids_is_a_map_of_answers(value: Any, expected: bool) -> None:
    assert is_answer_map(value) is expected


@pytest.mark.parametrize("value", ["yes", None, {}, {"a": "yes"}, [1], 0])
def test_a_plain_value_answers_the_one_open_question(value: Any) -> None:
    one, other = task("one", {A: "q"}), task("other")
    assert bind(value, [other, one]) == Binding(accepted=((one, Answer(A, value, "q")),))


def test_a_map_answers_by_id() -> None:
    one, two = task("one", {A: "q1"}), task("two", {B: "q2"})
    assert bind({B: 2, A: 1}, [one, two]).accepted == ((two, Answer(B, 2, "q2")), (one, Answer(A, 1, "q1")))
    assert bind({A: 1}, [one, two]) == Binding(accepted=((one, Answer(A, 1, "q1")),))


def test_a_plain_value_for_several_questions_is_refused() -> None:
    with pytest.raises(UnknownInterruptError) as caught:
        bind("yes", [task("one", {A: "q1"}), task("two", {B: "x" * 200})])
    assert str(caught.value) == (
        f"2 questions are open and the answer names none; answer by id: Command(resume={{id: answer, ...}}). Open: "
        f"{A} (node 'one' asks 'q1'), {B} (node 'two' asks '{'x' * 99})."
    )


def test_repeating_the_accepted_answer_runs_nothing() -> None:
    done = task("done", answered={A: "yes"})
    assert bind("yes", [done]) == Binding(repeated=True)
    assert bind({A: "yes"}, [done]) == Binding(repeated=True)


def test_repeating_one_answer_while_giving_another_gives_the_other() -> None:
    both = task("both", {B: "q2"}, answered={A: "yes"})
    assert bind({A: "yes", B: "no"}, [both]) == Binding(accepted=((both, Answer(B, "no", "q2")),))


@pytest.mark.parametrize("value", ["no", {A: "no"}])
def test_another_value_for_an_answered_question_is_refused(value: Any) -> None:
    with pytest.raises(UnknownInterruptError) as caught:
        bind(value, [task("done", answered={A: "yes"})])
    assert str(caught.value) == (
        f"question {A} ('q') was answered with 'yes'; the different answer 'no' is refused. No question is open."
    )


def test_what_no_pending_task_knows_may_be_known_elsewhere() -> None:
    one = task("one", {A: "q"})
    assert bind({UNKNOWN: 1}, [one]) == Binding(repeated=True, elsewhere={UNKNOWN: 1})
    assert bind({A: 1, UNKNOWN: 2}, [one]).elsewhere == {UNKNOWN: 2}
    assert bind("yes", [task("one")]) == Binding(plain_elsewhere=True)
    assert bind("yes", []) == Binding(plain_elsewhere=True)


class Unwilling:
    """A value that refuses to be compared."""

    def __eq__(self, other: object) -> bool:
        raise TypeError

    __hash__ = object.__hash__


def test_equal_answers_are_the_same_and_incomparable_ones_only_if_they_are_one() -> None:
    nan, unwilling = float("nan"), Unwilling()
    assert same_value([1, {"a": 2}], [1, {"a": 2}])
    assert same_value(nan, float("nan"))
    assert same_value(unwilling, unwilling)
    assert not same_value(unwilling, Unwilling())
    assert not same_value(1, 2)

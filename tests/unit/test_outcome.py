"""How an attempt ended, told from what it did."""

from __future__ import annotations

import asyncio

import pytest

from everstep.errors import GraphInterrupt, NodeCancelledError, ParentCommand
from everstep.tasks.outcome import BubbledUp, Failed, Interrupted, Returned, outcome_of
from everstep.types import Command, Interrupt

QUESTION = Interrupt("q", "0" * 32)


def test_a_body_that_returned_is_finished() -> None:
    assert outcome_of(None, [("a", 1)], [], "n") == Returned([("a", 1)])


def test_the_bodys_own_error_is_the_failure() -> None:
    error = ValueError("broken")
    outcome = outcome_of(error, [("a", 1)], [], "n")
    assert isinstance(outcome, Failed)
    assert outcome.error is error


@pytest.mark.parametrize(
    "error", [None, ValueError("masked"), asyncio.CancelledError(), GraphInterrupt([QUESTION]), BaseException()]
)
def test_an_open_question_suspends_whatever_was_returned_or_raised(error: BaseException | None) -> None:
    assert outcome_of(error, [("a", 1)], [QUESTION], "n") == Interrupted([QUESTION])


def test_the_signal_alone_suspends_too() -> None:
    assert outcome_of(GraphInterrupt([QUESTION]), [], [], "n") == Interrupted([QUESTION])


def test_commands_for_the_containing_graph_go_up() -> None:
    command: Command[str] = Command(graph=Command.PARENT, update={"a": 1})
    assert outcome_of(ParentCommand(command), [], [], "n") == BubbledUp((command,))


def test_a_cancellation_nobody_asked_for_is_a_failure_that_says_so() -> None:
    cancelled = asyncio.CancelledError("mine")
    outcome = outcome_of(cancelled, [], [], "n")
    assert isinstance(outcome, Failed)
    assert isinstance(outcome.error, NodeCancelledError)
    assert outcome.error.__cause__ is cancelled
    assert str(outcome.error) == (
        "node 'n' raised CancelledError itself, though nobody cancelled the run; let it raise another error"
    )

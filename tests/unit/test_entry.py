"""How a run starts, and what earlier runs left for its tasks."""

from __future__ import annotations

from typing import Any

import pytest

from everstep.config import RunConfig
from everstep.constants import INTERRUPT, NULL_TASK_ID, PULL, RESUME
from everstep.errors import EmptyInputError
from everstep.pregel.entry import (
    Entry,
    Fork,
    Fresh,
    Resume,
    apply_run_writes,
    ask_again,
    at_breakpoint,
    choose_entry,
    restore_tasks,
    run_writes_id,
)
from everstep.pregel.request import RunRequest
from everstep.tasks.task import Answer, Task, TaskIds
from everstep.types import Command, Interrupt
from everstep_savers.checkpoint import NO_WRITES, CheckpointTuple, Loaded, ThreadRecord, empty_checkpoint
from tests.unit.blueprints import blueprint, live, node

GRAPH = blueprint(node("a"), node("b"))


def entry(given: Any, *, head: str | None = "head", at: str | None = None, **row: Any) -> Entry:
    """How a run with this input starts on a thread with this head."""
    thread = ThreadRecord("t", head, "done", 1, **row) if head or row else None
    saved = CheckpointTuple({}, empty_checkpoint(), {}) if head else None
    config = RunConfig(thread_id="t", checkpoint_id=at)
    request = RunRequest(graph=GRAPH, input=given, config=config, saver=None, output="log", shown="log")
    return choose_entry(request, Loaded(saved, thread))


@pytest.mark.parametrize("given", [{}, {"log": [1]}, 0, "", [], False])
def test_any_input_but_none_begins_anew(given: Any) -> None:
    for head in (None, "head"):
        assert entry(given, head=head) == Fresh(given)
    assert entry(given, at="old") == Fresh(given)


def test_none_goes_on_from_the_head_and_forks_from_the_past() -> None:
    assert entry(None) == entry(None, at="head") == Resume()
    assert entry(None, at="old") == Fork(Resume())


def test_a_command_goes_on_with_its_answer_update_and_destination() -> None:
    command: Command[str] = Command(resume=None, update={"value": 1})
    assert entry(Command(resume="A")) == Resume("A")
    assert entry(Command(resume=None)) == Resume(None)
    assert entry(command) == Resume(None, command)
    assert entry(command, at="old") == Fork(Resume(None, command))
    assert entry(Command(goto="b")) == Resume(command=Command(goto="b"))


def test_a_command_with_writes_may_begin_a_thread() -> None:
    commands: list[Command[Any]] = [Command(update={"value": 1}), Command(goto="b")]
    for command in commands:
        assert entry(command, head=None) == Fresh(command)


def test_a_stored_input_without_a_checkpoint_of_its_own_is_run_again() -> None:
    assert entry(None, input={"log": [1]}, has_input=True) == Fresh({"log": [1]})
    assert entry(None, head=None, input=None, has_input=True) == Fresh(None)


@pytest.mark.parametrize(
    ("given", "what"), [(None, "continue"), (Command(resume=1), "answer"), (Command(resume=1, goto="a"), "answer")]
)
def test_nothing_to_go_on_with_is_told(given: Any, what: str) -> None:
    with pytest.raises(EmptyInputError) as caught:
        entry(given, head=None)
    assert str(caught.value) == f"thread 't' has no checkpoint: there is nothing to {what}; give the run an input"


# What earlier runs left ------------------------------------------------------------------------------------------


def tasks() -> tuple[Task, Task]:
    ids = TaskIds("c", "")
    one, other = (Task(ids, GRAPH.nodes[name], (PULL, name), (), None) for name in "ab")
    return one, other


Q1, Q2 = Interrupt("q1", "1" * 32), Interrupt("q2", "2" * 32)
A1 = Answer(Q1.id, "A", "q1")


def test_stored_results_finish_their_tasks_and_no_others() -> None:
    one, other = tasks()
    restore_tasks([one, other], [(one.id, "log", [1]), (one.id, "value", 2), ("elsewhere", "log", [3])])
    assert (one.finished, one.stored, one.writes) == (True, True, [("log", [1]), ("value", 2)])
    assert (other.finished, other.writes) == (False, [])


def test_a_task_that_finished_without_writes_is_finished() -> None:
    one, other = tasks()
    restore_tasks([one, other], [(one.id, NO_WRITES, None)])
    assert (one.finished, one.writes, other.finished) == (True, [], False)


def test_answered_questions_are_no_longer_open() -> None:
    one, other = tasks()
    pending = [(one.id, INTERRUPT, [Q1, Q2]), (one.id, RESUME, [A1]), (other.id, INTERRUPT, [Q2])]
    restore_tasks([one, other], pending)
    assert (one.questions, one.answers, one.suspended) == ([Q2], {Q1.id: A1}, True)
    assert (other.questions, other.answers) == ([Q2], {})


def test_a_task_whose_questions_are_all_answered_runs() -> None:
    one, other = tasks()
    restore_tasks([one, other], [(one.id, INTERRUPT, [Q1]), (one.id, RESUME, [A1])])
    assert (one.questions, one.suspended) == ([], False)


def test_answers_that_the_containing_graph_got_count_too() -> None:
    one, other = tasks()
    restore_tasks([one, other], [(one.id, INTERRUPT, [Q1])], {Q1.id: A1})
    assert not one.suspended


def test_a_finished_task_asks_nothing_more() -> None:
    one, other = tasks()
    restore_tasks([one, other], [(one.id, INTERRUPT, [Q1]), (one.id, "value", 1)])
    assert (one.finished, one.questions, one.suspended) == (True, [], False)


def test_without_an_answer_suspended_tasks_ask_again() -> None:
    one, other = tasks()
    restore_tasks([one, other], [(one.id, INTERRUPT, [Q1])])
    ask_again([one, other])
    assert (one.questions, one.suspended) == ([], False)


def test_batches_of_the_runs_own_writes_are_kept_apart_and_applied_in_order() -> None:
    pending: list[tuple[str, str, Any]] = [(NULL_TASK_ID, INTERRUPT, [])]
    for number in range(1, 13):
        batch = run_writes_id(pending)
        assert batch not in {task_id for task_id, _, _ in pending}
        pending += [(batch, "log", [number]), (batch, "value", number)]
    channels = live(GRAPH)
    apply_run_writes(GRAPH, channels, list(reversed(pending)))
    assert channels.read(["log", "value"]) == {"log": list(range(1, 13)), "value": 12}


def test_a_stop_at_a_breakpoint_is_known_by_its_mark() -> None:
    one, _ = tasks()
    assert at_breakpoint([(NULL_TASK_ID, INTERRUPT, [])])
    assert not at_breakpoint([(one.id, INTERRUPT, [Q1])])
    assert not at_breakpoint([])

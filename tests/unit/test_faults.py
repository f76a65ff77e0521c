"""Starting points, stored failures and their handlers, and groups of errors: values in, values out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from everstep.config import RunConfig
from everstep.constants import ERROR, PULL, PUSH, SCHEDULED
from everstep.context import ExecutionInfo, Runtime
from everstep.control import RunControl
from everstep.errors import InvalidUpdateError, NodeError, RestoredError
from everstep.policies import is_transient
from everstep.pregel.starting import StartingPoint
from everstep.tasks.current import Attempt, RunScope
from everstep.tasks.handlers import hand_over, restore_handlers, result_of
from everstep.tasks.node import Node
from everstep.tasks.task import Task, TaskIds
from everstep_savers.checkpoint import NO_WRITES
from everstep_savers.codec import StoredError
from tests.unit.blueprints import blueprint, live, node

HANDLER = Node("handler", (), "x", None)


def task(name: str = "n", *, path: Any = None, handled: bool = True, identity: str = "") -> Task:
    made = Node(name, (), "x", None, error_handler=HANDLER if handled else None, identity=identity)
    return Task(TaskIds("c", ""), made, path or (PULL, name), (), {"items": [1]})


# Handlers -----------------------------------------------------------------------------------------------------------


def test_a_handler_takes_over_with_the_input_and_the_error() -> None:
    failed, error = task(), ValueError("x")
    handler = hand_over(failed, error)
    assert handler is not None
    assert (handler.name, handler.path, handler.triggers) == ("handler", (PULL, "n", "error_handler"), ())
    assert handler.failure == NodeError("n", error)
    assert (handler.input, handler.input["items"] is failed.input["items"]) == ({"items": [1]}, False)
    assert (failed.finished, failed.handler, failed.writes, failed.failure) == (True, handler, [], None)
    assert result_of(failed) == [(ERROR, error), (SCHEDULED, "handler")]


def test_without_a_handler_or_for_what_is_no_error_nobody_takes_over() -> None:
    assert hand_over(task(handled=False), ValueError()) is None
    assert hand_over(task(), KeyboardInterrupt()) is None
    assert result_of(task()) == [(NO_WRITES, None)]


def test_handlers_of_sent_tasks_have_ids_of_their_own() -> None:
    handlers = [hand_over(task(path=(PUSH, number)), ValueError()) for number in range(3)]
    assert len({handler.id for handler in handlers if handler is not None}) == 3


def test_a_stored_failure_gives_the_same_handler() -> None:
    live_handler = hand_over(task(), ValueError("x"))
    failed = task()
    (handler,) = restore_handlers([failed], [(failed.id, ERROR, ValueError("x")), (failed.id, SCHEDULED, "handler")])
    assert live_handler is not None
    assert handler.id == live_handler.id
    assert handler.failure is not None
    assert (type(handler.failure.error), handler.failure.error.args) == (ValueError, ("x",))
    assert (failed.finished, failed.stored) == (True, True)


def test_a_renamed_node_keeps_its_handler() -> None:
    before, after = hand_over(task("old"), ValueError()), hand_over(task("new", identity="old"), ValueError())
    assert before is not None
    assert after is not None
    assert (before.id, before.failure.node if before.failure else "") == (after.id, "old")
    assert after.failure is not None
    assert after.failure.node == "new"


@pytest.mark.parametrize(
    ("stored", "text", "notes"),
    [
        (StoredError("shop.Declined", "no funds", ("a note",)), "shop.Declined: no funds", ["a note"]),
        ("ValueError()", "str: ValueError()", []),
        (None, "NoneType: None", []),
    ],
)
def test_a_failure_that_is_kept_as_a_record_comes_back_as_an_exception(
    stored: Any, text: str, notes: list[str]
) -> None:
    failed = task()
    (handler,) = restore_handlers([failed], [(failed.id, ERROR, stored), (failed.id, SCHEDULED, "handler")])
    assert handler.failure is not None
    error = handler.failure.error
    assert (type(error), str(error), getattr(error, "__notes__", [])) == (RestoredError, text, notes)


def test_a_failure_that_nobody_handles_or_that_is_of_another_step_restores_nothing() -> None:
    failed, other = task(), task(handled=False)
    assert restore_handlers([failed], [(failed.id, ERROR, ValueError())]) == []
    assert restore_handlers([failed], [("elsewhere", ERROR, ValueError()), ("elsewhere", SCHEDULED, "h")]) == []
    assert restore_handlers([other], [(other.id, ERROR, ValueError()), (other.id, SCHEDULED, "h")]) == []
    assert (failed.finished, other.finished, other.stored) == (False, False, False)


def test_a_task_that_has_run_after_all_is_not_handled() -> None:
    failed = task()
    pending = [(failed.id, ERROR, ValueError()), (failed.id, SCHEDULED, "h"), (failed.id, "log", [1])]
    assert restore_handlers([failed], pending) == []


# Keys ---------------------------------------------------------------------------------------------------------------


def test_a_starting_point_is_read_as_it_was_written() -> None:
    for point, text in ((StartingPoint("id"), "id"), (StartingPoint("id").after_updates(2).after_updates(1), "id+3")):
        assert point.text == text
        assert StartingPoint.of(text) == point


def key(branch: str | None = "b", step: int = 3, skipped: int = 0, of: Task | None = None) -> str:
    scope = RunScope(RunConfig(), live(blueprint(node("a"))), "graph")
    scope.branch, scope.step, scope.skipped = branch, step, skipped
    return Attempt(scope, of or task(), 1, 0.0).idempotency_key


async def test_a_key_tells_branch_step_node_and_path_apart() -> None:
    keys = [
        key(),
        key("other"),
        key(step=4),
        key(of=task("m")),
        key(of=task(path=(PUSH, 0))),
        key(of=task(path=(PUSH, 1))),
        key(of=hand_over(task(), ValueError())),
    ]
    assert len(set(keys)) == len(keys)
    assert key(step=5, skipped=2) == key()
    assert key(of=task("new", identity="n")) == key()
    assert key(None) != key(None)


# What nodes reach -----------------------------------------------------------------------------------------------------


def test_a_runtime_is_overridden_and_merged() -> None:
    control = RunControl()
    runtime: Runtime[Any] = Runtime(context=1, store="s")
    assert runtime.override(context=2) == replace(runtime, context=2)
    merged = runtime.merge(Runtime(context=3, control=control, execution_info=ExecutionInfo(task_id="t")))
    assert (merged.context, merged.store, merged.control, merged.execution_info.task_id) == (3, "s", control, "t")
    assert runtime.merge(Runtime()) == runtime
    assert ExecutionInfo(task_id="t").patch(node_attempt=2) == ExecutionInfo(task_id="t", node_attempt=2)


def test_a_runtime_tells_whether_the_run_is_to_stop() -> None:
    control = RunControl()
    runtime: Runtime[Any] = Runtime(control=control)
    assert (runtime.drain_requested, runtime.drain_reason) == (False, None)
    control.request_drain("deploy")
    assert (runtime.drain_requested, runtime.drain_reason) == (True, "deploy")
    assert (Runtime[Any]().drain_requested, Runtime[Any]().drain_reason) == (False, None)


# Errors -------------------------------------------------------------------------------------------------------------


def test_a_group_is_transient_if_all_of_it_is() -> None:
    assert is_transient(ExceptionGroup("g", [ConnectionError(), ExceptionGroup("h", [TimeoutError()])]))
    assert not is_transient(ExceptionGroup("g", [ConnectionError(), ValueError()]))
    assert not is_transient(ExceptionGroup("g", [InvalidUpdateError()]))

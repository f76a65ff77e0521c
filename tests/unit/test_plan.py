"""Planning: which tasks the next superstep has, in which order, under which ids."""

from __future__ import annotations

from typing import Any

from everstep.channels.managed import IsLastStepManager, RemainingStepsManager
from everstep.constants import PULL, PUSH, TASKS
from everstep.policies import TimeoutPolicy
from everstep.pregel.blueprint import Blueprint
from everstep.pregel.plan import At, is_triggered, plan
from everstep.types import Send
from tests.unit.blueprints import blueprint, live, node

AT = At("c", "", 3, 9)


def paths(tasks: list[Any]) -> list[tuple[Any, ...]]:
    return [task.path for task in tasks]


def test_a_node_runs_when_a_trigger_is_newer_than_it_has_seen() -> None:
    graph = blueprint(node("a"), node("b"))
    channels = live(graph, {"to:a": None})
    assert paths(plan(graph, channels, AT)) == [(PULL, "a")]
    channels.seen["a"] = {"to:a": 1}
    assert plan(graph, channels, AT) == []
    channels.bump("to:a", 2)
    assert paths(plan(graph, channels, AT)) == [(PULL, "a")]


def test_any_of_several_triggers_runs_a_node_once() -> None:
    graph = blueprint(node("a", "x", "y"))
    assert paths(plan(graph, live(graph, {"x": 1, "y": 1}), AT)) == [(PULL, "a")]
    assert paths(plan(graph, live(graph, {"y": 1}), AT)) == [(PULL, "a")]


def test_a_trigger_without_a_value_runs_nothing() -> None:
    graph = blueprint(node("a"))
    channels = live(graph, {"to:a": None})
    channels.write("to:a", ())
    assert not is_triggered(graph.nodes["a"], channels)
    assert plan(graph, channels, AT) == []


def test_a_node_whose_one_channel_is_empty_does_not_run() -> None:
    graph = blueprint(node("a", reads="value"))
    assert plan(graph, live(graph, {"to:a": None}), AT) == []
    (task,) = plan(graph, live(graph, {"to:a": None, "value": 7}), AT)
    assert task.input == 7


def test_sent_tasks_come_first_in_their_order_then_triggered_ones_by_name() -> None:
    graph = blueprint(node("b"), node("a"))
    channels = live(graph, {"to:a": None, "to:b": None})
    channels.write(TASKS, [Send("b", 1), Send("a", 2), Send("b", 3)])
    tasks = plan(graph, channels, AT)
    assert paths(tasks) == [(PUSH, 0), (PUSH, 1), (PUSH, 2), (PULL, "a"), (PULL, "b")]
    assert [(task.name, task.input, task.triggers) for task in tasks[:3]] == [
        ("b", 1, (TASKS,)),
        ("a", 2, (TASKS,)),
        ("b", 3, (TASKS,)),
    ]


def test_looking_at_changed_channels_alone_gives_the_same_plan() -> None:
    graph = blueprint(node("a", "x"), node("b", "x", "y"), node("c", "z"))
    for keys in (["x"], ["y"], ["z"], ["x", "z"], ["x", "y", "z"], []):
        channels = live(graph, dict.fromkeys(keys))
        updated = [*keys, "log"]
        assert paths(plan(graph, channels, AT, updated)) == paths(plan(graph, channels, AT))


def test_the_same_checkpoint_gives_the_same_ids_and_another_one_others() -> None:
    graph = blueprint(node("a"), node("b"))
    channels = live(graph, {"to:a": None, "to:b": None})
    ids = [task.id for task in plan(graph, channels, AT)]
    assert [task.id for task in plan(graph, channels, At("c", "", 7, 9))] == ids
    assert len({*ids, *(task.id for task in plan(graph, channels, At("d", "", 3, 9)))}) == 4
    assert len({*ids, *(task.id for task in plan(graph, channels, At("c", "ns", 3, 9)))}) == 4


def test_inputs_are_copies_one_level_deep() -> None:
    graph = blueprint(node("a"), node("b"))
    inner: list[Any] = []
    channels = live(graph, {"to:a": None, "to:b": None, "log": [inner]})
    one, other = plan(graph, channels, AT)
    one.input["log"].append("changed")
    assert other.input["log"] == [[]] == channels.read("log")
    assert other.input["log"][0] is inner


def test_sent_inputs_are_copies_as_states_are() -> None:
    graph = blueprint(node("a"))
    channels, arg = live(graph), {"items": [1]}
    channels.write(TASKS, [Send("a", arg), Send("a", arg)])
    one, other = plan(graph, channels, AT)
    one.input["items"].append(2)
    one.input["more"] = 1
    assert (other.input, arg) == ({"items": [1]}, {"items": [1]})


def test_a_send_may_bring_its_own_timeout() -> None:
    graph = blueprint(node("a"))
    channels = live(graph)
    channels.write(TASKS, [Send("a", 1, timeout=2.5), Send("a", 1)])
    assert [task.timeout for task in plan(graph, channels, AT)] == [TimeoutPolicy(run_timeout=2.5), None]


def test_managed_keys_are_computed_for_each_task() -> None:
    plain = blueprint(node("a"))
    graph = Blueprint(
        name="graph",
        nodes={"a": node("a", reads=("log", "left", "last"))},
        channels=dict(plain.channels),
        input_channels=("log",),
        output_channels=("log",),
        stream_channels=("log",),
        managed={"left": RemainingStepsManager, "last": IsLastStepManager},
    )
    for step, expected in ((3, {"log": [], "left": 6, "last": False}), (8, {"log": [], "left": 1, "last": True})):
        (task,) = plan(graph, live(graph, {"to:a": None}), At("c", "", step, 9))
        assert task.input == expected

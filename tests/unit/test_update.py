"""The barrier: what becomes of the writes of one superstep."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from everstep.channels.barrier import NamedBarrierValue
from everstep.channels.last_value import EphemeralValue, LastValueAfterFinish
from everstep.channels.topic import Topic
from everstep.constants import PULL, PUSH
from everstep.errors import InvalidUpdateError
from everstep.pregel.update import apply_writes
from tests.unit.blueprints import Done, blueprint, live, node


def test_writes_are_applied_in_path_order_whatever_order_they_come_in() -> None:
    graph = blueprint(node("a"), node("b"))
    tasks = [
        Done("b", [("log", ["pull b"])], ("to:b",), (PULL, "b")),
        Done("a", [("log", ["push 10"])], (), (PUSH, 10)),
        Done("a", [("log", ["push 2"])], (), (PUSH, 2)),
        Done("a", [("log", ["pull a"])], ("to:a",), (PULL, "a")),
    ]
    for order in itertools.permutations(tasks):
        channels = live(graph)
        apply_writes(graph, channels, order)
        assert channels.read("log") == ["pull a", "pull b", "push 2", "push 10"]


def test_changed_channels_get_one_new_version_and_are_told() -> None:
    graph = blueprint(node("a"))
    channels = live(graph, {"log": ["old"], "to:a": None})
    updated = apply_writes(graph, channels, [Done("a", [("log", ["new"]), ("value", 1)], ("to:a",))])
    assert updated == {"log", "value"}
    assert channels.versions == {"log": 2, "to:a": 2, "value": 2}
    assert channels.changed == {"log": 2, "to:a": 2, "value": 2}


def test_a_step_marks_the_triggers_its_tasks_have_seen() -> None:
    graph = blueprint(node("a", "x", "y"), node("b"))
    channels = live(graph, {"x": 1, "to:b": 1})
    apply_writes(graph, channels, [Done("a", (), ("x", "y")), Done("b", (), ("to:b",))])
    assert channels.seen == {"a": {"x": 1}, "b": {"to:b": 1}}


def test_a_value_for_one_step_is_gone_after_the_next() -> None:
    graph = blueprint(node("a"), note=EphemeralValue(str))
    channels = live(graph)
    assert apply_writes(graph, channels, [Done("a", [("note", "x")], ("to:a",))]) == {"note"}
    assert channels.read(["note"]) == {"note": "x"}
    assert apply_writes(graph, channels, [Done("a", [], ("to:a",))]) == set()
    assert channels.read(["note"]) == {}


def test_writes_of_the_run_itself_are_no_step() -> None:
    graph = blueprint(node("a"), note=EphemeralValue(str))
    channels = live(graph, {"note": "x"})
    apply_writes(graph, channels, [Done("__input__", [("value", 1)])])
    assert channels.read(["note", "value"]) == {"note": "x", "value": 1}
    assert channels.seen == {}


def test_a_join_is_consumed_by_the_task_it_triggered() -> None:
    graph = blueprint(node("c", "join"), join=NamedBarrierValue(str, {"a", "b"}))
    channels = live(graph)
    assert apply_writes(graph, channels, [Done("a", [("join", "a")], ("x",))]) == set()
    assert apply_writes(graph, channels, [Done("b", [("join", "b")], ("x",))]) == {"join"}
    assert apply_writes(graph, channels, [Done("c", [], ("join",))]) == set()
    assert channels.versions["join"] == channels.newest
    assert not channels.live["join"].is_available()


def test_deferred_triggers_open_when_nothing_else_is_left_to_run() -> None:
    graph = blueprint(node("a"), node("last"), **{"to:last": LastValueAfterFinish(Any)})
    channels = live(graph, {"to:a": None})
    assert apply_writes(graph, channels, [Done("a", [("to:last", None), ("to:a", None)], ("to:a",))]) == {"to:a"}
    assert not channels.live["to:last"].is_available()
    assert apply_writes(graph, channels, [Done("a", [], ("to:a",))]) == {"to:last"}
    assert channels.live["to:last"].is_available()


def test_a_topic_of_one_step_holds_what_that_step_wrote() -> None:
    graph = blueprint(node("a"), topic=Topic(int))
    channels = live(graph)
    apply_writes(graph, channels, [Done("a", [("topic", 1), ("topic", [2, 3])], ("to:a",))])
    assert channels.read("topic") == [1, 2, 3]
    apply_writes(graph, channels, [Done("a", [("topic", 4)], ("to:a",))])
    assert channels.read("topic") == [4]
    apply_writes(graph, channels, [Done("a", [], ("to:a",))])
    assert channels.read(["topic"]) == {}


def test_two_values_for_one_key_name_key_and_nodes() -> None:
    graph = blueprint(node("a"), node("b"))
    tasks = [Done(name, [("value", 1)], (f"to:{name}",), (PULL, name)) for name in "ba"]
    with pytest.raises(InvalidUpdateError) as caught:
        apply_writes(graph, live(graph), tasks)
    assert str(caught.value) == (
        "key 'value' keeps one value and got 2 in one step; write it from one node, or annotate it with a reducer: "
        "Annotated[..., reducer] (written by nodes 'a', 'b')"
    )


def test_a_write_to_no_channel_names_node_and_near_match() -> None:
    graph = blueprint(node("a"))
    with pytest.raises(InvalidUpdateError) as caught:
        apply_writes(graph, live(graph), [Done("a", [("valeu", 1)])])
    assert str(caught.value) == "node 'a' wrote to channel 'valeu', which does not exist. Did you mean 'value'?"

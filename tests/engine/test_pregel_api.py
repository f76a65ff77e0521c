"""Graphs put together by hand: `Pregel` with nodes and channels, and nodes from `NodeBuilder`."""

from __future__ import annotations

import asyncio
import operator
import re
from dataclasses import dataclass
from typing import Any

import pytest

from everstep.channels.last_value import EphemeralValue, LastValue
from everstep.channels.managed import RemainingSteps
from everstep.channels.reducer import BinaryOperatorAggregate
from everstep.channels.topic import Topic
from everstep.context import interrupt
from everstep.errors import EmptyInputError, GraphBuildError, InvalidUpdateError, NodeTimeoutError
from everstep.pregel.graph import Pregel
from everstep.pregel.nodes import ChannelWriteEntry, NodeBuilder
from everstep.types import CachePolicy, Command
from everstep_savers.cache import InMemoryCache
from everstep_savers.store import InMemoryStore
from tests.engine.graphs import AT_ONCE, history, thread


def add_one(number: int) -> int:
    return number + 1


async def times_ten(number: int) -> int:
    return number * 10


def one_node(node: NodeBuilder, **more: Any) -> Pregel:
    """A node between an input channel `a` and the channels `b` and `c`."""
    channels: dict[str, Any] = {"a": EphemeralValue(int), "b": LastValue(Any), "c": LastValue(Any)}
    given = {"input_channels": "a", "output_channels": ["b", "c"], "channels": channels, **more}
    return Pregel(nodes={"node": node}, **given)


def two_nodes(**more: Any) -> Pregel:
    """``a -> add_one -> b -> times_ten -> c``."""
    channels: dict[str, Any] = {"a": EphemeralValue(int), "b": LastValue(int), "c": LastValue(int)}
    nodes = {
        "first": NodeBuilder().subscribe_only("a").do(add_one).write_to("b"),
        "second": NodeBuilder().subscribe_only("b").do(times_ten).write_to("c"),
    }
    given = {"input_channels": "a", "output_channels": "c", **more}
    return Pregel(nodes=nodes, channels=channels, **given)


# What a node reads, does and writes ------------------------------------------------------------------------------


async def test_a_node_runs_from_its_channel_to_its_channel() -> None:
    node = NodeBuilder().subscribe_only("a").do(add_one).write_to("b")
    assert await one_node(node).ainvoke(1) == {"b": 2}
    assert await one_node(node, output_channels="b").ainvoke(1) == 2
    assert await one_node(node, input_channels=["a"], output_channels="b").ainvoke({"a": 1}) == 2


def test_it_runs_from_a_plain_script() -> None:
    assert two_nodes().invoke(1) == 20


async def test_several_functions_follow_each_other_sync_and_async() -> None:
    node = NodeBuilder().subscribe_only("a").do(add_one).do(times_ten).do(add_one).write_to("b")
    assert await one_node(node, output_channels="b").ainvoke(1) == 21
    plain = NodeBuilder().subscribe_only("a").do(add_one).do(add_one).write_to("b")
    assert await one_node(plain, output_channels="b").ainvoke(1) == 3


async def test_what_is_injected_reaches_each_of_several_functions() -> None:
    def tag(value: Any, config: Any) -> Any:
        return value, config["tags"]

    async def store_of(value: Any, *, store: Any) -> Any:
        return value, type(store).__name__

    node = NodeBuilder().subscribe_only("a").do(tag).do(store_of).write_to("b")
    graph = one_node(node, output_channels="b", store=InMemoryStore())
    assert await graph.ainvoke(1, {"tags": ["x"]}) == ((1, ["x"]), "InMemoryStore")


async def test_a_node_without_a_function_hands_its_input_on() -> None:
    assert await one_node(NodeBuilder().subscribe_only("a").write_to("b")).ainvoke(1) == {"b": 1}


async def test_a_node_reads_what_it_subscribes_to_and_what_it_asks_for_besides() -> None:
    seen: list[Any] = []
    channels: dict[str, Any] = {key: LastValue(int) for key in "abc"}
    node = NodeBuilder().subscribe_to("a", "b").read_from("c").do(seen.append)
    await Pregel(nodes={"node": node}, channels=channels, input_channels=["a", "c"], output_channels="b").ainvoke(
        {"a": 1, "c": 2}
    )
    blind = NodeBuilder().subscribe_to("a", read=False).read_from("c").do(seen.append)
    await Pregel(nodes={"node": blind}, channels=channels, input_channels=["a", "c"], output_channels="b").ainvoke(
        {"a": 1, "c": 2}
    )
    assert seen == [{"a": 1, "c": 2}, {"c": 2}]


async def test_reading_a_channel_does_not_make_a_node_run() -> None:
    seen: list[Any] = []
    channels: dict[str, Any] = {key: LastValue(int) for key in "ac"}
    nodes = {
        "reads": NodeBuilder().subscribe_to("a").read_from("c").do(seen.append),
        "writes": NodeBuilder().subscribe_only("a").write_to(c=7),
    }
    await Pregel(nodes=nodes, channels=channels, input_channels="a", output_channels="c").ainvoke(1)
    assert seen == [{"a": 1}]


async def test_writes_may_be_the_result_a_value_or_made_of_the_result() -> None:
    node = NodeBuilder().subscribe_only("a").do(add_one).write_to("b").write_to(c=lambda result: result * 100)
    assert await one_node(node).ainvoke(1) == {"b": 2, "c": 200}
    constant = NodeBuilder().subscribe_only("a").do(add_one).write_to(b="kept", c=None)
    assert await one_node(constant).ainvoke(1) == {"b": "kept", "c": None}


async def test_a_write_entry_may_skip_none_and_so_end_a_cycle() -> None:
    def double(text: str) -> str | None:
        return text + text if len(text) < 10 else None

    entry = ChannelWriteEntry("value", skip_none=True)
    graph = Pregel(
        nodes={"double": NodeBuilder().subscribe_only("value").do(double).write_to(entry)},
        channels={"value": LastValue(str)},
        input_channels="value",
        output_channels="value",
    )
    assert await graph.ainvoke("a") == "a" * 16


async def test_a_write_entry_maps_what_it_writes() -> None:
    entries = ChannelWriteEntry("b", mapper=str), ChannelWriteEntry("c", 5, mapper=lambda value: value + 1)
    node = NodeBuilder().subscribe_only("a").do(add_one).write_to(*entries)
    assert await one_node(node).ainvoke(1) == {"b": "2", "c": 6}


async def test_topics_reducers_and_managed_values_are_channels_too() -> None:
    left: list[int] = []

    def note(state: dict[str, Any]) -> int:
        left.append(state["left"])
        return int(state["total"])

    channels: dict[str, Any] = {
        "a": LastValue(int),
        "all": Topic(int, accumulate=True),
        "total": BinaryOperatorAggregate(int, operator.add),
        "left": RemainingSteps,
    }
    nodes = {
        "one": NodeBuilder().subscribe_only("a").write_to("all", "total"),
        "two": NodeBuilder().subscribe_only("a").do(add_one).write_to("all", "total"),
        "note": NodeBuilder().subscribe_to("total").read_from("left").do(note).write_to("all"),
    }
    graph = Pregel(nodes=nodes, channels=channels, input_channels="a", output_channels=["all", "total"])
    assert await graph.ainvoke(1, {"recursion_limit": 10}) == {"all": [1, 2, 3], "total": 3}
    assert left == [8]


async def test_what_a_builder_gets_after_build_changes_no_built_node() -> None:
    builder = NodeBuilder().subscribe_only("a").write_to("b")
    graph = one_node(builder)
    builder.do(add_one).write_to("c")
    assert await graph.ainvoke(1) == {"b": 1}
    assert await one_node(builder).ainvoke(1) == {"b": 2, "c": 2}


async def test_one_builder_may_be_several_nodes() -> None:
    builder = NodeBuilder().subscribe_only("a").do(add_one).write_to("b")
    nodes = {"one": builder, "two": builder.build()}
    channels: dict[str, Any] = {"a": LastValue(int), "b": Topic(int)}
    graph = Pregel(nodes=nodes, channels=channels, input_channels="a", output_channels="b")
    assert await graph.ainvoke(1) == [2, 2]
    assert [node.name for node in graph.nodes.values()] == ["one", "two"]


def test_tags_and_metadata_are_kept() -> None:
    node = NodeBuilder().subscribe_only("a").meta("x", "y", k=1).meta("x", l=2).build("node")
    assert (node.tags, node.metadata) == (("x", "y"), {"k": 1, "l": 2})


# Policies -------------------------------------------------------------------------------------------------------


class Flaky:
    """Fails as often as it is told to."""

    def __init__(self, times: int) -> None:
        self.left = times

    async def __call__(self, value: Any) -> Any:
        self.left -= 1
        if self.left >= 0:
            raise ConnectionError("again")
        return value


async def test_a_node_is_retried_by_its_own_policies_or_the_graphs() -> None:
    own = NodeBuilder().subscribe_only("a").do(Flaky(2)).add_retry_policies(AT_ONCE).write_to("b")
    assert await one_node(own).ainvoke(1) == {"b": 1}
    none = NodeBuilder().subscribe_only("a").do(Flaky(2)).write_to("b")
    assert await one_node(none, retry_policy=AT_ONCE).ainvoke(1) == {"b": 1}
    with pytest.raises(ConnectionError):
        await one_node(NodeBuilder().subscribe_only("a").do(Flaky(1)).write_to("b")).ainvoke(1)


async def test_results_of_a_node_are_kept_by_its_own_policy_or_the_graphs() -> None:
    runs: list[Any] = []

    async def count(number: int) -> int:
        runs.append(number)
        return number

    own = NodeBuilder().subscribe_only("a").do(count).add_cache_policy(CachePolicy()).write_to("b")
    none = NodeBuilder().subscribe_only("a").do(count).write_to("b")
    for graph in (
        one_node(own, cache=InMemoryCache()),
        one_node(none, cache=InMemoryCache(), cache_policy=CachePolicy()),
    ):
        assert [await graph.ainvoke(number) for number in (1, 2, 1)] == [{"b": 1}, {"b": 2}, {"b": 1}]
    assert runs == [1, 2, 1, 2]


async def test_a_node_is_limited_in_time() -> None:
    async def wait(value: Any) -> None:
        await asyncio.Event().wait()

    node = NodeBuilder().subscribe_only("a").do(wait).set_timeout(0.01)
    with pytest.raises(NodeTimeoutError, match="'node'"):
        await one_node(node).ainvoke(1)


# The graph ------------------------------------------------------------------------------------------------------


async def test_streams_and_snapshots_show_all_channels_and_the_result_its_own(saver: Any) -> None:
    graph = two_nodes(checkpointer=saver)
    events = [event async for event in graph.astream(1, thread(), stream_mode=["values", "updates"])]
    assert events == [
        ("updates", {"first": {"b": 2}}),
        ("values", {"b": 2}),
        ("updates", {"second": {"c": 20}}),
        ("values", {"b": 2, "c": 20}),
    ]
    assert [snapshot.values for snapshot in await history(graph, thread())] == [{"b": 2, "c": 20}, {"b": 2}, {"a": 1}]


async def test_values_are_streamed_unless_said_otherwise() -> None:
    assert [event async for event in two_nodes().astream(1)] == [{"b": 2}, {"b": 2, "c": 20}]
    assert [event async for event in two_nodes(stream_mode="updates").astream(1)] == [
        {"first": {"b": 2}},
        {"second": {"c": 20}},
    ]


async def test_one_streamed_channel_shows_bare(saver: Any) -> None:
    graph = two_nodes(checkpointer=saver, stream_channels="b")
    events = [event async for event in graph.astream(1, thread(), stream_mode=["values", "updates"])]
    assert events == [("updates", {"first": 2}), ("values", 2), ("updates", {"second": None})]
    assert (await graph.aget_state(thread())).values == 2


@pytest.mark.parametrize(
    ("breakpoints", "next_node"),
    [({"interrupt_after_nodes": ["first"]}, "second"), ({"interrupt_before_nodes": "*"}, "first")],
)
async def test_static_breakpoints_stop_it(breakpoints: dict[str, Any], next_node: str, saver: Any) -> None:
    graph = two_nodes(checkpointer=saver, **breakpoints)
    assert await graph.ainvoke(1, thread()) is None
    assert (await graph.aget_state(thread())).next == (next_node,)
    while (result := await graph.ainvoke(None, thread())) is None:
        pass
    assert result == 20


async def test_a_run_that_stops_before_its_output_does_not_return_that_of_an_earlier_run(saver: Any) -> None:
    graph = two_nodes(checkpointer=saver, interrupt_after_nodes=["first"])
    assert [await graph.ainvoke(1, thread()), await graph.ainvoke(None, thread())] == [None, 20]
    assert await graph.ainvoke(2, thread()) is None
    assert await graph.ainvoke(None, thread()) == 30
    assert (await graph.ainvoke(3, thread(), version="v2")).value is None
    # What is asked for by name is told as it is.
    assert await graph.ainvoke(4, thread(), output_keys=["c"]) == {"c": 30}


async def test_it_asks_is_answered_and_is_updated_from_outside(saver: Any) -> None:
    def ask(number: int) -> Any:
        return number + interrupt("how many?")

    channels: dict[str, Any] = {"a": LastValue(int), "b": LastValue(int)}
    nodes = {"ask": NodeBuilder().subscribe_only("a").do(ask).write_to("b")}
    graph = Pregel(nodes=nodes, channels=channels, input_channels="a", output_channels="b", checkpointer=saver)
    await graph.ainvoke(1, thread())
    assert await graph.ainvoke(Command(resume=5), thread()) == 6
    await graph.aupdate_state(thread(), 9, as_node="ask")
    assert (await graph.aget_state(thread())).values == {"a": 1, "b": 9}


async def test_it_is_called_in_a_node_of_another_graph(saver: Any) -> None:
    inner = two_nodes()
    outer = one_node(NodeBuilder().subscribe_only("a").do(inner).write_to("b"), checkpointer=saver)
    assert await outer.ainvoke(1, thread()) == {"b": 20}


async def test_a_config_and_a_name_are_its_own(saver: Any) -> None:
    graph = two_nodes(checkpointer=saver, config=thread("mine"), name="sums")
    assert await graph.ainvoke(1) == 20
    assert (await saver.aget_thread("mine")).graph == "sums"


async def test_no_input_is_refused() -> None:
    with pytest.raises(EmptyInputError):
        await two_nodes().ainvoke(None)


async def test_two_writes_to_one_value_name_the_nodes() -> None:
    nodes = {name: NodeBuilder().subscribe_only("a").write_to("b") for name in ("one", "two")}
    channels: dict[str, Any] = {"a": LastValue(int), "b": LastValue(int)}
    graph = Pregel(nodes=nodes, channels=channels, input_channels="a", output_channels="b")
    with pytest.raises(InvalidUpdateError, match=r"\(written by nodes 'one', 'two'\)$"):
        await graph.ainvoke(1)


def test_it_describes_its_input_output_and_context_to_clients() -> None:
    @dataclass
    class Who:
        name: str

    channels: dict[str, Any] = {"a": LastValue(int), "b": Topic(str)}
    nodes = {"node": NodeBuilder().subscribe_only("a").write_to("b")}
    graph = Pregel(
        nodes=nodes, channels=channels, input_channels="a", output_channels=["a", "b"], context_schema=Who, name="g"
    )
    assert graph.get_input_jsonschema() == {"type": "integer", "title": "g_input"}
    assert graph.get_output_jsonschema() == {
        "type": "object",
        "title": "g_output",
        "properties": {
            "a": {"type": "integer", "title": "A", "default": None},
            "b": {"type": "array", "items": {"type": "string"}, "title": "B", "default": None},
        },
    }
    assert graph.get_context_jsonschema() == {
        "type": "object",
        "title": "Who",
        "properties": {"name": {"type": "string", "title": "Name"}},
        "required": ["name"],
    }
    assert two_nodes().get_context_jsonschema() is None


# What is refused ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"input_channels": "aa"}, "the graph's input is channel 'aa', which does not exist."),
        ({"output_channels": "cc"}, "the graph's output is channel 'cc', which does not exist."),
        ({"stream_channels": ["b", "x"]}, "the graph streams channel 'x', which does not exist."),
        ({"input_channels": "c"}, "no node runs when the input comes; subscribe one to 'c'"),
        ({"interrupt_after_nodes": ["frist"]}, "breakpoint at 'frist', which is not a node. Did you mean 'first'?"),
    ],
)
def test_names_that_do_not_fit_are_refused(more: dict[str, Any], message: str) -> None:
    with pytest.raises(GraphBuildError, match=f"^{re.escape(message)}"):
        two_nodes(**more)


def test_a_node_that_reads_or_writes_nothing_known_is_refused() -> None:
    with pytest.raises(GraphBuildError, match=r"^node 'node' is triggered by channel 'x', which does not exist"):
        one_node(NodeBuilder().subscribe_only("x"))
    with pytest.raises(GraphBuildError, match=r"^node 'node' writes to channel 'x', which does not exist"):
        one_node(NodeBuilder().subscribe_only("a").write_to("x"))


BY_NAMES = (
    "gives an input by names, but the input of this node is channel 'a' alone; use subscribe_to('a') in place of "
    "subscribe_only"
)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (
            lambda: NodeBuilder().subscribe_to("a").subscribe_only("b"),
            "subscribe_only('b') makes one channel the whole input, and the node has 'a' already; use subscribe_to",
        ),
        (
            lambda: NodeBuilder().subscribe_only("a").subscribe_only("b"),
            "subscribe_only('b') makes one channel the whole input, and the node has 'a' already; use subscribe_to",
        ),
        (lambda: NodeBuilder().subscribe_only("a").subscribe_to("b", "c"), f"subscribe_to('b', 'c') {BY_NAMES}"),
        (lambda: NodeBuilder().subscribe_only("a").read_from("b"), f"read_from('b') {BY_NAMES}"),
    ],
)
def test_inputs_of_both_kinds_are_refused(build: Any, message: str) -> None:
    with pytest.raises(GraphBuildError, match=f"^{re.escape(message)}$"):
        build()


def test_options_that_do_not_exist_are_refused() -> None:
    with pytest.raises(TypeError, match=r"^unknown option 'nmae' of Pregel\(\)\. Did you mean 'name'\?$"):
        Pregel(nodes={}, nmae="x")
    with pytest.raises(TypeError, match=r"^Pregel\(\) takes nodes=, channels=, input_channels= and output_channels=;"):
        Pregel()

"""Whole graphs built with `StateGraph` and run: what the declarations do."""

from __future__ import annotations

import functools
import operator
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, TypedDict

import pytest
from pydantic import BaseModel, Field, ValidationError, field_validator

from everstep.channels.managed import RemainingSteps
from everstep.config import get_config
from everstep.constants import END, START
from everstep.context import Runtime
from everstep.errors import InvalidUpdateError
from everstep.graph.builder import StateGraph
from everstep.graph.compiled import CompiledStateGraph
from everstep.graph.validate import GraphWarning
from everstep.policies import RetryPolicy
from everstep.types import Command, Send
from everstep_savers.memory import InMemorySaver

THREAD = {"configurable": {"thread_id": "1"}}


class Trail(TypedDict):
    trail: Annotated[list[str], operator.add]
    total: int


class Private(TypedDict):
    secret: int


@dataclass
class Order:
    amount: int
    lines: Annotated[list[str], operator.add] = field(default_factory=list)
    state: str = "new"


class Measured(BaseModel):
    size: float
    lines: Annotated[list[str], operator.add] = Field(default_factory=list)
    unit: str = "m"

    @field_validator("unit")
    @classmethod
    def check_unit(cls, unit: str) -> str:
        if unit not in ("m", "ft"):
            raise ValueError("neither m nor ft")
        return unit


def leave(name: str) -> Any:
    """A node that leaves its name on the trail."""

    async def node(state: Trail) -> dict[str, Any]:
        return {"trail": [name]}

    return node


def trails(*names: str, deferred: tuple[str, ...] = ()) -> StateGraph:
    builder = StateGraph(Trail)
    for name in names:
        builder.add_node(name, leave(name), defer=name in deferred)
    return builder


async def trail_of(builder: StateGraph, **state: Any) -> list[str]:
    result = await builder.compile().ainvoke({"trail": [], **state})
    found: list[str] = result["trail"]
    return found


async def test_nodes_run_along_their_edges() -> None:
    builder = trails("a", "b", "c").add_edge(START, "a").add_edge("a", "b").add_edge("b", "c").add_edge("c", END)
    assert await trail_of(builder) == ["a", "b", "c"]


async def test_a_sequence_runs_in_its_order() -> None:
    async def first(state: Trail) -> dict[str, Any]:
        return {"trail": ["first"]}

    builder = StateGraph(Trail).add_sequence([first, ("second", lambda state: {"trail": ["second"]})])
    assert await trail_of(builder.set_entry_point("first").set_finish_point("second")) == ["first", "second"]


async def test_parallel_branches_run_in_one_step_and_meet_by_name() -> None:
    builder = trails("a", "b", "c", "d")
    for name in "cb":
        builder.add_edge("a", name).add_edge(name, "d")
    assert await trail_of(builder.add_edge(START, "a")) == ["a", "b", "c", "d"]


async def test_a_join_waits_for_all_its_sources() -> None:
    builder = trails("short", "long", "longer", "end")
    builder.add_edge(START, "short").add_edge(START, "long").add_edge("long", "longer")
    builder.add_edge(["short", "longer"], "end")
    assert await trail_of(builder) == ["long", "short", "longer", "end"]


async def test_without_a_join_a_node_runs_after_each_of_its_sources() -> None:
    builder = trails("short", "long", "longer", "end")
    builder.add_edge(START, "short").add_edge(START, "long").add_edge("long", "longer")
    builder.add_edge("short", "end").add_edge("longer", "end")
    assert await trail_of(builder) == ["long", "short", "end", "longer", "end"]


async def test_a_join_in_a_loop_is_complete_anew_in_each_round() -> None:
    builder = trails("a", "b", "join").add_edge(["a", "b"], "join")
    builder.add_conditional_edges(START, lambda state: ["a", "b"])
    builder.add_conditional_edges("join", lambda state: ["a", "b"] if len(state["trail"]) < 6 else END)
    assert await trail_of(builder) == ["a", "b", "join", "a", "b", "join"]


async def test_a_deferred_node_runs_when_nothing_else_is_left() -> None:
    builder = trails("a", "b", "c", "last", deferred=("last",))
    builder.add_edge(START, "a").add_edge("a", "last").add_edge("a", "b").add_edge("b", "c").add_edge("c", "last")
    assert await trail_of(builder) == ["a", "b", "c", "last"]


async def test_a_deferred_join_waits_for_its_sources_and_for_the_rest() -> None:
    builder = trails("a", "b", "c", "last", deferred=("last",))
    builder.add_edge(START, "a").add_edge(START, "b").add_edge("b", "c").add_edge(["a", "b"], "last")
    assert await trail_of(builder) == ["a", "b", "c", "last"]


async def test_a_route_sees_what_its_node_has_just_written() -> None:
    def to_b_or_end(state: Trail) -> Literal["b", "__end__"]:
        return "b" if state["trail"] == ["a"] else END  # type: ignore[return-value]

    builder = trails("a", "b").add_edge(START, "a").add_edge("b", "a").add_conditional_edges("a", to_b_or_end)
    assert await trail_of(builder) == ["a", "b", "a"]


async def test_an_async_route_with_a_map_of_its_results() -> None:
    async def is_large(state: Trail, config: dict[str, Any]) -> bool:
        assert config["configurable"]["limit"] == 5
        return state["total"] > 5

    builder = trails("a", "b").set_conditional_entry_point(is_large, {True: "a", False: "b"})
    graph = builder.compile()
    config = {"configurable": {"limit": 5}}
    assert (await graph.ainvoke({"total": 9}, config))["trail"] == ["a"]
    assert (await graph.ainvoke({"total": 1}, config))["trail"] == ["b"]


async def test_a_command_updates_and_goes_beside_the_static_edges() -> None:
    def node(state: Trail) -> Command[Literal["b"]]:
        return Command(update={"trail": ["a"]}, goto="b")

    builder = trails("b").add_node("a", node).add_edge(START, "a")
    assert await trail_of(builder) == ["a", "b"]
    builder.add_node("c", leave("c")).add_edge("a", "c")
    with pytest.warns(GraphWarning, match="the static edges are followed whatever its Command says"):
        graph = builder.compile()
    assert (await graph.ainvoke({"trail": []}))["trail"] == ["a", "b", "c"]


async def test_sends_map_and_a_node_reduces() -> None:
    async def square(number: int) -> dict[str, Any]:
        return {"trail": [str(number * number)]}

    builder = trails("sum").add_node("square", square)
    builder.add_conditional_edges(START, lambda state: [Send("square", n) for n in range(state["total"])], ["square"])
    builder.add_edge("square", "sum")
    assert await trail_of(builder, total=4) == ["0", "1", "4", "9", "sum"]


async def test_a_send_by_a_command_or_as_a_result_runs_its_node() -> None:
    async def node(number: Any) -> dict[str, Any]:
        return {"trail": [f"got {number}"]}

    def by_command(state: Trail) -> Command[Literal["node"]]:
        return Command(goto=[Send("node", 1)])

    builder = StateGraph(Trail).add_node("node", node).add_node("command", by_command)
    builder.add_node("send", lambda state: Send("node", 2)).add_edge(START, "command").add_edge(START, "send")
    assert await trail_of(builder) == ["got 1", "got 2"]


async def test_actions_of_all_kinds_are_nodes() -> None:
    class Caller:
        def __call__(self, state: Trail) -> dict[str, Any]:
            return {"trail": ["object"]}

        async def method(self, state: Trail) -> dict[str, Any]:
            return {"trail": ["method"]}

    def named(state: Trail, name: str) -> dict[str, Any]:
        return {"trail": [name]}

    def without_state() -> dict[str, Any]:
        return {"trail": ["nothing"]}

    def injected(state: Trail, config: Any, runtime: Runtime[Any], store: Any) -> dict[str, Any]:
        assert config == get_config()
        assert store is runtime.store is None
        return {"trail": ["injected"]}

    builder = StateGraph(Trail).add_sequence(
        [
            ("lambda", lambda state: {"trail": ["lambda"]}),
            Caller(),
            ("method", Caller().method),
            functools.partial(named, name="partial"),
            without_state,
            injected,
        ]
    )
    assert list(builder.nodes) == ["lambda", "Caller", "method", "named", "without_state", "injected"]
    trail = await trail_of(builder.add_edge(START, "lambda"))
    assert trail == ["lambda", "object", "method", "partial", "nothing", "injected"]


async def test_a_compiled_graph_is_a_node_that_shares_keys_by_name() -> None:
    class Inner(TypedDict):
        total: int
        inner_only: int

    async def double(state: Inner) -> dict[str, Any]:
        return {"total": state["total"] * 2, "inner_only": 1}

    inner = StateGraph(Inner).add_node("double", double).add_edge(START, "double").compile()
    builder = trails("after").add_node("inner", inner).add_edge(START, "inner").add_edge("inner", "after")
    assert await builder.compile().ainvoke({"total": 4, "trail": []}) == {"total": 8, "trail": ["after"]}


async def test_private_keys_pass_between_nodes_and_stay_inside() -> None:
    async def hide(state: Trail) -> dict[str, Any]:
        return {"secret": 7}

    async def tell(state: Private) -> dict[str, Any]:
        return {"trail": [str(state)]}

    builder = StateGraph(Trail).add_sequence([hide, tell]).add_edge(START, "hide")
    assert await builder.compile().ainvoke({"trail": [], "total": 1}) == {"trail": ["{'secret': 7}"], "total": 1}


async def test_input_and_output_schemas_cut_the_state() -> None:
    class Given(TypedDict):
        total: int

    class Result(TypedDict):
        trail: list[str]

    async def node(state: Trail) -> dict[str, Any]:
        return {"trail": [str(state)]}

    builder = StateGraph(Trail, input_schema=Given, output_schema=Result).add_node("node", node)
    result = await builder.add_edge(START, "node").compile().ainvoke({"total": 3, "trail": ["not taken"]})
    assert result == {"trail": ["{'trail': [], 'total': 3}"]}


async def test_nodes_of_a_dataclass_state_get_instances_with_defaults() -> None:
    seen: list[Order] = []

    async def note(order: Order) -> dict[str, Any]:
        seen.append(order)
        return {"lines": ["noted"]}

    async def close(order: Order) -> Order:
        return Order(amount=order.amount + 1, lines=["closed"], state="closed")

    def route(order: Order) -> Literal["__end__"]:
        seen.append(order)
        return "__end__"

    builder = StateGraph(Order).add_sequence([note, close]).add_edge(START, "note")
    graph = builder.add_conditional_edges("close", route).compile()
    assert await graph.ainvoke({"amount": 1}) == {"amount": 2, "lines": ["noted", "closed"], "state": "closed"}
    assert seen == [Order(1, [], "new"), Order(2, ["noted", "closed"], "closed")]
    assert (await graph.ainvoke(Order(5, ["given"])))["lines"] == ["given", "noted", "closed"]


async def test_nodes_of_a_pydantic_state_get_validated_instances() -> None:
    seen: list[Measured] = []

    async def note(measured: Measured) -> dict[str, Any]:
        seen.append(measured)
        return {"lines": ["noted"], "size": "2.5"}

    builder = StateGraph(Measured).add_node("note", note).add_node("again", note).add_edge(START, "note")
    graph = builder.add_edge("note", "again").compile()
    await graph.ainvoke({"size": 1})
    assert seen == [Measured(size=1.0), Measured(size=2.5, lines=["noted"])]
    result = await graph.ainvoke(Measured(size=3, unit="ft"))
    assert (result["unit"], result["lines"]) == ("ft", ["noted", "noted"])


async def test_a_root_state_is_one_value() -> None:
    builder = StateGraph(Annotated[list[int], operator.add]).add_node("add", lambda numbers: [len(numbers)])
    builder.add_edge(START, "add").add_conditional_edges("add", lambda numbers: "add" if len(numbers) < 5 else END)
    assert await builder.compile().ainvoke([7, 8]) == [7, 8, 2, 3, 4]


async def test_managed_values_are_computed_for_nodes_and_routes() -> None:
    class Counted(TypedDict):
        trail: Annotated[list[str], operator.add]
        left: RemainingSteps

    async def node(state: Counted) -> dict[str, Any]:
        return {**state, "trail": [f"node {state['left']}"]}

    seen: list[int] = []

    def route(state: Counted) -> Literal["node", "__end__"]:
        seen.append(state["left"])
        return "__end__" if state["left"] <= 2 else "node"

    graph = StateGraph(Counted).add_node("node", node).add_edge(START, "node").add_conditional_edges("node", route)
    result = await graph.compile().ainvoke({"trail": []}, {"recursion_limit": 4})
    assert result == {"trail": [f"node {left}" for left in seen]}
    assert seen == sorted(seen, reverse=True)
    assert seen[-1] == 2


async def test_default_policies_reach_every_node() -> None:
    failures = {"a": 1, "b": 1}

    def flaky(name: str) -> Any:
        def node(state: Trail) -> dict[str, Any]:
            failures[name] -= 1
            if failures[name] >= 0:
                raise ConnectionError(name)
            return {"trail": [name]}

        return node

    builder = StateGraph(Trail).add_node("a", flaky("a"))
    builder.set_node_defaults(retry_policy=RetryPolicy(initial_interval=0.001, jitter=False))
    builder.add_node("b", flaky("b")).add_edge(START, "a").add_edge("a", "b")
    assert await trail_of(builder) == ["a", "b"]


async def test_a_graph_compiled_earlier_does_not_change() -> None:
    builder = trails("a").add_edge(START, "a")
    early = builder.compile()
    late = builder.add_node("b", leave("b")).add_edge("a", "b").compile()
    assert (await early.ainvoke({"trail": []}))["trail"] == ["a"]
    assert (await late.ainvoke({"trail": []}))["trail"] == ["a", "b"]
    assert early.builder is late.builder is builder


async def committed(graph: CompiledStateGraph) -> list[Any]:
    """The values of the thread's checkpoints, oldest first."""
    return [snapshot.values async for snapshot in graph.aget_state_history(THREAD)][::-1]


async def refused(graph: CompiledStateGraph, state: Any, kind: type[Exception] = InvalidUpdateError) -> str:
    with pytest.raises(kind) as caught:
        await graph.ainvoke(state, THREAD)
    return str(caught.value)


async def test_a_misspelled_key_is_refused_and_the_step_is_not_committed() -> None:
    async def node(state: Trail) -> dict[str, Any]:
        return {"totl": 3}

    graph = StateGraph(Trail).add_node("node", node).add_edge(START, "node").compile(InMemorySaver())
    assert await refused(graph, {"total": 1}) == (
        "the update of node 'node' has key 'totl', which is in no schema of this graph. Did you mean 'total'? Its keys "
        "are 'total', 'trail'; compile(unknown_keys='ignore') drops other keys."
    )
    assert await committed(graph) == [{"trail": []}, {"trail": [], "total": 1}]
    assert (await graph.aget_state(THREAD)).next == ("node",)


async def test_a_command_to_an_unknown_node_is_refused_and_the_step_is_not_committed() -> None:
    def node(state: Trail) -> Command[Any]:
        return Command(update={"total": 9}, goto="chekc")

    builder = trails("check").add_node("node", node).add_edge(START, "node")
    graph = builder.compile(InMemorySaver())
    assert await refused(graph, {"total": 1}) == (
        "Command.goto of node 'node' goes to 'chekc', which is not a node of this graph. Did you mean 'check'?"
    )
    assert (await committed(graph))[-1] == {"trail": [], "total": 1}


async def test_a_route_with_a_typo_is_refused_and_the_step_is_not_committed() -> None:
    builder = trails("check", "pay").add_edge(START, "pay").add_conditional_edges("pay", lambda state: "chekc")
    graph = builder.compile(InMemorySaver())
    assert await refused(graph, {"total": 1}) == (
        "route '<lambda>' of node 'pay' goes to 'chekc', which is not a node of this graph. Did you mean 'check'?"
    )
    assert (await committed(graph))[-1] == {"trail": [], "total": 1}


async def test_two_writes_of_a_single_value_in_one_step_name_the_nodes() -> None:
    async def one(state: Trail) -> dict[str, Any]:
        return {"total": 1}

    async def two(state: Trail) -> dict[str, Any]:
        return {"total": 2}

    builder = StateGraph(Trail).add_node("one", one).add_node("two", two).add_edge(START, "one").add_edge(START, "two")
    saver = InMemorySaver()
    assert await refused(builder.compile(saver), {"total": 0}) == (
        "key 'total' keeps one value and got 2 in one step; write it from one node, or annotate it with a reducer: "
        "Annotated[..., reducer] (written by nodes 'one', 'two')"
    )
    head = await saver.aget_tuple(THREAD)
    assert head is not None
    assert head.checkpoint["channel_values"]["total"] == 0


async def test_a_bad_value_of_the_last_node_is_refused_and_the_step_is_not_committed() -> None:
    async def node(measured: Measured) -> dict[str, Any]:
        return {"size": "foo"}

    graph = StateGraph(Measured).add_node("node", node).add_edge(START, "node").compile(InMemorySaver())
    assert await refused(graph, {"size": 1}) == (
        "node 'node' wrote str 'foo' to key 'size', which does not fit: Input should be a valid number, unable to "
        "parse string as a number"
    )
    assert (await committed(graph))[-1] == {"size": 1, "lines": []}


async def test_a_field_validator_holds_for_the_last_node_too() -> None:
    graph = (
        StateGraph(Measured)
        .add_node("node", lambda state: {"unit": "mile"})
        .add_edge(START, "node")
        .compile(InMemorySaver())
    )
    assert await refused(graph, {"size": 1}) == (
        "node 'node' wrote str 'mile' to key 'unit', which does not fit: Value error, neither m nor ft"
    )


async def test_refused_input_leaves_no_trace() -> None:
    graph = StateGraph(Measured).add_node("node", lambda state: {}).add_edge(START, "node").compile(InMemorySaver())
    await refused(graph, {"size": "foo"}, ValidationError)
    await refused(graph, {"sizes": 1})
    await refused(graph, [1])
    assert await committed(graph) == []


async def test_a_continued_thread_takes_input_without_the_fields_it_has() -> None:
    graph = StateGraph(Measured).add_node("node", lambda state: {}).add_edge(START, "node").compile(InMemorySaver())
    await graph.ainvoke({"size": 1}, THREAD)
    assert await graph.ainvoke({"unit": "ft"}, THREAD) == {"size": 1, "lines": [], "unit": "ft"}


async def test_a_non_dict_result_is_refused() -> None:
    graph = StateGraph(Trail).add_node("node", lambda state: "done").add_edge(START, "node").compile(InMemorySaver())
    assert await refused(graph, {"total": 1}) == (
        "the update of node 'node' is str 'done'; expected a dict of state keys, an instance of a state schema, a "
        "Command, a Send, a list with Commands or Sends in it, or None"
    )


async def test_updates_from_outside_keep_the_same_rules() -> None:
    graph = StateGraph(Measured).add_node("node", lambda state: {}).add_edge(START, "node").compile(InMemorySaver())
    await graph.ainvoke({"size": 1}, THREAD)
    with pytest.raises(InvalidUpdateError, match="which is in no schema of this graph"):
        await graph.aupdate_state(THREAD, {"sizes": 2})
    with pytest.raises(InvalidUpdateError, match="which does not fit"):
        await graph.aupdate_state(THREAD, {"size": "foo"})
    await graph.aupdate_state(THREAD, {"size": 2})
    assert (await graph.aget_state(THREAD)).values == {"size": 2, "lines": []}


def test_a_plain_script_can_run_a_graph() -> None:
    assert trails("a").add_edge(START, "a").compile().invoke({"trail": ["in"]}) == {"trail": ["in", "a"]}

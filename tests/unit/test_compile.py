"""From declarations to channels, triggers and writers; from results to writes."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, TypedDict, cast

import pytest
from pydantic import BaseModel, ValidationError

from everstep.channels.barrier import NamedBarrierValue, NamedBarrierValueAfterFinish
from everstep.channels.last_value import EphemeralValue, LastValue, LastValueAfterFinish
from everstep.channels.managed import RemainingSteps
from everstep.channels.reducer import BinaryOperatorAggregate
from everstep.constants import END, ROOT, START, TASKS
from everstep.errors import GraphBuildError, InvalidUpdateError, ParentCommand
from everstep.graph.builder import StateGraph
from everstep.graph.compile import compile_graph
from everstep.graph.spec import UnknownKeys
from everstep.policies import RetryPolicy, TimeoutPolicy
from everstep.pregel.blueprint import Blueprint
from everstep.types import Command, Send


class State(TypedDict):
    total: int
    items: Annotated[list[int], operator.add]
    left: RemainingSteps


class Totals(TypedDict):
    total: int


class Hidden(TypedDict):
    secret: int


class Model(BaseModel):
    total: float
    items: Annotated[list[int], operator.add] = []


@dataclass
class Record:
    total: int = 0
    items: Annotated[list[int], operator.add] = field(default_factory=list)


@dataclass
class Scope:
    """What a writer sees of a task that has read these values."""

    node: str = "pay"
    values: dict[str, Any] = field(default_factory=dict)
    provided: dict[str, Any] = field(default_factory=dict)

    def read(self, channels: Sequence[str]) -> dict[str, Any]:
        return {key: self.values[key] for key in channels if key in self.values}

    def provide(self, name: str) -> Any:
        return self.provided[name]


def keep(state: Any) -> Any:
    return state


def read_hidden(state: Hidden) -> Any:
    return state


def built(schema: Any = State, *, unknown_keys: UnknownKeys = "error", **options: Any) -> Blueprint:
    """`pay` and `check`, with an edge between them."""
    return compile_graph(two_nodes(schema, **options).spec(unknown_keys), "orders")


def two_nodes(schema: Any = State, **options: Any) -> StateGraph:
    builder = StateGraph(schema, **options).add_node("pay", keep).add_node("check", keep)
    return builder.add_edge(START, "pay").add_edge("pay", "check")


def writes_of(output: Any, graph: Blueprint | None = None, node: str = "pay") -> list[tuple[str, Any]]:
    graph = graph or built()
    (writer,) = graph.nodes[node].writers
    return list(writer(output, Scope(node)))


def refusal_of(output: Any, graph: Blueprint | None = None) -> str:
    with pytest.raises(InvalidUpdateError) as caught:
        writes_of(output, graph)
    return str(caught.value)


def test_keys_edges_and_joins_become_channels() -> None:
    builder = two_nodes().add_node("late", keep, defer=True).add_node("last", keep)
    builder.add_edge(["pay", "check"], "late").add_edge(["pay", "late"], "last").add_edge(["pay", "check"], END)
    graph = compile_graph(builder.spec(), "orders")
    assert {key: type(channel) for key, channel in graph.channels.items() if key != TASKS} == {
        "total": LastValue,
        "items": BinaryOperatorAggregate,
        "__start__": EphemeralValue,
        "branch:to:pay": EphemeralValue,
        "branch:to:check": EphemeralValue,
        "branch:to:late": LastValueAfterFinish,
        "branch:to:last": EphemeralValue,
        "join:pay+check:late": NamedBarrierValueAfterFinish,
        "join:pay+late:last": NamedBarrierValue,
    }
    assert graph.nodes["late"].triggers == ("branch:to:late", "join:pay+check:late")
    assert graph.triggers["join:pay+late:last"] == ("last",)


def test_a_node_writes_its_edges_and_joins_whatever_it_returns() -> None:
    builder = two_nodes().add_node("last", keep).add_edge(["pay", "check"], "last").add_edge("check", END)
    graph = compile_graph(builder.spec(), "orders")
    assert writes_of(None, graph) == [("branch:to:check", None), ("join:pay+check:last", "pay")]
    assert writes_of({"total": 1}, graph, "check") == [("total", 1), ("join:pay+check:last", "check")]


def test_a_join_of_one_source_is_an_edge() -> None:
    graph = compile_graph(two_nodes().add_edge(["check", "check"], "pay").spec(), "orders")
    assert writes_of(None, graph, "check") == [("branch:to:pay", None)]


def test_joins_whose_channels_would_have_one_name_are_refused() -> None:
    builder = StateGraph(State).add_edge(START, "a")
    for name in ("a", "b+c", "a+b", "c", "d"):
        builder.add_node(name, keep)
    builder.add_edge(["a", "b+c"], "d").add_edge(["a+b", "c"], "d")
    with pytest.raises(GraphBuildError) as caught:
        compile_graph(builder.spec(), "orders")
    assert str(caught.value) == (
        "the joins of ('a', 'b+c') and of ('a+b', 'c') with 'd' have the same channel name 'join:a+b+c:d'; rename a "
        "node with '+' in its name"
    )


def test_the_start_is_a_hidden_node_that_writes_the_input() -> None:
    graph = built(input_schema=Totals)
    start = graph.nodes[START]
    assert (start.triggers, start.channels, start.action, start.hidden) == ((START,), START, None, True)
    assert writes_of({"total": 1}, graph, START) == [("total", 1), ("branch:to:pay", None)]
    assert graph.input_channels == START


def test_output_is_the_output_schema_and_streams_show_all_keys() -> None:
    builder = two_nodes(output_schema=Totals).add_node("hide", read_hidden).add_edge("check", "hide")
    graph = compile_graph(builder.spec(), "orders")
    assert graph.output_channels == ("total",)
    assert graph.stream_channels == ("total", "items", "secret")
    assert dict(graph.managed).keys() == {"left"}


def test_a_node_reads_the_keys_of_its_schema() -> None:
    builder = two_nodes().add_node("hide", read_hidden).add_node("given", read_hidden, input_schema=Totals)
    graph = compile_graph(builder.spec(), "orders")
    assert graph.nodes["pay"].channels == ("total", "items", "left")
    assert graph.nodes["hide"].channels == ("secret",)
    assert graph.nodes["given"].channels == ("total",)


def test_a_root_state_is_read_and_written_whole() -> None:
    graph = built(Annotated[list[int], operator.add])
    assert (graph.output_channels, graph.stream_channels, graph.nodes["pay"].channels) == (ROOT, ROOT, ROOT)
    assert graph.check_input is None
    assert writes_of([1], graph) == [(ROOT, [1]), ("branch:to:check", None)]
    assert writes_of({"total": 1}, graph) == [(ROOT, {"total": 1}), ("branch:to:check", None)]
    assert writes_of(None, graph) == [("branch:to:check", None)]
    assert writes_of(Command(update=[1], goto=END), graph) == [(ROOT, [1]), ("branch:to:check", None)]


def test_policies_of_the_graph_hold_for_nodes_without_their_own() -> None:
    mine, all_ = RetryPolicy(max_attempts=2), RetryPolicy(max_attempts=9)
    builder = two_nodes().add_node("own", keep, retry_policy=mine, timeout=1).add_node("none", keep, retry_policy=())
    builder.set_node_defaults(retry_policy=[all_], timeout=5)
    graph = compile_graph(builder.spec(), "orders")
    assert (graph.nodes["pay"].retry, graph.nodes["pay"].timeout) == ((all_,), TimeoutPolicy(run_timeout=5))
    assert (graph.nodes["own"].retry, graph.nodes["own"].timeout) == ((mine,), TimeoutPolicy(run_timeout=1))
    assert graph.nodes["none"].retry == ()


def test_what_is_added_later_changes_no_compiled_graph() -> None:
    builder = two_nodes()
    graph = compile_graph(builder.spec(), "orders")
    builder.add_node("more", keep).add_edge("check", "more").set_node_defaults(timeout=1)
    assert "more" not in graph.nodes
    assert writes_of(None, graph, "check") == []
    assert graph.nodes["pay"].timeout is None


def test_all_types_of_the_state_are_made_known() -> None:
    graph = built(Record, input_schema=Totals)
    assert graph.annotations == (Record, int, Annotated[list[int], operator.add], Totals, int)


EDGE = ("branch:to:check", None)


@pytest.mark.parametrize(
    ("output", "writes"),
    [
        (None, [EDGE]),
        ({}, [EDGE]),
        ({"total": 1, "items": [2]}, [("total", 1), ("items", [2]), EDGE]),
        ({"total": 1, "left": 3}, [("total", 1), EDGE]),
        (Counter(total=2), [("total", 2), EDGE]),
        (Record(3), [("total", 3), ("items", []), EDGE]),
        (Model(total=3), [("total", 3.0), ("items", []), EDGE]),
        (Command(), [EDGE]),
        (Command(update={"total": 1}), [("total", 1), EDGE]),
        (Command(update=[("items", [1]), ("items", [2])]), [("items", [1]), ("items", [2]), EDGE]),
        (Command(update=Record(3)), [("total", 3), ("items", []), EDGE]),
        (Command(goto="pay"), [("branch:to:pay", None), EDGE]),
        (Command(goto=END), [EDGE]),
        (
            Command(goto=cast("Any", ["pay", Send("check", 5)])),
            [("branch:to:pay", None), (TASKS, Send("check", 5)), EDGE],
        ),
        (Send("check", 5), [(TASKS, Send("check", 5)), EDGE]),
        ([Send("check", 5), Send("pay", 6)], [(TASKS, Send("check", 5)), (TASKS, Send("pay", 6)), EDGE]),
        (
            [Command(update={"total": 1}, goto="pay"), {"items": [2]}, None],
            [("total", 1), ("branch:to:pay", None), ("items", [2]), EDGE],
        ),
    ],
    ids=repr,
)
def test_a_result_becomes_writes(output: Any, writes: list[tuple[str, Any]]) -> None:
    assert writes_of(output) == writes


@pytest.mark.parametrize("output", [5, "done", [], [{"total": 1}], [("total", 1)], Command(update=5), object])
def test_a_result_that_is_no_update_is_refused(output: Any) -> None:
    given = output.update if isinstance(output, Command) else output
    assert refusal_of(output) == (
        f"the update of node 'pay' is {type(given).__name__} {given!r}; expected a dict of state keys, an instance of "
        f"a state schema, a Command, a Send, a list with Commands or Sends in it, or None"
    )


def test_a_long_value_is_shortened_in_the_message() -> None:
    assert len(refusal_of("x" * 10_000)) < 300


@pytest.mark.parametrize(
    "output",
    [
        {"totl": 1},
        {"total": 1, "totl": 2},
        Command(update={"totl": 1}),
        Command(update=[("totl", 1)]),
        [Command(), {"totl": 1}],
    ],
)
def test_a_key_outside_the_schemas_is_refused_with_its_near_match(output: Any) -> None:
    assert refusal_of(output) == (
        "the update of node 'pay' has key 'totl', which is in no schema of this graph. Did you mean 'total'? Its keys "
        "are 'items', 'total'; compile(unknown_keys='ignore') drops other keys."
    )


def test_a_key_that_is_no_string_is_refused() -> None:
    assert "has key 1, which is in no schema of this graph. Its keys are" in refusal_of({1: 1})


def test_unknown_keys_may_be_dropped() -> None:
    assert writes_of({"totl": 1, "total": 2}, built(unknown_keys="ignore")) == [("total", 2), EDGE]


def test_a_private_key_may_be_written_by_any_node() -> None:
    graph = compile_graph(two_nodes().add_node("hide", read_hidden).spec(), "orders")
    assert writes_of({"secret": 1}, graph) == [("secret", 1), EDGE]


@pytest.mark.parametrize(
    ("output", "message"),
    [
        (
            Command(goto="chek"),
            "Command.goto of node 'pay' goes to 'chek', which is not a node of this graph. Did you mean 'check'?",
        ),
        (
            Command(goto=["check", "zzz"]),
            "Command.goto of node 'pay' goes to 'zzz', which is not a node of this graph.",
        ),
        (Command(goto=START), "Command.goto of node 'pay' goes to '__start__', which runs nothing."),
        (
            Command(goto=cast("Any", 5)),
            "Command.goto of node 'pay' goes to int 5; expected the name of a node, END or a Send.",
        ),
        (
            Command(goto=Send("chek", 1)),
            (
                "a Send by Command.goto of node 'pay' goes to 'chek', which is not a node of this graph. "
                "Did you mean 'check'?"
            ),
        ),
        (Send(END, 1), "a Send by the result of node 'pay' goes to '__end__', which runs nothing."),
        (
            Command(graph="other"),
            "the Command of node 'pay' has graph='other'; expected None for this graph, or Command.PARENT",
        ),
        (Command(resume=1), "the Command of node 'pay' has resume=; only the input of a run answers questions"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_command_that_goes_nowhere_is_refused(output: Any, message: str) -> None:
    assert refusal_of(output) == message


def test_a_command_to_the_parent_rises() -> None:
    up: Command[str] = Command(graph=Command.PARENT, update={"x": 1})
    here: Command[str] = Command(update={"total": 1})
    for output, commands in ((up, (up,)), ([here, up, up], (up, up))):
        with pytest.raises(ParentCommand) as caught:
            writes_of(output)
        assert caught.value.commands == commands


def test_the_result_of_a_subgraph_is_cut_to_the_keys_of_its_parent() -> None:
    class Other(TypedDict):
        total: int
        more: int

    inner = StateGraph(Other).add_node("pay", keep).add_edge(START, "pay").compile()
    graph = compile_graph(two_nodes().add_node("inner", inner).spec(), "orders")
    assert graph.nodes["inner"].channels == ("total",)
    assert writes_of({"total": 1, "more": 2}, graph, "inner") == [("total", 1)]
    with pytest.raises(InvalidUpdateError, match="has key 'more', which is in no schema"):
        writes_of(Command(update={"more": 2}), graph, "inner")


def test_a_value_that_does_not_fit_its_pydantic_field_is_refused() -> None:
    graph = built(Model)
    message = (
        "node 'pay' wrote str 'foo' to key 'total', which does not fit: Input should be a valid number, unable to "
        "parse string as a number"
    )
    assert refusal_of({"total": "foo"}, graph) == message
    assert refusal_of(Command(update={"total": "foo"}), graph) == message


def test_a_message_tells_where_inside_a_value_it_does_not_fit() -> None:
    class Nested(BaseModel):
        sizes: dict[str, list[int]] = {}

    assert refusal_of({"sizes": {"big": [1, "x"]}}, built(Nested)) == (
        "node 'pay' wrote dict {'big': [1, 'x']} to key 'sizes', which does not fit: at big.1: Input should be a valid "
        "integer, unable to parse string as an integer"
    )


def test_a_value_that_fits_is_written_as_it_was_given() -> None:
    assert writes_of({"total": "2.5"}, built(Model)) == [("total", "2.5"), EDGE]


def test_reduced_pydantic_fields_are_not_checked_one_by_one() -> None:
    assert writes_of({"items": "any"}, built(Model)) == [("items", "any"), EDGE]


def checked(graph: Blueprint, value: Any) -> Any:
    assert graph.check_input is not None
    return graph.check_input(value)


def test_input_becomes_a_dict_of_the_keys_of_the_input_schema() -> None:
    graph = built(input_schema=Totals)
    assert checked(graph, {"total": 1, "items": [1], "left": 3}) == {"total": 1}
    assert checked(built(Record), Record(1)) == {"total": 1, "items": []}
    assert checked(built(Model), Model(total=1)) == {"total": 1.0, "items": []}


def test_input_with_a_key_of_no_schema_is_refused() -> None:
    with pytest.raises(InvalidUpdateError) as caught:
        checked(built(), {"totl": 1})
    assert str(caught.value) == (
        "the input of graph 'orders' has key 'totl', which is in no schema of this graph. Did you mean 'total'? Its "
        "keys are 'items', 'total'; compile(unknown_keys='ignore') drops other keys."
    )
    assert checked(built(unknown_keys="ignore"), {"totl": 1, "total": 2}) == {"total": 2}


def test_input_that_is_no_update_is_refused() -> None:
    with pytest.raises(InvalidUpdateError) as caught:
        checked(built(), [1])
    assert str(caught.value) == (
        "the input of graph 'orders' is list [1]; expected a dict of state keys or an instance of State"
    )


def test_input_that_does_not_fit_a_pydantic_field_is_refused_by_pydantic() -> None:
    with pytest.raises(ValidationError, match="unable to parse string as a number") as caught:
        checked(built(Model), {"total": "foo"})
    assert caught.value.__notes__ == ["in key 'total' of the input of graph 'orders'"]
    # A thread may have the other fields already.
    assert checked(built(Model), {"items": [1]}) == {"items": [1]}


def test_a_command_as_input_is_not_for_a_parent() -> None:
    write = built().write_command
    assert write is not None
    with pytest.raises(InvalidUpdateError) as caught:
        write(Command(graph=Command.PARENT))
    assert str(caught.value) == ("the Command of the input has graph='__parent__'; expected None for this graph")


def test_a_command_as_input_becomes_writes() -> None:
    write = built().write_command
    assert write is not None
    assert write(Command(update={"total": 1}, goto="check", resume=5)) == [("total", 1), ("branch:to:check", None)]
    with pytest.raises(InvalidUpdateError) as caught:
        write(Command(goto="chek"))
    assert str(caught.value) == (
        "Command.goto of the input goes to 'chek', which is not a node of this graph. Did you mean 'check'?"
    )


def routed(path: Any, path_map: Any = None, schema: Any = State, **scope: Any) -> list[tuple[str, Any]]:
    graph = compile_graph(two_nodes(schema).add_conditional_edges("pay", path, path_map).spec(), "orders")
    _, branch = graph.nodes["pay"].writers
    assert branch.waits is False
    return list(branch({}, Scope(**scope)))


def misrouted(path: Any, path_map: Any = None) -> str:
    with pytest.raises(InvalidUpdateError) as caught:
        routed(path, path_map)
    return str(caught.value)


def to(target: Any) -> Any:
    def route(state: Any) -> Any:
        return target

    return route


def only_check(state: State) -> Literal["check"]:
    return "pay"  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("result", "path_map", "writes"),
    [
        ("check", None, [EDGE]),
        (END, None, []),
        ([], None, []),
        (["check", "check", "pay"], None, [EDGE, ("branch:to:pay", None)]),
        (("check", END), None, [EDGE]),
        ([Send("pay", 1), "check", Send("pay", 1)], None, [EDGE, (TASKS, Send("pay", 1)), (TASKS, Send("pay", 1))]),
        (True, {True: "check", False: END}, [EDGE]),
        (False, {True: "check", False: END}, []),
        ("check", ["check"], [EDGE]),
        (Send("pay", 1), ["check"], [(TASKS, Send("pay", 1))]),
    ],
    ids=repr,
)
def test_a_route_becomes_writes(result: Any, path_map: Any, writes: list[tuple[str, Any]]) -> None:
    assert routed(to(result), path_map) == writes


@pytest.mark.parametrize(
    ("result", "path_map", "message"),
    [
        (
            "chek",
            None,
            "route 'route' of node 'pay' goes to 'chek', which is not a node of this graph. Did you mean 'check'?",
        ),
        (START, None, "route 'route' of node 'pay' goes to '__start__', which runs nothing."),
        (
            None,
            None,
            "route 'route' of node 'pay' returned None; return the name of a node, END, a Send, or a list of these",
        ),
        (5, None, "route 'route' of node 'pay' goes to int 5; expected the name of a node, END or a Send."),
        (
            "chek",
            {"check": "check", "x": END},
            (
                "route 'route' of node 'pay' returned str 'chek', which is not among its targets 'check', 'x'. "
                "Did you mean 'check'?"
            ),
        ),
        (
            {},
            [END],
            "route 'route' of node 'pay' returned dict {}, which is not among its targets '__end__'.",
        ),
        (
            Send("chek", 1),
            ["check"],
            (
                "a Send by route 'route' of node 'pay' goes to 'chek', which is not a node of this graph. "
                "Did you mean 'check'?"
            ),
        ),
    ],
    ids=str,
)
def test_a_route_to_nowhere_is_refused(result: Any, path_map: Any, message: str) -> None:
    assert misrouted(to(result), path_map) == message


def test_a_route_keeps_to_the_targets_of_its_return_type() -> None:
    assert misrouted(only_check) == (
        "route 'only_check' of node 'pay' returned str 'pay', which is not among its targets 'check'."
    )


class Watcher:
    """A route to the end that keeps what it was given."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def __call__(self, state: Any) -> str:
        self.seen.append(state)
        return END


def test_a_route_sees_all_keys_of_the_state() -> None:
    route = Watcher()
    routed(route, values={"total": 1, "items": [2], "left": 3})
    assert route.seen == [{"total": 1, "items": [2], "left": 3}]


def test_a_route_is_given_an_instance_where_the_schema_is_a_class() -> None:
    route = Watcher()
    routed(route, schema=Record, values={"total": 1})
    routed(route, schema=int, values={ROOT: 5})
    assert route.seen == [Record(1), 5]


def test_the_annotation_of_a_route_chooses_what_it_reads() -> None:
    seen: list[Any] = []

    def route(state: Hidden) -> str:
        seen.append(state)
        return END

    routed(route, values={"total": 1, "secret": 2})
    assert seen == [{"secret": 2}]


def test_a_route_behind_a_node_with_private_keys_sees_them_and_the_state() -> None:
    route = Watcher()
    builder = two_nodes().add_node("hide", read_hidden).add_conditional_edges("hide", route)
    branch = compile_graph(builder.spec(), "orders").nodes["hide"].writers[1]
    branch({}, Scope("hide", {"total": 1, "secret": 2}))
    assert route.seen == [{"secret": 2, "total": 1}]


def test_a_route_is_given_what_it_asks_for_by_name() -> None:
    seen: list[Any] = []

    def route(state: State, config: Any, store: Any) -> str:
        seen.append((config, store))
        return END

    routed(route, provided={"config": {"a": 1}, "store": "shelf"})
    assert seen == [({"a": 1}, "shelf")]


async def test_an_async_route_is_awaited() -> None:
    async def route(state: Any) -> str:
        return "check"

    graph = compile_graph(two_nodes().add_conditional_edges("pay", route).spec(), "orders")
    _, branch = graph.nodes["pay"].writers
    assert branch.waits is True
    assert await branch({}, Scope()) == (EDGE,)


def test_a_sync_route_that_returns_a_coroutine_is_refused() -> None:
    async def route(state: Any) -> str:
        return "check"

    assert misrouted(lambda state: route(state or None)) == (
        "route '<lambda>' of node 'pay' is no async function and returned a coroutine; make it an `async def`"
    )


def test_several_lambdas_may_be_routes_of_one_node() -> None:
    builder = two_nodes().add_conditional_edges("pay", lambda s: "pay").add_conditional_edges("pay", lambda s: END)
    assert len(compile_graph(builder.spec(), "orders").nodes["pay"].writers) == 3

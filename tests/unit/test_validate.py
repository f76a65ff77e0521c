"""What is wrong with a graph, told when it is declared or compiled: whole messages."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any, Literal, TypedDict

import pytest

from everstep.constants import END, START
from everstep.errors import GraphBuildError
from everstep.graph.builder import StateGraph
from everstep.graph.validate import GraphWarning, reachable
from everstep.types import Command, Send


class State(TypedDict):
    total: int


def keep(state: State) -> dict[str, Any]:
    return {}


def route_with_typo(state: State) -> Literal["chek", "pay"]:
    return "pay"


def route_anywhere(state: State) -> str:
    return "pay"


def route_or_send(state: State) -> Literal["pay"] | list[Send]:
    return "pay"


def goto_check(state: State) -> Command[Literal["check"]]:
    return Command(goto="check")


def goto_check_or_end(state: State) -> Command[Literal["check", "__end__"]] | dict[str, Any]:
    return {}


def goto_anywhere(state: State) -> Command:  # type: ignore[type-arg]
    return Command(goto="check")


def unannotated_command(state):  # type: ignore[no-untyped-def]
    return Command(goto="check")


def unannotated_with_inner_command(state):  # type: ignore[no-untyped-def]
    def made() -> Any:
        return Command(goto="check")

    return made()


def unannotated(state):  # type: ignore[no-untyped-def]
    return {}


def unresolvable(state: Nowhere) -> Command[Literal["check"]]:  # type: ignore[name-defined]  # noqa: F821
    return Command(goto="check")


class Caller:
    def __call__(self, state: State) -> Command[Literal["check"]]:
        return Command(goto="check")


def graph(**actions: Any) -> StateGraph:
    """Nodes `pay` and `check`, and an edge from the start to the first of all."""
    nodes = {"pay": keep, "check": keep} | actions
    builder = StateGraph(State)
    for name, action in nodes.items():
        builder.add_node(name, action)
    return builder.add_edge(START, next(iter(nodes)))


def fault_of(builder: StateGraph, **options: Any) -> str:
    with pytest.raises(GraphBuildError) as caught:
        builder.compile(**options)
    return str(caught.value)


def warnings_of(builder: StateGraph) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        builder.compile()
    assert all(warning.category is GraphWarning for warning in caught)
    assert all(warning.filename == __file__ for warning in caught)
    return [str(warning.message) for warning in caught]


def can_never_run(name: str) -> str:
    return (
        f"node {name!r} can never run: no edge, route or declared destination leads to it from START. A node that goes "
        f"there by Command says so by its return type, Command[Literal[{name!r}]], or by "
        f"add_node(..., destinations=({name!r},))"
    )


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("", "the name of a node is a non-empty string, got str ''"),
        (5, "the name of a node is a non-empty string, got int 5"),
        ("__start__", "node name '__start__' is reserved; choose another"),
        ("__pregel_tasks", "node name '__pregel_tasks' is reserved; choose another"),
        ("a:b", "node name 'a:b' contains ':', which separates names in namespaces; choose another"),
        ("a|b", "node name 'a|b' contains '|', which separates names in namespaces; choose another"),
        ("pay", "node 'pay' is there already; give one of the two another name: add_node('name', action)"),
    ],
)
def test_a_name_that_no_node_can_have_is_refused(name: Any, message: str) -> None:
    with pytest.raises(GraphBuildError) as caught:
        graph().add_node(name, keep)
    assert str(caught.value) == message


def test_a_node_may_have_the_name_of_a_key() -> None:
    StateGraph(State).add_node("total", keep).add_edge(START, "total").compile()


def test_a_node_without_an_action_is_refused() -> None:
    with pytest.raises(GraphBuildError) as caught:
        graph().add_node("more")
    assert str(caught.value) == "node 'more' has no action: add_node('more', action)"


def test_a_generator_is_refused_as_a_node() -> None:
    def some(state: Any) -> Any:
        yield {}

    async def later(state: Any) -> Any:
        yield {}

    class Object:
        def __call__(self, state: Any) -> Any:
            yield {}

    for action in (some, later, Object(), functools.partial(some, {})):
        with pytest.raises(TypeError) as caught:
            graph().add_node("more", action)
        assert str(caught.value) == (
            "node 'more': a generator cannot be run; return one value, and send what comes before it to the stream "
            "writer: get_stream_writer()(value)"
        )


def test_an_action_that_cannot_be_called_is_refused() -> None:
    with pytest.raises(TypeError) as caught:
        graph().add_node("more", 5)
    assert str(caught.value) == (
        "node 'more': expected a function, a callable object or an object with ainvoke(), got int 5"
    )
    with pytest.raises(TypeError) as caught:
        graph().add_conditional_edges("pay", 5)
    assert str(caught.value) == (
        "route of node 'pay': expected a function, a callable object or an object with ainvoke(), got int 5"
    )


@pytest.mark.parametrize(
    ("add", "message"),
    [
        (lambda g: g.add_edge(END, "pay"), "edge '__end__' -> 'pay' starts at END; nothing runs after the end"),
        (lambda g: g.add_edge("pay", START), "edge 'pay' -> '__start__' ends at START; nothing runs before the start"),
        (
            lambda g: g.add_edge(["pay", END], "check"),
            "join 'pay', '__end__' -> 'check' starts at END; nothing runs after the end",
        ),
        (lambda g: g.add_edge([], "check"), "the join with 'check' has no sources; name the nodes it waits for"),
        (lambda g: g.add_edge("pay", keep), f"edge 'pay' -> {keep!r} connects nodes by name, got function {keep!r}"),
        (
            lambda g: g.add_conditional_edges(END, route_anywhere),
            "the route of '__end__' starts at END; nothing runs after the end",
        ),
        (
            lambda g: g.add_conditional_edges("pay", route_anywhere).add_conditional_edges("pay", route_anywhere),
            "node 'pay' has a route 'route_anywhere' already; give one of the two functions another name",
        ),
        (lambda g: g.add_sequence([]), "a sequence needs at least one node"),
    ],
)
def test_an_edge_that_cannot_be_is_refused_where_it_is_declared(
    add: Callable[[StateGraph], object], message: str
) -> None:
    with pytest.raises(GraphBuildError) as caught:
        add(graph())
    assert str(caught.value) == message


def test_a_graph_without_an_entry_point_is_refused() -> None:
    assert fault_of(StateGraph(State).add_node("pay", keep)) == (
        "the graph has no entry point: no edge starts at START. Begin with add_edge(START, 'pay')"
    )
    assert fault_of(StateGraph(State)) == (
        "the graph has no entry point: no edge starts at START. Begin with a node, and an edge from START to it"
    )


@pytest.mark.parametrize(
    ("add", "message"),
    [
        (
            lambda g: g.add_edge("pay", "chek"),
            "edge 'pay' -> 'chek' ends at 'chek', which is not a node of this graph. Did you mean 'check'?",
        ),
        (
            lambda g: g.add_edge("paye", "check"),
            "edge 'paye' -> 'check' starts at 'paye', which is not a node of this graph. Did you mean 'pay'?",
        ),
        (
            lambda g: g.add_edge("pay", "zzz"),
            "edge 'pay' -> 'zzz' ends at 'zzz', which is not a node of this graph.",
        ),
        (
            lambda g: g.add_edge(["pay", "chek"], END),
            (
                "join 'pay', 'chek' -> '__end__' starts at 'chek', which is not a node of this graph. "
                "Did you mean 'check'?"
            ),
        ),
        (
            lambda g: g.add_edge([START, "pay"], "check"),
            "join '__start__', 'pay' -> 'check' waits for START; START has run when anything runs, leave it out",
        ),
        (
            lambda g: g.add_conditional_edges("pay", route_with_typo),
            (
                "route 'route_with_typo' of node 'pay' may go to 'chek', which is not a node of this graph. "
                "Did you mean 'check'?"
            ),
        ),
        (
            lambda g: g.add_conditional_edges("pay", route_anywhere, {True: "chek", False: END}),
            (
                "route 'route_anywhere' of node 'pay' may go to 'chek' (for True), which is not a node of this graph. "
                "Did you mean 'check'?"
            ),
        ),
        (
            lambda g: g.add_conditional_edges("pay", route_anywhere, ["pay", START]),
            "route 'route_anywhere' of node 'pay' may go to '__start__', which is the start and cannot be gone to",
        ),
        (
            lambda g: g.add_conditional_edges("chek", route_anywhere),
            "route 'route_anywhere' starts at 'chek', which is not a node of this graph. Did you mean 'check'?",
        ),
        (
            lambda g: g.add_node("more", keep, destinations=("chek",)),
            "node 'more' declares the destination 'chek', which is not a node of this graph. Did you mean 'check'?",
        ),
    ],
)
def test_an_unknown_node_is_refused_with_its_near_match(add: Callable[[StateGraph], object], message: str) -> None:
    builder = graph()
    add(builder)
    assert fault_of(builder) == message


def test_an_unknown_destination_in_a_return_type_is_refused() -> None:
    builder = StateGraph(State).add_node("pay", goto_check).add_edge(START, "pay")
    assert fault_of(builder) == "node 'pay' declares the destination 'check', which is not a node of this graph."


def test_unknown_breakpoints_are_refused() -> None:
    assert fault_of(graph(), interrupt_before=["chek"]) == (
        "interrupt_before names 'chek', which is not a node of this graph. Did you mean 'check'?"
    )
    assert fault_of(graph(), interrupt_after="nowhere") == (
        "interrupt_after names 'nowhere', which is not a node of this graph."
    )


def test_all_faults_are_told_at_once() -> None:
    builder = graph().add_edge("pay", "x").add_edge("y", "check")
    assert fault_of(builder) == (
        "the graph has 2 faults:\n"
        "- edge 'pay' -> 'x' ends at 'x', which is not a node of this graph.\n"
        "- edge 'y' -> 'check' starts at 'y', which is not a node of this graph."
    )


def test_another_word_for_unknown_keys_is_refused() -> None:
    assert fault_of(graph(), unknown_keys="drop") == "unknown_keys is 'error' or 'ignore', got 'drop'"


def test_a_node_that_nothing_can_reach_is_warned_about() -> None:
    assert warnings_of(graph()) == [can_never_run("check")]


def test_a_node_behind_an_unreachable_one_is_unreachable() -> None:
    builder = graph(ship=keep).add_edge("check", "ship")
    assert warnings_of(builder) == [can_never_run("check"), can_never_run("ship")]


def test_a_join_with_an_unreachable_source_reaches_nothing() -> None:
    builder = graph(ship=keep).add_edge(["pay", "check"], "ship")
    assert warnings_of(builder) == [can_never_run("check"), can_never_run("ship")]


@pytest.mark.parametrize(
    "add",
    [
        lambda g: g.add_edge("pay", "check"),
        lambda g: g.add_conditional_edges("pay", route_anywhere),
        lambda g: g.add_conditional_edges("pay", route_or_send),
        lambda g: g.add_conditional_edges("pay", route_anywhere, ["check", END]),
        lambda g: g.set_conditional_entry_point(route_anywhere, {1: "check"}),
    ],
)
def test_a_node_that_an_edge_or_a_route_may_reach_is_fine(add: Callable[[StateGraph], object]) -> None:
    builder = graph()
    add(builder)
    assert warnings_of(builder) == []


@pytest.mark.parametrize(
    "action",
    [
        goto_check,
        goto_check_or_end,
        goto_anywhere,
        unannotated_command,
        unannotated_with_inner_command,
        functools.partial(goto_check),
        Caller(),
        unresolvable,
    ],
    ids=lambda action: type(action).__name__ if not hasattr(action, "__name__") else action.__name__,
)
def test_a_node_that_a_command_may_reach_is_fine(action: Any) -> None:
    assert warnings_of(graph(pay=action)) == []


@pytest.mark.parametrize("action", [keep, unannotated])
def test_a_node_that_returns_no_command_reaches_nothing(action: Any) -> None:
    assert warnings_of(graph(pay=action)) == [can_never_run("check")]


def test_declared_destinations_take_the_place_of_the_annotation() -> None:
    builder = StateGraph(State).add_node("pay", goto_anywhere, destinations=("ship",))
    builder.add_node("ship", keep).add_node("check", keep).add_edge(START, "pay")
    assert warnings_of(builder) == [can_never_run("check")]


def test_static_edges_beside_declared_destinations_are_warned_about() -> None:
    builder = graph(pay=goto_check, ship=keep).add_edge("pay", "ship")
    assert warnings_of(builder) == [
        (
            "node 'pay' has static edges to 'ship' and declares Command destinations 'check'; the static edges are "
            "followed whatever its Command says. Leave them out if the Command is to choose"
        )
    ]


def test_what_may_be_reached_is_found_along_long_chains_and_cycles() -> None:
    builder = StateGraph(State).add_edge(START, "n0")
    for number in range(500):
        builder.add_node(f"n{number}", keep)
        builder.add_edge(f"n{number}", f"n{(number + 1) % 500}")
    found = reachable(builder.spec())
    assert found is not None
    assert found == {START, *(f"n{number}" for number in range(500))}

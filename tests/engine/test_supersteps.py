"""Supersteps: which tasks run together, what they see of each other, and how their results meet at the barrier."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from typing import Any, Literal

import pytest

from everstep.constants import END, START
from everstep.context import interrupt
from everstep.errors import GraphRecursionError
from everstep.graph.builder import StateGraph
from everstep.managed import IsLastStep, RemainingSteps
from everstep.types import Command, Overwrite, Send
from tests.engine.graphs import Log, Update, chain, history, says, side_by_side, thread
from tests.engine.watched import StoreBroke, WatchedSaver, failing_from


def in_turn(order: tuple[str, ...]) -> Callable[[str], tuple[str, Callable[..., Any]]]:
    """Makes nodes that finish in this order, whatever order they are started in."""
    turns = {name: asyncio.Event() for name in order}
    turns[order[0]].set()

    def node(name: str) -> tuple[str, Callable[..., Any]]:
        async def run(state: Log) -> Update:
            await turns[name].wait()
            after = order.index(name) + 1
            if after < len(order):
                turns[order[after]].set()
            return {"log": [name]}

        return name, run

    return node


@pytest.mark.parametrize("order", list(itertools.permutations("abc")), ids="".join)
async def test_parallel_results_meet_in_path_order_whatever_finishes_first(order: tuple[str, ...]) -> None:
    node = in_turn(order)
    graph = side_by_side(node("c"), node("a"), node("b"))
    assert await graph.ainvoke({"log": []}) == {"log": ["a", "b", "c"]}


@pytest.mark.parametrize("order", list(itertools.permutations("abc")), ids="".join)
async def test_what_is_stored_does_not_depend_on_who_finishes_first(order: tuple[str, ...], saver: Any) -> None:
    node = in_turn(order)
    graph = side_by_side(node("c"), node("a"), node("b"), saver=saver)
    await graph.ainvoke({"log": []}, thread())
    assert (await graph.aget_state(thread())).values == {"log": ["a", "b", "c"]}


async def test_tasks_of_one_step_run_at_the_same_time() -> None:
    together = asyncio.Barrier(3)

    async def meet(state: Log) -> None:
        await together.wait()

    await side_by_side(("a", meet), ("b", meet), ("c", meet)).ainvoke({"log": []})


async def test_tasks_of_one_step_do_not_see_each_others_writes() -> None:
    async def a(state: Log) -> Update:
        return {"value": "changed"}

    async def b(state: Log) -> Update:
        return {"log": [state["value"]]}

    assert await side_by_side(a, b).ainvoke({"value": "old"}) == {"value": "changed", "log": ["old"]}


async def test_a_thousand_sends_run_once_each_and_meet_in_the_order_they_were_sent() -> None:
    finished: list[int] = []
    done = [asyncio.Event() for _ in range(1001)]
    done[1000].set()

    async def work(state: Log) -> Update:
        number = state["value"]
        await done[number + 1].wait()  # the last one finishes first
        done[number].set()
        finished.append(number)
        return {"log": [number]}

    builder = StateGraph(Log).add_node(work)
    builder.add_conditional_edges(START, lambda state: [Send("work", {"value": n}) for n in range(1000)], ["work"])
    result = await builder.compile().ainvoke({"log": []})
    assert result["log"] == list(range(1000))
    assert finished == list(reversed(range(1000)))


async def test_triggered_tasks_come_before_sent_ones_at_the_barrier() -> None:
    async def fork(state: Log) -> Command[Literal["b", "a"]]:
        return Command(goto=[Send("b", {"value": "sent 0"}), "a", Send("a", {"value": "sent 1"})])

    async def report(state: Log) -> Update:
        return {"log": [state["value"]]}

    builder = StateGraph(Log).add_node(fork).add_node("a", report).add_node("b", report).add_edge(START, "fork")
    result = await builder.compile().ainvoke({"value": "triggered"})
    assert result["log"] == ["triggered", "sent 0", "sent 1"]


async def test_max_concurrency_bounds_the_bodies_that_run_at_once() -> None:
    running, most = 0, 0

    async def work(state: Log) -> Update:
        nonlocal running, most
        running += 1
        most = max(most, running)
        for _ in range(5):
            await asyncio.sleep(0)
        running -= 1
        return {"log": [state["value"]]}

    builder = StateGraph(Log).add_node(work)
    builder.add_conditional_edges(START, lambda state: [Send("work", {"value": n}) for n in range(12)], ["work"])
    result = await builder.compile().ainvoke({"log": []}, {"max_concurrency": 3})
    assert (most, result["log"]) == (3, list(range(12)))


# Edges ------------------------------------------------------------------------------------------------------


async def test_a_join_runs_once_after_the_longest_of_its_branches() -> None:
    builder = StateGraph(Log)
    for name in ("short", "long", "longer", "join"):
        builder.add_node(*says(name))
    builder.add_edge(START, "short").add_edge(START, "long").add_edge("long", "longer")
    builder.add_edge(["short", "longer"], "join")
    assert (await builder.compile().ainvoke({"log": []}))["log"] == ["long", "short", "longer", "join"]


async def test_without_a_join_a_node_runs_again_for_each_branch_that_reaches_it() -> None:
    builder = StateGraph(Log)
    for name in ("short", "long", "longer", "end"):
        builder.add_node(*says(name))
    builder.add_edge(START, "short").add_edge(START, "long").add_edge("long", "longer")
    builder.add_edge("short", "end").add_edge("longer", "end")
    assert (await builder.compile().ainvoke({"log": []}))["log"] == ["long", "short", "end", "longer", "end"]


async def test_a_join_in_a_cycle_waits_for_all_its_sources_every_time() -> None:
    async def join(state: Log) -> Command[Any]:
        rounds = state["log"].count("join") + 1
        return Command(update={"log": ["join"]}, goto=END if rounds == 3 else ["a", "b"])

    builder = StateGraph(Log).add_node(*says("a")).add_node(*says("b")).add_node(join)
    builder.add_edge(START, "a").add_edge(START, "b").add_edge(["a", "b"], "join")
    assert (await builder.compile().ainvoke({"log": []}))["log"] == ["a", "b", "join"] * 3


async def test_a_deferred_node_runs_once_when_nothing_else_is_left() -> None:
    builder = StateGraph(Log)
    for name in ("short", "long", "longer"):
        builder.add_node(*says(name))
    builder.add_node(*says("last"), defer=True)
    builder.add_edge(START, "short").add_edge(START, "long").add_edge("long", "longer")
    builder.add_edge("short", "last").add_edge("longer", "last")
    assert (await builder.compile().ainvoke({"log": []}))["log"] == ["long", "short", "longer", "last"]


@pytest.mark.parametrize("is_async", [False, True])
async def test_a_route_sees_what_its_own_node_has_just_written(is_async: bool) -> None:
    async def decide(state: Log) -> Update:
        return {"value": "right"}

    def route(state: Log) -> str:
        value: str = state["value"]
        return value

    async def route_later(state: Log) -> str:
        await asyncio.sleep(0)
        return route(state)

    builder = (
        StateGraph(Log).add_node(decide).add_node(*says("left")).add_node(*says("right")).add_edge(START, "decide")
    )
    builder.add_conditional_edges("decide", route_later if is_async else route, ["left", "right"])
    assert (await builder.compile().ainvoke({"value": "left"}))["log"] == ["right"]


async def test_a_route_does_not_see_what_its_nodes_siblings_have_written() -> None:
    seen: list[Any] = []

    def route(state: Log) -> str:
        seen.append(list(state["log"]))
        return END

    builder = StateGraph(Log).add_node(*says("a")).add_node(*says("b")).add_edge(START, "a").add_edge(START, "b")
    builder.add_conditional_edges("a", route, [END])
    await builder.compile().ainvoke({"log": []})
    assert seen == [["a"]]


async def test_a_route_may_go_to_several_nodes_and_sends_at_once() -> None:
    def route(state: Log) -> list[Any]:
        return ["a", Send("b", {"log": []}), "a", Send("b", {"log": []})]

    builder = StateGraph(Log).add_node(*says("a")).add_node(*says("b"))
    builder.add_conditional_edges(START, route, ["a", "b"])
    assert (await builder.compile().ainvoke({"log": []}))["log"] == ["a", "b", "b"]


async def test_a_run_may_be_routed_to_its_end_at_once(saver: Any) -> None:
    builder = StateGraph(Log).add_node(*says("a"))
    builder.add_conditional_edges(START, lambda state: END, ["a", END])
    graph = builder.compile(saver)
    assert await graph.ainvoke({"log": ["in"]}, thread()) == {"log": ["in"]}
    record = await saver.aget_thread("t")
    assert record.status == "done"


# Command ----------------------------------------------------------------------------------------------------


async def test_a_command_updates_and_goes_beside_the_static_edges_of_its_node() -> None:
    async def a(state: Log) -> Command[Any]:
        return Command(update={"log": ["a"]}, goto="c")

    builder = StateGraph(Log).add_node(a).add_node(*says("b")).add_node(*says("c"))
    builder.add_edge(START, "a").add_edge("a", "b")
    assert (await builder.compile().ainvoke({"log": []}))["log"] == ["a", "b", "c"]


async def test_a_list_of_commands_is_followed_in_order() -> None:
    async def a(state: Log) -> list[Any]:
        return [Command(update={"log": [1]}), {"log": [2]}, Command(update={"log": [3]}, goto="b")]

    builder = StateGraph(Log).add_node(a, destinations=["b"]).add_node(*says("b")).add_edge(START, "a")
    assert (await builder.compile().ainvoke({"log": []}))["log"] == [1, 2, 3, "b"]


async def test_a_command_as_input_of_a_new_thread_goes_there_beside_the_start(saver: Any) -> None:
    graph = chain(says("a"), says("b"), saver=saver)
    assert await graph.ainvoke(Command(update={"log": ["in"]}), thread()) == {"log": ["in", "a", "b"]}
    result = await graph.ainvoke(Command(update={"log": ["in"]}, goto="b"), thread("other"))
    assert result == {"log": ["in", "b", "a", "b"]}


async def test_a_command_as_input_continues_a_thread_at_the_node_it_names(saver: Any) -> None:
    graph = chain(says("a"), says("b"), saver=saver)
    await graph.ainvoke({"log": []}, thread())
    result = await graph.ainvoke(Command(update={"log": ["again"]}, goto="b"), thread())
    assert result == (await graph.aget_state(thread())).values == {"log": ["a", "b", "again", "b"]}


async def test_a_command_that_only_updates_is_kept(saver: Any) -> None:
    graph = chain(says("a"), saver=saver)
    await graph.ainvoke({"log": []}, thread())
    for number in (1, 2):
        result = await graph.ainvoke(Command(update={"log": [number]}), thread())
        assert result == (await graph.aget_state(thread())).values
    assert result == {"log": ["a", 1, 2]}
    assert await graph.ainvoke({"log": ["new"]}, thread()) == {"log": ["a", 1, 2, "new", "a"]}
    assert (await saver.aget_thread("t")).status == "done"


async def test_a_command_that_leads_nowhere_is_kept_after_a_failure_too(saver: Any) -> None:
    async def fail(state: Log) -> None:
        raise ConnectionError("no answer")

    builder = StateGraph(Log).add_node("late", fail, defer=True).add_edge(START, "late")
    graph = builder.compile(saver)
    with pytest.raises(ConnectionError):
        await graph.ainvoke({"log": []}, thread())
    await graph.aupdate_state(thread(), {"log": ["mended"]}, as_node="late")
    assert await graph.ainvoke(Command(update={"log": ["x"]}), thread()) == {"log": ["mended", "x"]}
    assert (await graph.aget_state(thread())).values == {"log": ["mended", "x"]}
    assert (await saver.aget_thread("t")).status == "done"


async def test_what_a_command_wrote_outlives_a_new_input(saver: Any) -> None:
    async def ask(state: Log) -> Update:
        return {"log": [interrupt("q")]}

    builder = StateGraph(Log).add_node(*says("a")).add_node(ask).add_edge(START, "a")
    builder.add_conditional_edges("a", lambda state: END, ["ask", END])
    graph = builder.compile(saver)
    await graph.ainvoke({"log": []}, thread())
    result = await graph.ainvoke(Command(update={"log": [1]}, goto="ask"), thread())
    assert result["log"] == ["a", 1]
    assert await graph.ainvoke({"log": ["new"]}, thread()) == {"log": ["a", 1, "new", "a"]}
    entered = (await history(graph, thread()))[2]
    assert (entered.metadata or {})["superseded"] == [result["__interrupt__"][0].id]


async def test_overwrite_replaces_what_a_reducer_has_gathered() -> None:
    async def reset(state: Log) -> Update:
        return {"log": Overwrite(["new"])}

    graph = chain(says("a"), reset, says("b"))
    assert await graph.ainvoke({"log": ["in"]}) == {"log": ["new", "b"]}


# Recursion limit --------------------------------------------------------------------------------------------


async def loop(state: Log) -> Command[Literal["loop"]]:
    return Command(update={"log": [len(state["log"]) + 1]}, goto="loop")


async def test_the_recursion_limit_counts_the_supersteps_of_one_call(saver: Any) -> None:
    graph = chain(loop, saver=saver)
    with pytest.raises(GraphRecursionError) as caught:
        await graph.ainvoke({"log": []}, {**thread(), "recursion_limit": 3})
    assert str(caught.value) == (
        "the run took 3 supersteps, as its recursion_limit allows, and would go on with 'loop' (step 3, thread 't'); "
        "raise recursion_limit, or look for a cycle that does not end"
    )
    assert (await graph.aget_state(thread())).values == {"log": [1, 2, 3]}
    assert (await saver.aget_thread("t")).status == "out_of_steps"


async def test_a_resumed_run_may_take_as_many_supersteps_as_a_fresh_one(saver: Any) -> None:
    graph = chain(loop, saver=saver)
    inputs: list[Any] = [{"log": []}, None, None]
    for given in inputs:
        with pytest.raises(GraphRecursionError):
            await graph.ainvoke(given, {**thread(), "recursion_limit": 3})
    assert (await graph.aget_state(thread())).values == {"log": list(range(1, 10))}


async def test_a_run_cut_off_before_its_first_node_may_take_as_many_supersteps_too(saver: Any) -> None:
    config = {**thread(), "recursion_limit": 2}
    with pytest.raises(StoreBroke):
        await chain(says("a"), says("b"), saver=WatchedSaver(saver, before=failing_from(2))).ainvoke(
            {"log": []}, config, durability="sync"
        )
    graph = chain(says("a"), says("b"), saver=saver)
    assert (await graph.aget_state(config)).next == ("__start__",)
    assert await graph.ainvoke(None, config) == {"log": ["a", "b"]}


async def test_a_run_that_fits_its_limit_exactly_ends_well() -> None:
    graph = chain(says("a"), says("b"), says("c"))
    assert (await graph.ainvoke({"log": []}, {"recursion_limit": 3}))["log"] == ["a", "b", "c"]
    with pytest.raises(GraphRecursionError):
        await graph.ainvoke({"log": []}, {"recursion_limit": 2})


async def test_a_node_can_see_how_many_steps_are_left_and_end_in_time() -> None:
    class Counting(Log):
        left: RemainingSteps
        is_last: IsLastStep

    async def count(state: Counting) -> Command[Any]:
        return Command(update={"log": [state["left"]]}, goto=END if state["is_last"] else "count")

    graph = StateGraph(Counting).add_node(count).add_edge(START, "count").compile()
    assert await graph.ainvoke({"log": []}, {"recursion_limit": 5}) == {"log": [4, 3, 2, 1]}

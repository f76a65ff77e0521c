"""Static breakpoints: where a run stops, and that it stops there once."""

from __future__ import annotations

from typing import Any

import pytest

from everstep.constants import START
from everstep.context import interrupt
from everstep.errors import ConfigError
from everstep.graph.builder import StateGraph
from everstep.types import Command
from tests.engine.graphs import Log, Update, chain, history, says, side_by_side, thread
from tests.engine.watched import StoreBroke, WatchedSaver


async def stops(graph: Any, given: Any, saver: Any, **options: Any) -> tuple[list[Any], tuple[str, ...], str]:
    """Run; what the state's log is then, what would run next, and the thread's status."""
    result = await graph.ainvoke(given, thread(), **options)
    state = await graph.aget_state(thread())
    assert result == state.values
    return result["log"], state.next, (await saver.aget_thread("t")).status


async def test_a_run_stops_before_a_node_and_goes_on_with_none(saver: Any) -> None:
    graph = chain(says("a"), says("b"), says("c"), saver=saver, interrupt_before=["b"])
    assert await stops(graph, {"log": []}, saver) == (["a"], ("b",), "interrupted")
    assert await stops(graph, None, saver) == (["a", "b", "c"], (), "done")


async def test_a_run_stops_after_a_node_and_goes_on_with_none(saver: Any) -> None:
    graph = chain(says("a"), says("b"), says("c"), saver=saver, interrupt_after=["b"])
    assert await stops(graph, {"log": []}, saver) == (["a", "b"], ("c",), "interrupted")
    assert await stops(graph, None, saver) == (["a", "b", "c"], (), "done")


async def test_breakpoints_of_one_call_stand_in_for_those_of_compile(saver: Any) -> None:
    graph = chain(says("a"), says("b"), says("c"), saver=saver, interrupt_before=["b"])
    assert await stops(graph, {"log": []}, saver, interrupt_before=["c"]) == (["a", "b"], ("c",), "interrupted")
    assert await stops(graph, {"log": []}, saver, interrupt_before=[]) == (["a", "b", "a", "b", "c"], (), "done")


async def test_a_star_stops_at_every_node(saver: Any) -> None:
    graph = chain(says("a"), says("b"), saver=saver, interrupt_before="*")
    assert await stops(graph, {"log": []}, saver) == ([], ("a",), "interrupted")
    assert await stops(graph, None, saver) == (["a"], ("b",), "interrupted")
    assert await stops(graph, None, saver) == (["a", "b"], (), "done")


async def test_an_update_counts_as_a_stop(saver: Any) -> None:
    graph = chain(says("a"), says("b"), says("c"), saver=saver, interrupt_before=["b", "c"])
    await graph.ainvoke({"log": []}, thread())
    await graph.aupdate_state(thread(), {"log": ["x"]})
    assert await stops(graph, None, saver) == (["a", "x", "b"], ("c",), "interrupted")
    await graph.aupdate_state(thread(), {"log": ["y"]}, as_node="a")
    assert await stops(graph, None, saver) == (["a", "x", "b", "y", "b"], ("c",), "interrupted")


async def test_a_command_goes_where_it_says_without_a_stop(saver: Any) -> None:
    graph = chain(says("a"), says("b"), saver=saver, interrupt_before=["a", "b"])
    inputs: list[Update | None] = [{"log": []}, None, None]
    for given in inputs:
        await graph.ainvoke(given, thread())
    assert await stops(graph, Command(goto="a"), saver) == (["a", "b", "a"], ("b",), "interrupted")


async def test_a_replay_does_not_stop_where_it_begins_though_a_command_had_written_there(saver: Any) -> None:
    graph = chain(says("a"), saver=saver, interrupt_before=["a"])
    await graph.ainvoke({"log": []}, thread())
    await graph.ainvoke(Command(update={"log": ["x"]}), thread())
    before = next(snapshot for snapshot in await history(graph, thread()) if snapshot.next == ("a",))
    assert (await graph.ainvoke(None, before.config))["log"] == ["x", "a"]


async def test_any_answer_goes_on_from_a_breakpoint(saver: Any) -> None:
    graph = chain(says("a"), says("b"), saver=saver, interrupt_before=["b"])
    await graph.ainvoke({"log": []}, thread())
    assert await stops(graph, Command(resume="go"), saver) == (["a", "b"], (), "done")


async def test_an_answer_that_goes_on_from_a_breakpoint_answers_no_later_question(saver: Any) -> None:
    async def ask(state: Log) -> Update:
        return {"log": [interrupt("q")]}

    graph = chain(says("a"), ask, saver=saver, interrupt_before=["ask"])
    await graph.ainvoke({"log": []}, thread())
    result = await graph.ainvoke(Command(resume="go on"), thread())
    assert [question.value for question in result["__interrupt__"]] == ["q"]
    assert await graph.ainvoke(Command(resume="A"), thread()) == {"log": ["a", "A"]}


async def test_a_breakpoint_in_a_cycle_stops_every_time(saver: Any) -> None:
    async def loop(state: Log) -> Command[Any]:
        return Command(update={"log": ["loop"]}, goto="loop" if len(state["log"]) < 2 else "end")

    builder = StateGraph(Log).add_node(loop).add_node(*says("end")).add_edge(START, "loop")
    graph = builder.compile(saver, interrupt_before=["loop"])
    assert await stops(graph, {"log": []}, saver) == ([], ("loop",), "interrupted")
    for rounds in (1, 2):
        assert await stops(graph, None, saver) == (["loop"] * rounds, ("loop",), "interrupted")
    assert await stops(graph, None, saver) == (["loop"] * 3 + ["end"], (), "done")


async def test_a_breakpoint_among_siblings_stops_the_whole_step(saver: Any) -> None:
    graph = side_by_side(says("a"), says("b"), saver=saver, interrupt_before=["b"])
    assert await stops(graph, {"log": []}, saver) == ([], ("a", "b"), "interrupted")
    assert await stops(graph, None, saver) == (["a", "b"], (), "done")


async def test_a_node_that_fails_after_its_breakpoint_does_not_stop_there_again(saver: Any) -> None:
    broken = True

    async def b(state: Log) -> Update:
        if broken:
            raise ValueError("broken")
        return {"log": ["b"]}

    graph = chain(says("a"), b, saver=saver, interrupt_before=["b"])
    await graph.ainvoke({"log": []}, thread())
    with pytest.raises(ValueError, match="broken"):
        await graph.ainvoke(None, thread())
    broken = False
    assert await stops(graph, None, saver) == (["a", "b"], (), "done")


@pytest.mark.parametrize("where", ["interrupt_before", "interrupt_after"])
async def test_a_breakpoint_whose_stop_was_not_stored_still_stops_the_resumed_run(where: str, saver: Any) -> None:
    async def cut(number: int, commit: Any) -> None:
        if commit.status == "interrupted":
            raise StoreBroke("gone before the stop was stored")

    watched = WatchedSaver(saver, before=cut)
    breakpoint_: dict[str, Any] = {where: ["b" if where == "interrupt_before" else "a"]}
    graph = chain(says("a"), says("b"), saver=watched, **breakpoint_)
    with pytest.raises(StoreBroke):
        await graph.ainvoke({"log": []}, thread())
    graph = chain(says("a"), says("b"), saver=saver, **breakpoint_)
    assert await stops(graph, None, saver) == (["a"], ("b",), "interrupted")
    assert await stops(graph, None, saver) == (["a", "b"], (), "done")


@pytest.mark.parametrize("where", ["interrupt_before", "interrupt_after"])
async def test_an_update_by_hand_is_a_stop_and_the_run_goes_on_from_it(where: str, saver: Any) -> None:
    breakpoints: dict[str, Any] = {where: ["a", "b", "c"]}
    graph = chain(says("a"), says("b"), says("c"), saver=saver, **breakpoints)
    await graph.ainvoke({"log": []}, thread())
    await graph.aupdate_state(thread(), {"log": ["one"]})
    await graph.aupdate_state(thread(), {"log": ["two"]})
    done = ["one", "two", "a"] if where == "interrupt_before" else ["a", "one", "two", "b"]
    following = "b" if where == "interrupt_before" else "c"
    assert await stops(graph, None, saver) == (done, (following,), "interrupted")
    # As another node: what follows it runs.
    await graph.aupdate_state(thread(), {"log": ["three"]}, as_node="b")
    assert (await graph.ainvoke(None, thread()))["log"] == [*done, "three", "c"]
    assert (await graph.aget_state(thread())).next == ()


async def test_the_stream_tells_of_a_breakpoint(saver: Any) -> None:
    graph = chain(says("a"), says("b"), saver=saver, interrupt_before=["b"])
    events = [event async for event in graph.astream({"log": []}, thread())]
    assert events == [{"a": {"log": ["a"]}}, {"__interrupt__": ()}]
    assert [event async for event in graph.astream(None, thread())] == [{"b": {"log": ["b"]}}]


async def test_a_breakpoint_at_an_unknown_node_is_refused_at_the_call(saver: Any) -> None:
    graph = chain(says("first"), saver=saver)
    with pytest.raises(ConfigError) as caught:
        await graph.ainvoke({"log": []}, thread(), interrupt_before=["frist"])
    assert str(caught.value) == "breakpoint at 'frist', which is not a node. Did you mean 'first'?"
    with pytest.raises(ConfigError) as caught:
        await graph.ainvoke({"log": []}, thread(), interrupt_after="first")
    assert str(caught.value) == "breakpoints are a list of node names or '*', got 'first'"
    assert await saver.aget_thread("t") is None

"""The events of subgraphs: who sees them, and under which namespace."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest

from everstep.constants import START
from everstep.context import interrupt
from everstep.graph.builder import StateGraph
from everstep.stream.buffer import DEFAULT_SIZE
from everstep.types import Command
from everstep_savers.memory import InMemorySaver
from tests.engine.graphs import Log, Update, chain, closing, says, thread
from tests.engine.streamed import events_before, events_of, turns


async def note(state: Log, writer: Any) -> Update:
    writer("note")
    return {"log": ["note"]}


async def ask(state: Log) -> Update:
    return {"log": [interrupt("ok?")]}


def under(name: str, graph: Any) -> Any:
    """A node that is a graph."""
    return name, graph


def names(ns: tuple[str, ...]) -> tuple[str, ...]:
    """A namespace without its task ids."""
    return tuple(level.split(":")[0] for level in ns)


async def test_the_events_of_a_subgraph_come_under_the_task_that_runs_it(saver: Any) -> None:
    graph = chain(under("sub", chain(note)), says("b"), saver=saver)
    events = await events_of(
        graph, {"log": []}, thread(), stream_mode=["tasks", "updates", "custom", "values"], subgraphs=True
    )
    sub = next(data["id"] for _, mode, data in events if mode == "tasks" and data["name"] == "sub")
    inner = [(mode, data) for ns, mode, data in events if ns == (f"sub:{sub}",)]
    assert [mode for mode, _ in inner] == ["values", "tasks", "custom", "updates", "tasks", "values"]
    assert ("updates", {"note": {"log": ["note"]}}) in inner
    outer = [data for ns, mode, data in events if mode == "updates" and ns == ()]
    assert outer == [{"sub": {"log": ["note"]}}, {"b": {"log": ["b"]}}]


async def test_without_subgraphs_only_the_own_events_come() -> None:
    graph = chain(under("sub", chain(note)), says("b"))
    assert await events_of(graph, {"log": []}, stream_mode=["custom", "updates"]) == [
        ("updates", {"sub": {"log": ["note"]}}),
        ("updates", {"b": {"log": ["b"]}}),
    ]


async def test_each_level_adds_to_the_namespace(saver: Any) -> None:
    graph = chain(under("outer", chain(under("inner", chain(note)))), saver=saver)
    events = await events_of(graph, {"log": []}, thread(), stream_mode="custom", subgraphs=True)
    assert [(names(ns), data) for ns, data in events] == [(("outer", "inner"), "note")]


async def test_a_second_subgraph_call_of_a_node_has_a_namespace_of_its_own() -> None:
    async def node(state: Log) -> None:
        await chain(note).ainvoke({"log": []})
        await chain(note).ainvoke({"log": []})

    events = await events_of(chain(node), {"log": []}, stream_mode="custom", subgraphs=True)
    assert [names(ns) for ns, _ in events] == [("node",), ("node", "1")]
    assert events[0][0][0] == events[1][0][0]


async def test_a_subgraph_with_a_history_of_its_own_has_a_namespace_that_stays(saver: Any) -> None:
    sub = StateGraph(Log).add_node(note).add_edge(START, "note").compile(checkpointer=True)
    graph = chain(under("sub", sub), saver=saver)
    events = await events_of(graph, {"log": []}, thread(), stream_mode=["custom", "checkpoints"], subgraphs=True)
    assert {ns for ns, mode, _ in events if mode == "custom"} == {("sub",)}
    inner = [data for ns, mode, data in events if ns == ("sub",) and mode == "checkpoints"]
    assert {data["config"]["configurable"]["checkpoint_ns"] for data in inner} == {"sub"}


async def test_checkpoints_name_the_states_of_subgraphs(saver: Any) -> None:
    kept, lost = chain(ask), StateGraph(Log).add_node(note).add_edge(START, "note").compile(checkpointer=False)
    graph = chain(under("lost", lost), under("kept", kept), saver=saver)
    events = await events_of(graph, {"log": []}, thread(), stream_mode="checkpoints")
    tasks = {task["name"]: task for event in events for task in event["tasks"]}
    assert tasks["lost"]["state"] is None
    state = await graph.aget_state(tasks["kept"]["state"])
    assert state.next == ("ask",)


async def test_a_question_of_a_subgraph_shows_at_each_level(saver: Any) -> None:
    graph = chain(under("sub", chain(ask)), saver=saver)
    events = await events_of(graph, {"log": []}, thread(), stream_mode=["updates", "values"], subgraphs=True)
    question = (await graph.aget_state(thread())).interrupts[0]
    assert [(names(ns), mode, data) for ns, mode, data in events][-4:] == [
        (("sub",), "updates", {"__interrupt__": (question,)}),
        (("sub",), "values", {"log": [], "__interrupt__": (question,)}),
        ((), "updates", {"__interrupt__": (question,)}),
        ((), "values", {"log": [], "__interrupt__": (question,)}),
    ]


async def test_a_stop_in_a_subgraph_shows_once_at_the_root(saver: Any) -> None:
    sub = chain(says("a"), says("b"), interrupt_before=["b"])
    graph = chain(under("sub", sub), saver=saver)
    events = await events_of(graph, {"log": []}, thread(), stream_mode="updates", subgraphs=True)
    assert [(names(ns), data) for ns, data in events] == [
        (("sub",), {"a": {"log": ["a"]}}),
        ((), {"__interrupt__": ()}),
    ]


async def test_a_resumed_subgraph_shows_where_it_stands(saver: Any) -> None:
    graph = chain(under("sub", chain(says("a"), ask)), saver=saver)
    await graph.ainvoke({"log": []}, thread())
    answer = Command[Any](resume="yes")
    events = await events_of(graph, answer, thread(), stream_mode=["values", "updates"], subgraphs=True)
    assert [(names(ns), mode, data) for ns, mode, data in events] == [
        ((), "values", {"log": []}),
        (("sub",), "values", {"log": ["a"]}),
        (("sub",), "updates", {"ask": {"log": ["yes"]}}),
        (("sub",), "values", {"log": ["a", "yes"]}),
        ((), "updates", {"sub": {"log": ["a", "yes"]}}),
        ((), "values", {"log": ["a", "yes"]}),
    ]


async def test_a_command_for_the_parent_shows_as_the_update_of_its_node() -> None:
    async def up(state: Log) -> Command[Any]:
        return Command(graph=Command.PARENT, update={"log": ["up"]})

    graph = chain(under("sub", chain(up)))
    events = await events_of(graph, {"log": []}, stream_mode="updates", subgraphs=True)
    assert events == [((), {"sub": {"log": ["up"]}})]


async def test_a_failure_shows_at_each_level() -> None:
    async def fail(state: Log) -> None:
        raise ValueError("broken")

    graph = chain(under("sub", chain(fail)))
    events = await events_before(ValueError, graph, {"log": []}, stream_mode="tasks", subgraphs=True)
    assert [(names(ns), repr(data["error"])) for ns, data in events if "error" in data] == [
        (("sub",), "ValueError('broken')"),
        ((), "ValueError('broken')"),
    ]


# Streams that nodes read ------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_sync", [False, True])
async def test_a_node_reads_the_stream_of_its_subgraph_and_so_does_the_root(is_sync: bool, saver: Any) -> None:
    sub = chain(note, says("b"))

    async def reads(state: Log) -> Update:
        return {"log": [event async for event in sub.astream({"log": []}, stream_mode=["custom", "updates"])]}

    def reads_sync(state: Log) -> Update:
        return {"log": list(sub.stream({"log": []}, stream_mode=["custom", "updates"]))}

    graph = chain(("reads", reads_sync if is_sync else reads), saver=saver)
    events = await events_of(graph, {"log": []}, thread(), stream_mode=["custom", "updates"], subgraphs=True)
    own = [("custom", "note"), ("updates", {"note": {"log": ["note"]}}), ("updates", {"b": {"log": ["b"]}})]
    assert [(mode, data) for ns, mode, data in events if names(ns) == ("reads",)] == own
    assert events[-1] == ((), "updates", {"reads": {"log": own}})


async def test_a_node_that_reads_sees_the_namespace_from_the_root() -> None:
    seen: list[Any] = []

    async def reads(state: Log) -> None:
        sub = chain(under("inner", chain(note)))
        seen.extend([ns async for ns, _ in sub.astream({"log": []}, stream_mode="custom", subgraphs=True)])

    await chain(reads).ainvoke({"log": []})
    assert [names(ns) for ns in seen] == [("reads", "inner")]


async def test_a_call_on_a_thread_of_its_own_is_no_subgraph() -> None:
    seen: list[Any] = []
    sub = chain(note, saver=InMemorySaver())

    async def reads(state: Log) -> None:
        stream = sub.astream({"log": []}, thread("own"), stream_mode="custom", subgraphs=True)
        seen.extend([event async for event in stream])

    events = await events_of(chain(reads), {"log": []}, stream_mode="custom", subgraphs=True)
    assert (seen, events) == ([((), "note")], [])


def endless() -> Any:
    """A subgraph that goes on until it is ended."""

    async def loop(state: Log, writer: Any) -> Command[Any]:
        writer("again")
        await asyncio.sleep(0)
        return Command(goto="loop")

    return StateGraph(Log).add_node(loop).add_edge(START, "loop").compile()


def others() -> set[str]:
    """The names of the asyncio tasks beside this one that are no part of the loop's own clearing up."""
    current = asyncio.current_task()
    return {task.get_name() for task in asyncio.all_tasks() if task is not current}


@pytest.mark.parametrize("how", ["break", "keep", "return", "raise", "ask"])
async def test_a_node_that_leaves_a_stream_ends_the_run_behind_it(how: str, saver: Any) -> None:
    kept: list[Any] = []
    before = others()

    async def reads(state: Log) -> Update:
        stream = endless().astream({"log": []}, stream_mode="custom")
        if how == "keep":
            kept.append(stream)
        async for _ in stream:
            if how == "return":
                return {"log": ["left"]}
            if how == "raise":
                raise ValueError("left")
            if how == "ask":
                return {"log": [interrupt("go on?")]}
            break
        return {"log": ["left"]}

    graph = chain(reads, saver=saver)
    if how == "raise":
        with pytest.raises(ValueError, match="left"):
            await asyncio.wait_for(graph.ainvoke({"log": []}, thread()), 20)
    else:
        result = await asyncio.wait_for(graph.ainvoke({"log": []}, thread()), 20)
        assert result["log"] == ([] if how == "ask" else ["left"])
    gc.collect()
    await turns()
    assert others() == before
    if how == "ask":
        answered = await asyncio.wait_for(graph.ainvoke(Command(resume="yes"), thread()), 20)
        assert answered["log"] == ["yes"]


async def test_a_sync_node_that_leaves_a_stream_ends_the_run_behind_it() -> None:
    before = others()

    def reads(state: Log) -> Update:
        for event in endless().stream({"log": []}, stream_mode="custom"):
            return {"log": [event]}
        return {}

    assert await asyncio.wait_for(chain(reads).ainvoke({"log": []}), 20) == {"log": ["again"]}
    await turns()
    assert others() == before


async def test_two_streams_that_a_node_reads_at_once_may_both_ask(saver: Any) -> None:
    async def read() -> list[Any]:
        return [event async for event in chain(ask).astream({"log": []})]

    async def node(state: Log) -> Update:
        first, second = await asyncio.gather(read(), read())
        return {"log": [*first, *second]}

    graph = chain(node, saver=saver)
    await graph.ainvoke({"log": []}, thread())
    questions = (await graph.aget_state(thread())).interrupts
    assert len(questions) == 2
    answers = {question.id: number for number, question in enumerate(questions)}
    result = await graph.ainvoke(Command(resume=answers), thread())
    assert sorted(update["ask"]["log"] for update in result["log"]) == [[0], [1]]


async def test_a_slow_root_reader_slows_the_subgraph() -> None:
    steps = 0

    async def loop(state: Log) -> Command[Any]:
        nonlocal steps
        steps += 1
        return Command(goto="loop")

    graph = chain(under("sub", StateGraph(Log).add_node(loop).add_edge(START, "loop").compile()))
    async with closing(graph.astream({"log": []}, subgraphs=True)) as events:
        await anext(events)
        await turns(20 * DEFAULT_SIZE)
        assert steps <= DEFAULT_SIZE + 2

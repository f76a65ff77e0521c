"""Runs that are cancelled in the middle of a fault: whatever they were at, nothing is left running."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

import pytest

from everstep.constants import START
from everstep.graph.builder import StateGraph
from everstep.policies import RetryPolicy
from everstep.types import TimeoutPolicy
from tests.engine.graphs import Log, Update, says, thread

SLOW_RETRY = RetryPolicy(initial_interval=3600.0, max_interval=3600.0)


class Scene:
    """What a cancelled run was at: something that waits, and tells when it has been entered and left."""

    def __init__(self) -> None:
        self.entered, self.left = asyncio.Event(), asyncio.Event()

    async def waits(self, state: Log) -> None:
        self.entered.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.left.set()

    async def fails(self, state: Log) -> None:
        raise ConnectionError

    async def fails_and_is_waited_for(self, state: Log) -> None:
        self.entered.set()
        self.left.set()
        raise ConnectionError


def a_node(scene: Scene) -> StateGraph:
    return StateGraph(Log).add_node("n", scene.waits)


def a_handler(scene: Scene) -> StateGraph:
    return StateGraph(Log).add_node("n", scene.fails, error_handler=scene.waits)


def a_retry(scene: Scene) -> StateGraph:
    return StateGraph(Log).add_node("n", scene.fails_and_is_waited_for, retry_policy=SLOW_RETRY)


def a_watched_node(scene: Scene) -> StateGraph:
    timeout = TimeoutPolicy(run_timeout=3600.0, idle_timeout=3600.0)
    return StateGraph(Log).add_node("n", scene.waits, timeout=timeout)


def a_subgraph(scene: Scene) -> StateGraph:
    return StateGraph(Log).add_node("n", a_node(scene).add_edge(START, "n").compile())


def a_handler_in_a_subgraph(scene: Scene) -> StateGraph:
    return StateGraph(Log).add_node("n", a_handler(scene).add_edge(START, "n").compile())


def a_subgraph_as_a_handler(scene: Scene) -> StateGraph:
    return StateGraph(Log).add_node("n", scene.fails, error_handler=a_node(scene).add_edge(START, "n").compile())


SCENES = [
    a_node,
    a_handler,
    a_retry,
    a_watched_node,
    a_subgraph,
    a_handler_in_a_subgraph,
    a_subgraph_as_a_handler,
]


async def by_task(graph: Any, scene: Scene, **options: Any) -> None:
    run = asyncio.create_task(graph.ainvoke({"log": []}, thread(), **options))
    await scene.entered.wait()
    await asyncio.sleep(0)
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run


async def by_reader(graph: Any, scene: Scene, **options: Any) -> None:
    events = graph.astream({"log": []}, thread(), stream_mode=["updates", "values"], subgraphs=True, **options)
    async with contextlib.aclosing(events):
        async for _ in events:
            if scene.entered.is_set():
                break
            # The values that a run begins with; then something else has to wake the reader.
            reading = asyncio.ensure_future(anext(events))
            await scene.entered.wait()
            reading.cancel()
            with contextlib.suppress(asyncio.CancelledError, StopAsyncIteration):
                await reading
            break


@pytest.mark.parametrize(("durability", "siblings"), [("sync", 0), ("async", 1), ("exit", 1)])
@pytest.mark.parametrize("cancel", [by_task, by_reader])
@pytest.mark.parametrize("make", SCENES)
async def test_nothing_is_left_running(
    make: Callable[[Scene], StateGraph], cancel: Any, durability: str, siblings: int, saver: Any
) -> None:
    scene = Scene()
    builder = make(scene).add_edge(START, "n")
    if siblings:
        builder.add_node(*says("sibling")).add_edge(START, "sibling")
    graph = builder.compile(saver)
    before = asyncio.all_tasks()
    await cancel(graph, scene, durability=durability)
    assert scene.left.is_set()
    assert asyncio.all_tasks() == before
    assert (await saver.aget_thread("t")).status == "cancelled"
    state = await graph.aget_state(thread())
    assert state.values["log"] == ["sibling"] * siblings
    handled = make in (a_handler, a_subgraph_as_a_handler)
    assert state.next == ("__error_handler__n" if handled else "n",)


async def test_a_node_that_finishes_while_it_is_cancelled_is_kept(saver: Any) -> None:
    entered = asyncio.Event()

    async def handle(state: Log) -> Update:
        entered.set()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        return {"log": ["handled"]}

    graph = StateGraph(Log).add_node("n", Scene().fails, error_handler=handle).add_edge(START, "n").compile(saver)
    run = asyncio.create_task(graph.ainvoke({"log": []}, thread()))
    await entered.wait()
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert await graph.ainvoke(None, thread()) == {"log": ["handled"]}
    assert (await saver.aget_thread("t")).status == "done"

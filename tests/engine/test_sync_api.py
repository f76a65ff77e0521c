"""The sync methods for plain scripts, and sync nodes that use graphs themselves."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from everstep.constants import START
from everstep.context import interrupt
from everstep.graph.builder import StateGraph
from everstep.types import Command, Send, StateUpdate
from everstep_savers.memory import InMemorySaver
from everstep_savers.sql.saver import SQLSaver
from tests.engine.graphs import Log, Update, chain, says, thread


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def closed_saver(request: pytest.FixtureRequest) -> Any:
    """A saver that no event loop has opened yet; the bridge's loop will."""
    if request.param == "memory":
        return InMemorySaver()
    return SQLSaver.from_url(request.getfixturevalue(f"{request.param}_url"))


async def ask(state: Log) -> Update:
    return {"log": [interrupt("q")]}


def test_a_script_runs_a_graph_reads_it_and_answers_it(closed_saver: Any) -> None:
    graph = chain(says("a"), ask, says("b"), saver=closed_saver)
    assert [q.value for q in graph.invoke({"log": []}, thread())["__interrupt__"]] == ["q"]
    assert graph.get_state(thread()).next == ("ask",)
    assert list(graph.stream(Command(resume="A"), thread())) == [{"ask": {"log": ["A"]}}, {"b": {"log": ["b"]}}]
    assert [s.values["log"] for s in graph.get_state_history(thread(), limit=2)] == [["a", "A", "b"], ["a", "A"]]
    config = graph.update_state(thread(), {"log": ["by hand"]})
    assert graph.get_state(thread()).config == config
    graph.bulk_update_state(thread(), [[StateUpdate({"log": [1]})], [StateUpdate({"log": [2]})]])
    assert graph.invoke(None, thread()) == {"log": ["a", "A", "b", "by hand", 1, 2]}
    close(closed_saver)


def close(saver: Any) -> None:
    """Close a saver on the loop that opened it: that of the bridge."""

    async def close_it(state: Log) -> None:
        await saver.aclose()

    chain(close_it).invoke({"log": []})


def test_errors_of_nodes_reach_the_script_as_they_are() -> None:
    async def fail(state: Log) -> None:
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        chain(fail).invoke({"log": []})
    with pytest.raises(ValueError, match="broken"):
        list(chain(says("a"), fail).stream({"log": []}))


def test_leaving_a_stream_early_ends_its_run() -> None:
    left = threading.Event()

    async def wait(state: Log) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            left.set()

    stream: Any = chain(says("a"), wait).stream({"log": []})
    assert next(stream) == {"a": {"log": ["a"]}}
    stream.close()
    assert left.wait(10)


def test_scripts_in_several_threads_share_the_bridge() -> None:
    graph = chain(says("a"), says("b"))
    results: list[Any] = [None] * 8

    def run(number: int) -> None:
        results[number] = graph.invoke({"log": [number]})

    threads = [threading.Thread(target=run, args=(number,)) for number in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(10)
    assert results == [{"log": [number, "a", "b"]} for number in range(8)]


SYNC_CALLS: dict[str, Callable[[Any], Any]] = {
    "invoke": lambda graph: graph.invoke({"log": []}, thread()),
    "stream": lambda graph: list(graph.stream({"log": []}, thread())),
    "get_state": lambda graph: graph.get_state(thread()),
    "get_state_history": lambda graph: list(graph.get_state_history(thread())),
    "update_state": lambda graph: graph.update_state(thread(), {}),
    "bulk_update_state": lambda graph: graph.bulk_update_state(thread(), [[StateUpdate({})]]),
}


@pytest.mark.parametrize("name", SYNC_CALLS)
async def test_a_sync_method_in_a_running_loop_raises_at_once_and_names_the_async_one(name: str) -> None:
    graph = chain(says("a"), saver=InMemorySaver())
    with pytest.raises(RuntimeError) as caught:
        SYNC_CALLS[name](graph)
    assert str(caught.value) == f"{name}() would block the running event loop; use the async a{name}() here"


# Sync nodes that use graphs -----------------------------------------------------------------------------------


async def test_a_sync_node_may_invoke_and_stream_another_graph(saver: Any) -> None:
    inner = chain(says("x"), says("y"))
    loops: list[Any] = []

    async def where(state: Log) -> None:
        loops.append(asyncio.get_running_loop())

    def outer(state: Log) -> Update:
        chain(where).invoke({"log": []})
        streamed = [name for event in inner.stream({"log": []}) for name in event]
        return {"log": [*inner.invoke({"log": []})["log"], *streamed]}

    graph = chain(outer, says("after"), saver=saver)
    assert await graph.ainvoke({"log": []}, thread()) == {"log": ["x", "y", "x", "y", "after"]}
    assert loops == [asyncio.get_running_loop()]


async def test_a_sync_node_may_use_the_threads_of_its_own_saver(saver: Any) -> None:
    other = chain(says("x"), saver=saver)

    def outer(state: Log) -> Update:
        other.invoke({"log": []}, thread("other"))
        return {"log": other.get_state(thread("other")).values["log"]}

    assert await chain(outer, saver=saver).ainvoke({"log": []}, thread()) == {"log": ["x"]}


def test_a_script_may_run_a_sync_node_that_invokes_a_graph() -> None:
    inner = chain(says("x"))

    def outer(state: Log) -> Update:
        return {"log": inner.invoke({"log": []})["log"]}

    assert chain(outer).invoke({"log": []}) == {"log": ["x"]}


async def test_the_error_of_an_inner_graph_comes_out_of_the_sync_node() -> None:
    def fail(state: Log) -> None:
        raise ValueError("inner")

    inner = chain(fail)

    def outer(state: Log) -> None:
        inner.invoke({"log": []})

    with pytest.raises(ValueError, match="inner"):
        await chain(outer).ainvoke({"log": []})


async def test_more_sync_nodes_than_threads_may_wait_for_inner_graphs_with_sync_nodes() -> None:
    def leaf(state: Log) -> Update:
        return {"log": ["leaf"]}

    inner = chain(leaf)

    def outer(state: Log) -> Update:
        return {"log": inner.invoke({"log": []})["log"]}

    builder = StateGraph(Log).add_node(outer)
    builder.add_conditional_edges(START, lambda state: [Send("outer", {}) for _ in range(80)], ["outer"])
    run = asyncio.create_task(builder.compile().ainvoke({"log": []}))
    done, _ = await asyncio.wait([run], timeout=10)
    assert done, "all threads wait for one another"
    assert run.result() == {"log": ["leaf"] * 80}

"""Streams: which events come, in which order, and who waits for whom."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from everstep.config import get_stream_writer
from everstep.constants import END, START
from everstep.errors import ConfigError
from everstep.graph.builder import StateGraph
from everstep.stream.buffer import DEFAULT_SIZE
from everstep.types import Command, Send
from tests.engine.graphs import AT_ONCE, Log, Update, chain, closing, says, side_by_side, thread
from tests.engine.watched import WatchedSaver


async def events_of(graph: Any, given: Any, config: Any = None, **options: Any) -> list[Any]:
    return [event async for event in graph.astream(given, config, **options)]


async def quiet(state: Log) -> None:
    """A node without a result."""


async def test_values_are_the_state_at_the_beginning_and_after_each_step(saver: Any) -> None:
    graph = chain(says("a"), quiet, says("b"), saver=saver)
    assert await events_of(graph, {"log": ["in"]}, thread(), stream_mode="values") == [
        {"log": ["in"]},
        {"log": ["in", "a"]},
        {"log": ["in", "a", "b"]},
    ]


async def test_updates_are_what_each_node_returned(saver: Any) -> None:
    graph = chain(says("a"), quiet, says("b"), saver=saver)
    expected = [{"a": {"log": ["a"]}}, {"quiet": None}, {"b": {"log": ["b"]}}]
    assert await events_of(graph, {"log": ["in"]}, thread()) == expected
    assert await events_of(graph, {"log": ["in"]}, thread(), stream_mode="updates") == expected


async def test_updates_come_as_tasks_finish_and_values_at_the_barrier() -> None:
    b_done, c_done = asyncio.Event(), asyncio.Event()

    async def a(state: Log) -> Update:
        await c_done.wait()
        return {"log": ["a"]}

    async def b(state: Log) -> Update:
        b_done.set()
        return {"log": ["b"]}

    async def c(state: Log) -> Update:
        await b_done.wait()
        await asyncio.sleep(0)
        c_done.set()
        return {"log": ["c"]}

    events = await events_of(side_by_side(a, b, c), {"log": []}, stream_mode=["values", "updates"])
    assert events == [
        ("values", {"log": []}),
        ("updates", {"b": {"log": ["b"]}}),
        ("updates", {"c": {"log": ["c"]}}),
        ("updates", {"a": {"log": ["a"]}}),
        ("values", {"log": ["a", "b", "c"]}),
    ]


async def test_an_update_is_seen_before_its_siblings_have_finished() -> None:
    seen = asyncio.Event()

    async def slow(state: Log) -> Update:
        await seen.wait()
        return {"log": ["slow"]}

    events = []
    async for event in side_by_side(slow, says("quick")).astream({"log": []}):
        events.append(event)
        seen.set()
    assert events == [{"quick": {"log": ["quick"]}}, {"slow": {"log": ["slow"]}}]


async def test_nodes_write_to_the_custom_stream_in_their_order() -> None:
    async def injected(state: Log, writer: Any) -> None:
        writer({"n": 1})
        writer({"n": 2})

    async def looked_up(state: Log) -> None:
        get_stream_writer()("3")

    def in_a_thread(state: Log, writer: Any) -> None:
        writer("4")
        writer("5")

    graph = chain(injected, looked_up, in_a_thread)
    assert await events_of(graph, {"log": []}, stream_mode="custom") == [{"n": 1}, {"n": 2}, "3", "4", "5"]


async def test_a_custom_event_comes_before_the_update_of_its_node() -> None:
    def work(state: Log, writer: Any) -> Update:
        writer("from a thread")
        return {"log": ["work"]}

    events = await events_of(chain(work), {"log": []}, stream_mode=["custom", "updates"])
    assert events == [("custom", "from a thread"), ("updates", {"work": {"log": ["work"]}})]


async def test_what_is_written_and_not_read_does_no_harm() -> None:
    async def work(state: Log, writer: Any) -> Update:
        writer("nobody reads this")
        return {"log": ["work"]}

    assert await chain(work).ainvoke({"log": []}) == {"log": ["work"]}
    assert await events_of(chain(work), {"log": []}) == [{"work": {"log": ["work"]}}]


async def test_ainvoke_in_another_mode_returns_its_events(saver: Any) -> None:
    graph = chain(says("a"), saver=saver)
    assert await graph.ainvoke({"log": []}, thread(), stream_mode="updates") == [{"a": {"log": ["a"]}}]


async def test_output_keys_limit_what_is_returned_and_streamed() -> None:
    async def a(state: Log) -> Update:
        return {"log": ["a"], "value": 1}

    graph = chain(a)
    assert await graph.ainvoke({"log": []}, output_keys="value") == 1
    assert await graph.ainvoke({"log": []}, output_keys=["value"]) == {"value": 1}
    assert await events_of(graph, {"log": []}, output_keys=["value"]) == [{"a": {"value": 1}}]
    with pytest.raises(ConfigError) as caught:
        await graph.ainvoke({"log": []}, output_keys=["valeu"])
    assert str(caught.value) == "output key 'valeu' is not a key of the graph. Did you mean 'value'?"


@pytest.mark.parametrize("mode", ["vlaues", ["updates", "vlaues"]])
async def test_an_unknown_mode_is_refused_before_anything_runs(mode: Any, saver: Any) -> None:
    graph = chain(says("a"), saver=saver)
    with pytest.raises(ConfigError) as caught:
        await events_of(graph, {"log": []}, thread(), stream_mode=mode)
    assert str(caught.value) == (
        "stream_mode 'vlaues' is not one of 'values', 'updates', 'custom', 'messages', 'tasks', 'checkpoints', "
        "'debug'. "
        "Did you mean 'values'?"
    )
    assert await saver.aget_thread("t") is None


async def test_a_failing_run_gives_what_came_before_and_then_its_error(saver: Any) -> None:
    async def fail(state: Log) -> None:
        raise ValueError("broken")

    events = chain(says("a"), fail, saver=saver).astream({"log": []}, thread())
    assert await anext(events) == {"a": {"log": ["a"]}}
    with pytest.raises(ValueError, match="broken"):
        await anext(events)


async def test_a_failed_attempt_gives_no_update() -> None:
    attempts = 0

    async def flaky(state: Log, writer: Any) -> Update:
        nonlocal attempts
        attempts += 1
        writer(attempts)
        if attempts == 1:
            raise ConnectionError
        return {"log": [attempts]}

    graph = chain(flaky, node={"retry_policy": AT_ONCE})
    assert await events_of(graph, {"log": []}, stream_mode=["updates", "custom"]) == [
        ("custom", 1),
        ("custom", 2),
        ("updates", {"flaky": {"log": [2]}}),
    ]


async def test_a_resumed_run_shows_where_it_stands_and_what_was_done_before(saver: Any) -> None:
    is_up = False

    async def fail(state: Log) -> Update:
        if not is_up:
            await asyncio.sleep(0)
            raise ConnectionError
        return {"log": ["fixed"]}

    graph = side_by_side(fail, says("done"), saver=saver)
    with pytest.raises(ConnectionError):
        await graph.ainvoke({"log": []}, thread())
    is_up = True
    assert await events_of(graph, None, thread(), stream_mode=["values", "updates"]) == [
        ("values", {"log": []}),
        ("updates", {"done": {"log": ["done"]}, "__metadata__": {"cached": True}}),
        ("updates", {"fail": {"log": ["fixed"]}}),
        ("values", {"log": ["done", "fixed"]}),
    ]


async def test_in_sync_durability_what_a_reader_sees_is_stored(saver: Any) -> None:
    graph = chain(says("a"), says("b"), saver=saver)
    async for mode, event in graph.astream({"log": []}, thread(), stream_mode=["values"], durability="sync"):
        assert mode == "values"
        assert (await graph.aget_state(thread())).values["log"][: len(event["log"])] == event["log"]


# Back-pressure ----------------------------------------------------------------------------------------------


async def turns(number: int = 50) -> None:
    """Give everything else a good many turns of the loop."""
    for _ in range(number):
        await asyncio.sleep(0)


async def test_a_reader_that_stops_reading_stops_the_run() -> None:
    steps = 0

    async def loop(state: Log) -> Command[Any]:
        nonlocal steps
        steps += 1
        return Command(update={"value": steps}, goto="loop")

    graph = StateGraph(Log).add_node(loop).add_edge(START, "loop").compile()
    async with closing(graph.astream({"log": []})) as events:
        await anext(events)
        await turns(20 * DEFAULT_SIZE)
        before = steps
        await turns(20 * DEFAULT_SIZE)
        assert steps == before <= DEFAULT_SIZE + 2
        assert [event["loop"]["value"] async for event, _ in _numbered(events, 3 * DEFAULT_SIZE)] == list(
            range(2, 3 * DEFAULT_SIZE + 2)
        )


async def _numbered(events: Any, limit: int) -> Any:
    for number in range(limit):
        yield await anext(events), number


async def test_a_step_of_many_tasks_reaches_a_slow_reader_whole_and_in_order() -> None:
    async def work(state: Log) -> Update:
        return {"log": [state["value"]]}

    builder = StateGraph(Log).add_node(work)
    builder.add_conditional_edges(START, lambda state: [Send("work", {"value": n}) for n in range(300)], ["work"])
    events = []
    async for event in builder.compile().astream({"log": []}):
        await turns(3)
        events.append(event["work"]["log"][0])
    assert events == list(range(300))


async def test_the_end_of_a_run_reaches_a_reader_who_comes_late(saver: Any) -> None:
    done = asyncio.Event()

    async def tell(number: int, commit: Any) -> None:
        if commit.status == "done":
            done.set()

    graph = chain(says("a"), says("b"), saver=WatchedSaver(saver, after=tell))
    async with closing(graph.astream({"log": []}, thread())) as events:
        await anext(events)
        await done.wait()
        assert [event async for event in events] == [{"b": {"log": ["b"]}}]


async def test_two_streams_of_one_graph_do_not_mix() -> None:
    graph = chain(says("a"), says("b"))

    async def run(name: str) -> list[Any]:
        return await events_of(graph, {"log": [name]}, stream_mode="values")

    for name, events in zip("xy", await asyncio.gather(run("x"), run("y")), strict=True):
        assert events == [{"log": [name]}, {"log": [name, "a"]}, {"log": [name, "a", "b"]}]


async def test_a_thread_that_writes_after_its_reader_has_left_is_not_held_up() -> None:
    entered, left, ended = asyncio.Event(), threading.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def work(state: Log, writer: Any) -> None:
        loop.call_soon_threadsafe(entered.set)
        left.wait(10)
        for number in range(10 * DEFAULT_SIZE):
            writer(number)
        ended.set()

    graph = StateGraph(Log).add_node(work).add_edge(START, "work").add_edge("work", END).compile()

    async def read() -> None:
        async for _ in graph.astream({"log": []}, stream_mode="custom"):
            pass

    reader = asyncio.create_task(read())
    await entered.wait()
    reader.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reader
    left.set()
    assert await asyncio.to_thread(ended.wait, 10)

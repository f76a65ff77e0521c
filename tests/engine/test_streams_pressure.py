"""Slow readers, readers that leave, and readers that forget: who waits, and what ends."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from everstep.constants import END, START
from everstep.errors import NodeTimeoutError
from everstep.graph.builder import StateGraph
from everstep.policies import TimeoutPolicy
from everstep.stream.buffer import DEFAULT_SIZE
from everstep.types import Command, Send
from tests.engine.graphs import Log, Update, chain, closing, says, thread
from tests.engine.streamed import events_of, turns


def others() -> set[asyncio.Task[Any]]:
    """The asyncio tasks beside this one."""
    return asyncio.all_tasks() - {asyncio.current_task()}


async def until_only(tasks: set[asyncio.Task[Any]]) -> None:
    """Wait until no asyncio tasks are left but these and this one."""
    while rest := others() - tasks:
        await asyncio.wait(rest)


async def test_a_sync_node_never_gets_further_ahead_of_its_reader_than_the_buffer_holds() -> None:
    written, most, total = 0, 0, 20_000

    def work(state: Log, writer: Any) -> None:
        nonlocal written
        for number in range(total):
            writer(number)
            written += 1

    read = 0
    async for number in chain(work).astream({"log": []}, stream_mode="custom"):
        assert number == read
        read += 1
        most = max(most, written - read)
    assert (read, written) == (total, total)
    assert most <= DEFAULT_SIZE


async def test_an_async_node_waits_for_its_reader_where_it_waits_anyway() -> None:
    written, most, total = 0, 0, 5_000

    async def work(state: Log, writer: Any) -> None:
        nonlocal written
        for number in range(total):
            writer(number)
            written += 1
            await asyncio.sleep(0)

    read = 0
    async for number in chain(work).astream({"log": []}, stream_mode="custom"):
        assert number == read
        read += 1
        most = max(most, written - read)
        await turns(3)  # slower than the node
    assert (read, written) == (total, total)
    assert most <= DEFAULT_SIZE + 1


async def test_async_nodes_side_by_side_wait_for_their_reader() -> None:
    written, most = 0, 0

    async def work(state: Log, writer: Any) -> None:
        nonlocal written
        for number in range(500):
            writer(number)
            written += 1
            await asyncio.sleep(0)

    builder = StateGraph(Log).add_node(work)
    builder.add_conditional_edges(START, lambda state: [Send("work", {})] * 10, ["work"])
    read = 0
    async for _ in builder.compile().astream({"log": []}, stream_mode="custom"):
        read += 1
        most = max(most, written - read)
        await turns(3)
    assert read == written == 5_000
    assert most <= DEFAULT_SIZE + 10


async def test_of_many_tasks_in_one_step_the_later_ones_begin_once_the_earlier_ones_are_read() -> None:
    begun = 0

    async def work(state: Log) -> Update:
        nonlocal begun
        begun += 1
        return {"log": [begun]}

    builder = StateGraph(Log).add_node(work)
    builder.add_conditional_edges(START, lambda state: [Send("work", {})] * 1000, ["work"])
    async with closing(builder.compile().astream({"log": []})) as events:
        await anext(events)
        await turns(20 * DEFAULT_SIZE)
        assert begun <= DEFAULT_SIZE + 2
        assert len([event async for event in events]) == 999


async def test_a_cancelled_node_that_waits_for_its_reader_is_cancelled_at_once() -> None:
    cancelled = False

    async def work(state: Log, writer: Any) -> None:
        nonlocal cancelled
        try:
            while True:
                writer("x")
                await asyncio.sleep(0)
        except asyncio.CancelledError:
            cancelled = True
            raise

    before = others()
    async with closing(chain(work).astream({"log": []}, stream_mode="custom")) as events:
        await anext(events)
        await turns(20 * DEFAULT_SIZE)
    assert cancelled
    assert others() == before


async def test_a_node_whose_time_is_up_while_it_waits_for_its_reader_times_out() -> None:
    time_is_up = asyncio.Event()

    async def work(state: Log, writer: Any) -> None:
        try:
            while True:
                writer("x")
                await asyncio.sleep(0)
        except asyncio.CancelledError:
            time_is_up.set()
            raise

    graph = chain(work, node={"timeout": TimeoutPolicy(run_timeout=0.1)})
    async with closing(graph.astream({"log": []}, stream_mode="custom")) as events:
        await anext(events)
        await time_is_up.wait()
        assert [await anext(events) for _ in range(DEFAULT_SIZE)] == ["x"] * DEFAULT_SIZE
        with pytest.raises(NodeTimeoutError):
            await anext(events)


async def test_an_async_node_that_blocks_the_loop_until_its_threads_have_written_goes_on() -> None:
    async def work(state: Log, writer: Any) -> None:
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(writer, range(10 * DEFAULT_SIZE)))

    events = await events_of(chain(work), {"log": []}, stream_mode="custom")
    assert sorted(events) == list(range(10 * DEFAULT_SIZE))


async def test_a_stream_nobody_reads_costs_the_node_no_wait() -> None:
    def work(state: Log, writer: Any) -> Update:
        for number in range(10 * DEFAULT_SIZE):
            writer(number)
        return {"log": ["work"]}

    assert await chain(work).ainvoke({"log": []}) == {"log": ["work"]}
    assert await events_of(chain(work), {"log": []}) == [{"work": {"log": ["work"]}}]


# Readers that leave -----------------------------------------------------------------------------------------


def endless(saver: Any = None) -> Any:
    """A graph that goes on until it is ended."""

    async def loop(state: Log) -> Command[Any]:
        await asyncio.sleep(0)
        return Command(update={"value": 1}, goto="loop")

    return StateGraph(Log).add_node(loop).add_edge(START, "loop").compile(saver)


async def test_breaking_out_ends_the_run(saver: Any) -> None:
    before = others()
    async for _ in endless(saver).astream({"log": []}, thread()):
        break
    await until_only(before)
    assert (await saver.aget_thread("t")).status == "cancelled"


async def test_an_iterator_that_is_forgotten_ends_the_run(saver: Any) -> None:
    before = others()
    events = endless(saver).astream({"log": []}, thread())
    await anext(events)
    del events
    gc.collect()
    await until_only(before)
    assert (await saver.aget_thread("t")).status == "cancelled"


async def test_an_iterator_that_is_never_begun_runs_nothing(saver: Any) -> None:
    before = others()
    events = endless(saver).astream({"log": []}, thread())
    await turns()
    assert others() == before
    await events.aclose()
    assert await saver.aget_thread("t") is None


async def test_a_thread_goes_on_after_its_reader_has_left(saver: Any) -> None:
    graph = chain(says("a"), says("b"), says("c"), saver=saver)
    async with closing(graph.astream({"log": []}, thread(), durability="sync")) as events:
        assert await anext(events) == {"a": {"log": ["a"]}}
    assert await graph.ainvoke(None, thread()) == {"log": ["a", "b", "c"]}


def test_a_sync_reader_that_leaves_ends_the_run(saver_url: str) -> None:
    program = textwrap.dedent(
        """
        import sys, threading
        from typing import Any
        from everstep.constants import START
        from everstep.graph.builder import StateGraph
        from everstep_savers import SQLSaver

        ended = threading.Event()

        def work(state: dict, writer: Any) -> None:
            try:
                for number in range(1000):
                    writer(number)
            finally:
                ended.set()

        saver = SQLSaver.from_url(sys.argv[1])
        graph = StateGraph(dict).add_node(work).add_edge(START, "work").compile(checkpointer=saver)
        config = {"configurable": {"thread_id": "t"}}
        for number in graph.stream({}, config, stream_mode="custom"):
            break
        print(number, ended.wait(30))
        """
    )
    ran = subprocess.run(
        [sys.executable, "-c", program, saver_url], capture_output=True, text=True, timeout=50, check=False
    )
    assert (ran.stdout, ran.returncode) == ("0 True\n", 0), ran.stderr


def test_a_sync_reader_that_is_forgotten_does_not_keep_the_program_from_ending() -> None:
    program = textwrap.dedent(
        """
        from typing import Any
        from everstep.constants import START
        from everstep.graph.builder import StateGraph

        def work(state: dict, writer: Any) -> None:
            for number in range(1000):
                writer(number)

        graph = StateGraph(dict).add_node(work).add_edge(START, "work").compile()
        events = graph.stream({}, stream_mode="custom")
        print(next(events))
        """
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=50, check=False)
    assert (ran.stdout, ran.returncode) == ("0\n", 0), ran.stderr


async def test_a_run_that_fails_after_its_reader_has_left_leaves_no_unheard_error() -> None:
    failed = asyncio.Event()

    async def fail(state: Log) -> None:
        failed.set()
        raise ValueError("unheard")

    builder = StateGraph(Log).add_node(*says("a")).add_node(fail)
    graph = builder.add_edge(START, "a").add_edge("a", "fail").add_edge("fail", END).compile()
    loop = asyncio.get_running_loop()
    heard: list[Any] = []
    loop.set_exception_handler(lambda _, context: heard.append(context))
    async with closing(graph.astream({"log": []})) as events:
        await anext(events)
        await failed.wait()
        await turns()
    del events
    gc.collect()
    await turns()
    assert heard == []

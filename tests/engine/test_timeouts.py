"""Run timeouts: an attempt that takes too long fails on time, whatever its body does."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading
from datetime import timedelta
from typing import Any

import anyio
import pytest

from everstep.constants import START
from everstep.errors import EverstepError, NodeTimeoutError
from everstep.graph.builder import StateGraph
from everstep.types import Send, TimeoutPolicy
from tests.engine.graphs import AT_ONCE, Log, Update, chain, notes_of, says, side_by_side, thread

SOON = 0.02
# For attempts whose successors have to be in time on a busy machine too.
LATER = 0.2


async def hang(state: Log) -> None:
    await asyncio.Event().wait()


async def refuse_to_stop(state: Log) -> Update:
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.Event().wait()
    return {"log": ["late"]}


@pytest.mark.parametrize("siblings", [0, 1])
@pytest.mark.parametrize("timeout", [SOON, timedelta(seconds=SOON), TimeoutPolicy(run_timeout=SOON)], ids=str)
async def test_an_attempt_that_takes_too_long_fails(timeout: Any, siblings: int, saver: Any) -> None:
    builder = StateGraph(Log).add_node(hang, timeout=timeout).add_edge(START, "hang")
    for _ in range(siblings):
        builder.add_node(*says("other")).add_edge(START, "other")
    with pytest.raises(NodeTimeoutError) as caught:
        await builder.compile(saver).ainvoke({"log": []}, thread())
    error = caught.value
    assert (error.node, error.kind, error.timeout) == ("hang", "run", SOON)
    assert SOON <= error.elapsed < 5
    assert str(error) == (
        f"node 'hang' was stopped by its run timeout of 0.02 s after {error.elapsed:.3f} s; if it needs longer, "
        f"raise the timeout"
    )
    assert notes_of(error) == ["in node 'hang' (attempt 1, step 1, thread 't')"]
    record = await saver.aget_thread("t")
    assert (record.status, record.error) == ("failed", f"NodeTimeoutError: {error}")


async def test_what_a_body_returns_after_its_time_does_not_count() -> None:
    with pytest.raises(NodeTimeoutError):
        await chain(refuse_to_stop, node={"timeout": SOON}).ainvoke({"log": []})


async def test_each_attempt_has_the_whole_time() -> None:
    attempts = 0

    async def slow_once(state: Log) -> Update:
        nonlocal attempts
        attempts += 1
        if attempts < 3:
            await asyncio.Event().wait()
        return {"log": [attempts]}

    graph = chain(slow_once, node={"timeout": SOON, "retry_policy": AT_ONCE})
    assert await graph.ainvoke({"log": []}) == {"log": [3]}


async def test_a_body_that_is_in_time_is_left_alone() -> None:
    assert await chain(says("a"), says("b"), node={"timeout": 30}).ainvoke({"log": []}) == {"log": ["a", "b"]}


async def test_a_timeout_error_of_the_body_itself_is_its_own() -> None:
    async def fail(state: Log) -> None:
        raise TimeoutError("mine")

    with pytest.raises(TimeoutError) as caught:
        await chain(fail, node={"timeout": 30}).ainvoke({"log": []})
    assert not isinstance(caught.value, NodeTimeoutError)
    assert str(caught.value) == "mine"


async def test_a_send_may_bring_a_timeout_of_its_own() -> None:
    builder = StateGraph(Log).add_node(hang, timeout=3600)
    builder.add_conditional_edges(START, lambda state: Send("hang", {}, timeout=SOON), ["hang"])
    with pytest.raises(NodeTimeoutError):
        await builder.compile().ainvoke({"log": []})


async def test_node_defaults_give_a_timeout_to_nodes_without_one() -> None:
    builder = StateGraph(Log).set_node_defaults(timeout=SOON).add_node(hang).add_edge(START, "hang")
    with pytest.raises(NodeTimeoutError):
        await builder.compile().ainvoke({"log": []})


async def test_timeouts_inside_of_a_body_are_the_bodys_own() -> None:
    async def with_asyncio(state: Log) -> Update:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0):
                await asyncio.Event().wait()
        return {"log": ["asyncio"]}

    async def with_anyio(state: Log) -> Update:
        with anyio.move_on_after(0):
            await anyio.Event().wait()
        return {"log": ["anyio"]}

    for node in (None, {"timeout": 30}):
        assert await chain(with_asyncio, with_anyio, node=node).ainvoke({"log": []}) == {"log": ["asyncio", "anyio"]}
        assert await side_by_side(with_asyncio, with_anyio, node=node).ainvoke({"log": []}) == {
            "log": ["anyio", "asyncio"]
        }


# Sync nodes ---------------------------------------------------------------------------------------------------


class Worker:
    """A sync node that waits in its thread until it is let go."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.ended = threading.Event()
        self.running = 0
        self.most_running = 0
        self.attempts = 0
        self.lock = threading.Lock()
        self.late_error: BaseException | None = None

    def __call__(self, state: Log, writer: Any) -> Update:
        with self.lock:
            self.attempts += 1
            attempt = self.attempts
            self.running += 1
            self.most_running = max(self.most_running, self.running)
        if attempt == 1:
            self.go.wait(10)
        writer(f"attempt {attempt}")
        with self.lock:
            self.running -= 1
        if attempt == 1:
            self.ended.set()
        return {"log": [attempt]}


async def test_a_sync_node_fails_on_time_and_its_late_result_is_dropped(saver: Any) -> None:
    worker = Worker()
    graph = chain(("work", worker), saver=saver, node={"timeout": SOON})
    with pytest.raises(NodeTimeoutError):
        await graph.ainvoke({"log": []}, thread())
    worker.go.set()
    await asyncio.to_thread(worker.ended.wait, 10)
    assert (await graph.aget_state(thread())).values == {"log": []}
    assert (await graph.aget_state(thread())).next == ("work",)


async def test_a_late_thread_can_no_longer_stream() -> None:
    worker = Worker()
    graph = chain(("work", worker), says("after"), node={"timeout": LATER, "retry_policy": AT_ONCE})
    events = []
    async for event in graph.astream({"log": []}, stream_mode="custom"):
        events.append(event)
        worker.go.set()
        await asyncio.to_thread(worker.ended.wait, 10)
    assert events == ["attempt 2"]


async def test_a_late_thread_can_no_longer_call_a_subgraph(saver: Any) -> None:
    """What it begins would be a run of its own, on the thread of a run that goes on without it."""
    inner: Any = chain(says("inner"), saver=None)
    go, ended = threading.Event(), threading.Event()
    told: list[Any] = []

    def outer(state: Log, config: Any) -> Update:
        go.wait(10)
        for call in (
            lambda: inner.invoke({"log": []}),
            lambda: inner.invoke({"log": []}, config),
            lambda: list(inner.stream({"log": []})),
            lambda: inner.invoke({"log": []}, thread("apart")),
        ):
            try:
                told.append(call())
            except EverstepError as error:
                told.append(str(error))
        ended.set()
        return {"log": ["outer"]}

    graph = chain(("outer", outer), saver=saver, node={"timeout": SOON})
    with pytest.raises(NodeTimeoutError):
        await graph.ainvoke({"log": []}, thread())
    go.set()
    assert await asyncio.to_thread(ended.wait, 10)

    refused = (
        "graph 'graph' was called by node 'outer' after its attempt had ended; for a run apart from that node's, pass "
        "another thread_id, or call it in a context of its own: contextvars.Context().run(...)"
    )
    assert told == [refused, refused, refused, {"log": ["inner"]}]


async def test_what_a_node_leaves_behind_runs_graphs_in_a_context_of_its_own(saver: Any) -> None:
    inner = chain(says("inner"))
    ended = asyncio.Event()
    left: list[asyncio.Task[Any]] = []

    async def call() -> Any:
        await ended.wait()
        return await inner.ainvoke({"log": []})

    async def outer(state: Log) -> Update:
        left.append(asyncio.create_task(call()))
        left.append(asyncio.create_task(call(), context=contextvars.Context()))
        return {"log": ["outer"]}

    await chain(("outer", outer), saver=saver).ainvoke({"log": []}, thread())
    ended.set()

    refused, result = await asyncio.gather(*left, return_exceptions=True)
    assert isinstance(refused, EverstepError)
    assert str(refused).startswith("graph 'graph' was called by node 'outer' after its attempt had ended; ")
    assert result == {"log": ["inner"]}


async def test_a_slot_is_given_back_when_the_late_thread_has_really_ended() -> None:
    worker = Worker()
    graph = chain(("work", worker), node={"timeout": LATER, "retry_policy": AT_ONCE})
    run = asyncio.create_task(graph.ainvoke({"log": []}, {"max_concurrency": 1}))
    done, _ = await asyncio.wait([run], timeout=2 * LATER)
    assert not done
    worker.go.set()
    assert await run == {"log": [2]}
    assert worker.most_running == 1

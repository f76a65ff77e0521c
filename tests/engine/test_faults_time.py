"""Limits of time: nodes that give no sign of life, supersteps and whole runs that take too long."""

from __future__ import annotations

import asyncio
import contextlib
import pickle
import threading
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from typing import Any, Literal

import pytest

from everstep.constants import START
from everstep.context import Runtime, interrupt
from everstep.errors import ConfigError, DeadlineExceededError, NodeTimeoutError, StepTimeoutError
from everstep.graph.builder import StateGraph
from everstep.types import Command, TimeoutPolicy
from tests.engine.clock import leaping_clock, quick_clock
from tests.engine.graphs import AT_ONCE, Log, Update, chain, notes_of, read, says, side_by_side, thread
from tests.engine.watched import WatchedSaver

SOON = 0.02


@pytest.fixture
async def skips_time() -> Any:
    """Seconds pass at once; see `quick_clock`."""
    with quick_clock():
        yield


@pytest.fixture
async def leap() -> AsyncIterator[Callable[[float], None]]:
    """Moves the time on; see `leaping_clock`."""
    with leaping_clock() as leap:
        yield leap


def idle(seconds: float, refresh_on: Literal["auto", "heartbeat"] = "auto", **more: Any) -> dict[str, Any]:
    """The options of a node with an idle timeout."""
    return {"timeout": TimeoutPolicy(idle_timeout=seconds, refresh_on=refresh_on, **more)}


async def hang(state: Log) -> None:
    await asyncio.Event().wait()


class Working:
    """A node that gives a sign of life each second, then hangs or returns."""

    def __init__(self, sign: Callable[[Runtime[Any]], None], signs: int, *, hangs: bool = True) -> None:
        self.sign, self.signs, self.hangs = sign, signs, hangs

    async def __call__(self, state: Log, runtime: Runtime[Any]) -> Update:
        for _ in range(self.signs):
            await asyncio.sleep(1)
            self.sign(runtime)
        await asyncio.sleep(3600 if self.hangs else 1)
        return {"log": ["worked"]}


def heartbeat(runtime: Runtime[Any]) -> None:
    runtime.heartbeat()


def stream(runtime: Runtime[Any]) -> None:
    runtime.stream_writer("busy")


# Idle timeouts ----------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("skips_time")
async def test_a_node_that_gives_no_sign_of_life_fails() -> None:
    with pytest.raises(NodeTimeoutError) as caught:
        await chain(hang, node=idle(10)).ainvoke({"log": []})
    error = caught.value
    assert (error.node, error.kind, error.timeout, error.idle_timeout, error.run_timeout) == (
        "hang",
        "idle",
        10,
        10,
        None,
    )
    assert error.elapsed == pytest.approx(10)
    assert str(error) == (
        "node 'hang' was stopped by its idle timeout of 10 s after 10.000 s; if it needs longer, raise the timeout, or "
        "call runtime.heartbeat() while it works"
    )
    assert notes_of(error) == ["in node 'hang' (attempt 1, step 1)"]


@pytest.mark.usefixtures("skips_time")
@pytest.mark.parametrize("sign", [heartbeat, stream])
async def test_signs_of_life_begin_the_idle_time_anew(sign: Any) -> None:
    with pytest.raises(NodeTimeoutError) as caught:
        await chain(("work", Working(sign, 5)), node=idle(2)).ainvoke({"log": []})
    assert caught.value.kind == "idle"
    assert caught.value.elapsed == pytest.approx(5 + 2)
    done = chain(("work", Working(sign, 50, hangs=False)), node=idle(2))
    assert await done.ainvoke({"log": []}) == {"log": ["worked"]}


@pytest.mark.usefixtures("skips_time")
async def test_where_only_heartbeats_count_nothing_else_does() -> None:
    graph = chain(("work", Working(stream, 5)), node=idle(2.5, "heartbeat"))
    with pytest.raises(NodeTimeoutError) as caught:
        await graph.ainvoke({"log": []})
    assert caught.value.elapsed == pytest.approx(2.5)
    graph = chain(("work", Working(heartbeat, 5)), node=idle(2.5, "heartbeat"))
    with pytest.raises(NodeTimeoutError) as caught:
        await graph.ainvoke({"log": []})
    assert caught.value.elapsed == pytest.approx(5 + 2.5)


@pytest.mark.usefixtures("skips_time")
async def test_the_run_timeout_counts_from_the_start_whatever_the_signs() -> None:
    graph = chain(("work", Working(heartbeat, 100)), node=idle(2, run_timeout=7.5))
    with pytest.raises(NodeTimeoutError) as caught:
        await graph.ainvoke({"log": []})
    error = caught.value
    assert (error.kind, error.timeout) == ("run", 7.5)
    assert error.elapsed == pytest.approx(7.5)
    assert (error.idle_timeout, error.run_timeout) == (2, 7.5)


@pytest.mark.usefixtures("skips_time")
async def test_each_attempt_has_its_own_idle_time() -> None:
    attempts = 0

    async def idle_twice(state: Log) -> Update:
        nonlocal attempts
        attempts += 1
        await asyncio.sleep(3600 if attempts < 3 else 1)
        return {"log": [attempts]}

    assert await chain(idle_twice, node=idle(2) | {"retry_policy": AT_ONCE}).ainvoke({"log": []}) == {"log": [3]}


def with_subgraph(*nodes: Any, refresh_on: Literal["auto", "heartbeat"] = "auto") -> Any:
    builder = StateGraph(Log).add_node("inner", chain(*nodes), **idle(2, refresh_on)).add_edge(START, "inner")
    return builder.compile()


async def takes_a_second(state: Log) -> Update:
    await asyncio.sleep(1)
    return {"log": ["second"]}


@pytest.mark.usefixtures("skips_time")
async def test_what_happens_in_a_subgraph_is_a_sign_of_life_of_its_node() -> None:
    steps = [(f"s{number}", takes_a_second) for number in range(5)]
    assert await with_subgraph(*steps).ainvoke({"log": []}) == {"log": ["second"] * 5}
    for sign in (heartbeat, stream):
        work = ("work", Working(sign, 5, hangs=False))
        assert await with_subgraph(work).ainvoke({"log": []}) == {"log": ["worked"]}
    work = ("work", Working(heartbeat, 5, hangs=False))
    assert await with_subgraph(work, refresh_on="heartbeat").ainvoke({"log": []}) == {"log": ["worked"]}


@pytest.mark.usefixtures("skips_time")
async def test_a_subgraph_that_hangs_is_idle() -> None:
    with pytest.raises(NodeTimeoutError) as caught:
        await with_subgraph(("s", takes_a_second), hang).ainvoke({"log": []})
    assert (caught.value.node, caught.value.kind) == ("inner", "idle")
    assert caught.value.elapsed == pytest.approx(3)


async def test_a_sync_node_may_be_idle_and_give_signs_from_its_thread(saver: Any) -> None:
    let_go = threading.Event()

    def work(state: Log, runtime: Runtime[Any]) -> None:
        runtime.heartbeat()
        let_go.wait(10)

    with pytest.raises(NodeTimeoutError) as caught:
        await chain(work, saver=saver, node=idle(SOON)).ainvoke({"log": []}, thread())
    let_go.set()
    assert caught.value.kind == "idle"
    record = await saver.aget_thread("t")
    assert (record.status, record.error) == ("failed", f"NodeTimeoutError: {caught.value}")


async def test_a_body_that_swallows_its_idle_timeout_has_failed_all_the_same() -> None:
    async def refuse(state: Log) -> Update:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        return {"log": ["late"]}

    with pytest.raises(NodeTimeoutError):
        await chain(refuse, node=idle(SOON)).ainvoke({"log": []})


async def test_a_heartbeat_without_an_idle_timeout_does_nothing() -> None:
    async def work(state: Log, runtime: Runtime[Any]) -> Update:
        runtime.heartbeat()
        return {"log": ["a"]}

    assert await chain(work).ainvoke({"log": []}) == {"log": ["a"]}


def test_timeout_errors_travel_between_processes() -> None:
    for error in (
        NodeTimeoutError("a", 3.0, kind="idle", idle_timeout=2.0, run_timeout=9.0),
        DeadlineExceededError(2.0, "graph", ["a"]),
        StepTimeoutError(2.0, 3, ["a"]),
    ):
        copy = pickle.loads(pickle.dumps(error))
        assert (type(copy), str(copy), vars(copy)) == (type(error), str(error), vars(error))


# Deadlines --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
async def test_a_run_ends_at_its_deadline_and_its_thread_goes_on(durability: str, leap: Any, saver: Any) -> None:
    is_up, left = False, asyncio.Event()

    async def slow(state: Log) -> Update:
        try:
            if not is_up:
                leap(100)
                await asyncio.Event().wait()
        finally:
            left.set()
        return {"log": ["slow"]}

    graph = chain(says("a"), slow, saver=saver)
    before = asyncio.all_tasks()
    with pytest.raises(DeadlineExceededError) as caught:
        await graph.ainvoke({"log": []}, thread(), deadline=60, durability=durability)
    error = caught.value
    assert str(error) == (
        "the run of 'graph' was stopped in node 'slow' by its deadline of 60 s; with a saver, input None continues its "
        "thread where it stopped"
    )
    assert (error.deadline, error.nodes, isinstance(error, TimeoutError)) == (60, ("slow",), True)
    assert left.is_set()
    assert asyncio.all_tasks() == before
    record = await saver.aget_thread("t")
    assert (record.status, record.error) == ("failed", f"DeadlineExceededError: {error}")
    is_up = True
    assert await graph.ainvoke(None, thread(), deadline=60) == {"log": ["a", "slow"]}


async def test_a_deadline_keeps_what_has_finished(leap: Any, saver: Any) -> None:
    runs, quick_ran = 0, asyncio.Event()

    async def quick(state: Log) -> Update:
        nonlocal runs
        runs += 1
        quick_ran.set()
        return {"log": ["quick"]}

    async def slow(state: Log) -> None:
        await quick_ran.wait()
        leap(100)
        await asyncio.Event().wait()

    graph = side_by_side(quick, slow, saver=saver)
    with pytest.raises(DeadlineExceededError):
        await graph.ainvoke({"log": []}, thread(), deadline=60)
    assert (await graph.aget_state(thread())).next == ("slow",)
    with pytest.raises(DeadlineExceededError):
        await graph.ainvoke(None, thread(), deadline=60)
    assert runs == 1


@pytest.mark.usefixtures("skips_time")
async def test_a_deadline_goes_over_retries_handlers_and_subgraphs() -> None:
    attempts = 0

    async def fail(state: Log) -> None:
        nonlocal attempts
        attempts += 1
        await asyncio.sleep(1)
        raise ConnectionError

    async def handle(state: Log) -> None:
        await asyncio.sleep(3600)

    inner = StateGraph(Log).add_node(fail, error_handler=handle, retry_policy=AT_ONCE).add_edge(START, "fail").compile()
    builder = StateGraph(Log).add_node("inner", inner, retry_policy=AT_ONCE, error_handler=handle)
    with pytest.raises(DeadlineExceededError) as caught:
        await builder.add_edge(START, "inner").compile().ainvoke({"log": []}, deadline=timedelta(seconds=5))
    assert (caught.value.deadline, caught.value.nodes, attempts) == (5, ("inner",), 3)


@pytest.mark.usefixtures("skips_time")
async def test_a_stream_ends_with_the_deadline() -> None:
    events: list[Any] = []
    with pytest.raises(DeadlineExceededError):
        await read(chain(says("a"), hang).astream({"log": []}, deadline=5), events)
    assert events == [{"a": {"log": ["a"]}}]


@pytest.mark.usefixtures("skips_time")
async def test_a_deadline_of_a_subgraphs_call_is_a_failure_of_its_node() -> None:
    inner = chain(hang)

    async def call(state: Log) -> Update:
        with pytest.raises(DeadlineExceededError):
            await inner.ainvoke({"log": []}, deadline=5)
        return {"log": ["in time"]}

    assert await chain(call).ainvoke({"log": []}, deadline=6) == {"log": ["in time"]}


async def test_a_run_that_is_in_time_is_left_alone(saver: Any) -> None:
    async def ask(state: Log) -> Update:
        return {"log": [interrupt("q")]}

    graph = chain(says("a"), ask, saver=saver)
    assert "__interrupt__" in await graph.ainvoke({"log": []}, thread(), deadline=30)
    assert await graph.ainvoke(Command(resume="A"), thread(), deadline=30) == {"log": ["a", "A"]}


async def test_a_timeout_error_of_a_node_is_its_own() -> None:
    async def fail(state: Log) -> None:
        raise TimeoutError("mine")

    with pytest.raises(TimeoutError, match="mine") as caught:
        await chain(fail).ainvoke({"log": []}, deadline=30)
    assert not isinstance(caught.value, DeadlineExceededError)


async def test_a_cancelled_run_with_a_deadline_is_cancelled(saver: Any) -> None:
    entered = asyncio.Event()

    async def wait(state: Log) -> None:
        entered.set()
        await asyncio.Event().wait()

    run = asyncio.create_task(chain(wait, saver=saver).ainvoke({"log": []}, thread(), deadline=30))
    await entered.wait()
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert (await saver.aget_thread("t")).status == "cancelled"


async def test_a_node_that_swallows_the_deadline_does_not_keep_the_run_going(leap: Any, saver: Any) -> None:
    async def refuse(state: Log) -> Update:
        leap(100)
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        return {"log": ["late"]}

    graph = chain(refuse, says("b"), saver=saver)
    with pytest.raises(DeadlineExceededError):
        await graph.ainvoke({"log": []}, thread(), deadline=60)
    assert (await graph.aget_state(thread())).values == {"log": ["late"]}
    assert await graph.ainvoke(None, thread()) == {"log": ["late", "b"]}


async def test_a_deadline_before_the_thread_is_claimed_is_one_too(leap: Any, saver: Any) -> None:
    async def leap_and_wait(number: int, commit: Any) -> None:
        if number == 1:
            leap(100)
            await asyncio.sleep(0)

    graph = chain(says("a"), saver=WatchedSaver(saver, before=leap_and_wait))
    with pytest.raises(DeadlineExceededError, match="the run of 'graph' was stopped by its deadline of 60 s"):
        await graph.ainvoke({"log": []}, thread(), deadline=60)
    assert (await saver.aget_thread("t")).status == "cancelled"


@pytest.mark.parametrize("deadline", [0, -1, "5", True, timedelta(0)])
async def test_a_deadline_that_is_none_is_refused(deadline: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        await chain(says("a")).ainvoke({"log": []}, deadline=deadline)
    assert str(caught.value) == f"deadline is a number of seconds above zero or a timedelta, got {deadline!r}"


# Supersteps -------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("skips_time")
@pytest.mark.parametrize("siblings", [[], [("quick", takes_a_second)]])
async def test_a_superstep_that_takes_too_long_fails(siblings: list[Any]) -> None:
    graph = side_by_side(hang, *siblings)
    graph.step_timeout = 5
    with pytest.raises(StepTimeoutError) as caught:
        await graph.ainvoke({"log": []})
    assert str(caught.value) == (
        "step 1 was stopped in node 'hang' by the graph's step timeout of 5 s; if it needs longer, raise step_timeout"
    )
    assert (caught.value.timeout, caught.value.nodes) == (5, ("hang",))


@pytest.mark.usefixtures("skips_time")
async def test_each_superstep_has_the_whole_time() -> None:
    graph = chain(*((f"s{number}", takes_a_second) for number in range(9)))
    graph.step_timeout = 1.5
    assert await graph.ainvoke({"log": []}) == {"log": ["second"] * 9}

"""Runs that end in an orderly way: siblings of a failing node that may finish, and runs that are asked to stop."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from everstep.constants import START
from everstep.context import Runtime, interrupt
from everstep.errors import ConfigError, EverstepError, GraphDrained
from everstep.graph.builder import StateGraph
from everstep.runtime import RunControl
from everstep.types import Command
from tests.engine.graphs import AT_ONCE, Log, Update, chain, notes_of, read, says, side_by_side, thread

DURABILITIES = ["sync", "async", "exit"]


class Fails:
    """A node that always fails and tells that it has; it may wait for a sibling before that."""

    def __init__(self, error: Exception, *, waits: bool = False) -> None:
        self.error = error
        self.go = asyncio.Event()
        if not waits:
            self.go.set()
        self.failed = asyncio.Event()
        self.runs = 0

    async def __call__(self, state: Log) -> None:
        self.runs += 1
        await self.go.wait()
        self.failed.set()
        raise self.error


class Finishes:
    """A node that finishes after another one has failed."""

    def __init__(self, other: Fails) -> None:
        self.other = other
        self.runs = 0
        self.was_cancelled = False

    async def __call__(self, state: Log) -> Update:
        self.runs += 1
        self.other.go.set()
        try:
            await self.other.failed.wait()
            for _ in range(5):
                await asyncio.sleep(0)
        except asyncio.CancelledError:
            self.was_cancelled = True
            raise
        return {"log": ["finished"]}


# on_error ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("durability", DURABILITIES)
async def test_siblings_of_a_failing_node_finish_and_keep_their_writes(durability: str, saver: Any) -> None:
    bad = Fails(ValueError("bad"))
    good = Finishes(bad)
    graph = side_by_side(("bad", bad), ("good", good), saver=saver)
    with pytest.raises(ValueError, match="bad") as caught:
        await graph.ainvoke({"log": []}, thread(), on_error="drain", durability=durability)
    assert notes_of(caught.value) == ["in node 'bad' (attempt 1, step 1, thread 't')"]
    state = await graph.aget_state(thread())
    assert (state.values, state.next) == ({"log": ["finished"]}, ("bad",))
    assert (await saver.aget_thread("t")).status == "failed"
    with pytest.raises(ValueError, match="bad"):
        await graph.ainvoke(None, thread(), on_error="drain", durability=durability)
    assert (bad.runs, good.runs) == (2, 1)


async def test_siblings_are_cancelled_unless_they_may_finish() -> None:
    calls: list[tuple[dict[str, Any], bool]] = [
        ({}, True),
        ({"on_error": "cancel"}, True),
        ({"on_error": "drain"}, False),
    ]
    for options, was_cancelled in calls:
        bad = Fails(ValueError("bad"), waits=True)
        good = Finishes(bad)
        with pytest.raises(ValueError, match="bad"):
            await side_by_side(("bad", bad), ("good", good)).ainvoke({"log": []}, **options)
        assert good.was_cancelled == was_cancelled


async def test_a_call_goes_before_what_the_graph_was_compiled_with() -> None:
    calls: list[tuple[str, dict[str, Any], bool]] = [
        ("drain", {}, False),
        ("drain", {"on_error": "cancel"}, True),
        ("cancel", {"on_error": "drain"}, False),
    ]
    for compiled, options, was_cancelled in calls:
        bad = Fails(ValueError("bad"), waits=True)
        good = Finishes(bad)
        graph = side_by_side(("bad", bad), ("good", good), on_error=compiled)
        with pytest.raises(ValueError, match="bad"):
            await graph.ainvoke({"log": []}, **options)
        assert good.was_cancelled == was_cancelled


async def test_several_failures_come_as_a_group(saver: Any) -> None:
    errors = [ValueError("one"), KeyError("two")]
    graph = side_by_side(("a", Fails(errors[0])), ("b", Fails(errors[1])), says("c"), saver=saver)
    with pytest.raises(ExceptionGroup) as caught:
        await graph.ainvoke({"log": []}, thread(), on_error="drain")
    assert str(caught.value) == "2 nodes failed in step 1, thread 't' (2 sub-exceptions)"
    assert list(caught.value.exceptions) == errors
    assert notes_of(errors[1]) == ["in node 'b' (attempt 1, step 1, thread 't')"]
    state = await graph.aget_state(thread())
    assert (state.values, state.next) == ({"log": ["c"]}, ("a", "b"))
    assert [task.error for task in state.tasks] == ["ValueError('one')", "KeyError('two')", None]
    record = await saver.aget_thread("t")
    assert (record.status, record.error) == ("failed", f"ExceptionGroup: {caught.value}")


async def test_only_the_first_failure_is_raised_where_siblings_are_cancelled() -> None:
    errors = [ValueError("one"), KeyError("two")]
    with pytest.raises(ValueError, match="one"):
        await side_by_side(("a", Fails(errors[0])), ("b", Fails(errors[1]))).ainvoke({"log": []})


async def test_a_question_beside_a_failure_is_kept(saver: Any) -> None:
    bad = Fails(ValueError("bad"))

    async def ask(state: Log) -> Update:
        await bad.failed.wait()
        return {"log": [interrupt("q")]}

    graph = side_by_side(("bad", bad), ask, saver=saver)
    with pytest.raises(ValueError, match="bad"):
        await graph.ainvoke({"log": []}, thread(), on_error="drain")
    assert [question.value for question in (await graph.aget_state(thread())).interrupts] == ["q"]


async def test_retries_and_handlers_go_on_beside_a_failure(saver: Any) -> None:
    bad = Fails(ValueError("bad"))
    attempts = 0

    async def flaky(state: Log) -> Update:
        nonlocal attempts
        attempts += 1
        await bad.failed.wait()
        if attempts < 3:
            raise ConnectionError
        return {"log": ["flaky"]}

    async def handled(state: Log) -> None:
        await bad.failed.wait()
        raise ValueError("handled")

    builder = StateGraph(Log).add_node("bad", bad).add_node(flaky, retry_policy=AT_ONCE)
    builder.add_node(handled, error_handler=lambda state: {"log": ["handler"]})
    for name in ("bad", "flaky", "handled"):
        builder.add_edge(START, name)
    graph = builder.compile(saver, on_error="drain")
    with pytest.raises(ValueError, match="bad"):
        await graph.ainvoke({"log": []}, thread())
    assert (await graph.aget_state(thread())).values == {"log": ["flaky", "handler"]}


async def test_subgraphs_do_as_the_run_that_calls_them_unless_they_say_otherwise() -> None:
    for compiled, was_cancelled in ((None, False), ("cancel", True)):
        bad = Fails(ValueError("bad"), waits=True)
        good = Finishes(bad)
        inner = side_by_side(("bad", bad), ("good", good), on_error=compiled)
        builder = StateGraph(Log).add_node("inner", inner).add_edge(START, "inner")
        with pytest.raises(ValueError, match="bad"):
            await builder.compile().ainvoke({"log": []}, on_error="drain")
        assert good.was_cancelled == was_cancelled


async def test_a_cancelled_run_does_not_wait_for_siblings() -> None:
    bad = Fails(ValueError("bad"))
    left = asyncio.Event()

    async def wait(state: Log) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            left.set()

    run = asyncio.create_task(side_by_side(("bad", bad), wait).ainvoke({"log": []}, on_error="drain"))
    await bad.failed.wait()
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert left.is_set()


async def test_an_unknown_way_to_treat_siblings_is_refused() -> None:
    with pytest.raises(ConfigError) as caught:
        await chain(says("a")).ainvoke({"log": []}, on_error="drian")
    assert str(caught.value) == "on_error is 'cancel' or 'drain', got 'drian'"
    with pytest.raises(ConfigError, match=r"^on_error is"):
        chain(says("a"), on_error="ignore")


# RunControl -------------------------------------------------------------------------------------------------------


async def ask_to_stop(state: Log, runtime: Runtime[Any]) -> Update:
    assert runtime.control is not None
    runtime.control.request_drain("deploy")
    return {"log": [runtime.drain_requested, runtime.drain_reason]}


@pytest.mark.parametrize("durability", DURABILITIES)
async def test_a_run_that_is_asked_to_stop_stops_at_the_next_barrier(durability: str, saver: Any) -> None:
    control = RunControl()
    graph = chain(ask_to_stop, says("b"), saver=saver)
    with pytest.raises(GraphDrained) as caught:
        await graph.ainvoke({"log": []}, thread(), control=control, durability=durability)
    assert (caught.value.reason, isinstance(caught.value, EverstepError)) == ("deploy", True)
    assert str(caught.value) == "the run was drained (deploy); with a saver, input None continues its thread"
    assert (control.drain_requested, control.drain_reason) == (True, "deploy")
    state = await graph.aget_state(thread())
    assert (state.values, state.next) == ({"log": [True, "deploy"]}, ("b",))
    record = await saver.aget_thread("t")
    assert (record.status, record.error) == ("drained", None)
    assert await graph.ainvoke(None, thread()) == {"log": [True, "deploy", "b"]}


async def test_every_run_has_a_control_of_its_own(saver: Any) -> None:
    graph = chain(ask_to_stop, says("b"), saver=saver)
    with pytest.raises(GraphDrained):
        await graph.ainvoke({"log": []}, thread())
    assert await graph.ainvoke(None, thread()) == {"log": [True, "deploy", "b"]}


async def test_all_nodes_of_the_step_finish_first(saver: Any) -> None:
    control, entered, go = RunControl(), asyncio.Event(), asyncio.Event()

    async def slow(state: Log) -> Update:
        entered.set()
        await go.wait()
        return {"log": ["slow"]}

    builder = StateGraph(Log).add_node(slow).add_node(*says("quick")).add_node(*says("after"))
    builder.add_edge(START, "slow").add_edge(START, "quick").add_edge(["slow", "quick"], "after")
    graph = builder.compile(saver)
    run = asyncio.create_task(graph.ainvoke({"log": []}, thread(), control=control))
    await entered.wait()
    control.request_drain()
    go.set()
    with pytest.raises(GraphDrained, match=r"drained \(shutdown\)"):
        await run
    assert (await graph.aget_state(thread())).next == ("after",)
    assert await graph.ainvoke(None, thread()) == {"log": ["quick", "slow", "after"]}


async def test_a_request_may_come_from_a_thread() -> None:
    control = RunControl()

    def work(state: Log) -> Update:
        asker = threading.Thread(target=control.request_drain)
        asker.start()
        asker.join()
        return {"log": ["a"]}

    with pytest.raises(GraphDrained):
        await chain(work, says("b")).ainvoke({"log": []}, control=control)


async def test_a_run_with_nothing_left_to_do_is_done(saver: Any) -> None:
    graph = chain(says("a"), ask_to_stop, saver=saver)
    assert await graph.ainvoke({"log": []}, thread()) == {"log": ["a", True, "deploy"]}
    assert (await saver.aget_thread("t")).status == "done"


async def test_a_request_before_the_run_stops_it_before_its_first_node(saver: Any) -> None:
    control = RunControl()
    control.request_drain("first")
    control.request_drain("second")
    ran = []

    async def a(state: Log) -> Update:
        ran.append("a")
        return {"log": ["a"]}

    graph = chain(a, saver=saver)
    with pytest.raises(GraphDrained, match="second"):
        await graph.ainvoke({"log": ["in"]}, thread(), control=control)
    assert ran == []
    assert (await saver.aget_thread("t")).status == "drained"
    with pytest.raises(GraphDrained):
        await graph.ainvoke(None, thread(), control=control)
    assert await graph.ainvoke(None, thread()) == {"log": ["in", "a"]}


@pytest.mark.parametrize("kind", ["interrupt_before", "interrupt_after"])
async def test_a_breakpoint_goes_before_a_request(kind: str, saver: Any) -> None:
    options: dict[str, Any] = {kind: ["b" if kind == "interrupt_before" else "ask_to_stop"]}
    graph = chain(ask_to_stop, says("b"), saver=saver, **options)
    assert await graph.ainvoke({"log": []}, thread()) == {"log": [True, "deploy"]}
    assert (await saver.aget_thread("t")).status == "interrupted"
    assert await graph.ainvoke(None, thread()) == {"log": [True, "deploy", "b"]}


async def test_a_question_goes_before_a_request(saver: Any) -> None:
    async def ask(state: Log, runtime: Runtime[Any]) -> Update:
        answer = interrupt("q")
        return {"log": [answer]}

    graph = side_by_side(ask_to_stop, ask, saver=saver)
    assert "__interrupt__" in await graph.ainvoke({"log": []}, thread())
    assert (await graph.ainvoke(Command(resume="A"), thread()))["log"] == ["A", True, "deploy"]


async def test_a_stream_ends_with_what_was_done(saver: Any) -> None:
    events: list[Any] = []
    with pytest.raises(GraphDrained):
        await read(chain(ask_to_stop, says("b"), saver=saver).astream({"log": []}, thread()), events)
    assert events == [{"ask_to_stop": {"log": [True, "deploy"]}}]


@pytest.mark.parametrize("durability", DURABILITIES)
@pytest.mark.parametrize("is_swallowed", [False, True])
async def test_a_subgraph_stops_at_its_own_barrier_and_goes_on_there(
    is_swallowed: bool, durability: str, saver: Any
) -> None:
    entered = 0
    inner = chain(ask_to_stop, says("b"))

    async def call(state: Log) -> Update:
        nonlocal entered
        entered += 1
        try:
            found: Update = await inner.ainvoke({"log": []})
        except Exception:
            if not is_swallowed:
                raise
            return {"log": ["swallowed"]}
        return found

    builder = StateGraph(Log).add_node(call).add_node(*says("beside")).add_node(*says("after"))
    builder.add_edge(START, "call").add_edge(START, "beside").add_edge(["call", "beside"], "after")
    graph = builder.compile(saver)
    with pytest.raises(GraphDrained, match="deploy"):
        await graph.ainvoke({"log": []}, thread(), durability=durability)
    state = await graph.aget_state(thread())
    assert (state.values, state.next) == ({"log": ["beside"]}, ("call",))
    assert (await saver.aget_thread("t")).status == "drained"
    result = await graph.ainvoke(None, thread(), durability=durability)
    assert sorted(result["log"], key=str) == [True, "after", "b", "beside", "deploy"]
    assert entered == 2


async def test_a_subgraph_that_is_asked_to_stop_alone_stops_its_run_with_its_reason(saver: Any) -> None:
    inner, control = chain(says("a"), says("b")), RunControl()
    control.request_drain("only the inner one")

    async def call(state: Log) -> Update:
        found: Update = await inner.ainvoke({"log": []}, control=control)
        return found

    graph = chain(call, saver=saver)
    with pytest.raises(GraphDrained, match="only the inner one"):
        await graph.ainvoke({"log": []}, thread())
    control.drain_reason = None
    assert await graph.ainvoke(None, thread()) == {"log": ["a", "b"]}


async def test_a_failure_beside_a_drained_subgraph_is_a_failure(saver: Any) -> None:
    async def fail(state: Log) -> None:
        raise ValueError("bad")

    builder = StateGraph(Log).add_node("inner", chain(ask_to_stop, says("b"))).add_node(fail)
    graph = builder.add_edge(START, "inner").add_edge(START, "fail").compile(saver, on_error="drain")
    with pytest.raises(ValueError, match="bad"):
        await graph.ainvoke({"log": []}, thread())
    assert (await saver.aget_thread("t")).status == "failed"


async def test_a_drained_run_on_a_thread_of_its_own_is_a_failure_of_the_node_that_awaits_it(saver: Any) -> None:
    other = chain(ask_to_stop, says("b"), saver=saver)

    async def call(state: Log) -> Update:
        return {"log": await other.ainvoke({"log": []}, thread("other"))}

    graph = chain(call, saver=saver)
    with pytest.raises(GraphDrained):
        await graph.ainvoke({"log": []}, thread())
    assert [(await saver.aget_thread(name)).status for name in ("t", "other")] == ["failed", "drained"]


async def test_a_run_on_a_thread_of_its_own_drains_with_the_node_that_hands_it_its_control(saver: Any) -> None:
    other = chain(ask_to_stop, says("b"), saver=saver)

    async def call(state: Log, runtime: Runtime[Any]) -> Update:
        given: Any = None if "other" in {record.thread_id async for record in saver.alist_threads()} else {"log": []}
        found: Update = await other.ainvoke(given, thread("other"), control=runtime.control)
        return found

    graph = chain(call, says("after"), saver=saver)
    with pytest.raises(GraphDrained):
        await graph.ainvoke({"log": []}, thread())
    assert [(await saver.aget_thread(name)).status for name in ("t", "other")] == ["drained", "drained"]
    assert await graph.ainvoke(None, thread()) == {"log": [True, "deploy", "b", "after"]}


def test_a_control_shows_its_reason() -> None:
    control = RunControl()
    assert repr(control) == "RunControl(drain_reason=None)"
    control.request_drain("deploy")
    assert repr(control) == "RunControl(drain_reason='deploy')"

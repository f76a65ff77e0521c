"""Cancelled and failed runs: nothing is left running, nothing that was finished is lost, the thread tells its end."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import Any

import pytest

from everstep.constants import START
from everstep.context import interrupt
from everstep.errors import NodeCancelledError, ThreadConflict
from everstep.graph.builder import StateGraph
from everstep.types import Command
from tests.engine.graphs import AT_ONCE, Log, Update, chain, closing, notes_of, says, side_by_side, thread
from tests.engine.watched import Gate, WatchedSaver

DURABILITIES = ["sync", "async", "exit"]


class Waiting:
    """A node that waits until it is let go, and tells that it has been entered and left."""

    def __init__(self) -> None:
        self.entered = asyncio.Event()
        self.go = asyncio.Event()
        self.left = asyncio.Event()

    async def __call__(self, state: Log) -> Update:
        self.entered.set()
        try:
            await self.go.wait()
        finally:
            self.left.set()
        return {"log": ["waited"]}


class Counted:
    """A node that counts its runs and logs its name."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.runs = 0

    async def __call__(self, state: Log) -> Update:
        self.runs += 1
        return {"log": [self.name]}


def other_tasks() -> set[asyncio.Task[Any]]:
    """The tasks of this loop beside the one that asks."""
    return {task for task in asyncio.all_tasks() if task is not asyncio.current_task()}


async def cancel(run: asyncio.Task[Any]) -> None:
    """Cancel a run and see it end so."""
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run


async def status(saver: Any) -> str:
    found: str = (await saver.aget_thread("t")).status
    return found


def first_then_both(first: Counted, quick: Counted, waiting: Waiting, saver: Any) -> Any:
    builder = StateGraph(Log).add_node("first", first).add_node("quick", quick).add_node("waiting", waiting)
    builder.add_edge(START, "first").add_edge("first", "quick").add_edge("first", "waiting")
    return builder.compile(saver)


@pytest.mark.parametrize("durability", DURABILITIES)
async def test_a_cancelled_run_keeps_what_finished_and_leaves_nothing_running(durability: str, saver: Any) -> None:
    first, quick, waiting = Counted("first"), Counted("quick"), Waiting()
    graph = first_then_both(first, quick, waiting, saver)
    before = other_tasks()
    run = asyncio.create_task(graph.ainvoke({"log": []}, thread(), durability=durability))
    await waiting.entered.wait()
    await asyncio.sleep(0)
    await cancel(run)
    assert waiting.left.is_set()
    assert other_tasks() == before
    assert await status(saver) == "cancelled"
    assert (await graph.aget_state(thread())).next == ("waiting",)
    waiting.go.set()
    assert await graph.ainvoke(None, thread()) == {"log": ["first", "quick", "waited"]}
    assert (first.runs, quick.runs, await status(saver)) == (1, 1, "done")


@pytest.mark.parametrize("durability", DURABILITIES)
async def test_leaving_the_stream_early_ends_the_run_and_keeps_what_finished(durability: str, saver: Any) -> None:
    first, quick, waiting = Counted("first"), Counted("quick"), Waiting()
    graph = first_then_both(first, quick, waiting, saver)
    before = other_tasks()
    async with closing(graph.astream({"log": []}, thread(), durability=durability)) as events:
        async for event in events:
            if "quick" in event:
                break
    assert waiting.left.is_set()
    assert other_tasks() == before
    assert await status(saver) == "cancelled"
    waiting.go.set()
    assert await graph.ainvoke(None, thread()) == {"log": ["first", "quick", "waited"]}
    assert (first.runs, quick.runs) == (1, 1)


async def test_a_stream_that_is_left_without_being_closed_ends_its_run(saver: Any) -> None:
    waiting = Waiting()
    graph = chain(says("a"), ("waiting", waiting), saver=saver)
    async for _ in graph.astream({"log": []}, thread()):
        break
    async with asyncio.timeout(5):
        if waiting.entered.is_set():
            await waiting.left.wait()
        await asyncio.gather(*other_tasks(), return_exceptions=True)
    assert await status(saver) == "cancelled"


async def test_cancelling_the_reader_of_a_stream_ends_the_run(saver: Any) -> None:
    waiting = Waiting()
    graph = chain(says("a"), ("waiting", waiting), saver=saver)
    before = other_tasks()

    async def read() -> None:
        async for _ in graph.astream({"log": []}, thread()):
            pass

    reader = asyncio.create_task(read())
    await waiting.entered.wait()
    await cancel(reader)
    assert waiting.left.is_set()
    assert other_tasks() == before
    assert await status(saver) == "cancelled"


async def test_a_timeout_around_a_run_ends_it(saver: Any) -> None:
    waiting = Waiting()
    graph = chain(("waiting", waiting), saver=saver)

    async def expire(limit: asyncio.Timeout) -> None:
        await waiting.entered.wait()
        limit.reschedule(0)

    async def run() -> None:
        async with asyncio.timeout(None) as limit:
            await asyncio.gather(graph.ainvoke({"log": []}, thread()), expire(limit))

    with pytest.raises(TimeoutError):
        await run()
    assert waiting.left.is_set()
    assert await status(saver) == "cancelled"


# The commits of a chain of three nodes: the claim, the input made into state, and one for each node.
COMMITS = [("sync", number) for number in range(1, 6)] + [("async", number) for number in range(1, 6)]


@pytest.mark.parametrize(("durability", "number"), [*COMMITS, ("exit", 1), ("exit", 2)])
async def test_cancelling_while_a_commit_is_under_way_loses_nothing(durability: str, number: int, saver: Any) -> None:
    gate = Gate(number)
    nodes = [Counted(name) for name in "abc"]
    graph = chain(*((node.name, node) for node in nodes), saver=WatchedSaver(saver, before=gate))
    before = other_tasks()
    run = asyncio.create_task(graph.ainvoke({"log": []}, thread(), durability=durability))
    await gate.reached.wait()
    for _ in range(10):
        await asyncio.sleep(0)
    ran = [node.runs for node in nodes]
    run.cancel()
    for _ in range(10):
        await asyncio.sleep(0)
    gate.opened.set()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert other_tasks() == before
    # A run that has nothing more to do when it is cancelled may as well say that it is done.
    assert await status(saver) in (("cancelled", "done") if ran == [1, 1, 1] else ("cancelled",))
    assert [node.runs for node in nodes] == ran
    assert await graph.ainvoke(None, thread()) == {"log": ["a", "b", "c"]}
    assert [node.runs for node in nodes] == [1, 1, 1]
    assert (await graph.aget_state(thread())).values == {"log": ["a", "b", "c"]}


async def test_cancelling_while_a_question_is_stored_leaves_it_open(saver: Any) -> None:
    async def ask(state: Log) -> Update:
        return {"log": [interrupt("q")]}

    reached, opened = asyncio.Event(), asyncio.Event()

    async def hold(number: int, commit: Any) -> None:
        if commit.status == "interrupted":
            reached.set()
            await opened.wait()

    node = Counted("a")
    graph = chain(("a", node), ask, saver=WatchedSaver(saver, before=hold))
    run = asyncio.create_task(graph.ainvoke({"log": []}, thread()))
    await reached.wait()
    run.cancel()
    await asyncio.sleep(0)
    opened.set()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert [question.value for question in (await graph.aget_state(thread())).interrupts] == ["q"]
    assert await graph.ainvoke(Command(resume="A"), thread()) == {"log": ["a", "A"]}
    assert node.runs == 1


async def test_a_cancelled_run_whose_claim_is_refused_is_cancelled_all_the_same(saver: Any) -> None:
    reached = asyncio.Event()

    async def refuse(number: int, commit: Any) -> None:
        reached.set()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        raise ThreadConflict("moved")

    run = asyncio.create_task(chain(says("a"), saver=WatchedSaver(saver, before=refuse)).ainvoke({}, thread()))
    await reached.wait()
    await cancel(run)


@pytest.mark.parametrize("siblings", [0, 1])
async def test_a_node_that_swallows_the_cancellation_does_not_keep_the_run_going(siblings: int, saver: Any) -> None:
    entered = asyncio.Event()
    after = Counted("after")

    async def stubborn(state: Log) -> Update:
        entered.set()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        return {"log": ["stubborn"]}

    builder = StateGraph(Log).add_node(stubborn).add_node("after", after)
    builder.add_edge(START, "stubborn").add_edge("stubborn", "after")
    for _ in range(siblings):
        builder.add_node(*says("sibling")).add_edge(START, "sibling")
    graph = builder.compile(saver)
    run = asyncio.create_task(graph.ainvoke({"log": []}, thread()))
    await entered.wait()
    await cancel(run)
    assert after.runs == 0
    assert await status(saver) == "cancelled"


# Cancellation that nobody asked for --------------------------------------------------------------------------


async def raise_it(state: Log) -> None:
    raise asyncio.CancelledError("mine")


async def await_a_cancelled_future(state: Log) -> None:
    future = asyncio.get_running_loop().create_future()
    future.cancel()
    await future


async def await_a_cancelled_task(state: Log) -> None:
    task = asyncio.create_task(asyncio.sleep(60))
    task.cancel()
    await task


def raise_it_in_a_thread(state: Log) -> None:
    raise asyncio.CancelledError("mine")


@pytest.mark.parametrize("siblings", [0, 1])
@pytest.mark.parametrize(
    "action",
    [raise_it, await_a_cancelled_future, await_a_cancelled_task, raise_it_in_a_thread],
    ids=lambda action: action.__name__,
)
@pytest.mark.parametrize("timeout", [None, 30])
async def test_a_node_that_raises_cancelled_error_itself_fails(
    action: Callable[..., Any], siblings: int, timeout: float | None
) -> None:
    sibling = [says("sibling") for _ in range(siblings)]
    with pytest.raises(NodeCancelledError) as caught:
        await side_by_side(("n", action), *sibling, node={"timeout": timeout}).ainvoke({"log": []})
    assert str(caught.value) == (
        "node 'n' raised CancelledError itself, though nobody cancelled the run; let it raise another error"
    )
    assert isinstance(caught.value.__cause__, asyncio.CancelledError)
    assert notes_of(caught.value) == ["in node 'n' (attempt 1, step 1)"]


async def test_a_node_that_was_cancelled_by_itself_may_be_tried_again() -> None:
    attempts = 0

    async def flaky(state: Log) -> Update:
        nonlocal attempts
        attempts += 1
        if attempts == 1:
            raise asyncio.CancelledError
        return {"log": [attempts]}

    assert await chain(flaky, node={"retry_policy": AT_ONCE}).ainvoke({"log": []}) == {"log": [2]}


# Failures ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("durability", DURABILITIES)
async def test_a_failing_node_cancels_its_siblings_and_keeps_what_has_finished(durability: str, saver: Any) -> None:
    quick, waiting, is_up = Counted("quick"), Waiting(), False

    async def fail(state: Log) -> Update:
        await waiting.entered.wait()
        if not is_up:
            raise ConnectionError("down")
        return {"log": ["fixed"]}

    graph = side_by_side(fail, ("quick", quick), ("waiting", waiting), saver=saver)
    before = other_tasks()
    with pytest.raises(ConnectionError) as caught:
        await graph.ainvoke({"log": []}, thread(), durability=durability)
    assert notes_of(caught.value) == ["in node 'fail' (attempt 1, step 1, thread 't')"]
    assert waiting.left.is_set()
    assert other_tasks() == before
    record = await saver.aget_thread("t")
    assert (record.status, record.error) == ("failed", "ConnectionError: down")
    state = await graph.aget_state(thread())
    assert state.next == ("fail", "waiting")
    assert {task.name: str(task.error) for task in state.tasks} == {
        "fail": "ConnectionError('down')",
        "quick": "None",
        "waiting": "None",
    }
    is_up = True
    waiting.go.set()
    assert await graph.ainvoke(None, thread()) == {"log": ["fixed", "quick", "waited"]}
    assert quick.runs == 1
    record = await saver.aget_thread("t")
    assert (record.status, record.error) == ("done", None)


async def test_the_first_of_several_failures_is_the_one_that_is_raised() -> None:
    first_failed = asyncio.Event()

    async def a(state: Log) -> None:
        await asyncio.sleep(0)
        first_failed.set()
        raise ValueError("first")

    async def b(state: Log) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            assert first_failed.is_set()
            raise KeyError("while it was being cancelled")

    with pytest.raises(ValueError, match="first"):
        await side_by_side(a, b).ainvoke({"log": []})


async def test_a_sibling_that_finishes_while_it_is_cancelled_is_not_run_again(saver: Any) -> None:
    is_up, runs = False, 0
    entered = asyncio.Event()

    async def fail(state: Log) -> None:
        await entered.wait()
        if not is_up:
            raise ConnectionError

    async def finishes(state: Log) -> Update:
        nonlocal runs
        runs += 1
        entered.set()
        if not is_up:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.Event().wait()
        return {"log": ["finished"]}

    graph = side_by_side(fail, finishes, saver=saver)
    with pytest.raises(ConnectionError):
        await graph.ainvoke({"log": []}, thread())
    is_up = True
    assert await graph.ainvoke(None, thread()) == {"log": ["finished"]}
    assert runs == 1


async def test_a_cancelled_run_does_not_wait_for_the_thread_of_a_sync_node(saver: Any) -> None:
    entered, go, ended = threading.Event(), threading.Event(), threading.Event()

    def work(state: Log) -> Update:
        entered.set()
        go.wait(10)
        ended.set()
        return {"log": ["late"]}

    graph = chain(work, saver=saver)
    run = asyncio.create_task(graph.ainvoke({"log": []}, thread()))
    await asyncio.to_thread(entered.wait, 10)
    await cancel(run)
    assert not ended.is_set()
    go.set()
    await asyncio.to_thread(ended.wait, 10)
    assert (await graph.aget_state(thread())).values == {"log": []}
    assert await graph.ainvoke(None, thread()) == {"log": ["late"]}

"""Durability: what is stored when, how far a run may be ahead of its store, and what a failing store does to it."""

from __future__ import annotations

import asyncio
import time
from typing import Annotated, Any

import pytest

from everstep.channels import UntrackedValue
from everstep.constants import START
from everstep.context import Runtime, interrupt
from everstep.errors import ConfigError, GraphDrained
from everstep.graph.builder import StateGraph
from everstep.types import Command
from tests.engine.graphs import Log, Update, chain, history, says, side_by_side, thread
from tests.engine.watched import Gate, StoreBroke, WatchedSaver, failing, failing_from

DURABILITIES = ["sync", "async", "exit"]


class Loop:
    """A self-loop of a number of steps that counts how often it was entered."""

    def __init__(self, steps: int) -> None:
        self.steps = steps
        self.entered = 0

    async def __call__(self, state: Log) -> Command[Any]:
        self.entered += 1
        number = len(state["log"]) + 1
        return Command(update={"log": [number]}, goto="loop" if number < self.steps else ())

    def graph(self, saver: Any) -> Any:
        return StateGraph(Log).add_node("loop", self).add_edge(START, "loop").compile(saver)


# What is stored when --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("durability", DURABILITIES)
async def test_the_run_can_be_found_before_its_first_node_starts(durability: str, saver: Any) -> None:
    found: list[Any] = []

    async def look(state: Log) -> None:
        found.extend([(record.thread_id, record.status) async for record in saver.alist_threads(status="running")])

    await chain(look, saver=saver).ainvoke({"log": []}, thread(), durability=durability)
    assert found == [("t", "running")]


async def test_in_sync_durability_a_step_is_stored_before_the_next_one_starts(saver: Any) -> None:
    seen: list[Any] = []

    async def look(state: Log) -> Update:
        seen.append((await graph.aget_state(thread())).values["log"])
        return {"log": [len(seen)]}

    graph = chain(("a", look), ("b", look), ("c", look), saver=saver)
    await graph.ainvoke({"log": []}, thread(), durability="sync")
    assert seen == [[], [1], [1, 2]]


async def test_in_exit_durability_one_checkpoint_is_stored_when_the_run_leaves(saver: Any) -> None:
    graph = chain(says("a"), says("b"), saver=saver)
    watched = WatchedSaver(saver)
    graph = chain(says("a"), says("b"), saver=watched)
    await graph.ainvoke({"log": ["in"]}, thread(), durability="exit")
    assert watched.commits == 2
    assert [(s.values, s.next) for s in await history(graph, thread())] == [({"log": ["in", "a", "b"]}, ())]
    await graph.ainvoke({"log": ["again"]}, thread(), durability="exit")
    assert [s.values["log"] for s in await history(graph, thread())] == [
        ["in", "a", "b", "again", "a", "b"],
        ["in", "a", "b"],
    ]


@pytest.mark.parametrize("durability", DURABILITIES)
async def test_a_question_can_be_answered_in_another_durability(durability: str, saver: Any) -> None:
    runs: list[str] = []

    async def ask(state: Log) -> Update:
        runs.append("ask")
        return {"log": [interrupt("q")]}

    async def beside(state: Log) -> Update:
        runs.append("beside")
        return {"log": ["beside"]}

    builder = StateGraph(Log).add_node(*says("first")).add_node(ask).add_node(beside).add_node(*says("last"))
    builder.add_edge(START, "first").add_edge("first", "ask").add_edge("first", "beside")
    graph = builder.add_edge(["ask", "beside"], "last").compile(saver)
    for number, answering in enumerate(DURABILITIES):
        runs.clear()
        config = thread(str(number))
        await graph.ainvoke({"log": []}, config, durability=durability)
        result = await graph.ainvoke(Command(resume="A"), config, durability=answering)
        assert result == (await graph.aget_state(config)).values == {"log": ["first", "A", "beside", "last"]}
        assert sorted(runs) == ["ask", "ask", "beside"]


async def test_an_unknown_durability_is_refused(saver: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        await chain(says("a"), saver=saver).ainvoke({"log": []}, thread(), durability="snyc")
    assert str(caught.value) == "durability is 'sync', 'async' or 'exit', got 'snyc'"


# How a run ends ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("durability", DURABILITIES)
async def test_the_thread_tells_how_its_last_run_ended(durability: str, saver: Any) -> None:
    async def act(state: Log) -> Update:
        if state["value"] == "fail":
            raise ValueError("broken")
        if state["value"] == "ask":
            interrupt("q")
        return {"log": ["done"]}

    graph = chain(says("a"), act, saver=saver, name="acting")
    for given, status, error in (
        ("ask", "interrupted", None),
        ("fail", "failed", "ValueError: broken"),
        ("go", "done", None),
    ):
        try:
            await graph.ainvoke({"value": given}, thread(), durability=durability)
        except ValueError:
            assert given == "fail"
        record = await saver.aget_thread("t")
        assert (record.status, record.error, record.graph) == (status, error, "acting")
        assert record.head == (await graph.aget_state(thread())).config["configurable"]["checkpoint_id"]
        assert not record.has_input


@pytest.mark.parametrize("durability", DURABILITIES)
async def test_a_failed_run_continued_with_none_runs_only_what_had_not_finished(durability: str, saver: Any) -> None:
    runs: list[str] = []
    is_up = False

    async def prepare(state: Log) -> Update:
        runs.append("prepare")
        return {"log": ["prepared"]}

    async def beside(state: Log) -> Update:
        runs.append("beside")
        return {"log": ["beside"]}

    async def submit(state: Log) -> Update:
        runs.append("submit")
        if not is_up:
            raise ConnectionError("down")
        return {"log": ["submitted"]}

    builder = StateGraph(Log).add_node(prepare).add_node(beside).add_node(submit).add_node(*says("finalize"))
    builder.add_edge(START, "prepare").add_edge("prepare", "submit").add_edge("prepare", "beside")
    graph = builder.add_edge(["submit", "beside"], "finalize").compile(saver)
    with pytest.raises(ConnectionError):
        await graph.ainvoke({"log": []}, thread(), durability=durability)
    assert (await graph.aget_state(thread())).next == ("submit",)
    is_up = True
    expected = {"log": ["prepared", "beside", "submitted", "finalize"]}
    assert await graph.ainvoke(None, thread(), durability=durability) == expected
    assert sorted(runs) == ["beside", "prepare", "submit", "submit"]


# A slow store -----------------------------------------------------------------------------------------------------


async def test_a_run_is_never_more_than_two_step_commits_ahead_of_a_slow_store(saver: Any) -> None:
    steps, delay = 100, 0.05
    loop, ahead, stored = Loop(steps), [], 0

    async def slow(number: int, commit: Any) -> None:
        await asyncio.sleep(delay)
        ahead.append(loop.entered - stored)

    async def count(number: int, commit: Any) -> None:
        nonlocal stored
        stored += number > 2  # the claim, and the step that makes the input into state

    watched = WatchedSaver(saver, before=slow, after=count)
    started = time.monotonic()
    await loop.graph(watched).ainvoke({"log": []}, thread(), durability="async")
    elapsed = time.monotonic() - started
    assert max(ahead) == 3  # two commits are under way, and a third step is about to wait for the first of them
    assert steps * delay <= elapsed < steps * delay + 5
    assert watched.commits == steps + 2


async def test_a_run_goes_on_while_two_commits_are_under_way_and_then_waits(saver: Any) -> None:
    gate = Gate(2)  # the first commit behind the claim
    loop = Loop(20)
    run = asyncio.create_task(loop.graph(WatchedSaver(saver, before=gate)).ainvoke({"log": []}, thread()))
    await gate.reached.wait()
    for _ in range(200):
        await asyncio.sleep(0)
    assert 1 <= loop.entered <= 2
    gate.opened.set()
    assert len((await run)["log"]) == 20


@pytest.mark.parametrize("durability", ["sync", "async"])
async def test_a_store_error_fails_the_run_within_two_steps(durability: str, saver: Any) -> None:
    broken = 6
    loop = Loop(100)
    graph = loop.graph(WatchedSaver(saver, before=failing(broken)))
    with pytest.raises(StoreBroke, match=f"commit {broken} failed"):
        await graph.ainvoke({"log": []}, thread(), durability=durability)
    stored = broken - 3  # without the claim and the step that makes the input into state
    assert loop.entered <= stored + 1 + (2 if durability == "async" else 0)
    record = await saver.aget_thread("t")
    assert (record.status, record.error) == ("failed", f"StoreBroke: commit {broken} failed")
    assert (await graph.aget_state(thread())).values == {"log": list(range(1, stored + 1))}
    result = await Loop(10).graph(saver).ainvoke(None, thread())
    assert result == {"log": list(range(1, 11))}


@pytest.mark.parametrize("durability", DURABILITIES)
async def test_a_run_whose_last_commit_fails_does_not_return_as_if_it_were_stored(durability: str, saver: Any) -> None:
    last = 2 if durability == "exit" else 4
    graph = chain(says("a"), says("b"), saver=WatchedSaver(saver, before=failing(last)))
    with pytest.raises(StoreBroke):
        await graph.ainvoke({"log": []}, thread(), durability=durability)
    assert (await saver.aget_thread("t")).status == "failed"
    assert await chain(says("a"), says("b"), saver=saver).ainvoke(None, thread()) == {"log": ["a", "b"]}


@pytest.mark.parametrize("durability", DURABILITIES)
@pytest.mark.parametrize("number", [2, 3, 4])
async def test_a_question_is_told_only_once_all_before_it_is_stored(number: int, durability: str, saver: Any) -> None:
    async def ask(state: Log) -> Update:
        return {"log": [interrupt("sure?")]}

    def graph(saver: Any) -> Any:
        return chain(says("a"), ("ask", ask), saver=saver)

    if number <= (2 if durability == "exit" else 4):
        with pytest.raises(StoreBroke):
            await graph(WatchedSaver(saver, before=failing(number))).ainvoke(
                {"log": []}, thread(), durability=durability
            )
        assert (await saver.aget_thread("t")).status == "failed"
        await graph(saver).ainvoke(None, thread(), durability=durability)
    else:
        await graph(saver).ainvoke({"log": []}, thread(), durability=durability)

    assert [question.value for question in (await graph(saver).aget_state(thread())).interrupts] == ["sure?"]
    assert await graph(saver).ainvoke(Command(resume="yes"), thread()) == {"log": ["a", "yes"]}


@pytest.mark.parametrize("durability", DURABILITIES)
@pytest.mark.parametrize("number", [2, 3, 4])
async def test_a_run_is_drained_only_once_its_steps_are_stored(number: int, durability: str, saver: Any) -> None:
    async def leave(state: Log, runtime: Runtime[Any]) -> Update:
        assert runtime.control is not None
        runtime.control.request_drain()
        return {"log": ["a"]}

    broken = number <= (2 if durability == "exit" else 4)
    stopped = chain(("a", leave), says("b"), saver=WatchedSaver(saver, before=failing(number)))
    with pytest.raises(StoreBroke if broken else GraphDrained):
        await stopped.ainvoke({"log": []}, thread(), durability=durability)

    assert (await saver.aget_thread("t")).status == ("failed" if broken else "drained")
    assert await chain(says("a"), says("b"), saver=saver).ainvoke(None, thread()) == {"log": ["a", "b"]}


@pytest.mark.parametrize("durability", DURABILITIES)
async def test_the_error_of_a_node_is_told_though_the_store_is_gone_too(
    durability: str, saver: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(state: Log) -> None:
        raise ValueError("the node's own")

    last = 2 if durability == "exit" else 3
    graph = chain(fail, saver=WatchedSaver(saver, before=failing_from(last)))
    with pytest.raises(ValueError, match="the node's own"):
        await graph.ainvoke({"log": []}, thread(), durability=durability)
    assert (await saver.aget_thread("t")).status == "running"
    assert [record.message for record in caplog.records if record.name == "everstep"] == [
        f"the end of a run could not be stored (failed): StoreBroke: commit {last} failed"
    ]


async def test_a_run_that_cannot_claim_its_thread_runs_nothing(saver: Any) -> None:
    loop = Loop(3)
    with pytest.raises(StoreBroke):
        await loop.graph(WatchedSaver(saver, before=failing(1))).ainvoke({"log": []}, thread())
    assert loop.entered == 0
    assert await saver.aget_thread("t") is None


@pytest.mark.parametrize("durability", DURABILITIES)
@pytest.mark.parametrize("number", [1, 2, 3, 4])
async def test_a_commit_that_took_effect_though_it_seemed_to_fail_is_not_done_twice(
    number: int, durability: str, saver: Any
) -> None:
    async def lose_the_reply(found: int, commit: Any) -> None:
        if found == number:
            raise StoreBroke("the reply was lost")

    graph = chain(says("a"), says("b"), saver=WatchedSaver(saver, after=lose_the_reply))
    commits = 2 if durability == "exit" else 4
    if number > commits:
        assert await graph.ainvoke({"log": []}, thread(), durability=durability) == {"log": ["a", "b"]}
        return
    with pytest.raises(StoreBroke):
        await graph.ainvoke({"log": []}, thread(), durability=durability)
    assert await chain(says("a"), says("b"), saver=saver).ainvoke(None, thread()) == {"log": ["a", "b"]}
    assert (await saver.aget_thread("t")).status == "done"


async def test_a_run_with_nothing_to_do_that_was_cut_off_can_be_finished(saver: Any) -> None:
    def build(given: Any) -> Any:
        builder = StateGraph(Log).add_node(*says("a"))
        return builder.add_conditional_edges(START, lambda state: "__end__", ["a", "__end__"]).compile(given)

    with pytest.raises(StoreBroke):
        await build(WatchedSaver(saver, before=failing_from(2))).ainvoke({"log": ["in"]}, thread())
    assert (await saver.aget_thread("t")).status == "running"
    assert await build(saver).ainvoke(None, thread()) == {"log": ["in"]}
    assert (await saver.aget_thread("t")).status == "done"


# Exit mode --------------------------------------------------------------------------------------------------------


async def test_a_run_in_exit_durability_that_is_killed_is_found_and_run_from_its_input(saver: Any) -> None:
    graph = chain(says("a"), says("b"), saver=WatchedSaver(saver, before=failing_from(2)))
    with pytest.raises(StoreBroke):
        await graph.ainvoke({"log": ["in"], "value": (1, {2})}, thread(), durability="exit")
    (record,) = [found async for found in saver.alist_threads(status="running")]
    assert (record.thread_id, record.has_input, record.input) == ("t", True, {"log": ["in"], "value": (1, {2})})
    graph = chain(says("a"), says("b"), saver=saver)
    assert await graph.ainvoke(None, thread()) == {"log": ["in", "a", "b"], "value": (1, {2})}
    record = await saver.aget_thread("t")
    assert (record.status, record.has_input, record.attempt) == ("done", False, 2)


async def test_a_killed_second_run_in_exit_durability_goes_on_from_the_first(saver: Any) -> None:
    graph = chain(says("a"), saver=saver)
    await graph.ainvoke({"log": ["1"]}, thread(), durability="exit")
    with pytest.raises(StoreBroke):
        await chain(says("a"), saver=WatchedSaver(saver, before=failing_from(2))).ainvoke(
            {"log": ["2"]}, thread(), durability="exit"
        )
    assert (await graph.aget_state(thread())).values == {"log": ["1", "a"]}
    assert await graph.ainvoke(None, thread()) == {"log": ["1", "a", "2", "a"]}


async def test_a_killed_command_in_exit_durability_is_run_again(saver: Any) -> None:
    command: Command[Any] = Command(update={"log": ["in"]}, goto="b")
    with pytest.raises(StoreBroke):
        await chain(says("a"), says("b"), saver=WatchedSaver(saver, before=failing_from(2))).ainvoke(
            command, thread(), durability="exit"
        )
    assert await chain(says("a"), says("b"), saver=saver).ainvoke(None, thread()) == {"log": ["in", "b", "a", "b"]}


async def test_in_exit_durability_results_beside_a_failure_are_kept(saver: Any) -> None:
    runs = 0
    is_up = False

    async def count(state: Log) -> Update:
        nonlocal runs
        runs += 1
        return {"log": ["counted"]}

    async def fail(state: Log) -> Update:
        await asyncio.sleep(0)
        if not is_up:
            raise ConnectionError
        return {"log": ["fixed"]}

    graph = side_by_side(count, fail, saver=saver)
    with pytest.raises(ConnectionError):
        await graph.ainvoke({"log": []}, thread(), durability="exit")
    is_up = True
    assert await graph.ainvoke(None, thread()) == {"log": ["counted", "fixed"]}
    assert runs == 1


class WithClient(Log, total=False):
    client: Annotated[object, UntrackedValue(object)]


@pytest.mark.parametrize("durability", DURABILITIES)
async def test_what_is_never_stored_need_not_be_storable(durability: Any, saver: Any) -> None:
    connected: list[object] = []

    async def connect(state: WithClient) -> Any:
        connected.append(object())
        return {"client": connected[-1]}

    async def use(state: WithClient) -> Update:
        return {"log": [state["client"] is connected[-1]]}

    async def ask(state: WithClient) -> Update:
        return {"log": [interrupt("q"), state.get("client")]}

    builder = StateGraph(WithClient).add_node(*says("beside")).add_sequence([connect, use, ask])
    graph = builder.add_edge(START, "beside").add_edge(START, "connect").compile(saver)
    await graph.ainvoke({"log": []}, thread(), durability=durability)

    result = await graph.ainvoke(Command(resume="A"), thread(), durability=durability)

    assert result == {"log": ["beside", True, "A", None]}
    assert len(connected) == 1

"""Idempotency keys: one for one task, whatever is repeated; another one for whatever is another task."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from everstep.constants import START
from everstep.context import Runtime, interrupt
from everstep.errors import NodeError
from everstep.graph.builder import StateGraph
from everstep.types import Command, Send
from tests.engine.graphs import AT_ONCE, Log, Update, chain, history, says, thread
from tests.engine.watched import StoreBroke, WatchedSaver, failing_from

DURABILITIES = ["sync", "async", "exit"]


class Pay:
    """A node that notes its idempotency key, then does something."""

    def __init__(self, then: Callable[[int], Any] = lambda run: None) -> None:
        self.keys: list[str] = []
        self.then = then

    async def __call__(self, state: Log, runtime: Runtime[Any]) -> Update:
        self.keys.append(runtime.idempotency_key)
        done = self.then(len(self.keys))
        return {"log": ["paid"] if done is None else [done]}


def fails(*runs: int) -> Callable[[int], None]:
    """Fail in these runs."""

    def then(run: int) -> None:
        if run in runs:
            raise ConnectionError(run)

    return then


def same(pay: Pay, runs: int) -> bool:
    """Has the node had that many runs, all with the same key?"""
    assert len(pay.keys) == runs
    return len(set(pay.keys)) == 1


async def test_a_key_is_the_same_at_each_attempt(saver: Any) -> None:
    pay = Pay(fails(1, 2))
    await chain(("pay", pay), saver=saver, node={"retry_policy": AT_ONCE}).ainvoke({"log": []}, thread())
    assert same(pay, 3)
    assert re.fullmatch("[0-9a-f]{32}", pay.keys[0])


async def test_without_a_saver_a_key_lasts_as_long_as_the_run() -> None:
    pay = Pay(fails(1, 4))
    graph = chain(("pay", pay), node={"retry_policy": AT_ONCE})
    await graph.ainvoke({"log": []})
    first = set(pay.keys)
    await graph.ainvoke({"log": []})
    assert len(first) == 1
    assert len(set(pay.keys)) == 2


@pytest.mark.parametrize("durability", DURABILITIES)
async def test_a_key_is_the_same_when_a_failed_run_is_continued(durability: str, saver: Any) -> None:
    pay = Pay(fails(1, 2))
    graph = chain(says("a"), ("pay", pay), saver=saver)
    with pytest.raises(ConnectionError):
        await graph.ainvoke({"log": []}, thread(), durability=durability)
    with pytest.raises(ConnectionError):
        await graph.ainvoke(None, thread(), durability=durability)
    await graph.ainvoke(None, thread(), durability=durability)
    assert same(pay, 3)


@pytest.mark.parametrize("durability", DURABILITIES)
async def test_a_key_is_the_same_when_the_store_lost_the_steps_before(durability: str, saver: Any) -> None:
    pay = Pay()
    broken = WatchedSaver(saver, before=failing_from(2))
    nodes = (says("a"), says("b"), ("pay", pay))
    builder = StateGraph(Log)
    for name, action in nodes:
        builder.add_node(name, action)
    builder.add_edge(START, "a").add_edge("a", "b").add_edge("b", "pay")
    with pytest.raises(StoreBroke):
        await builder.compile(broken).ainvoke({"log": []}, thread(), durability=durability)
    ran_before = len(pay.keys)
    assert await builder.compile(saver).ainvoke(None, thread(), durability=durability) == {"log": ["a", "b", "paid"]}
    assert same(pay, ran_before + 1)
    if durability == "exit":
        assert ran_before == 1  # only the input was stored


@pytest.mark.parametrize("durability", DURABILITIES)
async def test_a_key_is_the_same_when_a_question_is_answered(durability: str, saver: Any) -> None:
    pay = Pay(lambda run: interrupt("really?"))
    graph = chain(says("a"), ("pay", pay), saver=saver)
    await graph.ainvoke({"log": []}, thread(), durability=durability)
    await graph.ainvoke(Command(resume="yes"), thread(), durability=durability)
    assert same(pay, 2)


@pytest.mark.parametrize("durability", DURABILITIES)
async def test_a_key_is_the_same_after_a_breakpoint(durability: str, saver: Any) -> None:
    pay = Pay(fails(1))
    graph = chain(says("a"), ("pay", pay), saver=saver, interrupt_before=["pay"])
    await graph.ainvoke({"log": []}, thread(), durability=durability)
    with pytest.raises(ConnectionError):
        await graph.ainvoke(None, thread(), durability=durability)
    await graph.ainvoke(None, thread(), durability=durability)
    assert same(pay, 2)


async def test_tasks_have_keys_of_their_own(saver: Any) -> None:
    pay = Pay()
    builder = StateGraph(Log).add_node("pay", pay).add_node("other", pay).add_edge("pay", "other")
    builder.add_conditional_edges(START, lambda state: [Send("pay", {"value": n}) for n in range(3)], ["pay"])
    await builder.compile(saver).ainvoke({"log": []}, thread())
    assert len(pay.keys) == len(set(pay.keys)) == 4


async def test_a_loop_has_a_key_for_each_turn(saver: Any) -> None:
    pay = Pay()
    builder = StateGraph(Log).add_node("pay", pay).add_edge(START, "pay")
    builder.add_conditional_edges(
        "pay", lambda state: "pay" if len(state["log"]) < 5 else "__end__", ["pay", "__end__"]
    )
    await builder.compile(saver).ainvoke({"log": []}, thread())
    assert len(pay.keys) == len(set(pay.keys)) == 5


@pytest.mark.parametrize("durability", DURABILITIES)
async def test_another_input_another_thread_and_a_replay_give_other_keys(durability: str, saver: Any) -> None:
    pay = Pay()
    graph = chain(("pay", pay), saver=saver)
    await graph.ainvoke({"log": []}, thread(), durability=durability)
    await graph.ainvoke({"log": []}, thread("other"), durability=durability)
    await graph.ainvoke({"log": []}, thread())
    before = next(state for state in await history(graph, thread()) if state.next == ("pay",)).config
    await graph.ainvoke(None, before, durability=durability)
    await graph.ainvoke(None, before, durability=durability)
    assert len(pay.keys) == len(set(pay.keys)) == 5


async def test_a_deleted_threads_keys_do_not_come_back(saver: Any) -> None:
    pay = Pay()
    graph = chain(("pay", pay), saver=saver)
    await graph.ainvoke({"log": []}, thread())
    await saver.adelete_thread("t")
    await graph.ainvoke({"log": []}, thread())
    assert len(set(pay.keys)) == 2


async def test_a_replay_that_fails_is_continued_with_its_keys(saver: Any) -> None:
    pay = Pay(fails(2))
    graph = chain(says("a"), ("pay", pay), saver=saver)
    await graph.ainvoke({"log": []}, thread())
    before = next(state for state in await history(graph, thread()) if state.next == ("pay",)).config
    with pytest.raises(ConnectionError):
        await graph.ainvoke(None, before)
    await graph.ainvoke(None, thread())
    assert pay.keys[1] == pay.keys[2] != pay.keys[0]


async def test_an_update_that_leaves_a_question_open_keeps_its_tasks_key(saver: Any) -> None:
    pay = Pay(lambda run: interrupt("really?"))
    after = Pay()
    graph = chain(says("a"), ("pay", pay), ("after", after), saver=saver)
    await graph.ainvoke({"log": []}, thread())
    for value in (1, 2):
        await graph.aupdate_state(thread(), {"value": value}, as_node="a")
    result = await graph.ainvoke(Command(resume="yes"), thread())
    assert result == {"log": ["a", "yes", "paid"], "value": 2}
    assert same(pay, 2)
    assert after.keys[0] != pay.keys[0]


async def test_an_update_that_begins_anew_gives_other_keys(saver: Any) -> None:
    pay = Pay()
    graph = chain(says("a"), ("pay", pay), says("b"), saver=saver)
    await graph.ainvoke({"log": []}, thread())
    states = await history(graph, thread())
    before = next(state for state in states if state.next == ("pay",)).config
    # Both lead to another run of the node, at one step: once on a branch from the past, once at the head.
    await graph.ainvoke(None, await graph.aupdate_state(before, {"value": 1}, as_node="a"))
    await graph.aupdate_state(before, {"value": 2}, as_node="a")
    await graph.ainvoke(None, thread())
    assert len(pay.keys) == len(set(pay.keys)) == 3


async def test_a_handler_has_a_key_of_its_own_that_lasts(saver: Any) -> None:
    keys: list[str] = []

    async def handle(state: Log, error: NodeError, runtime: Runtime[Any]) -> None:
        keys.append(runtime.idempotency_key)
        if len(keys) == 1:
            raise KeyError("handler")

    pay = Pay(fails(1))
    builder = StateGraph(Log).add_node("pay", pay, error_handler=handle).add_edge(START, "pay")
    graph = builder.compile(saver)
    with pytest.raises(KeyError):
        await graph.ainvoke({"log": []}, thread())
    await graph.ainvoke(None, thread())
    assert keys[0] == keys[1] != pay.keys[0]


# Subgraphs --------------------------------------------------------------------------------------------------------


def in_subgraph(pay: Pay, saver: Any, **options: Any) -> Any:
    inner = chain(says("i"), ("pay", pay), **options)
    middle = StateGraph(Log).add_node("inner", inner).add_edge(START, "inner").compile()
    builder = StateGraph(Log).add_node(*says("a")).add_node("middle", middle)
    return builder.add_edge(START, "a").add_edge("a", "middle").compile(saver)


@pytest.mark.parametrize("durability", DURABILITIES)
async def test_a_key_in_a_subgraph_is_the_same_when_the_run_is_continued(durability: str, saver: Any) -> None:
    pay = Pay(fails(1, 2))
    graph = in_subgraph(pay, saver)
    with pytest.raises(ConnectionError):
        await graph.ainvoke({"log": []}, thread(), durability=durability)
    with pytest.raises(ConnectionError):
        await graph.ainvoke(None, thread(), durability=durability)
    await graph.ainvoke(None, thread(), durability=durability)
    assert same(pay, 3)


@pytest.mark.parametrize("durability", DURABILITIES)
async def test_a_key_in_a_subgraph_is_the_same_when_the_store_lost_the_steps_before(
    durability: str, saver: Any
) -> None:
    pay = Pay(fails(1))
    with pytest.raises((ConnectionError, StoreBroke)):
        await in_subgraph(pay, WatchedSaver(saver, before=failing_from(2))).ainvoke(
            {"log": []}, thread(), durability=durability
        )
    ran_before = len(pay.keys)
    pay.then = fails()
    await in_subgraph(pay, saver).ainvoke(None, thread(), durability=durability)
    assert same(pay, ran_before + 1)
    if durability == "exit":
        assert ran_before == 1


@pytest.mark.parametrize("checkpointer", [None, True, False])
async def test_each_call_of_a_subgraph_has_its_own_keys_and_they_last(checkpointer: Any, saver: Any) -> None:
    pay = Pay()
    inner = chain(("pay", pay), saver=checkpointer)
    other = chain(("pay", pay))
    runs = 0

    async def call(state: Log) -> Update:
        nonlocal runs
        runs += 1
        await inner.ainvoke({"log": []})
        await other.ainvoke({"log": []})
        if runs == 1:
            raise ConnectionError
        return {"log": ["called"]}

    await chain(call, saver=saver, node={"retry_policy": AT_ONCE}).ainvoke({"log": []}, thread())
    # A subgraph that has finished for its checkpoint may not run again.
    assert len(set(pay.keys)) == 2
    assert pay.keys[0] != pay.keys[1]


async def test_siblings_that_run_one_subgraph_have_keys_of_their_own(saver: Any) -> None:
    pay = Pay()
    inner = chain(("pay", pay))
    builder = StateGraph(Log).add_node("x", inner).add_node("y", inner).add_edge(START, "x").add_edge(START, "y")
    await builder.compile(saver).ainvoke({"log": []}, thread())
    assert len(set(pay.keys)) == 2


# Threads without a starting point ----------------------------------------------------------------------------------


async def test_a_thread_from_before_there_were_starting_points_finds_its_own(saver: Any) -> None:
    class Forgetful(WatchedSaver):
        """Keeps threads as before there were starting points."""

        def prepare(self, commit: Any) -> Any:
            claim = None if commit.claim is None else replace(commit.claim, starting_point=None)
            return super().prepare(replace(commit, claim=claim))

    pay = Pay(fails(1, 2))
    graph = chain(says("a"), ("pay", pay), saver=Forgetful(saver))
    with pytest.raises(ConnectionError):
        await graph.ainvoke({"log": []}, thread())
    assert (await saver.aget_thread("t")).starting_point is None
    with pytest.raises(ConnectionError):
        await graph.ainvoke(None, thread())
    await graph.ainvoke(None, thread())
    assert same(pay, 3)

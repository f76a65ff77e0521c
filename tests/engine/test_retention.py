"""Threads go on as before after they were pruned: at their head, at a question, on a branch, inside subgraphs."""

from __future__ import annotations

import operator
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, TypedDict
from uuid import UUID

import pytest

from everstep import START, Command, StateGraph, interrupt
from everstep.graph.compiled import CompiledStateGraph
from everstep.types import Durability
from everstep_savers.base import MaintainedSaver
from everstep_savers.errors import CheckpointNotFound, LeaseLost, ThreadConflict
from tests.engine.graphs import Log, Update, chain, history, says, side_by_side, thread

Saver = MaintainedSaver[Any]


def counting(limit: int, saver: Saver, size: int = 1) -> Any:
    """A node that logs until the log is so long, step by step."""

    async def count(state: Log) -> Update:
        return {"log": [f"{len(state['log'])}".zfill(size)]}

    builder = StateGraph(Log)
    builder.add_node("count", count)
    builder.add_edge(START, "count")
    builder.add_conditional_edges("count", lambda state: "count" if len(state["log"]) < limit else "__end__")
    return builder.compile(saver)


async def test_a_pruned_thread_continues_and_its_branch_stays_readable(saver: Saver) -> None:
    graph = counting(12, saver, size=1000)
    await graph.ainvoke({"log": []}, thread())
    line = await history(graph, thread())
    past = next(state for state in line if len(state.values.get("log", ())) == 4 and state.next)
    branch = await graph.aupdate_state(past.config, {"log": ["branched"]})
    before = (await graph.aget_state(branch)).values
    old_tip = line[0]

    pruned = await saver.aprune(["t"], keep_last=3)

    assert pruned.checkpoints["t"] > 3
    assert (await graph.aget_state(branch)).values == before
    assert (await graph.aget_state(old_tip.config)).values == old_tip.values
    assert (await graph.aget_state(past.config)).values == past.values
    finished = await graph.ainvoke(None, thread())
    assert finished["log"][:5] == [*before["log"]]
    assert len(finished["log"]) == 12


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
async def test_a_replay_of_a_checkpoint_that_is_pruned_meanwhile_is_refused(
    saver: Saver, monkeypatch: pytest.MonkeyPatch, durability: Any
) -> None:
    graph = counting(6, saver)
    await graph.ainvoke({"log": []}, thread())
    past = next(state for state in await history(graph, thread()) if state.values.get("log") == ["0", "1"])
    load = saver.aload

    async def load_and_prune(config: Any) -> Any:
        loaded = await load(config)
        await saver.aprune(["t"])
        return loaded

    monkeypatch.setattr(saver, "aload", load_and_prune)
    with pytest.raises(ThreadConflict, match="were removed since it was read"):
        await graph.ainvoke(None, past.config, durability=durability)
    monkeypatch.undo()

    assert (await graph.aget_state(thread())).values["log"] == [str(number) for number in range(6)]
    assert await graph.ainvoke({"log": ["on"]}, thread(), durability=durability)
    with pytest.raises(CheckpointNotFound):
        await graph.ainvoke(None, past.config)


async def test_a_question_is_answered_after_pruning_and_finished_siblings_do_not_run_again(saver: Saver) -> None:
    ran: list[str] = []

    def sibling(state: Log) -> Update:
        ran.append("sibling")
        return {"log": ["sibling"]}

    def asks(state: Log) -> Update:
        return {"log": [interrupt("sure?")]}

    graph = side_by_side(sibling, asks, saver=saver)
    for number in range(3):
        await graph.ainvoke({"log": [number]}, thread())
    ran.clear()

    assert (await saver.aprune(["t"])).checkpoints["t"] > 0
    state = await graph.aget_state(thread())
    finished = await graph.ainvoke(Command(resume="yes"), thread())

    assert [question.value for question in state.interrupts] == ["sure?"]
    assert finished["log"] == [0, 1, 2, "yes", "sibling"]
    assert ran == []


def inner_node(graph: Any) -> tuple[str, Any]:
    return "inner", graph


def asking_inside(saver: Saver, **options: Any) -> Any:
    def review(state: Log) -> Update:
        return {"log": [f"review:{interrupt('ok?')}"]}

    inner = chain(says("a"), says("b"), review, says("c"), saver=options.pop("inner", None))
    return chain(says("first"), inner_node(inner), says("last"), saver=saver)


async def test_a_question_inside_a_subgraph_is_answered_after_pruning(saver: Saver) -> None:
    graph = asking_inside(saver)
    await graph.ainvoke({"log": []}, thread())
    before = await graph.aget_state(thread(), subgraphs=True)

    pruned = await saver.aprune(["t"])

    assert pruned.checkpoints["t"] > 2
    assert (await graph.aget_state(thread(), subgraphs=True)).tasks[0].state.values == before.tasks[0].state.values
    finished = await graph.ainvoke(Command(resume="yes"), thread())
    assert finished["log"] == ["first", "first", "a", "b", "review:yes", "c", "last"]


async def test_a_past_question_inside_a_subgraph_is_answered_anew_after_pruning(saver: Saver) -> None:
    graph = asking_inside(saver)
    await graph.ainvoke({"log": []}, thread())
    asked_at = (await graph.aget_state(thread())).config
    await graph.ainvoke(Command(resume="no"), thread())

    await saver.aprune(["t"], keep_last=3)

    again = await graph.ainvoke(Command(resume="yes"), asked_at)
    assert again["log"] == ["first", "first", "a", "b", "review:yes", "c", "last"]


async def test_a_subgraph_with_a_history_of_its_own_remembers_after_pruning(saver: Saver) -> None:
    inner = chain(says("a"), saver=True)
    graph = chain(inner_node(inner), saver=saver)
    for _ in range(3):
        await graph.ainvoke({"log": []}, thread())

    await saver.aprune(["t"])
    finished = await graph.ainvoke({"log": []}, thread())

    kept = [state async for state in graph.aget_state_history(thread(checkpoint_ns="inner"))]
    assert finished["log"].count("a") > 3
    assert len(kept) < 6


async def test_a_thread_pruned_after_every_turn_stays_small(saver: Saver) -> None:
    graph = asking_inside(saver)
    sizes = []
    for _ in range(4):
        await graph.ainvoke({"log": []}, thread())
        await graph.ainvoke(Command(resume="yes"), thread())
        await saver.aprune(["t"], keep_last=2)
        sizes.append(len([each async for each in saver.alist({"configurable": {"thread_id": "t"}})]))

    assert sizes[1:] == [sizes[1]] * 3


class Memory(TypedDict, total=False):
    """What a stateful subgraph has seen."""

    seen: Annotated[list[str], operator.add]


class Word(TypedDict, total=False):
    """A word, and how many the subgraph has seen."""

    word: str
    known: int


def remembering(saver: Saver, meanwhile: list[Callable[[], Awaitable[None]]] | None = None) -> CompiledStateGraph:
    """A graph whose first node asks a stateful subgraph, unless the word is "skip"; then comes another node."""

    async def remember(state: Memory) -> Memory:
        if meanwhile:
            await meanwhile.pop()()
        return {}

    builder = StateGraph(Memory).add_node("remember", remember).add_edge(START, "remember")
    subgraph = builder.compile(checkpointer=True)

    async def ask(state: Word) -> Word:
        if state["word"] == "skip":
            return {}
        return {"known": len((await subgraph.ainvoke({"seen": [state["word"]]}))["seen"])}

    async def rest(state: Word) -> Word:
        return {}

    outer = StateGraph(Word).add_node("ask", ask).add_node("rest", rest)
    return outer.add_edge(START, "ask").add_edge("ask", "rest").compile(saver)


@pytest.mark.parametrize("skips", [0, 3])
@pytest.mark.parametrize("keep_last", [1, 2, 5])
async def test_a_stateful_subgraph_remembers_after_its_thread_was_pruned(
    saver: Saver, keep_last: int, skips: int
) -> None:
    graph = remembering(saver)
    for word in [*"abc", *["skip"] * skips]:
        await graph.ainvoke({"word": word}, thread())

    assert (await saver.aprune(["t"], keep_last=keep_last)).checkpoints
    assert not (await saver.aprune(["t"], keep_last=keep_last)).checkpoints

    assert (await graph.ainvoke({"word": "d"}, thread()))["known"] == 4
    await saver.aprune(["t"], keep_last=keep_last)
    assert (await graph.ainvoke({"word": "e"}, thread()))["known"] == 5


async def test_pruning_again_and_again_keeps_no_more_of_a_stateful_subgraph_than_once(saver: Saver) -> None:
    graph = remembering(saver)
    sizes = []
    for word in "abcdefgh":
        await graph.ainvoke({"word": word}, thread())
        await saver.aprune(["t"])
        sizes.append(len([each async for each in saver.alist(thread())]))

    assert sizes[3:] == [sizes[3]] * 5


async def test_a_stateful_subgraph_remembers_on_each_branch_after_its_thread_was_pruned(saver: Saver) -> None:
    graph = remembering(saver)
    ends = {}
    for word in "abc":
        await graph.ainvoke({"word": word}, thread())
        ends[word] = (await graph.aget_state(thread())).config
    await graph.ainvoke({"word": "x"}, ends["a"])
    branch = (await graph.aget_state(thread())).config
    await graph.ainvoke({"word": "y"}, branch)

    await saver.aprune(["t"], keep_last=1)

    assert (await graph.ainvoke({"word": "z"}, thread()))["known"] == 4  # a, x, y
    assert (await graph.ainvoke({"word": "d"}, ends["c"]))["known"] == 4  # a, b, c


async def test_a_stateful_subgraph_remembers_what_was_before_a_run_that_is_removed(saver: Saver) -> None:
    graph = remembering(saver)
    for number, word in enumerate(["a", "b", "skip", "skip"]):
        await graph.ainvoke({"word": word}, {**thread(), "run_id": UUID(int=number)})

    await saver.adelete_for_runs([str(UUID(int=2))])

    assert (await graph.ainvoke({"word": "c"}, thread()))["known"] == 3


@pytest.mark.parametrize("durability", ["sync", "exit"])
async def test_a_run_whose_subgraph_goes_on_from_a_run_that_is_removed_stores_nothing_more(
    saver: Saver, durability: Durability
) -> None:
    first = str(UUID(int=1))
    meanwhile: list[Callable[[], Awaitable[None]]] = []
    graph = remembering(saver, meanwhile)
    await graph.ainvoke({"word": "a"}, {**thread(), "run_id": first})
    await graph.ainvoke({"word": "skip"}, thread())
    meanwhile.append(lambda: saver.adelete_for_runs([first]))

    with pytest.raises(LeaseLost, match="runs were removed"):
        await graph.ainvoke({"word": "b"}, thread(), durability=durability)

    # What the subgraph had stored by then shows what it went on from.
    assert (await graph.ainvoke({"word": "c"}, thread()))["known"] == (1 if durability == "exit" else 3)
    assert [each async for each in saver.alist(thread())]

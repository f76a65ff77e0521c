"""What a superstep costs, in things that can be counted: a regression fails here without timing anything."""

from __future__ import annotations

import operator
import random
from collections import Counter
from typing import Annotated, Any, TypedDict

import pytest

from everstep.constants import START
from everstep.context import interrupt
from everstep.errors import GraphRecursionError
from everstep.graph.builder import StateGraph
from everstep.graph.compiled import CompiledStateGraph
from everstep.types import Command, Send
from everstep_savers.memory import InMemorySaver
from everstep_savers.sql import migrate
from everstep_savers.sql.saver import SQLSaver
from tests.engine.graphs import Log, Update, chain, thread
from tests.guards.counted import counted, stored_bytes

FEW, MANY = 20, 120


class Number(TypedDict):
    """A counter."""

    n: int


class Grown(TypedDict):
    """A list that grows by any reducer."""

    items: Annotated[list[str], operator.add]


def looping(saver: Any = None) -> CompiledStateGraph:
    """One node that goes on for ever."""

    async def advance(state: Number) -> Number:
        return {"n": state["n"] + 1}

    return StateGraph(Number).add_node(advance).add_edge(START, "advance").add_edge("advance", "advance").compile(saver)


def appending(saver: Any, size: int, *, loops: bool) -> CompiledStateGraph:
    """One node that appends a text of this size, once or at each step."""

    async def append(state: Grown) -> Grown:
        return {"items": [random.Random(len(state["items"])).randbytes(size // 2).hex()]}

    builder = StateGraph(Grown).add_node(append).add_edge(START, "append")
    return (builder.add_edge("append", "append") if loops else builder).compile(saver)


async def steps(graph: CompiledStateGraph, number: int, name: str, durability: str, value: Any = None) -> None:
    """Run that many supersteps on a new thread."""
    with pytest.raises(GraphRecursionError):
        await graph.ainvoke(value or {"n": 0}, {**thread(name), "recursion_limit": number}, durability=durability)


async def per_step(saver: Any, durability: str) -> dict[str, float]:
    """What one more superstep costs."""
    graph = looping(saver)
    await steps(graph, 3, "warm", durability)
    async with counted(saver) as work:
        await steps(graph, FEW, "few", durability)
        few = work.now
        await steps(graph, MANY, "many", durability)
        many = work.now - few - few
    return {name: number / (MANY - FEW) for name, number in many.items()}


# Statements, hops, tasks ------------------------------------------------------------------------------------------


async def test_a_step_without_a_saver_makes_no_task_and_no_hop() -> None:
    assert await per_step(None, "sync") == {}


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
async def test_a_step_in_memory_makes_no_task_and_no_hop(durability: str) -> None:
    assert await per_step(InMemorySaver(), durability) == {}


@pytest.mark.parametrize("durability", ["sync", "async"])
async def test_a_step_in_sqlite_is_one_hop_and_one_transaction(durability: str, sqlite_url: str) -> None:
    async with SQLSaver.from_url(sqlite_url) as saver:
        cost = await per_step(saver, durability)
    # BEGIN, the fence, a checkpoint, a value, COMMIT.
    assert cost["statements"] <= 5
    assert cost["hops"] <= 1
    assert cost.get("tasks", 0) <= 1  # a commit is not cut short by a cancellation of its run


@pytest.mark.parametrize("durability", ["sync", "async"])
async def test_a_step_in_postgres_is_one_statement(durability: str, postgres_url: str) -> None:
    async with SQLSaver.from_url(postgres_url) as saver:
        cost = await per_step(saver, durability)
    assert cost["statements"] <= 1
    assert cost.get("hops", 0) == 0
    assert cost.get("tasks", 0) <= 1


async def test_a_step_in_exit_durability_stores_nothing(saver_url: str) -> None:
    async with SQLSaver.from_url(saver_url) as saver:
        assert await per_step(saver, "exit") == {}


@pytest.mark.parametrize("questions", [1, 2])
async def test_a_question_and_its_answer_take_a_fixed_number_of_statements(questions: int, postgres_url: str) -> None:
    def ask(state: Log) -> Update:
        return {"log": [interrupt(number) for number in range(questions)]}

    async with SQLSaver.from_url(postgres_url) as saver:
        graph = chain(ask, saver=saver)
        for name in ("warm", "t"):
            async with counted(saver) as work:
                await graph.ainvoke({"log": []}, thread(name))
                for _ in range(questions):
                    await graph.ainvoke(Command(resume="yes"), thread(name))
    # Load, claim, the input as state, the question; for each answer: load, claim, the next question or the end.
    assert len(work.statements) <= 4 + 3 * questions


async def test_tasks_beside_each_other_are_one_asyncio_task_each() -> None:
    async def work(item: int) -> Update:
        return {"log": [item]}

    builder = StateGraph(Log).add_node(work)
    builder.add_conditional_edges(START, lambda state: [Send("work", number) for number in range(100)], ["work"])
    graph = builder.compile()
    async with counted() as made:
        await graph.ainvoke({"log": []})
    assert made.now == Counter(tasks=100)


async def test_a_head_is_read_by_two_queries_at_most_and_a_history_by_pages(saver_url: str) -> None:
    async with SQLSaver.from_url(saver_url) as saver:
        graph = looping(saver)
        await steps(graph, 1000, "t", "async")
        async with counted(saver) as work:
            assert (await graph.aget_state(thread())).values == {"n": 1000}
        assert len(work.statements) <= 2
        async with counted(saver) as work:
            found = [snapshot.values.get("n") async for snapshot in graph.aget_state_history(thread())]
    assert found[:1000] == list(range(1000, 0, -1))
    assert len(work.statements) <= 25


# Bytes ------------------------------------------------------------------------------------------------------------


@pytest.fixture
async def new_url(empty_url: str) -> str:
    """A database in which nothing has been deleted, so that all that is stored makes it larger."""
    await migrate.upgrade(empty_url)
    return empty_url


async def bytes_per_step(url: str, make: Any, value: Any, few: int, many: int) -> float:
    """Bytes of the closed database that a step takes."""
    sizes = []
    for number, name in ((2, "warm"), (few, "few"), (many, "many")):
        async with SQLSaver.from_url(url) as saver:
            await steps(make(saver), number, name, "async", value)
        sizes.append(await stored_bytes(url))
    return (sizes[2] - sizes[1]) / many


async def test_a_small_step_takes_few_bytes(new_url: str) -> None:
    limit = 600 if new_url.startswith("sqlite") else 900
    assert await bytes_per_step(new_url, looping, {"n": 0}, 100, 1000) <= limit


async def test_a_step_of_a_wide_state_stores_what_has_changed(new_url: str) -> None:
    keys = [f"key_{number}" for number in range(100)]
    wide: Any = TypedDict("wide", dict.fromkeys(keys, int))  # type: ignore[misc]

    def make(saver: Any) -> CompiledStateGraph:
        builder = StateGraph(wide)
        for number in range(10):

            async def write(state: Any, key: str = keys[number * 10]) -> dict[str, int]:
                return {key: state[key] + 1}

            builder.add_node(f"node_{number}", write)
        for number in range(10):
            builder.add_edge(f"node_{number}", f"node_{(number + 1) % 10}")
        return builder.add_edge(START, "node_0").compile(saver)

    assert await bytes_per_step(new_url, make, dict.fromkeys(keys, 0), 50, 500) <= 2500


async def test_a_kilobyte_appended_per_step_takes_as_many_bytes_late_as_early(new_url: str) -> None:
    sizes = {}
    for number in (2, 50, 100, 200, 400):
        before = await stored_bytes(new_url)
        async with SQLSaver.from_url(new_url) as saver:
            await steps(appending(saver, 1024, loops=True), number, f"t{number}", "async", {"items": []})
        sizes[number] = (await stored_bytes(new_url) - before) / number
    assert sizes[400] <= 1.3 * sizes[50]


async def test_a_thousand_turns_take_few_bytes_each(new_url: str) -> None:
    """One run a turn, as a chat has them; each adds a message of 200 bytes."""
    sizes = []
    for name, turns in (("warm", 1), ("t", 1000)):
        async with SQLSaver.from_url(new_url) as saver:
            graph = appending(saver, 200, loops=False)
            for _ in range(turns):
                await graph.ainvoke({"items": []}, thread(name), durability="async")
            assert len((await graph.aget_state(thread(name))).values["items"]) == turns
        sizes.append(await stored_bytes(new_url))
    assert (sizes[1] - sizes[0]) / 1000 <= 1500

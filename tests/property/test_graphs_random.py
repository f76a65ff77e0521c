"""Random graphs: the same state whoever finishes first, however often the run is cut, and wherever it is stored."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from everstep.types import Command
from everstep_savers.base import AtomicSaver
from everstep_savers.memory import InMemorySaver
from everstep_savers.sql import migrate
from everstep_savers.sql.saver import SQLSaver
from tests.engine.watched import StoreBroke, WatchedSaver, failing_from
from tests.property.shapes import Pace, Shape, answer_to, build, paces, shapes

CONFIG = {"configurable": {"thread_id": "t"}}
durabilities = st.sampled_from(["sync", "async", "exit"])


def some(examples: int) -> settings:
    """The same examples in every run, few enough to be quick."""
    return settings(max_examples=examples, deadline=None, derandomize=True, database=None)


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(work)


def fresh() -> dict[str, Any]:
    return {"log": [], "total": 0}


async def undisturbed(shape: Shape) -> Any:
    """What a run without saver, questions and waiting gives."""
    return await build(shape).ainvoke(fresh())


async def history(graph: Any) -> list[Any]:
    """What the thread's history tells, without ids and times."""
    return [
        (s.values, s.next, s.metadata["source"], s.metadata["step"], [(t.name, t.path, t.result) for t in s.tasks])
        async for s in graph.aget_state_history(CONFIG)
    ]


@some(60)
@given(shape=shapes(), pace=paces)
def test_the_result_does_not_depend_on_who_finishes_first(shape: Shape, pace: list[int]) -> None:
    async def check() -> None:
        expected = await undisturbed(shape)
        assert await build(shape, Pace(pace)).ainvoke(fresh()) == expected
        saver = InMemorySaver()
        graph = build(shape, Pace(pace), checkpointer=saver)
        assert await graph.ainvoke(fresh(), CONFIG, durability="sync") == expected

    run(check())


@some(50)
@given(shape=shapes(ask=True), pace=paces, durability=durabilities, choice=st.randoms(use_true_random=False))
def test_a_run_cut_by_questions_ends_as_an_undisturbed_one(
    shape: Shape, pace: list[int], durability: str, choice: Any
) -> None:
    async def check() -> None:
        saver = InMemorySaver()
        given_: Any = fresh()
        while True:
            graph = build(shape, Pace(pace), asks=True, checkpointer=saver)  # as another process would
            result = await graph.ainvoke(given_, CONFIG, durability=durability)
            state = await graph.aget_state(CONFIG)
            questions = result.pop("__interrupt__", [])
            assert result == state.values
            assert list(state.interrupts) == questions
            if not questions:
                break
            answered = choice.sample(questions, choice.randint(1, len(questions)))
            given_ = Command(resume={question.id: answer_to(question.value) for question in answered})
        assert result == await undisturbed(shape)

    run(check())


@some(30)
@given(shape=shapes(), pace=paces, durability=durabilities, is_before=st.booleans())
def test_a_run_stopped_at_every_node_ends_as_an_undisturbed_one(
    shape: Shape, pace: list[int], durability: str, is_before: bool
) -> None:
    async def check() -> None:
        stops_at: dict[str, Any] = {"interrupt_before" if is_before else "interrupt_after": "*"}
        graph = build(shape, Pace(pace), checkpointer=InMemorySaver(), **stops_at)
        result, stops = await graph.ainvoke(fresh(), CONFIG, durability=durability), 0
        while (await graph.aget_state(CONFIG)).next:
            result, stops = await graph.ainvoke(None, CONFIG, durability=durability), stops + 1
            assert stops < 100
        assert result == await undisturbed(shape)

    run(check())


# Numbers of the commits at which the store breaks, and whether they have taken effect all the same.
breaks = st.lists(st.tuples(st.integers(1, 7), st.booleans()), min_size=1, max_size=4)


@some(60)
@given(shape=shapes(), pace=paces, durability=durabilities, broken=breaks)
def test_a_run_whose_store_breaks_ends_as_an_undisturbed_one(
    shape: Shape, pace: list[int], durability: str, broken: list[tuple[int, bool]]
) -> None:
    async def check() -> None:
        saver = InMemorySaver()
        for number, has_effect in broken:
            hook: dict[str, Any] = {"after" if has_effect else "before": failing_from(number)}
            graph = build(shape, Pace(pace), checkpointer=WatchedSaver(saver, **hook))
            with contextlib.suppress(StoreBroke):
                await graph.ainvoke(await going_on(saver), CONFIG, durability=durability)
        await finishes_undisturbed(shape, saver, durability)

    run(check())


async def going_on(saver: AtomicSaver[Any]) -> Any:
    """The input for a run on this thread: none, unless nothing has happened on it yet."""
    return fresh() if await saver.aget_thread("t") is None else None


async def finishes_undisturbed(shape: Shape, saver: AtomicSaver[Any], durability: str) -> None:
    graph = build(shape, checkpointer=saver)
    result = await graph.ainvoke(await going_on(saver), CONFIG, durability=durability)
    assert result == (await graph.aget_state(CONFIG)).values == await undisturbed(shape)
    record = await saver.aget_thread("t")
    assert record is not None
    assert record.status == "done"


@some(60)
@given(
    shape=shapes(),
    pace=paces,
    durability=durabilities,
    turns=st.lists(st.integers(0, 60), min_size=1, max_size=4),
    delay=st.integers(0, 4),
)
def test_a_run_cancelled_at_any_moment_ends_as_an_undisturbed_one(
    shape: Shape, pace: list[int], durability: str, turns: list[int], delay: int
) -> None:
    async def dawdle(number: int, commit: Any) -> None:
        for _ in range(delay):
            await asyncio.sleep(0)

    async def check() -> None:
        saver = InMemorySaver()
        graph = build(shape, Pace(pace), checkpointer=WatchedSaver(saver, before=dawdle, after=dawdle))
        for moment in turns:
            running = asyncio.create_task(graph.ainvoke(await going_on(saver), CONFIG, durability=durability))
            for _ in range(moment):
                await asyncio.sleep(0)
            running.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await running
            assert len(asyncio.all_tasks()) == 1
            record = await saver.aget_thread("t")
            assert record is None or record.status in ("cancelled", "done")
        await finishes_undisturbed(shape, saver, durability)

    run(check())


@some(30)
@given(shape=shapes(), pace=paces)
def test_what_a_reader_sees_of_a_run_is_what_is_stored(shape: Shape, pace: list[int]) -> None:
    async def check() -> None:
        graph = build(shape, Pace(pace), checkpointer=InMemorySaver())
        events = [event async for event in graph.astream(fresh(), CONFIG, stream_mode="values")]
        _, *stored = reversed([snapshot.values async for snapshot in graph.aget_state_history(CONFIG)])
        assert _without_repeats(events) == _without_repeats(stored)
        assert events[-1] == (await graph.aget_state(CONFIG)).values

    run(check())


def _without_repeats(values: list[Any]) -> list[Any]:
    return [value for number, value in enumerate(values) if number == 0 or value != values[number - 1]]


@some(15)
@given(shape=shapes(ask=True), pace=paces, durability=durabilities)
def test_memory_and_sqlite_tell_the_same_story(shape: Shape, pace: list[int], durability: str) -> None:
    async def story(saver: AtomicSaver[Any]) -> list[Any]:
        told: list[Any] = []
        graph = build(shape, Pace(pace), asks=True, checkpointer=saver)
        result = await graph.ainvoke(fresh(), CONFIG, durability=durability)
        while questions := result.pop("__interrupt__", []):
            told.append((result, sorted(question.value for question in questions), await history(graph)))
            answers = {question.id: answer_to(question.value) for question in questions}
            result = await graph.ainvoke(Command(resume=answers), CONFIG, durability=durability)
        return [*told, result, await history(graph)]

    async def check() -> None:
        with tempfile.TemporaryDirectory() as folder:
            url = f"sqlite:///{Path(folder, 'threads.db')}"
            await migrate.upgrade(url)
            async with SQLSaver.from_url(url, synchronous="OFF") as saver:
                assert await story(saver) == await story(InMemorySaver())

    run(check())

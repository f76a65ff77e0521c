"""Random graph programs, subgraphs, time travel and all: one story whatever the store, whatever is cut off.

The programs are those that are compared with LangGraph (`tests/differential`).
"""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import shutil
import tempfile
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from everstep.errors import GraphRecursionError, InvalidUpdateError
from everstep.types import Command
from everstep_savers.base import AtomicSaver
from everstep_savers.memory import InMemorySaver
from everstep_savers.sql.saver import SQLSaver
from tests.differential.differences import tidy
from tests.differential.interpreter import Library, Run, interpret, plain
from tests.differential.programs import make_program
from tests.engine.watched import StoreBroke, WatchedSaver
from tests.property.test_graphs_random import some

pytestmark = pytest.mark.filterwarnings("ignore::everstep.graph.validate.GraphWarning")
Json = Any

seeds = st.integers(0, 2**32)
_threads = itertools.count(1)


@pytest.fixture(autouse=True, scope="module")
def quiet() -> Iterator[None]:
    """Each store that is gone is told of in the log; thousands of them say nothing."""
    logger = logging.getLogger("everstep")
    level = logger.level
    logger.setLevel(logging.ERROR)
    yield
    logger.setLevel(level)


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(work)


def made(seed: int) -> Json:
    """The program of a seed, called by its async methods: a saver belongs to one event loop."""
    program: Json = json.loads(json.dumps(make_program(seed)))
    program["is_async"] = True
    return program


def on(saver: AtomicSaver[Any]) -> Library:
    """The library, with this saver."""
    library = Library("everstep")
    library.new_saver = lambda: saver
    return library


@asynccontextmanager
async def opened(kind: str, request: pytest.FixtureRequest) -> AsyncIterator[SQLSaver]:
    """A database of this kind. Tests with examples cannot have a fresh one by fixture for each."""
    if kind == "postgres":
        async with SQLSaver.from_url(request.getfixturevalue("migrated_postgres_url")) as saver:
            yield saver
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "threads.db")
        shutil.copyfile(request.getfixturevalue("sqlite_template"), path)
        async with SQLSaver.from_url(f"sqlite:///{path}", synchronous="OFF") as saver:
            yield saver


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_memory_and_databases_tell_the_same_story(kind: str, request: pytest.FixtureRequest) -> None:
    @some(25)
    @given(seed=seeds)
    def check(seed: int) -> None:
        async def compare() -> None:
            program = made(seed)
            async with opened(kind, request) as saver:
                stored = await interpret(on(saver), program, f"story-{next(_threads)}")
            kept = await interpret(on(InMemorySaver()), program)
            assert until_failed(stored) == until_failed(kept)

        run(compare())

    check()


def until_failed(told: Json) -> Json:
    """What was told before the first deed that failed: what of such a step is stored is a matter of time."""
    return tidy(list(itertools.takewhile(lambda one: "error" not in one, told)))


@some(60)
@given(seed=seeds)
def test_what_a_run_returns_is_what_the_thread_holds(seed: int) -> None:
    async def check() -> None:
        program = made(seed)
        user = Run(on(InMemorySaver()), program)
        for deed in program["deeds"]:
            told = await user.do(deed)
            if "value" in told:
                returned = {key: value for key, value in told["value"].items() if key != "__interrupt__"}
            elif told.get("events") and "error" not in told:
                values = [data for namespace, mode, data in told["events"] if mode == "values" and not namespace]
                if "__interrupt__" in values[-1]:
                    continue  # the state was as it had been told before
                returned = values[-1]
            else:
                continue
            assert returned == (await user.graph.aget_state(user.thread)).values, deed

    run(check())


# Killed -------------------------------------------------------------------------------------------------------------


# Programs with more commits take too long: each is run twice for each of them.
MOST_COMMITS = 20


class DoesNotEnd(Exception):
    """A program that asks again and again."""


class Killed:
    """Hooks of a `WatchedSaver` that let nothing reach the store from its n-th call on."""

    def __init__(self, number: int, *, has_effect: bool) -> None:
        self.number, self.has_effect = number, has_effect

    async def before(self, number: int, commit: Any) -> None:
        if number > self.number or (number == self.number and not self.has_effect):
            raise StoreBroke(f"commit {number}")

    async def after(self, number: int, commit: Any) -> None:
        if number == self.number and self.has_effect:
            raise StoreBroke(f"commit {number}")


def steady(seed: int) -> Json:
    """A program whose nodes do not fail, and whose run stops for questions only."""
    program = made(seed)
    for node in _nodes(program):
        for key in ("fails", "breaks", "handled"):
            node.pop(key, None)
    return {**program, "stops": {"before": [], "after": []}, "deeds": program["deeds"][:1], "limit": 6}


def _nodes(graph: Json) -> list[Json]:
    inner = [one for node in graph["nodes"] if "subgraph" in node for one in _nodes(node["subgraph"])]
    return [*graph["nodes"], *inner]


async def finish(saver: AtomicSaver[Any], program: Json, durability: str) -> Json:
    """Begin or go on with the thread until it is done, as a process that has just started would; its last values."""
    user = Run(on(saver), program)
    config, call = {**user.thread, "recursion_limit": program["limit"]}, user.graph.ainvoke
    given_: Any = program["deeds"][0]["input"] if await saver.aget_thread("t") is None else None
    for _ in range(20):
        result = await call(given_, config, durability=durability)
        questions = result.pop("__interrupt__", [])
        if not questions:
            return plain(result)
        given_ = Command(resume={question.id: f"answer to {question.value}" for question in questions})
    raise DoesNotEnd


async def check_killed(program: Json, durability: str, expected: Json) -> None:
    counted = WatchedSaver(InMemorySaver())
    assert await finish(counted, program, durability) == expected
    assume(counted.commits <= MOST_COMMITS)
    for number in range(1, counted.commits + 1):
        for has_effect in (False, True):
            saver, killed = InMemorySaver(), Killed(number, has_effect=has_effect)
            with suppress(StoreBroke):
                await finish(WatchedSaver(saver, before=killed.before, after=killed.after), program, durability)
            assert await finish(saver, program, durability) == expected, (number, has_effect)
            record = await saver.aget_thread("t")
            assert record is not None
            assert record.status == "done"


@some(40)
@given(seed=seeds, durability=st.sampled_from(["sync", "async", "exit"]))
def test_a_run_killed_between_any_two_store_calls_ends_as_an_undisturbed_one(seed: int, durability: str) -> None:
    async def check() -> None:
        program = steady(seed)
        try:
            expected = await finish(InMemorySaver(), program, "sync")
        except (GraphRecursionError, InvalidUpdateError, DoesNotEnd):
            expected = None
        assume(expected is not None)
        await check_killed(program, durability, expected)

    run(check())

"""Threads with branches, pruned at any time: what stays is what it was, and nothing is left over."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from everstep.pregel.growth import StoredLists
from everstep_savers.base import MaintainedSaver
from everstep_savers.checkpoint import INTERRUPT, CheckpointTuple, Loaded, NewCheckpoint, TaskWrites
from everstep_savers.decoding import version_keys
from everstep_savers.delta import DeltaSeed
from everstep_savers.memory import InMemorySaver
from everstep_savers.metadata import KEPT_ANCESTOR
from everstep_savers.sql.saver import SQLSaver
from everstep_savers.sql.statements import Statement
from tests.conformance.records import checkpoint, claim, config, named, step
from tests.property.test_growth import REDUCERS, appended, items

Saver = MaintainedSaver[Any]
Opened = Callable[[], Any]

steps = st.tuples(st.just("step"), st.tuples(st.sampled_from(REDUCERS), st.lists(items, max_size=4)))
many = st.tuples(st.just("step"), st.tuples(st.just(appended), st.lists(st.integers(0, 3), min_size=25, max_size=80)))
jumps = st.tuples(st.just("branch"), st.integers(0, 10**6))
prunes = st.tuples(st.just("prune"), st.integers(1, 4))
removals = st.tuples(st.just("forget"), st.integers(0, 10**6))
actions = st.lists(st.one_of(steps, steps, steps, steps, many, jumps, jumps, prunes, removals), min_size=8, max_size=40)

_threads = count(1)


class Tree:
    """A thread of one list, one log of writes and one number; and what each of its checkpoints holds.

    Attributes:
        expected: By checkpoint, what it holds, as text.
        parents: By checkpoint, its parent, also if that is gone.
        above: By checkpoint, the nearest ancestor that is there.
        runs: By checkpoint, the run that made it.
    """

    def __init__(self, saver: Saver) -> None:
        self.saver = saver
        self.name = f"tree-{next(_threads)}"
        self.expected: dict[str, str] = {}
        self.parents: dict[str, str | None] = {}
        self.above: dict[str, str | None] = {}
        self.runs: dict[str, str] = {}
        self._begin(Loaded(None))

    def _begin(self, loaded: Loaded) -> None:
        """Start a run from there; its first commit is its claim."""
        self.token: int | None = None
        self.seen, self.version = loaded.thread, loaded.newest_version
        self.run = f"{self.name}/{loaded.thread.token + 1 if loaded.thread else 1}"
        self.parent = named(loaded.saved) if loaded.saved else None
        self.values: dict[str, Any] = dict(loaded.saved.checkpoint["channel_values"]) if loaded.saved else {}
        self.versions: dict[str, Any] = dict(loaded.saved.checkpoint["channel_versions"]) if loaded.saved else {}
        self.lists = StoredLists(self.saver.codec, loaded)

    async def step(self, action: tuple[Callable[[list[Any], list[Any]], list[Any]], list[Any]]) -> None:
        reduce, more = action
        self.version += 1
        changed = dict.fromkeys(("list", "log"), self.version) | ({} if "once" in self.values else {"once": 1})
        self.values["list"] = reduce(self.values.get("list", []), more)
        more = list(more)  # the next step may go on changing what the reducer has got
        self.values["log"] = [*self.values.get("log", [DeltaSeed(self.version)]), more]
        self.values.setdefault("once", self.name)
        self.versions |= changed
        made = checkpoint(self.values, self.versions, after=max(self.expected, default=None))
        metadata = {"source": "loop", "run_id": self.run}
        results = (TaskWrites("", self.parent, "task", [("list", more)]),) if self.parent else ()
        new = NewCheckpoint("", made, metadata, self.parent, changed, results=results)  # type: ignore[arg-type]
        new = self.lists.with_bases(new)
        asked = [TaskWrites("", made["id"], "task-2", [("list", more), (INTERRUPT, [len(more)])])]
        if self.token is None:
            commit = claim(self.name, new, seen=self.seen, run_id=self.run)
            self.token = await self.saver.acommit(self.saver.prepare(commit))
            commit = step(self.token, thread_id=self.name, writes=asked)
        else:
            commit = step(self.token, new, thread_id=self.name, writes=asked)
        await self.saver.acommit(self.saver.prepare(commit))
        self.expected[made["id"]] = repr(self.values)
        self.parents[made["id"]], self.runs[made["id"]] = self.parent, self.run
        self.above[made["id"]] = self.parent
        self.parent = made["id"]

    async def branch(self, number: int) -> None:
        """Go on from any checkpoint, as another process would, by one step."""
        if self.expected:
            at = sorted(self.expected)[number % len(self.expected)]
            self._begin(await self.saver.aload(config(self.name, at)))
            await self.step((appended, [number]))

    async def prune(self, keep_last: int) -> None:
        """Prune, while a run is under way, and go on with it."""
        before = await self._read()
        told = await self.saver.aprune([self.name], keep_last=keep_last, dry_run=True)
        assert await self._read() == before

        assert await self.saver.aprune([self.name], keep_last=keep_last) == told

        kept = self._expected_after_pruning(keep_last)
        assert sum(told.checkpoints.values()) == len(self.expected) - len(kept)
        await self._hold_to(kept, before)
        assert (await self.saver.aprune([self.name], keep_last=keep_last)).checkpoints == {}

    async def forget(self, number: int) -> None:
        """Remove a run, and go on from what is then the head."""
        runs = sorted(set(self.runs.values()))
        if not runs:
            return
        run = runs[number % len(runs)]
        before = await self._read()

        await self.saver.adelete_for_runs([run])

        await self._hold_to({key for key in self.expected if self.runs[key] != run}, before)
        self._begin(await self.saver.aload(config(self.name)))

    async def copy(self) -> None:
        """A copy holds the same, and goes its own way."""
        before = await self._read()
        copied = Tree(self.saver)
        copied.expected, copied.parents, copied.runs = dict(self.expected), dict(self.parents), dict(self.runs)
        copied.above = dict(self.above)
        await self.saver.acopy_thread(self.name, copied.name)
        await copied.check()

        await copied.prune(1)
        copied._begin(await self.saver.aload(config(copied.name)))
        await copied.step((appended, [1]))
        await copied.check()

        assert await self._read() == before

    def _expected_after_pruning(self, keep_last: int) -> set[str]:
        children: dict[str | None, set[str]] = defaultdict(set)
        for key in self.expected:
            children[self.above[key]].add(key)
        kept: set[str] = set()
        for key in (key for key in self.expected if len(children[key]) > 1):
            kept |= {key, *children[key]}
        for tip in (key for key in self.expected if not children[key]):
            at: str | None = tip
            for _ in range(keep_last):
                if at in self.expected:
                    kept.add(at)
                    at = self.above[at]
        return kept

    async def _hold_to(self, kept: set[str], before: dict[str, Any]) -> None:
        for key in kept:
            while (at := self.above[key]) is not None and at not in kept:
                self.above[key] = self.above[at]
        self.expected = {key: value for key, value in self.expected.items() if key in kept}
        self.runs = {key: run for key, run in self.runs.items() if key in kept}
        after = await self._read()
        assert after.keys() == kept
        for key, found in after.items():
            # What a kept checkpoint has got from a removed child went with the child.
            assert found[:2] == before[key][:2]
            assert all(found[2].count(write) <= before[key][2].count(write) for write in found[2])
            assert [write for write in before[key][2] if write[0] == "task-2"] == found[2][:2]
        await self.check()

    async def _read(self) -> dict[str, Any]:
        """Checkpoint, metadata and results of every checkpoint, as text, by id."""
        return {
            named(each): (repr(each.checkpoint), _told(each), sorted(each.pending_writes or (), key=_by_task))
            async for each in self.saver.alist(config(self.name))
        }

    async def check(self) -> None:
        """Everything is there, read by whatever way, and no row that nothing needs."""
        for key, text in self.expected.items():
            loaded = await self.saver.aload(config(self.name, key))
            assert loaded.saved is not None
            assert repr(loaded.saved.checkpoint["channel_values"]) == text
            assert (loaded.saved.parent_config is None) == (self.parents[key] is None)
            assert {write[1] for write in loaded.saved.pending_writes or ()} == {"list", INTERRUPT}
        head = await self.saver.aget_tuple(config(self.name))
        assert (named(head) if head else None) == max(self.expected, default=None)
        named_by, values, writes = await rows_of(self.saver, self.name)
        needed: set[tuple[str, str]] = set()
        for versions in named_by:
            for channel, version in version_keys(versions).items():
                at: str | None = version
                while at is not None:
                    needed.add((channel, at))
                    at = values[channel, at]
        assert needed == values.keys()
        assert writes == self.expected.keys()


def _told(saved: CheckpointTuple) -> str:
    """The metadata, without what tells of removed parents."""
    return repr({key: value for key, value in saved.metadata.items() if key != KEPT_ANCESTOR})


def _by_task(write: tuple[str, str, Any]) -> tuple[bool, str]:
    return write[0] != "task-2", write[1]


async def rows_of(saver: Saver, name: str) -> tuple[list[str], dict[tuple[str, str], str | None], set[str]]:
    """What the checkpoints of a thread name, all value rows with what they continue, and where there are writes."""
    if isinstance(saver, InMemorySaver):
        namespace = saver._threads[name].namespaces.get("")
        if namespace is None:
            return [], {}, set()
        bases = {key: row.base for key, row in namespace.values.items()}
        return [row.versions for row in namespace.checkpoints.values()], bases, set(namespace.writes)
    database: Any = await saver._opened()  # type: ignore[attr-defined]

    async def read(columns: str, table: str) -> list[Any]:
        found: list[Any] = await database.fetch(
            Statement(f"SELECT {columns} FROM {table} WHERE thread_id = '{name}'", (), {}), {}
        )
        return found

    named_by = [row[0] for row in await read("versions", "checkpoints")]
    texts = [each if isinstance(each, str) else orjson.dumps(each).decode() for each in named_by]
    values = {(row[0], row[1]): row[2] for row in await read("channel, version, base", "channel_values")}
    return texts, values, {row[0] for row in await read("checkpoint_id", "checkpoint_writes")}


async def play(saver: Saver, chosen: list[tuple[str, Any]]) -> None:
    tree = Tree(saver)
    await tree.step((appended, [0]))
    for kind, argument in chosen:
        does: Callable[[Any], Awaitable[None]] = getattr(tree, kind)
        await does(argument)
    await tree.check()
    if tree.expected:
        await tree.copy()
    await tree.step((appended, ["on"]))
    await tree.prune(2)


@settings(max_examples=150, deadline=None)
@given(actions)
def test_what_stays_in_memory_is_what_it_was(chosen: list[tuple[str, Any]]) -> None:
    asyncio.run(play(InMemorySaver(), chosen))


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[Saver]:
    async with SQLSaver.from_url(url) as saver:
        yield saver


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    """One database for all examples, which are threads of their own."""
    if request.param == "postgres":
        found: str = request.getfixturevalue("migrated_postgres_url")
        return found
    template: Path = request.getfixturevalue("sqlite_template")
    path = tmp_path_factory.mktemp("pruned") / "threads.db"
    path.write_bytes(template.read_bytes())
    return f"sqlite:///{path}"


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(chosen=actions)
def test_what_stays_in_a_database_is_what_it_was(url: str, chosen: list[tuple[str, Any]]) -> None:
    async def run() -> None:
        async with opened(url) as saver:
            await play(saver, chosen)

    asyncio.run(run())

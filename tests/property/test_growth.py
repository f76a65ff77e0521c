"""Lists that change in any way, on any branch, reloaded at any time: every version comes back as it was stored."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from everstep.pregel.growth import StoredLists
from everstep_savers.checkpoint import Commit, NewCheckpoint, TaskWrites
from everstep_savers.memory import InMemorySaver
from everstep_savers.parts import RADIX
from tests.conformance.records import checkpoint, claim, config, named, step

items: st.SearchStrategy[Any] = st.one_of(
    st.integers(0, 1), st.text(max_size=3), st.booleans(), st.tuples(st.integers()), st.just([])
)


def appended(current: list[Any], more: list[Any]) -> list[Any]:
    return current + more


def extended_in_place(current: list[Any], more: list[Any]) -> list[Any]:
    current.extend(more)
    return current


def put_before_in_place(current: list[Any], more: list[Any]) -> list[Any]:
    current[:0] = more
    return current


def retyped(current: list[Any], more: list[Any]) -> list[Any]:
    """Equal items of another type are other items."""
    return [bool(item) if item in (0, 1) else item for item in current] + more


def put_before(current: list[Any], more: list[Any]) -> list[Any]:
    return more + current


def replaced(current: list[Any], more: list[Any]) -> list[Any]:
    return more


def last_replaced(current: list[Any], more: list[Any]) -> list[Any]:
    return current[: -len(more) or None] + more


def shortened(current: list[Any], more: list[Any]) -> list[Any]:
    return current[: len(current) - len(more)]


def turned(current: list[Any], more: list[Any]) -> list[Any]:
    return current[::-1]


def rebuilt(current: list[Any], more: list[Any]) -> list[Any]:
    return [list(item) if type(item) is list else item for item in current] + more


REDUCERS = [
    appended,
    appended,
    extended_in_place,
    put_before,
    put_before_in_place,
    replaced,
    retyped,
    last_replaced,
    shortened,
    turned,
    rebuilt,
]
steps = st.tuples(st.just("step"), st.sampled_from(REDUCERS), st.lists(items, max_size=4))
many = st.tuples(st.just("step"), st.just(appended), st.lists(st.integers(), min_size=25, max_size=80))
jumps = st.tuples(st.just("go"), st.integers(0, 10**6), st.just(None))


class Thread:
    """A thread of one list, and what every one of its checkpoints holds."""

    def __init__(self) -> None:
        self.saver = InMemorySaver()
        self.expected: dict[str, str] = {}
        self.version = 0
        self.token = 0
        self.current: list[Any] = []
        self.parent: str | None = None
        self.lists = StoredLists(self.saver.codec, asyncio.run(self.saver.aload(config())))

    async def step(self, reduce: Callable[[list[Any], list[Any]], list[Any]], more: list[Any]) -> None:
        self.current = reduce(self.current, more)
        self.version += 1
        made = checkpoint({"log": self.current}, {"log": self.version}, after=self.parent)
        results = (TaskWrites("", self.parent, "task", [("log", more)]),) if self.parent else ()
        new = NewCheckpoint("", made, {"source": "loop"}, self.parent, {"log": self.version}, results=results)
        commit = self._commit(self.lists.with_bases(new))
        self.token = await self.saver.acommit(self.saver.prepare(commit))
        self.parent = made["id"]
        self.expected[self.parent] = repr(self.current)

    async def go(self, number: int) -> None:
        """Go on from some checkpoint, as another process would."""
        if self.expected:
            self.parent = sorted(self.expected)[number % len(self.expected)]
            loaded = await self.saver.aload(config(checkpoint_id=self.parent))
            assert loaded.saved is not None
            self.current = loaded.saved.checkpoint["channel_values"]["log"]
            self.lists = StoredLists(self.saver.codec, loaded)

    async def check(self) -> None:
        found = {named(each): each async for each in self.saver.alist(config())}
        assert {key: repr(each.checkpoint["channel_values"]["log"]) for key, each in found.items()} == self.expected
        for key in found:
            loaded = await self.saver.aload(config(checkpoint_id=key))
            assert len(loaded.chains["log"]) <= 2 * RADIX
            assert loaded.chains["log"][-1].length == len(found[key].checkpoint["channel_values"]["log"])

    def _commit(self, new: NewCheckpoint) -> Commit:
        return step(self.token, new) if self.token else claim("t-1", new)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.one_of(steps, steps, steps, many, jumps), min_size=10, max_size=40))
def test_every_version_of_a_list_comes_back_as_it_was_stored(actions: list[tuple[str, Any, Any]]) -> None:
    thread = Thread()

    async def run() -> None:
        for kind, what, more in actions:
            await (thread.step(what, more) if kind == "step" else thread.go(what))
        await thread.check()

    asyncio.run(run())

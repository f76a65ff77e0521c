"""A list that grows costs what was added to it: bytes, rows and queries, whatever the reducer."""

from __future__ import annotations

import base64
import operator
import random
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, TypedDict

import asyncpg
import pytest

from everstep.constants import START
from everstep.errors import InvalidUpdateError
from everstep.graph.builder import StateGraph
from everstep.types import Command, Overwrite, StateUpdate
from everstep_savers.base import AtomicSaver
from everstep_savers.memory import InMemorySaver
from everstep_savers.parts import StoredValue
from everstep_savers.sql.saver import SQLSaver
from tests.engine.graphs import Log, Update, chain, history, says, thread
from tests.engine.watched import StoreBroke, WatchedSaver, failing_from

Reducer = Callable[[list[Any], list[Any]], list[Any]]


def text(seed: int, length: int) -> str:
    """Text that does not compress to nothing."""
    return base64.b64encode(random.Random(seed).randbytes(length))[:length].decode()


def looping(steps: int, length: int, saver: Any) -> Any:
    """A self-loop that adds a text of this length in every step."""

    async def loop(state: Log) -> Command[Any]:
        number = len(state["log"]) + 1
        return Command(update={"log": [text(number, length)]}, goto="loop" if number < steps else ())

    return StateGraph(Log).add_node("loop", loop).add_edge(START, "loop").compile(saver)


async def bytes_of(url: str) -> int:
    """What a database takes on disk, once it is closed."""
    if url.startswith("sqlite"):
        path = Path(url.removeprefix("sqlite:///"))
        assert not path.with_name(path.name + "-wal").exists()
        return path.stat().st_size
    connection = await asyncpg.connect(url)
    try:
        await connection.execute("VACUUM (FULL) checkpoints, channel_values, checkpoint_writes, threads")
        tables = "('checkpoints', 'channel_values', 'checkpoint_writes', 'threads')"
        size: int = await connection.fetchval(
            f"SELECT sum(pg_total_relation_size(oid))::bigint FROM pg_class WHERE relname IN {tables}"
        )
    finally:
        await connection.close()
    return size


async def grown_bytes(url: str, threads: int, steps: int, length: int) -> float:
    """Bytes per step of some threads with that many steps each, in one database."""
    before = await bytes_of(url)
    async with SQLSaver.from_url(url) as saver:
        graph = looping(steps, length, saver)
        for number in range(threads):
            config = {**thread(f"{steps}/{number}"), "recursion_limit": 10_000}
            await graph.ainvoke({"log": []}, config)
    return (await bytes_of(url) - before) / (threads * steps)


async def test_bytes_per_step_do_not_grow_with_the_list(saver_url: str) -> None:
    """Appends of 1 KB to a plain reducer: at 400 steps at most 1.3 times the bytes per step at 50."""
    short = await grown_bytes(saver_url, 8, 50, 1024)
    long = await grown_bytes(saver_url, 1, 400, 1024)

    assert long <= 1.3 * short


async def test_a_step_that_adds_200_bytes_takes_at_most_1500(saver_url: str) -> None:
    assert await grown_bytes(saver_url, 1, 1000, 200) <= 1500


@pytest.mark.parametrize("steps", [500])
async def test_a_long_list_is_read_in_tens_of_parts(steps: int, saver: AtomicSaver[Any]) -> None:
    await looping(steps, 1, saver).ainvoke({"log": []}, {**thread(), "recursion_limit": 10_000})

    loaded = await saver.aload(thread())

    assert len(loaded.chains["log"]) < 50
    assert loaded.saved is not None
    assert loaded.saved.checkpoint["channel_values"]["log"] == [text(n + 1, 1) for n in range(steps)]


# Whatever the reducer -------------------------------------------------------------------------------------------


def in_place(left: list[Any], right: list[Any]) -> list[Any]:
    left.extend(right)
    return left


def unique(left: list[Any], right: list[Any]) -> list[Any]:
    return list(dict.fromkeys([*left, *right]))


def by_id(left: list[Any], right: list[Any]) -> list[Any]:
    """As messages are merged: one with a known id takes the place of the old one."""
    merged = {item[0]: item for item in left}
    return list((merged | {item[0]: item for item in right}).values())


class InPlace(TypedDict):
    log: Annotated[list[Any], in_place]


def numbers(count: int) -> list[list[Any]]:
    return [[n] for n in range(count)]


def pairs(count: int) -> list[list[Any]]:
    return [[(f"id-{n}", n)] for n in range(count)]


def stored(saver: InMemorySaver, channel: str = "log") -> list[StoredValue]:
    """The rows of a channel, in the order of their versions."""
    values = saver._threads["t"].namespaces[""].values
    return sorted((row for (name, _), row in values.items() if name == channel), key=lambda row: int(row.version))


def collecting(reducer: Reducer | None, writes: list[list[Any]], saver: Any, **options: Any) -> Any:
    """A self-loop that writes these, one a step; without a reducer it writes the whole list."""
    log = Annotated[list[Any], reducer] if reducer else list[Any]
    # A class could not name the reducer: its annotations are read as texts.
    State = TypedDict("State", {"log": log, "n": int}, total=False)  # type: ignore[valid-type]  # noqa: UP013

    async def loop(state: Any) -> Command[Any]:
        number = state.get("n", 0)
        more = writes[number] if reducer else [*state.get("log", ()), *writes[number]]
        return Command(update={"log": more, "n": number + 1}, goto="loop" if number + 1 < len(writes) else ())

    return StateGraph(State).add_node("loop", loop).add_edge(START, "loop").compile(saver, **options)


CASES = {
    "add": (operator.add, numbers(40)),
    "in place": (in_place, numbers(40)),
    "unique": (unique, numbers(40)),
    "messages": (by_id, pairs(40)),
    "no reducer": (None, numbers(40)),
}


@pytest.mark.parametrize("case", CASES)
async def test_a_list_that_grows_is_stored_as_what_was_added_whatever_the_reducer(case: str) -> None:
    reducer, writes = CASES[case]
    saver = InMemorySaver()
    graph = collecting(reducer, writes, saver)

    result = await graph.ainvoke({"log": [], "n": 0}, {**thread(), "recursion_limit": 100})

    assert result["log"] == [item for write in writes for item in write]
    assert [s.values.get("log") for s in await history(graph, thread())][:40] == [
        result["log"][:n] for n in range(40, 0, -1)
    ]
    rows = stored(saver)
    added = [len(saver.codec.decode(row.tag, row.data)) for row in rows]
    assert sum(added) <= 2 * len(result["log"])
    assert len([row for row in rows if row.base is None]) <= 3


async def test_the_last_message_may_be_replaced_at_the_cost_of_its_part(saver: AtomicSaver[Any]) -> None:
    writes = [*pairs(10), [("id-9", "changed")], [("id-10", 10)], [("id-0", "changed")]]
    graph = collecting(by_id, writes, saver)

    await graph.ainvoke({"log": [], "n": 0}, thread())

    lists = [snapshot.values["log"] for snapshot in await history(graph, thread())]
    assert lists[0] == [("id-0", "changed"), *[(f"id-{n}", n) for n in range(1, 9)], ("id-9", "changed"), ("id-10", 10)]
    assert lists[2] == [*[(f"id-{n}", n) for n in range(9)], ("id-9", "changed")]
    assert lists[3] == [(f"id-{n}", n) for n in range(10)]
    if isinstance(saver, InMemorySaver):
        sizes = [(len(saver.codec.decode(row.tag, row.data)), row.base is None) for row in stored(saver)[-4:]]
        assert sizes == [(1, False), (1, False), (1, False), (11, True)]


async def test_a_replaced_list_is_stored_anew_and_earlier_ones_stay(saver: AtomicSaver[Any]) -> None:
    async def replace(state: Log) -> Update:
        return {"log": Overwrite(["new"])}

    graph = chain(says("a"), ("replace", replace), says("b"), saver=saver)

    await graph.ainvoke({"log": ["in"]}, thread())

    lists = [snapshot.values.get("log", []) for snapshot in await history(graph, thread())]
    assert lists == [["new", "b"], ["new"], ["in", "a"], ["in"], []]


# Runs, branches, updates ----------------------------------------------------------------------------------------


async def test_a_list_goes_on_growing_from_run_to_run() -> None:
    saver = InMemorySaver()
    graph = chain(says("a"), saver=saver)

    for n in range(5):
        await graph.ainvoke({"log": [f"in-{n}"]}, thread())

    assert [len(saver.codec.decode(row.tag, row.data)) for row in stored(saver)] == [1] * 10
    assert (await graph.aget_state(thread())).values["log"] == [w for n in range(5) for w in (f"in-{n}", "a")]


async def test_a_client_that_sends_the_whole_history_again_costs_what_is_new() -> None:
    saver = InMemorySaver()
    graph = collecting(None, [[{"reply": 0}]], saver)
    sent: list[Any] = []

    for turn in range(10):
        sent.append({"turn": turn})
        result = await graph.ainvoke({"log": [dict(item) for item in sent], "n": 0}, thread())
        sent = result["log"]

    assert sum(len(saver.codec.decode(row.tag, row.data)) for row in stored(saver)) <= len(sent) + 2
    assert (await graph.aget_state(thread())).values["log"] == sent


async def test_branches_grow_apart_and_share_what_they_have_in_common(saver: AtomicSaver[Any]) -> None:
    graph = chain(says("a"), says("b"), saver=saver)
    await graph.ainvoke({"log": ["one"]}, thread())
    await graph.ainvoke({"log": ["two"]}, thread())
    old = (await history(graph, thread()))[-1]

    before = await history(graph, thread())
    fork = await graph.aupdate_state(before[4].config, {"log": ["edit"]}, as_node="a")
    await graph.ainvoke(None, fork)
    await graph.ainvoke({"log": ["three"]}, thread())

    assert (await graph.aget_state(thread())).values["log"] == [
        *before[4].values["log"], "edit", "b", "three", "a", "b",
    ]  # fmt: skip
    now = {
        snapshot.config["configurable"]["checkpoint_id"]: snapshot.values for snapshot in await history(graph, thread())
    }
    for snapshot in (*before, old):
        assert now[snapshot.config["configurable"]["checkpoint_id"]] == snapshot.values


async def test_several_updates_at_once_each_have_their_own_list(saver: AtomicSaver[Any]) -> None:
    async def a(state: Any) -> Update:
        return {"log": ["a"]}

    graph = StateGraph(InPlace).add_node("a", a).add_edge(START, "a").compile(saver)
    await graph.ainvoke({"log": ["in"]}, thread())

    await graph.abulk_update_state(thread(), [[_update("x")], [_update("y")], [_update("z")]])

    lists = [snapshot.values["log"] for snapshot in await history(graph, thread())]
    assert lists[:4] == [["in", "a", *"xyz"], ["in", "a", *"xy"], ["in", "a", "x"], ["in", "a"]]


def _update(item: str) -> StateUpdate:
    return StateUpdate({"log": [item]}, "a")


async def test_in_exit_durability_a_run_stores_what_it_added(saver: AtomicSaver[Any]) -> None:
    graph = chain(says("a"), says("b"), says("c"), saver=saver)

    for _ in range(3):
        await graph.ainvoke({"log": ["in"]}, thread(), durability="exit")

    loaded = await saver.aload(thread())
    assert [part.length for part in loaded.chains["log"]] == [4, 8, 12]
    assert (await graph.aget_state(thread())).values["log"] == ["in", "a", "b", "c"] * 3


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
async def test_a_run_after_one_that_could_not_be_stored_continues_what_is_stored(
    durability: str, saver: AtomicSaver[Any]
) -> None:
    watched = WatchedSaver(saver)
    graph = chain(says("a"), says("b"), says("c"), saver=watched)
    await graph.ainvoke({"log": ["one"]}, thread())
    watched.before = failing_from(watched.commits + 2)
    with pytest.raises(StoreBroke):
        await graph.ainvoke({"log": ["lost"]}, thread(), durability=durability)

    watched.before = failing_from(10**6)
    state = (await graph.aget_state(thread())).values["log"]
    result = await graph.ainvoke({"log": ["two"]}, thread(), durability=durability)

    assert result["log"][: len(state)] == state
    assert (await graph.aget_state(thread())).values == result
    assert (await history(graph, thread()))[0].values == result


# Changes in place -----------------------------------------------------------------------------------------------


def changing(index: int, saver: Any, *, debug: bool) -> Any:
    async def change(state: Any) -> Update:
        state["log"][index]["count"] = 99
        return {"log": [{"count": 100}]}

    return chain(("add", lambda state: {"log": [{"count": 1}]}), ("change", change), saver=saver, debug=debug)


@pytest.mark.parametrize("index", [0, 1, 2])
async def test_an_old_item_changed_in_place_is_found_in_debug_mode(index: int, saver: AtomicSaver[Any]) -> None:
    graph = changing(index, saver, debug=True)

    with pytest.raises(InvalidUpdateError) as caught:
        await graph.ainvoke({"log": [{"count": 0}, {"count": {1, 2}}]}, thread())

    assert str(caught.value) == (
        f"item {index} of key 'log' was changed in place after it was stored, in a step of node 'change'; of a list "
        "that grows only what was added is stored, so the change would be lost. Put a changed copy into the list "
        "instead"
    )
    assert (await graph.aget_state(thread())).next == ("change",)


async def test_in_exit_durability_a_change_in_place_is_found_when_the_run_leaves(saver: AtomicSaver[Any]) -> None:
    graph = changing(0, saver, debug=True)
    await chain(says("before"), saver=saver).ainvoke({"log": [{"count": 0}]}, thread())

    with pytest.raises(InvalidUpdateError, match="item 0 of key 'log' was changed in place"):
        await graph.ainvoke({"log": []}, thread(), durability="exit")

    record = await saver.aget_thread("t")
    assert record is not None
    assert record.status == "failed"
    assert (await graph.aget_state(thread())).values["log"] == [{"count": 0}, "before"]


async def test_an_item_that_was_loaded_and_changed_in_place_is_found_too(saver: AtomicSaver[Any]) -> None:
    graph = chain(("add", lambda state: {"log": [{"count": 1, "tags": {"x", "y"}}]}), saver=saver)
    await graph.ainvoke({"log": []}, thread())

    with pytest.raises(InvalidUpdateError, match="item 0 of key 'log' was changed in place"):
        await changing(0, saver, debug=True).ainvoke({"log": []}, thread())


async def test_debug_mode_has_nothing_against_lists_that_only_grow(saver: AtomicSaver[Any]) -> None:
    graph = collecting(operator.add, [[{"n": n, "tags": {str(n), "x", "y"}}] for n in range(40)], saver, debug=True)

    for _ in range(2):
        await graph.ainvoke({"log": [], "n": 0}, {**thread(), "recursion_limit": 100})

    assert len((await graph.aget_state(thread())).values["log"]) == 80

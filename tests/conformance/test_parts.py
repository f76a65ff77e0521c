"""Lists stored as what was added: read as a whole, shared by branches, kept as long as anybody needs them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from everstep_savers.checkpoint import Chain, Commit, NewCheckpoint, Part, TaskWrites
from everstep_savers.codec import default_codec
from everstep_savers.errors import CodecError, ThreadConflict
from everstep_savers.memory import InMemorySaver
from everstep_savers.parts import extended
from everstep_savers.sql.saver import SQLSaver
from tests.conformance.records import checkpoint, claim, config, named

Saver = InMemorySaver | SQLSaver


def part(
    items: Sequence[Any],
    version: int,
    base: Part | None = None,
    *,
    parent: str | None = None,
    run_id: str = "run-1",
    results: Sequence[TaskWrites] = (),
) -> NewCheckpoint:
    """A checkpoint whose list continues `base`; a key beside it never changes."""
    made = checkpoint({"log": list(items), "n": 0}, {"log": version, "n": 1}, after=parent)
    changed = {"log": version, "n": 1} if version == 1 else {"log": version}
    bases = {"log": base} if base else {}
    return NewCheckpoint("", made, {"source": "loop", "run_id": run_id}, parent, changed, results=results, bases=bases)


def id_of(new: NewCheckpoint) -> str:
    return new.checkpoint["id"]


async def store(saver: Saver, commit: Commit) -> int:
    return await saver.acommit(saver.prepare(commit))


async def put(saver: Saver, *made: NewCheckpoint, thread_id: str = "t-1") -> None:
    """Store checkpoints as a run that has just claimed the thread."""
    seen = await saver.aget_thread(thread_id)
    await store(saver, claim(thread_id, *made, seen=seen, status="done"))


async def grown(saver: Saver, length: int, thread_id: str = "t-1") -> list[str]:
    """A thread whose list got one item a checkpoint, each continuing the one before; the ids."""
    made: list[NewCheckpoint] = []
    chain: Chain = ()
    for n in range(length):
        chain = extended(chain, n + 1, n + 1)
        base = chain[-2] if len(chain) > 1 else None
        made.append(part(range(n + 1), n + 1, base, parent=id_of(made[-1]) if made else None))
    await put(saver, *made, thread_id=thread_id)
    return [id_of(each) for each in made]


async def lists(saver: Saver, thread_id: str = "t-1") -> dict[str, Any]:
    found = {}
    async for each in saver.alist(config(thread_id, ns=None)):
        found[named(each)] = each.checkpoint["channel_values"]["log"]
    return found


async def test_a_list_in_parts_is_read_as_a_whole(saver: Saver) -> None:
    ids = await grown(saver, 4)

    head = await saver.aget_tuple(config())
    assert head is not None
    assert head.checkpoint["channel_values"] == {"log": [0, 1, 2, 3], "n": 0}
    assert await lists(saver) == {key: list(range(n + 1)) for n, key in enumerate(ids)}
    third = await saver.aget_tuple(config(checkpoint_id=ids[2]))
    assert third is not None
    assert third.checkpoint["channel_values"]["log"] == [0, 1, 2]


async def test_only_what_follows_the_base_is_stored(saver: Saver) -> None:
    whole, longer = part(["a", "b"], 1), part(["a", "b", "c"], 2, Part(1, 2))
    prepared = saver.prepare(claim("t-1", whole, longer))

    stored = {
        (row.channel, row.version): (default_codec.decode(row.tag, row.data), row.base) for row in prepared.values
    }
    assert stored == {("log", "1"): (["a", "b"], None), ("n", "1"): (0, None), ("log", "2"): (["c"], "1")}


async def test_a_load_tells_the_parts_of_every_list(saver: Saver) -> None:
    await put(saver, one := part(["a", "b"], 1), part(["a", "b", "c"], 5, Part(1, 2), parent=id_of(one)))

    loaded = await saver.aload(config())

    assert loaded.chains == {
        "log": (Part(1, 2, default_codec.encode(["a", "b"])), Part(5, 3, default_codec.encode(["c"])))
    }
    assert (await saver.aload(config(checkpoint_id=id_of(one)))).chains == {
        "log": (Part(1, 2, default_codec.encode(["a", "b"])),)
    }
    assert (await saver.aload(config("nobody"))).chains == {}


async def test_versions_that_are_texts_have_parts_too(saver: Saver) -> None:
    versions = ["0001.a", "0002.b"]
    one = checkpoint({"log": [1]}, {"log": versions[0]})
    two = checkpoint({"log": [1, 2]}, {"log": versions[1]}, after=one["id"])
    await put(
        saver,
        NewCheckpoint("", one, {}, None, {"log": versions[0]}),
        NewCheckpoint("", two, {}, one["id"], {"log": versions[1]}, bases={"log": Part(versions[0], 1)}),
    )

    loaded = await saver.aload(config())

    assert loaded.saved is not None
    assert loaded.saved.checkpoint["channel_values"]["log"] == [1, 2]
    assert [each.version for each in loaded.chains["log"]] == versions


async def test_branches_share_parts_and_do_not_see_each_other(saver: Saver) -> None:
    ids = await grown(saver, 3)

    await put(saver, fork := part([0, 1, "fork"], 9, Part(2, 2), parent=ids[1]))
    await put(saver, on := part([0, 1, "fork", "on"], 10, Part(9, 3), parent=id_of(fork)))

    assert await lists(saver) == {
        ids[0]: [0],
        ids[1]: [0, 1],
        ids[2]: [0, 1, 2],
        id_of(fork): [0, 1, "fork"],
        id_of(on): [0, 1, "fork", "on"],
    }


async def test_another_base_under_a_version_is_another_value(saver: Saver) -> None:
    await grown(saver, 3)
    before = await lists(saver)

    with pytest.raises(ThreadConflict):
        await put(saver, part([0, 2], 3, Part(1, 1)))
    await put(saver, same := part([0, 1, 2], 3, Part(2, 2)))

    assert await lists(saver) == {**before, id_of(same): [0, 1, 2]}


async def test_an_item_that_cannot_be_kept_is_named_by_its_place_in_the_whole_list(saver: Saver) -> None:
    with pytest.raises(CodecError) as caught:
        saver.prepare(claim("t-1", part([1, 2, {"x": object()}], 2, Part(1, 2))))

    assert (caught.value.path, caught.value.place) == ("[2]['x']", ("state key 'log'", "thread 't-1'"))


async def test_the_bytes_of_a_list_in_parts_can_be_read_as_one(saver: Saver) -> None:
    ids = await grown(saver, 20)

    raw = await saver.araw_value("t-1", "log")
    early = await saver.araw_value("t-1", "log", checkpoint_id=ids[2])

    assert raw is not None
    assert early is not None
    assert default_codec.decode(*raw) == list(range(20))
    assert default_codec.decode(*early) == [0, 1, 2]


async def test_a_copy_has_the_parts_and_goes_its_own_way(saver: Saver) -> None:
    ids = await grown(saver, 3)

    await saver.acopy_thread("t-1", "t-2")
    await put(saver, more := part([0, 1, 2, "copy"], 4, Part(3, 3), parent=ids[2]), thread_id="t-2")
    await saver.adelete_thread("t-1")

    assert await lists(saver, "t-2") == {
        ids[0]: [0],
        ids[1]: [0, 1],
        ids[2]: [0, 1, 2],
        id_of(more): [0, 1, 2, "copy"],
    }
    assert await lists(saver, "t-1") == {}


async def test_removing_runs_keeps_the_parts_that_others_continue(saver: Saver) -> None:
    one = part([0], 1, run_id="old")
    two = part([0, 1], 2, Part(1, 1), parent=id_of(one), run_id="old")
    gone = part([0, 1, "gone"], 3, Part(2, 2), parent=id_of(two), run_id="gone")
    last = part([0, 1, 2], 4, Part(2, 2), parent=id_of(two), run_id="new")
    await put(saver, one, two, gone, last)

    await saver.adelete_for_runs(["old", "gone"])

    assert await lists(saver) == {id_of(last): [0, 1, 2]}
    assert await value_versions(saver) == {("log", "1"), ("log", "2"), ("log", "4"), ("n", "1")}


async def test_a_part_that_is_gone_is_named(saver: Saver) -> None:
    ids = await grown(saver, 3)
    await remove_value(saver, "log", "2")

    with pytest.raises(CodecError) as caught:
        await saver.aget_tuple(config())

    assert caught.value.reason == "the part of the list that version '2' should hold is missing"
    assert caught.value.place == ("state key 'log'", f"checkpoint {ids[2]!r}", "thread 't-1'")
    assert await saver.aget_tuple(config(checkpoint_id=ids[0])) is not None


async def test_a_chain_that_bites_its_own_tail_is_an_error_and_not_a_hang(saver: Saver) -> None:
    ids = await grown(saver, 3)
    await change_base(saver, "log", "1", "3")

    for reading in (saver.aget_tuple(config()), lists(saver), saver.aget_tuple(config(checkpoint_id=ids[0]))):
        with pytest.raises(CodecError, match="should hold is missing"):
            await reading


RESULTS = [
    TaskWrites("", "", "task-1", [("log", [1]), ("n", "inline")]),
    TaskWrites("", "", "task-2", [("__no_writes__", None)]),
    TaskWrites("", "", "task-3", [("log", [])]),
]


async def test_results_that_equal_what_was_added_are_stored_once_and_shown(saver: Saver) -> None:
    one = part([0], 1)
    two = part([0, 1], 2, Part(1, 1), parent=id_of(one), results=RESULTS)
    expected = [
        ("task-1", "log", [1]),
        ("task-1", "n", "inline"),
        ("task-2", "__no_writes__", None),
        ("task-3", "log", []),
    ]

    prepared = saver.prepare(claim("t-1", one, two, status="done"))
    await saver.acommit(prepared)

    assert default_codec.encode([1])[1] not in prepared.checkpoints[1].body
    assert b"inline" in prepared.checkpoints[1].body
    found = {named(each): each.pending_writes async for each in saver.alist(config())}
    assert found == {id_of(two): [], id_of(one): expected}
    # The child is not among what is listed; its values are needed all the same.
    (alone,) = [each async for each in saver.alist(config(checkpoint_id=id_of(one)))]
    assert alone.pending_writes == expected
    (older,) = [each async for each in saver.alist(config(), before=config(checkpoint_id=id_of(two)))]
    assert older.pending_writes == expected
    assert older.checkpoint["channel_values"] == {"log": [0], "n": 0}


async def test_the_head_of_a_long_thread_is_loaded_in_one_query(saver_url: str) -> None:
    async with SQLSaver.from_url(saver_url) as saver:
        await grown(saver, 1000)
        with counted(saver) as queries:
            loaded = await saver.aload(config())

    assert loaded.saved is not None
    assert loaded.saved.checkpoint["channel_values"]["log"] == list(range(1000))
    assert len(queries) == 1


async def test_a_listing_makes_a_query_for_a_page_and_none_for_a_checkpoint(saver_url: str) -> None:
    async with SQLSaver.from_url(saver_url) as saver:
        await grown(saver, 120)
        with counted(saver) as queries:
            found = await lists(saver)

    assert len(found) == 120
    assert len(queries) == 3


@contextmanager
def counted(saver: SQLSaver) -> Iterator[list[str]]:
    """The texts of the queries that a saver makes meanwhile."""
    database, texts = saver._database, []
    fetch = database.fetch

    async def counting(statement: Any, values: Mapping[str, Any]) -> Any:
        texts.append(statement.text)
        return await fetch(statement, values)

    database.fetch = counting  # type: ignore[method-assign]
    try:
        yield texts
    finally:
        del database.fetch


async def value_versions(saver: Saver) -> set[tuple[str, str]]:
    """Channel and version of every value row there is."""
    if isinstance(saver, InMemorySaver):
        return set(saver._threads["t-1"].namespaces[""].values)
    rows = await execute(saver, "SELECT channel, version FROM channel_values", fetch=True)
    return {(row[0], row[1]) for row in rows}


async def remove_value(saver: Saver, channel: str, version: str) -> None:
    if isinstance(saver, InMemorySaver):
        del saver._threads["t-1"].namespaces[""].values[channel, version]
    else:
        await execute(saver, f"DELETE FROM channel_values WHERE channel = '{channel}' AND version = '{version}'")


async def change_base(saver: Saver, channel: str, version: str, base: str) -> None:
    if isinstance(saver, InMemorySaver):
        values = saver._threads["t-1"].namespaces[""].values
        values[channel, version] = values[channel, version]._replace(base=base)
    else:
        where = f"channel = '{channel}' AND version = '{version}'"
        await execute(saver, f"UPDATE channel_values SET base = '{base}' WHERE {where}")


async def execute(saver: SQLSaver, statement: str, *, fetch: bool = False) -> Any:
    database: Any = saver._database
    if database.is_postgres:
        return await database._run(lambda raw: raw.fetch(statement) if fetch else raw.execute(statement))
    return await database._workers[0].call(lambda connection: connection.execute(statement).fetchall())

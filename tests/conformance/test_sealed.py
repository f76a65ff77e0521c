"""What stands in the database of savers, stores and caches whose codec is sealed, and who can read it."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from everstep import Command, interrupt
from everstep_savers import CodecError, Compression, Encryption, SealedCodec
from everstep_savers.addresses import Address
from everstep_savers.checkpoint import empty_checkpoint
from everstep_savers.errors import ThreadConflict
from everstep_savers.sql import copying, resealing
from everstep_savers.sql.cache import SQLCache
from everstep_savers.sql.saver import SQLSaver
from everstep_savers.sql.schema import metadata
from everstep_savers.sql.store import SQLStore
from everstep_savers.store import InMemoryStore
from tests.conformance.records import checkpoint, claim, config, named, new, put_chain, step
from tests.engine.graphs import Log, Update, chain, history, says, thread

KEY, OTHER = b"k" * 32, b"o" * 32
SECRET = "Ada Lovelace"


def codec(*, over: int = 64, **options: Any) -> SealedCodec:
    return SealedCodec(Compression(over=over), Encryption({"2026": KEY}, **options))


async def dump(url: str) -> bytes:
    """Everything that stands in a database."""
    if url.startswith("sqlite"):
        path = Path(url.removeprefix("sqlite:///"))
        return b"".join(each.read_bytes() for each in path.parent.glob(f"{path.name}*"))
    connection = await asyncpg.connect(url)
    found = b""
    for table in metadata.tables:
        for row in await connection.fetch(f"SELECT * FROM {table}"):
            found += b"\n".join(each if isinstance(each, bytes) else repr(each).encode() for each in row.values())
    await connection.close()
    return found


async def execute(url: str, statement: str) -> None:
    if url.startswith("sqlite"):
        with sqlite3.connect(url.removeprefix("sqlite:///")) as connection:
            connection.execute(statement)
        connection.close()
        return
    connection = await asyncpg.connect(url)
    await connection.execute(statement)
    await connection.close()


UNREADABLE = (
    "the text of the error cannot be read: the value cannot be decrypted: it was changed or put into another place, or "
    "the key '2026' is another one than it was encrypted under"
)


def tells(state: Log) -> Update:
    return {"log": [SECRET]}


def asks(state: Log) -> Update:
    return {"log": [interrupt(f"Is it {SECRET}?")], "value": SECRET}


def fails(state: Log) -> Update:
    raise ValueError(f"no such customer: {SECRET}")


async def run(url: str, sealed: SealedCodec, *, is_answered: bool = True) -> list[Any]:
    """A run that asks, is answered, and fails; what its history holds."""
    async with SQLSaver.from_url(url, codec=sealed) as saver:
        graph = chain(tells, asks, fails, saver=saver)
        await graph.ainvoke({"log": [SECRET] * 30}, thread())
        if is_answered:
            with pytest.raises(ValueError, match="no such customer"):
                await graph.ainvoke(Command(resume=[SECRET] * 20), thread())
        record = await saver.aget_thread("t")
        assert record is not None
        assert record.error == (f"ValueError: no such customer: {SECRET}" if is_answered else None)
        return [(state.values, state.tasks, state.next) for state in await history(graph, thread())]


async def test_nothing_of_a_value_stands_in_the_database(saver_url: str) -> None:
    states = await run(saver_url, codec())

    found = await dump(saver_url)

    assert len(states) == 4
    assert states[0][0]["log"][-1] == [SECRET] * 20
    assert b"e:2026" in found
    assert SECRET.encode() not in found


async def test_what_is_only_compressed_is_in_the_database_as_it_is(saver_url: str) -> None:
    """The test above can fail."""
    await run(saver_url, SealedCodec(Compression()))

    assert SECRET.encode() in await dump(saver_url)


async def test_a_thread_goes_on_under_a_new_key(saver_url: str) -> None:
    await run(saver_url, codec(), is_answered=False)
    both = SealedCodec(Compression(), Encryption({"2026": KEY, "2027": OTHER}))

    async with SQLSaver.from_url(saver_url, codec=both) as saver:
        graph = chain(tells, asks, saver=saver)
        result = await graph.ainvoke(Command(resume="yes"), thread())

    assert result["log"] == [*[SECRET] * 31, "yes"]
    found = await dump(saver_url)
    assert b"e:2026" in found
    assert b"e:2027" in found


async def test_a_thread_of_before_goes_on_encrypted(saver_url: str) -> None:
    async with SQLSaver.from_url(saver_url) as saver:
        await chain(says("plain"), asks, saver=saver).ainvoke({"log": []}, thread())

    async with SQLSaver.from_url(saver_url, codec=codec(is_required=False)) as saver:
        result = await chain(says("plain"), asks, saver=saver).ainvoke(Command(resume="yes"), thread())
    async with SQLSaver.from_url(saver_url, codec=codec()) as saver:
        with pytest.raises(CodecError, match="is stored without the seal Encryption, which this codec demands"):
            await saver.aget_tuple(config("t"))

    assert result["log"] == ["plain", "yes"]


async def test_everything_is_put_under_a_new_key_and_the_old_one_can_go(
    saver_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resealing, "PAGE", 3)
    before = await run(saver_url, codec())
    async with SQLStore.from_url(saver_url, codec=codec()) as store:
        for n in range(5):
            await store.aput(("people", "a"), f"k{n}", {"name": SECRET, "n": n})
    both = SealedCodec(Compression(over=64), Encryption({"2026": KEY, "2027": OTHER}))
    only = SealedCodec(Compression(over=64), Encryption({"2027": OTHER}))

    async with SQLSaver.from_url(saver_url, codec=both) as saver, SQLStore.from_url(saver_url, codec=both) as store:
        graph = chain(tells, saver=saver)
        (count, items), _ = await asyncio.gather(
            asyncio.gather(saver.areseal(), store.areseal()), graph.ainvoke({"log": ["new"]}, thread("other"))
        )
        again = await saver.areseal(), await store.areseal()

    assert count > 10
    assert (items, again) == (5, (0, 0))
    found = await dump(saver_url)
    assert SECRET.encode() not in found
    if saver_url.startswith("postgres"):  # pages of a file keep what was there before
        assert b"e:2026" not in found
    async with SQLSaver.from_url(saver_url, codec=only) as saver:
        graph = chain(tells, asks, fails, saver=saver)
        after = [(state.values, state.tasks, state.next) for state in await history(graph, thread())]
        assert repr(after) == repr(before)
        assert (await graph.aget_state(thread("other"))).values["log"] == ["new", SECRET]
    async with SQLStore.from_url(saver_url, codec=only) as store:
        assert len(await store.asearch(("people",), filter={"name": SECRET})) == 5


async def test_what_was_not_encrypted_is_put_under_a_key(saver_url: str) -> None:
    async with SQLStore.from_url(saver_url) as store:
        await store.aput(("people",), "k", {"name": SECRET})
    before = await run(saver_url, SealedCodec(Compression(over=64)))
    allowing = codec(is_required=False)

    async with (
        SQLSaver.from_url(saver_url, codec=allowing) as saver,
        SQLStore.from_url(saver_url, codec=allowing) as store,
    ):
        assert await saver.areseal() > 10
        assert await store.areseal() == 1

    if saver_url.startswith("postgres"):
        assert SECRET.encode() not in await dump(saver_url)
    async with SQLSaver.from_url(saver_url, codec=codec()) as saver:
        graph = chain(tells, asks, fails, saver=saver)
        after = [(state.values, state.tasks, state.next) for state in await history(graph, thread())]
    assert repr(after) == repr(before)


async def test_nothing_is_resealed_without_a_sealed_codec(saver_url: str) -> None:
    await run(saver_url, codec())

    async with SQLSaver.from_url(saver_url) as saver, SQLStore.from_url(saver_url) as store:
        assert (await saver.areseal(), await store.areseal()) == (0, 0)


async def test_what_cannot_be_resealed_is_named(saver_url: str) -> None:
    async with SQLSaver.from_url(saver_url, codec=codec()) as saver:
        made = checkpoint({"secret": SECRET}, {"secret": 1})
        await saver.aput(config(), made, {}, {"secret": 1})
        await saver.aput_writes(config(checkpoint_id=made["id"]), [("secret", 1)], "task")
    async with SQLStore.from_url(saver_url, codec=codec()) as store:
        await store.aput(("people",), "k", {"name": SECRET})
    other = SealedCodec(Encryption({"2027": OTHER}))
    reason = "the value is encrypted under the key '2026', which is none of 2027"

    places = {
        "checkpoints": f"checkpoint {made['id']!r}, thread 't-1'",
        "channel_values": "version '1' of state key 'secret', thread 't-1'",
        "checkpoint_writes": f"write to 'secret', checkpoint {made['id']!r}, thread 't-1'",
        "store_items": "store item 'k', namespace 'people'",
    }
    async with SQLSaver.from_url(saver_url, codec=other) as saver:
        for table, place in places.items():
            with pytest.raises(CodecError) as caught:
                await resealing.reseal(await saver._opened(), other, table)
            assert str(caught.value) == f"{reason} ({place})"


async def test_what_cannot_be_resealed_stops_nothing_else(saver_url: str) -> None:
    old, new = Encryption({"2026": KEY}), Encryption({"2027": OTHER})
    for thread_id, given in (("a", old), ("b", new), ("c", old)):
        async with SQLSaver.from_url(saver_url, codec=SealedCodec(given)) as saver:
            await put_chain(saver, 2, thread_id=thread_id)

    async with SQLSaver.from_url(saver_url, codec=SealedCodec(Encryption({"2026": KEY, "2028": KEY}))) as saver:
        with pytest.raises(CodecError, match=r"under the key '2027'.*thread 'b'") as caught:
            await saver.areseal()
    assert caught.value.__notes__ == ["3 more rows cannot be opened; all others are under the current key"]
    async with SQLSaver.from_url(saver_url, codec=SealedCodec(Encryption({"2028": KEY}))) as saver:
        for thread_id in "ac":
            assert await saver.aget_tuple(config(thread_id)) is not None


async def test_a_key_that_is_missing_is_named_with_the_place(saver_url: str) -> None:
    await run(saver_url, codec())

    async with SQLSaver.from_url(saver_url, codec=SealedCodec(Encryption({"2027": OTHER}))) as saver:
        with pytest.raises(CodecError) as caught:
            await saver.aget_tuple(config("t"))
        raw = await saver.araw_value("t", "value")
        record = await saver.aget_thread("t")
    async with SQLSaver.from_url(saver_url) as saver:
        with pytest.raises(CodecError) as plain:
            await saver.aget_tuple(config("t"))

    assert record is not None
    where = f"(write to '__error__', checkpoint {record.head!r}, thread 't')"
    assert str(caught.value) == f"the value is encrypted under the key '2026', which is none of 2027 {where}"
    assert str(plain.value) == (
        f"the value is encrypted under the key '2026': read it with codec=SealedCodec(Encryption(keys)) {where}"
    )
    assert raw is not None
    assert raw[0] == "e:2026"
    assert record.error == (
        "the text of the error cannot be read: the value is encrypted under the key '2026', which is none of 2027"
    )


async def test_the_bytes_of_a_value_are_opened_for_an_admin(saver_url: str) -> None:
    async with SQLSaver.from_url(saver_url, codec=codec()) as saver:
        made = checkpoint({"secret": SECRET}, {"secret": 1})
        await saver.aput(config(), made, {}, {"secret": 1})

        assert await saver.araw_value("t-1", "secret") == saver.codec.encode(SECRET)


# What is of one thread put into the same place of another.
SWAPPED = "UPDATE {table} SET {column} = (SELECT o.{column} FROM {table} o WHERE o.thread_id = 'b' AND {same})"


def swapped(table: str, column: str, *keys: str) -> str:
    same = " AND ".join(f"o.{key} = {table}.{key}" for key in keys) or "true"
    return f"{SWAPPED.format(table=table, column=column, same=same)} WHERE thread_id = 'a'"


@pytest.mark.parametrize(
    ("statement", "place"),
    [
        (swapped("channel_values", "data", "channel", "version"), "state key"),
        (swapped("checkpoint_writes", "data", "checkpoint_id", "task_id", "idx"), "write to '__interrupt__'"),
        (swapped("checkpoints", "body", "checkpoint_id"), "checkpoint"),
        (swapped("threads", "input_data"), "input"),
    ],
    ids=["values", "questions", "checkpoints", "inputs"],
)
async def test_whoever_can_write_the_database_cannot_swap_what_threads_have(
    saver_url: str, statement: str, place: str
) -> None:
    """Threads of the same history: the copy has the ids of its source."""
    async with SQLSaver.from_url(saver_url, codec=codec()) as saver:
        await chain(asks, saver=saver).ainvoke({"log": [SECRET]}, thread("a"))
        await saver.acopy_thread("a", "b")
        for thread_id in "ab":
            seen = await saver.aget_thread(thread_id)
            await saver.acommit(saver.prepare(claim(thread_id, seen=seen, input=thread_id, has_input=True)))

    await execute(saver_url, statement)

    async with SQLSaver.from_url(saver_url, codec=codec()) as saver:
        with pytest.raises(CodecError, match="cannot be decrypted: it was changed or put into another place") as caught:
            await (saver.aget_thread("a") if place == "input" else saver.aget_tuple(config("a")))
    assert place in str(caught.value)


async def test_the_error_of_another_thread_cannot_be_shown_for_a_threads_own(saver_url: str) -> None:
    async with SQLSaver.from_url(saver_url, codec=codec()) as saver:
        for thread_id in "ab":
            with pytest.raises(ValueError, match="no such customer"):
                await chain(fails, saver=saver).ainvoke({"log": []}, thread(thread_id))

    await execute(saver_url, swapped("threads", "error"))

    async with SQLSaver.from_url(saver_url, codec=codec()) as saver:
        record = await saver.aget_thread("a")
        assert record is not None
        assert record.error == UNREADABLE


async def test_an_error_that_somebody_else_has_put_there_is_not_shown(saver_url: str) -> None:
    async with SQLSaver.from_url(saver_url, codec=codec()) as saver:
        with pytest.raises(ValueError, match="no such customer"):
            await chain(fails, saver=saver).ainvoke({"log": []}, thread("a"))
    for forged in ("everything is fine", "sealed e:2026 no base64!"):
        await execute(saver_url, f"UPDATE threads SET error = '{forged}'")

        async with SQLSaver.from_url(saver_url, codec=codec()) as saver:
            record = await saver.aget_thread("a")
            assert record is not None
            assert str(record.error).startswith("the text of the error cannot be read: ")
            assert forged not in str(record.error)


@pytest.mark.parametrize("given", [None, SealedCodec(Compression())], ids=["plain", "compressed"])
async def test_an_encrypted_thread_is_not_copied_without_the_key(saver_url: str, given: Any) -> None:
    async with SQLSaver.from_url(saver_url, codec=codec()) as saver:
        await chain(tells, saver=saver).ainvoke({"log": [SECRET]}, thread("a"))
        await saver.acommit(saver.prepare(claim("b", input=SECRET, has_input=True)))
    async with SQLSaver.from_url(saver_url, codec=given) as saver:
        for source in "ab":
            complaint = (
                f"thread '{source}' was not copied to 'c': it is encrypted, and what is encrypted has to be sealed "
                "anew for the copy; give the saver a codec with the key"
            )
            with pytest.raises(CodecError, match=f"^{complaint}$"):
                await saver.acopy_thread(source, "c")
        assert await saver.aget_thread("c") is None


async def test_a_copy_of_an_encrypted_thread_goes_its_own_way(saver_url: str) -> None:
    async with SQLSaver.from_url(saver_url, codec=codec()) as saver:
        graph = chain(tells, asks, saver=saver)
        await graph.ainvoke({"log": [SECRET] * 30}, thread("a"))

        await saver.acopy_thread("a", "b")

        assert [each.values for each in await history(graph, thread("b"))] == [
            each.values for each in await history(graph, thread("a"))
        ]
        answered = await graph.ainvoke(Command(resume="yes"), thread("b"))
        assert answered["log"] == [*[SECRET] * 31, "yes"]
        assert (await graph.aget_state(thread("a"))).interrupts
        with pytest.raises(ThreadConflict, match="thread 'b' exists already; nothing was written"):
            await saver.acopy_thread("a", "b")
        with pytest.raises(ThreadConflict, match="there is no thread 'c'"):
            await saver.acopy_thread("c", "d")


@pytest.mark.parametrize("times", [copying.TRIES - 1, copying.TRIES])
async def test_a_copy_of_an_encrypted_thread_is_of_one_moment(
    saver_url: str, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    async with SQLSaver.from_url(saver_url, codec=codec()) as saver:
        made = await put_chain(saver, 3)
        database: Any = saver._database
        write = database.write

        async def after_another(steps: Any) -> bool:
            if len(made) < 3 + times:
                made.append(empty_checkpoint()["id"])
                await saver.aput(config("t-1", made[-2]), {**empty_checkpoint(), "id": made[-1]}, {}, {})
            return bool(await write(steps))

        monkeypatch.setattr(database, "write", after_another)
        if times < copying.TRIES:
            await saver.acopy_thread("t-1", "t-2")
            assert [named(each) async for each in saver.alist(config("t-2"))] == made[::-1]
            return
        complaint = (
            "thread 't-1' was not copied to 't-2': it was written to while its encrypted values were read, again and "
            "again; nothing was written. Copy it when its run has stopped."
        )
        with pytest.raises(ThreadConflict, match=f"^{complaint}$"):
            await saver.acopy_thread("t-1", "t-2")
        assert await saver.aget_tuple(config("t-2")) is None


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE channel_values SET data = (SELECT data FROM channel_values WHERE channel = 'mine')",
        "UPDATE channel_values SET version = '2' WHERE channel = 'theirs'",
        "UPDATE checkpoints SET versions = replace(CAST(versions AS text), '{\"mine\":1', '{\"mine\":3'){cast}",
        "UPDATE checkpoints SET parent_id = 'other'",
    ],
    ids=["another value", "another version", "another map of versions", "another parent"],
)
async def test_whoever_can_write_the_database_cannot_move_values(saver_url: str, statement: str) -> None:
    async with SQLSaver.from_url(saver_url, codec=codec()) as saver:
        one = new({"mine": "no", "theirs": "yes"})
        token = await saver.acommit(saver.prepare(claim("t-1", one)))
        await saver.acommit(saver.prepare(step(token, status="done")))
    cast = "" if saver_url.startswith("sqlite") else "::json"
    if "version =" in statement:
        await execute(saver_url, 'UPDATE checkpoints SET versions = \'{"mine":1,"theirs":2}\'')

    await execute(saver_url, statement.replace("{cast}", cast))

    async with SQLSaver.from_url(saver_url, codec=codec()) as saver:
        with pytest.raises(CodecError, match="cannot be decrypted: it was changed or put into another place"):
            await saver.aget_tuple(config())


async def test_a_list_that_grows_is_stored_in_parts_after_a_reload_too(saver_url: str) -> None:
    for _ in range(5):
        async with SQLSaver.from_url(saver_url, codec=codec(over=10_000)) as saver:
            await chain(says("x" * 100), says("y" * 100), saver=saver).ainvoke({"log": ["z" * 100]}, thread())

    async with SQLSaver.from_url(saver_url, codec=codec()) as saver:
        loaded = await saver.aload(config("t"))
        page = await saver._load(Address("t", "", None), is_opened=False)
    sizes = [len(row.data) for row in page.values.values()]
    assert len(loaded.chains["log"]) == len(sizes) == 15
    assert max(sizes) < 400


async def test_a_store_hides_its_values_and_finds_them_all_the_same(saver_url: str) -> None:
    async with SQLStore.from_url(saver_url, codec=codec()) as store:
        for n in range(120):
            await store.aput(("people",), f"k{n:03}", {"name": f"{SECRET} {n}", "n": n})
        found = await store.asearch(("people",), filter={"n": {"$gte": 60}, "name": f"{SECRET} 70"})
        item = await store.aget(("people",), "k007")

    assert [each.key for each in found] == ["k070"]
    assert item is not None
    assert item.value == {"name": f"{SECRET} 7", "n": 7}
    assert SECRET.encode() not in await dump(saver_url)
    await execute(saver_url, "UPDATE store_items SET key = 'k999' WHERE key = 'k007'")
    async with SQLStore.from_url(saver_url, codec=codec()) as store:
        with pytest.raises(CodecError, match="put into another place"):
            await store.aget(("people",), "k999")


async def test_a_cache_hides_its_values(saver_url: str) -> None:
    full = (("results",), "1")
    async with SQLCache[Any].from_url(saver_url, codec=codec()) as cache:
        await cache.aset({full: ({"name": SECRET}, None)})
        assert await cache.aget([full]) == {full: {"name": SECRET}}

    assert SECRET.encode() not in await dump(saver_url)


async def test_memory_takes_a_sealed_codec_too() -> None:
    store = InMemoryStore(codec=codec())
    await store.aput(("people",), "k", {"name": SECRET})

    item = await store.aget(("people",), "k")

    assert item is not None
    assert item.value == {"name": SECRET}

"""The contract of a cache: values by namespace and key, for a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import asyncpg
import pytest

from everstep_savers.cache import BaseCache, FullKey, InMemoryCache
from everstep_savers.errors import CodecError, SchemaOutOfDate
from everstep_savers.sql import postgres
from everstep_savers.sql.cache import SWEEP_INTERVAL, SQLCache
from everstep_savers.sql.database import parse_url, shown
from tests.conformance.conftest import Clock

Cache = BaseCache[Any]


def at(key: str, *namespace: str) -> FullKey:
    return (namespace or ("everstep", "g", "node"), key)


async def test_what_was_set_is_got_and_nothing_else(cache: Cache) -> None:
    await cache.aset({at("a"): ({"n": 1}, None), at("b"): ([2], 60)})

    assert await cache.aget([at("a"), at("b"), at("c"), at("a", "other")]) == {at("a"): {"n": 1}, at("b"): [2]}
    assert await cache.aget([]) == {}
    await cache.aset({})


async def test_setting_again_replaces_the_value_and_its_time(cache: Cache, clock: Clock) -> None:
    await cache.aset({at("a"): (1, 10)})
    await cache.aset({at("a"): (2, None)})
    clock.now += 20

    assert await cache.aget([at("a")]) == {at("a"): 2}


async def test_an_entry_ends_with_its_time(cache: Cache, clock: Clock) -> None:
    await cache.aset({at("short"): (1, 10), at("long"): (2, 30), at("ever"): (3, None), at("never"): (4, 0)})
    assert await cache.aget([at(key) for key in ("short", "never")]) == {at("short"): 1}
    clock.now += 10

    assert await cache.aget([at(key) for key in ("short", "long", "ever", "never")]) == {at("long"): 2, at("ever"): 3}


async def test_an_entry_may_live_for_ever(cache: Cache, clock: Clock) -> None:
    await cache.aset({at("a"): (1, 10**300)})
    clock.now += 10**10

    assert await cache.aget([at("a")]) == {at("a"): 1}


async def test_reading_does_not_make_an_entry_live_longer(cache: Cache, clock: Clock) -> None:
    await cache.aset({at("a"): (1, 10)})
    clock.now += 9
    await cache.aget([at("a")])
    clock.now += 1

    assert await cache.aget([at("a")]) == {}


async def test_values_keep_their_types_and_belong_to_the_reader(cache: Cache) -> None:
    value = {"t": (1, {2}), "d": Decimal("1.10"), "none": None}
    await cache.aset({at("a"): (value, None), at("none"): (None, None)})
    value["t"] = "changed"

    first = (await cache.aget([at("a")]))[at("a")]
    first["t"] = "changed"

    assert await cache.aget([at("a"), at("none")]) == {
        at("a"): {"t": (1, {2}), "d": Decimal("1.10"), "none": None},
        at("none"): None,
    }


async def test_a_namespace_is_cleared_alone_and_whole(cache: Cache) -> None:
    spaces = [("a",), ("a", "b"), ("a", "b", "c"), ("ab",), ('a","b',), ("",), ("%",)]
    await cache.aset({at(key, *space): (1, None) for space in spaces for key in ("k", "l")})

    await cache.aclear([("a", "b"), ("%",), ("nope",)])

    left = await cache.aget([at("k", *space) for space in spaces])
    assert {space for space, _ in left} == set(spaces) - {("a", "b"), ("%",)}
    await cache.aclear()
    assert await cache.aget([at(key, *space) for space in spaces for key in ("k", "l")]) == {}


async def test_a_value_that_cannot_be_kept_is_refused_and_nothing_is_kept(cache: Cache) -> None:
    with pytest.raises(CodecError) as caught:
        await cache.aset({at("good"): (1, None), at("bad"): ({"f": [object()]}, None)})

    assert str(caught.value) == (
        "object cannot be stored: make it a dataclass and call codec.register(object), or keep plain data instead "
        "(at ['f'][0], cache 'everstep/g/node')"
    )
    assert await cache.aget([at("good")]) == {}


async def test_a_sweep_removes_what_is_over(cache: Any, clock: Clock) -> None:
    await cache.aset({at(f"k{n}"): (n, 10 if n % 2 else None) for n in range(50)})
    assert await cache.asweep() == 0
    clock.now += 10

    assert await cache.asweep() == 25
    assert await cache.asweep() == 0
    assert len(await cache.aget([at(f"k{n}") for n in range(50)])) == 25


async def test_many_entries_are_set_and_got_at_once(cache: Cache) -> None:
    pairs = {at(f"k{n}", "everstep", f"g{n % 3}"): (n, None) for n in range(500)}
    await asyncio.gather(*(cache.aset(pairs) for _ in range(4)))

    assert await cache.aget(list(pairs)) == {full: value for full, (value, _) in pairs.items()}


async def test_lists_are_taken_as_namespaces(cache: Cache) -> None:
    listed: Any = ["a", "b"]
    await cache.aset({(("a", "b"), "k"): (1, None)})

    assert await cache.aget([(listed, "k")]) == {at("k", "a", "b"): 1}
    await cache.aclear([listed])
    assert await cache.aget([at("k", "a", "b")]) == {}


def memory(_: str) -> Cache:
    return InMemoryCache()


@pytest.mark.parametrize("make", [memory, SQLCache.from_url])
def test_a_script_needs_no_event_loop(make: Callable[[str], Cache], saver_url: str) -> None:
    cache = make(saver_url)
    cache.set({at("a"): (1, None)})

    assert cache.get([at("a"), at("b")]) == {at("a"): 1}
    cache.clear([at("a")[0]])
    assert cache.get([at("a")]) == {}
    if isinstance(cache, SQLCache):
        _close(cache)


def _close(cache: SQLCache[Any]) -> None:
    from everstep_savers.blocking import run_blocking

    run_blocking(cache.aclose, "close")


async def test_a_sync_call_where_an_event_loop_runs_names_the_async_one(sqlite_url: str) -> None:
    cache: SQLCache[Any] = SQLCache.from_url(sqlite_url)
    calls: dict[str, Callable[[], Any]] = {
        "get": lambda: cache.get([]),
        "set": lambda: cache.set({}),
        "clear": cache.clear,
    }
    for name, call in calls.items():
        with pytest.raises(RuntimeError) as caught:
            call()
        assert str(caught.value) == f"{name}() would block the running event loop; use the async a{name}() here"


async def test_entries_outlive_the_cache_that_made_them(saver_url: str) -> None:
    async with SQLCache[Any].from_url(saver_url) as cache:
        await cache.aset({at("a"): (1, None)})
    async with SQLCache[Any].from_url(saver_url) as cache:
        assert await cache.aget([at("a")]) == {at("a"): 1}


async def test_a_database_without_a_schema_is_refused_with_the_command(empty_url: str) -> None:
    place = shown(parse_url(empty_url))
    with pytest.raises(SchemaOutOfDate) as caught:
        await SQLCache[Any].from_url(empty_url).aget([at("a")])

    assert str(caught.value) == (
        f"database {place} has no Everstep tables yet; create them: everstep db upgrade --url {place}"
    )


async def test_entries_whose_time_is_over_go_while_others_are_written(saver_url: str, clock: Clock) -> None:
    async with SQLCache[Any].from_url(saver_url, clock=clock) as cache:
        await cache.aset({at(f"k{n}"): (n, 10) for n in range(20)})
        clock.now += SWEEP_INTERVAL / 1_000_000
        await cache.aset({at("new"): (1, None)})

        assert await cache.asweep() == 0


async def test_a_key_that_no_database_can_keep_is_refused(saver_url: str) -> None:
    async with SQLCache[Any].from_url(saver_url) as cache:
        with pytest.raises(ValueError) as caught:
            await cache.aset({at("a\0"): (1, None)})

    assert str(caught.value) == r"cache key 'a\x00' contains a NUL character, which a database key cannot hold"


async def test_clearing_and_setting_the_same_entries_do_not_wait_for_each_other(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres, "DEADLOCKS", 0)  # the first one is an error
    first, last = at("a"), at("b")
    async with SQLCache[Any].from_url(postgres_url) as one, SQLCache[Any].from_url(postgres_url) as other:
        await one.aset({last: (0, None)})  # comes first in the table
        await one.aset({first: (0, None)})
        connection = await asyncpg.connect(postgres_url)
        async with connection.transaction():
            await connection.execute("SELECT 1 FROM cache_entries WHERE key = 'a' FOR UPDATE")
            setting = asyncio.ensure_future(one.aset({first: (1, None), last: (1, None)}))
            await _waiting(connection, 1)
            clearing = asyncio.ensure_future(other.aclear([first[0]]))
            await _waiting(connection, 2)
        await connection.close()
        await asyncio.gather(setting, clearing)

        assert len(await one.aget([first, last])) in (0, 2)


async def _waiting(connection: Any, number: int) -> None:
    """So many statements wait for a lock."""
    query = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
    while await connection.fetchval(query) < number:  # noqa: ASYNC110 - nobody tells
        await asyncio.sleep(0.001)

"""Time to live: minutes after which an item is gone, unless it is read."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from everstep_savers.errors import DatabaseUnavailable
from everstep_savers.sql.store import SQLStore
from everstep_savers.store import BaseStore, GetOp, PutOp, SearchOp
from tests.conformance.conftest import Clock, OpenStore
from tests.conformance.test_store import keys

MINUTE = 60
X = ("x",)


async def swept(store: Any) -> int:
    """What a sweep removes from a store of either kind."""
    found = store.sweep_ttl()
    count: int = await found if asyncio.iscoroutine(found) else found
    return count


async def test_an_item_is_gone_when_its_time_is_over(store: BaseStore, clock: Clock) -> None:
    await store.aput(X, "short", {}, ttl=1)
    await store.aput(X, "long", {}, ttl=2.5)
    await store.aput(X, "ever", {}, ttl=None)
    await store.aput(("y",), "short", {}, ttl=1)
    clock.now += MINUTE + 1

    assert await store.aget(X, "short") is None
    assert await keys(store) == ["long", "ever"]
    assert await store.alist_namespaces() == [X]


async def test_reading_starts_the_time_anew(store: BaseStore, clock: Clock) -> None:
    for key in ("got", "searched", "unread"):
        await store.aput((key,), key, {}, ttl=1)
    for _ in range(3):
        clock.now += MINUTE - 1
        await store.aget(("got",), "got")
        await store.asearch(("searched",))

    assert await keys(store) == ["got", "searched"]


async def test_only_the_items_on_the_page_are_read(store: BaseStore, clock: Clock) -> None:
    for n in range(4):
        await store.aput(X, f"k{n}", {"n": n}, ttl=1)
    clock.now += MINUTE - 1
    await store.asearch(X, limit=1, offset=1)
    clock.now += MINUTE - 1

    assert await keys(store, "x") == ["k1"]


async def test_a_reader_may_leave_the_time_as_it_is(store: BaseStore, clock: Clock) -> None:
    await store.aput(X, "k", {}, ttl=1)
    clock.now += MINUTE - 1
    await store.aget(X, "k", refresh_ttl=False)
    await store.asearch(X, refresh_ttl=False)
    await store.abatch([GetOp(X, "k", refresh_ttl=False), SearchOp(X, refresh_ttl=False)])
    clock.now += 2

    assert await store.aget(X, "k") is None


async def test_the_store_has_defaults(open_store: OpenStore, clock: Clock) -> None:
    store = await open_store(ttl={"default_ttl": 1, "refresh_on_read": False})
    await store.aput(X, "default", {})
    await store.aput(X, "ever", {}, ttl=None)
    await store.aput(X, "own", {}, ttl=3)
    clock.now += MINUTE - 1
    assert await keys(store) == ["default", "ever", "own"]
    await store.aget(X, "own", refresh_ttl=True)
    clock.now += 2

    assert await keys(store) == ["ever", "own"]
    assert store.supports_ttl


async def test_an_item_put_again_after_its_time_is_a_new_one(store: BaseStore, clock: Clock) -> None:
    await store.aput(X, "k", {"n": 1}, ttl=1)
    old = await store.aget(X, "k", refresh_ttl=False)
    await store.aput(X, "other", {})
    clock.now += MINUTE + 1
    await store.aput(X, "k", {"n": 2})
    clock.now += 10 * MINUTE

    new = await store.aget(X, "k")

    assert old is not None
    assert new is not None
    assert new.value == {"n": 2}
    assert new.created_at > old.created_at
    assert await keys(store) == ["other", "k"]


async def test_putting_again_before_the_time_is_over_sets_a_new_time(store: BaseStore, clock: Clock) -> None:
    await store.aput(X, "k", {}, ttl=1)
    await store.aput(X, "k", {}, ttl=None)
    clock.now += 2 * MINUTE

    assert await keys(store) == ["k"]


async def test_a_sweep_removes_what_is_over_and_nothing_else(store: BaseStore, clock: Clock) -> None:
    ops = [PutOp(("s", f"{n % 3}"), f"k{n}", {"n": n}, ttl=1 if n % 2 else None) for n in range(60)]
    await store.abatch(ops)
    assert await swept(store) == 0
    clock.now += MINUTE + 1

    assert await swept(store) == 30
    assert await swept(store) == 0
    assert len(await keys(store)) == 30


@pytest.mark.parametrize("ttl", [0, -1, float("nan")])
async def test_a_time_that_is_none_is_refused(store: BaseStore, ttl: float) -> None:
    with pytest.raises(ValueError) as caught:
        await store.aput(X, "k", {}, ttl=ttl)

    assert str(caught.value) == f"the ttl of item 'k' is minutes and greater than zero, got {ttl}"


@pytest.mark.parametrize("ttl", [1e300, float("inf")])
async def test_an_item_may_live_for_ever(store: BaseStore, clock: Clock, ttl: float) -> None:
    await store.aput(X, "k", {}, ttl=ttl)
    clock.now += 100 * 365 * 24 * 60 * MINUTE

    assert await store.aget(X, "k") is not None


async def test_a_config_that_would_do_nothing_is_refused(open_store: OpenStore) -> None:
    with pytest.raises(ValueError) as caught:
        await open_store(ttl={"default": 5})
    assert str(caught.value) == (
        "unknown key 'default' in the ttl config; known are refresh_on_read, default_ttl, sweep_interval_minutes, "
        "omit_expired"
    )
    with pytest.raises(ValueError) as caught:
        await open_store(ttl={"omit_expired": False})
    assert str(caught.value) == (
        "omit_expired=False: items whose time to live is over are never returned; leave it out"
    )


class WatchedStore(SQLStore):
    """A store that tells of each sweep."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.sweeps: asyncio.Queue[int] = asyncio.Queue()
        self.is_broken = False

    async def sweep_ttl(self) -> int:
        if self.is_broken:
            self.is_broken = False
            raise DatabaseUnavailable("cannot use database: gone")
        count = await super().sweep_ttl()
        self.sweeps.put_nowait(count)
        return count


async def test_a_sweeper_sweeps_in_the_background_and_ends_with_the_store(saver_url: str, clock: Clock) -> None:
    async with WatchedStore.from_url(saver_url, clock=clock, ttl={"sweep_interval_minutes": 0.0001}) as store:
        await store.aput(X, "k", {}, ttl=1)
        clock.now += MINUTE + 1
        sweeper = await store.start_ttl_sweeper()
        assert await store.start_ttl_sweeper() is sweeper

        assert await store.sweeps.get() == 1

    assert sweeper.cancelled()
    assert len(asyncio.all_tasks()) == 1


async def test_a_sweeper_survives_a_failed_sweep(
    sqlite_url: str, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    async with WatchedStore.from_url(sqlite_url, clock=clock) as store:
        store.is_broken = True
        with caplog.at_level(logging.WARNING, logger="everstep"):
            _ = await store.start_ttl_sweeper(0.0001)
            await store.sweeps.get()

        assert await store.stop_ttl_sweeper()
        assert await store.stop_ttl_sweeper()

    assert caplog.messages == [
        "expired store items could not be removed: DatabaseUnavailable: cannot use database: gone"
    ]

"""Stores and caches with their tables in another place, and behind a pooler: everything works as it does elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from everstep_savers.sql.cache import SQLCache
from everstep_savers.sql.store import SQLStore
from everstep_savers.store import IndexConfig
from tests.conformance.pooler import Pooler, names_of_statements
from tests.conformance.test_places import PLACES, tables

FIRST = (("results", "n"), "1")


def embed(texts: Sequence[str]) -> list[list[float]]:
    return [[float(len(text)), 1.0] for text in texts]


INDEX: IndexConfig = {"dims": 2, "embed": embed, "fields": ["text"]}


async def use_store(url: str, **options: Any) -> None:
    """Everything a store does, once."""
    now = [1000.0]
    async with SQLStore.from_url(url, index=INDEX, clock=lambda: now[0], **options) as store:
        await asyncio.gather(*(store.aput(("a", f"n{n}"), "k", {"text": "x" * n, "n": n}) for n in range(1, 5)))
        await store.aput(("a", "n1"), "short", {"text": "y", "n": 9}, ttl=1)
        found = await store.asearch(("a",), query="xx", filter={"n": {"$gte": 2}}, limit=2)
        assert [(item.namespace[1], item.value["n"]) for item in found] == [("n2", 2), ("n3", 3)]
        assert await store.alist_namespaces(prefix=("a",), limit=2) == [("a", "n1"), ("a", "n2")]
        now[0] += 100
        assert await store.sweep_ttl() == 1
        await store.adelete(("a", "n4"), "k")
        assert await store.aget(("a", "n4"), "k") is None
        assert len(await store.asearch(("a",))) == 3


async def use_cache(url: str, **options: Any) -> None:
    """Everything a cache does, once."""
    now = [1000.0]
    async with SQLCache[Any].from_url(url, clock=lambda: now[0], **options) as cache:
        await cache.aset({FIRST: ({"n": 1}, None), (("results",), "2"): ("brief", 1)})
        assert await cache.aget([FIRST, (("results",), "2")]) == {FIRST: {"n": 1}, (("results",), "2"): "brief"}
        now[0] += 100
        await cache.aset({(("results",), "3"): (3, None)})
        assert await cache.aget([(("results",), "2"), (("results",), "3")]) == {(("results",), "3"): 3}
        await cache.aclear([("results", "n")])
        assert await cache.aget([FIRST]) == {}


@pytest.fixture(params=[("sqlite", PLACES[0]), *(("postgres", place) for place in PLACES)], ids=str)
def placed(request: pytest.FixtureRequest, tmp_path: Any) -> tuple[str, dict[str, str]]:
    kind, place = request.param
    if kind == "sqlite":
        return f"sqlite:///{tmp_path / 'placed.db'}", place
    url: str = request.getfixturevalue("empty_postgres_url")
    return url, place


async def test_stores_and_caches_work_in_another_place(placed: tuple[str, dict[str, str]]) -> None:
    url, place = placed
    await SQLStore.from_url(url, **place).setup()

    await use_store(url, **place)
    await use_cache(url, **place)

    prefix = place.get("table_prefix", "")
    assert {f"{prefix}store_items", f"{prefix}cache_entries"} < await tables(url, place.get("schema"))


async def test_stores_in_two_places_know_nothing_of_each_other(placed: tuple[str, dict[str, str]]) -> None:
    url, place = placed
    async with (
        SQLStore.from_url(url, auto_migrate=True) as plain,
        SQLStore.from_url(url, auto_migrate=True, **place) as store,
    ):
        await plain.aput(("a",), "k", {"in": "plain"})

        assert await store.aget(("a",), "k") is None
        await store.aput(("a",), "k", {"in": "placed"})
        await store.adelete(("a",), "k")
        found = await plain.aget(("a",), "k")

    assert found is not None
    assert found.value == {"in": "plain"}


async def test_stores_and_caches_work_through_a_transaction_pooler(postgres_url: str) -> None:
    async with Pooler(postgres_url).running() as pooler:
        await use_store(pooler.url, pooler="transaction")
        await use_cache(pooler.url, pooler="transaction")

        assert await names_of_statements(pooler.url) == []

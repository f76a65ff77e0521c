"""Searching a store: namespaces by segment, filters, pages, and the listing of namespaces."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from enum import IntEnum
from typing import Any

import pytest

from everstep_savers.codec import Codec
from everstep_savers.store import BaseStore, ListNamespacesOp, MatchCondition
from tests.conformance.conftest import Clock, OpenStore
from tests.conformance.test_store import keys


class Level(IntEnum):
    LOW = 1
    HIGH = 2


VALUES: dict[str, dict[Any, Any]] = {
    "one": {"n": 1, "s": "a"},
    "two": {"n": 2, "s": "b", "tags": ["x", "y"]},
    "two-text": {"n": "2"},
    "two-point": {"n": 2.0},
    "tenth": {"n": 0.1},
    "none": {"n": None, "s": "ä"},
    "true": {"n": True},
    "big": {"n": 2**70},
    "decimal": {"n": Decimal("1.5")},
    "level": {"n": Level.HIGH},
    "infinite": {"n": float("inf")},
    "nested": {"d": {"a": {"b": 1}, "c": 2}},
    "nested-more": {"d": {"a": {"b": 2}}},
    "long": {"s": "l" * 1000},
    "nul": {"s": "a\0"},
    "surrogate": {"s": "\ud800"},
    "when": {"at": datetime(2024, 1, 1, tzinfo=UTC)},
    "bytes": {"b": b"ab"},
    "odd-keys": {"a.b": 1, '"q"': 2, "$.n": 3, "'; --": 4, 7: 5},
    "empty": {},
}
WITHOUT_N = [key for key, value in VALUES.items() if value.get("n") is None]


async def filled(open_store: OpenStore) -> BaseStore:
    codec = Codec()
    codec.register(Level)
    store = await open_store(codec=codec)
    for key, value in VALUES.items():
        await store.aput(("v",), key, value)
    return store


@pytest.mark.parametrize(
    ("filter", "found"),
    [
        (None, list(VALUES)),
        ({}, list(VALUES)),
        ({"n": 1}, ["one", "true"]),
        ({"n": 2}, ["two", "two-point", "level"]),
        ({"n": 2.0}, ["two", "two-point", "level"]),
        ({"n": True}, ["one", "true"]),
        ({"n": 0.1}, ["tenth"]),
        ({"n": "2"}, ["two-text"]),
        ({"n": 2**70}, ["big"]),
        ({"n": Decimal("1.5")}, ["decimal"]),
        ({"n": 1.5}, ["decimal"]),
        ({"n": float("inf")}, ["infinite"]),
        ({"n": float("nan")}, []),
        ({"n": Level.LOW}, ["one", "true"]),
        ({"n": None}, WITHOUT_N),
        ({"n": {"$eq": None}}, WITHOUT_N),
        ({"n": {"$ne": None}}, [key for key in VALUES if key not in WITHOUT_N]),
        ({"n": {"$eq": 2}}, ["two", "two-point", "level"]),
        ({"n": {"$ne": 2}}, [key for key in VALUES if key not in ("two", "two-point", "level")]),
        ({"n": {"$ne": 0.1}}, [key for key in VALUES if key != "tenth"]),
        ({"s": {"$ne": "a"}}, [key for key in VALUES if key != "one"]),
        ({"n": {"$gt": 1}}, ["two", "two-point", "big", "decimal", "level", "infinite"]),
        ({"n": {"$gte": 1, "$lt": 2}}, ["one", "true", "decimal"]),
        ({"n": {"$lte": 0.1}}, ["tenth"]),
        ({"n": {"$lt": 0.1}}, []),
        ({"n": {"$gt": 10**30}}, ["infinite"]),
        ({"n": {"$gt": "1"}}, ["two-text"]),
        ({"n": {"$gt": None}}, []),
        ({"s": {"$gte": "b"}}, ["two", "none", "long", "surrogate"]),
        ({"s": {"$gt": "a", "$lt": "b"}}, ["nul"]),
        ({"s": "ä"}, ["none"]),
        ({"s": "l" * 1000}, ["long"]),
        ({"s": "a\0"}, ["nul"]),
        ({"s": "\ud800"}, ["surrogate"]),
        ({"at": datetime(2024, 1, 1, tzinfo=UTC)}, ["when"]),
        ({"at": {"$gt": datetime(2023, 1, 1, tzinfo=UTC)}}, ["when"]),
        ({"b": b"ab"}, ["bytes"]),
        ({"tags": ["x", "y"]}, ["two"]),
        ({"tags": ["y", "x"]}, []),
        ({"d": {"c": 2}}, ["nested"]),
        ({"d": {"a": {"b": {"$gte": 2}}}}, ["nested-more"]),
        ({"d": {"$eq": {"a": {"b": 2}}}}, ["nested-more"]),
        ({"d": {"$ne": {"a": {"b": 2}}}}, [key for key in VALUES if key != "nested-more"]),
        ({"d": {}}, ["nested", "nested-more"]),
        ({"n": {"x": 1}}, []),
        ({"a.b": 1}, ["odd-keys"]),
        ({'"q"': 2}, ["odd-keys"]),
        ({"$.n": 3}, ["odd-keys"]),
        ({"'; --": 4}, ["odd-keys"]),
        ({7: 5}, ["odd-keys"]),
        ({"a\0b": 1}, []),
        ({"n": "1' OR '1'='1"}, []),
        ({"n' OR '1'='1": 1}, []),
        ({"n": 2, "s": "b"}, ["two"]),
        ({"missing": {"$ne": 1}}, list(VALUES)),
    ],
    ids=repr,
)
async def test_a_filter_finds_the_same_in_every_store(
    open_store: OpenStore, filter: dict[str, Any], found: list[str]
) -> None:
    store = await filled(open_store)

    assert [item.key for item in await store.asearch(("v",), filter=filter, limit=100)] == found


async def test_a_filter_on_a_value_that_cannot_be_compared_does_not_match(open_store: OpenStore) -> None:
    import numpy

    store = await open_store()
    await store.aput(("v",), "array", {"n": numpy.arange(3)})

    assert await store.asearch(("v",), filter={"n": 1}) == []
    assert [item.key for item in await store.asearch(("v",), filter={"n": {"$ne": 1}})] == ["array"]


@pytest.mark.parametrize(
    ("filter", "complaint"),
    [
        (
            {"n": {"$foo": 1}},
            "unknown operator '$foo' in the filter for 'n'; known are $eq, $ne, $gt, $gte, $lt, $lte",
        ),
        (
            {"n": {"$gt": 1, "x": 1}},
            "unknown operator 'x' in the filter for 'n'; known are $eq, $ne, $gt, $gte, $lt, $lte",
        ),
        (
            {"d": {"a": {"$in": [1]}}},
            "unknown operator '$in' in the filter for 'a'; known are $eq, $ne, $gt, $gte, $lt, $lte",
        ),
        ([("n", 1)], "a filter maps keys of the value to conditions, got [('n', 1)]"),
    ],
    ids=repr,
)
async def test_a_filter_that_cannot_be_is_refused_though_nothing_is_stored(
    store: BaseStore, filter: Any, complaint: str
) -> None:
    with pytest.raises(ValueError) as caught:
        await store.asearch((), filter=filter)

    assert str(caught.value) == complaint


async def test_a_page_may_be_larger_than_any_number_of_a_database(store: BaseStore) -> None:
    await store.aput(("x",), "k", {})

    assert len(await store.asearch((), limit=10**30)) == 1
    assert await store.asearch((), offset=10**30) == []
    assert await store.alist_namespaces(limit=10**30) == [("x",)]


@pytest.mark.parametrize(("name", "value"), [("limit", -1), ("offset", -2)])
async def test_a_negative_page_is_refused(store: BaseStore, name: str, value: int) -> None:
    options: Any = {name: value}
    for call in (store.asearch((), **options), store.alist_namespaces(**options)):
        with pytest.raises(ValueError) as caught:
            await call
        assert str(caught.value) == f"{name} must not be negative, got {value}"


NAMESPACES: list[tuple[str, ...]] = [
    ("t", "acme"),
    ("t", "acme-corp"),
    ("t", "acme", "notes"),
    ("t", "acme", "notes", "deep"),
    ("t", "acme0"),
    ("t", "acme\n"),
    ("t", "Acme"),
    ("t",),
    ("tt", "acme"),
    ("%", "_"),
    ("a%", "acme"),
    ("*",),
    ("'; --",),
    ("ä", "\U0001f600"),
]


async def with_namespaces(store: BaseStore) -> BaseStore:
    for number, namespace in enumerate(NAMESPACES):
        await store.aput(namespace, f"k{number}", {"n": number})
    return store


@pytest.mark.parametrize("prefix", [*NAMESPACES, ("t", "acme", "notes", "deep", "er"), ("acme",), ("t", "acm"), ("_",)])
async def test_a_prefix_is_matched_label_by_label(store: BaseStore, prefix: tuple[str, ...]) -> None:
    await with_namespaces(store)

    found = [item.namespace for item in await store.asearch(prefix, limit=100)]

    assert found == [namespace for namespace in NAMESPACES if namespace[: len(prefix)] == prefix]


async def test_an_empty_prefix_finds_everything(store: BaseStore) -> None:
    await with_namespaces(store)

    assert [item.namespace for item in await store.asearch((), limit=100)] == NAMESPACES


async def test_items_come_in_the_order_in_which_they_were_first_put(store: BaseStore, clock: Clock) -> None:
    for key in ("c", "a", "b"):
        await store.aput(("x", key), key, {"n": 0})
        clock.now += 1
    await store.aput(("x", "c"), "c", {"n": 1})
    await store.adelete(("x", "a"), "a")
    await store.aput(("x", "a"), "a", {"n": 1})

    assert await keys(store, "x") == ["c", "b", "a"]


@pytest.mark.parametrize("filter", [None, {"even": True}, {"even": {"$ne": False}}, {"n": {"$gte": 7}}], ids=repr)
async def test_pages_together_are_the_whole(store: BaseStore, filter: dict[str, Any] | None) -> None:
    for n in range(25):
        await store.aput(("p", f"{n % 3}"), f"k{n}", {"n": n, "even": n % 2 == 0})
    whole = [item.key for item in await store.asearch(("p",), filter=filter, limit=100)]

    pages = [await store.asearch(("p",), filter=filter, limit=4, offset=offset) for offset in range(0, 28, 4)]

    assert [item.key for page in pages for item in page] == whole
    assert len(whole) > 12
    assert await store.asearch(("p",), filter=filter, limit=0) == []
    assert await store.asearch(("p",), filter=filter, offset=25) == []


async def test_a_page_is_filled_however_many_items_do_not_match(store: BaseStore) -> None:
    # Lists are looked at outside of the database.
    for n in range(150):
        await store.aput(("p",), f"k{n:03}", {"tags": ["rare"] if n % 40 == 39 else ["common"]})

    found = await store.asearch(("p",), filter={"tags": ["rare"]}, limit=2, offset=1)

    assert [item.key for item in found] == ["k079", "k119"]


async def test_a_search_gives_ten_items_by_default(store: BaseStore) -> None:
    for n in range(12):
        await store.aput(("p",), f"k{n}", {})

    assert len(await store.asearch(("p",))) == 10


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ({}, sorted(NAMESPACES)),
        ({"prefix": ("t", "acme")}, [("t", "acme"), ("t", "acme", "notes"), ("t", "acme", "notes", "deep")]),
        ({"prefix": ("t", "*", "notes")}, [("t", "acme", "notes"), ("t", "acme", "notes", "deep")]),
        ({"prefix": ("*", "acme")}, sorted(n for n in NAMESPACES if n[1:2] == ("acme",))),
        ({"prefix": ("*",)}, sorted(NAMESPACES)),
        ({"suffix": ("acme",)}, [("a%", "acme"), ("t", "acme"), ("tt", "acme")]),
        ({"suffix": ("acme", "*")}, [("t", "acme", "notes")]),
        ({"prefix": ("t",), "suffix": ("deep",)}, [("t", "acme", "notes", "deep")]),
        ({"prefix": ("t", "acme"), "max_depth": 2}, [("t", "acme")]),
        ({"suffix": ("deep",), "max_depth": 3}, [("t", "acme", "notes")]),
        ({"max_depth": 1}, sorted({n[:1] for n in NAMESPACES})),
        ({"limit": 2, "offset": 1}, sorted(NAMESPACES)[1:3]),
        ({"limit": 0}, []),
        ({"prefix": ("nope",)}, []),
        ({"prefix": ("t", "acme", "notes", "deep", "*")}, []),
    ],
    ids=repr,
)
async def test_namespaces_are_listed(store: BaseStore, options: dict[str, Any], found: list[tuple[str, ...]]) -> None:
    await with_namespaces(store)

    assert await store.alist_namespaces(**options) == found


async def test_several_conditions_all_have_to_be_met(store: BaseStore) -> None:
    await with_namespaces(store)
    conditions = [
        MatchCondition("prefix", ("t",)),
        MatchCondition("prefix", ("t", "acme")),
        MatchCondition("suffix", ("notes",)),
    ]

    assert await store.abatch([ListNamespacesOp(tuple(conditions))]) == [[("t", "acme", "notes")]]


async def test_a_listing_that_cannot_be_is_refused(store: BaseStore) -> None:
    sideways: Any = "infix"
    with pytest.raises(ValueError) as caught:
        await store.abatch([ListNamespacesOp((MatchCondition(sideways, ("a",)),))])
    assert str(caught.value) == "a namespace is matched by 'prefix' or 'suffix', not by 'infix'"

    with pytest.raises(ValueError) as caught:
        await store.alist_namespaces(max_depth=0)
    assert str(caught.value) == "max_depth counts labels and is at least 1, got 0"

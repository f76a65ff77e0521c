"""The contract of a store: items by namespace and key, and batches of operations."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from everstep_savers.errors import CodecError, InvalidNamespaceError
from everstep_savers.store import (
    BaseStore,
    GetOp,
    InMemoryStore,
    Item,
    ListNamespacesOp,
    MatchCondition,
    PutOp,
    SearchItem,
    SearchOp,
    validate_op_namespace,
)
from tests.conformance.conftest import Clock

NOW = datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)
ADA = ("users", "ada")


async def keys(store: BaseStore, *prefix: str) -> list[str]:
    """The keys below a prefix, in the order in which a search gives them."""
    return [item.key for item in await store.asearch(prefix, limit=1000)]


async def test_an_item_comes_back_as_it_was_put(store: BaseStore) -> None:
    await store.aput(ADA, "food", {"likes": "pizza"})

    found = await store.aget(ADA, "food")

    assert found == Item(ADA, "food", {"likes": "pizza"}, found.created_at, found.updated_at)  # type: ignore[union-attr]
    assert found is not None
    assert NOW <= found.created_at == found.updated_at < NOW + timedelta(seconds=1)


async def test_what_is_not_there_is_none(store: BaseStore) -> None:
    await store.aput(ADA, "food", {})

    assert await store.aget(ADA, "drink") is None
    assert await store.aget(("users",), "food") is None
    assert await store.aget(("users", "ada", "food"), "food") is None


async def test_putting_again_replaces_the_value_and_keeps_when_it_was_first_put(store: BaseStore, clock: Clock) -> None:
    await store.aput(ADA, "food", {"likes": "pizza", "since": 1})
    first = await store.aget(ADA, "food")
    clock.now += 60
    await store.aput(ADA, "food", {"likes": "soup"})

    second = await store.aget(ADA, "food")

    assert first is not None
    assert second is not None
    assert second.value == {"likes": "soup"}
    assert second.created_at == first.created_at
    assert timedelta(seconds=60) <= second.updated_at - first.updated_at < timedelta(seconds=61)


async def test_a_deleted_item_is_gone_and_may_be_deleted_again(store: BaseStore) -> None:
    await store.aput(ADA, "food", {})

    await store.adelete(ADA, "food")
    await store.adelete(ADA, "food")

    assert await store.aget(ADA, "food") is None
    assert await store.alist_namespaces() == []


async def test_what_was_put_does_not_change_with_the_callers_object(store: BaseStore) -> None:
    value = {"likes": ["pizza"]}
    await store.aput(ADA, "food", value)
    value["likes"].append("soup")

    found = await store.aget(ADA, "food")

    assert found is not None
    assert found.value == {"likes": ["pizza"]}


async def test_what_was_got_belongs_to_the_reader(store: BaseStore) -> None:
    await store.aput(ADA, "food", {"likes": ["pizza"]})
    for item in (await store.aget(ADA, "food"), *await store.asearch(ADA)):
        assert item is not None
        item.value["likes"].append("soup")

    one, other = await asyncio.gather(store.aget(ADA, "food"), store.aget(ADA, "food"))

    assert one is not None
    assert other is not None
    assert one.value == other.value == {"likes": ["pizza"]}
    assert one.value is not other.value


@pytest.mark.parametrize(
    "value",
    [
        {"tuple": (1, (2, 3)), "set": {1, 2}, "bytes": b"\0\xff"},
        {"when": datetime(2024, 2, 29, 12, tzinfo=timezone(timedelta(hours=5, minutes=30))), "price": Decimal("1.10")},
        {1: "int key", None: "none key", (1, 2): "tuple key"},
        {"text": "nul \0 and lone \ud800", "big": 2**70, "nan": float("inf")},
        {"naïve": "Grüße, 世界 \U0001f600", "": "empty key", "a.b": 1, '"quoted"': 2, "nul \0": 3},
        {},
    ],
    ids=["containers", "times", "keys", "odd texts", "names", "empty"],
)
async def test_values_keep_their_types(store: BaseStore, value: dict[Any, Any]) -> None:
    await store.aput(ADA, "k", value)

    found = await store.aget(ADA, "k")
    (searched,) = await store.asearch(ADA)

    assert found is not None
    assert found.value == searched.value == value
    assert repr(found.value) == repr(value)


async def test_a_mapping_of_another_type_is_kept_as_a_dict(store: BaseStore) -> None:
    from types import MappingProxyType

    await store.aput(ADA, "k", MappingProxyType({"a": 1}))

    found = await store.aget(ADA, "k")
    assert found is not None
    assert type(found.value) is dict


async def test_a_value_that_cannot_be_stored_is_refused_and_nothing_of_its_batch_is_written(store: BaseStore) -> None:
    with pytest.raises(CodecError) as caught:
        await store.abatch([PutOp(ADA, "good", {"a": 1}), PutOp(ADA, "bad", {"a": [object()]})])

    assert str(caught.value) == (
        "object cannot be stored: make it a dataclass and call codec.register(object), or keep plain data instead "
        "(at ['a'][0], store item 'bad', namespace ('users', 'ada'))"
    )
    assert await store.aget(ADA, "good") is None


async def test_one_value_that_cannot_be_stored_spoils_no_other_call(store: BaseStore) -> None:
    calls = [store.aput(ADA, f"k{n}", {"a": object() if n == 2 else n}) for n in range(5)]

    outcomes = await asyncio.gather(*calls, return_exceptions=True)

    assert [type(outcome) for outcome in outcomes] == [type(None)] * 2 + [CodecError] + [type(None)] * 2
    assert await keys(store, *ADA) == ["k0", "k1", "k3", "k4"]


@pytest.mark.parametrize("value", [[("a", 1)], "text", 1])
async def test_a_value_must_be_a_mapping(store: BaseStore, value: Any) -> None:
    with pytest.raises(TypeError) as caught:
        await store.aput(ADA, "k", value)

    assert str(caught.value) == (f"the value of item 'k' must be a mapping, not {type(value).__name__} {value!r}")


async def test_putting_none_points_to_delete(store: BaseStore) -> None:
    with pytest.raises(TypeError) as caught:
        await store.aput(ADA, "k", None)  # type: ignore[arg-type]

    assert str(caught.value) == "put() takes a mapping as value, got None; use delete() to remove an item"


@pytest.mark.parametrize("key", ["", "a.b/c d", "naïve \U0001f600", "'; DROP TABLE store_items; --", "%_*[", "x" * 500])
async def test_any_text_is_a_key(store: BaseStore, key: str) -> None:
    await store.aput(ADA, key, {"a": 1})

    assert await keys(store, *ADA) == [key]
    assert await store.aget(ADA, key) is not None
    await store.adelete(ADA, key)
    assert await keys(store, *ADA) == []


async def test_numbers_and_uuids_are_keys_by_their_text(store: BaseStore) -> None:
    number: Any = 17
    uuid: Any = UUID(int=5)
    await store.aput(ADA, number, {})
    await store.aput(ADA, uuid, {})

    assert await keys(store, *ADA) == ["17", "00000000-0000-0000-0000-000000000005"]
    assert await store.aget(ADA, number) is not None


@pytest.mark.parametrize(
    ("key", "error", "complaint"),
    [
        ("a\0b", ValueError, r"key 'a\x00b' contains a NUL character, which a database key cannot hold"),
        ("\ud800", ValueError, r"key '\ud800' contains a lone surrogate, which a database key cannot hold"),
        (None, TypeError, "the key of an item must be a string, not None"),
        (True, TypeError, "the key of an item must be a string, not True"),
        (b"a", TypeError, "the key of an item must be a string, not b'a'"),
    ],
)
async def test_a_key_that_no_database_can_keep_is_refused(
    store: BaseStore, key: Any, error: type[Exception], complaint: str
) -> None:
    for call in (store.aput(ADA, key, {}), store.aget(ADA, key), store.adelete(ADA, key)):
        with pytest.raises(error) as caught:
            await call
        assert str(caught.value) == complaint


BAD_NAMESPACES: list[tuple[Any, str]] = [
    (("",), "labels cannot be empty strings, but one in namespace ('',) is"),
    (("a", ""), "labels cannot be empty strings, but one in namespace ('a', '') is"),
    (("a.b",), "label 'a.b' in namespace ('a.b',) cannot contain periods ('.')"),
    ((1,), "label 1 in namespace (1,) must be a string, not int"),
    (
        ("a\0b",),
        r"label 'a\x00b' contains a NUL character, which a database key cannot hold, in namespace ('a\x00b',)",
    ),
    (
        ("\ud800",),
        r"label '\ud800' contains a lone surrogate, which a database key cannot hold, in namespace ('\ud800',)",
    ),
    ("users", "a namespace is a tuple of labels, such as ('users', 'ada'), not 'users'"),
    (None, "a namespace is a tuple of labels, such as ('users', 'ada'), not None"),
]


@pytest.mark.parametrize(("namespace", "complaint"), BAD_NAMESPACES)
async def test_a_namespace_that_cannot_be_is_refused(store: BaseStore, namespace: Any, complaint: str) -> None:
    calls: list[Awaitable[Any]] = [
        store.aput(namespace, "k", {}),
        store.aget(namespace, "k"),
        store.adelete(namespace, "k"),
        store.asearch(namespace),
    ]
    if namespace is not None:
        calls += [store.alist_namespaces(prefix=namespace), store.alist_namespaces(suffix=namespace)]

    for call in calls:
        with pytest.raises(InvalidNamespaceError) as caught:
            await call
        assert str(caught.value) == complaint
    assert await store.alist_namespaces() == []


async def test_an_item_needs_a_namespace(store: BaseStore) -> None:
    with pytest.raises(InvalidNamespaceError) as caught:
        await store.aput((), "k", {})

    assert str(caught.value) == "Namespace cannot be empty: an item needs at least one label, such as ('users',)"
    with pytest.raises(InvalidNamespaceError):
        await store.abatch([PutOp((), "k", {})])
    assert await store.aget((), "k") is None


async def test_the_roots_of_runtimes_are_kept_for_them(store: BaseStore) -> None:
    for root in ("everstep", "langgraph"):
        with pytest.raises(InvalidNamespaceError) as caught:
            await store.aput((root, "x"), "k", {})
        assert str(caught.value) == (
            f"the first label of namespace ('{root}', 'x') is kept for the runtime; choose another"
        )
    await store.aput(("x", "everstep"), "k", {})
    await store.abatch([PutOp(("everstep",), "k", {})])
    assert await store.aget(("everstep",), "k") is not None


def test_an_operation_can_be_checked_alone() -> None:
    validate_op_namespace(GetOp((), "k"))
    validate_op_namespace(SearchOp(()))
    validate_op_namespace(ListNamespacesOp((MatchCondition("prefix", ("*", "a")),)))
    with pytest.raises(InvalidNamespaceError, match="periods"):
        validate_op_namespace(ListNamespacesOp((MatchCondition("suffix", ("a.b",)),)))


async def test_a_list_is_taken_as_a_namespace(store: BaseStore) -> None:
    listed: Any = ["users", "ada"]
    await store.aput(listed, "k", {"a": 1})

    found = await store.aget(ADA, "k")
    assert found is not None
    assert found.namespace == ADA
    assert await keys(store, *listed) == ["k"]


async def test_a_batch_gives_a_result_for_each_operation(store: BaseStore) -> None:
    await store.aput(ADA, "a", {"n": 1})

    results = await store.abatch(
        [
            GetOp(ADA, "a"),
            GetOp(ADA, "none"),
            PutOp(ADA, "b", {"n": 2}),
            SearchOp(("users",)),
            ListNamespacesOp(),
            PutOp(ADA, "none", None),
        ]
    )

    assert isinstance(results[0], Item)
    assert results[1:3] == [None, None]
    assert isinstance(results[3], list)
    assert [type(found) for found in results[3]] == [SearchItem]
    assert results[4:] == [[ADA], None]
    assert await store.abatch([]) == []


async def test_a_batch_reads_before_it_writes(store: BaseStore) -> None:
    await store.aput(ADA, "old", {"n": 1})

    results = await store.abatch(
        [PutOp(ADA, "new", {}), GetOp(ADA, "new"), PutOp(ADA, "old", None), GetOp(ADA, "old"), SearchOp(ADA)]
    )

    assert results[1] is None
    assert isinstance(results[3], Item)
    assert [item.key for item in results[4]] == ["old"]  # type: ignore[union-attr]
    assert await keys(store, *ADA) == ["new"]


async def test_the_last_write_to_a_key_counts(store: BaseStore) -> None:
    await store.abatch(
        [
            PutOp(ADA, "a", {"n": 1}),
            PutOp(ADA, "b", {"n": 1}),
            PutOp(ADA, "a", {"n": 2}),
            PutOp(ADA, "b", None),
            PutOp(ADA, "c", None),
            PutOp(ADA, "c", {"n": 3}),
        ]
    )

    assert {item.key: item.value for item in await store.asearch(ADA)} == {"a": {"n": 2}, "c": {"n": 3}}


async def test_what_is_no_operation_is_refused(store: BaseStore) -> None:
    nonsense: Any = "get"
    with pytest.raises(TypeError) as caught:
        await store.abatch([nonsense])

    assert str(caught.value) == "a store takes GetOp, PutOp, SearchOp and ListNamespacesOp, not 'get'"


async def test_many_writers_at_once_lose_nothing(store: BaseStore) -> None:
    await asyncio.gather(*(store.aput(("n", f"{n % 7}"), f"k{n}", {"n": n}) for n in range(100)))
    await asyncio.gather(*(store.abatch([PutOp(("n", f"{m}"), "all", {"m": m}) for m in range(7)]) for _ in range(10)))

    assert len(await keys(store, "n")) == 107


async def test_two_batches_that_write_and_delete_the_same_keys_get_through(store: BaseStore) -> None:
    def batch(writes: bool) -> list[PutOp]:
        return [PutOp(ADA, f"k{n}", {"n": n} if (n % 2 == 0) is writes else None) for n in range(30)]

    await asyncio.gather(*(store.abatch(batch(n % 2 == 0)) for n in range(20)))

    assert sorted(await keys(store, *ADA)) in (
        sorted(f"k{n}" for n in range(0, 30, 2)),
        sorted(f"k{n}" for n in range(1, 30, 2)),
    )


async def test_an_item_as_json(store: BaseStore) -> None:
    await store.aput(ADA, "food", {"likes": "pizza"})
    found = await store.aget(ADA, "food")
    (searched,) = await store.asearch(ADA)

    assert found is not None
    expected = {
        "namespace": ["users", "ada"],
        "key": "food",
        "value": {"likes": "pizza"},
        "created_at": found.created_at.isoformat(),
        "updated_at": found.updated_at.isoformat(),
    }
    assert found.dict() == expected
    assert searched.dict() == {**expected, "score": None}
    assert len({found, searched}) == 2
    assert len({found, await store.aget(ADA, "food")}) == 1


async def test_the_memory_of_one_store_is_not_that_of_another() -> None:
    one, other = InMemoryStore(), InMemoryStore()
    await one.aput(ADA, "k", {})

    assert await other.aget(ADA, "k") is None

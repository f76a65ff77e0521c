"""Searching a store by meaning: what is indexed, in which order items come, and whose function is used."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import asyncpg
import pytest

from everstep_savers.sql.store import SQLStore
from everstep_savers.store import (
    BaseStore,
    Embeddings,
    IndexConfig,
    InMemoryStore,
    PutOp,
    SearchItem,
    ensure_embeddings,
    vectors,
)
from tests.conformance.conftest import Clock, OpenStore

LETTERS = "abcd"
X = ("x",)


class Letters:
    """Embeds a text as how often each letter is in it, and notes what it was asked."""

    def __init__(self) -> None:
        self.calls: list[list[str]] = []

    def __call__(self, texts: Sequence[str]) -> list[list[float]]:
        self.calls.append(list(texts))
        return [[float(text.count(letter)) for letter in LETTERS] for text in texts]


def index(embed: Any = None, **more: Any) -> IndexConfig:
    """An index over the key "text"."""
    config: IndexConfig = {"dims": len(LETTERS), "embed": embed or Letters(), "fields": ["text"]}
    config.update(more)  # type: ignore[typeddict-item]  # what tests pass
    return config


@pytest.fixture(params=["memory", "sqlite", "postgres", "pgvector", "memory-python", "sqlite-python"])
async def open_indexed(
    request: pytest.FixtureRequest, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[OpenStore]:
    """Opens stores of each kind in turn: with pgvector and without, with numpy and without."""
    kind, _, without_numpy = request.param.partition("-")
    if without_numpy:
        monkeypatch.setattr(vectors, "_numpy", lambda: None)
    url = None if kind == "memory" else request.getfixturevalue(f"{'sqlite' if kind == 'sqlite' else 'postgres'}_url")
    if kind == "pgvector":
        await _create_extension(url)
    opened: list[SQLStore] = []

    async def open_one(**options: Any) -> BaseStore:
        if url is None:
            return InMemoryStore(clock=clock, **options)
        store = await SQLStore.from_url(url, clock=clock, **options).__aenter__()
        assert await store._can_rank() is (kind == "pgvector")
        opened.append(store)
        return store

    yield open_one
    for store in opened:
        await store.aclose()
    if kind == "pgvector":
        await _execute(url, "DROP EXTENSION vector CASCADE")


async def _create_extension(url: Any) -> None:
    available = await _execute(url, "SELECT count(*) FROM pg_available_extensions WHERE name = 'vector'")
    if not available:
        pytest.skip("this Postgres server has no pgvector to install")
    await _execute(url, "CREATE EXTENSION vector")


async def _execute(url: Any, statement: str) -> Any:
    connection = await asyncpg.connect(url)
    try:
        return await connection.fetchval(statement)
    finally:
        await connection.close()


def scored(items: Sequence[SearchItem]) -> list[tuple[str, float | None]]:
    """Keys and scores, rounded."""
    return [(item.key, None if item.score is None else round(item.score, 3)) for item in items]


async def test_the_most_similar_come_first_and_those_without_a_vector_last(open_indexed: OpenStore) -> None:
    store = await open_indexed(index=index())
    for key, text in {"b": "b", "ab": "ab", "none": None, "a": "aaa", "zero": "zzz", "aab": "aab"}.items():
        await store.aput(X, key, {"text": text})
    await store.aput(X, "unindexed", {"text": "a"}, index=False)

    found = await store.asearch(X, query="a", limit=20)

    assert scored(found) == [
        ("a", 1.0),
        ("aab", 0.894),
        ("ab", 0.707),
        ("b", 0.0),
        ("zero", 0.0),
        ("none", None),
        ("unindexed", None),
    ]


async def test_opposite_vectors_have_negative_scores(open_indexed: OpenStore) -> None:
    def signs(texts: Sequence[str]) -> list[list[float]]:
        return [[1.0 if text == "yes" else -1.0, 0.0, 0.0, 0.0] for text in texts]

    store = await open_indexed(index=index(signs))
    await store.aput(X, "no", {"text": "no"})
    await store.aput(X, "yes", {"text": "yes"})

    assert scored(await store.asearch(X, query="yes")) == [("yes", 1.0), ("no", -1.0)]


async def test_an_item_has_the_score_of_its_best_text(open_indexed: OpenStore) -> None:
    store = await open_indexed(index=index(fields=["title", "parts[*].text"]))
    await store.aput(X, "many", {"title": "c", "parts": [{"text": "b"}, {"text": "ab"}]})
    await store.aput(X, "one", {"title": "aab"})

    assert scored(await store.asearch(X, query="a")) == [("one", 0.894), ("many", 0.707)]
    assert scored(await store.asearch(X, query="b")) == [("many", 1.0), ("one", 0.447)]
    assert scored(await store.asearch(X, query="c"))[0] == ("many", 1.0)


async def test_a_put_may_say_what_is_indexed(open_indexed: OpenStore) -> None:
    store = await open_indexed(index=index())
    await store.aput(X, "other", {"text": "a", "note": "b"}, index=["note"])

    assert scored(await store.asearch(X, query="b")) == [("other", 1.0)]
    assert scored(await store.asearch(X, query="a")) == [("other", 0.0)]


async def test_the_whole_value_is_indexed_by_default(open_indexed: OpenStore) -> None:
    letters = Letters()
    store = await open_indexed(index={"dims": 4, "embed": letters})
    await store.aput(X, "k", {"b": 1, "a": "naïve"})

    assert letters.calls == [['{"a": "naïve", "b": 1}']]


async def test_putting_again_and_deleting_forget_the_old_vectors(open_indexed: OpenStore) -> None:
    store = await open_indexed(index=index())
    await store.abatch([PutOp(X, key, {"text": "a"}) for key in ("changed", "unindexed", "deleted", "again")])

    await store.aput(X, "changed", {"text": "b"})
    await store.aput(X, "unindexed", {"text": "a"}, index=False)
    await store.adelete(X, "deleted")
    await store.abatch([PutOp(X, "again", None), PutOp(X, "again", {"text": "ab"})])

    assert scored(await store.asearch(X, query="a")) == [("again", 0.707), ("changed", 0.0), ("unindexed", None)]


async def test_a_store_without_an_index_forgets_vectors_too(open_indexed: OpenStore) -> None:
    store = await open_indexed(index=index())
    if isinstance(store, InMemoryStore):
        return  # nobody else writes to it
    await store.abatch([PutOp(X, key, {"text": "a"}) for key in ("put", "deleted")])

    plain = await open_indexed()
    await plain.abatch([PutOp(X, "put", {"text": "a"}), PutOp(X, "deleted", None)])
    await plain.aput(X, "deleted", {"text": "a"})

    assert scored(await store.asearch(X, query="a")) == [("put", None), ("deleted", None)]


async def test_a_query_is_confined_to_prefix_filter_and_page(open_indexed: OpenStore) -> None:
    store = await open_indexed(index=index())
    for n in range(12):
        await store.aput(("x", f"{n % 2}"), f"k{n:02}", {"text": "a" * n + "b", "n": n, "tags": [n % 3]})
    await store.aput(("xx",), "other", {"text": "a"})

    whole = scored(await store.asearch(("x",), query="a", limit=20))

    assert [key for key, _ in whole] == [f"k{n:02}" for n in range(11, -1, -1)]
    pages = [await store.asearch(("x",), query="a", limit=5, offset=offset) for offset in (0, 5, 10)]
    assert [each for page in pages for each in scored(page)] == whole
    above = await store.asearch(("x", "1"), query="a", filter={"n": {"$gt": 4}}, limit=2)
    assert [item.key for item in above] == ["k11", "k09"]
    tagged = await store.asearch(("x",), query="a", filter={"tags": [0]}, limit=2, offset=1)
    assert [item.key for item in tagged] == ["k06", "k03"]
    assert await store.asearch(("x",), query="a", filter={"n": 99}) == []
    assert await store.asearch(("nowhere",), query="a") == []
    assert await store.asearch(("x",), query="a", limit=0) == []


async def test_equally_similar_items_come_in_the_order_in_which_they_were_put(open_indexed: OpenStore) -> None:
    store = await open_indexed(index=index())
    for key in ("c", "a", "b"):
        await store.aput(X, key, {"text": "ab"})

    assert [item.key for item in await store.asearch(X, query="a")] == ["c", "a", "b"]


async def test_expired_items_are_not_found(open_indexed: OpenStore, clock: Clock) -> None:
    store = await open_indexed(index=index())
    await store.aput(X, "short", {"text": "a"}, ttl=1)
    await store.aput(X, "long", {"text": "ab"})
    clock.now += 61

    assert scored(await store.asearch(X, query="a")) == [("long", 0.707)]


async def test_without_a_query_or_an_index_nothing_is_embedded(open_indexed: OpenStore) -> None:
    letters = Letters()
    store = await open_indexed(index=index(letters))
    await store.aput(X, "k", {"other": 1})
    await store.aput(X, "off", {"text": "a"}, index=False)

    assert scored(await store.asearch(X)) == [("k", None), ("off", None)]
    assert scored(await store.asearch(X, query="")) == [("k", None), ("off", None)]
    assert letters.calls == []
    plain = await open_indexed()
    await plain.aput(("y",), "k", {"text": "a"})
    assert scored(await plain.asearch(("y",), query="a")) == [("k", None)]


async def test_writers_of_one_item_leave_the_vectors_of_the_last(postgres_url: str) -> None:
    """Both have begun before either may write; a database with one writer at a time does not know this."""
    async with (
        SQLStore.from_url(postgres_url, index=index()) as one,
        SQLStore.from_url(postgres_url, index=index()) as other,
    ):
        for second in ({"text": "b"}, {"other": "b"}):
            await one.aput(X, "1", {"other": ""})
            holder = await asyncpg.connect(postgres_url)
            async with holder.transaction():
                await holder.execute("SELECT 1 FROM store_items FOR UPDATE")
                first = asyncio.create_task(one.aput(X, "1", {"text": "a"}))
                await _until_waiting(holder, 1)
                last = asyncio.create_task(other.aput(X, "1", second))
                await _until_waiting(holder, 2)
            await holder.close()
            await asyncio.gather(first, last)

            (found,) = await one.asearch(X, query="b")
            assert found.value == second
            assert found.score == (1.0 if "text" in second else None)


async def _until_waiting(connection: Any, count: int) -> None:
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
    async with asyncio.timeout(30):
        while await connection.fetchval(waiting) < count:
            # What is seen of other connections does not change within a transaction otherwise.
            await connection.execute("SELECT pg_stat_clear_snapshot()")


async def test_the_texts_of_a_batch_are_embedded_at_once_and_each_text_once(open_indexed: OpenStore) -> None:
    letters = Letters()
    store = await open_indexed(index=index(letters))

    await store.abatch([PutOp(X, f"k{n}", {"text": "ab"[n % 2]}) for n in range(6)])

    assert letters.calls == [["a", "b"]]


async def embed_later(texts: Sequence[str]) -> list[list[float]]:
    await asyncio.sleep(0)
    return Letters()(texts)


class AsyncLetters:
    async def __call__(self, texts: Sequence[str]) -> list[list[float]]:
        return await embed_later(texts)


class SyncEmbeddings:
    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return Letters()(texts)


class BothEmbeddings(SyncEmbeddings):
    def embed_query(self, text: str) -> list[float]:
        return Letters()([text])[0]

    async def aembed_documents(self, texts: list[str]) -> list[list[float]]:
        return Letters()(texts)

    async def aembed_query(self, text: str) -> list[float]:
        return Letters()([text])[0]


@pytest.mark.parametrize(
    "embed",
    [Letters(), embed_later, AsyncLetters(), SyncEmbeddings(), BothEmbeddings()],
    ids=lambda e: type(e).__name__,
)
async def test_any_kind_of_embedding_function_will_do(embed: Any) -> None:
    store = InMemoryStore(index=index(embed))
    await store.aput(X, "k", {"text": "ab"})

    assert scored(await store.asearch(X, query="a")) == [("k", 0.707)]
    assert isinstance(ensure_embeddings(embed), Embeddings)


@pytest.mark.parametrize("embed", [Letters(), embed_later, BothEmbeddings()], ids=lambda e: type(e).__name__)
def test_any_kind_of_embedding_function_will_do_in_a_script(embed: Any) -> None:
    store = InMemoryStore(index=index(embed))
    store.put(X, "k", {"text": "ab"})

    assert scored(store.search(X, query="a")) == [("k", 0.707)]


async def test_a_vector_of_the_wrong_length_is_refused_and_nothing_is_written(open_indexed: OpenStore) -> None:
    store = await open_indexed(index=index(lambda texts: [[1.0]] * len(texts)))

    with pytest.raises(ValueError) as caught:
        await store.aput(X, "k", {"text": "a"})

    assert str(caught.value) == ("the embedding function made a vector of 1 numbers, but the index has dims=4")
    assert await store.aget(X, "k") is None


async def test_a_vector_too_few_is_refused(open_indexed: OpenStore) -> None:
    store = await open_indexed(index=index(lambda texts: []))

    with pytest.raises(ValueError) as caught:
        await store.aput(X, "k", {"text": "a"})

    assert str(caught.value) == "the embedding function made 0 vectors of 1 texts"


async def test_an_embedding_function_that_fails_fails_its_own_call(open_indexed: OpenStore) -> None:
    def picky(texts: Sequence[str]) -> list[list[float]]:
        if "bad" in texts:
            raise ConnectionError("no answer")
        return Letters()(texts)

    store = await open_indexed(index=index(picky))

    outcomes = await asyncio.gather(
        *(store.aput(X, text, {"text": text}) for text in ("a", "bad", "b")), return_exceptions=True
    )

    assert [type(outcome) for outcome in outcomes] == [type(None), ConnectionError, type(None)]
    assert sorted(item.key for item in await store.asearch(X)) == ["a", "b"]


async def test_vectors_of_another_length_do_not_count(open_indexed: OpenStore) -> None:
    store = await open_indexed(index=index())
    if isinstance(store, InMemoryStore):
        return  # its vectors end with it
    await store.aput(X, "old", {"text": "a"})
    longer = await open_indexed(index={**index(lambda texts: [[1.0] * 5 for _ in texts]), "dims": 5})
    await longer.aput(X, "new", {"text": "a"})

    assert scored(await longer.asearch(X, query="a")) == [("new", 1.0), ("old", None)]
    assert scored(await store.asearch(X, query="a")) == [("old", 1.0), ("new", None)]


@pytest.mark.parametrize(
    ("config", "error", "complaint"),
    [
        ({"embed": len}, ValueError, "the index needs dims=, the length of its vectors, got None"),
        ({"dims": 0, "embed": len}, ValueError, "the index needs dims=, the length of its vectors, got 0"),
        (
            {"dims": 1, "embed": len, "distance": "l2"},
            ValueError,
            "unknown key 'distance' in the index config; known are dims, embed, fields",
        ),
        (
            {"dims": 1, "embed": "openai:x"},
            TypeError,
            (
                "the index needs embed=, a function from a list of texts to a list of vectors or an object with "
                "embed_documents(), got 'openai:x'"
            ),
        ),
    ],
)
async def test_an_index_that_cannot_be_is_refused(
    open_store: OpenStore, config: Any, error: type[Exception], complaint: str
) -> None:
    with pytest.raises(error) as caught:
        await open_store(index=config)

    assert str(caught.value) == complaint


@pytest.mark.parametrize("has_numpy", [True, False])
def test_similarity_is_the_cosine(monkeypatch: pytest.MonkeyPatch, has_numpy: bool) -> None:
    if not has_numpy:
        monkeypatch.setattr(vectors, "_numpy", lambda: None)
    pack = vectors.pack

    found = vectors.similarities(pack([3, 4]), [pack([3, 4]), pack([-3, -4]), pack([4, -3]), pack([0, 0])])

    assert found == pytest.approx([1.0, -1.0, 0.0, 0.0])
    assert vectors.similarities(pack([0, 0]), [pack([1, 1])]) == [0.0]
    assert vectors.similarities(pack([1, 1]), []) == []

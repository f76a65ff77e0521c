"""The SQL store: opening and closing, event loops and scripts, connections, transactions and round trips."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from sqlalchemy.ext.asyncio import create_async_engine

from everstep_savers.errors import DatabaseUnavailable, InvalidNamespaceError, SchemaOutOfDate
from everstep_savers.sql import postgres
from everstep_savers.sql import store_statements as statements
from everstep_savers.sql.database import Database, parse_url, shown
from everstep_savers.sql.script_store import SqliteStore
from everstep_savers.sql.statements import compiled
from everstep_savers.sql.store import AsyncPostgresStore, AsyncSqliteStore, SQLStore
from everstep_savers.store import GetOp, InMemoryStore, PutOp
from tests.conformance.proxy import Proxy
from tests.conformance.test_store import keys

X = ("x",)


def workers() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("everstep-")]


async def test_a_store_closes_what_it_has_opened(saver_url: str) -> None:
    async with SQLStore.from_url(saver_url) as store:
        await asyncio.gather(*(store.aput(X, f"k{n}", {"n": n}) for n in range(10)))

    assert workers() == []
    assert len(asyncio.all_tasks()) == 1


async def test_what_was_put_is_there_when_the_store_opens_again(saver_url: str) -> None:
    store = SQLStore.from_url(saver_url)
    await store.aput(X, "k", {"n": 1})
    await store.aclose()

    found = await store.aget(X, "k")
    await store.aclose()
    async with SQLStore.from_url(saver_url) as other:
        assert await other.aget(X, "k") == found


async def test_two_stores_on_one_database_see_each_other(saver_url: str) -> None:
    async with SQLStore.from_url(saver_url) as one, SQLStore.from_url(saver_url) as other:
        await one.aput(X, "k", {"by": "one"})
        await other.aput(X, "k", {"by": "other"})

        found = await one.aget(X, "k")

    assert found is not None
    assert found.value == {"by": "other"}


async def test_an_engine_of_the_host_is_used_and_left_open(saver_url: str) -> None:
    engine = create_async_engine(parse_url(saver_url))
    async with SQLStore(engine) as store:
        await store.aput(X, "k", {})

    async with engine.connect() as connection:
        found = await connection.exec_driver_sql("SELECT namespace FROM store_items")
        assert found.scalar() == "x"
    await engine.dispose()


async def test_a_database_without_a_schema_is_refused_or_made(empty_url: str) -> None:
    place = shown(parse_url(empty_url))
    with pytest.raises(SchemaOutOfDate) as caught:
        await SQLStore.from_url(empty_url).aget(X, "k")
    assert str(caught.value) == (
        f"database {place} has no Everstep tables yet; create them: everstep db upgrade --url {place}"
    )

    async with SQLStore.from_url(empty_url, auto_migrate=True) as store:
        await store.aput(X, "k", {})
    await SQLStore.from_url(empty_url).setup()


async def test_a_database_that_cannot_be_reached_is_a_sentence() -> None:
    with pytest.raises(DatabaseUnavailable) as caught:
        await SQLStore.from_url("postgresql://user:s3cret@127.0.0.1:1/x").aget(X, "k")

    assert str(caught.value) == (
        "cannot use database postgresql://user:***@127.0.0.1:1/x: [Errno 111] Connect call failed ('127.0.0.1', 1)"
    )


def test_a_store_open_on_another_event_loop_is_refused(saver_url: str) -> None:
    with asyncio.Runner() as one, asyncio.Runner() as other:
        store = SQLStore.from_url(saver_url)
        one.run(store.aput(X, "k", {}))

        with pytest.raises(RuntimeError) as caught:
            other.run(store.aget(X, "k"))

        assert str(caught.value) == (
            "this SQLStore is open on another event loop; make a store for each loop, or call `await store.aclose()` "
            "there before using it here"
        )
        one.run(store.aclose())
        assert other.run(keys(store)) == ["k"]
        other.run(store.aclose())


class Counter:
    """Counts what a store asks of its database."""

    def __init__(self, store: SQLStore, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reads = self.writes = 0
        database: Any = store._database
        for name in ("fetch", "run"):
            monkeypatch.setattr(database, name, self._counted(name, getattr(database, name)))

    def _counted(self, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        async def call(*arguments: Any) -> Any:
            if name == "fetch":
                self.reads += 1
            else:
                self.writes += 1
            return await method(*arguments)

        return call


async def test_calls_of_one_moment_share_a_query_or_a_transaction(
    saver_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with SQLStore.from_url(saver_url) as store:
        counter = Counter(store, monkeypatch)

        await asyncio.gather(*(store.aput(X, f"k{n}", {"n": n}) for n in range(50)))
        assert (counter.reads, counter.writes) == (0, 1)
        found = await asyncio.gather(*(store.aget(X, f"k{n % 25}") for n in range(50)))
        assert (counter.reads, counter.writes) == (1, 1)
        await store.asearch(X, filter={"n": {"$lt": 10}})
        assert (counter.reads, counter.writes) == (2, 1)

    assert [item.value["n"] for item in found if item] == [n % 25 for n in range(50)]


async def test_a_slow_call_holds_up_no_other(sqlite_url: str) -> None:
    reached, go_on = asyncio.Event(), asyncio.Event()

    async def embed(texts: Sequence[str]) -> list[list[float]]:
        reached.set()
        await go_on.wait()
        return [[1.0] for _ in texts]

    async with SQLStore.from_url(sqlite_url, index={"dims": 1, "embed": embed}) as store:
        slow = asyncio.create_task(store.aput(X, "slow", {}))
        await reached.wait()
        await store.aput(X, "quick", {}, index=False)
        assert await keys(store) == ["quick"]
        go_on.set()
        await slow
        assert await keys(store) == ["quick", "slow"]


async def test_a_cancelled_caller_takes_nobody_along(saver_url: str) -> None:
    async with SQLStore.from_url(saver_url) as store:
        calls = [asyncio.create_task(store.aput(X, f"k{n}", {})) for n in range(3)]
        await asyncio.sleep(0)
        calls[1].cancel()

        outcomes = await asyncio.gather(*calls, return_exceptions=True)

        assert [type(outcome) for outcome in outcomes] == [type(None), asyncio.CancelledError, type(None)]
        assert {"k0", "k2"} <= set(await keys(store))


async def test_an_invalid_call_fails_before_anything_is_asked(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with SQLStore.from_url(sqlite_url) as store:
        counter = Counter(store, monkeypatch)
        outcomes = await asyncio.gather(store.aget(("a.b",), "k"), store.aget(X, "k"), return_exceptions=True)

        assert [type(outcome) for outcome in outcomes] == [InvalidNamespaceError, type(None)]
        assert (counter.reads, counter.writes) == (1, 0)


@pytest.mark.parametrize("fault", ["drops_next_answer", "drops_next_request"])
async def test_a_dropped_connection_costs_no_write_and_no_read(postgres_url: str, fault: str) -> None:
    async with Proxy(postgres_url).running() as proxy, SQLStore.from_url(proxy.url) as store:
        await store.abatch([PutOp(X, "a", {"n": 1}), PutOp(X, "b", None)])
        setattr(proxy, fault, True)
        await store.abatch([PutOp(X, "a", {"n": 2}), PutOp(X, "c", {"n": 2})])
        setattr(proxy, fault, True)
        assert await keys(store) == ["a", "c"]


async def test_a_transaction_that_loses_a_deadlock_is_tried_again(postgres_url: str) -> None:
    async with SQLStore.from_url(postgres_url) as store:
        await store.abatch([PutOp(X, "a", {"n": 1}), PutOp(X, "b", {"n": 1})])
        other = await asyncpg.connect(postgres_url)
        await other.execute("SET deadlock_timeout = '1min'")
        transaction = other.transaction()
        await transaction.start()
        await other.execute("UPDATE store_items SET updated_at = 0 WHERE key = 'b'")

        put = asyncio.create_task(store.abatch([PutOp(X, "a", {"n": 2}), PutOp(X, "b", {"n": 2})]))
        waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
        watcher = await asyncpg.connect(postgres_url)
        while not await watcher.fetchval(waiting):
            pass  # the query itself takes its time
        await other.execute("UPDATE store_items SET updated_at = 0 WHERE key = 'a'")
        await transaction.commit()
        await put

        assert [item.value for item in await store.asearch(X)] == [{"n": 2}, {"n": 2}]
        for connection in (other, watcher):
            await connection.close()


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"a": {"n": 1}, "b": {"n": 1}}, {"a": None, "b": None}),
        ({"a": {"n": 1}, "b": None}, {"a": None, "b": {"n": 1}}),
    ],
    ids=["put and delete", "both of either"],
)
async def test_two_that_write_the_same_items_do_not_wait_for_each_other(
    one: dict[str, Any], other: dict[str, Any], postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres, "DEADLOCKS", 0)  # the first one is an error
    async with SQLStore.from_url(postgres_url) as store:
        await store.aput(X, "b", {"n": 0})  # comes first in the table
        await store.aput(X, "a", {"n": 0})
        holder, watcher = await asyncpg.connect(postgres_url), await asyncpg.connect(postgres_url)
        waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
        writes = []
        async with holder.transaction():
            await holder.execute("SELECT 1 FROM store_items WHERE key = 'a' FOR UPDATE")
            for batch in (one, other):
                ops = [PutOp(X, key, value) for key, value in batch.items()]
                writes.append(asyncio.create_task(store.abatch(ops)))
                while await watcher.fetchval(waiting) < len(writes):
                    pass  # the query itself takes its time
        await asyncio.gather(*writes)

        assert await keys(store) in ([key for key, value in batch.items() if value] for batch in (one, other))
        for connection in (holder, watcher):
            await connection.close()


def test_a_script_needs_no_event_loop(saver_url: str) -> None:
    store = SQLStore.from_url(saver_url)
    store.put(X, "k", {"n": 1}, ttl=5)
    store.put(X, "other", {})
    store.delete(X, "other")

    found = store.get(X, "k")
    assert found is not None
    assert found.value == {"n": 1}
    assert [item.key for item in store.search(X, filter={"n": 1})] == ["k"]
    assert store.list_namespaces() == [X]
    assert store.batch([GetOp(X, "k"), PutOp(X, "new", {})]) == [found, None]
    with pytest.raises(InvalidNamespaceError):
        store.get(("a.b",), "k")
    with SqliteStore(store):
        pass  # closes it on the loop it is open on
    assert workers() == []


async def test_a_thread_is_served_by_the_loop_on_which_the_store_is_open(saver_url: str) -> None:
    async with SQLStore.from_url(saver_url) as store:
        await asyncio.to_thread(store.put, X, "k", {"n": 1})
        found = await asyncio.to_thread(store.get, X, "k")

        assert found == await store.aget(X, "k")
        assert found is not None


async def test_a_sync_call_where_an_event_loop_runs_names_the_async_one(saver_url: str) -> None:
    async with SQLStore.from_url(saver_url) as store:
        calls: dict[str, Callable[[], Any]] = {
            "get": lambda: store.get(X, "k"),
            "put": lambda: store.put(X, "k", {}),
            "search": lambda: store.search(X),
            "delete": lambda: store.delete(X, "k"),
            "list_namespaces": store.list_namespaces,
            "batch": lambda: store.batch([]),
        }
        for name, call in calls.items():
            with pytest.raises(RuntimeError) as caught:
                call()
            assert str(caught.value) == (f"{name}() would block the running event loop; use the async a{name}() here")


async def test_a_store_in_memory_never_blocks_and_may_be_called_anywhere() -> None:
    store = InMemoryStore()
    store.put(X, "k", {"n": 1})
    await asyncio.to_thread(store.put, X, "other", {})

    assert await keys(store) == ["k", "other"]
    assert store.list_namespaces() == [X]


@pytest.mark.parametrize("make", [AsyncSqliteStore.from_conn_string, AsyncPostgresStore.from_conn_string])
async def test_people_who_come_from_langgraph_find_their_names(
    make: Callable[..., SQLStore], request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    for place in (":memory:", str(tmp_path / "x.db"), request.getfixturevalue("empty_postgres_url")):
        async with make(place, ttl={"default_ttl": 5}) as store:
            await store.setup()
            await store.aput(X, "k", {})
            assert await keys(store) == ["k"]


def test_a_sync_store_is_a_sync_context_manager(tmp_path: Path) -> None:
    with SqliteStore.from_conn_string(str(tmp_path / "x.db"), ttl={"default_ttl": 5}) as store:
        store.setup()
        store.put(X, "k", {})
        assert store.sweep_ttl() == 0
        _ = store.start_ttl_sweeper(60)
        assert store.stop_ttl_sweeper(5)
        assert store.ttl_config == {"default_ttl": 5}
        assert [item.key for item in store.search(X)] == ["k"]
    assert workers() == []


async def test_reading_and_writing_use_an_index(saver_url: str) -> None:
    index: Any = {"dims": 1, "embed": lambda texts: [[1.0] for _ in texts]}
    async with SQLStore.from_url(saver_url, index=index) as store:
        for start in range(0, 3000, 500):
            await store.abatch(
                [
                    PutOp(("u", f"{n % 50}"), f"k{n}", {"n": n}, ttl=1 if n % 2 else None)
                    for n in range(start, start + 500)
                ]
            )
        database = store._database
        if database.is_postgres:
            connection = await asyncpg.connect(saver_url)
            await connection.execute("ANALYZE store_items; ANALYZE store_vectors")
            await connection.close()
        plans = [await _plan(database, query) for query in _queries(database.is_postgres)]

    for plan in plans:
        assert "Seq Scan" not in plan
        assert "SCAN store" not in plan


def _queries(is_postgres: bool) -> list[Any]:
    search = statements.Search(has_prefix=True)
    return [
        statements.get_query(is_postgres=is_postgres),
        statements.search_query(search, is_postgres=is_postgres),
        statements.vectors_query(search, is_postgres=is_postgres),
        statements.refresh_statement(is_postgres=is_postgres),
        statements.delete_statement(is_postgres=is_postgres),
        *statements.sweep_steps(is_postgres=is_postgres),
    ]


async def _plan(database: Database, query: Any) -> str:
    statement = compiled(query, is_postgres=database.is_postgres)
    values = statements.key_values([("u.1", "k1"), ("u.2", "k2")], is_postgres=database.is_postgres)
    values |= statements.prefix_values("u.7") | {"now": 0, "limit": 10, "offset": 0, "length": 1}
    explain = "EXPLAIN " if database.is_postgres else "EXPLAIN QUERY PLAN "
    asked = type(statement)(explain + statement.text, statement.names, statement.constants)
    return "\n".join(str(tuple(row)) for row in await database.fetch(asked, values))

"""Tables in a schema of their own or under a prefix, engines of the host, and poolers in between."""

from __future__ import annotations

import asyncio
import itertools
import logging
import re
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import inspect
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.schema import CreateTable

from everstep_savers.base import MaintainedSaver
from everstep_savers.checkpoint import Commit, TaskWrites
from everstep_savers.errors import SchemaOutOfDate
from everstep_savers.retention import Pruned
from everstep_savers.sql import UNNAMED_STATEMENTS, migrate, queries
from everstep_savers.sql.database import parse_url, shown
from everstep_savers.sql.place import DEFAULT_PLACE, Place
from everstep_savers.sql.saver import SQLSaver
from everstep_savers.sql.schema import VERSION_TABLE, metadata
from everstep_savers.sql.statements import Shape, change_statement, commit_statement, compiled, row_statement
from tests.conformance.pooler import Pooler, names_of_statements
from tests.conformance.records import claim, config, named, new, put_chain, step

Saver = MaintainedSaver[Any]


async def store(saver: Saver, commit: Commit) -> int:
    return await saver.acommit(saver.prepare(commit))


async def use_everything(saver: Saver) -> None:
    """Everything a saver does, once."""
    first = new({"n": 0, "now": 1}, transient=["now"])
    token = await store(saver, claim("t-1", first))
    parent = first.checkpoint["id"]
    writes = [TaskWrites("", parent, "task-1", [("n", 1)])]
    await store(saver, step(token, new({"n": 1}, 2, parent=parent), writes=writes))
    await asyncio.gather(*(put_chain(saver, 3, thread_id=f"p-{number}") for number in range(8)))
    await saver.acopy_thread("t-1", "t-2")
    await store(saver, claim("t-2", seen=await saver.aget_thread("t-2"), run_id="run-2"))
    found = [each async for each in saver.alist(config(), filter={"source": "loop"})]
    assert [each.checkpoint["channel_values"]["n"] for each in found] == [1, 0]
    assert found[1].pending_writes == [("task-1", "n", 1)]
    assert len([each async for each in saver.alist(None)]) == 4 + 24
    assert named((await saver.aload(config("t-2"))).saved) == named(found[0])
    assert await saver.aprune(["t-1"]) == Pruned({"t-1": 1})
    assert (await saver.aprune(older_than=timedelta(0), dry_run=True)).checkpoints["p-0"] == 2
    await saver.adelete_for_runs(["run-2"])
    await saver.adelete_thread("p-0")
    assert len([each async for each in saver.alist_threads(status="done")]) == 7


async def tables(url: str, schema: str | None = None) -> set[str]:
    engine = create_async_engine(parse_url(url))
    async with engine.connect() as connection:
        names = await connection.run_sync(lambda sync: inspect(sync).get_table_names(schema=schema))
    await engine.dispose()
    return set(names)


PLACES = [{"table_prefix": "my_"}, {"schema": "mine"}, {"schema": "mine", "table_prefix": "my_"}]


@pytest.fixture(params=[("sqlite", PLACES[0]), *(("postgres", place) for place in PLACES)], ids=str)
async def placed(request: pytest.FixtureRequest, tmp_path: Any) -> tuple[str, dict[str, str]]:
    kind, place = request.param
    if kind == "sqlite":
        return f"sqlite:///{tmp_path / 'placed.db'}", place
    url: str = request.getfixturevalue("empty_postgres_url")
    return url, place


async def test_everything_works_in_another_place(placed: tuple[str, dict[str, str]]) -> None:
    url, place = placed
    async with SQLSaver.from_url(url, auto_migrate=True, **place) as saver:  # type: ignore[arg-type]
        await use_everything(saver)

    prefix, schema = place.get("table_prefix", ""), place.get("schema")
    assert await tables(url, schema) == {prefix + name for name in (*metadata.tables, VERSION_TABLE)}
    assert await migrate.differences(url, place=Place(**place)) == []
    if schema:
        assert await tables(url) == set()


async def test_places_in_one_database_know_nothing_of_each_other(placed: tuple[str, dict[str, str]]) -> None:
    url, place = placed
    async with (
        SQLSaver.from_url(url, auto_migrate=True) as plain,
        SQLSaver.from_url(url, auto_migrate=True, **place) as saver,  # type: ignore[arg-type]
    ):
        made = await put_chain(plain, 2)

        await use_everything(saver)

        assert [named(each) async for each in plain.alist(None)] == made[::-1]
    await migrate.downgrade(url, "base", place=Place(**place))
    assert await migrate.current(url, place=Place(**place)) is None
    assert await migrate.current(url) is not None
    assert await migrate.differences(url) == []


async def test_all_revisions_go_up_and_down_in_another_place(placed: tuple[str, dict[str, str]]) -> None:
    url, place = placed[0], Place(**placed[1])

    await migrate.upgrade(url, "0001", place=place)
    await migrate.upgrade(url, place=place)
    await migrate.downgrade(url, "base", place=place)
    await migrate.upgrade(url, place=place)

    assert await migrate.differences(url, place=place) == []


async def test_a_place_without_a_schema_is_named_in_the_command(placed: tuple[str, dict[str, str]]) -> None:
    url, place = placed

    with pytest.raises(SchemaOutOfDate) as caught:
        await SQLSaver.from_url(url, **place).aget(config())  # type: ignore[arg-type]

    where = shown(parse_url(url))
    assert str(caught.value) == (
        f"database {where} has no Everstep tables yet; create them: everstep db upgrade --url {where}"
        f"{Place(**place).options()}"
    )


async def test_an_in_memory_database_may_have_a_prefix_too() -> None:
    async with SQLSaver.from_url("sqlite:///:memory:", table_prefix="my_") as saver:
        await use_everything(saver)


async def test_an_engine_of_the_host_takes_a_place(placed: tuple[str, dict[str, str]]) -> None:
    url, place = placed
    engine = create_async_engine(parse_url(url))

    async with SQLSaver(engine, auto_migrate=True, **place) as saver:  # type: ignore[arg-type]
        await use_everything(saver)

    async with engine.connect() as connection:
        if connection.dialect.name == "postgresql":
            # What the migration set was its own.
            assert (await connection.exec_driver_sql("SHOW search_path")).scalar() == '"$user", public'
    await engine.dispose()


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"schema": "mine"}, "SQLite has no schemas: use table_prefix='mine_' in place of schema"),
        ({"schema": "order"}, "schema must not be a name that Postgres keeps for itself: 'order'"),
        ({"schema": "pg_mine"}, "schema must not be a name that Postgres keeps for itself: 'pg_mine'"),
        ({"schema": 'a"; DROP'}, "schema must be made of a-z, 0-9 and _, and not begin with a digit: 'a\"; DROP'"),
        (
            {"table_prefix": "My-"},
            (
                "table_prefix must be made of a-z, 0-9 and _, not begin with a digit, and have 30 characters at the "
                "most: 'My-'"
            ),
        ),
        ({"pooler": "transaction"}, "pooler='transaction' is for Postgres; sqlite:///x.db has none"),
    ],
    ids=str,
)
def test_a_place_that_cannot_be_is_refused(options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValueError) as caught:
        SQLSaver.from_url("sqlite:///x.db", **options)

    assert str(caught.value) == complaint


def test_an_unknown_pooler_is_refused() -> None:
    with pytest.raises(ValueError) as caught:
        SQLSaver.from_url("postgresql://host/x", pooler="session")  # type: ignore[arg-type]

    assert str(caught.value) == "pooler must be 'transaction' or None, not 'session'"


def texts() -> list[str]:
    """Statements of every kind, as they are compiled."""
    shapes = [Shape(*counts) for counts in itertools.product((0, 1, 2), (0, 1), (0, 1), (0, 2), (1, 2), (1, 2), (0, 2))]
    core: list[tuple[Any, bool]] = [(commit_statement(shape), True) for shape in shapes if sum(shape[:4])]
    for is_postgres in (True, False):
        loads = [queries.load_query(name, is_postgres=is_postgres, has_thread=True) for name in ("named", "newest")]
        core += [(each, is_postgres) for each in loads]
        shape = queries.PageShape(has_thread=True, columns=("step",), filters=("text",), has_children=True)
        core.append((queries.page_query(shape, is_postgres=is_postgres), is_postgres))
    core += [(change_statement(kind), False) for kind in ("step", "take", "make", "plain")]
    core += [(row_statement(table), False) for table in metadata.tables.values() if table.name.startswith("ch")]
    return [compiled(each, is_postgres=is_postgres).text for each, is_postgres in core]


@pytest.mark.parametrize("place", [Place(**place) for place in PLACES], ids=str)
def test_every_table_is_named_anew_and_nothing_else(place: Place) -> None:
    tables = "|".join(metadata.tables)
    for text in texts():
        named = place.named(text)

        assert not re.search(rf"(?<![\w.])({tables})\b", named)
        assert place.named(named) == named
        back = re.sub(rf"\b{re.escape(place.qualified(''))}({tables})\b", r"\1", named)
        assert back == text


def test_no_column_has_the_name_of_a_table() -> None:
    columns = {column.name for table in metadata.tables.values() for column in table.columns}

    assert columns.isdisjoint(metadata.tables)


def test_the_exported_metadata_is_that_of_the_place() -> None:
    placed = Place("mine", "my_").metadata()

    assert set(placed.tables) == {f"mine.my_{name}" for name in metadata.tables}
    for dialect in (postgresql.dialect(), sqlite.dialect()):  # type: ignore[no-untyped-call]
        for table in placed.sorted_tables:
            assert "mine.my_" in str(CreateTable(table).compile(dialect=dialect))


def test_the_default_place_changes_nothing() -> None:
    assert not DEFAULT_PLACE
    assert DEFAULT_PLACE.named("SELECT * FROM threads") == "SELECT * FROM threads"
    assert DEFAULT_PLACE.options() == ""


async def test_opening_a_saver_that_migrates_logs_nothing(empty_url: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    logging.getLogger("alembic").setLevel(logging.INFO)
    try:
        async with SQLSaver.from_url(empty_url, auto_migrate=True):
            pass
        assert logging.getLogger("alembic").level == logging.INFO
    finally:
        logging.getLogger("alembic").setLevel(logging.NOTSET)

    assert [record.getMessage() for record in caplog.records if record.name.startswith("alembic")] == []


@pytest.fixture
async def pooler(postgres_url: str) -> AsyncIterator[Pooler]:
    async with Pooler(postgres_url).running() as running:
        yield running


async def test_everything_works_through_a_transaction_pooler(pooler: Pooler) -> None:
    async with SQLSaver.from_url(pooler.url, pooler="transaction") as saver:
        await use_everything(saver)

    assert pooler.transactions > 30
    assert await names_of_statements(pooler.url) == []


async def test_an_engine_of_the_host_works_through_a_transaction_pooler(pooler: Pooler) -> None:
    engine = create_async_engine(parse_url(pooler.url), connect_args=UNNAMED_STATEMENTS)

    async with SQLSaver(engine, pooler="transaction") as saver:
        await use_everything(saver)

    await engine.dispose()
    assert await names_of_statements(pooler.url) == []


async def test_an_engine_of_the_host_that_keeps_statements_is_refused(pooler: Pooler) -> None:
    engine = create_async_engine(parse_url(pooler.url), connect_args={"prepared_statement_name_func": str})

    with pytest.raises(ValueError) as caught:
        await SQLSaver(engine, pooler="transaction").aget(config())

    assert str(caught.value) == (
        "pooler='transaction' needs an engine whose connections keep no prepared statements; make it with "
        "create_async_engine(url, connect_args=everstep_savers.sql.UNNAMED_STATEMENTS)"
    )
    await engine.dispose()


async def test_workers_migrate_at_once_through_a_transaction_pooler(empty_postgres_url: str) -> None:
    async with Pooler(empty_postgres_url, size=4).running() as pooler:
        options: Any = {"pooler": "transaction", "auto_migrate": True, "schema": "mine"}
        savers = [SQLSaver.from_url(pooler.url, **options) for _ in range(3)]

        await asyncio.gather(*(put_chain(saver, 1, thread_id=f"t-{n}") for n, saver in enumerate(savers)))

        assert len([each async for each in savers[0].alist(None)]) == len(savers)
        for saver in savers:
            await saver.aclose()


async def test_without_the_option_a_transaction_pooler_is_found_out(pooler: Pooler) -> None:
    """What the option is for: named statements are not found again."""
    saver = SQLSaver.from_url(pooler.url)

    with pytest.raises(Exception, match="prepared statement"):
        await asyncio.gather(*(put_chain(saver, 5, thread_id=f"t-{number}") for number in range(5)))

    await saver.aclose()


async def test_a_commit_through_a_pooler_is_refused_as_everywhere(pooler: Pooler) -> None:
    async with SQLSaver.from_url(pooler.url, pooler="transaction") as saver:
        await put_chain(saver, 1)
        outcomes = await asyncio.gather(
            *(store(saver, claim("t-1", new({"n": 1}, 9), run_id=f"run-{n}")) for n in range(3)), return_exceptions=True
        )

    assert all("was moved by another run" in str(outcome) for outcome in outcomes)

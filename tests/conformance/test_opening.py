"""Opening and closing the SQL saver: URLs, schemas, event loops, and what is left behind."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import make_url
from sqlalchemy.ext.asyncio import create_async_engine

from everstep_savers.base import AtomicSaver
from everstep_savers.errors import DatabaseUnavailable, SchemaOutOfDate
from everstep_savers.memory import InMemorySaver, MemorySaver
from everstep_savers.sql.database import parse_url, shown
from everstep_savers.sql.saver import SQLSaver
from everstep_savers.sql.schema import SCHEMA_REVISION as NEWEST
from everstep_savers.sql.sqlite import _connect
from tests.conformance.records import config, named, put_chain


def workers() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("everstep-")]


async def version_table(url: str, statement: str) -> None:
    engine = create_async_engine(parse_url(url))
    async with engine.begin() as connection:
        await connection.exec_driver_sql(statement)
    await engine.dispose()


async def test_a_saver_is_an_async_context_manager_that_closes(saver_url: str) -> None:
    async with SQLSaver.from_url(saver_url) as saver:
        await put_chain(saver, 1)

    assert workers() == []
    assert len(asyncio.all_tasks()) == 1


async def test_a_saver_opens_at_its_first_use_by_many_at_once(saver_url: str) -> None:
    saver = SQLSaver.from_url(saver_url)

    assert await asyncio.gather(*(saver.aget(config()) for _ in range(10))) == [None] * 10

    assert len(workers()) in (0, 2)
    await saver.aclose()


async def test_an_engine_of_the_host_is_used_and_left_open(saver_url: str) -> None:
    engine = create_async_engine(parse_url(saver_url))
    async with SQLSaver(engine) as saver:
        (made,) = await put_chain(saver, 1)

    async with engine.connect() as connection:
        found = await connection.exec_driver_sql("SELECT checkpoint_id FROM checkpoints")
        assert found.scalar() == made
    await engine.dispose()


async def test_an_in_memory_database_has_its_schema_at_once() -> None:
    for url in ("sqlite:///:memory:", "sqlite://", "sqlite+aiosqlite:///:memory:"):
        async with SQLSaver.from_url(url) as saver:
            made = await put_chain(saver, 2)
            assert [named(each) async for each in saver.alist(config())] == made[::-1]
            await saver.setup()


async def test_an_in_memory_database_cannot_come_from_an_engine() -> None:
    engine = create_async_engine("sqlite+aiosqlite://")

    with pytest.raises(ValueError) as caught:
        SQLSaver(engine)

    assert str(caught.value) == (
        "an in-memory database cannot be shared with an engine; use SQLSaver.from_url('sqlite:///:memory:')"
    )
    await engine.dispose()


async def test_an_engine_of_another_driver_is_refused(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = create_async_engine(parse_url(postgres_url))
    monkeypatch.setattr(engine.dialect, "driver", "psycopg_async")

    with pytest.raises(ValueError) as caught:
        SQLSaver(engine)

    assert str(caught.value) == (
        "SQLSaver needs an engine of asyncpg, not of psycopg_async; make one with "
        "create_async_engine('postgresql+asyncpg://...')"
    )
    await engine.dispose()


async def test_a_saver_is_made_by_the_name_of_the_ecosystem(tmp_path: Path, postgres_url: str) -> None:
    for name in (":memory:", str(tmp_path / "threads.db"), postgres_url):
        async with SQLSaver.from_conn_string(name) as saver:
            await put_chain(saver, 1)
    async with SQLSaver.from_url(f"sqlite:///{tmp_path / 'threads.db'}") as saver:
        assert await saver.aget(config()) is not None


async def test_a_saver_made_by_that_name_makes_its_schema_and_setup_finds_nothing_to_do(empty_url: str) -> None:
    async with SQLSaver.from_conn_string(empty_url) as saver:
        await saver.setup()
        await put_chain(saver, 1)
        assert await saver.aget(config()) is not None


async def test_auto_migrate_makes_the_schema_on_opening(empty_url: str) -> None:
    async with SQLSaver.from_url(empty_url, auto_migrate=True) as saver:
        await put_chain(saver, 1)

    async with SQLSaver.from_url(empty_url) as saver:
        assert await saver.aget(config()) is not None


async def test_setup_makes_the_schema_and_may_be_repeated(empty_url: str) -> None:
    saver = SQLSaver.from_url(empty_url)

    await saver.setup()
    await saver.setup()

    await put_chain(saver, 1)
    await saver.aclose()


async def test_a_database_without_a_schema_is_refused_with_the_command(empty_url: str) -> None:
    saver = SQLSaver.from_url(empty_url)

    for _ in range(2):
        with pytest.raises(SchemaOutOfDate) as caught:
            await saver.aget(config())
        place = shown(parse_url(empty_url))
        assert str(caught.value) == (
            f"database {place} has no Everstep tables yet; create them: everstep db upgrade --url {place}"
        )
    assert workers() == []


async def test_looking_at_a_database_does_not_create_it(tmp_path: Path) -> None:
    saver = SQLSaver.from_url(f"sqlite:///{tmp_path / 'none.db'}")

    with pytest.raises(SchemaOutOfDate):
        await saver.aget(config())

    assert list(tmp_path.iterdir()) == []


async def test_a_schema_that_is_too_old_is_refused_with_the_command(saver_url: str) -> None:
    await version_table(saver_url, "UPDATE everstep_alembic_version SET version_num = '0000'")
    place = shown(parse_url(saver_url))

    try:
        with pytest.raises(SchemaOutOfDate) as caught:
            await SQLSaver.from_url(saver_url).aget(config())
    finally:
        await version_table(saver_url, f"UPDATE everstep_alembic_version SET version_num = '{NEWEST}'")

    assert str(caught.value) == (
        f"database {place} has schema 0000, this version of everstep needs {NEWEST}; upgrade it: "
        f"everstep db upgrade --url {place}"
    )


async def test_a_schema_that_is_too_new_is_refused_with_the_way_out(saver_url: str) -> None:
    await version_table(saver_url, "UPDATE everstep_alembic_version SET version_num = '9999'")
    place = shown(parse_url(saver_url))

    complaints = []
    try:
        for work in (
            SQLSaver.from_url(saver_url).aget(config()),
            SQLSaver.from_url(saver_url).setup(),
            SQLSaver.from_url(saver_url, auto_migrate=True).aget(config()),
        ):
            with pytest.raises(SchemaOutOfDate) as caught:
                await work
            complaints.append(str(caught.value))
    finally:
        await version_table(saver_url, f"UPDATE everstep_alembic_version SET version_num = '{NEWEST}'")

    assert set(complaints) == {
        (
            f"database {place} has schema 9999, this version of everstep knows only up to {NEWEST}; install the "
            "newer everstep, or with that one take the schema back: "
            f"everstep db downgrade --revision {NEWEST} --url {place}"
        )
    }
    assert len(complaints) == 3


async def test_a_server_that_does_not_answer_is_named_without_the_password() -> None:
    saver = SQLSaver.from_url("postgresql://user:s3cret@127.0.0.1:1/orders")

    with pytest.raises(DatabaseUnavailable) as caught:
        await saver.aget(config())

    assert str(caught.value) == (
        "cannot use database postgresql://user:***@127.0.0.1:1/orders: [Errno 111] Connect call failed ('127.0.0.1', 1)"
    )
    with pytest.raises(DatabaseUnavailable, match=r"user:\*\*\*@127"):
        await saver.setup()


async def test_a_database_that_the_server_does_not_have_is_named(postgres_server: str) -> None:
    url = parse_url(postgres_server).set(database="nowhere")

    with pytest.raises(DatabaseUnavailable) as caught:
        await SQLSaver.from_url(url.render_as_string(hide_password=False)).aget(config())

    assert str(caught.value) == f'cannot use database {shown(url)}: database "nowhere" does not exist'


async def test_a_file_that_is_no_database_is_named(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("not a database, but long enough to be taken for one" * 100)

    for work in (
        SQLSaver.from_url(f"sqlite:///{path}").aget(config()),
        SQLSaver.from_url(f"sqlite:///{path}").setup(),
    ):
        with pytest.raises(DatabaseUnavailable) as caught:
            await work
        assert str(caught.value) == f"cannot use database sqlite:///{path}: file is not a database"
    assert workers() == []


async def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'none' / 'threads.db'}"

    with pytest.raises(DatabaseUnavailable) as caught:
        await SQLSaver.from_url(url).setup()

    assert str(caught.value) == f"cannot use database {url}: unable to open database file"


async def test_a_database_that_another_program_locked_away_is_reported(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("everstep_savers.sql.sqlite.BUSY_TIMEOUT", 0.05)
    async with SQLSaver.from_url(sqlite_url) as saver:
        made = await put_chain(saver, 1)
        other = sqlite3.connect(str(parse_url(sqlite_url).database), isolation_level=None)
        other.execute("BEGIN IMMEDIATE")

        with pytest.raises(DatabaseUnavailable) as caught:
            await put_chain(saver, 1, thread_id="t-2")

        assert str(caught.value) == f"cannot use database {sqlite_url}: database is locked"
        assert named(await saver.aget_tuple(config())) == made[0]
        other.close()
        await put_chain(saver, 1, thread_id="t-2")


@pytest.mark.parametrize(
    ("url", "complaint"),
    [
        (
            "mysql://host/db",
            "mysql://host/db is neither SQLite nor Postgres; use a sqlite:/// or postgresql:// URL",
        ),
        (
            "threads.db",
            "not a database URL; expected one such as sqlite:///threads.db or postgresql://user@host/name",
        ),
    ],
)
def test_another_kind_of_url_is_refused(url: str, complaint: str) -> None:
    with pytest.raises(ValueError) as caught:
        SQLSaver.from_url(url)

    assert str(caught.value) == complaint


def test_an_unknown_synchronous_setting_is_refused() -> None:
    with pytest.raises(ValueError) as caught:
        SQLSaver.from_url("sqlite:///x.db", synchronous="ON; DROP TABLE threads")

    assert str(caught.value) == ("synchronous must be OFF, NORMAL, FULL or EXTRA, not 'ON; DROP TABLE threads'")


@pytest.mark.parametrize(("setting", "level"), [("FULL", 2), ("normal", 1)])
async def test_commits_are_synced_to_disk_as_asked(sqlite_url: str, setting: str, level: int) -> None:
    async with SQLSaver.from_url(sqlite_url, synchronous=setting) as saver:
        database: Any = saver._database
        for worker in database._workers:
            found = await worker.call(lambda connection: connection.execute("PRAGMA synchronous").fetchall())
            assert found == [(level,)]


async def test_use_from_a_second_event_loop_is_refused_with_the_way_out(saver_url: str) -> None:
    async with SQLSaver.from_url(saver_url) as saver:
        await put_chain(saver, 1)

        def elsewhere(work: Any) -> None:
            asyncio.run(work())

        for work in (lambda: saver.aget(config()), saver.aclose):
            with pytest.raises(RuntimeError) as caught:
                await asyncio.to_thread(elsewhere, work)
            assert str(caught.value) == (
                "this SQLSaver is open on another event loop; make a saver for each loop, "
                "or call `await saver.aclose()` there before using it here"
            )
        assert await saver.aget(config()) is not None


def test_a_closed_saver_opens_on_another_event_loop(saver_url: str) -> None:
    saver = SQLSaver.from_url(saver_url)

    async def use() -> list[str]:
        made = await put_chain(saver, 1)
        await saver.aclose()
        return made

    first = asyncio.run(use())
    second = asyncio.run(use())

    assert first != second


def test_a_saver_that_nobody_closed_goes_on_on_the_next_event_loop(saver_url: str) -> None:
    program = """
        import asyncio, sys
        from everstep_savers import SQLSaver
        from everstep_savers.checkpoint import empty_checkpoint

        saver = SQLSaver.from_url(sys.argv[1])
        config = {"configurable": {"thread_id": "t-1"}}

        async def count():
            return len([each async for each in saver.alist(config)])

        for _ in range(2):
            asyncio.run(saver.aput(config, empty_checkpoint(), {}, {}))
        print(asyncio.run(count()))
    """
    lines = [line[8:] for line in program.splitlines()]

    done = subprocess.run(
        [sys.executable, "-c", "\n".join(lines), saver_url],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        timeout=50,
    )

    assert (done.stdout, done.returncode) == ("2\n", 0), done.stderr


def test_a_forgotten_saver_ends_its_threads(sqlite_url: str) -> None:
    async def use() -> None:
        await put_chain(SQLSaver.from_url(sqlite_url), 1)

    started = threading.enumerate()
    asyncio.run(use())

    for thread in threading.enumerate():
        if thread not in started:
            thread.join(10)
    assert workers() == []


async def test_closing_waits_for_what_is_under_way(saver_url: str) -> None:
    saver = SQLSaver.from_url(saver_url)
    await saver.aget(config())
    putting = [asyncio.create_task(put_chain(saver, 1, thread_id=f"t-{number}")) for number in range(5)]
    await asyncio.sleep(0)

    await saver.aclose()
    made = await asyncio.gather(*putting)

    assert sorted([named(each) async for each in saver.alist(None)]) == sorted(each[0] for each in made)
    await saver.aclose()


def test_memory_saver_is_another_name() -> None:
    assert MemorySaver is InMemorySaver
    assert issubclass(SQLSaver, AtomicSaver)


def test_importing_the_package_loads_no_database_library() -> None:
    program = (
        "import sys, everstep_savers, everstep_savers.sql\n"
        "print([name for name in ('sqlalchemy', 'alembic', 'asyncpg', 'aiosqlite') if name in sys.modules])\n"
        "from everstep_savers import SQLSaver\n"
        "print([name for name in ('sqlalchemy', 'alembic', 'asyncpg') if name in sys.modules])\n"
    )

    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )

    assert done.stdout == "[]\n['sqlalchemy']\n"


def test_a_new_file_may_be_opened_by_many_at_once(tmp_path: Path) -> None:
    def open_together(path: Path) -> None:
        with contextlib.closing(sqlite3.connect(path)) as connection:
            connection.execute("CREATE TABLE kept (value)")  # a file that is not in WAL mode yet
        url = make_url(f"sqlite:///{path}")
        together = threading.Barrier(8)

        def open_one(_: int) -> None:
            together.wait()
            _connect(url, "FULL").close()

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(open_one, range(8)))

    for number in range(40):
        open_together(tmp_path / f"{number}.db")

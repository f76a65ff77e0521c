"""Schema migrations through Alembic, callable from code.

Whoever comes first migrates, everybody else waits and finds the work done: an advisory lock on Postgres, an
exclusive transaction on SQLite, each held for the whole of the migration. A migration is one transaction: if
it breaks half-way, nothing of it is left. Alembic loads when there is something to migrate, not before.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from sqlalchemy import (
    URL,
    Connection,
    create_engine,
    event,
    func,
    inspect,
    select,
)
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.pool import NullPool

from everstep_savers.sql.database import check_revision, parse_url, root_cause, unavailable
from everstep_savers.sql.schema import SCHEMA_REVISION, VERSION_TABLE, is_ours, metadata
from everstep_savers.sql.statements import revision_query

if TYPE_CHECKING:
    from alembic.config import Config

T = TypeVar("T")

# How long SQLite waits for another process that migrates, in seconds.
BUSY_TIMEOUT = 60.0

# "ever" in ASCII: the advisory lock of whoever migrates a Postgres database.
ADVISORY_LOCK = 0x65766572

# Alembic's operations are module-wide: one migration at a time in a process.
_ONE_AT_A_TIME = threading.Lock()


async def upgrade(target: URL | str | AsyncEngine, revision: str = "head") -> None:
    """Bring a database to a revision, by default the newest.

    Raises:
        DatabaseUnavailable: It cannot be reached.
        SchemaOutOfDate: It is at a revision that this package does not know.
        LookupError: There is no such revision.
    """
    found = await current(target)
    if found is not None and found > SCHEMA_REVISION:
        check_revision(found, _url_of(target))
    if revision == "head" and found == SCHEMA_REVISION:
        return
    await run_locked(target, lambda connection: _upgrade(connection, revision))


async def downgrade(target: URL | str | AsyncEngine, revision: str) -> None:
    """Take a database back to an older revision, ``"base"`` for none: its tables and data go away."""
    await run_locked(target, lambda connection: _downgrade(connection, revision))


async def current(target: URL | str | AsyncEngine) -> str | None:
    """The revision of a database, None if it has no schema."""
    return await _run(target, _current)


async def differences(target: URL | str | AsyncEngine) -> list[str]:
    """What in a database is not as this package's schema says; empty if nothing."""
    return await _run(target, _differences)


async def run_locked(target: URL | str | AsyncEngine, work: Callable[[Connection], T]) -> T:
    """Run something on a connection, in one transaction, while nobody else migrates the database."""
    return await _run(target, work, is_writing=True)


def migrations_directory() -> Path:
    """Where the revisions are: beside this package in a wheel, at the repository's root in a source tree."""
    package = Path(__file__).resolve().parents[1]
    packaged = package / "_migrations"
    return packaged if packaged.is_dir() else package.parents[1] / "migrations"


def alembic_config(connection: Connection) -> Config:
    """Alembic's configuration for a connection on which a transaction is open."""
    from alembic.config import Config  # costs as much to import as all of SQLAlchemy

    config = Config()
    config.set_main_option("script_location", str(migrations_directory()).replace("%", "%%"))
    config.attributes["connection"] = connection
    return config


def _url_of(target: URL | str | AsyncEngine) -> URL:
    return target.url if isinstance(target, AsyncEngine) else parse_url(target)


async def _run(target: URL | str | AsyncEngine, work: Callable[[Connection], T], *, is_writing: bool = False) -> T:
    url = _url_of(target)
    try:
        if url.get_backend_name() == "sqlite":
            return await asyncio.to_thread(_run_on_sqlite, url, work, is_writing=is_writing)
        engine = target if isinstance(target, AsyncEngine) else create_async_engine(url, poolclass=NullPool)
        return await _run_on_postgres(engine, work, is_writing=is_writing)
    except (SQLAlchemyError, OSError) as error:
        raise unavailable(url, error) from root_cause(error)


def _run_on_sqlite(url: URL, work: Callable[[Connection], T], *, is_writing: bool) -> T:
    if not is_writing and not Path(url.database or "").exists():
        url = url.set(database=":memory:")  # looking at a database does not create it
    engine = create_engine(
        url.set(drivername="sqlite+pysqlite"), poolclass=NullPool, connect_args={"timeout": BUSY_TIMEOUT}
    )
    # Python's driver would commit before DDL. With its own handling of transactions off and an explicit
    # BEGIN, a migration that breaks leaves nothing.
    event.listen(engine, "connect", _without_implicit_transactions)
    begin = "BEGIN EXCLUSIVE" if is_writing else "BEGIN"
    event.listen(engine, "begin", lambda connection: connection.exec_driver_sql(begin))
    with engine.connect() as connection, connection.begin():
        if not is_writing:
            return work(connection)
        with _ONE_AT_A_TIME:
            return work(connection)


def _without_implicit_transactions(connection: Any, _: object) -> None:
    connection.isolation_level = None


async def _run_on_postgres(engine: AsyncEngine, work: Callable[[Connection], T], *, is_writing: bool) -> T:
    async with engine.begin() as connection:
        if not is_writing:
            return await connection.run_sync(work)
        await connection.execute(select(func.pg_advisory_xact_lock(ADVISORY_LOCK)))
        # Waiting for the lock must not hold up the loop, which its holder may need.
        while not _ONE_AT_A_TIME.acquire(blocking=False):  # noqa: ASYNC110 - another loop may hold it
            await asyncio.sleep(0.01)
        try:
            return await connection.run_sync(work)
        finally:
            _ONE_AT_A_TIME.release()


def _current(connection: Connection) -> str | None:
    if not inspect(connection).has_table(VERSION_TABLE):
        return None
    found: str | None = connection.execute(revision_query()).scalar()
    return found


def _upgrade(connection: Connection, revision: str) -> None:
    from alembic import command  # see `alembic_config`

    with _known_revisions():
        command.upgrade(alembic_config(connection), revision)


def _downgrade(connection: Connection, revision: str) -> None:
    from alembic import command  # see `alembic_config`

    with _known_revisions():
        command.downgrade(alembic_config(connection), revision)


@contextmanager
def _known_revisions() -> Iterator[None]:
    from alembic.util import CommandError  # see `alembic_config`

    try:
        yield
    except CommandError as error:
        raise LookupError(str(error)) from error


def _differences(connection: Connection) -> list[str]:
    from alembic.autogenerate import compare_metadata  # see `alembic_config`
    from alembic.migration import MigrationContext

    options = {"version_table": VERSION_TABLE, "include_object": is_ours}
    context = MigrationContext.configure(connection, opts=options)
    return [_described(each) for each in compare_metadata(context, metadata)]


def _described(difference: Any) -> str:
    if isinstance(difference, list):
        return "; ".join(_described(each) for each in difference)
    what, *rest = difference
    return f"{what}: {', '.join(str(each) for each in rest if each is not None)}"

"""Schema migrations through Alembic, callable from code.

Whoever comes first migrates, everybody else waits and finds the work done: an advisory lock on Postgres, an
exclusive transaction on SQLite, each held for the whole of the migration. A migration is one transaction: if
it breaks half-way, nothing of it is left. Alembic loads when there is something to migrate, not before.
"""

from __future__ import annotations

import asyncio
import io
import logging
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
    text,
)
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.pool import NullPool

from everstep_savers.sql.database import check_revision, parse_url, root_cause, unavailable
from everstep_savers.sql.place import DEFAULT_PLACE, Place
from everstep_savers.sql.poolers import UNNAMED_STATEMENTS
from everstep_savers.sql.schema import SCHEMA_REVISION, VERSION_TABLE
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


async def upgrade(target: URL | str | AsyncEngine, revision: str = "head", *, place: Place = DEFAULT_PLACE) -> None:
    """Bring a database to a revision, by default the newest.

    Raises:
        DatabaseUnavailable: It cannot be reached.
        SchemaOutOfDate: It is at a revision that this package does not know.
        LookupError: There is no such revision.
    """
    found = await current(target, place=place)
    if found is not None and found > SCHEMA_REVISION:
        check_revision(found, _url_of(target), place)
    if revision == "head" and found == SCHEMA_REVISION:
        return
    await run_locked(target, lambda connection: _upgrade(connection, revision, place))


async def downgrade(target: URL | str | AsyncEngine, revision: str, *, place: Place = DEFAULT_PLACE) -> None:
    """Take a database back to an older revision, ``"base"`` for none: its tables and data go away."""
    await run_locked(target, lambda connection: _downgrade(connection, revision, place))


async def current(target: URL | str | AsyncEngine, *, place: Place = DEFAULT_PLACE) -> str | None:
    """The revision of a database, None if it has no schema."""
    return await _run(target, lambda connection: _current(connection, place))


async def differences(target: URL | str | AsyncEngine, *, place: Place = DEFAULT_PLACE) -> list[str]:
    """What in a database is not as this package's schema says; empty if nothing."""
    return await _run(target, lambda connection: _differences(connection, place))


def statements(url: URL | str, revision: str = "head", *, place: Place = DEFAULT_PLACE) -> str:
    """The statements of an upgrade from nothing, or of ``from:to``, for somebody else to run.

    Raises:
        LookupError: There is no such revision.
    """
    printed = io.StringIO()
    config = alembic_config(None, place)
    config.output_buffer = printed
    config.attributes["url"] = parse_url(url).render_as_string(hide_password=False)
    with _quietly(), _known_revisions():
        from alembic import command  # see `alembic_config`

        command.upgrade(config, revision, sql=True)
    head = f"CREATE SCHEMA IF NOT EXISTS {place.schema};\n\n" if place.schema else ""
    search = f"SET LOCAL search_path TO {place.schema};\n\n" if place.schema else ""
    named = Place(table_prefix=place.table_prefix).named(printed.getvalue())
    return head + named.replace("BEGIN;\n\n", f"BEGIN;\n\n{search}", 1)


async def run_locked(target: URL | str | AsyncEngine, work: Callable[[Connection], T]) -> T:
    """Run something on a connection, in one transaction, while nobody else migrates the database."""
    return await _run(target, work, is_writing=True)


def migrations_directory() -> Path:
    """Where the revisions are: beside this package in a wheel, at the repository's root in a source tree."""
    package = Path(__file__).resolve().parents[1]
    packaged = package / "_migrations"
    return packaged if packaged.is_dir() else package.parents[1] / "migrations"


def alembic_config(connection: Connection | None, place: Place = DEFAULT_PLACE) -> Config:
    """Alembic's configuration for a connection on which a transaction is open, None to print only."""
    from alembic.config import Config  # costs as much to import as all of SQLAlchemy

    config = Config()
    config.set_main_option("script_location", str(migrations_directory()).replace("%", "%%"))
    config.attributes |= {"connection": connection, "place": place}
    return config


def _url_of(target: URL | str | AsyncEngine) -> URL:
    return target.url if isinstance(target, AsyncEngine) else parse_url(target)


async def _run(target: URL | str | AsyncEngine, work: Callable[[Connection], T], *, is_writing: bool = False) -> T:
    url = _url_of(target)
    try:
        if url.get_backend_name() == "sqlite":
            return await asyncio.to_thread(_run_on_sqlite, url, work, is_writing=is_writing)
        engine = target if isinstance(target, AsyncEngine) else _engine_of(url)
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


def _engine_of(url: URL) -> AsyncEngine:
    # Works through a pooler too; a migration gains nothing from statements that are kept.
    return create_async_engine(url, poolclass=NullPool, connect_args=UNNAMED_STATEMENTS)


def _current(connection: Connection, place: Place) -> str | None:
    if not inspect(connection).has_table(place.table_prefix + VERSION_TABLE, schema=place.schema):
        return None
    found: str | None = connection.exec_driver_sql(place.named(str(revision_query()))).scalar()
    return found


def _upgrade(connection: Connection, revision: str, place: Place) -> None:
    with _quietly():
        from alembic import command  # see `alembic_config`

        with _known_revisions(), in_place(connection, place):
            command.upgrade(alembic_config(connection, place), revision)


def _downgrade(connection: Connection, revision: str, place: Place) -> None:
    with _quietly():
        from alembic import command  # see `alembic_config`

        with _known_revisions(), in_place(connection, place):
            command.downgrade(alembic_config(connection, place), revision)


@contextmanager
def in_place(connection: Connection, place: Place) -> Iterator[None]:
    """Let revisions, which know the tables by their plain names, work in another place."""
    if not place:
        yield
        return
    if place.schema:
        known = text("SELECT 1 FROM pg_catalog.pg_namespace WHERE nspname = :name")
        if not connection.execute(known, {"name": place.schema}).scalar():
            connection.exec_driver_sql(f"CREATE SCHEMA {place.schema}")
        connection.exec_driver_sql(f"SET LOCAL search_path TO {place.schema}")
    prefixed = Place(table_prefix=place.table_prefix)

    def rename(_: Any, __: Any, statement: str, arguments: Any, *___: Any) -> tuple[str, Any]:
        return prefixed.named(statement), arguments

    event.listen(connection, "before_cursor_execute", rename, retval=True)
    try:
        yield
    finally:
        event.remove(connection, "before_cursor_execute", rename)


@contextmanager
def _quietly() -> Iterator[None]:
    """Whoever migrates on opening a saver did not ask for Alembic's account of it."""
    logger = logging.getLogger("alembic")
    level = logger.level
    logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.setLevel(level)


@contextmanager
def _known_revisions() -> Iterator[None]:
    from alembic.util import CommandError  # see `alembic_config`

    try:
        yield
    except CommandError as error:
        raise LookupError(str(error)) from error


def _differences(connection: Connection, place: Place) -> list[str]:
    with _quietly():
        from alembic.autogenerate import compare_metadata  # see `alembic_config`
        from alembic.migration import MigrationContext

        context = MigrationContext.configure(connection, opts=context_options(place))
        return [_described(each) for each in compare_metadata(context, place.metadata())]


def context_options(place: Place) -> dict[str, Any]:
    """What Alembic has to know of a place."""
    return {
        "version_table": place.table_prefix + VERSION_TABLE,
        "version_table_schema": place.schema,
        "include_object": place.is_ours,
        "include_schemas": place.schema is not None,
        # Other schemas are not even looked at.
        "include_name": lambda name, kind, _: kind != "schema" or name == place.schema,
    }


def _described(difference: Any) -> str:
    if isinstance(difference, list):
        return "; ".join(_described(each) for each in difference)
    what, *rest = difference
    return f"{what}: {', '.join(str(each) for each in rest if each is not None)}"

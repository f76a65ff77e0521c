"""What a saver asks of a database, whichever it is: commit, read, write several statements, migrate.

A database speaks in statements compiled by `statements` and `queries`, and in rows. It opens on one event
loop and belongs to it until it is closed. `sqlite` and `postgres` implement it; only they know their driver.
Connection errors come out as `DatabaseUnavailable`, with the URL but never with its password.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError

from everstep_savers.errors import DatabaseUnavailable, SchemaOutOfDate
from everstep_savers.rows import EncodedCommit
from everstep_savers.sql.place import DEFAULT_PLACE, Place
from everstep_savers.sql.schema import SCHEMA_REVISION
from everstep_savers.sql.statements import Statement

Row = Sequence[Any]


class Database(ABC):
    """One database, opened on one event loop."""

    is_postgres: ClassVar[bool]

    def __init__(self, url: URL, place: Place = DEFAULT_PLACE) -> None:
        self.url = url
        self.place = place

    @abstractmethod
    async def open(self) -> None:
        """Connect.

        Raises:
            DatabaseUnavailable: It cannot be reached.
        """

    @abstractmethod
    async def close(self) -> None:
        """Give back all connections and end all threads; doing it twice is allowed."""

    @abstractmethod
    def abandon(self) -> None:
        """Let go of everything without waiting: the event loop it was opened on is gone."""

    @abstractmethod
    async def commit(self, commit: EncodedCommit) -> int:
        """Store a commit, possibly together with others, and return the thread's token."""

    @abstractmethod
    async def fetch(self, statement: Statement, values: Mapping[str, Any]) -> Sequence[Row]:
        """Run a query; what it returns belongs to one moment."""

    @abstractmethod
    async def write(self, steps: Sequence[tuple[Statement, Mapping[str, Any]]], *, may_repeat: bool = False) -> bool:
        """Run several statements in one transaction; False if the first returns no row, which ends it.

        Args:
            may_repeat: Doing it twice is as good as once: it is tried again if the connection drops.
        """

    @abstractmethod
    async def run(self, steps: Sequence[tuple[Statement, Mapping[str, Any]]]) -> Sequence[Sequence[Row]]:
        """Run several statements in one transaction, and return the rows of each.

        If the connection drops they run once more: running them twice must be as good as once.
        """

    @abstractmethod
    async def revision(self) -> str | None:
        """The schema's revision, None if there is no schema."""

    @abstractmethod
    async def upgrade(self) -> None:
        """Bring the schema to the newest revision; several processes may do so at once."""


def parse_url(text: str | URL) -> URL:
    """Read a database URL, and choose the driver.

    Raises:
        ValueError: It is not a URL of SQLite or Postgres.
    """
    try:
        url = make_url(text)
    except ArgumentError:
        raise ValueError(
            "not a database URL; expected one such as sqlite:///threads.db or postgresql://user@host/name"
        ) from None
    backend = url.get_backend_name()
    if backend == "sqlite":
        return url.set(drivername="sqlite+aiosqlite")
    if backend in ("postgresql", "postgres"):
        return _for_asyncpg(url)
    raise ValueError(f"{shown(url)} is neither SQLite nor Postgres; use a sqlite:/// or postgresql:// URL")


def _for_asyncpg(url: URL) -> URL:
    url = url.set(drivername="postgresql+asyncpg")
    mode = url.query.get("sslmode")
    if mode is None:
        return url
    # libpq's name for what asyncpg calls `ssl`.
    return url.difference_update_query(["sslmode"]).update_query_dict({"ssl": mode})


def shown(url: URL) -> str:
    """A URL as it may be shown: without driver and password."""
    return url.set(drivername=url.get_backend_name()).render_as_string(hide_password=True)


def unavailable(url: URL, error: BaseException) -> DatabaseUnavailable:
    """The error for a database that did not answer as it should."""
    cause = root_cause(error)
    reason = str(cause).strip() or type(cause).__name__
    if url.password:
        reason = reason.replace(str(url.password), "***")
    return DatabaseUnavailable(f"cannot use database {shown(url)}: {reason}")


def root_cause(error: BaseException) -> BaseException:
    """What the driver itself raised; SQLAlchemy wraps it twice."""
    return error if error.__cause__ is None else root_cause(error.__cause__)


def check_revision(found: str | None, url: URL, place: Place = DEFAULT_PLACE) -> None:
    """Refuse a schema that is not the one this package reads and writes.

    Raises:
        SchemaOutOfDate: With the command to run.
    """
    where = f"--url {shown(url)}{place.options()}"
    command = f"everstep db upgrade {where}"
    if found is None:
        raise SchemaOutOfDate(f"database {shown(url)} has no Everstep tables yet; create them: {command}")
    if found < SCHEMA_REVISION:
        raise SchemaOutOfDate(
            f"database {shown(url)} has schema {found}, this version of everstep needs {SCHEMA_REVISION}; "
            f"upgrade it: {command}"
        )
    if found > SCHEMA_REVISION:
        raise SchemaOutOfDate(
            f"database {shown(url)} has schema {found}, this version of everstep knows only up to "
            f"{SCHEMA_REVISION}; install the newer everstep, or with that one take the schema back: "
            f"everstep db downgrade --revision {SCHEMA_REVISION} {where}"
        )

"""What the SQL saver, store and cache share: a database that opens at its first use, on the event loop of that use.

It belongs to that loop until `aclose`, and may then be opened on another one. A loop that is gone took its
connections with it; they are let go of, and the database opens anew.
"""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar, Self, TypedDict, Unpack

from sqlalchemy import URL
from sqlalchemy.ext.asyncio import AsyncEngine

from everstep_savers.sql.database import Database, check_revision, shown
from everstep_savers.sql.place import Place
from everstep_savers.sql.poolers import Pooler
from everstep_savers.sql.sqlite import SQLiteDatabase


class Where(TypedDict, total=False):
    """Where in the database the tables are, and what stands before it.

    Attributes:
        schema: The Postgres schema the tables are in; made together with them.
        table_prefix: What the names of the tables begin with.
        pooler: ``"transaction"`` if PgBouncer, or its like in that mode, stands before Postgres.
    """

    schema: str | None
    table_prefix: str
    pooler: Pooler | None


class OpensDatabase:
    """Owns a database, and opens and closes it.

    Args:
        engine: An engine that the program owns and closes itself, or a database.
        auto_migrate: Create or upgrade the schema on opening.
        where: For an engine: where its tables are.
    """

    # What it is, for messages.
    kind: ClassVar[str]

    def __init__(self, engine: AsyncEngine | Database, *, auto_migrate: bool, **where: Unpack[Where]) -> None:
        self._auto_migrate = auto_migrate
        self._database = engine if isinstance(engine, Database) else self._database_of(engine.url, engine, **where)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_open = False
        self._opening = asyncio.Lock()

    async def __aenter__(self) -> Self:
        await self._opened()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def setup(self) -> None:
        """Create or upgrade the schema; any number of processes may do so at once."""
        await self._database.upgrade()

    async def aclose(self) -> None:
        """Give back all connections; the next use opens them again."""
        if self._loop is None:
            return
        if self._loop is not asyncio.get_running_loop():
            self._leave_other_loop()
            return
        async with self._opening:
            self._is_open = False
            await self._database.close()
            self._loop = None

    async def _opened(self) -> Database:
        if not self._is_open or self._loop is not asyncio.get_running_loop():
            await self._open()
        return self._database

    async def _open(self) -> None:
        if self._loop is not None and self._loop is not asyncio.get_running_loop():
            self._leave_other_loop()
        if self._loop is None:
            self._loop, self._opening = asyncio.get_running_loop(), asyncio.Lock()
        async with self._opening:
            if self._is_open:
                return
            self._loop = asyncio.get_running_loop()
            try:
                if self._auto_migrate:
                    await self._database.upgrade()
                await self._database.open()
                check_revision(await self._database.revision(), self._database.url, self._database.place)
            except BaseException:
                await self._database.close()
                self._loop = None
                raise
            self._is_open = True

    def _leave_other_loop(self) -> None:
        if self._loop is not None and not self._loop.is_closed():
            raise RuntimeError(
                f"this {type(self).__name__} is open on another event loop; make a {self.kind} for each loop, "
                f"or call `await {self.kind}.aclose()` there before using it here"
            )
        self._database.abandon()
        self._loop, self._is_open = None, False

    @classmethod
    def _database_of(
        cls, url: URL, engine: AsyncEngine | None = None, *, synchronous: str = "FULL", **where: Unpack[Where]
    ) -> Database:
        place, pooler = _read(**where)
        if url.get_backend_name() == "sqlite":
            if pooler is not None:
                raise ValueError(f"pooler={pooler!r} is for Postgres; {shown(url)} has none")
            database = SQLiteDatabase(url, synchronous=synchronous, place=place)
            if engine is not None and database.is_in_memory:
                raise ValueError(
                    f"an in-memory database cannot be shared with an engine; use "
                    f"{cls.__name__}.from_url('sqlite:///:memory:')"
                )
            return database
        if engine is not None and engine.dialect.driver != "asyncpg":
            raise ValueError(
                f"{cls.__name__} needs an engine of asyncpg, not of {engine.dialect.driver}; make one with "
                "create_async_engine('postgresql+asyncpg://...')"
            )
        # asyncpg loads only for Postgres.
        from everstep_savers.sql.postgres import PostgresDatabase

        return PostgresDatabase(url, engine, place=place, pooler=pooler)


def _read(*, schema: str | None = None, table_prefix: str = "", pooler: Pooler | None = None) -> Any:
    return Place(schema, table_prefix), pooler

"""Postgres behind a pooler that lends a server connection for one transaction (PgBouncer's mode "transaction").

Nothing may outlive a transaction there: no prepared statement, no session lock, no setting. Statements go without a
name, and each unit of work runs in an explicit transaction, so that parsing and running it meet the same server.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from everstep_savers.sql.place import Place

Pooler = Literal["transaction"]

# For the `connect_args` of an engine: neither SQLAlchemy nor asyncpg keeps statements, and they give them no names.
UNNAMED_STATEMENTS: Mapping[str, Any] = {
    "statement_cache_size": 0,
    "prepared_statement_cache_size": 0,
    "prepared_statement_name_func": str,
}


class DressedConnection:
    """A connection of asyncpg as the saver needs it: tables in another place, or a pooler in between.

    Has only what the saver asks of a connection.
    """

    def __init__(self, raw: Any, place: Place, pooler: Pooler | None) -> None:
        self._raw = raw
        self._place = place
        self._is_pooled = pooler is not None

    async def fetch(self, text: str, *arguments: Any) -> Any:
        return await self._run("fetch", text, arguments)

    async def fetchrow(self, text: str, *arguments: Any) -> Any:
        return await self._run("fetchrow", text, arguments)

    async def fetchval(self, text: str, *arguments: Any) -> Any:
        return await self._run("fetchval", text, arguments)

    async def execute(self, text: str, *arguments: Any) -> None:
        await self._run("fetch" if arguments else "execute", text, arguments)

    def transaction(self) -> Any:
        return self._raw.transaction()

    def is_closed(self) -> bool:
        is_closed: bool = self._raw.is_closed()
        return is_closed

    async def _run(self, method: str, text: str, arguments: tuple[Any, ...]) -> Any:
        named = self._place.named(text) if self._place else text
        if not self._is_pooled or method == "execute" or self._raw.is_in_transaction():
            return await getattr(self._raw, method)(named, *arguments)
        async with self._raw.transaction():
            return await getattr(self._raw, method)(named, *arguments)


def keeps_statements(raw: Any) -> bool:
    """Whether a connection of asyncpg gives statements names, to find them again; as far as can be told."""
    return bool(getattr(raw, "_stmt_cache_enabled", False))

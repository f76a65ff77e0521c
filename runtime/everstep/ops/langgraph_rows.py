"""Threads in a database that LangGraph's own savers have written: SQLite or Postgres, read only.

Rows become records with their values decoded; a value that cannot be read is named by key, checkpoint and thread. They
are read one by one, and what versions of a value have in common is kept once: LangGraph stores a list anew whenever it
grows, so that a thread takes far more bytes there than it holds. What the rows mean to Everstep is decided elsewhere.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from sqlalchemy import URL, text
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine
from sqlalchemy.pool import NullPool

from everstep.ops.langgraph_checks import (
    check_sends,
    check_texts,
    check_write,
    checked_body,
    checked_metadata,
    from_json,
    reading,
)
from everstep.ops.langgraph_values import Items, StoredValues, failure_of, unpacked
from everstep_savers.checkpoint import ERROR, Version
from everstep_savers.codec import Codec
from everstep_savers.errors import DatabaseUnavailable
from everstep_savers.sql.database import parse_url, root_cause, shown, unavailable
from everstep_savers.sql.poolers import UNNAMED_STATEMENTS


@dataclass(frozen=True, slots=True)
class TheirCheckpoint:
    """A checkpoint of LangGraph's."""

    checkpoint_ns: str
    checkpoint_id: str
    parent_id: str | None
    format: int
    ts: str
    values: Mapping[str, Any]
    versions: Mapping[str, Version]
    seen: Mapping[str, Mapping[str, Version]]
    updated: list[str] | None
    metadata: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class TheirWrite:
    """A pending write of LangGraph's."""

    checkpoint_ns: str
    checkpoint_id: str
    task_id: str
    task_path: str
    channel: str
    value: Any


@dataclass(frozen=True, slots=True)
class TheirThread:
    """A thread of LangGraph's: checkpoints of all namespaces, oldest first, and writes in their order."""

    thread_id: str
    checkpoints: Sequence[TheirCheckpoint]
    writes: Sequence[TheirWrite]


class TheirDatabase:
    """A database that LangGraph writes; open as long as the block lasts.

    Args:
        url: Of a file or a server.
        values: Reads what is stored there.
        codec: Tells equal values.
    """

    def __init__(self, url: str, values: StoredValues, codec: Codec) -> None:
        self.url: URL = parse_url(url)
        self._values, self._codec = values, codec
        self._is_postgres = self.url.get_backend_name() == "postgresql"
        self._engine: AsyncEngine | None = None

    async def __aenter__(self) -> Self:
        if not self._is_there():
            raise DatabaseUnavailable(f"cannot use database {shown(self.url)}: there is no such file")
        options = UNNAMED_STATEMENTS if self._is_postgres else {}
        self._engine = create_async_engine(self.url, poolclass=NullPool, connect_args=options)
        try:
            await self._check()
        except BaseException:
            await self._engine.dispose()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._engine is not None
        await self._engine.dispose()

    def _is_there(self) -> bool:
        return self._is_postgres or Path(self.url.database or "").exists()  # looking at a file does not create it

    async def thread_ids(self) -> list[str]:
        """The threads there are, by name."""
        query = "SELECT DISTINCT thread_id FROM checkpoints ORDER BY thread_id"
        async with self._snapshot() as connection:
            return [row[0] async for row in _rows(connection, query)]

    async def thread(self, thread_id: str) -> TheirThread:
        """Read one thread, as it was at one moment, whoever is writing to it.

        Raises:
            CodecError: A value cannot be read, or something else is damaged; names key, checkpoint and thread.
        """
        with reading(f"thread {thread_id!r}"):
            async with self._snapshot() as connection:
                checkpoints = [each async for each in self._checkpoints(connection, thread_id)]
                query = _writes(self._is_postgres)
                writes = [self._write(*row) async for row in _rows(connection, query, thread_id)]
        return TheirThread(thread_id, checkpoints, writes)

    async def _checkpoints(self, connection: AsyncConnection, thread_id: str) -> AsyncIterator[TheirCheckpoint]:
        items = Items(self._codec)
        # Namespace, channel and version -> value.
        values: dict[tuple[str, str, str], Any] = {}
        if self._is_postgres:
            async for ns, channel, version, kind, data in _rows(connection, _BLOBS, thread_id):
                if kind != "empty":
                    with reading(f"state key {channel!r}", f"version {version}"):
                        values[ns, channel, version] = self._value(unpacked(kind, data), items, channel)
        apart = set(values)
        query = _POSTGRES_CHECKPOINTS if self._is_postgres else _SQLITE_CHECKPOINTS
        async for ns, checkpoint_id, parent_id, kind, body, metadata in _rows(connection, query, thread_id):
            with reading(f"checkpoint {checkpoint_id!r}"):
                check_texts(checkpoint_ns=ns, checkpoint_id=checkpoint_id, parent_checkpoint_id=parent_id or "")
                stored = checked_body(
                    checkpoint_id, from_json("it", body) if self._is_postgres else unpacked(kind, body)
                )
                versions = stored["channel_versions"]
                keys = {channel: (ns, channel, str(version)) for channel, version in versions.items()}
                found = {channel: values[key] for channel, key in keys.items() if key in apart}
                for channel, value in stored["channel_values"].items():
                    key = keys.get(channel, (ns, channel, checkpoint_id))
                    if key not in values:
                        with reading(f"state key {channel!r}"):
                            values[key] = self._value(value, items, channel)
                    found[channel] = values[key]
                check_sends(found)
                checkpoint = TheirCheckpoint(
                    ns,
                    checkpoint_id,
                    parent_id or None,
                    stored["v"],
                    stored["ts"],
                    found,
                    versions,
                    stored["versions_seen"],
                    stored.get("updated_channels"),
                    checked_metadata(metadata),
                )
            yield checkpoint

    def _value(self, value: Any, items: Items, channel: str) -> Any:
        return items.shared(channel, self._values.lifted(value))

    def _write(
        self, ns: str, checkpoint_id: str, task_id: str, path: str, channel: str, kind: str, data: bytes
    ) -> TheirWrite:
        with reading(f"write to {channel!r}", f"checkpoint {checkpoint_id!r}"):
            check_texts(checkpoint_ns=ns, checkpoint_id=checkpoint_id, task_id=task_id, task_path=path, channel=channel)
            value = self._values.read(kind, data)
            check_write(task_id, channel, value)
        return TheirWrite(ns, checkpoint_id, task_id, path, channel, failure_of(value) if channel == ERROR else value)

    async def _check(self) -> None:
        async with self._snapshot() as connection:
            for table, columns in (_POSTGRES if self._is_postgres else _SQLITE).items():
                query = _POSTGRES_COLUMNS if self._is_postgres else _SQLITE_COLUMNS
                found = {row[0] async for row in _rows(connection, query.format(table))}
                if table == "checkpoints" and "checkpoint" not in found:
                    raise DatabaseUnavailable(
                        f"database {shown(self.url)} was not written by LangGraph's savers: it has no such checkpoints"
                    )
                if missing := [column for column in columns.split() if column not in found]:
                    what = f"no table {table}" if not found else f"no {', '.join(missing)} in its table {table}"
                    raise DatabaseUnavailable(
                        f"database {shown(self.url)} is not as LangGraph's savers leave it: it has {what}; if an old "
                        "version of them made it, let the setup() of a newer one bring it up to date"
                    )

    @asynccontextmanager
    async def _snapshot(self) -> AsyncIterator[AsyncConnection]:
        """A connection whose reads see the database as it is at the first of them."""
        assert self._engine is not None
        try:
            async with self._engine.connect() as connection:
                if self._is_postgres:
                    options: Any = {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}
                    connection = await connection.execution_options(**options)
                else:
                    await connection.execute(text("BEGIN"))  # the driver begins only what writes
                yield connection
        except (SQLAlchemyError, OSError) as error:
            raise unavailable(self.url, error) from root_cause(error)


async def _rows(connection: AsyncConnection, query: str, thread_id: str | None = None) -> AsyncIterator[Any]:
    values = {} if thread_id is None else {"thread_id": thread_id}
    async with connection.stream(text(query), values) as rows:
        async for row in rows:
            yield row


# What is read, by table.
_CHECKPOINTS = "thread_id checkpoint_ns checkpoint_id parent_checkpoint_id type checkpoint metadata"
_WRITES = "thread_id checkpoint_ns checkpoint_id task_id task_path idx channel type"
_SQLITE = {"checkpoints": _CHECKPOINTS, "writes": f"{_WRITES} value"}
_POSTGRES = {
    "checkpoints": _CHECKPOINTS,
    "checkpoint_blobs": "thread_id checkpoint_ns channel version type blob",
    "checkpoint_writes": f"{_WRITES} blob",
}
_SQLITE_COLUMNS = "SELECT name FROM pragma_table_info('{}')"
_POSTGRES_COLUMNS = (
    "SELECT attname FROM pg_attribute WHERE attrelid = to_regclass('{}') AND attnum > 0 AND NOT attisdropped"
)
_SQLITE_CHECKPOINTS = """
SELECT checkpoint_ns, checkpoint_id, parent_checkpoint_id, type, checkpoint, metadata
FROM checkpoints WHERE thread_id = :thread_id ORDER BY checkpoint_id
"""
_POSTGRES_CHECKPOINTS = """
SELECT checkpoint_ns, checkpoint_id, parent_checkpoint_id, type, CAST(checkpoint AS TEXT), CAST(metadata AS TEXT)
FROM checkpoints WHERE thread_id = :thread_id ORDER BY checkpoint_id
"""
_BLOBS = """
SELECT checkpoint_ns, channel, version, type, blob FROM checkpoint_blobs WHERE thread_id = :thread_id
"""


def _writes(is_postgres: bool) -> str:
    table, data = ("checkpoint_writes", "blob") if is_postgres else ("writes", "value")
    return f"""
SELECT checkpoint_ns, checkpoint_id, task_id, task_path, channel, type, {data}
FROM {table} WHERE thread_id = :thread_id ORDER BY checkpoint_id, checkpoint_ns, task_path, task_id, idx
"""  # noqa: S608  # no part of it comes from outside

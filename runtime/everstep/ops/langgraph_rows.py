"""Threads in a database that LangGraph's own savers have written: SQLite or Postgres, read only.

Rows become records with their values decoded; a value that cannot be read is named by key, checkpoint and thread. They
are read one by one, and what versions of a value have in common is kept once: LangGraph stores a list anew whenever it
grows, so that a thread takes far more bytes there than it holds. What the rows mean to Everstep is decided elsewhere.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import orjson
from sqlalchemy import URL, text
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.pool import NullPool

from everstep.ops.langgraph_values import Items, StoredValues, failure_of, unpacked
from everstep_savers.checkpoint import ERROR, Version
from everstep_savers.codec import Codec
from everstep_savers.errors import CodecError, DatabaseUnavailable
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
        return [row[0] async for row in self._rows("SELECT DISTINCT thread_id FROM checkpoints ORDER BY thread_id")]

    async def thread(self, thread_id: str) -> TheirThread:
        """Read one thread.

        Raises:
            CodecError: A value cannot be read; names key, checkpoint and thread.
        """
        try:
            checkpoints = [each async for each in self._checkpoints(thread_id)]
            writes = [self._write(*row) async for row in self._rows(_writes(self._is_postgres), thread_id)]
        except CodecError as error:
            raise error.within(f"thread {thread_id!r}") from error
        return TheirThread(thread_id, checkpoints, writes)

    async def _checkpoints(self, thread_id: str) -> AsyncIterator[TheirCheckpoint]:
        items = Items(self._codec)
        # Namespace, channel and version -> value.
        values: dict[tuple[str, str, str], Any] = {}
        if self._is_postgres:
            async for ns, channel, version, kind, data in self._rows(_BLOBS, thread_id):
                if kind != "empty":
                    where = f"version {version}"
                    values[ns, channel, version] = self._value(unpacked(kind, data), items, channel, where)
        apart = set(values)
        query = _POSTGRES_CHECKPOINTS if self._is_postgres else _SQLITE_CHECKPOINTS
        async for ns, checkpoint_id, parent_id, kind, body, metadata in self._rows(query, thread_id):
            stored = orjson.loads(body) if self._is_postgres else unpacked(kind, body)
            versions = stored["channel_versions"]
            keys = {channel: (ns, channel, str(version)) for channel, version in versions.items()}
            found = {channel: values[key] for channel, key in keys.items() if key in apart}
            for channel, value in stored["channel_values"].items():
                key = keys.get(channel, (ns, channel, checkpoint_id))
                if key not in values:
                    values[key] = self._value(value, items, channel, f"checkpoint {checkpoint_id!r}")
                found[channel] = values[key]
            yield TheirCheckpoint(
                ns,
                checkpoint_id,
                parent_id or None,
                stored["v"],
                stored["ts"],
                found,
                versions,
                stored["versions_seen"],
                stored.get("updated_channels"),
                orjson.loads(metadata),
            )

    def _value(self, value: Any, items: Items, channel: str, where: str) -> Any:
        try:
            return items.shared(channel, self._values.lifted(value))
        except CodecError as error:
            raise error.within(f"state key {channel!r}", where) from error

    def _write(
        self, ns: str, checkpoint_id: str, task_id: str, path: str, channel: str, kind: str, data: bytes
    ) -> TheirWrite:
        try:
            value = self._values.read(kind, data)
        except CodecError as error:
            raise error.within(f"write to {channel!r}", f"checkpoint {checkpoint_id!r}") from error
        return TheirWrite(ns, checkpoint_id, task_id, path, channel, failure_of(value) if channel == ERROR else value)

    async def _check(self) -> None:
        if "checkpoint" not in await self._columns():
            raise DatabaseUnavailable(
                f"database {shown(self.url)} was not written by LangGraph's savers: it has no such checkpoints"
            )

    async def _columns(self) -> set[str]:
        if self._is_postgres:
            query = "SELECT attname FROM pg_attribute WHERE attrelid = to_regclass('checkpoints') AND NOT attisdropped"
        else:
            query = "SELECT name FROM pragma_table_info('checkpoints')"
        return {row[0] async for row in self._rows(query)}

    async def _rows(self, query: str, thread_id: str | None = None) -> AsyncIterator[Any]:
        assert self._engine is not None
        values = {} if thread_id is None else {"thread_id": thread_id}
        try:
            async with self._engine.connect() as connection, connection.stream(text(query), values) as rows:
                async for row in rows:
                    yield row
        except (SQLAlchemyError, OSError) as error:
            raise unavailable(self.url, error) from root_cause(error)


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

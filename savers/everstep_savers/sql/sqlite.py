"""SQLite: one thread that writes, one that reads, each with a connection of its own.

A commit costs one hop to the writing thread; whatever commits wait when that thread is free share one
transaction and one sync to disk. Readers use WAL snapshots and hold nothing between two queries, so that
they and the writer never wait for each other. An in-memory database has one connection, used for both.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache, partial
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple

from sqlalchemy import URL
from sqlalchemy.dialects.sqlite import pysqlite
from sqlalchemy.schema import CreateIndex, CreateTable

from everstep_savers.errors import PersistenceError
from everstep_savers.fencing import refusal, value_conflict
from everstep_savers.rows import EncodedCommit
from everstep_savers.sql import migrate
from everstep_savers.sql.database import Database, Row, unavailable
from everstep_savers.sql.place import DEFAULT_PLACE, Place
from everstep_savers.sql.schema import SCHEMA_REVISION, VERSION_TABLE, alembic_version, metadata
from everstep_savers.sql.statements import (
    FIELDS,
    ROW_TABLES,
    Statement,
    change_of,
    change_statement,
    compiled,
    kind_of,
    revision_query,
    row_statement,
    state_query,
    thread_state,
)

# How long a writer waits for another process that writes, in seconds.
BUSY_TIMEOUT = 30.0

# So many commits share a transaction at most.
GROUP_SIZE = 256

Work = Callable[[sqlite3.Connection], Any]
Outcome = Any  # a result, or the exception in its place


class _Call(NamedTuple):
    """Something a thread is asked to do, and who waits for it."""

    work: Work | EncodedCommit
    future: asyncio.Future[Any]


class SQLiteDatabase(Database):
    """A SQLite database file, or one in memory."""

    is_postgres = False

    def __init__(self, url: URL, *, synchronous: str = "FULL", place: Place = DEFAULT_PLACE) -> None:
        super().__init__(url, place)
        if place.schema is not None:
            raise ValueError(f"SQLite has no schemas: use table_prefix={place.schema + '_'!r} in place of schema")
        if synchronous.upper() not in ("OFF", "NORMAL", "FULL", "EXTRA"):
            raise ValueError(f"synchronous must be OFF, NORMAL, FULL or EXTRA, not {synchronous!r}")
        self._synchronous = synchronous.upper()
        self._workers: list[_Worker] = []

    @property
    def is_in_memory(self) -> bool:
        """Whether the database lives and dies with its connection."""
        name = self.url.database
        return name in (None, "", ":memory:") or self.url.query.get("mode") == "memory"

    async def open(self) -> None:
        if not self._exists():
            return  # looking at a database does not create it; `revision` finds none
        connect = partial(_connect, self.url, self._synchronous, self.place)
        names = (
            ["everstep-sqlite-writer"] if self.is_in_memory else ["everstep-sqlite-writer", "everstep-sqlite-reader"]
        )
        self._workers = [_Worker(name, self.url, connect) for name in names]
        for worker in self._workers:
            await worker.start()
        if self.is_in_memory:
            await self._workers[0].call(_create_schema)

    def _exists(self) -> bool:
        name = self.url.database or ""
        return self.is_in_memory or name.startswith("file:") or Path(name).exists()

    async def close(self) -> None:
        workers, self._workers = self._workers, []
        for worker in workers:
            await worker.stop()

    def abandon(self) -> None:
        workers, self._workers = self._workers, []
        for worker in workers:
            worker.end()

    async def commit(self, commit: EncodedCommit) -> int:
        token: int = await self._workers[0].call(commit)
        return token

    async def fetch(self, statement: Statement, values: Mapping[str, Any]) -> Sequence[Row]:
        rows: list[Row] = await self._workers[-1].call(
            lambda connection: connection.execute(statement.text, statement.arguments(values)).fetchall()
        )
        return rows

    async def write(self, steps: Sequence[tuple[Statement, Mapping[str, Any]]], *, may_repeat: bool = False) -> bool:
        is_done: bool = await self._workers[0].call(partial(_write, steps))
        return is_done

    async def run(self, steps: Sequence[tuple[Statement, Mapping[str, Any]]]) -> Sequence[Sequence[Row]]:
        rows: list[list[Row]] = await self._workers[0].call(partial(_run, steps))
        return rows

    async def revision(self) -> str | None:
        if not self._workers:
            return None
        found: str | None = await self._workers[0].call(partial(_revision, self.place.qualified(VERSION_TABLE)))
        return found

    async def upgrade(self) -> None:
        if not self.is_in_memory:
            await migrate.upgrade(self.url, place=self.place)


class _Worker:
    """A thread with a connection, which does what it is asked one after the other."""

    def __init__(self, name: str, url: URL, connect: Callable[[], sqlite3.Connection]) -> None:
        self._calls: SimpleQueue[_Call | None] = SimpleQueue()
        self._thread = threading.Thread(target=_serve, args=(self._calls, url, connect), name=name, daemon=True)
        # The thread knows the queue only, so that a saver nobody closed ends it.
        self._end = weakref.finalize(self, self._calls.put, None)

    async def start(self) -> None:
        self._thread.start()
        await self.call(lambda connection: None)

    async def call(self, work: Work | EncodedCommit) -> Any:
        future = asyncio.get_running_loop().create_future()
        self._calls.put(_Call(work, future))
        return await future

    def end(self) -> None:
        self._end()

    async def stop(self) -> None:
        self._end()
        if self._thread.is_alive():
            await asyncio.get_running_loop().run_in_executor(None, self._thread.join)


def _serve(calls: SimpleQueue[_Call | None], url: URL, connect: Callable[[], sqlite3.Connection]) -> None:
    """The body of a worker's thread, until it is asked for nothing."""
    connection: sqlite3.Connection | None = None
    is_open = True
    while is_open:
        batch, is_open = _taken(calls)
        try:
            connection = connection or connect()
            outcomes = _outcomes(connection, url, batch)
        except (sqlite3.Error, OSError) as error:
            outcomes = [unavailable(url, error)] * len(batch)
        except Exception as error:
            # Whatever it is: somebody waits for every call, and would wait for ever.
            outcomes = [error] * len(batch)
        _deliver(batch, outcomes)
    if connection is not None:
        connection.close()


def _taken(calls: SimpleQueue[_Call | None]) -> tuple[list[_Call], bool]:
    """Wait for a call, and take all that wait with it; False after the last one."""
    batch: list[_Call] = []
    call = calls.get()
    while call is not None and len(batch) < GROUP_SIZE:
        batch.append(call)
        try:
            call = calls.get_nowait()
        except Empty:
            return batch, True
    if call is not None:
        batch.append(call)
    return batch, call is not None


def _outcomes(connection: sqlite3.Connection, url: URL, batch: Sequence[_Call]) -> list[Outcome]:
    outcomes: list[Outcome] = []
    for is_commit, calls in groupby(batch, key=lambda call: isinstance(call.work, EncodedCommit)):
        if is_commit:
            outcomes += _commit_group(connection, url, [call.work for call in calls])
        else:
            outcomes += [_done(connection, url, call.work) for call in calls]
    return outcomes


def _done(connection: sqlite3.Connection, url: URL, work: Any) -> Outcome:
    try:
        return work(connection)
    except sqlite3.Error as error:
        return unavailable(url, error)
    except Exception as error:
        return error


def _deliver(batch: Sequence[_Call], outcomes: Sequence[Outcome]) -> None:
    loop = batch[0].future.get_loop() if batch else None
    if loop is not None:
        # The loop may be gone, and with it everybody who waited.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(_settle, batch, outcomes)


def _settle(batch: Sequence[_Call], outcomes: Sequence[Outcome]) -> None:
    for call, outcome in zip(batch, outcomes, strict=True):
        if call.future.done():
            continue  # cancelled
        if isinstance(outcome, BaseException):
            call.future.set_exception(outcome)
        else:
            call.future.set_result(outcome)


def _commit_group(connection: sqlite3.Connection, url: URL, commits: Sequence[Any]) -> list[Outcome]:
    """Store commits in one transaction; a refused one takes no part in it."""
    try:
        with _transaction(connection):
            outcomes = [_let_through(connection, commit) for commit in commits]
            stored = [each for each, outcome in zip(commits, outcomes, strict=True) if type(outcome) is int]
            for text, field in _row_inserts():
                rows = [row for commit in stored for row in getattr(commit, field)]
                if rows:
                    connection.executemany(text, rows)
        return outcomes
    except sqlite3.IntegrityError:
        if len(commits) == 1:
            return [value_conflict(commits[0].thread_id)]
        return [outcome for commit in commits for outcome in _commit_group(connection, url, [commit])]
    except sqlite3.Error as error:
        return [unavailable(url, error)] * len(commits)


def _let_through(connection: sqlite3.Connection, commit: EncodedCommit) -> int | PersistenceError:
    text, in_order = _change(kind_of(commit))
    if found := connection.execute(text, in_order(change_of(commit))).fetchall():
        token: int = found[0][0]
        return token
    statement = _state()
    row = connection.execute(statement.text, [commit.thread_id]).fetchone()
    return refusal(commit, thread_state(*row) if row else None)


@contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[None]:
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _write(steps: Sequence[tuple[Statement, Mapping[str, Any]]], connection: sqlite3.Connection) -> bool:
    with _transaction(connection):
        (guard, values), *rest = steps
        if not connection.execute(guard.text, guard.arguments(values)).fetchall():
            return False
        for statement, values in rest:
            connection.execute(statement.text, statement.arguments(values))
    return True


def _run(steps: Sequence[tuple[Statement, Mapping[str, Any]]], connection: sqlite3.Connection) -> list[list[Row]]:
    with _transaction(connection):
        return [connection.execute(step.text, step.arguments(values)).fetchall() for step, values in steps]


def _revision(version_table: str, connection: sqlite3.Connection) -> str | None:
    if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = ?", [version_table]).fetchall():
        return None
    found = connection.execute(_revision_statement().text).fetchone()
    return found[0] if found else None


class _PlacedConnection(sqlite3.Connection):
    """A connection to a database whose tables are in another place."""

    place: Place

    def execute(self, text: str, arguments: Any = (), /) -> sqlite3.Cursor:
        return super().execute(self.place.named(text), arguments)

    def executemany(self, text: str, rows: Any, /) -> sqlite3.Cursor:
        return super().executemany(self.place.named(text), rows)


def _connect(url: URL, synchronous: str, place: Place = DEFAULT_PLACE) -> sqlite3.Connection:
    (name,), options = pysqlite.dialect().create_connect_args(url)
    settings: dict[str, Any] = {"timeout": BUSY_TIMEOUT, **options, "isolation_level": None, "cached_statements": 256}
    if place:
        settings["factory"] = _PlacedConnection
    connection: sqlite3.Connection = sqlite3.connect(name, **settings)
    if isinstance(connection, _PlacedConnection):
        connection.place = place
    try:
        _use_wal(connection)
        connection.execute(f"PRAGMA synchronous = {synchronous}")
    except BaseException:
        connection.close()
        raise
    return connection


def _use_wal(connection: sqlite3.Connection) -> None:
    """Switch to WAL; SQLite does not wait by itself while another process switches, recovers or closes the file."""
    ends = time.monotonic() + BUSY_TIMEOUT
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL").fetchall()
        except sqlite3.OperationalError as error:
            if (
                error.sqlite_errorcode & 0xFF not in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
                or time.monotonic() > ends
            ):
                raise
            time.sleep(0.01)
        else:
            return


def _create_schema(connection: sqlite3.Connection) -> None:
    """The newest schema at once: an in-memory database has no past."""
    with _transaction(connection):
        for table in (*metadata.sorted_tables, alembic_version):
            connection.execute(str(CreateTable(table).compile(dialect=pysqlite.dialect())))
            for index in table.indexes:
                connection.execute(str(CreateIndex(index).compile(dialect=pysqlite.dialect())))
        connection.execute(compiled(alembic_version.insert(), is_postgres=False).text, [SCHEMA_REVISION])


@cache
def _change(kind: str) -> tuple[str, Callable[[Sequence[Any]], Any]]:
    """The text that changes a thread's row, and what brings its arguments into order."""
    statement = compiled(change_statement(kind), is_postgres=False)
    places = {f"{kind}_{field}": place for place, field in enumerate(FIELDS[kind])}
    return statement.text, itemgetter(*(places[name] for name in statement.names))


@cache
def _row_inserts() -> tuple[tuple[str, str], ...]:
    """For each table the text that inserts a row, and where a commit has its rows."""
    fields = ("checkpoints", "values", "writes")
    texts = (compiled(row_statement(table), is_postgres=False).text for table in ROW_TABLES)
    return tuple(zip(texts, fields, strict=True))


@cache
def _state() -> Statement:
    return compiled(state_query(), is_postgres=False)


@cache
def _revision_statement() -> Statement:
    return compiled(revision_query(), is_postgres=False)

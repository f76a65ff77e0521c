"""Postgres: a group of commits as one prepared statement on a raw asyncpg connection.

Connections come from SQLAlchemy's pool, and a few that have been used are kept at hand, since taking one out
of the pool costs as much as a small query. A connection that drops costs one retry on a new one: a commit may
be repeated, because a step stores the same rows again and a claim recognises itself by its nonce.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import cache, lru_cache
from operator import itemgetter
from typing import Any, NamedTuple, TypeAlias, TypeVar

import asyncpg
from sqlalchemy import URL
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from everstep_savers.errors import InvalidKeyError
from everstep_savers.fencing import refusal, value_conflict
from everstep_savers.rows import EncodedCommit
from everstep_savers.sql import migrate
from everstep_savers.sql.database import Database, Row, root_cause, unavailable
from everstep_savers.sql.group import CommitQueue, Outcome
from everstep_savers.sql.place import DEFAULT_PLACE, Place
from everstep_savers.sql.poolers import UNNAMED_STATEMENTS, DressedConnection, Pooler, keeps_statements
from everstep_savers.sql.schema import VERSION_TABLE
from everstep_savers.sql.statements import (
    FIELDS,
    ROW_TABLES,
    Shape,
    Statement,
    change_of,
    commit_statement,
    compiled,
    kind_of,
    revision_query,
    state_query,
    thread_state,
)

T = TypeVar("T")

# So many used connections are kept at hand; of a host's pool, one.
KEPT = 3
KEPT_OF_HOST = 1

# So often a transaction that lost a deadlock is tried again.
DEADLOCKS = 5

# Errors that say something about the server and nothing about the statement: connection and operator
# trouble, resources exhausted, read-only.
_SERVER_STATES = ("08", "53", "57", "25006")


_KINDS = {kind: place for place, kind in enumerate(FIELDS)}

Raw: TypeAlias = asyncpg.Connection
Work = Callable[[Raw], Awaitable[T]]


class _ConnectionLost(Exception):
    """The connection dropped; what it was doing may or may not be done."""


class _Held(NamedTuple):
    """A connection taken out of the pool, and the driver's own beneath it."""

    pooled: AsyncConnection
    raw: Raw


class PostgresDatabase(Database):
    """A Postgres database, through an engine of our own or of the host."""

    is_postgres = True

    def __init__(
        self,
        url: URL,
        engine: AsyncEngine | None = None,
        *,
        place: Place = DEFAULT_PLACE,
        pooler: Pooler | None = None,
    ) -> None:
        super().__init__(url, place)
        if pooler not in (None, "transaction"):
            raise ValueError(f"pooler must be 'transaction' or None, not {pooler!r}")
        self._pooler = pooler
        self._host_engine = engine
        self._engine: AsyncEngine | None = None
        self._kept: list[_Held] = []
        self._waiting = 0
        self._queue = CommitQueue(self._store)

    async def open(self) -> None:
        self._engine = self._host_engine or create_async_engine(
            self.url, connect_args=UNNAMED_STATEMENTS if self._pooler else {}
        )
        self._queue = CommitQueue(self._store)
        await self._put_back(await self._take())

    async def close(self) -> None:
        await self._queue.close()
        kept, self._kept = self._kept, []
        for held in kept:
            await held.pooled.close()
        if self._engine is not None and self._host_engine is None:
            await self._engine.dispose()
        self._engine = None

    def abandon(self) -> None:
        self._kept = []
        if self._engine is not None and self._host_engine is None:
            self._engine.sync_engine.dispose(close=False)
        self._engine = None

    async def commit(self, commit: EncodedCommit) -> int:
        return await self._queue.submit(commit)

    async def fetch(self, statement: Statement, values: Mapping[str, Any]) -> Sequence[Row]:
        arguments = statement.arguments(values)
        return await self._with_retry(lambda raw: raw.fetch(statement.text, *arguments))

    async def write(self, steps: Sequence[tuple[Statement, Mapping[str, Any]]], *, may_repeat: bool = False) -> bool:
        async def run(raw: Raw) -> bool:
            async with raw.transaction():
                (guard, values), *rest = steps
                if not await raw.fetch(guard.text, *guard.arguments(values)):
                    return False
                for statement, values in rest:
                    await raw.execute(statement.text, *statement.arguments(values))
            return True

        return await (self._with_retry(run) if may_repeat else self._translated(self._run(run)))

    async def run(self, steps: Sequence[tuple[Statement, Mapping[str, Any]]]) -> Sequence[Sequence[Row]]:
        async def run(raw: Raw) -> list[Sequence[Row]]:
            if len(steps) == 1:  # a transaction of its own
                return [await raw.fetch(step.text, *step.arguments(values)) for step, values in steps]
            async with raw.transaction():
                return [await raw.fetch(step.text, *step.arguments(values)) for step, values in steps]

        for _ in range(DEADLOCKS):
            try:
                return await self._with_retry(run)
            except asyncpg.DeadlockDetectedError:
                pass  # the other one got through; the way is free
        return await self._with_retry(run)

    async def revision(self) -> str | None:
        async def run(raw: Raw) -> str | None:
            if await raw.fetchval("SELECT to_regclass($1)", self.place.qualified(VERSION_TABLE)) is None:
                return None
            found: str | None = await raw.fetchval(_revision().text)
            return found

        return await self._with_retry(run)

    async def upgrade(self) -> None:
        await migrate.upgrade(self._host_engine or self.url, place=self.place)

    async def _store(self, commits: Sequence[EncodedCommit]) -> Sequence[Outcome]:
        try:
            return await self._with_retry(lambda raw: _stored(raw, commits), lambda raw: _repeated(raw, commits))
        except asyncpg.PostgresError as error:
            if len(commits) == 1:
                return [_fault(commits[0].thread_id, error)]
        # One of them is at fault; it must not spoil the others.
        return [outcome for commit in commits for outcome in await self._store((commit,))]

    async def _with_retry(self, run: Work[T], repeat: Work[T] | None = None) -> T:
        """Run something on a connection, and once more on a new one if the connection drops."""
        try:
            return await self._run(run)
        except _ConnectionLost:
            pass
        kept, self._kept = self._kept, []
        for held in kept:
            await _drop(held)
        return await self._translated(self._run(repeat or run, is_fresh=True))

    async def _translated(self, running: Awaitable[T]) -> T:
        try:
            return await running
        except _ConnectionLost as lost:
            raise unavailable(self.url, lost) from root_cause(lost)

    async def _run(self, run: Work[T], *, is_fresh: bool = False) -> T:
        held = await (self._take_fresh() if is_fresh else self._take())
        try:
            result = await run(held.raw)
        except BaseException as error:
            is_lost = held.raw.is_closed() or _is_server_trouble(error)
            # What a cancelled statement still does on its connection is not known either.
            if is_lost or not isinstance(error, Exception):
                await _drop(held)
            else:
                await self._put_back(held)
            if is_lost and isinstance(error, Exception):
                raise _ConnectionLost from error
            raise
        await self._put_back(held)
        return result

    async def _take(self) -> _Held:
        if self._kept:
            return self._kept.pop()
        if self._engine is None:
            raise RuntimeError("the saver is closed")
        self._waiting += 1
        try:
            pooled = await self._engine.connect()
        except (SQLAlchemyError, asyncpg.PostgresError, OSError) as error:
            raise unavailable(self.url, error) from root_cause(error)
        finally:
            self._waiting -= 1
        fairy = await pooled.get_raw_connection()
        return _Held(pooled, await self._dressed(pooled, fairy.driver_connection))

    async def _dressed(self, pooled: AsyncConnection, raw: Any) -> Any:
        if self._pooler is not None and keeps_statements(raw):
            await pooled.close()
            raise ValueError(
                "pooler='transaction' needs an engine whose connections keep no prepared statements; make it with "
                "create_async_engine(url, connect_args=everstep_savers.sql.UNNAMED_STATEMENTS)"
            )
        return DressedConnection(raw, self.place, self._pooler) if self.place or self._pooler else raw

    async def _take_fresh(self) -> _Held:
        """A connection that answers: others in the pool may have dropped together with the last one."""
        while True:
            held = await self._take()
            try:
                await held.raw.fetchval("SELECT 1")
            except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError):
                await _drop(held)
            else:
                return held

    async def _put_back(self, held: _Held) -> None:
        limit = KEPT_OF_HOST if self._host_engine else KEPT
        if self._waiting or len(self._kept) >= limit or self._engine is None:
            await held.pooled.close()
        else:
            self._kept.append(held)


async def _drop(held: _Held) -> None:
    await held.pooled.invalidate()
    await held.pooled.close()


def _fault(thread_id: str, error: Exception) -> Exception:
    """What is wrong with a commit that the database refuses."""
    if isinstance(error, asyncpg.NotNullViolationError):
        return value_conflict(thread_id)
    if isinstance(error, asyncpg.ProgramLimitExceededError):
        return InvalidKeyError(
            f"thread {thread_id!r:.100} has a name that is longer than an index of PostgreSQL can hold ({error}): "
            "thread id, namespace, key and task together have about 2,700 bytes"
        )
    return error


def _is_server_trouble(error: BaseException) -> bool:
    if isinstance(error, OSError):
        return True
    state = getattr(error, "sqlstate", None)
    return isinstance(error, asyncpg.PostgresError) and str(state).startswith(_SERVER_STATES)


async def _stored(raw: Raw, commits: Sequence[EncodedCommit]) -> list[Outcome]:
    """Store commits by one statement; a refused one takes no part in it."""
    text, arguments = _statement_of(commits)
    tokens = {row[0]: row[1] for row in await raw.fetch(text, *arguments)}
    return [tokens[each.thread_id] if each.thread_id in tokens else await _refusal(raw, each) for each in commits]


async def _repeated(raw: Raw, commits: Sequence[EncodedCommit]) -> list[Outcome]:
    """Store commits of which some may be stored already.

    Steps store the same again. A claim may have been granted to us; then it would now be refused to us.
    """
    done: dict[str, Outcome] = {}
    for commit in commits:
        if commit.claim is not None:
            row = await raw.fetchrow(_state().text, commit.thread_id)
            if row is not None and row["owner"] == commit.claim.nonce:
                done[commit.thread_id] = row["token"]
    rest = [commit for commit in commits if commit.thread_id not in done]
    if rest:
        done |= zip((commit.thread_id for commit in rest), await _stored(raw, rest), strict=True)
    return [done[commit.thread_id] for commit in commits]


async def _refusal(raw: Raw, commit: EncodedCommit) -> Exception:
    row = await raw.fetchrow(_state().text, commit.thread_id)
    return refusal(commit, thread_state(*row) if row else None)


def _statement_of(commits: Sequence[EncodedCommit]) -> tuple[str, Sequence[Any]]:
    """The statement for a group of commits, and its arguments."""
    blocks: list[list[Any]] = [[] for _ in Shape._fields]
    for commit in commits:
        blocks[_KINDS[kind_of(commit)]].append(change_of(commit))
        blocks[-3] += commit.checkpoints
        blocks[-2] += commit.values
        blocks[-1] += commit.writes
    text, in_order = _prepared(Shape(*(min(len(block), 2) for block in blocks)))
    flat: list[Any] = []
    for block in blocks:
        flat += block[0] if len(block) == 1 else zip(*block, strict=True)
    flat.append([commit.thread_id for commit in commits])
    return text, in_order(flat)


@lru_cache(maxsize=512)
def _prepared(shape: Shape) -> tuple[str, Callable[[Sequence[Any]], Sequence[Any]]]:
    """The text for a shape, and what brings its arguments into order."""
    statement = compiled(commit_statement(shape), is_postgres=True)
    fields = [*FIELDS.values(), *(tuple(table.c.keys()) for table in ROW_TABLES)]
    names = [
        f"{block}_{field}"
        for block, count, block_fields in zip(Shape._fields, shape, fields, strict=True)
        if count
        for field in block_fields
    ]
    places = {name: place for place, name in enumerate([*names, "group_ids"])}
    return statement.text, itemgetter(*(places[name] for name in statement.names))


@cache
def _state() -> Statement:
    return compiled(state_query(), is_postgres=True)


@cache
def _revision() -> Statement:
    return compiled(revision_query(), is_postgres=True)

"""A copy of a thread whose rows are encrypted for their place: each is opened, and sealed for the new thread.

The rows are read in pages and stored in one transaction, which begins only if the thread is still what it was before
they were read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from sqlalchemy import Insert, Select, Text, Update, bindparam, select, update

from everstep_savers.fencing import copy_outrun, copy_refused
from everstep_savers.sealing import SealedCodec
from everstep_savers.sql.database import Database
from everstep_savers.sql.maintenance import SEEN, copy_guard
from everstep_savers.sql.resealing import SHEETS, Row, Sheet, bound, brought, page_query
from everstep_savers.sql.schema import threads
from everstep_savers.sql.statements import ROW_TABLES, Statement, compiled

# How often a copy is begun if its source changes meanwhile.
TRIES = 5

Step = tuple[Statement, Mapping[str, Any]]

_THREADS = SHEETS[threads.name]


async def copy_sealed(database: Database, codec: SealedCodec, source: str, target: str, now: int) -> None:
    """Copy a thread; `now` is in microseconds.

    Raises:
        ThreadConflict: There is no such thread, or the target is in the way, or the source changed all the time.
        CodecError: Something cannot be opened; names the place. Nothing is stored.
    """
    is_postgres = database.is_postgres
    seen: Sequence[Row] = ()
    for _ in range(TRIES):
        before, seen = seen, await database.fetch(_seen_query(is_postgres), {"thread_id": source})
        if not seen or seen == before:
            raise copy_refused(source, target)
        at = {f"seen_{name}": value for name, value in zip(SEEN, seen[0], strict=False)}
        texts = _THREADS.renewed(codec, (source, *seen[0][len(SEEN) :]), target)
        steps: list[Step] = [
            (_guard(is_postgres), {"thread_id": source, "target": target, "now": now, **at}),
            (_texts(is_postgres), {"target": target, **_new(_THREADS.columns, texts)}),
        ]
        for table in ROW_TABLES:
            steps += await _rows(database, codec, SHEETS[table.name], source, target)
        if await database.write(steps):
            return
    raise copy_outrun(source, target)


async def _rows(database: Database, codec: SealedCodec, sheet: Sheet, source: str, target: str) -> list[Step]:
    """Read the rows of the source, and give the steps that store them as rows of the target."""
    insert = _insert(sheet.table.name, database.is_postgres)
    names, size = _columns(sheet), len(sheet.names)
    steps: list[Step] = []
    values: dict[str, Any] = {"thread_id": source}
    while page := await database.fetch(_page(sheet.table.name, len(values) > 1, database.is_postgres), values):
        for row in page:
            sealed = _new(sheet.columns, sheet.renewed(codec, row[:size], target))
            steps.append((insert, _new(names, row) | sealed | {"new_thread_id": target}))
        values |= {f"after_{name}": value for name, value in zip(sheet.keys, page[-1], strict=False)}
    return steps


def _new(names: Sequence[str], values: Sequence[Any]) -> dict[str, Any]:
    return {f"new_{name}": value for name, value in zip(names, values, strict=True)}


def _columns(sheet: Sheet) -> list[str]:
    """All columns of a sheet's table, first what is needed to seal a row."""
    return [*sheet.names, *(column.name for column in sheet.table.columns if column.name not in sheet.names)]


def seen_query() -> Select[Any]:
    """What tells whether a thread has changed, and what is sealed in its row."""
    names = (*SEEN, *_THREADS.columns)
    this = threads.c.thread_id == bindparam("thread_id", type_=Text())
    return select(*(threads.c[name] for name in names)).where(this, threads.c.deleted_at.is_(None))


def texts_update() -> Update:
    """Replace what is sealed in a thread's row."""
    new = {name: bound(threads.c[name], "new_") for name in _THREADS.columns}
    return update(threads).where(threads.c.thread_id == bindparam("target", type_=Text())).values(new)


def row_insert(sheet: Sheet, *, is_postgres: bool) -> Insert:
    """Store a whole row."""
    new = {column.name: brought(column, "new_", is_postgres=is_postgres) for column in sheet.table.columns}
    return sheet.table.insert().values(new)


@lru_cache
def _seen_query(is_postgres: bool) -> Statement:
    return compiled(seen_query(), is_postgres=is_postgres)


@lru_cache
def _guard(is_postgres: bool) -> Statement:
    return compiled(copy_guard(is_postgres=is_postgres, is_as_seen=True), is_postgres=is_postgres)


@lru_cache
def _texts(is_postgres: bool) -> Statement:
    return compiled(texts_update(), is_postgres=is_postgres)


@lru_cache
def _insert(name: str, is_postgres: bool) -> Statement:
    return compiled(row_insert(SHEETS[name], is_postgres=is_postgres), is_postgres=is_postgres)


@lru_cache
def _page(name: str, has_cursor: bool, is_postgres: bool) -> Statement:
    sheet = SHEETS[name]
    query = page_query(sheet, has_cursor=has_cursor, names=_columns(sheet))
    this = sheet.table.c.thread_id == bindparam("thread_id", type_=Text())
    return compiled(query.where(this), is_postgres=is_postgres)

"""What is stored under an old key put under the current one, so that the old key can go.

Page by page through the tables. A row is replaced only if it is still what was read, so that runs go on meanwhile; what
they write is sealed as it should be already. Nothing else of a row changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from sqlalchemy import JSON, Select, Table, Text, Update, bindparam, cast, literal_column, select, tuple_, update
from sqlalchemy.types import TypeEngine

from everstep_savers.body import place_of
from everstep_savers.errors import CodecError
from everstep_savers.parts import StoredValue
from everstep_savers.rows import CheckpointRow, WriteRow
from everstep_savers.sealing import SealedCodec, item_place, renewed_body, renewed_text, value_place, write_place
from everstep_savers.sql.database import Database
from everstep_savers.sql.schema import channel_values, checkpoint_writes, checkpoints, store_items, threads
from everstep_savers.sql.statements import Statement, compiled

# Rows that are read, and replaced in one transaction, at once.
PAGE = 200

Row = Sequence[Any]


class Sheet(NamedTuple):
    """A table, and how its rows are sealed anew.

    Attributes:
        columns: What is sealed, after the keys and what else has to be known of a row.
        beside: What else has to be known.
        renewed: Gives the new columns of a row.
    """

    table: Table
    columns: tuple[str, ...]
    beside: tuple[str, ...]
    renewed: Callable[[SealedCodec, Row], tuple[Any, ...]]

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.table.primary_key)


async def reseal(database: Database, codec: SealedCodec, *names: str) -> int:
    """Seal the rows of some tables as they would be now, and tell how many were not.

    Raises:
        CodecError: Something cannot be opened; names the place. What came before it is done.
    """
    return sum([await _reseal(database, codec, _SHEETS[name]) for name in names])


async def _reseal(database: Database, codec: SealedCodec, sheet: Sheet) -> int:
    count = 0
    after: dict[str, Any] = {}
    while page := await database.fetch(_page(sheet.table.name, bool(after), database.is_postgres), after):
        steps = list(_steps(codec, sheet, page, is_postgres=database.is_postgres))
        count += sum(map(len, await database.run(steps))) if steps else 0
        after = {f"after_{name}": value for name, value in zip(sheet.keys, page[-1], strict=False)}
    return count


def _steps(
    codec: SealedCodec, sheet: Sheet, page: Sequence[Row], *, is_postgres: bool
) -> Iterator[tuple[Statement, dict[str, Any]]]:
    for row in page:
        old, new = tuple(row[-len(sheet.columns) :]), sheet.renewed(codec, row)
        if new != old:
            values = {f"key_{name}": value for name, value in zip(sheet.keys, row, strict=False)}
            values |= {f"old_{name}": value for name, value in zip(sheet.columns, old, strict=True)}
            values |= {f"new_{name}": value for name, value in zip(sheet.columns, new, strict=True)}
            yield _replacement(sheet.table.name, is_postgres), values


def _value(codec: SealedCodec, row: Row) -> tuple[Any, ...]:
    _, ns, channel, version, base, tag, data = row
    try:
        return codec.renewed((tag, data), value_place(ns, channel, StoredValue(version, tag, data, base)))
    except CodecError as error:
        raise error.within(f"version {version!r} of state key {channel!r}", f"thread {row[0]!r}") from error


def _write(codec: SealedCodec, row: Row) -> tuple[Any, ...]:
    write = WriteRow._make((*row, ""))
    try:
        return codec.renewed((write.tag, write.data), write_place(write))
    except CodecError as error:
        raise error.within(f"write to {write.channel!r}", *place_of(write)) from error


def _checkpoint(codec: SealedCodec, row: Row) -> tuple[Any, ...]:
    thread_id, ns, checkpoint_id, parent_id, versions, body = row
    checkpoint = CheckpointRow(thread_id, ns, checkpoint_id, parent_id, None, None, None, 0, versions, body, "")
    try:
        return (renewed_body(codec, checkpoint),)
    except CodecError as error:
        raise error.within(*place_of(checkpoint)) from error


def _thread(codec: SealedCodec, row: Row) -> tuple[Any, ...]:
    thread_id, tag, data, error = row
    try:
        if tag is not None:
            tag, data = codec.renewed((tag, data), "input")
        return tag, data, None if error is None else renewed_text(codec, error)
    except CodecError as unopened:
        raise unopened.within(f"thread {thread_id!r}") from unopened


def _item(codec: SealedCodec, row: Row) -> tuple[Any, ...]:
    namespace, key, tag, data, fields = row
    try:
        renewed = codec.renewed((tag, data), item_place(namespace.split("."), key))
    except CodecError as error:
        raise error.within(f"store item {key!r}", f"namespace {namespace!r}") from error
    return (*renewed, "{}" if codec.is_secret else fields)


_SHEETS = {
    sheet.table.name: sheet
    for sheet in (
        Sheet(channel_values, ("tag", "data"), ("base",), _value),
        Sheet(checkpoint_writes, ("tag", "data"), ("channel",), _write),
        Sheet(checkpoints, ("body",), ("parent_id", "versions"), _checkpoint),
        Sheet(threads, ("input_tag", "input_data", "error"), (), _thread),
        Sheet(store_items, ("tag", "data", "fields"), (), _item),
    )
}


def page_query(sheet: Sheet, *, has_cursor: bool) -> Select[Any]:
    """Some rows of a table, in the order of its keys."""
    table, names = sheet.table, (*sheet.keys, *sheet.beside, *sheet.columns)
    keys = [table.c[name] for name in sheet.keys]
    query = select(*(_plain(table, name) for name in names)).order_by(*keys).limit(literal_column(str(PAGE)))
    if has_cursor:
        after = [bindparam(f"after_{name}", type_=_bound(table.c[name].type)) for name in sheet.keys]
        query = query.where(tuple_(*keys) > tuple_(*after))
    return query


def replacement(sheet: Sheet, *, is_postgres: bool) -> Update:
    """Replace the sealed columns of a row, if they are what they were."""
    table = sheet.table
    is_it = [table.c[name] == bindparam(f"key_{name}", type_=_bound(table.c[name].type)) for name in sheet.keys]
    is_it += [
        _plain(table, name).is_not_distinct_from(bindparam(f"old_{name}", type_=_bound(table.c[name].type)))
        for name in sheet.columns
    ]
    new: dict[str, Any] = {}
    for name in sheet.columns:
        value = bindparam(f"new_{name}", type_=_bound(table.c[name].type))
        # To SQLite, JSON is text, and the name of that type means a number.
        new[name] = cast(value, JSON) if is_postgres and isinstance(table.c[name].type, JSON) else value
    # Databases want to hear of every statement whether it returns rows.
    return update(table).where(*is_it).values(new).returning(literal_column("1"))


def _plain(table: Table, name: str) -> Any:
    """A column as text, if it holds JSON."""
    column = table.c[name]
    return cast(column, Text) if isinstance(column.type, JSON) else column


def _bound(kind: TypeEngine[Any]) -> TypeEngine[Any]:
    return Text() if isinstance(kind, Text | JSON) else kind


@lru_cache
def _page(name: str, has_cursor: bool, is_postgres: bool) -> Statement:
    return compiled(page_query(_SHEETS[name], has_cursor=has_cursor), is_postgres=is_postgres)


@lru_cache
def _replacement(name: str, is_postgres: bool) -> Statement:
    return compiled(replacement(_SHEETS[name], is_postgres=is_postgres), is_postgres=is_postgres)

"""What is stored under an old key put under the current one, so that the old key can go.

Page by page through the tables. A row is replaced only if it is still what was read, so that runs go on meanwhile; what
they write is sealed as it should be already. Nothing else of a row changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from sqlalchemy import (
    JSON,
    BindParameter,
    Column,
    Select,
    Table,
    Text,
    Update,
    bindparam,
    cast,
    literal_column,
    select,
    tuple_,
    update,
)

from everstep_savers.body import place_of
from everstep_savers.errors import CodecError
from everstep_savers.parts import StoredValue
from everstep_savers.rows import CheckpointRow, WriteRow
from everstep_savers.sealing import (
    SealedCodec,
    error_place,
    input_place,
    item_place,
    renewed_body,
    renewed_text,
    value_place,
    write_place,
)
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
        renewed: Gives the new columns of a row, for a place in a thread; what is of no thread ignores its id.
    """

    table: Table
    columns: tuple[str, ...]
    beside: tuple[str, ...]
    renewed: Callable[[SealedCodec, Row, str], tuple[Any, ...]]

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.table.primary_key)

    @property
    def names(self) -> tuple[str, ...]:
        """What `renewed` takes."""
        return (*self.keys, *self.beside, *self.columns)


async def reseal(database: Database, codec: SealedCodec, *names: str) -> int:
    """Seal the rows of some tables as they would be now, and tell how many were not.

    Raises:
        CodecError: Something cannot be opened; names the place of the first such row. All others are done.
    """
    faults: list[CodecError] = []
    count = sum([await _reseal(database, codec, SHEETS[name], faults) for name in names])
    if faults:
        first = faults[0]
        if len(faults) > 1:
            first.add_note(f"{len(faults) - 1} more rows cannot be opened; all others are under the current key")
        raise first
    return count


async def _reseal(database: Database, codec: SealedCodec, sheet: Sheet, faults: list[CodecError]) -> int:
    count = 0
    after: dict[str, Any] = {}
    while page := await database.fetch(_page(sheet.table.name, bool(after), database.is_postgres), after):
        steps = list(_steps(codec, sheet, page, faults, is_postgres=database.is_postgres))
        count += sum(map(len, await database.run(steps))) if steps else 0
        after = {f"after_{name}": value for name, value in zip(sheet.keys, page[-1], strict=False)}
    return count


def _steps(
    codec: SealedCodec, sheet: Sheet, page: Sequence[Row], faults: list[CodecError], *, is_postgres: bool
) -> Iterator[tuple[Statement, dict[str, Any]]]:
    for row in page:
        try:
            old, new = tuple(row[-len(sheet.columns) :]), sheet.renewed(codec, row, row[0])
        except CodecError as error:
            faults.append(error)
            continue
        if new != old:
            values = {f"key_{name}": value for name, value in zip(sheet.keys, row, strict=False)}
            values |= {f"old_{name}": value for name, value in zip(sheet.columns, old, strict=True)}
            values |= {f"new_{name}": value for name, value in zip(sheet.columns, new, strict=True)}
            yield _replacement(sheet.table.name, is_postgres), values


def _value(codec: SealedCodec, row: Row, thread_id: str) -> tuple[Any, ...]:
    source, ns, channel, version, base, tag, data = row
    places = [value_place(each, ns, channel, StoredValue(version, tag, data, base)) for each in (source, thread_id)]
    try:
        return codec.renewed((tag, data), *places)
    except CodecError as error:
        raise error.within(f"version {version!r} of state key {channel!r}", f"thread {source!r}") from error


def _write(codec: SealedCodec, row: Row, thread_id: str) -> tuple[Any, ...]:
    write = WriteRow._make((*row, ""))
    try:
        return codec.renewed(
            (write.tag, write.data), write_place(write), write_place(write._replace(thread_id=thread_id))
        )
    except CodecError as error:
        raise error.within(f"write to {write.channel!r}", *place_of(write)) from error


def _checkpoint(codec: SealedCodec, row: Row, thread_id: str) -> tuple[Any, ...]:
    source, ns, checkpoint_id, parent_id, versions, body = row
    checkpoint = CheckpointRow(source, ns, checkpoint_id, parent_id, None, None, None, 0, versions, body, "")
    try:
        return (renewed_body(codec, checkpoint, thread_id),)
    except CodecError as error:
        raise error.within(*place_of(checkpoint)) from error


def _thread(codec: SealedCodec, row: Row, thread_id: str) -> tuple[Any, ...]:
    source, tag, data, error = row
    try:
        if tag is not None:
            tag, data = codec.renewed((tag, data), input_place(source), input_place(thread_id))
        if error is not None:
            error = renewed_text(codec, error, error_place(source), error_place(thread_id))
        return tag, data, error
    except CodecError as unopened:
        raise unopened.within(f"thread {source!r}") from unopened


def _item(codec: SealedCodec, row: Row, _: str) -> tuple[Any, ...]:
    namespace, key, tag, data, fields = row
    try:
        renewed = codec.renewed((tag, data), item_place(namespace.split("."), key))
    except CodecError as error:
        raise error.within(f"store item {key!r}", f"namespace {namespace!r}") from error
    return (*renewed, "{}" if codec.is_secret else fields)


SHEETS = {
    sheet.table.name: sheet
    for sheet in (
        Sheet(channel_values, ("tag", "data"), ("base",), _value),
        Sheet(checkpoint_writes, ("tag", "data"), ("channel",), _write),
        Sheet(checkpoints, ("body",), ("parent_id", "versions"), _checkpoint),
        Sheet(threads, ("input_tag", "input_data", "error"), (), _thread),
        Sheet(store_items, ("tag", "data", "fields"), (), _item),
    )
}


def page_query(sheet: Sheet, *, has_cursor: bool, names: Sequence[str] | None = None) -> Select[Any]:
    """Some rows of a table, in the order of its keys; by default what `Sheet.renewed` takes of them."""
    table = sheet.table
    keys = [table.c[name] for name in sheet.keys]
    query = (
        select(*(plain(table.c[name]) for name in names or sheet.names))
        .order_by(*keys)
        .limit(literal_column(str(PAGE)))
    )
    if has_cursor:
        after = [bound(table.c[name], "after_") for name in sheet.keys]
        query = query.where(tuple_(*keys) > tuple_(*after))
    return query


def replacement(sheet: Sheet, *, is_postgres: bool) -> Update:
    """Replace the sealed columns of a row, if they are what they were."""
    table = sheet.table
    is_it = [table.c[name] == bound(table.c[name], "key_") for name in sheet.keys]
    is_it += [plain(table.c[name]).is_not_distinct_from(bound(table.c[name], "old_")) for name in sheet.columns]
    new = {name: brought(table.c[name], "new_", is_postgres=is_postgres) for name in sheet.columns}
    # Databases want to hear of every statement whether it returns rows.
    return update(table).where(*is_it).values(new).returning(literal_column("1"))


def plain(column: Column[Any]) -> Any:
    """A column as text, if it holds JSON."""
    return cast(column, Text) if isinstance(column.type, JSON) else column


def bound(column: Column[Any], prefix: str) -> BindParameter[Any]:
    """A value for a column, bound as plain text if it is text or JSON."""
    kind = column.type
    return bindparam(f"{prefix}{column.name}", type_=Text() if isinstance(kind, Text | JSON) else kind)


def brought(column: Column[Any], prefix: str, *, is_postgres: bool) -> Any:
    """The same, as it is stored."""
    value = bound(column, prefix)
    # To SQLite, JSON is text, and the name of that type means a number.
    return cast(value, JSON) if is_postgres and isinstance(column.type, JSON) else value


@lru_cache
def _page(name: str, has_cursor: bool, is_postgres: bool) -> Statement:
    return compiled(page_query(SHEETS[name], has_cursor=has_cursor), is_postgres=is_postgres)


@lru_cache
def _replacement(name: str, is_postgres: bool) -> Statement:
    return compiled(replacement(SHEETS[name], is_postgres=is_postgres), is_postgres=is_postgres)

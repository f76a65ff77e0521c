"""Queries, as Core expressions.

Pure, see `statements`. Whatever is read of checkpoints is read by one query, and so belongs to one moment: a
*page* of checkpoint rows, the values they name (each once, however many checkpoints share it), and their
pending writes come as rows of one shape, told apart by their first column. Every argument is bound, those of
metadata filters included.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from sqlalchemy import (
    CTE,
    JSON,
    REAL,
    BigInteger,
    ColumnElement,
    CompoundSelect,
    FromClause,
    Select,
    Text,
    and_,
    bindparam,
    case,
    cast,
    func,
    literal_column,
    null,
    select,
    tuple_,
    union,
    union_all,
)
from sqlalchemy.types import TypeEngine

from everstep_savers.metadata import NO_ANCESTORS
from everstep_savers.sql.parts import VALUE_KEY, looked_up, named_versions, needed_values, read_parts
from everstep_savers.sql.schema import channel_values, checkpoint_writes, checkpoints, threads

# The kinds of rows a query returns, in their first column.
CHECKPOINT, VALUE, WRITE, THREAD, CHILD = range(5)

# After the kind: so many texts, integers and byte strings.
TEXTS, INTEGERS = 8, 6

_CHECKPOINT_TEXTS = (
    "thread_id",
    "checkpoint_ns",
    "checkpoint_id",
    "parent_id",
    "source",
    "run_id",
    "versions",
    "metadata",
)
_PLACE = ("thread_id", "checkpoint_ns", "checkpoint_id")
_VALUE_TEXTS = (*VALUE_KEY, "tag", "base")
_THREAD_TEXTS = ("thread_id", "head", "status", "run_id", "graph", "error", "input_tag", "starting_point")
_THREAD_INTEGERS = ("token", "attempt", "created_at", "updated_at", "newest_version", "removals")


class PageShape(NamedTuple):
    """What selects the checkpoints of a page; the values are bound.

    Attributes:
        columns: Metadata keys that are columns.
        filters: The JSON type of each other metadata filter.
        has_cursor: Whether the page follows another one.
        has_children: Whether checkpoints that are not listed may hold results of listed ones.
    """

    has_thread: bool = False
    has_namespace: bool = False
    has_id: bool = False
    has_before: bool = False
    has_cursor: bool = False
    columns: tuple[str, ...] = ()
    filters: tuple[str, ...] = ()
    has_children: bool = False


def load_query(which: str, *, is_postgres: bool, has_thread: bool) -> CompoundSelect[Any]:
    """One checkpoint with its values and writes, and optionally the thread's row.

    Args:
        which: ``"named"`` by its id, the thread's ``"head"``, or the ``"newest"`` of the namespace.
        is_postgres: The dialect, Postgres or SQLite.
        has_thread: Whether the thread's row comes along.
    """
    thread_id, kept = _bound("thread_id"), checkpoints.c
    found = select(checkpoints).where(kept.thread_id == thread_id, kept.checkpoint_ns == _bound("checkpoint_ns"))
    if which == "named":
        found = found.where(kept.checkpoint_id == _bound("checkpoint_id"))
    elif which == "head":
        head = select(threads.c.head).where(threads.c.thread_id == thread_id).scalar_subquery()
        found = found.where(kept.checkpoint_id == head)
    else:
        found = found.order_by(kept.checkpoint_id.desc()).limit(literal_column("1"))
    page = found.cte("page")
    parts = _page_parts(page, _value_rows_of_one(page, is_postgres=is_postgres), is_postgres=is_postgres)
    if has_thread:
        parts.append(_thread_rows().where(threads.c.thread_id == thread_id))
    return union_all(*parts)


def line_query(*, is_postgres: bool) -> CompoundSelect[Any]:
    """A checkpoint and its nearest ancestors, with the values and writes of the channels bound as ``channels``."""
    kept = checkpoints.c
    start = select(checkpoints, literal_column("1", BigInteger).label("place")).where(
        *(kept[name] == _bound(name) for name in _PLACE)
    )
    page = start.cte("page", recursive=True)
    on = and_(
        kept.thread_id == page.c.thread_id,
        kept.checkpoint_ns == page.c.checkpoint_ns,
        kept.checkpoint_id == page.c.parent_id,
    )
    parents = select(checkpoints, page.c.place + literal_column("1", BigInteger)).select_from(
        page.join(checkpoints, on)
    )
    # A line that bites its own tail is damage; reading it has to end all the same.
    page = page.union_all(parents.where(page.c.place < bindparam("limit", type_=BigInteger)))
    values = _value_rows(page, None, is_postgres=is_postgres, only_some=True)
    return union_all(*_page_parts(page, values, is_postgres=is_postgres))


def page_query(shape: PageShape, *, is_postgres: bool) -> CompoundSelect[Any]:
    """A page of checkpoints, newest first, with their values and writes."""
    kept = checkpoints.c
    found = select(checkpoints).where(*_conditions(shape, is_postgres=is_postgres))
    order = [kept.checkpoint_id] if _is_ordered_by_id(shape) else _full_order()
    page = found.order_by(*(each.desc() for each in order)).limit(bindparam("limit", type_=BigInteger)).cte("page")
    if not shape.has_children:
        return union_all(*_page_parts(page, _value_rows(page, None, is_postgres=is_postgres), is_postgres=is_postgres))
    children = _children(page, shape)
    values = _value_rows(page, children, is_postgres=is_postgres)
    return union_all(*_page_parts(page, values, is_postgres=is_postgres), _checkpoint_rows(CHILD, children))


def thread_query() -> Select[Any]:
    """The row of one thread."""
    return _thread_rows().where(threads.c.thread_id == _bound("thread_id"))


def threads_query(*, has_status: bool, has_cursor: bool) -> Select[Any]:
    """A page of threads, the most recently updated first."""
    kept = threads.c
    query = _thread_rows()
    if has_status:
        query = query.where(kept.status == _bound("status"))
    if has_cursor:
        cursor = tuple_(bindparam("cursor_updated_at", type_=BigInteger), _bound("cursor_thread_id"))
        query = query.where(tuple_(kept.updated_at, kept.thread_id) < cursor)
    return query.order_by(kept.updated_at.desc(), kept.thread_id.desc()).limit(bindparam("limit", type_=BigInteger))


def _conditions(shape: PageShape, *, is_postgres: bool) -> list[ColumnElement[bool]]:
    kept = checkpoints.c
    conditions: list[ColumnElement[bool]] = []
    if shape.has_thread:
        conditions.append(kept.thread_id == _bound("thread_id"))
    if shape.has_namespace:
        conditions.append(kept.checkpoint_ns == _bound("checkpoint_ns"))
    if shape.has_id:
        conditions.append(kept.checkpoint_id == _bound("checkpoint_id"))
    if shape.has_before:
        conditions.append(kept.checkpoint_id < _bound("before"))
    if shape.has_cursor and _is_ordered_by_id(shape):
        conditions.append(kept.checkpoint_id < _bound("cursor_id"))
    elif shape.has_cursor:
        cursor = tuple_(_bound("cursor_id"), _bound("cursor_thread_id"), _bound("cursor_ns"))
        conditions.append(tuple_(*_full_order()) < cursor)
    conditions += [kept[name] == bindparam(name, type_=kept[name].type) for name in shape.columns]
    for position, json_type in enumerate(shape.filters):
        key, value = _bound(f"key_{position}"), f"value_{position}"
        conditions.append(
            _is_json_on_postgres(key, value) if is_postgres else _is_json_on_sqlite(key, value, json_type)
        )
    return conditions


def _is_ordered_by_id(shape: PageShape) -> bool:
    return shape.has_thread and shape.has_namespace


def _full_order() -> Sequence[ColumnElement[Any]]:
    # A copied thread has the ids of its source.
    kept = checkpoints.c
    return kept.checkpoint_id, kept.thread_id, kept.checkpoint_ns


def _is_json_on_postgres(key: ColumnElement[Any], value: str) -> ColumnElement[bool]:
    # JSON keeps the text it was given, and that text is canonical.
    rest = cast(_rest(), JSON)
    return cast(rest.op("->")(key), Text) == _bound(value)


def _is_json_on_sqlite(key: ColumnElement[Any], value: str, json_type: str) -> ColumnElement[bool]:
    # json_each takes the key as a value; in a JSON path a quote could not be escaped.
    entry = func.json_each(_rest()).table_valued("key", "value", "type", name="entry")
    conditions = [entry.c.key == key, entry.c.type == literal_column(f"'{json_type}'")]
    if json_type == "real":
        conditions.append(entry.c.value == cast(_bound(value), REAL))
    elif json_type not in ("true", "false", "null"):
        conditions.append(entry.c.value == _bound(value))
    return select(literal_column("1")).select_from(entry).where(*conditions).exists()


def _rest() -> ColumnElement[str]:
    """The text of the JSON of a checkpoint's metadata, see `everstep_savers.metadata`."""
    kept = cast(checkpoints.c.metadata, Text)
    none, told = (literal_column(f"'{text}'", Text) for text in (NO_ANCESTORS, '{"parents":{}}'))
    return case((kept == none, told), else_=kept)


def _page_parts(page: CTE, values: Select[Any], *, is_postgres: bool) -> list[Select[Any]]:
    return [
        _checkpoint_rows(CHECKPOINT, page),
        values,
        _write_rows(page, is_postgres=is_postgres),
    ]


def _checkpoint_rows(kind: int, source: FromClause) -> Select[Any]:
    texts = [cast(source.c[name], Text) for name in _CHECKPOINT_TEXTS]
    return _shaped(kind, texts, [source.c.step, source.c.created_at], source.c.body)


def _value_rows(page: CTE, children: CTE | None, *, is_postgres: bool, only_some: bool = False) -> Select[Any]:
    """What the page's checkpoints need, and what was new in their children, which may be results."""
    keys: FromClause = needed_values(page, is_postgres=is_postgres, only_some=only_some)
    if children is not None:
        new = named_versions(children, is_postgres=is_postgres)
        keys = union(select(*(keys.c[name] for name in VALUE_KEY)), new).subquery("shown")
    stored, on = looked_up(channel_values, keys, VALUE_KEY, is_postgres=is_postgres)
    texts = [stored.c[name] for name in _VALUE_TEXTS]
    return _shaped(VALUE, texts, [], stored.c.data).select_from(keys.join(stored, on))


def _value_rows_of_one(page: CTE, *, is_postgres: bool) -> Select[Any]:
    parts = read_parts(page, is_postgres=is_postgres)
    return _shaped(VALUE, [parts.c[name] for name in _VALUE_TEXTS], [], parts.c.data)


def _write_rows(page: CTE, *, is_postgres: bool) -> Select[Any]:
    stored, on = looked_up(checkpoint_writes, page, _PLACE, is_postgres=is_postgres)
    kept = stored.c
    texts = [
        kept.thread_id,
        kept.checkpoint_ns,
        kept.checkpoint_id,
        kept.task_id,
        kept.channel,
        kept.tag,
        kept.task_path,
    ]
    return _shaped(WRITE, texts, [kept.idx], kept.data).select_from(page.join(stored, on))


def _thread_rows() -> Select[Any]:
    kept = threads.c
    texts = [kept[name] for name in _THREAD_TEXTS]
    integers = [kept[name] for name in _THREAD_INTEGERS]
    return _shaped(THREAD, texts, integers, kept.input_data).where(kept.deleted_at.is_(None))


def _children(page: CTE, shape: PageShape) -> CTE:
    """Children of the page's checkpoints; they are newer than their parents."""
    kept = checkpoints.c
    oldest = select(func.min(page.c.checkpoint_id)).scalar_subquery()
    parents = select(page.c.thread_id, page.c.checkpoint_ns, page.c.checkpoint_id)
    rows = select(checkpoints).where(
        kept.checkpoint_id > oldest,
        tuple_(kept.thread_id, kept.checkpoint_ns, kept.parent_id).in_(parents),
    )
    if shape.has_thread:
        rows = rows.where(kept.thread_id == _bound("thread_id"))
    if shape.has_namespace:
        rows = rows.where(kept.checkpoint_ns == _bound("checkpoint_ns"))
    return rows.cte("children")


def _shaped(kind: int, texts: Sequence[Any], integers: Sequence[Any], data: ColumnElement[Any]) -> Select[Any]:
    """One row of the common shape; what a kind does not use is null."""
    return select(
        literal_column(str(kind)).label("kind"),
        *(each.label(f"t{n}") for n, each in enumerate(_padded(texts, TEXTS, Text()))),
        *(each.label(f"n{n}") for n, each in enumerate(_padded(integers, INTEGERS, BigInteger()))),
        data.label("data"),
    )


def _padded(columns: Sequence[Any], length: int, kind: TypeEngine[Any]) -> list[Any]:
    return [*columns, *(cast(null(), kind) for _ in range(length - len(columns)))]


def _bound(name: str) -> ColumnElement[Any]:
    return bindparam(name, type_=Text())

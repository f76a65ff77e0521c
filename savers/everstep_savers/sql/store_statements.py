"""Statements of the store, as Core expressions.

Pure, see `statements`. Every argument is bound. On Postgres what is written comes as arrays, many rows a
statement, in the order of their keys, so that batches lock rows in one order; on SQLite row by row, which costs
nothing there. Similarity is computed by pgvector where the database has it, and outside of the database elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import orjson
from sqlalchemy import (
    ARRAY,
    CTE,
    JSON,
    REAL,
    BigInteger,
    ColumnElement,
    Delete,
    FromClause,
    Insert,
    Integer,
    Select,
    Table,
    Text,
    Update,
    and_,
    bindparam,
    case,
    cast,
    delete,
    func,
    literal_column,
    or_,
    select,
    true,
    tuple_,
    update,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.sql.dml import ReturningDelete
from sqlalchemy.types import Float, TypeEngine, UserDefinedType

from everstep_savers.sql.filters import Condition, condition_on
from everstep_savers.sql.schema import store_items, store_vectors
from everstep_savers.store.vectors import unpack

# What an item has besides its key, in the order of `ItemRow`.
_COLUMNS = ("namespace", "key", "tag", "data", "fields", "created_at", "updated_at", "ttl", "expires_at")
_READ = ("namespace", "key", "tag", "data", "created_at", "updated_at", "ttl")
_NOW = bindparam("now", type_=BigInteger())
_ONE: ColumnElement[int] = literal_column("1", Integer)
_ZERO: ColumnElement[float] = literal_column("0.0", Float)


class ItemRow(NamedTuple):
    """An item as it is written."""

    namespace: str
    key: str
    tag: str
    data: bytes
    fields: str
    created_at: int
    updated_at: int
    ttl: int | None
    expires_at: int | None


class FoundRow(NamedTuple):
    """An item as it is read."""

    namespace: str
    key: str
    tag: str
    data: bytes
    created_at: int
    updated_at: int
    ttl: int | None


class VectorRow(NamedTuple):
    """A vector as it is written."""

    namespace: str
    key: str
    place: int
    vector: bytes


class Search(NamedTuple):
    """What selects items; the values are bound.

    Attributes:
        conditions: See `filters`.
        is_unscored: Only items without a vector.
        has_cursor: Only items after the one at the cursor.
    """

    has_prefix: bool = False
    conditions: tuple[Condition, ...] = ()
    is_unscored: bool = False
    has_cursor: bool = False


class Vector(UserDefinedType[Any]):
    """The type that pgvector adds to a database."""

    cache_ok = True

    def get_col_spec(self, **_: Any) -> str:
        return "vector"


def prefix_values(prefix: str) -> dict[str, str]:
    """The bound values of a namespace prefix: the namespace itself, and the range of those below it."""
    return {"prefix": prefix, "first_below": f"{prefix}.", "behind_below": f"{prefix}/"}


def key_values(keys: Iterable[tuple[str, str]], *, is_postgres: bool) -> dict[str, Any]:
    """The bound values of a list of keys."""
    pairs = list(keys)
    if not is_postgres:
        return {"keys": orjson.dumps(pairs).decode()}
    return {"namespaces": [namespace for namespace, _ in pairs], "keys": [key for _, key in pairs]}


def get_query(*, is_postgres: bool) -> Select[Any]:
    """The items of some keys."""
    named = _named(is_postgres=is_postgres)
    on = _same_key(store_items, named)
    if not is_postgres:
        return select(*_read(store_items)).select_from(named.join(store_items, on)).where(_is_alive())
    # Postgres cannot know how many keys there are; this leaves it nothing but the index.
    found = select(*_read(store_items)).where(on, _is_alive()).offset(literal_column("0")).lateral("found")
    return select(*_read(found)).select_from(named.join(found, true()))


def search_query(search: Search, *, is_postgres: bool) -> Select[Any]:
    """Items in the order in which they were first put."""
    kept = store_items.c
    query = select(*_read(store_items)).where(*_conditions(search, store_items, is_postgres=is_postgres))
    if search.is_unscored:
        has_vector = select(_ONE).where(_same_key(store_vectors, store_items), _has_dims(is_postgres))
        query = query.where(~has_vector.correlate(store_items).exists())
    order = (kept.created_at, kept.namespace, kept.key)
    if search.has_cursor:
        query = query.where(
            tuple_(*order) > _cursor(("created_at", BigInteger()), ("namespace", Text()), ("key", Text()))
        )
    return query.order_by(*order).limit(_number("limit"))


def vectors_query(search: Search, *, is_postgres: bool) -> Select[Any]:
    """Vectors of items, by key: namespace, key, place, vector, and when the item was first put."""
    kept = store_vectors.c
    query = _vectors(
        select(kept.namespace, kept.key, kept.place, kept.vector, store_items.c.created_at), search, is_postgres
    )
    order = (kept.namespace, kept.key, kept.place)
    if search.has_cursor:
        query = query.where(tuple_(*order) > _cursor(("namespace", Text()), ("key", Text()), ("place", Integer())))
    return query.order_by(*order).limit(_number("limit"))


def ranking_query(search: Search, *, is_postgres: bool) -> Select[Any]:
    """Keys and scores of items, the most similar first, by pgvector."""
    kept = store_items.c
    query = cast(bindparam("query", type_=ARRAY(REAL)), Vector())
    cosine = _ONE - cast(store_vectors.c.vector, Vector()).op("<=>", return_type=Float())(query)
    # A vector without length has no angle; one of another length cannot be compared.
    known = case((_has_dims(is_postgres), func.coalesce(func.nullif(cosine, literal_column("'NaN'::float8")), _ZERO)))
    score = func.max(known).label("score")
    found = _vectors(select(kept.namespace, kept.key, score), search, is_postgres=is_postgres)
    found = found.group_by(kept.namespace, kept.key, kept.created_at)
    return (
        found.order_by(score.desc(), kept.created_at, kept.namespace, kept.key)
        .limit(_number("limit"))
        .offset(_number("offset"))
    )


def pgvector_query() -> Select[Any]:
    """Whether the database has pgvector."""
    return select(func.to_regtype("vector").is_not(None))


def namespaces_query(*, has_prefix: bool) -> Select[Any]:
    """The namespaces that hold items."""
    query = select(store_items.c.namespace).distinct().where(_is_alive())
    return query.where(_is_below(store_items)) if has_prefix else query


def put_statement(*, is_postgres: bool) -> Insert:
    """Write items, and forget their vectors on Postgres."""
    bound = {name: bindparam(name, type_=_bare(store_items.c[name])) for name in _COLUMNS}
    if not is_postgres:
        return _replacing(sqlite.insert(store_items).values(bound))
    arrays = [bindparam(f"{name}s", type_=ARRAY(_bare(store_items.c[name]))) for name in _COLUMNS]
    rows = func.unnest(*arrays).table_valued(*_COLUMNS, name="rows").render_derived()
    values = [cast(rows.c[name], JSON) if name == "fields" else rows.c[name] for name in _COLUMNS]
    # As the columns are ordered, whatever the database's own collation is.
    order = (rows.c.namespace.collate("C"), rows.c.key.collate("C"))
    insert = postgresql.insert(store_items).from_select(_COLUMNS, select(*values).order_by(*order))
    return _replacing(insert).add_cte(_forgotten())


def put_values(rows: Sequence[ItemRow]) -> dict[str, Any]:
    """The bound values of items on Postgres."""
    columns = dict(zip(_COLUMNS, map(list, zip(*rows, strict=True)), strict=True))
    return {f"{name}s": values for name, values in columns.items()}


def delete_statement(*, is_postgres: bool) -> Delete:
    """Remove items; on Postgres their vectors too, and in the order in which `put_statement` writes items.

    In any other order, two that write the same items would wait for each other.
    """
    kept, removed = store_items.c, delete(store_items)
    if not is_postgres:
        return removed.where(_is_named(store_items, is_postgres=False))
    found = select(kept.namespace, kept.key).where(_is_named(store_items, is_postgres=True))
    found = found.order_by(kept.namespace, kept.key).with_for_update()
    return removed.where(tuple_(kept.namespace, kept.key).in_(found)).add_cte(_forgotten())


def forget_statement(*, is_postgres: bool) -> Delete:
    """Remove the vectors of items."""
    return delete(store_vectors).where(_is_named(store_vectors, is_postgres=is_postgres))


def vector_statement(*, is_postgres: bool) -> Insert:
    """Write vectors: many on Postgres, where an array of arrays would be a matrix and so each comes as text."""
    kept = store_vectors.c
    if not is_postgres:
        return store_vectors.insert()
    kinds: dict[str, TypeEngine[Any]] = {"namespace": Text(), "key": Text(), "place": Integer(), "vector": Text()}
    arrays = [bindparam(f"{name}s", type_=ARRAY(kind)) for name, kind in kinds.items()]
    rows = func.unnest(*arrays).table_valued(*kinds, name="rows").render_derived()
    values = [rows.c.namespace, rows.c.key, rows.c.place, cast(rows.c.vector, ARRAY(REAL))]
    return store_vectors.insert().from_select([kept.namespace, kept.key, kept.place, kept.vector], select(*values))


def vector_values(rows: Sequence[VectorRow]) -> dict[str, Any]:
    """The bound values of vectors on Postgres."""
    namespaces, keys, places, packed = map(list, zip(*rows, strict=True))
    texts = [f"{{{','.join(map(str, unpack(vector)))}}}" for vector in packed]
    return {"namespaces": namespaces, "keys": keys, "places": places, "vectors": texts}


def refresh_statement(*, is_postgres: bool) -> Update:
    """Start the time to live of items anew; one that somebody is writing just now starts anew by that."""
    kept = store_items.c
    lives = kept.ttl.is_not(None)
    refreshed = update(store_items).values(expires_at=_NOW + kept.ttl)
    if not is_postgres:
        return refreshed.where(_is_named(store_items, is_postgres=False), lives)
    locked = (
        select(kept.namespace, kept.key)
        .where(_is_named(store_items, is_postgres=True), lives)
        .with_for_update(skip_locked=True)
        .cte("locked")
    )
    return refreshed.where(_same_key(store_items, locked))


def sweep_steps(*, is_postgres: bool) -> list[Delete | ReturningDelete[Any] | Select[Any]]:
    """Remove up to ``limit`` items whose time to live is over; the last step returns a row for each."""
    kept = store_items.c
    over = select(kept.namespace, kept.key).where(kept.expires_at <= _NOW)
    over = over.order_by(kept.expires_at, kept.namespace, kept.key).limit(_number("limit"))
    if not is_postgres:
        forgotten = delete(store_vectors).where(tuple_(store_vectors.c.namespace, store_vectors.c.key).in_(over))
        return [forgotten, delete(store_items).where(tuple_(kept.namespace, kept.key).in_(over)).returning(kept.key)]
    locked = over.with_for_update(skip_locked=True).cte("over")
    removed = (
        delete(store_items).where(_same_key(store_items, locked)).returning(kept.namespace, kept.key).cte("removed")
    )
    forgotten = delete(store_vectors).where(_same_key(store_vectors, removed))
    return [select(removed.c.key).add_cte(forgotten.cte("forgotten"))]


def _vectors(query: Select[Any], search: Search, is_postgres: bool) -> Select[Any]:
    joined = store_vectors.join(store_items, _same_key(store_vectors, store_items))
    conditions = _conditions(search, store_vectors, is_postgres=is_postgres)
    return query.select_from(joined).where(*conditions, _has_dims(is_postgres))


def _conditions(search: Search, keyed: Table, *, is_postgres: bool) -> list[ColumnElement[bool]]:
    """What selects items; the prefix is looked up in the index of `keyed`."""
    conditions = [_is_alive()]
    if search.has_prefix:
        conditions.append(_is_below(keyed))
    return conditions + [
        condition_on(store_items, condition, number, is_postgres=is_postgres)
        for number, condition in enumerate(search.conditions)
    ]


def _is_below(table: Table) -> ColumnElement[bool]:
    namespace = table.c.namespace
    prefix, first = bindparam("prefix", type_=Text()), bindparam("first_below", type_=Text())
    # One range for the index, which between them also has names such as "acme-corp" after "acme".
    in_range = and_(namespace >= prefix, namespace < bindparam("behind_below", type_=Text()))
    return and_(in_range, or_(namespace == prefix, namespace >= first))


def _is_alive() -> ColumnElement[bool]:
    expires_at = store_items.c.expires_at
    return or_(expires_at.is_(None), expires_at > _NOW)


def _has_dims(is_postgres: bool) -> ColumnElement[bool]:
    length = func.cardinality if is_postgres else func.length
    return length(store_vectors.c.vector) == bindparam("length", type_=Integer())


def _replacing(insert: Any) -> Insert:
    kept, brought = store_items.c, insert.excluded
    changes: dict[str, Any] = {name: brought[name] for name in _COLUMNS if not kept[name].primary_key}
    # An item whose time was over is a new one.
    changes["created_at"] = case((kept.expires_at <= brought.updated_at, brought.created_at), else_=kept.created_at)
    result: Insert = insert.on_conflict_do_update(index_elements=[kept.namespace, kept.key], set_=changes)
    return result


def _forgotten() -> CTE:
    return delete(store_vectors).where(_is_named(store_vectors, is_postgres=True)).cte("forgotten")


def _is_named(table: Table, *, is_postgres: bool) -> ColumnElement[bool]:
    named = _named(is_postgres=is_postgres)
    return tuple_(table.c.namespace, table.c.key).in_(select(named.c.namespace, named.c.key))


def _named(*, is_postgres: bool) -> FromClause:
    """The keys that are bound."""
    if is_postgres:
        arrays = [bindparam(name, type_=ARRAY(Text())) for name in ("namespaces", "keys")]
        return func.unnest(*arrays).table_valued("namespace", "key", name="named").render_derived()
    pairs = func.json_each(bindparam("keys", type_=Text())).table_valued("value", name="pairs")
    namespace, key = (func.json_extract(pairs.c.value, literal_column(f"'$[{place}]'")) for place in (0, 1))
    return select(namespace.label("namespace"), key.label("key")).subquery("named")


def _same_key(left: FromClause, right: FromClause) -> ColumnElement[bool]:
    return and_(left.c.namespace == right.c.namespace, left.c.key == right.c.key)


def _read(source: FromClause) -> list[ColumnElement[Any]]:
    return [source.c[name] for name in _READ]


def _cursor(*columns: tuple[str, Any]) -> Any:
    return tuple_(*(bindparam(f"cursor_{name}", type_=kind) for name, kind in columns))


def _number(name: str) -> ColumnElement[int]:
    return bindparam(name, type_=BigInteger())


def _bare(column: Any) -> Any:
    """The type in which a value is bound: plain text for keys and for JSON."""
    return Text() if isinstance(column.type, Text | JSON) else column.type

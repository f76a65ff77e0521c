"""The SQL cache, for SQLite and Postgres alike.

An entry is a row; many are read by one query and written in one transaction. Entries whose time is over are left out,
and now and then removed while others are written. Writing an entry twice is as good as once, and so is losing it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Self, Unpack

import orjson
from sqlalchemy import (
    ARRAY,
    BigInteger,
    ColumnElement,
    Delete,
    Insert,
    Integer,
    LargeBinary,
    Select,
    Text,
    any_,
    bindparam,
    delete,
    func,
    literal_column,
    or_,
    select,
    tuple_,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncEngine
from sqlalchemy.types import TypeEngine

from everstep_savers.addresses import checked_key
from everstep_savers.blocking import run_blocking
from everstep_savers.cache import (
    BaseCache,
    FullKey,
    Namespace,
    ValueT,
    decode_entry,
    encode_entries,
    microseconds,
    unique_keys,
)
from everstep_savers.codec import Codec
from everstep_savers.sql.database import Database, parse_url
from everstep_savers.sql.opening import OpensDatabase, Where
from everstep_savers.sql.schema import cache_entries
from everstep_savers.sql.statements import Statement, compiled

# Microseconds between two removals of entries whose time is over, and so many go at once.
SWEEP_INTERVAL = 60_000_000
SWEEP = 1000

_KINDS: Mapping[str, TypeEngine[Any]] = {
    "namespace": Text(),
    "key": Text(),
    "tag": Text(),
    "data": LargeBinary(),
    "expires_at": BigInteger(),
}


class SQLCache(OpensDatabase, BaseCache[ValueT]):
    """Keeps results of tasks in SQLite or Postgres.

    Made by `from_url`, or from an engine that the program owns and closes itself. Use it as an async context
    manager, or as it is: it opens at its first use, and `aclose` closes it.

    Args:
        engine: An engine of the program.
        auto_migrate: Create or upgrade the schema when the cache opens.
        codec: Turns values into bytes and back.
        clock: Seconds since 1970.
        where: For an engine: see `Where`.
    """

    kind = "cache"

    def __init__(
        self,
        engine: AsyncEngine | Database,
        *,
        auto_migrate: bool = False,
        codec: Codec | None = None,
        clock: Callable[[], float] = time.time,
        **where: Unpack[Where],
    ) -> None:
        OpensDatabase.__init__(self, engine, auto_migrate=auto_migrate, **where)
        BaseCache.__init__(self, codec=codec)
        self._clock = clock
        self._next_sweep = 0

    @classmethod
    def from_url(cls, url: str, *, synchronous: str = "NORMAL", **options: Any) -> Self:
        """Make a cache for a database URL, such as ``sqlite:///cache.db`` or ``postgresql://host/name``.

        Args:
            url: An in-memory database, ``sqlite:///:memory:``, always has the newest schema.
            synchronous: SQLite's setting of that name; ``NORMAL`` may lose the last entries when the power fails.
            options: See `SQLCache`.
        """
        where: Any = {name: options.pop(name) for name in Where.__optional_keys__ & options.keys()}
        return cls(cls._database_of(parse_url(url), synchronous=synchronous, **where), **options)

    async def aget(self, keys: Sequence[FullKey]) -> dict[FullKey, ValueT]:
        wanted = unique_keys(keys)
        if not wanted:
            return {}
        database = await self._opened()
        values = _key_values(wanted, is_postgres=database.is_postgres) | {"now": microseconds(self._clock())}
        rows = await database.fetch(_get(database.is_postgres), values)
        found = ((_full_key(namespace, key), (tag, data)) for namespace, key, tag, data in rows)
        return {full: decode_entry(self.codec, full, encoded) for full, encoded in found}

    async def aset(self, pairs: Mapping[FullKey, tuple[ValueT, int | None]]) -> None:
        now = microseconds(self._clock())
        rows = sorted(
            (*_stored_key(full), *entry.encoded, entry.expires_at)
            for full, entry in encode_entries(self.codec, pairs, now).items()
        )
        if not rows:
            return
        database = await self._opened()
        steps = _put_steps(rows, is_postgres=database.is_postgres)
        if now >= self._next_sweep:
            self._next_sweep = now + SWEEP_INTERVAL
            steps.append((_sweep(database.is_postgres), {"now": now, "limit": SWEEP}))
        await database.run(steps)

    async def aclear(self, namespaces: Sequence[Namespace] | None = None) -> None:
        database = await self._opened()
        values: dict[str, Any] = {}
        if namespaces is not None:
            texts = sorted({_stored_namespace(namespace) for namespace in namespaces})
            values["namespaces"] = texts if database.is_postgres else orjson.dumps(texts).decode()
        await database.run([(_clear(namespaces is None, database.is_postgres), values)])

    async def asweep(self) -> int:
        """Remove the entries whose time is over, in batches, and tell how many."""
        database = await self._opened()
        values = {"now": microseconds(self._clock()), "limit": SWEEP}
        count, found = 0, SWEEP
        while found == SWEEP:
            (removed,) = await database.run([(_sweep(database.is_postgres), values)])
            found = len(removed)
            count += found
        return count

    def get(self, keys: Sequence[FullKey]) -> dict[FullKey, ValueT]:
        return run_blocking(lambda: self.aget(keys), "get", self._loop)

    def set(self, pairs: Mapping[FullKey, tuple[ValueT, int | None]]) -> None:
        run_blocking(lambda: self.aset(pairs), "set", self._loop)

    def clear(self, namespaces: Sequence[Namespace] | None = None) -> None:
        run_blocking(lambda: self.aclear(namespaces), "clear", self._loop)


def get_query(*, is_postgres: bool) -> Select[Any]:
    """The entries of some keys."""
    kept = cache_entries.c
    is_alive = or_(kept.expires_at.is_(None), kept.expires_at > bindparam("now", type_=BigInteger()))
    query = select(kept.namespace, kept.key, kept.tag, kept.data)
    return query.where(tuple_(kept.namespace, kept.key).in_(_named(is_postgres=is_postgres)), is_alive)


def put_statement(*, is_postgres: bool) -> Insert:
    """Write entries: many on Postgres, in the order of their keys, and one on SQLite."""
    if is_postgres:
        arrays = [bindparam(f"{name}s", type_=ARRAY(kind)) for name, kind in _KINDS.items()]
        rows = func.unnest(*arrays).table_valued(*_KINDS, name="rows").render_derived()
        # As the columns are ordered, whatever the database's own collation is.
        order = (rows.c.namespace.collate("C"), rows.c.key.collate("C"))
        ordered = select(*(rows.c[name] for name in _KINDS)).order_by(*order)
        insert: Any = postgresql.insert(cache_entries).from_select(list(_KINDS), ordered)
    else:
        insert = sqlite.insert(cache_entries).values({name: bindparam(name, type_=_KINDS[name]) for name in _KINDS})
    changes = {name: insert.excluded[name] for name in ("tag", "data", "expires_at")}
    result: Insert = insert.on_conflict_do_update(index_elements=["namespace", "key"], set_=changes)
    return result


def clear_statement(*, has_namespaces: bool, is_postgres: bool) -> Delete:
    """Remove the entries of some namespaces, or all: on Postgres in the order in which others write them.

    In any other order, this and a process that writes the same entries would wait for each other.
    """
    kept, removed = cache_entries.c, delete(cache_entries)
    if is_postgres:
        found = select(kept.namespace, kept.key).order_by(kept.namespace, kept.key).with_for_update()
        if has_namespaces:
            found = found.where(kept.namespace == any_(bindparam("namespaces", type_=ARRAY(Text()))))
        return removed.where(tuple_(kept.namespace, kept.key).in_(found))
    if not has_namespaces:
        return removed
    names = func.json_each(bindparam("namespaces", type_=Text())).table_valued("value", name="names")
    return removed.where(kept.namespace.in_(select(names.c.value)))


def sweep_statement(*, is_postgres: bool) -> Any:
    """Remove up to ``limit`` entries whose time is over, and return a row for each."""
    kept = cache_entries.c
    over = select(kept.namespace, kept.key).where(kept.expires_at <= bindparam("now", type_=BigInteger()))
    over = over.order_by(kept.expires_at).limit(bindparam("limit", type_=BigInteger()))
    if is_postgres:
        over = over.with_for_update(skip_locked=True)
    return delete(cache_entries).where(tuple_(kept.namespace, kept.key).in_(over)).returning(_ONE)


_ONE: ColumnElement[int] = literal_column("1", Integer)


def _named(*, is_postgres: bool) -> Select[Any]:
    """The keys that are bound."""
    if is_postgres:
        arrays = [bindparam(name, type_=ARRAY(Text())) for name in ("namespaces", "keys")]
        rows = func.unnest(*arrays).table_valued("namespace", "key", name="named").render_derived()
        return select(rows.c.namespace, rows.c.key)
    pairs = func.json_each(bindparam("keys", type_=Text())).table_valued("value", name="pairs")
    return select(*(func.json_extract(pairs.c.value, literal_column(f"'$[{place}]'")) for place in (0, 1)))


def _key_values(keys: Sequence[FullKey], *, is_postgres: bool) -> dict[str, Any]:
    pairs = [_stored_key(full) for full in keys]
    if not is_postgres:
        return {"keys": orjson.dumps(pairs).decode()}
    return {"namespaces": [namespace for namespace, _ in pairs], "keys": [key for _, key in pairs]}


def _put_steps(rows: Sequence[tuple[Any, ...]], *, is_postgres: bool) -> list[tuple[Statement, Mapping[str, Any]]]:
    statement = _put(is_postgres)
    if not is_postgres:
        return [(statement, dict(zip(_KINDS, row, strict=True))) for row in rows]
    columns = zip(_KINDS, map(list, zip(*rows, strict=True)), strict=True)
    return [(statement, {f"{name}s": values for name, values in columns})]


def _stored_key(full: FullKey) -> tuple[str, str]:
    namespace, key = full
    return _stored_namespace(namespace), checked_key("cache key", key)


def _stored_namespace(namespace: Namespace) -> str:
    return orjson.dumps([checked_key("cache namespace", label) for label in namespace]).decode()


def _full_key(namespace: str, key: str) -> FullKey:
    return tuple(orjson.loads(namespace)), key


@lru_cache
def _get(is_postgres: bool) -> Statement:
    return compiled(get_query(is_postgres=is_postgres), is_postgres=is_postgres)


@lru_cache
def _put(is_postgres: bool) -> Statement:
    return compiled(put_statement(is_postgres=is_postgres), is_postgres=is_postgres)


@lru_cache
def _clear(everything: bool, is_postgres: bool) -> Statement:
    statement = clear_statement(has_namespaces=not everything, is_postgres=is_postgres)
    return compiled(statement, is_postgres=is_postgres)


@lru_cache
def _sweep(is_postgres: bool) -> Statement:
    return compiled(sweep_statement(is_postgres=is_postgres), is_postgres=is_postgres)

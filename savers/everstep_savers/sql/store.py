"""The SQL store, for SQLite and Postgres alike.

It turns operations into statements and rows into items, and knows neither a dialect nor a driver. Values go through
the codec; the database sorts out beforehand what cannot match a filter, and `store.matching` decides on the values
themselves, so that every store finds the same. No connection is held while values are encoded or embedded, nor
between two pages of a search.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Self, Unpack

from sqlalchemy.ext.asyncio import AsyncEngine

from everstep_savers.codec import Codec, default_codec
from everstep_savers.sealing import SealedCodec
from everstep_savers.sql import store_statements as statements
from everstep_savers.sql.database import Database, parse_url
from everstep_savers.sql.filters import conditions_of, fields_of
from everstep_savers.sql.opening import OpensDatabase, Where
from everstep_savers.sql.resealing import reseal
from everstep_savers.sql.statements import Statement, compiled
from everstep_savers.sql.store_statements import FoundRow, ItemRow, Search, VectorRow
from everstep_savers.store.base import (
    GetOp,
    Item,
    ListNamespacesOp,
    Op,
    PutOp,
    Result,
    SearchItem,
    SearchOp,
    TTLConfig,
    check_ttl_config,
    checked_ops,
)
from everstep_savers.store.batch import AsyncBatchedBaseStore
from everstep_savers.store.matching import literal_start, matches, matching_namespaces
from everstep_savers.store.memory import decode_value, encode_value, time_of, ttl_of
from everstep_savers.store.vectors import IndexConfig, VectorIndex, Vectors, pack, similarities, unpack

logger = logging.getLogger("everstep")

# Rows that a search reads at once, at least, when it has to look at values; vectors that it compares at once.
PAGE = 50
VECTORS_PAGE = 2000
# Items that a sweep removes in one transaction.
SWEEP = 1000
# Minutes between two sweeps.
SWEEP_INTERVAL = 5.0

Place = tuple[str, str]  # namespace and key as they are stored
Step = tuple[Statement, Mapping[str, Any]]


class SQLStore(OpensDatabase, AsyncBatchedBaseStore):
    """Keeps items in SQLite or Postgres.

    Made by `from_url`, or from an engine that the program owns and closes itself. Use it as an async context
    manager, or as it is: it opens at its first use, and `aclose` closes it.

    Args:
        engine: An engine of the program.
        index: Makes items searchable by meaning. Vectors of another length, of an index that was configured
            otherwise, do not count until their items are put again.
        ttl: How long items live by default.
        auto_migrate: Create or upgrade the schema when the store opens.
        codec: Turns values into bytes and back.
        clock: Seconds since 1970.
        where: For an engine: see `Where`.
    """

    kind = "store"
    supports_ttl = True

    def __init__(
        self,
        engine: AsyncEngine | Database,
        *,
        index: IndexConfig | None = None,
        ttl: TTLConfig | None = None,
        auto_migrate: bool = False,
        codec: Codec | None = None,
        clock: Callable[[], float] = time.time,
        **where: Unpack[Where],
    ) -> None:
        OpensDatabase.__init__(self, engine, auto_migrate=auto_migrate, **where)
        AsyncBatchedBaseStore.__init__(self)
        self.ttl_config = check_ttl_config(ttl)
        self.codec = codec or default_codec
        self._index = VectorIndex(index) if index else None
        self._clock = clock
        self._last = 0
        self._has_pgvector: bool | None = None
        self._sweeper: asyncio.Task[None] | None = None

    @classmethod
    def from_url(cls, url: str, *, synchronous: str = "FULL", **options: Any) -> Self:
        """Make a store for a database URL, such as ``sqlite:///items.db`` or ``postgresql://host/name``.

        Args:
            url: An in-memory database, ``sqlite:///:memory:``, always has the newest schema.
            synchronous: SQLite's setting of that name; ``FULL`` syncs each write to disk.
            options: See `SQLStore`.
        """
        where: Any = {name: options.pop(name) for name in Where.__optional_keys__ & options.keys()}
        return cls(cls._database_of(parse_url(url), synchronous=synchronous, **where), **options)

    @classmethod
    def from_conn_string(cls, conn_string: str, **options: Any) -> Self:
        """`from_url` as people who come from LangGraph know it.

        Args:
            conn_string: A URL; or the path of a SQLite database, which may be ``:memory:``.
            options: See `SQLStore`; the schema is created or upgraded on opening, unless `auto_migrate` is False.
        """
        url = conn_string if "://" in conn_string else f"sqlite:///{conn_string}"
        return cls.from_url(url, **{"auto_migrate": True, **options})

    async def aclose(self) -> None:
        await self.stop_ttl_sweeper()
        await OpensDatabase.aclose(self)

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        checked = checked_ops(ops)
        vectors = await self._index.aembed(checked) if self._index else Vectors()
        puts = {(op.namespace, op.key): op for op in checked if isinstance(op, PutOp)}
        steps = await self._write_steps(list(puts.values()), vectors)
        results = await self._read(checked, vectors)
        if steps:
            database = await self._opened()
            await database.run(steps)
        return results

    async def areseal(self) -> int:
        """Put all items under the codec's current key that are not, and tell how many, see `SQLSaver.areseal`."""
        if not isinstance(self.codec, SealedCodec):
            return 0
        return await reseal(await self._opened(), self.codec, "store_items")

    async def sweep_ttl(self) -> int:
        """Remove the items whose time to live is over, in batches, and tell how many."""
        database = await self._opened()
        values = {"now": self._now(), "limit": SWEEP}
        count, found = 0, SWEEP
        while found == SWEEP:
            *_, removed = await database.run([(step, values) for step in _sweep(database.is_postgres)])
            found = len(removed)
            count += found
        return count

    async def start_ttl_sweeper(self, sweep_interval_minutes: float | None = None) -> asyncio.Task[None]:
        """Sweep again and again, until `stop_ttl_sweeper` or `aclose`.

        Args:
            sweep_interval_minutes: By default as `ttl_config` says, or 5.
        """
        if self._sweeper is None or self._sweeper.done():
            given = sweep_interval_minutes or (self.ttl_config or {}).get("sweep_interval_minutes")
            sweeping = self._sweep_every(given or SWEEP_INTERVAL)
            self._sweeper = asyncio.create_task(sweeping, name="everstep store sweeper")
        return self._sweeper

    async def stop_ttl_sweeper(self, timeout: float | None = None) -> bool:
        """Stop sweeping; False if a sweep under way has not ended within `timeout` seconds."""
        sweeper = self._sweeper
        if sweeper is None or sweeper.get_loop() is not asyncio.get_running_loop():
            return True
        self._sweeper = None
        sweeper.cancel()
        done, _ = await asyncio.wait([sweeper], timeout=timeout)
        return bool(done)

    def _home_loop(self) -> asyncio.AbstractEventLoop | None:
        return self._loop

    async def _sweep_every(self, minutes: float) -> None:
        while True:
            await asyncio.sleep(minutes * 60)
            try:
                count = await self.sweep_ttl()
            except Exception as error:  # the next sweep may go better
                logger.warning("expired store items could not be removed: %s: %s", type(error).__name__, error)
            else:
                logger.debug("removed %d expired store items", count)

    async def _write_steps(self, puts: Sequence[PutOp], vectors: Vectors) -> list[Step]:
        if not puts:
            return []
        rows = sorted(self._row(op) for op in puts if op.value is not None)
        removed = sorted(_place(op) for op in puts if op.value is None)
        indexed = self._vector_rows(puts, vectors)
        if (await self._opened()).is_postgres:
            return _postgres_steps(rows, removed, indexed, is_indexing=self._index is not None)
        return _sqlite_steps(rows, removed, indexed)

    def _row(self, op: PutOp) -> ItemRow:
        tag, data = encode_value(self.codec, op)
        now, ttl = self._now(), ttl_of(op)
        expires_at = None if ttl is None else now + ttl
        # What is secret must not stand beside it, for filters to see.
        fields = "{}" if self.codec.is_secret else fields_of(op.value or {})
        return ItemRow(*_place(op), tag, data, fields, now, now, ttl, expires_at)

    def _vector_rows(self, puts: Sequence[PutOp], vectors: Vectors) -> list[VectorRow]:
        return [
            VectorRow(*_place(op), number, vectors.documents[text])
            for op in puts
            for number, text in enumerate(self._index.texts_of(op) if self._index else ())
        ]

    async def _read(self, ops: Sequence[Op], vectors: Vectors) -> list[Result]:
        places = {_place(op) for op in ops if isinstance(op, GetOp)}
        rows = await self._rows(places)
        refreshed = {_place(op) for op in ops if isinstance(op, GetOp) and op.refresh_ttl}
        await self._refresh([row for place, row in rows.items() if place in refreshed])
        results: list[Result] = []
        for op in ops:
            if isinstance(op, GetOp):
                row = rows.get(_place(op))
                results.append(self._item(row) if row else None)
            elif isinstance(op, SearchOp):
                results.append(await self._search(op, vectors))
            elif isinstance(op, ListNamespacesOp):
                results.append(await self._list(op))
            else:
                results.append(None)
        return results

    async def _rows(self, places: Iterable[Place]) -> dict[Place, FoundRow]:
        """The items at some places, as far as they are there."""
        wanted = sorted(places)
        if not wanted:
            return {}
        database = await self._opened()
        values = statements.key_values(wanted, is_postgres=database.is_postgres) | {"now": self._now()}
        rows = await database.fetch(_of_dialect(database.is_postgres, statements.get_query), values)
        return {(row[0], row[1]): FoundRow(*row) for row in rows}

    async def _refresh(self, rows: Sequence[FoundRow]) -> None:
        places = sorted((row.namespace, row.key) for row in rows if row.ttl is not None)
        if places:
            database = await self._opened()
            values = statements.key_values(places, is_postgres=database.is_postgres) | {"now": self._now()}
            await database.run([(_of_dialect(database.is_postgres, statements.refresh_statement), values)])

    async def _search(self, op: SearchOp, vectors: Vectors) -> list[SearchItem]:
        page = _Page(op, self._item)
        if op.query and self._index:
            await self._fill_by_similarity(page, vectors.queries[op.query])
        await self._fill_in_order(page, is_unscored=bool(op.query and self._index))
        if op.refresh_ttl:
            await self._refresh(page.rows)
        return page.items

    async def _fill_in_order(self, page: _Page, *, is_unscored: bool) -> None:
        """Take the items that may match in the order in which they were first put."""
        search, values = await self._selection(page.op)
        search = search._replace(is_unscored=is_unscored)
        values["limit"] = page.size
        while not page.is_full:
            rows = [FoundRow(*row) for row in await self._fetch(statements.search_query, search, values)]
            page.take((row, None) for row in rows)
            if len(rows) < page.size:
                return
            values |= {f"cursor_{name}": getattr(rows[-1], name) for name in ("created_at", "namespace", "key")}
            search = search._replace(has_cursor=True)

    async def _fill_by_similarity(self, page: _Page, query: bytes) -> None:
        """Take the items that may match and have a vector, the most similar first."""
        if not await self._can_rank():
            best = await self._scores(page.op, query)
            ranked = sorted(best, key=lambda place: (-best[place][0], best[place][1], place))
            for start in range(0, len(ranked), page.size):
                await self._take(page, [(place, best[place][0]) for place in ranked[start : start + page.size]])
            return
        search, values = await self._selection(page.op)
        values |= {"query": list(unpack(query)), "limit": page.size, "offset": 0}
        while not page.is_full and (rows := await self._fetch(statements.ranking_query, search, values)):
            await self._take(page, [((namespace, key), score) for namespace, key, score in rows])
            values["offset"] += page.size

    async def _take(self, page: _Page, ranked: Sequence[tuple[Place, float]]) -> None:
        if not page.is_full:
            rows = await self._rows(place for place, _ in ranked)
            page.take((rows[place], score) for place, score in ranked if place in rows)

    async def _scores(self, op: SearchOp, query: bytes) -> dict[Place, tuple[float, int]]:
        """Each place's best score, and when it was first put, by comparing all vectors."""
        search, values = await self._selection(op)
        values["limit"] = VECTORS_PAGE
        best: dict[Place, tuple[float, int]] = {}
        while rows := await self._fetch(statements.vectors_query, search, values):
            vectors = [vector if isinstance(vector, bytes) else pack(vector) for *_, vector, _ in rows]
            scores = await asyncio.to_thread(similarities, query, vectors)
            for (namespace, key, _, _, created_at), score in zip(rows, scores, strict=True):
                known = best.get((namespace, key))
                if known is None or score > known[0]:
                    best[namespace, key] = (score, created_at)
            values |= dict(zip(("cursor_namespace", "cursor_key", "cursor_place"), rows[-1][:3], strict=True))
            search = search._replace(has_cursor=True)
        return best

    async def _can_rank(self) -> bool:
        """Does the database compute similarities itself?"""
        database = await self._opened()
        if not database.is_postgres:
            return False
        if self._has_pgvector is None:
            ((self._has_pgvector,),) = await database.fetch(_prepared(True, statements.pgvector_query), {})
        return bool(self._has_pgvector)

    async def _selection(self, op: SearchOp) -> tuple[Search, dict[str, Any]]:
        """What a search selects, and its bound values."""
        database = await self._opened()
        asked = None if self.codec.is_secret else op.filter
        conditions, values = conditions_of(asked, is_postgres=database.is_postgres)
        values["now"] = self._now()
        if op.namespace_prefix:
            values |= statements.prefix_values(".".join(op.namespace_prefix))
        if self._index:
            values["length"] = self._index.dims * (1 if database.is_postgres else 4)
        return Search(bool(op.namespace_prefix), conditions), values

    async def _fetch(
        self, build: Callable[..., Any], search: Search, values: Mapping[str, Any]
    ) -> Sequence[Sequence[Any]]:
        database = await self._opened()
        return await database.fetch(_of_dialect(database.is_postgres, build, search), values)

    async def _list(self, op: ListNamespacesOp) -> list[tuple[str, ...]]:
        conditions = op.match_conditions or ()
        starts = [literal_start(path) for kind, path in conditions if kind == "prefix"]
        prefix = max(starts, key=len, default=())
        values = {"now": self._now()} | (statements.prefix_values(".".join(prefix)) if prefix else {})
        database = await self._opened()
        rows = await database.fetch(
            _prepared(database.is_postgres, statements.namespaces_query, has_prefix=bool(prefix)), values
        )
        found = (tuple(namespace.split(".")) for (namespace,) in rows)
        return matching_namespaces(found, conditions, op.max_depth, slice(op.offset, op.offset + op.limit))

    def _item(self, row: FoundRow) -> Item:
        namespace = tuple(row.namespace.split("."))
        value = decode_value(self.codec, (row.tag, row.data), namespace, row.key)
        return Item(namespace, row.key, value, time_of(row.created_at), time_of(row.updated_at))

    def _now(self) -> int:
        """The time in microseconds, later than any this store has told before: it orders the items."""
        self._last = max(self._last + 1, int(self._clock() * 1_000_000))
        return self._last


# What people who come from LangGraph look for.
AsyncSqliteStore = AsyncPostgresStore = SQLStore
SqliteIndexConfig = PostgresIndexConfig = IndexConfig


class _Page:
    """What a search has found so far.

    Attributes:
        size: So many rows are read at once.
    """

    def __init__(self, op: SearchOp, item_of: Callable[[FoundRow], Item]) -> None:
        self.op = op
        self.size = max(op.offset + op.limit, PAGE if op.filter else 1)
        self.rows: list[FoundRow] = []
        self.items: list[SearchItem] = []
        self._item_of = item_of
        self._left_out = 0

    @property
    def is_full(self) -> bool:
        return len(self.items) >= self.op.limit

    def take(self, found: Iterable[tuple[FoundRow, float | None]]) -> None:
        """Keep those that match, behind the offset and up to the limit."""
        for row, score in found:
            if self.is_full:
                return
            item = self._item_of(row) if self.op.filter else None
            if item is not None and not matches(item.value, self.op.filter):
                continue
            if self._left_out < self.op.offset:
                self._left_out += 1
                continue
            item = item or self._item_of(row)
            self.rows.append(row)
            times = (item.created_at, item.updated_at)
            self.items.append(SearchItem(item.namespace, item.key, item.value, *times, score))


def _place(op: GetOp | PutOp) -> Place:
    return ".".join(op.namespace), op.key


def _postgres_steps(
    rows: Sequence[ItemRow], removed: Sequence[Place], indexed: Sequence[VectorRow], *, is_indexing: bool
) -> list[Step]:
    steps: list[Step] = []
    if rows:
        # What is removed is written too: one statement takes all items in their order, and nobody has them in another.
        taken = sorted([*rows, *(ItemRow(*place, "", b"", "{}", 0, 0, None, None) for place in removed)])
        steps.append((_of_dialect(True, statements.put_statement), statements.put_values(taken)))
    if removed:
        keys = statements.key_values(removed, is_postgres=True)
        steps.append((_of_dialect(True, statements.delete_statement), keys))
    if is_indexing:
        # The statements above do not see vectors that another writer stored while they waited for its items.
        written = [*((row.namespace, row.key) for row in rows), *removed]
        keys = statements.key_values(written, is_postgres=True)
        steps.append((_of_dialect(True, statements.forget_statement), keys))
    if indexed:
        steps.append((_of_dialect(True, statements.vector_statement), statements.vector_values(indexed)))
    return steps


def _sqlite_steps(rows: Sequence[ItemRow], removed: Sequence[Place], indexed: Sequence[VectorRow]) -> list[Step]:
    written = [*((row.namespace, row.key) for row in rows), *removed]
    steps: list[Step] = [
        (_of_dialect(False, statements.forget_statement), statements.key_values(written, is_postgres=False))
    ]
    steps += [(_of_dialect(False, statements.put_statement), row._asdict()) for row in rows]
    if removed:
        keys = statements.key_values(removed, is_postgres=False)
        steps.append((_of_dialect(False, statements.delete_statement), keys))
    return steps + [(_of_dialect(False, statements.vector_statement), row._asdict()) for row in indexed]


@lru_cache(maxsize=512)
def _prepared(for_postgres: bool, build: Callable[..., Any], *arguments: Any, **options: Any) -> Statement:
    return compiled(build(*arguments, **options), is_postgres=for_postgres)


def _of_dialect(is_postgres: bool, build: Callable[..., Any], *arguments: Any) -> Statement:
    return _prepared(is_postgres, build, *arguments, is_postgres=is_postgres)


@lru_cache
def _sweep(is_postgres: bool) -> list[Statement]:
    return [compiled(step, is_postgres=is_postgres) for step in statements.sweep_steps(is_postgres=is_postgres)]

"""The reference store: everything in this process's memory, by the same rules and bytes as the SQL store.

Values go through the codec and are kept encoded: what is put may change afterwards without changing what is
stored, and what is got belongs to the reader. Sync and async methods never wait for anything but the embedding
function; they may be called from any thread and any event loop. Nothing survives the process.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from everstep_savers.codec import Codec, Encoded, default_codec
from everstep_savers.errors import CodecError
from everstep_savers.sealing import item_place
from everstep_savers.store.base import (
    MOST,
    BaseStore,
    GetOp,
    Item,
    ListNamespacesOp,
    Op,
    PutOp,
    Result,
    SearchItem,
    SearchOp,
    TTLConfig,
    Value,
    check_ttl_config,
    checked_ops,
)
from everstep_savers.store.matching import has_prefix, matches, matching_namespaces
from everstep_savers.store.vectors import IndexConfig, VectorIndex, Vectors, similarities

Namespace = tuple[str, ...]
# Times are microseconds since 1970; times to live are given in minutes.
MINUTE = 60_000_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(slots=True)
class _Row:
    """An item as it is kept."""

    namespace: Namespace
    key: str
    encoded: Encoded
    created_at: int
    updated_at: int
    ttl: int | None
    expires_at: int | None
    vectors: Sequence[bytes]

    @property
    def order(self) -> tuple[int, Namespace, str]:
        return self.created_at, self.namespace, self.key


class InMemoryStore(BaseStore):
    """Keeps items in memory: for tests, for scripts, and as the reference for other stores.

    Args:
        index: Makes items searchable by meaning.
        ttl: How long items live by default.
        codec: Turns values into bytes and back.
        clock: Seconds since 1970.
    """

    supports_ttl = True

    def __init__(
        self,
        *,
        index: IndexConfig | None = None,
        ttl: TTLConfig | None = None,
        codec: Codec | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.ttl_config = check_ttl_config(ttl)
        self.codec = codec or default_codec
        self._index = VectorIndex(index) if index else None
        self._clock = clock
        self._last = 0
        self._rows: dict[Namespace, dict[str, _Row]] = {}
        self._lock = threading.Lock()

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        checked = checked_ops(ops)
        return self._done(checked, self._index.embed(checked) if self._index else Vectors())

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        checked = checked_ops(ops)
        return self._done(checked, await self._index.aembed(checked) if self._index else Vectors())

    def sweep_ttl(self) -> int:
        """Remove items whose time to live is over, and tell how many."""
        with self._lock:
            now = self._now()
            over = [row for rows in self._rows.values() for row in rows.values() if not _is_alive(row, now)]
            for row in over:
                self._delete(row.namespace, row.key)
        return len(over)

    def _done(self, ops: Sequence[Op], vectors: Vectors) -> list[Result]:
        puts = {(op.namespace, op.key): op for op in ops if isinstance(op, PutOp)}
        encoded = {place: encode_value(self.codec, op) for place, op in puts.items() if op.value is not None}
        with self._lock:
            results = [self._read(op, vectors, self._now()) for op in ops]
            for place, op in puts.items():
                if op.value is None:
                    self._delete(*place)
                else:
                    self._put(op, encoded[place], vectors)
        return results

    def _read(self, op: Op, vectors: Vectors, now: int) -> Result:
        if isinstance(op, GetOp):
            row = self._rows.get(op.namespace, {}).get(op.key)
            return self._item(row, now, refresh=op.refresh_ttl) if row and _is_alive(row, now) else None
        if isinstance(op, SearchOp):
            return self._search(op, vectors, now)
        if isinstance(op, ListNamespacesOp):
            return self._list(op, now)
        return None

    def _search(self, op: SearchOp, vectors: Vectors, now: int) -> list[SearchItem]:
        found = [
            row
            for row in self._alive_rows(op.namespace_prefix, now)
            if not op.filter or matches(self._value(row), op.filter)
        ]
        found.sort(key=lambda row: row.order)
        ranked: list[tuple[_Row, float | None]] = [(row, None) for row in found]
        if op.query and self._index:
            ranked = _ranked(found, vectors.queries[op.query])
        page = ranked[op.offset : op.offset + op.limit]
        return [self._found(row, score, now, refresh=op.refresh_ttl) for row, score in page]

    def _list(self, op: ListNamespacesOp, now: int) -> list[Namespace]:
        alive = (space for space, rows in self._rows.items() if any(_is_alive(row, now) for row in rows.values()))
        page = slice(op.offset, op.offset + op.limit)
        return matching_namespaces(alive, op.match_conditions or (), op.max_depth, page)

    def _alive_rows(self, prefix: Namespace, now: int) -> Iterator[_Row]:
        for namespace, rows in self._rows.items():
            if has_prefix(namespace, prefix):
                yield from (row for row in rows.values() if _is_alive(row, now))

    def _put(self, op: PutOp, encoded: Encoded, vectors: Vectors) -> None:
        now = self._now()
        rows = self._rows.setdefault(op.namespace, {})
        old = rows.get(op.key)
        ttl = ttl_of(op)
        rows[op.key] = _Row(
            namespace=op.namespace,
            key=op.key,
            encoded=encoded,
            created_at=old.created_at if old and _is_alive(old, now) else now,
            updated_at=now,
            ttl=ttl,
            expires_at=None if ttl is None else now + ttl,
            vectors=[vectors.documents[text] for text in self._index.texts_of(op)] if self._index else (),
        )

    def _delete(self, namespace: Namespace, key: str) -> None:
        rows = self._rows.get(namespace, {})
        rows.pop(key, None)
        if not rows:
            self._rows.pop(namespace, None)

    def _item(self, row: _Row, now: int, *, refresh: bool) -> Item:
        _refresh(row, now, refresh=refresh)
        times = (time_of(row.created_at), time_of(row.updated_at))
        return Item(row.namespace, row.key, self._value(row), *times)

    def _found(self, row: _Row, score: float | None, now: int, *, refresh: bool) -> SearchItem:
        item = self._item(row, now, refresh=refresh)
        return SearchItem(item.namespace, item.key, item.value, item.created_at, item.updated_at, score)

    def _value(self, row: _Row) -> Value:
        return decode_value(self.codec, row.encoded, row.namespace, row.key)

    def _now(self) -> int:
        """The time, later than any this store has told before: it orders the items."""
        self._last = max(self._last + 1, int(self._clock() * 1_000_000))
        return self._last


def encode_value(codec: Codec, op: PutOp) -> Encoded:
    """The value of a put as it is kept.

    Raises:
        CodecError: It cannot be kept as it is; names namespace, key, path and type.
    """
    try:
        return codec.close(codec.plain.encode(op.value), item_place(op.namespace, op.key))
    except CodecError as error:
        raise error.within(f"store item {op.key!r}", f"namespace {op.namespace!r}") from error.__cause__


def decode_value(codec: Codec, encoded: Encoded, namespace: Namespace, key: str) -> Value:
    """The value of an item that was kept.

    Raises:
        CodecError: The bytes are damaged, or hold a type that is not registered.
    """
    try:
        value: Value = codec.plain.decode(*codec.open(encoded, item_place(namespace, key)))
    except CodecError as error:
        raise error.within(f"store item {key!r}", f"namespace {namespace!r}") from error.__cause__
    return value


def ttl_of(op: PutOp) -> int | None:
    """How long an item lives, in microseconds."""
    return None if op.ttl is None else max(int(min(op.ttl * MINUTE, MOST)), 1)


def time_of(microseconds: int) -> datetime:
    """A stored time as users see it."""
    return _EPOCH + timedelta(microseconds=microseconds)


def _is_alive(row: _Row, now: int) -> bool:
    return row.expires_at is None or row.expires_at > now


def _refresh(row: _Row, now: int, *, refresh: bool) -> None:
    if refresh and row.ttl is not None:
        row.expires_at = now + row.ttl


def _ranked(rows: Sequence[_Row], query: bytes) -> list[tuple[_Row, float | None]]:
    """The rows most similar first, each by its best vector; then those without one."""
    owners = [row for row in rows for _ in row.vectors]
    best: dict[int, float] = {}
    scores = similarities(query, [vector for row in rows for vector in row.vectors])
    for row, score in zip(owners, scores, strict=True):
        best[id(row)] = max(score, best.get(id(row), score))
    scored = sorted((row for row in rows if id(row) in best), key=lambda row: -best[id(row)])
    ranked: list[tuple[_Row, float | None]] = [(row, best[id(row)]) for row in scored]
    return ranked + [(row, None) for row in rows if id(row) not in best]

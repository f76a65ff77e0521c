"""The contract of a cache: results of tasks by key, for a time; and the cache in memory.

A key is a namespace (of a node) and a digest of what the task was given. An entry may go away at any time, and
nothing but time is lost with it. Values go through the codec, so that what comes out is equal, of the same type and
belongs to the reader. That equal tasks do not run at once is the engine's business.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from everstep_savers.codec import Codec, Encoded, default_codec
from everstep_savers.errors import CodecError
from everstep_savers.sealing import item_place

ValueT = TypeVar("ValueT")
Namespace = tuple[str, ...]
FullKey = tuple[Namespace, str]


class BaseCache(ABC, Generic[ValueT]):
    """Keeps values by namespace and key until their time to live is over.

    Args:
        codec: Turns values into bytes and back.
    """

    def __init__(self, *, codec: Codec | None = None) -> None:
        self.codec = codec or default_codec

    @abstractmethod
    async def aget(self, keys: Sequence[FullKey]) -> dict[FullKey, ValueT]:
        """Return the values of those keys that have one whose time is not over."""

    @abstractmethod
    async def aset(self, pairs: Mapping[FullKey, tuple[ValueT, int | None]]) -> None:
        """Keep values, each with the seconds it lives (None for ever), in place of those of the same keys.

        Raises:
            CodecError: A value cannot be kept as it is; nothing was kept.
        """

    @abstractmethod
    async def aclear(self, namespaces: Sequence[Namespace] | None = None) -> None:
        """Remove all entries of these namespaces, and of no longer or shorter ones; None removes everything."""

    @abstractmethod
    def get(self, keys: Sequence[FullKey]) -> dict[FullKey, ValueT]:
        """`aget` for plain scripts and sync nodes."""

    @abstractmethod
    def set(self, pairs: Mapping[FullKey, tuple[ValueT, int | None]]) -> None:
        """`aset` for plain scripts and sync nodes."""

    @abstractmethod
    def clear(self, namespaces: Sequence[Namespace] | None = None) -> None:
        """`aclear` for plain scripts and sync nodes."""


class Entry(NamedTuple):
    """A value as it is kept; times are microseconds since 1970."""

    encoded: Encoded
    expires_at: int | None


class InMemoryCache(BaseCache[ValueT]):
    """Keeps entries in this process's memory; may be used from any thread and any event loop.

    Args:
        codec: Turns values into bytes and back.
        clock: Seconds since 1970.
    """

    def __init__(self, *, codec: Codec | None = None, clock: Callable[[], float] = time.time) -> None:
        super().__init__(codec=codec)
        self._clock = clock
        self._entries: dict[Namespace, dict[str, Entry]] = {}
        self._lock = threading.Lock()

    async def aget(self, keys: Sequence[FullKey]) -> dict[FullKey, ValueT]:
        return self.get(keys)

    async def aset(self, pairs: Mapping[FullKey, tuple[ValueT, int | None]]) -> None:
        self.set(pairs)

    async def aclear(self, namespaces: Sequence[Namespace] | None = None) -> None:
        self.clear(namespaces)

    def get(self, keys: Sequence[FullKey]) -> dict[FullKey, ValueT]:
        now = microseconds(self._clock())
        with self._lock:
            found = {full: self._entries.get(full[0], {}).get(full[1]) for full in unique_keys(keys)}
        return {
            full: decode_entry(self.codec, full, entry.encoded)
            for full, entry in found.items()
            if entry is not None and _is_alive(entry, now)
        }

    def set(self, pairs: Mapping[FullKey, tuple[ValueT, int | None]]) -> None:
        entries = encode_entries(self.codec, pairs, microseconds(self._clock()))
        with self._lock:
            for (namespace, key), entry in entries.items():
                self._entries.setdefault(namespace, {})[key] = entry

    def clear(self, namespaces: Sequence[Namespace] | None = None) -> None:
        with self._lock:
            for namespace in list(self._entries) if namespaces is None else namespaces:
                self._entries.pop(tuple(namespace), None)

    async def asweep(self) -> int:
        """Remove the entries whose time is over, and tell how many."""
        now = microseconds(self._clock())
        with self._lock:
            over = [
                (entries, key)
                for entries in self._entries.values()
                for key, entry in entries.items()
                if not _is_alive(entry, now)
            ]
            for entries, key in over:
                del entries[key]
        return len(over)


def encode_entries(codec: Codec, pairs: Mapping[FullKey, tuple[Any, float | None]], now: int) -> dict[FullKey, Entry]:
    """Values as they are kept.

    Raises:
        CodecError: A value cannot be kept as it is; names namespace, path and type.
    """
    return {
        (tuple(namespace), key): Entry(
            _encoded(codec, namespace, key, value), None if ttl is None else now + microseconds(ttl)
        )
        for (namespace, key), (value, ttl) in pairs.items()
    }


def _encoded(codec: Codec, namespace: Namespace, key: str, value: Any) -> Encoded:
    try:
        return codec.close(codec.plain.encode(value), item_place(namespace, key))
    except CodecError as error:
        raise error.within(_place(namespace)) from error.__cause__


def decode_entry(codec: Codec, full: FullKey, encoded: Encoded) -> Any:
    """A value that was kept.

    Raises:
        CodecError: The bytes are damaged, or hold a type that is not registered.
    """
    try:
        return codec.plain.decode(*codec.open(encoded, item_place(*full)))
    except CodecError as error:
        raise error.within(_place(full[0])) from error.__cause__


def unique_keys(keys: Iterable[FullKey]) -> list[FullKey]:
    """The keys, each once, sorted, with tuples as namespaces."""
    return sorted({(tuple(namespace), key) for namespace, key in keys})


def microseconds(seconds: float) -> int:
    """A time as it is kept; a database's integers are not endless."""
    return int(min(seconds * 1_000_000, 2**62))


def _place(namespace: Namespace) -> str:
    return f"cache {'/'.join(namespace)!r}"


def _is_alive(entry: Entry, now: int) -> bool:
    return entry.expires_at is None or entry.expires_at > now

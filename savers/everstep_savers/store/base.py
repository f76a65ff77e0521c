"""The contract of a store: items that outlive threads, by namespace and key.

A namespace is a tuple of labels, matched label by label: the prefix ``("t", "acme")`` holds
``("t", "acme", "notes")`` and never ``("t", "acme-corp")``. Everything a store does is an *operation*; a batch
of them is carried out as one: what it reads is the store as it was before the batch, what it writes becomes
visible all at once. Items whose time to live is over are never returned. Stores know nothing of graphs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Literal, NamedTuple, TypeAlias, TypedDict

from everstep_savers.addresses import checked_key
from everstep_savers.store.matching import as_namespace, check_filter, check_namespace, check_pattern, check_root

# Larger numbers are taken for this one: databases have no integers for twice as much.
MOST = 2**61

# Labels to match namespaces with; the label "*" matches any one label.
NamespacePath: TypeAlias = tuple[str, ...]
NamespaceMatchType: TypeAlias = Literal["prefix", "suffix"]
Value: TypeAlias = dict[str, Any]


class NotProvided:
    """The type of `NOT_PROVIDED`."""

    def __repr__(self) -> str:
        return "NOT_PROVIDED"


# Stands for an argument that was left out, where None is an argument.
NOT_PROVIDED: Final = NotProvided()


@dataclass(frozen=True, slots=True)
class Item:
    """One item of a store; its value is a copy of its own.

    Attributes:
        created_at: When the key was first put, in UTC; `updated_at` when it was last put.
    """

    namespace: tuple[str, ...]
    key: str
    value: Value
    created_at: datetime
    updated_at: datetime

    def __hash__(self) -> int:
        return hash((self.namespace, self.key))

    def dict(self) -> Value:
        """The item as JSON can hold it, as far as its value can."""
        return {
            "namespace": list(self.namespace),
            "key": self.key,
            "value": self.value,
            "created_at": self.created_at.isoformat(),
            "updated_at": self.updated_at.isoformat(),
        }


@dataclass(frozen=True, slots=True)
class SearchItem(Item):
    """An item that a search has found.

    Attributes:
        score: Similarity with the query, from -1 to 1; None for a search without one, and for items that have
            no vector.
    """

    score: float | None = None

    __hash__ = Item.__hash__

    def dict(self) -> Value:
        """The item as JSON can hold it, with its score."""
        return {**Item.dict(self), "score": self.score}


class TTLConfig(TypedDict, total=False):
    """How long items live by default.

    Attributes:
        refresh_on_read: Reading an item starts its time to live anew; True by default.
        default_ttl: Minutes that an item lives if `put` does not say; None for ever.
        sweep_interval_minutes: How often `start_ttl_sweeper` removes what is over; 5 by default.
        omit_expired: Only True: what is over is never returned, swept or not.
    """

    refresh_on_read: bool
    default_ttl: float | None
    sweep_interval_minutes: float | None
    omit_expired: Literal[True]


class GetOp(NamedTuple):
    """Read one item."""

    namespace: tuple[str, ...]
    key: str
    refresh_ttl: bool = True


class PutOp(NamedTuple):
    """Write one item, or with value None delete it.

    Attributes:
        index: Paths into the value whose texts are made searchable; False for none, None for those of the
            store's index.
        ttl: Minutes the item lives; None for ever.
    """

    namespace: tuple[str, ...]
    key: str
    value: Mapping[str, Any] | None
    index: Literal[False] | list[str] | None = None  # type: ignore[assignment]  # hides a method of tuples
    ttl: float | None = None


class SearchOp(NamedTuple):
    """Find items in a namespace and those below it, see `BaseStore.asearch`."""

    namespace_prefix: tuple[str, ...]
    filter: dict[str, Any] | None = None
    limit: int = 10
    offset: int = 0
    query: str | None = None
    refresh_ttl: bool = True


class MatchCondition(NamedTuple):
    """What the first ("prefix") or last ("suffix") labels of a namespace have to be."""

    match_type: NamespaceMatchType
    path: NamespacePath


class ListNamespacesOp(NamedTuple):
    """List namespaces that hold items, see `BaseStore.alist_namespaces`."""

    match_conditions: tuple[MatchCondition, ...] | None = None
    max_depth: int | None = None
    limit: int = 100
    offset: int = 0


Op: TypeAlias = GetOp | SearchOp | PutOp | ListNamespacesOp
Result: TypeAlias = Item | list[Item] | list[SearchItem] | list[tuple[str, ...]] | None


class BaseStore(ABC):
    """Keeps items by namespace and key.

    A store implements `batch` and `abatch`; the other methods make operations for them.

    Attributes:
        supports_ttl: Does it take a time to live?
        ttl_config: Its defaults.
    """

    supports_ttl: bool = False
    ttl_config: TTLConfig | None = None

    @abstractmethod
    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """`abatch` for plain scripts and sync nodes."""

    @abstractmethod
    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """Carry out operations, and return a result for each.

        All reads see the store as it was before the batch. All writes take effect together, or none; of several
        to the same key the last one counts.

        Raises:
            InvalidNamespaceError: A namespace cannot be used; nothing was done.
            CodecError: A value cannot be stored as it is; nothing was written.
        """

    async def aget(self, namespace: tuple[str, ...], key: str, *, refresh_ttl: bool | None = None) -> Item | None:
        """Return an item, or None if there is none.

        Args:
            refresh_ttl: Whether its time to live starts anew; by default as the store's `ttl_config` says.
        """
        found: Item | None = await self._arun_one(self._get_op(namespace, key, refresh_ttl))
        return found

    async def asearch(
        self,
        namespace_prefix: tuple[str, ...],
        /,
        *,
        query: str | None = None,
        filter: dict[str, Any] | None = None,
        limit: int = 10,
        offset: int = 0,
        refresh_ttl: bool | None = None,
    ) -> list[SearchItem]:
        """Return the items in a namespace and in those below it, in the order in which they were first put.

        Args:
            query: What the items are to be about. They come most similar first, then those without a vector.
                A store without an index does not use it.
            filter: Key of the value -> value it must have, or operators: ``{"age": {"$gte": 18, "$lt": 65}}``
                with $eq, $ne, $gt, $gte, $lt, $lte, or a mapping of conditions for a nested value. A key that
                is not there counts as None; values that cannot be compared do not match.
            limit: At most this many, after leaving out `offset`.
            refresh_ttl: As for `aget`, for all items returned.
        """
        refresh = self._refreshes(refresh_ttl)
        found: list[SearchItem] = await self._arun_one(
            SearchOp(namespace_prefix, filter, limit, offset, query, refresh)
        )
        return found

    async def aput(
        self,
        namespace: tuple[str, ...],
        key: str,
        value: Mapping[str, Any],
        index: Literal[False] | list[str] | None = None,
        *,
        ttl: float | NotProvided | None = NOT_PROVIDED,
    ) -> None:
        """Write an item, in place of one of the same key.

        Args:
            value: A mapping; it is kept, and comes back, as a dict.
            index: Paths into the value whose texts are made searchable, see `get_text_at_path`; False for
                none, None for those of the store's index.
            ttl: Minutes the item lives; None for ever; by default as the store's `ttl_config` says.
        """
        await self._arun_one(self._put_op(namespace, key, value, index, ttl))

    async def adelete(self, namespace: tuple[str, ...], key: str) -> None:
        """Remove an item; removing one that is not there does nothing."""
        await self._arun_one(PutOp(namespace, key, None))

    async def alist_namespaces(
        self,
        *,
        prefix: NamespacePath | None = None,
        suffix: NamespacePath | None = None,
        max_depth: int | None = None,
        limit: int = 100,
        offset: int = 0,
    ) -> list[tuple[str, ...]]:
        """List the namespaces that hold items, sorted.

        Args:
            prefix: Their first labels; ``"*"`` stands for any one label.
            suffix: Their last labels.
            max_depth: Cut namespaces to so many labels; each is listed once.
        """
        found: list[tuple[str, ...]] = await self._arun_one(_listing(prefix, suffix, max_depth, limit, offset))
        return found

    def get(self, namespace: tuple[str, ...], key: str, *, refresh_ttl: bool | None = None) -> Item | None:
        """`aget` for plain scripts and sync nodes."""
        found: Item | None = self._run_one(self._get_op(namespace, key, refresh_ttl), "get")
        return found

    def search(
        self,
        namespace_prefix: tuple[str, ...],
        /,
        *,
        query: str | None = None,
        filter: dict[str, Any] | None = None,
        limit: int = 10,
        offset: int = 0,
        refresh_ttl: bool | None = None,
    ) -> list[SearchItem]:
        """`asearch` for plain scripts and sync nodes."""
        refresh = self._refreshes(refresh_ttl)
        found: list[SearchItem] = self._run_one(
            SearchOp(namespace_prefix, filter, limit, offset, query, refresh), "search"
        )
        return found

    def put(
        self,
        namespace: tuple[str, ...],
        key: str,
        value: Mapping[str, Any],
        index: Literal[False] | list[str] | None = None,
        *,
        ttl: float | NotProvided | None = NOT_PROVIDED,
    ) -> None:
        """`aput` for plain scripts and sync nodes."""
        self._run_one(self._put_op(namespace, key, value, index, ttl), "put")

    def delete(self, namespace: tuple[str, ...], key: str) -> None:
        """`adelete` for plain scripts and sync nodes."""
        self._run_one(PutOp(namespace, key, None), "delete")

    def list_namespaces(
        self,
        *,
        prefix: NamespacePath | None = None,
        suffix: NamespacePath | None = None,
        max_depth: int | None = None,
        limit: int = 100,
        offset: int = 0,
    ) -> list[tuple[str, ...]]:
        """`alist_namespaces` for plain scripts and sync nodes."""
        found: list[tuple[str, ...]] = self._run_one(
            _listing(prefix, suffix, max_depth, limit, offset), "list_namespaces"
        )
        return found

    async def _arun_one(self, op: Op) -> Any:
        """Carry out one operation."""
        (result,) = await self.abatch(checked_ops([op]))
        return result

    def _run_one(self, op: Op, name: str) -> Any:
        """Carry out one operation for the sync method `name`."""
        (result,) = self.batch(checked_ops([op]))
        return result

    def _get_op(self, namespace: tuple[str, ...], key: str, refresh_ttl: bool | None) -> GetOp:
        return GetOp(namespace, key, self._refreshes(refresh_ttl))

    def _put_op(
        self,
        namespace: tuple[str, ...],
        key: str,
        value: Mapping[str, Any],
        index: Literal[False] | list[str] | None,
        ttl: float | NotProvided | None,
    ) -> PutOp:
        if value is None:
            raise TypeError("put() takes a mapping as value, got None; use delete() to remove an item")
        check_namespace(namespace)
        check_root(namespace)
        if isinstance(ttl, NotProvided):
            ttl = (self.ttl_config or {}).get("default_ttl")
        if ttl is not None and not self.supports_ttl:
            raise ValueError(f"{type(self).__name__} keeps no time to live; leave out ttl, or use another store")
        return PutOp(namespace, key, value, index, ttl)

    def _refreshes(self, refresh_ttl: bool | None) -> bool:
        if refresh_ttl is not None:
            return refresh_ttl
        return (self.ttl_config or {}).get("refresh_on_read", True)


def _listing(
    prefix: NamespacePath | None, suffix: NamespacePath | None, max_depth: int | None, limit: int, offset: int
) -> ListNamespacesOp:
    conditions: list[MatchCondition] = []
    if prefix:
        conditions.append(MatchCondition("prefix", prefix))
    if suffix:
        conditions.append(MatchCondition("suffix", suffix))
    return ListNamespacesOp(tuple(conditions) or None, max_depth, limit, offset)


def validate_op_namespace(op: Op) -> None:
    """Refuse an operation whose namespace cannot be used.

    Raises:
        InvalidNamespaceError: A label is empty, has a period or a NUL, or is not a string; or a put has an empty
            namespace.
    """
    if isinstance(op, GetOp):
        check_namespace(op.namespace, may_be_empty=True)
    elif isinstance(op, PutOp):
        check_namespace(op.namespace, may_be_empty=op.value is None)
    elif isinstance(op, SearchOp):
        check_namespace(op.namespace_prefix, may_be_empty=True)
    else:
        for condition in op.match_conditions or ():
            check_pattern(condition.path)


def checked_ops(ops: Iterable[Op]) -> list[Op]:
    """The operations of a batch with tuples and texts as namespaces and keys, or an error before any of them is done.

    Raises:
        InvalidNamespaceError: See `validate_op_namespace`.
        TypeError: Something is no operation, or a value no mapping.
        ValueError: A key, filter, limit or time to live cannot be used.
    """
    return [_checked(op) for op in ops]


def _checked(op: Op) -> Op:
    if not isinstance(op, PutOp | GetOp | SearchOp | ListNamespacesOp):
        raise TypeError(f"a store takes GetOp, PutOp, SearchOp and ListNamespacesOp, not {op!r}")
    validate_op_namespace(op)
    if isinstance(op, GetOp):
        return op._replace(namespace=as_namespace(op.namespace), key=_key(op.key))
    if isinstance(op, PutOp):
        return _checked_put(op)
    op = op._replace(limit=_count("limit", op.limit), offset=_count("offset", op.offset))
    if isinstance(op, SearchOp):
        check_filter(op.filter)
        return op._replace(namespace_prefix=as_namespace(op.namespace_prefix))
    if op.max_depth is not None and op.max_depth < 1:
        raise ValueError(f"max_depth counts labels and is at least 1, got {op.max_depth!r}")
    return op


def _checked_put(op: PutOp) -> PutOp:
    value = op.value
    if value is not None and not isinstance(value, Mapping):
        raise TypeError(f"the value of item {op.key!r} must be a mapping, not {type(value).__name__} {value!r:.100}")
    if op.ttl is not None and not op.ttl > 0:
        raise ValueError(f"the ttl of item {op.key!r} is minutes and greater than zero, got {op.ttl!r}")
    value = None if value is None else dict(value)
    return op._replace(namespace=as_namespace(op.namespace), key=_key(op.key), value=value)


def _key(key: Any) -> str:
    if isinstance(key, bool | float | bytes) or key is None:
        raise TypeError(f"the key of an item must be a string, not {key!r}")
    return checked_key("key", str(key))  # int and UUID are usual keys


def _count(name: str, count: int) -> int:
    if count < 0:
        raise ValueError(f"{name} must not be negative, got {count!r}")
    return min(count, MOST)


def check_ttl_config(config: TTLConfig | None) -> TTLConfig | None:
    """Return a store's `ttl_config`, or refuse a key that would do nothing.

    Raises:
        ValueError: With the key.
    """
    for key in config or {}:
        if key not in TTLConfig.__annotations__:
            known = ", ".join(TTLConfig.__annotations__)
            raise ValueError(f"unknown key {key!r} in the ttl config; known are {known}")
    if not (config or {}).get("omit_expired", True):
        raise ValueError("omit_expired=False: items whose time to live is over are never returned; leave it out")
    return config

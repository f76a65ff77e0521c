"""The stored form of a value: a tree of what msgpack knows, with marks where Python knows more.

A value is *lowered* to None, bool, int, float, str, bytes, lists and str-keyed dicts. What has no place
among these becomes an extension: a *leaf* (a date, a Decimal) stands for itself, a *mark* is the first
item of a list and says what the rest of that list is to become (a tuple, a set, a dataclass). No value
of a user's can look like a mark, so the two readings never meet. Reading back is *lifting*.

This module holds the two walks and their tables; which types there are is told by the modules that fill
the tables. Nothing here imports, or calls anything named in stored data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from ormsgpack import Ext

from everstep_savers.errors import CodecError

# Deeper values are refused. msgpack's own limit is 255 levels, of which one of ours may take two.
MAX_DEPTH = 200

# Extension codes below this are leaves, from here on marks. Codes are stored: each keeps its meaning for good.
FIRST_MARK = 64

# Types that msgpack keeps exactly. bytearray, memoryview and subclasses are not among them: ormsgpack
# would write the first two as bytes without a word.
LEAVES: frozenset[type] = frozenset({type(None), bool, int, float, str, bytes})
# The same for a value with a lone surrogate in it, which ormsgpack refuses: each str is looked at.
LEAVES_BUT_STR = LEAVES - {str}
STR: frozenset[type] = frozenset({str})

TOO_DEEP = f"the value is nested more than {MAX_DEPTH} levels deep, or contains itself"

_LONGEST_PATH = 12
_LONGEST_KEY = 60


class RefusedError(Exception):
    """A value, or stored bytes, that the walk cannot take; becomes a `CodecError` when the walk ends.

    The walk adds the place on its way out, innermost first.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.segments: list[str] = []

    def at(self, segment: str) -> None:
        """Add the place one level up."""
        self.segments.append(segment)

    def as_codec_error(self) -> CodecError:
        """The same as the error that users see."""
        path = self.segments[::-1]
        if len(path) > _LONGEST_PATH:
            path = [*path[:_LONGEST_PATH], "..."]
        return CodecError(self.reason, path="".join(path))


class Mark:
    """What the list that it opens is to become."""

    __slots__ = ("code", "data")

    def __init__(self, code: int, data: bytes) -> None:
        self.code = code
        self.data = data


class Shape(Protocol):
    """How values of one registered type are taken apart and put together."""

    name: str
    cls: type
    code: int

    def lower(self, walk: Lowering, value: Any) -> Any:
        """Return the lowered value: a list that opens with this shape's mark."""

    def lift(self, items: list[Any]) -> Any:
        """Return the value made of what followed the mark."""


class Shapes(Protocol):
    """The registered types, as the walks see them."""

    def of_type(self, cls: type) -> Shape | None:
        """The shape of values of exactly this type."""

    def of_name(self, name: str) -> Shape | None:
        """The shape stored under this name."""

    def refusal(self, cls: type) -> str:
        """Why values of a type that has no shape cannot be stored, and the way out."""


# type -> how a value of exactly this type is lowered
LOWERERS: dict[type, Callable[[Lowering, Any], Any]] = {}
# Asked in turn about a type that is in neither table nor registry; the answer is kept in LOWERERS.
FINDERS: list[Callable[[type], Callable[[Lowering, Any], Any] | None]] = []
# leaf code -> bytes to value
LEAF_READERS: dict[int, Callable[[bytes], Any]] = {}
# mark code -> (mark data, lifted items) to value
LIFTERS: dict[int, Callable[[bytes, list[Any]], Any]] = {}
# Mark codes of registered types, with the word for their kind; the mark's data is the type's name.
SHAPE_KINDS: dict[int, str] = {}


def has_lowerer(kind: type) -> bool:
    """Whether values of exactly this type can be kept without registration."""
    if kind not in LOWERERS:
        found = filter(None, (finder(kind) for finder in FINDERS))
        if (lowerer := next(found, None)) is not None:
            LOWERERS[kind] = lowerer
    return kind in LOWERERS or kind in LEAVES


def type_name(cls: type) -> str:
    """The name of a type as messages show it."""
    return cls.__qualname__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"


def key_segment(key: Any) -> str:
    """The place of a dict's value, by its key."""
    try:
        text = repr(key)
    except Exception:  # a key's repr is user code; the place matters more than the key
        text = f"<{type_name(type(key))}>"
    return f"[{text if len(text) <= _LONGEST_KEY else text[:_LONGEST_KEY] + '...'}]"


class Lowering:
    """One walk over one value, from Python to msgpack.

    Attributes:
        marked: Whether a mark was written; a tree without marks is read back without a second walk.
    """

    __slots__ = ("_depth", "_leaves", "_shapes", "marked")

    def __init__(self, shapes: Shapes, leaves: frozenset[type]) -> None:
        self._shapes = shapes
        self._leaves = leaves
        self._depth = 0
        self.marked = False

    def lower(self, value: Any) -> Any:
        """Return the lowered form of a value; the value itself where nothing has to change."""
        kind = type(value)
        if kind in self._leaves:
            return value
        lowerer = LOWERERS.get(kind) or self._lowerer(kind)
        if self._depth >= MAX_DEPTH:
            raise RefusedError(TOO_DEEP)
        self._depth += 1
        lowered = lowerer(self, value)
        self._depth -= 1
        return lowered

    def mark(self, code: int, data: bytes = b"") -> list[Any]:
        """Open a marked list."""
        self.marked = True
        return [Ext(code, data)]

    def is_plain(self, values: Iterable[Any]) -> bool:
        """Whether all these are leaves, which need no lowering."""
        return self._leaves.issuperset(map(type, values))

    def is_plain_str(self, keys: Iterable[Any]) -> bool:
        """Whether all these are str that can be a msgpack key."""
        if not STR.issuperset(map(type, keys)):
            return False
        return str in self._leaves or all(map(_is_utf8, keys))

    def items(self, values: Iterable[Any], into: list[Any]) -> list[Any]:
        """Append the lowered values; an error gets the value's index."""
        leaves, first = self._leaves, len(into)
        try:
            for value in values:
                into.append(value if type(value) in leaves else self.lower(value))  # noqa: PERF401  counts
        except RefusedError as refused:
            refused.at(f"[{len(into) - first}]")
            raise
        return into

    def members(self, values: Iterable[Any], into: list[Any]) -> list[Any]:
        """Append the lowered values of a collection without order."""
        try:
            into.extend(map(self.lower, values))
        except RefusedError as refused:
            refused.at("{...}")
            raise
        return into

    def values_of(self, value: dict[str, Any]) -> dict[str, Any]:
        """Lower a dict's values; an error gets the key."""
        leaves = self._leaves
        lowered = {}
        key = ""
        try:
            for key, item in value.items():
                lowered[key] = item if type(item) in leaves else self.lower(item)
        except RefusedError as refused:
            refused.at(key_segment(key))
            raise
        return lowered

    def pairs(self, value: Iterable[tuple[Any, Any]], into: list[Any]) -> list[Any]:
        """Append keys and values by turns; an error gets the key."""
        for key, item in value:
            try:
                into.append(self.lower(key))
            except RefusedError as refused:
                refused.at(f".keys(){key_segment(key)}")
                raise
            try:
                into.append(self.lower(item))
            except RefusedError as refused:
                refused.at(key_segment(key))
                raise
        return into

    def attributes(self, values: Mapping[str, Any], into: list[Any]) -> list[Any]:
        """Append attribute names and values by turns; an error gets the name."""
        leaves = self._leaves
        name = ""
        try:
            for name, item in values.items():
                into.append(name if type(name) in leaves else self.lower(name))
                into.append(item if type(item) in leaves else self.lower(item))
        except RefusedError as refused:
            refused.at(f".{name}")
            raise
        return into

    def _lowerer(self, kind: type) -> Callable[[Lowering, Any], Any]:
        shape = self._shapes.of_type(kind)
        if shape is not None:
            return shape.lower
        if has_lowerer(kind):
            return LOWERERS[kind]
        raise RefusedError(self._shapes.refusal(kind))


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def lift(tree: Any, shapes: Shapes) -> Any:
    """Return the value that was lowered to `tree`, whose lists and dicts are changed in place."""
    kind = type(tree)
    if kind is list:
        if tree and type(tree[0]) is Mark:
            return _lift_marked(tree, shapes)
        return _lift_each(tree, shapes)
    if kind is dict:
        return _lift_values(tree, shapes)
    if kind is Mark:
        raise RefusedError("the stored bytes are damaged: a mark stands where none can be")
    return tree


# What needs a look; everything else that msgpack reads is already what it was.
_UNFINISHED: frozenset[type] = frozenset({list, dict, Mark})


def _lift_each(items: list[Any], shapes: Shapes) -> list[Any]:
    index = 0
    try:
        for index, item in enumerate(items):
            if type(item) in _UNFINISHED:
                items[index] = lift(item, shapes)
    except RefusedError as refused:
        refused.at(f"[{index}]")
        raise
    return items


def _lift_values(values: dict[str, Any], shapes: Shapes) -> dict[str, Any]:
    key = ""
    try:
        for key, item in values.items():
            if type(item) in _UNFINISHED:
                values[key] = lift(item, shapes)
    except RefusedError as refused:
        refused.at(key_segment(key))
        raise
    return values


def _lift_marked(items: list[Any], shapes: Shapes) -> Any:
    mark: Mark = items.pop(0)
    index = 0
    try:
        for index, item in enumerate(items):
            if type(item) in _UNFINISHED:
                items[index] = lift(item, shapes)
    except RefusedError as refused:
        # Names and keys stand before their values; without one, the place is left out.
        refused.at(f".{name}" if index and type(name := items[index - 1]) is str else "")
        raise
    if mark.code in SHAPE_KINDS:
        return _shape_of(mark, shapes).lift(items)
    lifter = LIFTERS.get(mark.code)
    if lifter is None:
        raise RefusedError(f"the stored bytes have the unknown mark {mark.code}; a newer version may have written them")
    return lifter(mark.data, items)


def _shape_of(mark: Mark, shapes: Shapes) -> Shape:
    name = mark.data.decode()
    shape = shapes.of_name(name)
    if shape is None:
        raise RefusedError(
            f"the stored type {name!r} is not registered: name it in a schema of the graph, or call "
            "codec.register(...) before loading"
        )
    if shape.code != mark.code:
        raise RefusedError(
            f"the stored type {name!r} was {SHAPE_KINDS[mark.code]} and is now {SHAPE_KINDS[shape.code]}"
        )
    return shape


def read_leaf(code: int, data: bytes) -> Any:
    """Return the value of a leaf; for trees without marks."""
    reader = LEAF_READERS.get(code)
    if reader is None:
        raise RefusedError(f"the unknown extension {code}; a newer version may have written it")
    return reader(data)


def read_leaf_or_mark(code: int, data: bytes) -> Any:
    """Return the value of a leaf, or a mark for `lift` to act upon."""
    return Mark(code, data) if code >= FIRST_MARK else read_leaf(code, data)

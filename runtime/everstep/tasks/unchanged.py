"""Finds changes in place of what a node shares with others: ``compile(debug=True)``.

A node gets copies, one level deep, of the built-in containers in its input; what lies deeper is shared with its
siblings, with the live state and with what is stored next. A snapshot notes what every container and object down
there holds, by identity, and compares afterwards. Nothing is copied deeply.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from enum import Enum
from types import FunctionType, MethodType, ModuleType
from typing import Any

from everstep.channels.snapshot import COPIED
from everstep.constants import ROOT
from everstep.errors import InputChangedError

_LEAVES = (str, bytes, int, float, complex, type, Enum, FunctionType, MethodType, ModuleType, type(None))

# Where a part of a value is found in it (".price", "[3]"), and the part.
Part = tuple[str, Any]


class Snapshot:
    """What a node's input holds before the node runs.

    Args:
        value: The input; a dict maps state keys to values, anything else is one value.
    """

    def __init__(self, value: Any) -> None:
        self._seen: dict[int, Any] = {}
        # Key, place, container, what it held. The container is kept, so that no other gets its id.
        self._noted: list[tuple[str, str, Any, list[Part]]] = []
        keys = value if type(value) is dict else {ROOT: value}
        for key, item in keys.items():
            if type(item) in COPIED:
                for place, part in _parts(item):
                    self._note(str(key), f"{key}{place}", part)
            else:
                self._note(str(key), str(key), item)

    def check(self, node: str, written: AbstractSet[str]) -> None:
        """Compare with what the input holds now.

        Args:
            node: The node that ran, for the message.
            written: Keys that it wrote, whose values it may have made from what it read.

        Raises:
            InputChangedError: A value of a key that it did not write has changed.
        """
        for key, place, container, before in self._noted:
            if key not in written and (changed := _difference(before, list(_parts(container)))) is not None:
                raise InputChangedError(node, key, place + changed)

    def _note(self, key: str, place: str, value: Any) -> None:
        waiting = deque([(place, value)])
        while waiting:
            place, value = waiting.popleft()
            if isinstance(value, _LEAVES) or id(value) in self._seen:
                continue
            self._seen[id(value)] = value
            parts = list(_parts(value))
            if not isinstance(value, tuple | frozenset):
                self._noted.append((key, place, value, parts))
            waiting.extend((place + where, part) for where, part in parts)


def _parts(value: Any) -> Iterator[Part]:
    """The parts of a container, the attributes of an object, the bytes of a buffer."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield f"[{key!r}]", item
    elif isinstance(value, list | tuple | deque):
        for index, item in enumerate(value):
            yield f"[{index}]", item
    elif isinstance(value, set | frozenset):
        for item in value:
            yield f"{{{item!r}}}", item
    elif (content := _buffer(value)) is not None:
        yield "", content
    for name in _attributes(type(value)):
        if hasattr(value, name):
            yield f".{name}", getattr(value, name)
    for name, item in getattr(value, "__dict__", {}).items():
        yield f".{name}", item


def _attributes(kind: type) -> Iterator[str]:
    """The names of an object's slots."""
    for base in kind.__mro__:
        slots = vars(base).get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if not name.startswith("__"):
                yield name


def _buffer(value: Any) -> bytes | None:
    """The content of a bytearray, an array or the like; None for what has none."""
    try:
        return memoryview(value).tobytes()
    except (TypeError, ValueError, BufferError):
        return None


def _difference(before: list[Part], after: list[Part]) -> str | None:
    """Where two lists of parts differ; None if they are the same."""
    if len(before) != len(after):
        return ""
    for (place, old), (now, new) in zip(before, after, strict=True):
        if place != now or not (old is new or _is_equal(old, new)):
            return now
    return None


def _is_equal(old: Any, new: Any) -> bool:
    """Are these immutable values equal? Anything else has been replaced by another object."""
    return type(old) is type(new) and isinstance(old, _LEAVES) and bool(old == new)

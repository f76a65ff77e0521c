"""Values of registered types without fields: enum members, subclasses of built-in types, own records.

An enum member is kept by its name, so that a member whose value changes stays the same member; flags
that combine several are kept by their number. A subclass of a built-in type is its built-in value and
the attributes beside it; neither its constructor nor any method it overrides is called.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable
from enum import Flag
from typing import Any

from everstep_savers.values.fields import Attributes
from everstep_savers.values.tree import SHAPE_KINDS, Lowering, RefusedError, type_name

# Stored codes; never renumber.
_ENUM, _DERIVED, _RECORD = range(104, 107)
SHAPE_KINDS.update({_ENUM: "an enum", _DERIVED: "a subclass of a built-in type", _RECORD: "a record"})

# How the built-in part of a subclass's instance is read, past what the subclass overrides.
_READ: dict[type, Callable[[Any], Any]] = {
    str: str.__str__,
    int: int.__pos__,
    float: float.__pos__,
    complex: complex.__pos__,
    bytes: lambda value: bytes.__getitem__(value, slice(None)),
    tuple: lambda value: tuple(tuple.__iter__(value)),
    frozenset: lambda value: frozenset(frozenset.__iter__(value)),
    list: lambda value: list(list.__iter__(value)),
    set: lambda value: set(set.__iter__(value)),
    dict: lambda value: dict(dict.items(value)),
}
# How it is put into a new instance, for those whose content does not come with `__new__`.
_FILL: dict[type, Callable[[Any, Any], None]] = {list: list.extend, set: set.update, dict: dict.update}
# Not taken: these hold more than the items of the dict they derive from.
_OPAQUE = (OrderedDict, defaultdict, deque)
HEAP_TYPE = 1 << 9  # Py_TPFLAGS_HEAPTYPE: made by a class statement


def built_in_base(cls: type) -> type | None:
    """The built-in type that a class extends in Python code, if it is one that can be kept."""
    base = next((base for base in cls.__mro__ if base in _READ), None)
    others = [other for other in cls.__mro__ if other is not base and other is not object]
    is_extended = bool(others) and all(other.__flags__ & HEAP_TYPE for other in others)
    return base if is_extended and not issubclass(cls, _OPAQUE) else None


class EnumShape:
    """Members of one enum."""

    def __init__(self, cls: type, name: str) -> None:
        self.cls: Any = cls
        self.name = name
        self.code = _ENUM

    def lower(self, walk: Lowering, value: Any) -> list[Any]:
        """See `Shape`."""
        lowered = walk.mark(_ENUM, self.name.encode())
        if self.cls._member_map_.get(value._name_) is value:
            return walk.items((value._name_,), lowered)
        if isinstance(value, Flag):
            return walk.items((value._value_,), lowered)
        raise RefusedError(f"{value!r} is not one of the members of {type_name(self.cls)}")

    def lift(self, items: list[Any]) -> Any:
        """See `Shape`."""
        (stored,) = items
        if type(stored) is int and issubclass(self.cls, Flag):
            return self.cls(stored)
        member = self.cls._member_map_.get(stored)
        if member is None:
            raise RefusedError(f"the stored member {stored!r} is not in {type_name(self.cls)} any more")
        return member


class DerivedShape:
    """Instances of one subclass of a built-in type."""

    def __init__(self, cls: type, name: str, base: type) -> None:
        self.cls = cls
        self.name = name
        self.code = _DERIVED
        self._base = base
        self._attributes = Attributes(cls)

    def lower(self, walk: Lowering, value: Any) -> list[Any]:
        """See `Shape`."""
        lowered = walk.mark(_DERIVED, self.name.encode())
        lowered.append(self._attributes.lower(walk, value))
        lowered.append(walk.lower(_READ[self._base](value)))
        return lowered

    def lift(self, items: list[Any]) -> Any:
        """See `Shape`."""
        beside, content = items
        if type(content) is not self._base:
            raise RefusedError(
                f"the stored {type_name(self.cls)} holds a {type_name(type(content))}, "
                f"and the class now extends {type_name(self._base)}"
            )
        value = self._make(content)
        self._attributes.restore(value, beside)
        return value

    def _make(self, content: Any) -> Any:
        new: Any = self._base.__new__
        if (fill := _FILL.get(self._base)) is None:
            return new(self.cls, content)
        value = new(self.cls)
        fill(value, content)
        return value


class RecordShape:
    """Instances of a type that came with its own functions."""

    def __init__(
        self, cls: type, name: str, to_fields: Callable[[Any], Any], from_fields: Callable[[Any], Any]
    ) -> None:
        self.cls = cls
        self.name = name
        self.code = _RECORD
        self._to_fields = to_fields
        self._from_fields = from_fields

    def lower(self, walk: Lowering, value: Any) -> list[Any]:
        """See `Shape`."""
        lowered = walk.mark(_RECORD, self.name.encode())
        try:
            fields = self._to_fields(value)
        except Exception as error:
            raise RefusedError(f"{type_name(self.cls)} cannot be stored: {error!r}") from error
        lowered.append(walk.lower(fields))
        return lowered

    def lift(self, items: list[Any]) -> Any:
        """See `Shape`."""
        (fields,) = items
        try:
            return self._from_fields(fields)
        except Exception as error:
            raise RefusedError(f"the stored {type_name(self.cls)} cannot be read: {error!r}") from error

"""The channel of a key with a reducer: each write is reduced into the value."""

from __future__ import annotations

import collections.abc
from collections.abc import Callable, Sequence
from typing import Any, Generic, Self, get_origin

from everstep.channels.base import Value, ValueChannel
from everstep.errors import InvalidUpdateError
from everstep.types import MISSING, Overwrite

# What a key of an abstract container type starts from.
_CONCRETE: dict[Any, type] = {
    collections.abc.Sequence: list,
    collections.abc.MutableSequence: list,
    collections.abc.Set: set,
    collections.abc.MutableSet: set,
    collections.abc.Mapping: dict,
    collections.abc.MutableMapping: dict,
}
_OVERWRITE_KEY = "__overwrite__"


class BinaryOperatorAggregate(ValueChannel[Value], Generic[Value]):
    """Reduces each write into the value with a function of two arguments.

    The value starts from the type called without arguments (``[]`` for ``list[int]``, ``0`` for ``int``)
    where that works, else from the first write. One `Overwrite` a step replaces the value; the other
    writes of that step are dropped.

    Attributes:
        operator: ``operator(value, write) -> value``.
    """

    __slots__ = ("operator",)

    def __init__(self, typ: Any, operator: Callable[[Any, Any], Any], key: str = "") -> None:
        super().__init__(concrete(typ), key)
        self.operator = operator
        self.value = self._zero()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, BinaryOperatorAggregate):
            return NotImplemented
        names = {getattr(self.operator, "__name__", ""), getattr(other.operator, "__name__", "")}
        return self.operator is other.operator or names == {"<lambda>"}

    __hash__ = None

    def _zero(self) -> Any:
        try:
            return self.typ()
        except Exception:  # the type has no zero value; the first write is the value then
            return MISSING

    def from_checkpoint(self, checkpoint: Any) -> Self:
        live = type(self)(self.typ, self.operator, self.key)
        if checkpoint is not MISSING:
            live.value = checkpoint
        return live

    def update(self, values: Sequence[Value]) -> bool:
        if not values:
            return False
        replaced = False
        current = self.value
        for value in values:
            is_overwrite, new = overwrite_of(value)
            if is_overwrite:
                if replaced:
                    raise InvalidUpdateError(
                        f"key {self.key!r} got more than one Overwrite in one step; one node at most may replace it"
                    )
                current, replaced = new, True
            elif current is MISSING:
                current = value
            elif not replaced:
                current = self.operator(current, value)
        self.value = current
        return True


def concrete(typ: Any) -> Any:
    """The type that a key of this type starts from."""
    return _CONCRETE.get(get_origin(typ) or typ, typ)


def overwrite_of(value: Any) -> tuple[bool, Any]:
    """Is this write an `Overwrite` (or its JSON form, ``{"__overwrite__": value}``), and of what value?"""
    if isinstance(value, Overwrite):
        return True, value.value
    if type(value) is dict and len(value) == 1 and _OVERWRITE_KEY in value:
        return True, value[_OVERWRITE_KEY]
    return False, None

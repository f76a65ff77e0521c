"""A channel of many values: the writes of one superstep, or of all."""

from __future__ import annotations

import types
from collections.abc import Iterator, Sequence
from typing import Any, Generic, Self

from everstep.channels.base import BaseChannel, Value
from everstep.errors import EmptyChannelError
from everstep.types import MISSING


class Topic(BaseChannel[Sequence[Value], Value | list[Value]], Generic[Value]):
    """Collects the values written; a write that is a list adds its items.

    Attributes:
        accumulate: Keep the values of earlier steps too.
    """

    __slots__ = ("accumulate", "values")
    ticks = True

    def __init__(self, typ: Any, accumulate: bool = False, key: str = "") -> None:
        super().__init__(typ, key)
        self.accumulate = accumulate
        self.values: list[Value] = []

    @property
    def ValueType(self) -> Any:  # noqa: N802 - the ecosystem's name
        return types.GenericAlias(Sequence, (self.typ,))

    @property
    def UpdateType(self) -> Any:  # noqa: N802 - the ecosystem's name
        return self.typ | types.GenericAlias(list, (self.typ,))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Topic) and other.accumulate == self.accumulate

    __hash__ = None  # type: ignore[assignment]

    @property
    def transient(self) -> bool:  # type: ignore[override]
        """Without accumulation the values live for one step."""
        return not self.accumulate

    def from_checkpoint(self, checkpoint: Any) -> Self:
        live = type(self)(self.typ, self.accumulate, self.key)
        if checkpoint is not MISSING:
            live.values = list(checkpoint)
        return live

    def checkpoint(self) -> Any:
        return list(self.values) if self.values else MISSING

    def get(self) -> Sequence[Value]:
        if not self.values:
            raise EmptyChannelError(f"topic {self.key!r} has no values")
        return list(self.values)

    def peek(self) -> Any:
        return self.values or MISSING

    def is_available(self) -> bool:
        return bool(self.values)

    def update(self, values: Sequence[Value | list[Value]]) -> bool:
        changed = False
        if not self.accumulate and self.values:
            self.values = []
            changed = True
        if values:
            self.values = [*self.values, *_flat(values)]
            changed = True
        return changed


def _flat(values: Sequence[Any]) -> Iterator[Any]:
    for value in values:
        if isinstance(value, list):
            yield from value
        else:
            yield value

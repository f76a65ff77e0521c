"""The contract of a channel: a state cell with update semantics.

A graph holds one channel of each key as a specification; a run makes live ones of it with
`from_checkpoint`. Channels hold values and react; they know nothing of versions, tasks or storage.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Generic, Self, TypeVar

from everstep.errors import EmptyChannelError
from everstep.types import MISSING

Value = TypeVar("Value")
Update = TypeVar("Update")


class BaseChannel(ABC, Generic[Value, Update]):
    """A state cell.

    Attributes:
        typ: Type of the value, as annotated.
        key: Name of the channel in its graph; set when the graph is built.
        transient: The value lives for a step or two; it is stored inside the checkpoint.
        tracked: The value is stored; otherwise neither it is, nor what nodes write to it.
        ticks: `update(())` may change it: a step in which nobody writes is news to it.
        reacts_to_consume: `consume()` may change it.
        reacts_to_finish: `finish()` may change it.
    """

    __slots__ = ("key", "typ")

    transient: ClassVar[bool] = False
    tracked: ClassVar[bool] = True
    ticks: ClassVar[bool] = False
    reacts_to_consume: ClassVar[bool] = False
    reacts_to_finish: ClassVar[bool] = False

    def __init__(self, typ: Any, key: str = "") -> None:
        self.typ = typ
        self.key = key

    @property
    def ValueType(self) -> Any:  # noqa: N802 - the ecosystem's name
        """Type of the value that `get` returns."""
        return self.typ

    @property
    def UpdateType(self) -> Any:  # noqa: N802 - the ecosystem's name
        """Type of one written value."""
        return self.typ

    @abstractmethod
    def from_checkpoint(self, checkpoint: Any) -> Self:
        """A live channel of this specification with the stored value; `MISSING` for an empty one."""

    @abstractmethod
    def checkpoint(self) -> Any:
        """What is stored, or `MISSING`."""

    @abstractmethod
    def get(self) -> Value:
        """The value.

        Raises:
            EmptyChannelError: There is none.
        """

    @abstractmethod
    def update(self, values: Sequence[Update]) -> bool:
        """Apply the writes of one superstep, in task order; tell whether the channel changed.

        Raises:
            InvalidUpdateError: The writes do not fit; the channel is unchanged.
        """

    def snapshot(self) -> Any:
        """What is stored by a saver that knows nothing of this package, or `MISSING`."""
        return self.checkpoint()

    def peek(self) -> Any:
        """The value, or `MISSING`."""
        return self.get() if self.is_available() else MISSING

    def is_available(self) -> bool:
        """Has it a value?"""
        return self.checkpoint() is not MISSING

    def copy(self) -> Self:
        """An independent channel in the same state."""
        return self.from_checkpoint(self.checkpoint())

    def consume(self) -> bool:
        """A task that this channel triggered has run; tell whether that changed the channel."""
        return False

    def finish(self) -> bool:
        """Nothing is left to run; tell whether that changed the channel."""
        return False


class ValueChannel(BaseChannel[Value, Value], Generic[Value]):
    """A channel whose state is its value."""

    __slots__ = ("value",)

    def __init__(self, typ: Any, key: str = "") -> None:
        super().__init__(typ, key)
        self.value: Any = MISSING

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self)

    __hash__ = None  # type: ignore[assignment]

    def from_checkpoint(self, checkpoint: Any) -> Self:
        live = type(self)(self.typ, self.key)
        live.value = checkpoint
        return live

    def checkpoint(self) -> Any:
        return self.value

    def get(self) -> Value:
        if self.value is MISSING:
            raise EmptyChannelError(f"channel {self.key!r} has no value yet")
        value: Value = self.value
        return value

    def peek(self) -> Any:
        return self.value

    def is_available(self) -> bool:
        return self.value is not MISSING

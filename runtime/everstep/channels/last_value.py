"""Channels that keep one value: the last, any of equals, or the last until the run has finished."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Generic, Self

from everstep.channels.base import Value, ValueChannel
from everstep.errors import EmptyChannelError, InvalidUpdateError
from everstep.types import MISSING


class LastValue(ValueChannel[Value], Generic[Value]):
    """The last value written; one write per superstep."""

    __slots__ = ()

    def update(self, values: Sequence[Value]) -> bool:
        if not values:
            return False
        if len(values) > 1:
            raise InvalidUpdateError(
                f"key {self.key!r} keeps one value and got {len(values)} in one step; write it from one node, or "
                f"annotate it with a reducer: Annotated[..., reducer]"
            )
        self.value = values[0]
        return True


class AnyValue(ValueChannel[Value], Generic[Value]):
    """The last of several writes, which are taken to be equal; empty after a step without one."""

    __slots__ = ()
    ticks: ClassVar[bool] = True

    def update(self, values: Sequence[Value]) -> bool:
        if values:
            self.value = values[-1]
            return True
        had_value = self.value is not MISSING
        self.value = MISSING
        return had_value


class EphemeralValue(ValueChannel[Value], Generic[Value]):
    """A value for the next superstep only.

    Attributes:
        guard: More than one write in a step is an error; without it the last one counts.
    """

    __slots__ = ("guard",)
    ticks: ClassVar[bool] = True
    transient: ClassVar[bool] = True

    def __init__(self, typ: Any, key: str = "", guard: bool = True) -> None:
        super().__init__(typ, key)
        self.guard = guard

    def from_checkpoint(self, checkpoint: Any) -> Self:
        live = super().from_checkpoint(checkpoint)
        live.guard = self.guard
        return live

    def update(self, values: Sequence[Value]) -> bool:
        if not values:
            had_value = self.value is not MISSING
            self.value = MISSING
            return had_value
        if len(values) > 1 and self.guard:
            raise InvalidUpdateError(
                f"key {self.key!r} takes one value a step and got {len(values)}; use guard=False to keep the last"
            )
        self.value = values[-1]
        return True


class UntrackedValue(ValueChannel[Value], Generic[Value]):
    """The last value written, never stored: a resumed run starts without it."""

    __slots__ = ("guard",)
    tracked = False

    def __init__(self, typ: Any, key: str = "", guard: bool = True) -> None:
        super().__init__(typ, key)
        self.guard = guard

    def from_checkpoint(self, checkpoint: Any) -> Self:
        return type(self)(self.typ, self.key, self.guard)

    def copy(self) -> Self:
        live = self.from_checkpoint(MISSING)
        live.value = self.value
        return live

    def checkpoint(self) -> Any:
        return MISSING

    def update(self, values: Sequence[Value]) -> bool:
        if not values:
            return False
        if len(values) > 1 and self.guard:
            raise InvalidUpdateError(
                f"key {self.key!r} takes one value a step and got {len(values)}; use guard=False to keep the last"
            )
        self.value = values[-1]
        return True


class LastValueAfterFinish(ValueChannel[Value], Generic[Value]):
    """The last value written, visible once nothing else is left to run: the trigger of a deferred node."""

    __slots__ = ("finished",)
    transient: ClassVar[bool] = True
    reacts_to_consume: ClassVar[bool] = True
    reacts_to_finish: ClassVar[bool] = True

    def __init__(self, typ: Any, key: str = "") -> None:
        super().__init__(typ, key)
        self.finished = False

    def from_checkpoint(self, checkpoint: Any) -> Self:
        live = super().from_checkpoint(MISSING)
        if checkpoint is not MISSING:
            live.value, live.finished = checkpoint
        return live

    def checkpoint(self) -> Any:
        return MISSING if self.value is MISSING else (self.value, self.finished)

    def get(self) -> Value:
        if not self.finished:
            raise EmptyChannelError(f"channel {self.key!r} has no value until the run has nothing else to do")
        return super().get()

    def peek(self) -> Any:
        return self.value if self.finished else MISSING

    def is_available(self) -> bool:
        return self.finished and self.value is not MISSING

    def update(self, values: Sequence[Value]) -> bool:
        if not values:
            return False
        # A node that waits already, for an answer or to be tried again, goes on waiting for that alone.
        self.value, self.finished = values[-1], self.is_available()
        return True

    def consume(self) -> bool:
        if not self.finished:
            return False
        self.value, self.finished = MISSING, False
        return True

    def finish(self) -> bool:
        if self.finished or self.value is MISSING:
            return False
        self.finished = True
        return True

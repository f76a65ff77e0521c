"""The channel of a key with a batch reducer: what is kept are its writes, and a snapshot now and then.

What is stored is a *log*: a seed, then one batch for each superstep that wrote, in the order in which the writes were
applied. A log is a list that grows, and is stored as such: one part a superstep, shared by branches, read with
the checkpoint. Replaying it gives the value again, so a reducer has to be deterministic. Every so many batches the
value itself becomes the seed of a new log.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, Self

from everstep.channels.base import BaseChannel, Value, ValueChannel
from everstep.channels.message_ids import with_message_ids
from everstep.channels.reducer import concrete, overwrite_of
from everstep.errors import InvalidUpdateError
from everstep.types import MISSING
from everstep_savers.checkpoint import PendingWrite
from everstep_savers.delta import DeltaSeed, is_log

Reducer = Callable[[Any, Sequence[Any]], Any]

# Containers that a reducer may change in place: the seed of a log keeps a copy.
_COPIED = frozenset({list, dict, set})


class DeltaChannel(ValueChannel[Value], Generic[Value]):
    """Reduces all writes of a superstep at once: ``reducer(value, [write, ...])``.

    The value starts from the type called without arguments. One `Overwrite` a step replaces the value; the other
    writes of that step are dropped.

    Args:
        reducer: Deterministic. Its attribute ``settle``, if it has one, is called once with each write before the
            write is reduced and kept, so that what is new in it is the same in every replay. By default chat
            messages get their ids there.
        typ: Of the value; taken from the annotation where it is left out.
        snapshot_frequency: So many supersteps that wrote, and the value itself is stored.

    Attributes:
        value: The value; `MISSING` in a specification.
    """

    __slots__ = ("_stored", "reducer", "snapshot_frequency")

    def __init__(self, reducer: Reducer, typ: Any = None, *, snapshot_frequency: int = 100, key: str = "") -> None:
        if snapshot_frequency < 1:
            raise ValueError(f"snapshot_frequency must be a positive int, got {snapshot_frequency!r}")
        super().__init__(None if typ is None else concrete(typ), key)
        self.reducer = reducer
        self.snapshot_frequency = snapshot_frequency
        self._stored: Any = MISSING

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, DeltaChannel):
            return NotImplemented
        return (self.reducer, self.snapshot_frequency) == (other.reducer, other.snapshot_frequency)

    __hash__ = None

    @property
    def ValueType(self) -> Any:  # noqa: N802 - the ecosystem's name
        return self.typ or list

    @property
    def UpdateType(self) -> Any:  # noqa: N802 - the ecosystem's name
        return self.typ or list

    def of_type(self, typ: Any) -> DeltaChannel[Any]:
        """The same specification for a key annotated with `typ`."""
        return type(self)(self.reducer, self.typ or typ, snapshot_frequency=self.snapshot_frequency, key=self.key)

    def from_checkpoint(self, checkpoint: Any) -> Self:
        live = self._empty()
        live._stored = checkpoint
        if not is_log(checkpoint):
            live.value = live._zero() if checkpoint is MISSING else checkpoint
            return live
        seed, *batches = checkpoint
        live.value = _copy(seed.value)
        for batch in batches:
            live.value = self.reducer(live.value, batch)
        return live

    def copy(self) -> Self:
        live = self._empty()
        live.value, live._stored = self.value, self._stored
        return live

    def checkpoint(self) -> Any:
        return self._stored

    def snapshot(self) -> Any:
        return self.value

    def update(self, values: Sequence[Any]) -> bool:
        if not values:
            return False
        read = [overwrite_of(value) for value in values]
        replacing = [value for is_overwrite, value in read if is_overwrite]
        if len(replacing) > 1:
            raise InvalidUpdateError(
                f"key {self.key!r} got more than one Overwrite in one step; one node at most may replace it"
            )
        settle = getattr(self.reducer, "settle", with_message_ids)
        if replacing:
            self.value = self._zero() if replacing[0] is None else settle(replacing[0])
            self._stored = [DeltaSeed(_copy(self.value))]
        else:
            self._reduce([settle(value) for value in values])
        return True

    def replay_writes(self, writes: Sequence[PendingWrite]) -> None:
        """Apply writes that a saver has kept (`aget_delta_channel_history`), oldest first."""
        values = [value for _, _, value in writes]
        replacing = [place for place, value in enumerate(values) if overwrite_of(value)[0]]
        if replacing:
            self.update(values[replacing[-1] : replacing[-1] + 1])
            values = values[replacing[-1] + 1 :]
        self.update(values)

    def _reduce(self, batch: list[Any]) -> None:
        before = None if self.value is MISSING else self.value
        log = self._stored if is_log(self._stored) else [DeltaSeed(_copy(before))]
        self.value = self.reducer(before, batch)
        # A new list: a checkpoint that is not stored yet still has the old one.
        self._stored = [*log, batch] if len(log) < self.snapshot_frequency else [DeltaSeed(_copy(self.value))]

    def _empty(self) -> Self:
        return type(self)(self.reducer, self.typ, snapshot_frequency=self.snapshot_frequency, key=self.key)

    def _zero(self) -> Any:
        try:
            return self.ValueType()
        except Exception:  # the type has no zero value; the reducer's first value is None then
            return MISSING


def restored(spec: BaseChannel[Any, Any], stored: Any) -> BaseChannel[Any, Any]:
    """A live channel with what is stored; a log is replayed for channels that keep none."""
    if not is_log(stored) or isinstance(spec, DeltaChannel):
        return spec.from_checkpoint(stored)
    seed, *batches = stored
    live = spec.from_checkpoint(MISSING if seed.value is None else seed.value)
    for batch in batches:
        live.update(batch)
    return live


def _copy(value: Any) -> Any:
    return value.copy() if type(value) in _COPIED else value

"""The channel of a join: it has a value once every named source has written."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Self

from everstep.channels.base import BaseChannel
from everstep.errors import EmptyChannelError, InvalidUpdateError
from everstep.types import MISSING


def absent(name: str) -> str:
    """What is written for a name that will not come: its node has failed, and that was handled."""
    return f":{name}"  # no name of a node has a colon in it


class NamedBarrierValue(BaseChannel[None, str]):
    """Waits for one write of each name; the tasks it triggers reset it.

    A name may be written as `absent`. The join then never has a value; it is reset when all others have come.

    Attributes:
        names: What it waits for.
        seen: What has come, and what is absent.
    """

    __slots__ = ("names", "seen")
    transient: ClassVar[bool] = True
    reacts_to_consume: ClassVar[bool] = True

    def __init__(self, typ: Any, names: set[str] | frozenset[str], key: str = "") -> None:
        super().__init__(typ, key)
        self.names = frozenset(names)
        self.seen: frozenset[str] = frozenset()

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and getattr(other, "names", None) == self.names

    __hash__ = None  # type: ignore[assignment]

    def from_checkpoint(self, checkpoint: Any) -> Self:
        live = type(self)(self.typ, self.names, self.key)
        if checkpoint is not MISSING:
            live.seen = frozenset(checkpoint)
        return live

    def checkpoint(self) -> Any:
        return sorted(self.seen) if self.seen else MISSING

    def get(self) -> None:
        if not self.is_available():
            raise EmptyChannelError(f"join {self.key!r} still waits for {sorted(self.names - self.seen)}")

    def is_available(self) -> bool:
        return self.seen == self.names

    def update(self, values: Sequence[str]) -> bool:
        come, excused = _parted(values)
        if unknown := (come | excused) - self.names:
            raise InvalidUpdateError(f"join {self.key!r} waits for {sorted(self.names)}, not for {sorted(unknown)}")
        before = self.seen
        self.seen = before.difference(map(absent, come)) | frozenset(values)
        if len(self.seen) == len(self.names) and self.seen != self.names:
            self.seen = frozenset()
        return self.seen != before

    def missing(self) -> tuple[frozenset[str], frozenset[str]]:
        """If somebody waits here: who has come, and who is still to come. Else nobody and nobody."""
        come, excused = _parted(self.seen)
        return (come, self.names - come - excused) if come else (come, come)

    def consume(self) -> bool:
        if self.seen != self.names:
            return False
        self.seen = frozenset()
        return True


def _parted(written: Iterable[str]) -> tuple[frozenset[str], frozenset[str]]:
    """The names that have come, and those that are absent."""
    names = frozenset(written)
    excused = frozenset(name for name in names if name.startswith(":"))
    return names - excused, frozenset(name[1:] for name in excused)


class NamedBarrierValueAfterFinish(NamedBarrierValue):
    """A join of a deferred node: complete once all sources have written and nothing else is left to run."""

    __slots__ = ("finished",)
    reacts_to_finish: ClassVar[bool] = True

    def __init__(self, typ: Any, names: set[str] | frozenset[str], key: str = "") -> None:
        super().__init__(typ, names, key)
        self.finished = False

    def from_checkpoint(self, checkpoint: Any) -> Self:
        live = super().from_checkpoint(MISSING if checkpoint is MISSING else checkpoint[0])
        live.finished = checkpoint is not MISSING and checkpoint[1]
        return live

    def checkpoint(self) -> Any:
        return (sorted(self.seen), self.finished) if self.seen else MISSING

    def is_available(self) -> bool:
        return self.finished and super().is_available()

    def consume(self) -> bool:
        if not self.is_available():
            return False
        self.seen, self.finished = frozenset(), False
        return True

    def finish(self) -> bool:
        if self.finished or self.seen != self.names:
            return False
        self.finished = True
        return True

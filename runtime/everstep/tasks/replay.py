"""Which journalled `@task` call a call of code that runs again is.

Pure. Calls that the code of a node makes one after the other are told apart by their number: the n-th call must be
the n-th call of before, or the code is not deterministic. Calls made beside that flow, by asyncio tasks or threads of
the code's own, come in an order that may differ from run to run: they are told apart by task name and arguments.
"""

from __future__ import annotations

import reprlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from xxhash import xxh3_128_hexdigest

from everstep.errors import DeterminismError
from everstep.types import MISSING, Interrupt
from everstep_savers.codec import Codec
from everstep_savers.errors import CodecError

_repr = reprlib.Repr()
_repr.maxstring = _repr.maxother = 40


@dataclass(frozen=True, slots=True)
class CallRecord:
    """What the journal holds of a call besides its result.

    Attributes:
        caller: Id of the task whose code made the call.
        number: Its place among the caller's calls, from 0; those made beside the flow are counted apart.
        name: The `@task`'s; empty if nobody knows it, in journals of another runtime.
        shown: Name and arguments as a message shows them.
        arguments: Digest of the arguments; None if they cannot be stored: then only names are compared.
        answers: How many answers the run had been given by then; on a branch that answers anew, later calls do not
            count.
        ended: It returned or asked; False if it failed or was cancelled: then it is run again.
        again: It ended after it had failed: what follows it need not be what followed before.
    """

    caller: str
    number: int
    name: str
    shown: str
    arguments: str | None
    aside: bool = False
    answers: int = 0
    ended: bool = True
    again: bool = False

    def stored(self) -> dict[str, Any]:
        """The record as it is stored: plain, so that every saver can keep it."""
        return {name: getattr(self, name) for name in CallRecord.__slots__}

    @classmethod
    def restored(cls, stored: Any) -> CallRecord | None:
        """The record that was stored, if this is one."""
        return cls(**stored) if isinstance(stored, dict) and stored.keys() == set(cls.__slots__) else None

    def is_same(self, name: str, arguments: str | None) -> bool:
        """Is it a call of this task with these arguments?"""
        return self.name in (name, "") and (self.arguments == arguments or None in (self.arguments, arguments))


@dataclass(frozen=True, slots=True)
class Journalled:
    """A call of an earlier attempt or run.

    Attributes:
        value: What it returned; `MISSING` if it did not.
        questions: What it asked, if it waits for answers.
    """

    record: CallRecord
    value: Any = MISSING
    questions: tuple[Interrupt, ...] = ()


class Replay:
    """The journalled calls of one task, as its code makes them again.

    A flow that has left the way of before is matched as calls beside it are, and its new calls are counted with them.

    Args:
        caller: Names the task in messages.

    Attributes:
        is_strict: The flow has gone as before. Once a call has ended that had failed before, it may go elsewhere.
    """

    __slots__ = ("_aside", "_caller", "_flow", "_next_aside", "_next_in_flow", "is_strict")

    def __init__(self, caller: str, journalled: Iterable[Journalled] = ()) -> None:
        self._caller = caller
        ordered = sorted(journalled, key=lambda call: call.record.number)
        self._flow = {call.record.number: call for call in ordered if not call.record.aside}
        self._aside = {call.record.number: call for call in ordered if call.record.aside}
        self._next_in_flow = 0
        self._next_aside = max(self._aside, default=-1) + 1
        self.is_strict = True

    def next_place(self, *, aside: bool) -> tuple[int, bool]:
        """The place of a call that is not journalled: number, and whether it is one beside the flow."""
        if aside or not self.is_strict:
            self._next_aside += 1
            return self._next_aside - 1, True
        self._next_in_flow += 1
        return self._next_in_flow - 1, False

    def find(self, name: str, arguments: str | None, shown: str, *, aside: bool) -> Journalled | None:
        """The journalled call that this one is; each is found once. None if it is new.

        Raises:
            DeterminismError: The journal holds another call at this place of the flow.
        """
        if aside or not self.is_strict:
            found = _taken(self._aside, name, arguments) or _taken(self._flow, name, arguments)
        elif (here := self._flow.get(self._next_in_flow)) is None:
            # Journalled beside the flow: it had left the way of before.
            found = _taken(self._aside, name, arguments)
            self.is_strict = found is None
        elif here.record.is_same(name, arguments):
            self._next_in_flow += 1
            found = self._flow.pop(here.record.number)
        else:
            raise DeterminismError(f"{self._caller} {_mismatch(here.record, shown)}")
        if found is not None and found.record.again:
            self.is_strict = False
        return found


def _taken(calls: dict[int, Journalled], name: str, arguments: str | None) -> Journalled | None:
    number = next((number for number, call in calls.items() if call.record.is_same(name, arguments)), None)
    return None if number is None else calls.pop(number)


def _mismatch(record: CallRecord, shown: str) -> str:
    what = "had called" if record.ended else "had tried"
    other = shown
    if record.shown == shown:
        other = f"{shown} with other arguments"
    return (
        f"now calls {other} where it {what} {record.shown} (call {record.number}); code that runs again must make the "
        f"same calls in the same order: let them depend on its input, earlier results and answers alone"
    )


def digest_of(codec: Codec, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str | None:
    """A digest of a call's arguments: the same in every process; None if they cannot be encoded."""
    # Flat, as the codec is fastest with: the number tells where the keywords begin.
    arguments = [len(args), *args, *(part for pair in sorted(kwargs.items()) for part in pair)]
    try:
        return xxh3_128_hexdigest(codec.canonical(arguments))
    except CodecError:
        return None


def shown_call(name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
    """A call as a message shows it, shortened."""
    given = [*map(_repr.repr, args), *(f"{key}={_repr.repr(value)}" for key, value in kwargs.items())]
    return f"{name}({', '.join(given[:4])}{', ...' if len(given) > 4 else ''})"

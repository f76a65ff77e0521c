"""From the result of a node to writes: state updates, commands, sends, static edges and joins.

Everything that can be known when the graph is compiled is computed there: a run only looks up. Writers
hold no state of a run, and no result reaches a channel that they have not looked at.
"""

from __future__ import annotations

import reprlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from everstep.constants import BRANCH_PREFIX, END, INPUT, ROOT, START, TASKS
from everstep.errors import InvalidUpdateError, ParentCommand, did_you_mean
from everstep.graph.models import Check
from everstep.graph.schema import update_of
from everstep.tasks.node import Write, WriteScope
from everstep.types import MISSING, Command, Send

_repr = reprlib.Repr()
_repr.maxstring = _repr.maxother = 80


def shown(value: Any) -> str:
    """A value for a message: its type and a shortened repr."""
    return f"{type(value).__name__} {_repr.repr(value)}"


def who(node: str) -> str:
    """The writer of an update, for a message."""
    return "the input" if node == INPUT else f"node {node!r}"


@dataclass(frozen=True, slots=True)
class KeyRules:
    """Which keys may be written.

    Attributes:
        known: Keys with a channel.
        dropped: Keys that may be named and are not written: managed values, keys outside the input schema.
        checks: Raise a ValueError if a value does not fit its key.
        ignore_unknown: Drop unknown keys in place of refusing them.
    """

    known: frozenset[str]
    dropped: frozenset[str] = frozenset()
    checks: Mapping[str, Check] = field(default_factory=dict)
    ignore_unknown: bool = False

    def kept(self, update: Mapping[str, Any], where: str) -> dict[str, Any]:
        """The part of an update that is written.

        Raises:
            InvalidUpdateError: A key is unknown.
        """
        kept = {}
        for key, value in update.items():
            if key in self.known:
                kept[key] = value
            elif key not in self.dropped and not self.ignore_unknown:
                near = did_you_mean(key, self.known) if isinstance(key, str) else ""
                raise InvalidUpdateError(
                    f"{where} has key {key!r}, which is in no schema of this graph.{near} Its keys are "
                    f"{', '.join(map(repr, sorted(self.known)))}; compile(unknown_keys='ignore') drops other keys."
                )
        return kept


class Destinations:
    """The nodes a run can go to, and the writes that lead there."""

    __slots__ = ("_writes",)

    def __init__(self, names: Iterable[str]) -> None:
        self._writes: dict[Any, tuple[Write, ...]] = {name: ((BRANCH_PREFIX + name, None),) for name in names}
        self._writes[END] = ()

    def writes_to(self, target: Any, what: str, node: str) -> tuple[Write, ...]:
        """The writes that make a node run, or send it something.

        Args:
            target: The name of a node, `END`, or a `Send`.
            what: What wants to go there, and `node` whose it is; for messages.

        Raises:
            InvalidUpdateError: There is no such node.
        """
        if type(target) is str and (found := self._writes.get(target)) is not None:
            return found
        if isinstance(target, Send):
            if target.node in self._writes and target.node != END:
                return ((TASKS, target),)
            raise self._unknown(target.node, f"a Send by {what}", node)
        if isinstance(target, str) and target in self._writes:
            return self._writes[str(target)]
        raise self._unknown(target, what, node)

    def _unknown(self, target: Any, what: str, node: str) -> InvalidUpdateError:
        if not isinstance(target, str):
            return InvalidUpdateError(
                f"{what} of {who(node)} goes to {shown(target)}; expected the name of a node, END or a Send."
            )
        if target in (START, END):
            return InvalidUpdateError(f"{what} of {who(node)} goes to {target!r}, which runs nothing.")
        near = did_you_mean(target, [name for name in self._writes if name != END])
        return InvalidUpdateError(f"{what} of {who(node)} goes to {target!r}, which is not a node of this graph.{near}")


class _ResultWriter(ABC):
    """What the writers of keyed and of root state have in common: commands, sends and edges."""

    __slots__ = ("_destinations", "_edges", "waits")

    def __init__(self, destinations: Destinations, edges: Iterable[Write] = ()) -> None:
        self.waits = False
        self._destinations = destinations
        self._edges = tuple(edges)

    def __call__(self, output: Any, scope: WriteScope) -> Sequence[Write]:
        """Return the writes of a result and of the node's edges."""
        if output is None:
            return self._edges
        return [*self._writes(output, scope.node), *self._edges]

    def writes_of_command(self, command: Command[Any], node: str = INPUT) -> list[Write]:
        """The writes of the update and the destinations of a command, without the node's edges."""
        if command.graph is not None or command.resume is not MISSING:
            _check_command(command, node)
        writes = [] if command.update is None else list(self._of_update(command.update, node))
        for target in _targets(command.goto):
            writes += self._destinations.writes_to(target, "Command.goto", node)
        return writes

    def _writes(self, output: Any, node: str) -> Iterable[Write]:
        if isinstance(output, Command):
            if output.graph == Command.PARENT:
                raise ParentCommand(output)
            return self.writes_of_command(output, node)
        if isinstance(output, Send):
            return self._destinations.writes_to(output, "the result", node)
        if isinstance(output, list | tuple) and any(isinstance(item, Command | Send) for item in output):
            if up := [item for item in output if isinstance(item, Command) and item.graph == Command.PARENT]:
                raise ParentCommand(*up)
            return [write for item in output if item is not None for write in self._writes(item, node)]
        return self._of_result(output, node)

    def _of_result(self, output: Any, node: str) -> Iterable[Write]:
        """The writes of a result that is an update itself."""
        return self._update(output, node)

    def _of_update(self, update: Any, node: str) -> Iterable[Write]:
        """The writes of `Command.update`."""
        return self._update(update, node)

    @abstractmethod
    def _update(self, value: Any, node: str) -> Iterable[Write]:
        """The writes of an update of the state."""


class StateWriter(_ResultWriter):
    """Writes the updates of a state that is a mapping of keys."""

    __slots__ = ("_free", "_rules")

    def __init__(self, rules: KeyRules, destinations: Destinations, edges: Iterable[Write] = ()) -> None:
        super().__init__(destinations, edges)
        self._rules = rules
        # A dict of these keys alone is written as it is: known keys without a check.
        self._free = rules.known - rules.checks.keys()

    def __call__(self, output: Any, scope: WriteScope) -> Sequence[Write]:
        """Return the writes of a result and of the node's edges."""
        if output is None:
            return self._edges
        if type(output) is dict and self._free.issuperset(output):
            return [*output.items(), *self._edges]
        return [*self._writes(output, scope.node), *self._edges]

    def _of_update(self, update: Any, node: str) -> Iterable[Write]:
        if type(update) is dict and self._free.issuperset(update):
            return update.items()
        if isinstance(update, list | tuple) and all(_is_pair(item) for item in update):
            return [write for pair in update for write in self._update(dict([pair]), node)]
        return self._update(update, node)

    def _update(self, value: Any, node: str) -> Iterable[Write]:
        update = update_of(value)
        if update is None:
            raise InvalidUpdateError(
                f"the update of {who(node)} is {shown(value)}; expected a dict of state keys, an instance of a "
                f"state schema, a Command, a Send, a list with Commands or Sends in it, or None"
            )
        if not self._free.issuperset(update):
            update = self._rules.kept(update, f"the update of {who(node)}")
            check_values(update, self._rules.checks, f"{who(node)} wrote")
        return update.items()


class SubgraphWriter(StateWriter):
    """Writes what a subgraph returns: its own state, of which this graph takes what it has a key for."""

    __slots__ = ()

    def _of_result(self, output: Any, node: str) -> Iterable[Write]:
        update = update_of(output)
        if update is None:
            return self._update(output, node)
        return self._update({key: value for key, value in update.items() if key in self._rules.known}, node)


class RootWriter(_ResultWriter):
    """Writes the updates of a state that is one value."""

    __slots__ = ()

    def _update(self, value: Any, node: str) -> Iterable[Write]:
        return ((ROOT, value),)


def check_values(update: Mapping[str, Any], checks: Mapping[str, Check], who: str) -> None:
    """Check values against the fields of their keys.

    Raises:
        InvalidUpdateError: A value does not fit; names who wrote it, key, value and what is wrong with it.
    """
    for key, value in update.items():
        check = checks.get(key)
        if check is None:
            continue
        try:
            check(value)
        except ValueError as error:
            raise InvalidUpdateError(
                f"{who} {shown(value)} to key {key!r}, which does not fit: {_reasons(error)}"
            ) from error


@dataclass(frozen=True, slots=True)
class ReducedCheck:
    """Checks what a reducer has made of the writes of a step.

    Raises:
        InvalidUpdateError: It does not fit its field; names key, value and what is wrong with it.
    """

    key: str
    check: Check

    def __call__(self, value: Any) -> None:
        try:
            self.check(value)
        except ValueError as error:
            raise InvalidUpdateError(
                f"key {self.key!r} was reduced to {shown(value)}, which does not fit: {_reasons(error)}"
            ) from error


def _reasons(error: Any) -> str:
    """What pydantic found wrong, in one line."""
    found = [(detail["loc"][1:], detail["msg"]) for detail in error.errors(include_url=False)]
    return "; ".join(f"at {'.'.join(map(str, place))}: {text}" if place else text for place, text in found)


def _check_command(command: Command[Any], node: str) -> None:
    if command.graph is not None:
        or_parent = "" if node == INPUT else ", or Command.PARENT"
        raise InvalidUpdateError(
            f"the Command of {who(node)} has graph={command.graph!r}; expected None for this graph{or_parent}"
        )
    if command.resume is not MISSING and node != INPUT:
        raise InvalidUpdateError(f"the Command of {who(node)} has resume=; only the input of a run answers questions")


def _targets(goto: Any) -> Sequence[Any]:
    return goto if isinstance(goto, list | tuple) else (goto,)


def _is_pair(item: Any) -> bool:
    return isinstance(item, tuple) and len(item) == 2 and isinstance(item[0], str)

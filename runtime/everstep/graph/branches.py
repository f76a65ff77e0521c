"""From what a path function returns to writes: conditional edges.

A path function is asked once its node has run; it reads the state as it will be with what the node has
just written. A sync path runs on the event loop: it is to look, not to work.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from inspect import iscoroutine
from typing import Any

from everstep.constants import ROOT, TASKS
from everstep.errors import InvalidUpdateError, did_you_mean
from everstep.graph.writers import Destinations, shown, who
from everstep.tasks.callable import Action
from everstep.tasks.node import Write, WriteScope
from everstep.types import Send


@dataclass(frozen=True, slots=True)
class Reading:
    """What a path function reads: keys, and what is made of them; `keys` of a root state are `(ROOT,)`."""

    keys: tuple[str, ...]
    mapper: Callable[[Any], Any] | None = None
    is_root: bool = False

    def read(self, scope: WriteScope) -> Any:
        """The state, with what the task itself has written so far."""
        values = scope.read(self.keys)
        if self.is_root:
            return values.get(ROOT)
        return values if self.mapper is None else self.mapper(values)


class BranchWriter:
    """Asks a path function where to go.

    Attributes:
        waits: The path is async.
    """

    __slots__ = ("_destinations", "_ends", "_path", "_reading", "_what", "waits")

    def __init__(
        self, name: str, path: Action, reading: Reading, ends: Mapping[Any, str] | None, destinations: Destinations
    ) -> None:
        self.waits = path.is_async
        self._what = f"route {name!r}"
        self._path = path
        self._reading = reading
        self._ends = ends
        self._destinations = destinations

    def __call__(self, output: Any, scope: WriteScope) -> Any:
        """Return the writes that lead where the path goes; an awaitable of them if `waits`."""
        if self.waits:
            return self._route_async(scope)
        result = self._path.call(self._reading.read(scope), scope)
        if iscoroutine(result):
            result.close()
            raise InvalidUpdateError(
                f"{self._what} of {who(scope.node)} is no async function and returned a coroutine; "
                f"make it an `async def`"
            )
        return self._route(result, scope.node)

    async def _route_async(self, scope: WriteScope) -> Sequence[Write]:
        result = await self._path.call(self._reading.read(scope), scope)
        return self._route(result, scope.node)

    def _route(self, result: Any, node: str) -> Sequence[Write]:
        if result is None:
            raise InvalidUpdateError(
                f"{self._what} of {who(node)} returned None; return the name of a node, END, a Send, or a list of these"
            )
        if not isinstance(result, list | tuple):
            return self._destinations.writes_to(self._end(result, node), self._what, node)
        writes: dict[str, Write] = {}
        sends: list[Write] = []
        for target in result:
            for write in self._destinations.writes_to(self._end(target, node), self._what, node):
                if write[0] == TASKS:
                    sends.append(write)
                else:
                    writes[write[0]] = write  # naming a node twice runs it once
        return [*writes.values(), *sends]

    def _end(self, target: Any, node: str) -> Any:
        if self._ends is None or isinstance(target, Send):
            return target
        try:
            return self._ends[target]
        except (KeyError, TypeError):
            near = did_you_mean(target, self._ends) if isinstance(target, str) else ""
            raise InvalidUpdateError(
                f"{self._what} of {who(node)} returned {shown(target)}, which is not among its targets "
                f"{', '.join(map(repr, self._ends))}.{near}"
            ) from None

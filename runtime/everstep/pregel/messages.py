"""Stream mode "messages": what models say in nodes, and messages that nodes return or push.

A message is told once: not as a whole after its tokens, not again when another node returns it, and not if it was in
the input of a node. Its id tells; a message without one gets one when it is told. What an attempt has said that failed
is told again when the next attempt says it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from uuid import uuid4

from everstep.pregel.blueprint import Names
from everstep.pregel.request import RunRequest
from everstep.stream.buffer import Outlet
from everstep.stream.events import Event
from everstep.tasks.current import Attempt, RunScope
from everstep.tasks.models import place_of
from everstep.tasks.task import Task


class Messages:
    """Tells the messages of one run to those who read them.

    Args:
        outlets: Of those who read this mode.
        ns: The run's namespace, as events show it.
    """

    def __init__(self, outlets: Sequence[Outlet], request: RunRequest, scope: RunScope, ns: tuple[str, ...]) -> None:
        from langchain_core.messages import BaseMessage

        self._kind = BaseMessage
        self._outlets = outlets
        self._scope = scope
        self._ns = ns
        self._metadata = request.config.metadata
        self._output: Names = request.graph.output_channels

    def begun(self, task: Task) -> None:
        """A task begins: the messages in its input are no news."""
        args, kwargs = task.arguments
        for value in (*args, *kwargs.values()):
            for message in self._found(value, deep=True):
                if message.id is not None:
                    for outlet in self._outlets:
                        outlet.seen[message.id] = None

    def said(self, attempt: Attempt, message: Any, metadata: dict[str, Any], *, once: bool) -> None:
        """A model has said this: a token, or its whole answer, which is told `once` only."""
        self._tell(attempt.task, attempt.number, message, metadata, once=once)

    def pushed(self, attempt: Attempt, message: Any) -> None:
        """A node has pushed a message."""
        self._tell(attempt.task, attempt.number, message, self._metadata_of(attempt.task, attempt.number), once=False)

    def returned(self, task: Task) -> None:
        """A task has returned: messages among its writes are told as a whole."""
        for key, value in task.writes:
            for message in self._found(value, deep=bool(task.depth) or key == self._output):
                metadata = {**self._metadata_of(task, task.attempt), "ls_integration": "langgraph"}
                self._tell(task, task.attempt, message, metadata, once=True)

    @property
    def is_full(self) -> bool:
        """Has one of the readers fallen behind?"""
        return any(outlet.is_full for outlet in self._outlets)

    async def room(self) -> None:
        """Wait for slow readers."""
        for outlet in self._outlets:
            await outlet.room()

    def wait_for_room(self) -> None:
        """Block a worker thread until slow readers have caught up."""
        for outlet in self._outlets:
            outlet.wait_for_room()

    def _metadata_of(self, task: Task, number: int) -> dict[str, Any]:
        return {**self._metadata, **place_of(self._scope, task, number)}

    def _tell(self, task: Task, number: int, message: Any, metadata: dict[str, Any], *, once: bool) -> None:
        if message.id is None:
            message.id = str(uuid4())
        attempts = (*self._scope.attempts, number)
        event = Event(self._ns, "messages", (message, metadata), attempts=attempts)
        for outlet in self._outlets:
            if once and not _is_news(outlet, message.id, task.name, attempts):
                continue
            outlet.seen[message.id] = (task.name, attempts)
            outlet.put(event)

    def _found(self, value: Any, *, deep: bool) -> Iterator[Any]:
        """The messages that a value is, or is a list of; if `deep`, its fields too."""
        if isinstance(value, self._kind):
            yield value
        elif isinstance(value, list | tuple):
            yield from (item for item in value if isinstance(item, self._kind))
        elif deep:
            fields = value if isinstance(value, Mapping) else getattr(value, "__dict__", {})
            for field in fields.values():
                yield from self._found(field, deep=False)


def _is_news(outlet: Outlet, message_id: str, name: str, attempts: tuple[int, ...]) -> bool:
    """Has the reader not got this message yet, or only of an attempt that failed?"""
    if message_id not in outlet.seen:
        return True
    teller = outlet.seen[message_id]
    return teller is not None and teller[0] == name and teller[1] < attempts

"""`NodeBuilder`: a node declared by hand, from the channels it reads to those it writes.

A builder only collects; `build` makes the node, and what is added afterwards changes no node that was built. Whether
the channels exist is checked by the graph that the node becomes part of.
"""

from __future__ import annotations

import contextvars
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Self

from everstep.context import current_task
from everstep.declared import check_kind, names_of
from everstep.errors import GraphBuildError
from everstep.policies import CachePolicy, RetryPolicy, TimeoutPolicy, cache_policy_of, retry_policies
from everstep.tasks.callable import Action, action_of
from everstep.tasks.current import Attempt
from everstep.tasks.node import Node, Write, WriteScope
from everstep.tasks.threads import run_in_thread
from everstep.types import MISSING

# As the value of a `ChannelWriteEntry`: what the node returned.
PASSTHROUGH: Any = MISSING


@dataclass(frozen=True, slots=True)
class ChannelWriteEntry:
    """One write of a node.

    Attributes:
        channel: Where to.
        value: What; by default what the node returned.
        skip_none: Write nothing if it is None.
        mapper: Makes what is written of the value.
    """

    channel: str
    value: Any = PASSTHROUGH
    skip_none: bool = False
    mapper: Callable[[Any], Any] | None = None

    def writes_of(self, output: Any) -> Sequence[Write]:
        """The write of a result, or nothing."""
        value = output if self.value is PASSTHROUGH else self.value
        if self.mapper is not None:
            value = self.mapper(value)
        return () if value is None and self.skip_none else ((self.channel, value),)


class ChannelWriter:
    """Writes a node's result to channels."""

    waits = False

    def __init__(self, entries: Sequence[ChannelWriteEntry]) -> None:
        self.entries = tuple(entries)

    def __call__(self, output: Any, scope: WriteScope) -> Sequence[Write]:
        """Return the writes of a result."""
        return [write for entry in self.entries for write in entry.writes_of(output)]


class NodeBuilder:
    """Declares a node of a graph that is put together by hand, see `Pregel`."""

    __slots__ = (
        "_actions",
        "_cache",
        "_entries",
        "_metadata",
        "_only",
        "_reads",
        "_retry",
        "_tags",
        "_timeout",
        "_triggers",
    )

    def __init__(self) -> None:
        self._only: str | None = None
        self._triggers: list[str] = []
        self._reads: list[str] = []
        self._actions: list[Action] = []
        self._entries: list[ChannelWriteEntry] = []
        self._tags: list[str] = []
        self._metadata: dict[str, Any] = {}
        self._retry: list[RetryPolicy] = []
        self._timeout: TimeoutPolicy | None = None
        self._cache: CachePolicy | None = None

    def subscribe_only(self, channel: str) -> Self:
        """Run when this channel changes; its value is the input.

        Raises:
            GraphBuildError: Other channels are subscribed to or read already.
        """
        if self._triggers or self._reads:
            taken = ", ".join(map(repr, dict.fromkeys([*self._triggers, *self._reads])))
            raise GraphBuildError(
                f"subscribe_only({channel!r}) makes one channel the whole input, and the node has {taken} already; use "
                f"subscribe_to"
            )
        self._only = channel
        self._triggers += names_of("subscribe_only", (channel,))
        return self

    def subscribe_to(self, *channels: str, read: bool = True) -> Self:
        """Run when one of these channels changes; with `read`, their values are part of the input, by name.

        Raises:
            GraphBuildError: The node has subscribed to a single channel as its input.
        """
        self._refuse_only("subscribe_to", channels)
        self._triggers += [name for name in names_of("subscribe_to", channels) if name not in self._triggers]
        if read:
            self.read_from(*channels)
        return self

    def read_from(self, *channels: str) -> Self:
        """Have the values of these channels, too, in the input, by name; they do not make the node run.

        Raises:
            GraphBuildError: The node has subscribed to a single channel as its input.
        """
        self._refuse_only("read_from", channels)
        self._reads += [name for name in names_of("read_from", channels) if name not in self._reads]
        return self

    def do(self, node: Callable[..., Any] | Any) -> Self:
        """Call this with the input; of several, each gets what the one before it returned.

        Args:
            node: A function, async or sync, a callable object, or an object with `ainvoke`.

        Raises:
            GraphBuildError: It cannot be called.
        """
        self._actions.append(action_of(node))
        return self

    def write_to(self, *channels: str | ChannelWriteEntry, **values: Any) -> Self:
        """Write the result to channels; a keyword writes a value, or what a function makes of the result."""
        for channel in channels:
            rule = "a write goes to the name of a channel, or is a ChannelWriteEntry"
            check_kind(rule, channel, (str, ChannelWriteEntry))
            self._entries.append(ChannelWriteEntry(channel) if isinstance(channel, str) else channel)
        for channel, value in values.items():
            entry = ChannelWriteEntry(channel, mapper=value) if callable(value) else ChannelWriteEntry(channel, value)
            self._entries.append(entry)
        return self

    def meta(self, *tags: str, **metadata: Any) -> Self:
        """Add tags and metadata, for your own use."""
        self._tags += [tag for tag in names_of("tags", tags) if tag not in self._tags]
        self._metadata.update(metadata)
        return self

    def add_retry_policies(self, *policies: RetryPolicy) -> Self:
        """Repeat failed attempts; of several policies the first that matches counts."""
        self._retry += retry_policies(policies)
        return self

    def add_cache_policy(self, policy: CachePolicy) -> Self:
        """Keep what the node's functions return, and take it for equal inputs; needs a graph with a cache."""
        self._cache = cache_policy_of(policy)
        return self

    def set_timeout(self, timeout: float | timedelta | TimeoutPolicy | None) -> Self:
        """Limit each attempt, to seconds, a timedelta or by a policy."""
        self._timeout = TimeoutPolicy.of(timeout)
        return self

    def build(self, name: str = "") -> Node:
        """Make the node; a graph gives it its name."""
        return Node(
            name=name,
            triggers=tuple(self._triggers),
            channels=tuple(self._reads) if self._only is None else self._only,
            action=_chain(self._actions),
            writers=(ChannelWriter(self._entries),),
            retry=tuple(self._retry),
            timeout=self._timeout,
            cache=self._cache,
            metadata=dict(self._metadata),
            tags=tuple(self._tags),
        )

    def _refuse_only(self, method: str, channels: Sequence[str]) -> None:
        if self._only is not None:
            raise GraphBuildError(
                f"{method}({', '.join(map(repr, channels))}) gives an input by names, but the input of this node is "
                f"channel {self._only!r} alone; use subscribe_to({self._only!r}) in place of subscribe_only"
            )


def _chain(actions: Sequence[Action]) -> Action | None:
    """One action that calls several, each with what the one before it returned."""
    if len(actions) < 2:
        return actions[0] if actions else None
    injected = tuple({name: (name, name) for action in actions for _, name in action.injected}.values())
    name = "+".join(action.name for action in actions)
    if any(action.is_async for action in actions):
        return Action(name, _AsyncChain(actions), True, True, injected)
    return Action(name, _SyncChain(actions), False, True, injected)


class _Injected:
    """Hands on what a chain as a whole has been given by name."""

    def __init__(self, given: dict[str, Any]) -> None:
        self.given = given

    def provide(self, name: str) -> Any:
        return self.given[name]


@dataclass(frozen=True, slots=True)
class _SyncChain:
    actions: Sequence[Action]

    def __call__(self, value: Any, **given: Any) -> Any:
        for action in self.actions:
            value = action.call(value, _Injected(given))
        return value


@dataclass(frozen=True, slots=True)
class _AsyncChain:
    actions: Sequence[Action]

    async def __call__(self, value: Any, **given: Any) -> Any:
        for action in self.actions:
            value = await self._one(action, value, _Injected(given))
        return value

    async def _one(self, action: Action, value: Any, given: _Injected) -> Any:
        if action.is_async:
            return await action.call(value, given)
        attempt = current_task.get()
        assert isinstance(attempt, Attempt)  # the chain runs as a node
        result = await run_in_thread(attempt, contextvars.copy_context(), action.bind(value, given))
        return await result if inspect.iscoroutine(result) else result

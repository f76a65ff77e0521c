"""A node as a run sees it: what triggers it, what it reads, what it does, how its result becomes writes.

Built once by `compile()` or `NodeBuilder`; frozen, shared by all runs. Holds no state of a run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from everstep.policies import CachePolicy, RetryPolicy, TimeoutPolicy
from everstep.tasks.callable import Action, Provider

Write = tuple[str, Any]  # channel, value


class WriteScope(Provider, Protocol):
    """What a writer may use while it turns a result into writes."""

    @property
    def node(self) -> str:
        """Name of the node whose result is written."""

    def read(self, channels: Sequence[str]) -> dict[str, Any]:
        """The channels that have a value, as they will be once this task's own writes so far are applied."""


class Writer(Protocol):
    """Turns the result of a node into writes; the writers of a node are called in order.

    `waits` tells that the call returns an awaitable of the writes (a branch whose path is async).
    """

    waits: bool

    def __call__(self, output: Any, scope: WriteScope) -> Any:
        """Return a sequence of writes, or an awaitable of one if `waits`.

        Raises:
            InvalidUpdateError: The result does not fit; names node, key or target and near matches.
        """


@dataclass(frozen=True, slots=True)
class Node:
    """One node of a compiled graph.

    Attributes:
        triggers: The node runs when one of these channels has a value newer than it has seen.
        channels: What it reads: one name gives the value itself, several give a mapping of those that
            have a value.
        mapper: Makes the input of what was read (a dataclass, a pydantic model); None takes it as it is.
        action: None for a node that only writes (the start).
        writers: Called in order with the result.
        timeout: Per attempt.
        error_handler: Runs when this one has failed and its retries are spent; it has neither triggers nor edges.
        hidden: Shows in no stream.
        identity: The name that its tasks' ids hash; the first one a renamed node had.
        subgraph: The compiled graph that is its action, or that its action calls; None if there is none.
    """

    name: str
    triggers: tuple[str, ...]
    channels: str | tuple[str, ...]
    action: Action | None
    writers: tuple[Writer, ...] = ()
    mapper: Callable[[Any], Any] | None = None
    retry: tuple[RetryPolicy, ...] = ()
    timeout: TimeoutPolicy | None = None
    cache: CachePolicy | None = None
    error_handler: Node | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    tags: tuple[str, ...] = ()
    hidden: bool = False
    subgraph: Any = None
    identity: str = ""

    def __post_init__(self) -> None:
        if not self.identity:
            object.__setattr__(self, "identity", self.name)

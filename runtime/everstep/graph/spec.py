"""What a builder has collected: nodes, edges, joins and branches, frozen.

Specifications say what the user declared, checked one by one; whether they fit together is told by
`everstep.graph.validate`, what they become by `everstep.graph.compile`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from everstep.graph.hints import NOWHERE, Targets
from everstep.graph.schema import Schema
from everstep.policies import CachePolicy, RetryPolicy, TimeoutPolicy
from everstep.tasks.callable import Action

UnknownKeys = Literal["error", "ignore"]
UnsatisfiedJoins = Literal["error", "ignore"]


@dataclass(frozen=True, slots=True)
class HandlerSpec:
    """An error handler as declared, of a node or of all nodes without one of their own.

    Attributes:
        goto: Where its `Command`s may go.
        subgraph: The compiled graph that is its action, if it is one.
    """

    action: Action
    goto: Targets = NOWHERE
    subgraph: Any = None


@dataclass(frozen=True, slots=True)
class NodeSpec:
    """A node as declared.

    Attributes:
        input: The keys it reads.
        retry: None leaves it to the defaults of the graph; so do `timeout`, `cache` and `error_handler`.
        goto: Where its `Command`s may go.
        labels: Target -> label of that edge in a drawing.
        subgraph: The compiled graph that is its action, if it is one.
    """

    name: str
    action: Action
    input: Schema
    defer: bool = False
    metadata: Mapping[str, Any] = field(default_factory=dict)
    retry: tuple[RetryPolicy, ...] | None = None
    timeout: TimeoutPolicy | None = None
    cache: CachePolicy | None = None
    error_handler: HandlerSpec | None = None
    goto: Targets = NOWHERE
    labels: Mapping[str, str] = field(default_factory=dict)
    subgraph: Any = None


@dataclass(frozen=True, slots=True)
class EdgeSpec:
    """When `source` has run, `target` runs."""

    source: str
    target: str


@dataclass(frozen=True, slots=True)
class JoinSpec:
    """When all `sources` have run, `target` runs once."""

    sources: tuple[str, ...]
    target: str


@dataclass(frozen=True, slots=True)
class BranchSpec:
    """When `source` has run, `path` tells where to go.

    Attributes:
        ends: What the path may return -> node; None takes what it returns as the name of a node.
        sends: The path may return a `Send` to any node.
        input: The schema the path's first parameter asks for.
    """

    source: str
    name: str
    path: Action
    ends: Mapping[Any, str] | None = None
    sends: bool = True
    input: Schema | None = None


@dataclass(frozen=True, slots=True)
class GraphSpec:
    """A graph as declared."""

    state: Schema
    input: Schema
    output: Schema
    nodes: Mapping[str, NodeSpec]
    edges: tuple[EdgeSpec, ...] = ()
    joins: tuple[JoinSpec, ...] = ()
    branches: tuple[BranchSpec, ...] = ()
    context_schema: Any = None
    retry: tuple[RetryPolicy, ...] = ()
    timeout: TimeoutPolicy | None = None
    cache: CachePolicy | None = None
    error_handler: HandlerSpec | None = None
    unknown_keys: UnknownKeys = "error"
    unsatisfied_joins: UnsatisfiedJoins = "error"
    aliases: Mapping[str, str] = field(default_factory=dict)

    def targets_by_source(self) -> Mapping[str, list[str]]:
        """The targets of the edges that leave each node, in the order of declaration."""
        found: dict[str, list[str]] = {}
        for edge in self.edges:
            found.setdefault(edge.source, []).append(edge.target)
        return found

    def handler_of(self, node: NodeSpec) -> HandlerSpec | None:
        """The error handler of a node: its own, or the one of all nodes."""
        return node.error_handler or self.error_handler

    @property
    def schemas(self) -> tuple[Schema, ...]:
        """All schemas, each once, those with precedence first."""
        found = [self.state, self.input, self.output]
        found += [node.input for node in self.nodes.values()]
        found += [branch.input for branch in self.branches if branch.input is not None]
        return tuple({id(schema): schema for schema in found}.values())

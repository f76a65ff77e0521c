"""Graphs put together by hand: nodes and channels become a blueprint.

Makes what `Pregel(nodes=..., channels=...)` is given into what `StateGraph.compile` makes of a graph, and checks
that it fits together. Nothing is run here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, get_args, get_origin

from everstep.channels.base import BaseChannel
from everstep.channels.managed import ManagedValue
from everstep.constants import TASKS
from everstep.declared import check_kind, mapping_of, names_of, refusal
from everstep.errors import GraphBuildError, did_you_mean
from everstep.policies import CachePolicy, RetryPolicy, cache_policy_of, retry_policies
from everstep.pregel.blueprint import Blueprint, CompileOptions, Names, stops_of
from everstep.pregel.nodes import ChannelWriter, NodeBuilder
from everstep.tasks.node import Node
from everstep.types import All


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration:
    """A graph as it is declared by hand.

    Attributes:
        nodes: By name; builders, or built nodes.
        channels: By name; managed values, such as `RemainingSteps`, may be among them.
        input_channels: One name: the input is its value. Several: the input maps names to values.
        output_channels: One name: its value is the result. Several: a mapping of those with a value.
        stream_channels: What streams and snapshots show; all channels by default.
        interrupt_before_nodes: Static breakpoints: node names, or "*" for all; so is `interrupt_after_nodes`.
        retry_policy: For nodes that have none of their own; so is `cache_policy`.
        name: Of the graph, as threads and messages tell it.
    """

    nodes: Mapping[str, Node | NodeBuilder]
    channels: Mapping[str, Any]
    input_channels: str | Sequence[str]
    output_channels: str | Sequence[str]
    stream_channels: str | Sequence[str] | None = None
    interrupt_before_nodes: All | Sequence[str] = ()
    interrupt_after_nodes: All | Sequence[str] = ()
    checkpointer: Any = None
    store: Any = None
    cache: Any = None
    retry_policy: RetryPolicy | Sequence[RetryPolicy] | None = None
    cache_policy: CachePolicy | None = None
    context_schema: Any = None
    debug: bool = False
    name: str | None = None

    def blueprint(self) -> Blueprint:
        """Make the blueprint.

        Raises:
            GraphBuildError: A node or the graph names a channel that does not exist, or no node takes the input.
        """
        given = mapping_of("channels is a mapping of names to channels", self.channels)
        nodes = mapping_of("nodes is a mapping of names to nodes", self.nodes)
        channels = {key: one for key, one in given.items() if isinstance(one, BaseChannel)}
        managed = {key: _manager(key, one) for key, one in given.items() if not isinstance(one, BaseChannel)}
        inputs = _names("input_channels", self.input_channels)
        blueprint = Blueprint(
            name=self.name or "graph",
            nodes={name: self._node(name, node) for name, node in nodes.items()},
            channels=channels,
            input_channels=inputs,
            output_channels=_names("output_channels", self.output_channels),
            stream_channels=self._stream_channels(channels),
            managed=managed,
            context_schema=self.context_schema,
            annotations=tuple(channel.ValueType for channel in channels.values()),
        )
        _check_writes(blueprint)
        _check_input(blueprint, (inputs,) if isinstance(inputs, str) else inputs)
        return blueprint

    def options(self) -> CompileOptions:
        """What `compile()` would be given.

        Raises:
            GraphBuildError: There is a breakpoint at a node that does not exist.
        """
        before = stops_of("interrupt_before_nodes", self.interrupt_before_nodes)
        after = stops_of("interrupt_after_nodes", self.interrupt_after_nodes)
        for name in (*(() if before == "*" else before), *(() if after == "*" else after)):
            if name not in self.nodes:
                raise GraphBuildError(f"breakpoint at {name!r}, which is not a node.{did_you_mean(name, self.nodes)}")
        return CompileOptions(self.checkpointer, self.store, self.cache, before, after, self.debug, name=self.name)

    def _stream_channels(self, channels: Iterable[str]) -> Names:
        return tuple(channels) if self.stream_channels is None else _names("stream_channels", self.stream_channels)

    def _node(self, name: Any, node: Any) -> Node:
        check_kind("the name of a node is a string", name, str)
        check_kind(f"node {name!r} is a NodeBuilder, or what its build() returned", node, (Node, NodeBuilder))
        built = node.build() if isinstance(node, NodeBuilder) else node
        retry, cache = built.retry or retry_policies(self.retry_policy), built.cache or self.cache_policy
        return replace(built, name=name, identity=name, retry=retry, cache=cache_policy_of(cache))


def declared_graph(given: Mapping[str, Any]) -> tuple[Blueprint, CompileOptions]:
    """Make blueprint and options of what `Pregel` was given by keyword.

    Raises:
        TypeError: A keyword is unknown or missing.
        GraphBuildError: The graph does not fit together.
    """
    if "nodes" not in given:
        raise TypeError(
            "Pregel() takes nodes=, channels=, input_channels= and output_channels=; a state graph is made by "
            "StateGraph(...).compile(), a graph of one function by @entrypoint()"
        )
    for key in given:
        if key not in Declaration.__slots__:
            raise TypeError(f"unknown option {key!r} of Pregel().{did_you_mean(key, Declaration.__slots__)}")
    declaration = Declaration(**given)
    return declaration.blueprint(), declaration.options()


def _manager(key: Any, given: Any) -> type[ManagedValue]:
    """The class of a managed value, which may be given as it stands in a schema."""
    manager = get_args(given)[1] if get_origin(given) is Annotated else given
    if isinstance(manager, type) and issubclass(manager, ManagedValue):
        return manager
    raise refusal(f"channel {key!r} is a channel such as LastValue(int), or a managed value", given)


def _names(option: str, given: str | Sequence[str]) -> Names:
    return given if isinstance(given, str) else names_of(option, given)


def _check_writes(graph: Blueprint) -> None:
    for node in graph.nodes.values():
        for writer in node.writers:
            for entry in writer.entries if isinstance(writer, ChannelWriter) else ():
                if entry.channel not in graph.channels and entry.channel != TASKS:
                    raise GraphBuildError(
                        f"node {node.name!r} writes to channel {entry.channel!r}, which does not exist."
                        f"{did_you_mean(entry.channel, graph.channels)}"
                    )


def _check_input(graph: Blueprint, names: Iterable[str]) -> None:
    if not any(name in graph.triggers for name in names):
        raise GraphBuildError(f"no node runs when the input comes; subscribe one to {' or '.join(map(repr, names))}")

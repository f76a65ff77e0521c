"""Small blueprints, channels and tasks for tests of the engine's pure centre."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from everstep.channels.base import BaseChannel
from everstep.channels.last_value import EphemeralValue, LastValue
from everstep.channels.reducer import BinaryOperatorAggregate
from everstep.channels.snapshot import Channels
from everstep.pregel.blueprint import Blueprint
from everstep.tasks.node import Node, Write


def node(name: str, *triggers: str, reads: str | tuple[str, ...] = ("log",)) -> Node:
    """A node that is triggered by these channels, or by the one named after it."""
    return Node(name, triggers or (f"to:{name}",), reads, None)


def blueprint(*nodes: Node, **channels: BaseChannel[Any, Any]) -> Blueprint:
    """A graph of these nodes over "log" (a list that grows), "value" and one trigger for each node."""
    triggers: dict[str, BaseChannel[Any, Any]] = {
        key: EphemeralValue(Any, guard=False) for each in nodes for key in each.triggers
    }
    log: BaseChannel[Any, Any] = BinaryOperatorAggregate(list, operator.add)
    return Blueprint(
        name="graph",
        nodes={each.name: each for each in nodes},
        channels={**triggers, "log": log, "value": LastValue(int), **channels},
        input_channels=("log", "value"),
        output_channels=("log", "value"),
        stream_channels=("log", "value"),
    )


@dataclass
class Done:
    """A finished task as a barrier sees it."""

    name: str
    writes: Sequence[Write] = ()
    triggers: tuple[str, ...] = ()
    path: tuple[Any, ...] = ()


def live(graph: Blueprint, values: Mapping[str, Any] | None = None) -> Channels:
    """Live channels in which these values have just been written, at version 1."""
    channels = Channels(graph.channels, None)
    for key, value in (values or {}).items():
        channels.write(key, [value])
        channels.bump(key, 1)
    return channels

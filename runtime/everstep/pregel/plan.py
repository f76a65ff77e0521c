"""Planning: which tasks the next superstep has.

Pure. A node is planned when one of its trigger channels has a value newer than the one the node has
seen (PULL), and once for every pending `Send` (PUSH). The same channels give the same tasks, with the
same ids, in every process.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, NamedTuple

from everstep.channels.managed import Progress
from everstep.channels.snapshot import Channels, input_copy
from everstep.constants import PULL, PUSH, TASKS
from everstep.policies import TimeoutPolicy
from everstep.pregel.blueprint import Blueprint
from everstep.tasks.node import Node
from everstep.tasks.task import Task, TaskIds
from everstep.types import MISSING


class At(NamedTuple):
    """Where a superstep is planned.

    Attributes:
        origin: Id that task ids hash: the checkpoint's, or for a fork that of the checkpoint it came from.
        stop: The last step the recursion limit allows.
    """

    origin: str
    checkpoint_ns: str
    step: int
    stop: int


def plan(graph: Blueprint, channels: Channels, at: At, updated: Collection[str] | None = None) -> list[Task]:
    """The tasks of the next superstep: sent ones in order, then triggered ones by name.

    Args:
        updated: Channels that changed at the last barrier; None looks at all nodes.
    """
    ids = TaskIds(at.origin, at.checkpoint_ns)
    tasks = [
        _sent(graph, ids, number, send)
        for number, send in enumerate(channels.pending_sends())
        if send.node in graph.nodes  # one that is gone is told of by `everstep.pregel.renames`
    ]
    for name in _candidates(graph, updated):
        node = graph.nodes[name]
        if is_triggered(node, channels):
            task = _triggered(graph, channels, ids, at, node)
            if task is not None:
                tasks.append(task)
    return tasks


def is_triggered(node: Node, channels: Channels) -> bool:
    """Has one of the node's triggers a value that the node has not seen?"""
    seen = channels.seen.get(node.name)
    for key in node.triggers:
        version = channels.versions.get(key)
        if version is None or not channels.live[key].is_available():
            continue
        last = seen.get(key) if seen is not None else None
        if last is None or version > last:  # type: ignore[operator]  # one kind of version per thread
            return True
    return False


def _candidates(graph: Blueprint, updated: Collection[str] | None) -> Iterable[str]:
    if updated is None:
        return sorted(graph.nodes)
    if len(updated) == 1:
        return graph.triggers.get(next(iter(updated)), ())
    return sorted({name for key in updated for name in graph.triggers.get(key, ())})


def _triggered(graph: Blueprint, channels: Channels, ids: TaskIds, at: At, node: Node) -> Task | None:
    value = read_input(graph, channels, at, node)
    if value is MISSING:
        return None
    return Task(ids, node, (PULL, node.name), node.triggers, value)


def _sent(graph: Blueprint, ids: TaskIds, number: int, send: Any) -> Task:
    node = graph.nodes[send.node]
    task = Task(ids, node, (PUSH, number), (TASKS,), input_copy(send.arg))
    if send.timeout is not None:
        task.timeout = TimeoutPolicy.of(send.timeout)
    return task


def read_input(graph: Blueprint, channels: Channels, at: At, node: Node) -> Any:
    """What the node reads: one channel's value, or a mapping; `MISSING` if its one channel has no value."""
    if isinstance(node.channels, str):
        return channels.read(node.channels)
    if not graph.managed:
        return channels.read(node.channels)
    found = channels.read([key for key in node.channels if key not in graph.managed])
    progress = Progress(at.step, at.stop)
    for key in node.channels:
        if key in graph.managed:
            found[key] = graph.managed[key].get(progress)
    return found

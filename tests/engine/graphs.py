"""States, graphs and configs that many engine tests are made of."""

from __future__ import annotations

import contextlib
import itertools
import operator
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Annotated, Any, TypedDict

from everstep.constants import START
from everstep.graph.builder import StateGraph
from everstep.graph.compiled import CompiledStateGraph
from everstep.policies import RetryPolicy
from everstep.pregel.graph import Pregel
from everstep.types import StateSnapshot

Update = dict[str, Any]
NodeLike = Callable[..., Any] | tuple[str, Callable[..., Any]]

# Tries again at once, and whatever the exception is.
AT_ONCE = RetryPolicy(initial_interval=0, jitter=False, retry_on=Exception)


class Log(TypedDict, total=False):
    """A list that grows, beside keys that keep their last value."""

    log: Annotated[list[Any], operator.add]
    value: Any
    items: list[Any]


def thread(name: str = "t", **more: Any) -> dict[str, Any]:
    """The config of a thread."""
    return {"configurable": {"thread_id": name, **more}}


def chain(
    *nodes: NodeLike, saver: Any = None, node: Mapping[str, Any] | None = None, **options: Any
) -> CompiledStateGraph:
    """Nodes that run one after the other; `node` holds options of each, `options` those of `compile`."""
    builder = _builder(nodes, node)
    names = [START, *builder.nodes]
    for source, target in itertools.pairwise(names):
        builder.add_edge(source, target)
    return builder.compile(saver, **options)


def side_by_side(
    *nodes: NodeLike, saver: Any = None, node: Mapping[str, Any] | None = None, **options: Any
) -> CompiledStateGraph:
    """Nodes that run in one superstep."""
    builder = _builder(nodes, node)
    for name in builder.nodes:
        builder.add_edge(START, name)
    return builder.compile(saver, **options)


def _builder(nodes: tuple[NodeLike, ...], options: Mapping[str, Any] | None) -> StateGraph:
    builder = StateGraph(Log)
    for item in nodes:
        name, action = item if isinstance(item, tuple) else (item.__name__, item)
        builder.add_node(name, action, **(options or {}))
    return builder


def says(name: str) -> tuple[str, Callable[..., Any]]:
    """A node that logs its name."""

    async def run(state: Log) -> Update:
        return {"log": [name]}

    return name, run


async def read(events: AsyncIterator[Any], into: list[Any]) -> None:
    """Read a stream to its end; what was read is there however it ends."""
    async for event in events:
        into.append(event)  # noqa: PERF401  # a comprehension would lose what was read when the stream raises


async def history(graph: Pregel, config: Mapping[str, Any]) -> list[StateSnapshot]:
    """All snapshots of a thread, newest first."""
    return [snapshot async for snapshot in graph.aget_state_history(config)]


def closing(stream: Any) -> contextlib.aclosing[Any]:
    """Close a stream when the block is left, as a careful reader does."""
    return contextlib.aclosing(stream)


def notes_of(error: BaseException) -> list[str]:
    """What was added to an exception."""
    return list(getattr(error, "__notes__", ()))

"""Random graphs: their shapes, and graphs built from them whose nodes finish in any given order.

A shape is a directed acyclic graph with edges, joins, routes that depend on the state, and nodes that send work. What a
node writes depends on the state it sees and on nothing else, so that every run of one shape must give the same.
"""

from __future__ import annotations

import asyncio
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, TypedDict

from hypothesis import strategies as st

from everstep.constants import END, START
from everstep.context import interrupt
from everstep.graph.builder import StateGraph
from everstep.graph.compiled import CompiledStateGraph
from everstep.types import Command, Send

MOST_NODES = 6


class State(TypedDict, total=False):
    log: Annotated[list[Any], operator.add]
    total: Annotated[int, operator.add]
    item: int


@dataclass(frozen=True)
class Shape:
    """The nodes are numbered; edges and routes lead to greater numbers only.

    Attributes:
        entries: Nodes that run first.
        edges: From, to.
        joins: Sources, target.
        routes: Node -> where its route may go; the state decides.
        sends: Node -> how many items it sends to the worker.
        asking: Nodes that ask a question, and log the answer.
    """

    number: int
    entries: tuple[int, ...]
    edges: tuple[tuple[int, int], ...]
    joins: tuple[tuple[tuple[int, ...], int], ...]
    routes: Mapping[int, tuple[int, ...]]
    sends: Mapping[int, int]
    asking: frozenset[int]


@st.composite
def shapes(draw: st.DrawFn, *, ask: bool = False) -> Shape:
    """Shapes in which every node may be reached."""
    number = draw(st.integers(1, MOST_NODES))
    entries, edges, joins, routes = {0}, set(), set(), {}
    for target in range(1, number):
        before = st.integers(0, target - 1)
        sources = draw(st.sets(before, max_size=3))
        if not sources:
            entries.add(target)
        elif len(sources) > 1 and draw(st.booleans()):
            joins.add((tuple(sorted(sources)), target))
        else:
            edges |= {(source, target) for source in sources}
    for source in range(number - 1):
        if draw(st.integers(0, 3)) == 0:
            routes[source] = tuple(sorted(draw(st.sets(st.integers(source + 1, number - 1), min_size=1, max_size=3))))
    return Shape(
        number,
        tuple(sorted(entries)),
        tuple(sorted(edges)),
        tuple(sorted(joins)),
        routes,
        draw(st.dictionaries(st.integers(0, number - 1), st.integers(1, 4), max_size=2)),
        draw(st.frozensets(st.integers(0, number - 1), min_size=1)) if ask else frozenset(),
    )


# How many turns of the loop each node waits, over and over, before it returns.
paces = st.lists(st.integers(0, 6), min_size=1, max_size=8)


@dataclass
class Pace:
    """Makes nodes wait, and so finish in an order of its own."""

    turns: Sequence[int] = (0,)
    calls: int = 0

    async def wait(self) -> None:
        number = self.turns[self.calls % len(self.turns)]
        self.calls += 1
        for _ in range(number):
            await asyncio.sleep(0)


def answer_to(question: Any) -> str:
    """The answer that a question always gets."""
    return f"answer to {question}"


def build(shape: Shape, pace: Pace | None = None, *, asks: bool = False, **options: Any) -> CompiledStateGraph:
    """The graph of a shape; nodes that ask are given the answer at once unless `asks`."""
    pace = pace or Pace()
    builder = StateGraph(State)
    for number in range(shape.number):
        builder.add_node(name_of(number), _action(shape, number, pace, asks))
    builder.add_node("worker", _worker(pace))
    for entry in shape.entries:
        builder.add_edge(START, name_of(entry))
    for source, target in shape.edges:
        builder.add_edge(name_of(source), name_of(target))
    for sources, target in shape.joins:
        builder.add_edge([name_of(source) for source in sources], name_of(target))
    for source, targets in shape.routes.items():
        builder.add_conditional_edges(name_of(source), _route(targets), [*map(name_of, targets), END])
    return builder.compile(unsatisfied_joins="ignore", **options)


def name_of(number: int) -> str:
    return f"n{number}"


def _action(shape: Shape, number: int, pace: Pace, asks: bool) -> Any:
    async def run(state: State) -> Any:
        seen = len(state["log"])
        await pace.wait()
        entry: Any = (number, seen)
        if number in shape.asking:
            question = f"{number} at {seen}"
            entry = (*entry, interrupt(question) if asks else answer_to(question))
        sends = [Send("worker", {"item": seen + item}) for item in range(shape.sends.get(number, 0))]
        return Command(update={"log": [entry], "total": 1}, goto=sends)

    return run


def _worker(pace: Pace) -> Any:
    async def work(state: State) -> dict[str, Any]:
        await pace.wait()
        return {"log": [("worker", state["item"])], "total": state["item"]}

    return work


def _route(targets: Sequence[int]) -> Any:
    def route(state: State) -> Any:
        choice = len(state["log"]) % (len(targets) + 1)
        return END if choice == len(targets) else name_of(targets[choice])

    return route

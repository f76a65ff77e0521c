"""Graphs that LangGraph and Everstep run alike: each takes the library whose names it is made of.

`make.py` ran them on LangGraph and left their threads in the middle of something; the tests go on with them.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, NamedTuple, TypedDict
from uuid import UUID

from pydantic import BaseModel

# What ran, in whichever process.
RAN: list[str] = []


class Colour(Enum):
    RED = "red"


@dataclass
class Order:
    number: int
    colour: Colour


class Address(BaseModel):
    street: str


class Point(NamedTuple):
    x: int
    y: int


Values = Order | Colour | Address | Point


class State(TypedDict, total=False):
    log: Annotated[list[Any], operator.add]
    values: dict[str, Values | Any]


# What `values` holds; LangGraph gives all of these back as they were.
VALUES: dict[str, Any] = {
    "order": Order(7, Colour.RED),
    "address": Address(street="Main"),
    "point": Point(1, 2),
    "at": datetime(2024, 5, 1, 10, 30, tzinfo=UTC),
    "on": date(2024, 5, 1),
    "long": timedelta(hours=5),
    "price": Decimal("1.50"),
    "id": UUID(int=5),
    "set": {1, 2},
    "bytes": b"x\0",
    "keys": {1: "one", "two": 2},
    "text": "x\0y",
    "number": -(2**62),
    "infinite": float("inf"),
}


def says(name: str) -> tuple[str, Callable[..., Any]]:
    """A node that logs its name."""

    def run(state: Any) -> Any:
        RAN.append(name)
        return {"log": [name]}

    return name, run


def asks(lib: Any, name: str, *questions: str, then: Callable[[list[Any]], Any] = lambda answers: answers) -> Any:
    """A node that asks, and logs the answers."""

    def run(state: Any) -> Any:
        return {"log": [f"{name}:{answer}" for answer in then([lib.interrupt(question) for question in questions])]}

    return name, run


def built(lib: Any, nodes: list[Any], edges: list[tuple[Any, str]], saver: Any, **options: Any) -> Any:
    builder = lib.StateGraph(State)
    for name, action, *more in nodes:
        builder.add_node(name, action, **(more[0] if more else {}))
    for source, target in edges:
        builder.add_edge(source, target)
    return builder.compile(checkpointer=saver, **options)


def chained(lib: Any, *nodes: Any, saver: Any = None, **options: Any) -> Any:
    names = [lib.START, *(node[0] for node in nodes)]
    return built(lib, list(nodes), list(itertools.pairwise(names)), saver, **options)


def joined(lib: Any, saver: Any) -> Any:
    """Two nodes side by side, of which one asks, and a join."""
    nodes = [says("first"), asks(lib, "ask", "sure?"), says("sibling"), says("last")]
    edges = [(lib.START, "first"), ("first", "ask"), ("first", "sibling"), (["ask", "sibling"], "last")]
    return built(lib, nodes, edges, saver)


def sends(lib: Any, saver: Any) -> Any:
    """Three tasks of one node, of which the second asks."""

    def each(state: Any) -> Any:
        RAN.append(f"each{state['n']}")
        if state["n"] == 1:
            lib.interrupt("go on?")
        return {"log": [state["n"]]}

    builder = lib.StateGraph(State)
    builder.add_node("each", each)
    targets = [lib.Send("each", {"n": number}) for number in range(3)]
    builder.add_conditional_edges(lib.START, lambda _: targets, ["each"])
    return builder.compile(checkpointer=saver)


def twice(lib: Any, saver: Any) -> Any:
    """A node that asks two questions."""
    return chained(lib, asks(lib, "ask", "one?", "two?"), saver=saver)


# What makes the nodes below fail: a file that is not there, a service that is down.
BROKEN = {"is": False}


def fails(lib: Any, saver: Any) -> Any:
    """A node that fails beside one that does not."""

    def broken(state: Any) -> Any:
        if BROKEN["is"]:
            raise ValueError("broken", 7)
        return {"log": ["repaired"]}

    nodes = [("broken", broken), says("sibling")]
    return built(lib, nodes, [(lib.START, "broken"), (lib.START, "sibling")], saver)


def fails_later(lib: Any, saver: Any) -> Any:
    """A node that fails after it was answered."""

    def call(answers: list[Any]) -> list[Any]:
        if BROKEN["is"]:
            raise RuntimeError("the service is down")
        return answers

    return chained(lib, asks(lib, "ask", "sure?", then=call), saver=saver)


def handled(lib: Any, saver: Any) -> Any:
    """A node whose failure was handled, beside one that asks."""

    def broken(state: Any) -> Any:
        RAN.append("broken")
        raise ValueError("broken")

    _, handle = says("handled")
    nodes = [("broken", broken, {"error_handler": handle}), asks(lib, "review", "sure?")]
    return built(lib, nodes, [(lib.START, "broken"), (lib.START, "review")], saver)


def handler_asks(lib: Any, saver: Any) -> Any:
    """A node whose failure a handler of all nodes asks about, twice."""

    def broken(state: Any) -> Any:
        RAN.append("broken")
        raise ValueError("broken")

    _, handle = asks(lib, "handler", "again?", "really?")
    builder = lib.StateGraph(State)
    builder.set_node_defaults(error_handler=handle)
    builder.add_node("broken", broken)
    builder.add_edge(lib.START, "broken")
    return builder.compile(checkpointer=saver)


def inside(lib: Any, saver: Any) -> Any:
    """A question in a subgraph, two levels deep."""
    deepest = chained(lib, says("deep"), asks(lib, "ask", "sure?"))
    inner = chained(lib, says("inner"), ("deeper", deepest))
    return chained(lib, says("outer"), ("middle", inner), says("last"), saver=saver)


def stateful(lib: Any, saver: Any) -> Any:
    """A subgraph with a history of its own."""
    inner = chained(lib, says("inner"), saver=True)
    return chained(lib, ("middle", inner), saver=saver)


def stops(lib: Any, saver: Any) -> Any:
    """A static breakpoint."""
    return chained(lib, says("one"), says("two"), saver=saver, interrupt_before=["two"])


def deferred(lib: Any, saver: Any) -> Any:
    """A node that waits for everything else."""
    nodes = [says("one"), asks(lib, "ask", "sure?"), (*says("late"), {"defer": True})]
    return built(lib, nodes, [(lib.START, "one"), (lib.START, "late"), ("one", "ask")], saver)


def side_by_side(lib: Any, saver: Any) -> Any:
    """Two questions at once."""
    nodes = [asks(lib, "left", "left?"), asks(lib, "right", "right?")]
    return built(lib, nodes, [(lib.START, "left"), (lib.START, "right")], saver)


def branches(lib: Any, saver: Any) -> Any:
    """Something to branch off."""
    return chained(lib, says("one"), asks(lib, "ask", "sure?"), saver=saver)


def typed(lib: Any, saver: Any) -> Any:
    """Values of many types."""

    def fill(state: Any) -> Any:
        return {"values": VALUES}

    return chained(lib, ("fill", fill), asks(lib, "ask", "sure?"), saver=saver)


def grows(lib: Any, saver: Any) -> Any:
    """A delta channel, with a snapshot now and then."""

    def added(state: list[Any], writes: list[list[Any]]) -> list[Any]:
        return state + [item for write in writes for item in write]

    class Deltas(TypedDict, total=False):
        log: list[Any]

    Deltas.__annotations__["log"] = Annotated[list, lib.DeltaChannel(added, snapshot_frequency=3)]
    builder = lib.StateGraph(Deltas)
    builder.add_node("grow", lambda state: {"log": [len(state["log"])]})
    builder.add_edge(lib.START, "grow")
    builder.add_conditional_edges("grow", lambda state: "grow" if len(state["log"]) % 6 else lib.END, ["grow", lib.END])
    return builder.compile(checkpointer=saver)


# The names of the tasks below, which LangGraph does not store.
TASKS = ("double", "ask", "outer")


def doubling(lib: Any) -> Any:
    def double(number: int) -> int:
        RAN.append(f"double {number}")
        return 2 * number

    return lib.task(double)


def asking(lib: Any) -> Any:
    """A task that asks."""

    def ask(*questions: str) -> list[Any]:
        answers = [lib.interrupt(question) for question in questions]
        RAN.append(f"ask {questions[0]}")
        return answers

    return lib.task(ask)


def flow(lib: Any, saver: Any, body: Callable[[Any, Any], list[Any]]) -> Any:
    """An entrypoint whose log is what its body returns, which gets two tasks to call."""
    double, ask = doubling(lib), asking(lib)

    def run(state: Any) -> dict[str, Any]:
        return {"log": [*state["log"], *body(double, ask)]}

    return lib.entrypoint(checkpointer=saver)(run)


def calls(lib: Any, saver: Any) -> Any:
    """Calls one after the other, a question, another call."""

    def body(double: Any, ask: Any) -> list[Any]:
        once = double(1).result()
        twice = double(once).result()
        return [once, twice, lib.interrupt("sure?"), double(twice).result()]

    return flow(lib, saver, body)


def calls_asking(lib: Any, saver: Any) -> Any:
    """A question in a call, between others."""
    return flow(lib, saver, lambda double, ask: [double(1).result(), *ask("one?", "two?").result(), double(2).result()])


def calls_beside(lib: Any, saver: Any) -> Any:
    """Calls at the same time, of which two ask."""

    def body(double: Any, ask: Any) -> list[Any]:
        started = [double(1), ask("left?"), double(2), ask("right?")]
        return [each.result() for each in started]

    return flow(lib, saver, body)


def calls_within(lib: Any, saver: Any) -> Any:
    """A call that makes others, of which one asks."""

    def body(double: Any, ask: Any) -> list[Any]:
        def outer(number: int) -> list[Any]:
            RAN.append("outer")
            return [double(number).result(), *ask("sure?").result(), double(number + 1).result()]

        started: Any = lib.task(outer)(1)
        return [double(0).result(), *started.result()]

    return flow(lib, saver, body)


def calls_failed(lib: Any, saver: Any) -> Any:
    """A call that fails after another."""

    def body(double: Any, ask: Any) -> list[Any]:
        def broken(number: int) -> int:
            if BROKEN["is"]:
                raise ValueError("broken", 7)
            return number

        return [double(1).result(), lib.task(broken)(5).result()]

    return flow(lib, saver, body)


def calls_in_node(lib: Any, saver: Any) -> Any:
    """A call in a node of a graph, beside a node that has finished."""
    double = doubling(lib)

    def node(state: Any) -> Any:
        return {"log": [double(1).result(), lib.interrupt("sure?")]}

    edges = [(lib.START, "node"), (lib.START, "sibling")]
    return built(lib, [("node", node), says("sibling")], edges, saver)


def previous(lib: Any, saver: Any) -> Any:
    """An entrypoint that keeps something for its next run."""
    double = doubling(lib)

    def run(state: Any, *, previous: Any = None) -> Any:
        saved = double((previous or 0) + 1).result()
        return lib.entrypoint.final(value={"log": [*state["log"], previous]}, save=saved)

    return lib.entrypoint(checkpointer=saver)(run)


GRAPHS: dict[str, Callable[[Any, Any], Any]] = {
    "asked": joined,
    "done": joined,
    "sends": sends,
    "second": twice,
    "failed": fails,
    "failed-later": fails_later,
    "handled": handled,
    "handler-asks": handler_asks,
    "inside": inside,
    "stateful": stateful,
    "stopped": stops,
    "deferred": deferred,
    "partly": side_by_side,
    "forked": branches,
    "updated": branches,
    "edited": branches,
    "typed": typed,
    "delta": grows,
    "calls": calls,
    "calls-asking": calls_asking,
    "calls-answered": calls_asking,
    "calls-beside": calls_beside,
    "calls-within": calls_within,
    "calls-failed": calls_failed,
    "calls-in-node": calls_in_node,
    "calls-done": calls,
    "previous": previous,
}

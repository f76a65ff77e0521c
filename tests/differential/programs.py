"""Random graph programs: a graph, and what its user does with one thread of it.

A program is plain data that JSON can hold, made from a seed alone, so that two processes that share nothing but
these lines build the same graph. Its nodes depend on what they see and on nothing else. Programs are made so that
both libraries accept them; what only one of them allows is not made.
"""

from __future__ import annotations

from random import Random
from typing import Literal, NotRequired, TypedDict

END = "__end__"
START = "__start__"
KEYS = {"log": "list", "total": "sum", "peak": "most", "word": "last", "note": "last"}


Form = Literal["update", "nothing", "command", "list", "parent"]
What = Literal["invoke", "continue", "answer", "command", "repair", "update", "replay", "fork"]
# How often a node returns what, and a user does what.
FORMS: dict[Form, int] = {"update": 6, "command": 2, "list": 1, "nothing": 1}
DEEDS: dict[What, int] = {
    "answer": 6,
    "continue": 4,
    "repair": 2,
    "invoke": 1,
    "update": 1,
    "replay": 1,
    "fork": 1,
    "command": 1,
}


class Node(TypedDict):
    """One node.

    Keys:
        writes: The keys of its update.
        returns: The form of its result; all but `update` and `nothing` may go places.
        overwrites: The key whose value it replaces instead of adding to it.
        asks: How many questions it asks.
        sees: The keys of its input; all by default.
        fails, attempts: Attempts that fail, and how many there may be.
        breaks: It fails until the world is repaired.
        handled: Another function runs when it has failed.
        subgraph: What it runs; `keeps` with a history of its own, `called` from a function.
    """

    name: str
    is_async: bool
    writes: list[str]
    returns: Form
    overwrites: NotRequired[str]
    goto: NotRequired[list[str]]
    sends: NotRequired[list[tuple[str, int]]]
    asks: NotRequired[int]
    fails: NotRequired[int]
    attempts: NotRequired[int]
    breaks: NotRequired[bool]
    handled: NotRequired[bool]
    sees: NotRequired[list[str]]
    defer: NotRequired[bool]
    subgraph: NotRequired[Graph]
    keeps: NotRequired[bool]
    called: NotRequired[bool]


class Route(TypedDict):
    """A conditional edge: one of the targets, or several of them, beside what it sends."""

    source: str
    targets: list[str]
    several: bool
    sends: list[tuple[str, int]]


class Graph(TypedDict):
    """Nodes and what leads to them; keys with the kind of their reducer."""

    keys: dict[str, str]
    nodes: list[Node]
    edges: list[tuple[str, str]]
    joins: list[tuple[list[str], str]]
    routes: list[Route]


class Deed(TypedDict):
    """One thing that a user does with the thread; `by` and `durability` say how a run is called."""

    do: What
    by: Literal["invoke", "stream"]
    durability: Literal["sync", "async", "exit"]
    input: NotRequired[dict[str, object]]
    which: NotRequired[list[int]]
    plain: NotRequired[bool]
    values: NotRequired[dict[str, object]]
    update: NotRequired[dict[str, object]]
    goto: NotRequired[list[str]]
    as_node: NotRequired[str | None]
    back: NotRequired[int]


class Program(Graph):
    """A graph, how it is compiled and called, and the deeds."""

    is_async: bool
    limit: int
    stops: dict[str, list[str]]
    deeds: list[Deed]


def make_program(seed: int) -> Program:
    """The program of a seed."""
    return _Maker(Random(seed)).program()


class _Maker:
    def __init__(self, random: Random) -> None:
        self.random = random
        self.is_async = random.random() < 0.75

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def some(self, items: list[str], most: int) -> list[str]:
        return sorted(self.random.sample(items, min(len(items), self.random.randint(0, most))))

    def program(self) -> Program:
        graph = self.graph("n", depth=0)
        names = [node["name"] for node in graph["nodes"]]
        stops = {when: self.some(names, 2) if self.chance(0.12) else [] for when in ("before", "after")}
        deeds = [self.first(), *(self.deed(names) for _ in range(self.random.randint(1, 6)))]
        limit = self.random.choice([4, 6, 9])
        return {**graph, "is_async": self.is_async, "limit": limit, "stops": stops, "deeds": deeds}

    # The graph

    def graph(self, prefix: str, depth: int) -> Graph:
        number = self.random.randint(1, 5 if depth == 0 else 3)
        names = [f"{prefix}{n}" for n in range(number)]
        nodes = [self.node(name, names, depth) for name in names]
        edges, joins = self.edges(names)
        routes = [self.route(name, names) for name in names if self.chance(0.2)]
        if self.chance(0.1):
            routes.append(self.route(START, names))
        if self.chance(0.3):
            worker = f"{prefix}w"
            nodes.append(self.node(worker, names[:1], depth=9))
            self.random.choice(nodes[:-1])["sends"] = [(worker, self.random.randint(1, 4))]
            if routes and self.chance(0.5):
                self.random.choice(routes)["sends"] = [(worker, self.random.randint(1, 3))]
            if self.chance(0.5):
                edges.append((worker, self.random.choice(names)))
        for node in nodes:
            if node.get("sends") and node["returns"] in ("update", "nothing"):
                node["returns"] = "command"
            if node["returns"] == "parent":
                node["sends"] = []  # the parent does not know the worker
        return {"keys": dict(KEYS), "nodes": nodes, "edges": edges, "joins": joins, "routes": routes}

    def edges(self, names: list[str]) -> tuple[list[tuple[str, str]], list[tuple[list[str], str]]]:
        edges: list[tuple[str, str]] = [(START, names[0])]
        joins: list[tuple[list[str], str]] = []
        for position, target in enumerate(names[1:], 1):
            sources = self.some(names[:position], 3)
            if not sources:
                edges.append((START, target))
            elif len(sources) > 1 and self.chance(0.5):
                joins.append((sources, target))
            else:
                edges += [(source, target) for source in sources]
        if self.chance(0.1):
            edges.append((self.random.choice(names), END))
        return edges, joins

    def route(self, source: str, names: list[str]) -> Route:
        targets = self.some([*names, END], 3) or [END]
        if self.chance(0.5):
            # Mostly forward, so that most runs end by themselves.
            targets = [name for name in targets if name > source or name == END] or [END]
        return {"source": source, "targets": targets, "several": self.chance(0.2), "sends": []}

    def node(self, name: str, names: list[str], depth: int) -> Node:
        writes = sorted(
            {"log", *self.some(["total", "peak"], 2)} | set(self.some(["word", "note"], 1 if self.chance(0.5) else 0))
        )
        node: Node = {
            "name": name,
            "is_async": self.is_async and self.chance(0.8),
            "writes": writes,
            "returns": self.random.choices(list(FORMS), list(FORMS.values()))[0],
        }
        if node["returns"] == "command" and self.chance(0.5):
            node["goto"] = self.some([other for other in names if other > name] or [END], 2)
        if depth == 1 and self.chance(0.1):
            node["returns"] = "parent"
            node.pop("goto", None)
        if self.chance(0.2):
            node["asks"] = self.random.randint(1, 2)
        if self.chance(0.1):
            node["fails"], node["attempts"] = self.random.randint(1, 3), self.random.randint(1, 3)
        if self.chance(0.08):
            node["breaks"] = True
        if (node.get("breaks") or node.get("fails")) and self.chance(0.4):
            node["handled"] = True
        if self.chance(0.1):
            node["sees"] = ["log", *self.some(["total", "word"], 1)]
        if self.chance(0.06):
            node["overwrites"] = self.random.choice([key for key in writes if key not in ("word", "note")])
        if depth == 0 and self.chance(0.08):
            node["defer"] = True
        if depth < 2 and self.chance(0.12 if depth == 0 else 0.05):
            node["keeps"], node["called"] = self.chance(0.3), self.chance(0.3)
            is_async, self.is_async = self.is_async, self.is_async and (node["is_async"] or not node["called"])
            node["subgraph"] = self.graph(f"{name}_", depth + 1)
            self.is_async = is_async
        return node

    # The deeds

    def call(self) -> tuple[Literal["invoke", "stream"], Literal["sync", "async", "exit"]]:
        return self.random.choice(["invoke", "stream"]), self.random.choice(["sync", "sync", "async", "exit"])

    def first(self) -> Deed:
        by, durability = self.call()
        return {"do": "invoke", "by": by, "durability": durability, "input": self.input()}

    def input(self) -> dict[str, object]:
        found: dict[str, object] = {"log": [["input"]]}
        if self.chance(0.5):
            found["total"] = self.random.randint(0, 3)
        if self.chance(0.3):
            found["word"] = "input"
        return found

    def deed(self, names: list[str]) -> Deed:
        by, durability = self.call()
        deed: Deed = {
            "do": self.random.choices(list(DEEDS), list(DEEDS.values()))[0],
            "by": by,
            "durability": durability,
        }
        if deed["do"] == "invoke":
            deed["input"] = self.input()
        elif deed["do"] == "answer":
            deed["which"] = self.random.choice([[0], [0, 1, 2, 3], [1], [1, 0]])
            deed["plain"] = self.chance(0.5)
        elif deed["do"] == "command":
            deed["update"], deed["goto"] = {"log": [["command"]]}, self.some(names, 1)
        elif deed["do"] in ("update", "fork"):
            deed["values"] = {"log": [["by hand"]], "word": "by hand"}
            deed["as_node"] = self.random.choice([None, *names])
        if deed["do"] in ("replay", "fork"):
            deed["back"] = self.random.randint(0, 6)
        return deed

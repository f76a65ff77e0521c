"""Smaller programs that still do what a program does: the shortest way to see a disagreement."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

from tests.differential.programs import END, START, Program

Json = Any
Path = tuple[str, ...]

OPTIONAL = ("goto", "sends", "asks", "handled", "sees", "fails", "breaks", "defer", "overwrites", "keeps", "called")
SIMPLEST: dict[str, Json] = {"by": "invoke", "durability": "sync", "input": {"log": []}, "as_node": None}


def shrink(program: Program, still: Callable[[Program], bool], most: int = 600) -> Program:
    """Make a program smaller as long as `still` holds for what is left; ask that at most `most` times."""
    asked = 0
    while True:
        for smaller in _smaller(program):
            if asked >= most:
                return program
            asked += 1
            if still(smaller):
                program = smaller
                break
        else:
            return program


def _smaller(program: Program) -> Iterator[Program]:
    """Programs with one thing less each, the greatest cuts first."""
    for number in range(1, len(program["deeds"])):
        found = copy.deepcopy(program)
        del found["deeds"][number]
        yield found
    for path in _graphs(program):
        yield from _fewer_nodes(program, path)
        yield from _fewer_edges(program, path)
        yield from _simpler_nodes(program, path)
    yield from _simpler_deeds(program)
    if any(program["stops"].values()):
        found = copy.deepcopy(program)
        found["stops"] = {"before": [], "after": []}
        yield found


def _graphs(graph: Json, path: Path = ()) -> Iterator[Path]:
    """The names of the nodes that lead to each graph of a program."""
    yield path
    for node in graph["nodes"]:
        if "subgraph" in node:
            yield from _graphs(node["subgraph"], (*path, node["name"]))


def _copy(program: Program, path: Path) -> tuple[Program, Json]:
    """A copy of a program, and the graph at this path of it."""
    found = copy.deepcopy(program)
    graph: Json = found
    for name in path:
        graph = next(node for node in graph["nodes"] if node["name"] == name)["subgraph"]
    return found, graph


def _starts(graph: Json) -> int:
    return sum(source == START for source, _ in graph["edges"])


def _fewer_nodes(program: Program, path: Path) -> Iterator[Program]:
    _, graph = _copy(program, path)
    for node in graph["nodes"] if len(graph["nodes"]) > 1 else ():
        found, smaller = _copy(program, path)
        _drop_node(smaller, node["name"], found)
        if _starts(smaller):
            yield found


def _fewer_edges(program: Program, path: Path) -> Iterator[Program]:
    _, graph = _copy(program, path)
    for part in ("edges", "joins", "routes"):
        for number in range(len(graph[part])):
            found, smaller = _copy(program, path)
            del smaller[part][number]
            if _starts(smaller):
                yield found
    for number, route in enumerate(graph["routes"]):
        for target in route["targets"] if len(route["targets"]) > 1 else ():
            found, smaller = _copy(program, path)
            smaller["routes"][number]["targets"].remove(target)
            yield found
        if route["sends"]:
            found, smaller = _copy(program, path)
            smaller["routes"][number]["sends"] = []
            yield found


def _simpler_nodes(program: Program, path: Path) -> Iterator[Program]:
    _, graph = _copy(program, path)
    for number, node in enumerate(graph["nodes"]):
        for change in _simplifications(node):
            found, smaller = _copy(program, path)
            for key, value in change.items():
                if value is None:
                    smaller["nodes"][number].pop(key, None)
                else:
                    smaller["nodes"][number][key] = value
            yield found


def _simplifications(node: Json) -> Iterator[dict[str, Json]]:
    """What to change in a node; None takes a key out."""
    if "subgraph" in node:
        yield {"subgraph": None}
    for key in OPTIONAL:
        if node.get(key):
            yield {key: None}
    if node.get("asks", 0) > 1:
        yield {"asks": 1}
    if node["writes"] != ["log"]:
        yield {"writes": ["log"], "overwrites": None}
    if node["returns"] != "update" and not node.get("sends") and not node.get("goto"):
        yield {"returns": "update"}


def _simpler_deeds(program: Program) -> Iterator[Program]:
    for number, deed in enumerate(program["deeds"]):
        for key, simplest in SIMPLEST.items():
            if key in deed and deed[key] != simplest:  # type: ignore[literal-required]
                found = copy.deepcopy(program)
                found["deeds"][number][key] = simplest  # type: ignore[literal-required]
                yield found


def _drop_node(graph: Json, name: str, program: Json) -> None:
    """Take a node out of a graph, and whatever names it out of the program."""
    graph["nodes"] = [node for node in graph["nodes"] if node["name"] != name]
    graph["edges"] = [edge for edge in graph["edges"] if name not in edge]
    graph["joins"] = [
        ([source for source in sources if source != name], target)
        for sources, target in graph["joins"]
        if target != name and sources != [name]
    ]
    graph["routes"] = [route for route in graph["routes"] if route["source"] != name]
    for one in [*graph["nodes"], *graph["routes"]]:
        one["sends"] = [(target, count) for target, count in one.get("sends", ()) if target != name]
    for route in graph["routes"]:
        route["targets"] = [target for target in route["targets"] if target != name] or [END]
    for node in graph["nodes"]:
        node["goto"] = [target for target in node.get("goto", ()) if target != name]
    for names in program["stops"].values():
        names[:] = [other for other in names if other != name]
    for deed in program["deeds"]:
        if deed.get("as_node") == name:
            deed["as_node"] = None
        if "goto" in deed:
            deed["goto"] = [target for target in deed["goto"] if target != name]

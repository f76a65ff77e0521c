"""Whole-graph checks: do the nodes, edges, joins and branches of a graph fit together?

Pure: specifications in, complaints out. All faults are told at once; what is merely suspicious is a
`GraphWarning`. What one declaration alone can have wrong is refused where it is declared.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from everstep.constants import END, RESERVED, START
from everstep.declared import check_key
from everstep.errors import GraphBuildError, did_you_mean
from everstep.graph.spec import GraphSpec

_SEPARATORS = ("|", ":")


class GraphWarning(UserWarning):
    """The graph can run, but hardly as it was meant."""


def check_node_name(name: Any, taken: Iterable[str]) -> None:
    """Refuse a name that a node cannot have.

    Raises:
        GraphBuildError: The name is empty, reserved, taken, or has a character in it that namespaces use.
    """
    if not isinstance(name, str) or not name:
        raise GraphBuildError(f"the name of a node is a non-empty string, got {type(name).__name__} {name!r}")
    if name in RESERVED:
        raise GraphBuildError(f"node name {name!r} is reserved; choose another")
    check_key("node name", name)
    for separator in _SEPARATORS:
        if separator in name:
            raise GraphBuildError(
                f"node name {name!r} contains {separator!r}, which separates names in namespaces; choose another"
            )
    if name in taken:
        raise GraphBuildError(
            f"node {name!r} is there already; give one of the two another name: add_node('name', action)"
        )


def check_ends(sources: Iterable[Any], target: Any, what: str) -> None:
    """Refuse an edge out of the end or into the start.

    Raises:
        GraphBuildError: An end is not a name, `END` is a source or `START` a target.
    """
    for name in (*sources, target):
        if not isinstance(name, str):
            raise GraphBuildError(f"{what} connects nodes by name, got {type(name).__name__} {name!r}")
    if END in sources:
        raise GraphBuildError(f"{what} starts at END; nothing runs after the end")
    if target == START:
        raise GraphBuildError(f"{what} ends at START; nothing runs before the start")


def check_graph(spec: GraphSpec, stops: Mapping[str, Iterable[str]]) -> None:
    """Refuse a graph that does not fit together.

    Args:
        spec: The graph.
        stops: Names of nodes to stop at, by the option that gave them.

    Raises:
        GraphBuildError: Tells every fault, with nodes, edges and near matches.
    """
    faults = [*_faults(spec), *_unknown_stops(spec, stops), *_useless_aliases(spec)]
    if len(faults) == 1:
        raise GraphBuildError(faults[0])
    if faults:
        raise GraphBuildError(f"the graph has {len(faults)} faults:\n" + "\n".join(f"- {fault}" for fault in faults))


def suspicions(spec: GraphSpec) -> Iterator[str]:
    """What is allowed, and hardly meant."""
    reached = reachable(spec)
    if reached is not None:
        for name in spec.nodes:
            if name not in reached:
                yield (
                    f"node {name!r} can never run: no edge, route or declared destination leads to it from START. A "
                    f"node that goes there by Command says so by its return type, Command[Literal[{name!r}]], or by "
                    f"add_node(..., destinations=({name!r},))"
                )
    static = spec.targets_by_source()
    for node in spec.nodes.values():
        targets = static.get(node.name)
        if targets and node.goto.names:
            yield (
                f"node {node.name!r} has static edges to {_listed(targets)} and declares Command destinations "
                f"{_listed(node.goto.names)}; the static edges are followed whatever its Command says. Leave them "
                f"out if the Command is to choose"
            )


def reachable(spec: GraphSpec) -> frozenset[str] | None:
    """The nodes that a run may come to; None if something reached may go anywhere."""
    following = _following(spec)
    reached: set[str] = set()
    found = {START}
    while found:
        reached |= found
        if any(following.get(name, ()) is None for name in found):
            return None
        found = {target for name in found for target in following.get(name) or ()}
        found |= {join.target for join in spec.joins if reached.issuperset(join.sources)}
        found -= reached
    return frozenset(reached)


def _following(spec: GraphSpec) -> dict[str, list[str] | None]:
    """What may run after each node, joins aside; None for anything."""
    following: dict[str, list[str] | None] = dict(spec.targets_by_source())
    open_ended = {branch.source for branch in spec.branches if branch.ends is None or branch.sends}
    for node in spec.nodes.values():
        handler = spec.handler_of(node)
        if node.goto.anywhere or (handler is not None and handler.goto.anywhere):
            open_ended.add(node.name)
    for branch in spec.branches:
        following[branch.source] = [*(following.get(branch.source) or ()), *(branch.ends or {}).values()]
    for node in spec.nodes.values():
        handler = spec.handler_of(node)
        handled = handler.goto.names if handler is not None else None
        following[node.name] = [*(following.get(node.name) or ()), *(node.goto.names or ()), *(handled or ())]
    return following | dict.fromkeys(open_ended)


def _faults(spec: GraphSpec) -> Iterator[str]:
    if not any(source == START for source in _sources(spec)):
        first = next(iter(spec.nodes), None)
        nearest = "a node, and an edge from START to it" if first is None else f"add_edge(START, {first!r})"
        yield f"the graph has no entry point: no edge starts at START. Begin with {nearest}"
    yield from _unknown_ends(spec)
    yield from _unknown_routes(spec)
    for node in spec.nodes.values():
        for name in node.goto.names or ():
            if not _is_target(spec, name):
                yield f"node {node.name!r} declares the destination {name!r}, {_is_no_node(spec, name)}"
    yield from _unknown_handler_ends(spec)


def _unknown_handler_ends(spec: GraphSpec) -> Iterator[str]:
    handlers = [(f"the error handler of node {node.name!r}", node.error_handler) for node in spec.nodes.values()]
    for what, handler in (*handlers, ("the default error handler", spec.error_handler)):
        for name in (handler.goto.names if handler is not None else None) or ():
            if not _is_target(spec, name):
                yield f"{what} declares the destination {name!r}, {_is_no_node(spec, name)}"


def _sources(spec: GraphSpec) -> Iterator[str]:
    yield from (edge.source for edge in spec.edges)
    yield from (branch.source for branch in spec.branches)


def _unknown_ends(spec: GraphSpec) -> Iterator[str]:
    for edge in spec.edges:
        what = f"edge {edge.source!r} -> {edge.target!r}"
        yield from _unknown(spec, what, (edge.source,), edge.target)
    for join in spec.joins:
        what = f"join {_listed(join.sources)} -> {join.target!r}"
        if START in join.sources:
            yield f"{what} waits for START; START has run when anything runs, leave it out"
        yield from _unknown(spec, what, [source for source in join.sources if source != START], join.target)


def _unknown(spec: GraphSpec, what: str, sources: Iterable[str], target: str) -> Iterator[str]:
    for source in sources:
        if source != START and source not in spec.nodes:
            yield f"{what} starts at {source!r}, {_is_no_node(spec, source)}"
    if not _is_target(spec, target):
        yield f"{what} ends at {target!r}, {_is_no_node(spec, target)}"


def _unknown_routes(spec: GraphSpec) -> Iterator[str]:
    for branch in spec.branches:
        what = f"route {branch.name!r} of node {branch.source!r}"
        if branch.source != START and branch.source not in spec.nodes:
            yield f"route {branch.name!r} starts at {branch.source!r}, {_is_no_node(spec, branch.source)}"
        for result, end in (branch.ends or {}).items():
            if not _is_target(spec, end):
                by = "" if result == end else f" (for {result!r})"
                yield f"{what} may go to {end!r}{by}, {_is_no_node(spec, end)}"


def _unknown_stops(spec: GraphSpec, stops: Mapping[str, Iterable[str]]) -> Iterator[str]:
    for option, names in stops.items():
        for name in names:
            if name not in spec.nodes:
                yield f"{option} names {name!r}, {_is_no_node(spec, name)}"


def _useless_aliases(spec: GraphSpec) -> Iterator[str]:
    for old, new in spec.aliases.items():
        what = f"the alias {old!r} -> {new!r}"
        if new not in spec.nodes:
            yield f"{what} leads to {new!r}, {_is_no_node(spec, new)}"
        if old in spec.nodes:
            yield f"{what} renames {old!r}, which is a node of this graph; an alias begins at a name that is gone"


def _is_target(spec: GraphSpec, name: Any) -> bool:
    return name == END or name in spec.nodes


def _is_no_node(spec: GraphSpec, name: Any) -> str:
    if name == START:
        return "which is the start and cannot be gone to"
    near = did_you_mean(name, [*spec.nodes, END]) if isinstance(name, str) else ""
    return f"which is not a node of this graph.{near}"


def _listed(names: Iterable[str]) -> str:
    return ", ".join(map(repr, names))

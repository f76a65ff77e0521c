"""A graph as it can be drawn: nodes and edges, as Mermaid, as text, as SVG, as JSON.

A drawing shows what is declared: edges, routes with what leads where, destinations of `Command`s. A
route that declares no targets is drawn to every node, for it may go to any. Nothing is run to find out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from everstep.constants import END, START
from everstep.graph.layout import draw_text
from everstep.graph.spec import GraphSpec, NodeSpec
from everstep.graph.svg import Arrow, Box, draw_svg

Stops = tuple[str, ...] | Literal["*"]

# Words that Mermaid does not take for the id of a node.
_MERMAID_WORDS = frozenset(
    {"accDescr", "accTitle", "call", "class", "classDef", "click", "default", "direction", "end", "flowchart"}
    | {"graph", "href", "interpolate", "linkStyle", "style", "subgraph", "_blank", "_parent", "_self", "_top"}
)
_PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_ ]*")
_MERMAID_HEAD = "---\nconfig:\n  flowchart:\n    curve: linear\n---\n"
_MERMAID_STYLES = (
    "\tclassDef default fill:#f2f0ff,line-height:1.2\n\tclassDef first fill-opacity:0\n\tclassDef last fill:#bfb6fc\n"
)


@dataclass(frozen=True, slots=True)
class DrawnNode:
    """A node of a drawing.

    Attributes:
        id: Unique in the drawing: the name, after those of the subgraphs it is in, joined by ":".
        group: Ids of the subgraphs it is in, outermost first.
    """

    id: str
    name: str
    metadata: Mapping[str, Any] = field(default_factory=dict)
    group: tuple[str, ...] = ()


class DrawnEdge(NamedTuple):
    """An edge of a drawing; `data` is its label, `conditional` says that it may not be taken."""

    source: str
    target: str
    data: str | None = None
    conditional: bool = False


@dataclass(frozen=True, slots=True)
class Drawing:
    """Nodes and edges of a graph."""

    nodes: Mapping[str, DrawnNode]
    edges: list[DrawnEdge]

    def draw_mermaid(self, *, with_styles: bool = True) -> str:
        """Return the graph in Mermaid's language."""
        return _mermaid(self, with_styles)

    def draw_ascii(self) -> str:
        """Return the graph as boxes and lines of text; dotted lines may not be taken."""
        return draw_text(
            {node.id: node.name for node in self.nodes.values()},
            [(edge.source, edge.target, edge.conditional) for edge in self.edges],
        )

    def draw_svg(self) -> str:
        """Return the graph as an SVG image; dashed lines may not be taken."""
        return draw_svg(
            {node.id: _box(node) for node in self.nodes.values()},
            [Arrow(edge.source, edge.target, edge.data or "", edge.conditional) for edge in self.edges],
        )

    def to_json(self) -> dict[str, list[dict[str, Any]]]:
        """Return nodes and edges as plain dicts and lists."""
        return {
            "nodes": [_without_empty(id=n.id, name=n.name, metadata=dict(n.metadata)) for n in self.nodes.values()],
            "edges": [
                _without_empty(source=e.source, target=e.target, data=e.data, conditional=e.conditional)
                for e in self.edges
            ],
        }


def drawing_of(spec: GraphSpec, before: Stops = (), after: Stops = (), xray: int | bool = False) -> Drawing:
    """Draw a graph.

    Args:
        spec: The graph.
        before: Nodes that the graph stops before, and `after` after; "*" for all.
        xray: Draw the nodes of subgraphs in place of the nodes that run them; a number limits how deep.
    """
    nodes = {START: DrawnNode(START, START)}
    for node in spec.nodes.values():
        nodes[node.name] = DrawnNode(node.name, node.name, _metadata(node, before, after))
    nodes[END] = DrawnNode(END, END)
    edges = _edges(spec)
    if not any(edge.target == END for edge in edges):
        del nodes[END]
    drawing = Drawing(nodes, edges)
    if xray:
        depth = xray if xray is True else xray - 1
        for node in spec.nodes.values():
            if node.subgraph is not None:
                inner = node.subgraph.spec
                drawing = _opened(drawing, node.name, drawing_of(inner, xray=depth))
    return drawing


def _metadata(node: NodeSpec, before: Stops, after: Stops) -> dict[str, Any]:
    found = dict(node.metadata)
    if node.defer:
        found["defer"] = True
    stops = [when for when, names in (("before", before), ("after", after)) if names == "*" or node.name in names]
    if stops:
        found["__interrupt"] = ",".join(stops)
    return found


def _edges(spec: GraphSpec) -> list[DrawnEdge]:
    """Edges, joins, routes and destinations in order; after them, a node that nothing follows leads to the end."""
    declared = sorted(set(_declared_edges(spec)), key=lambda edge: (*edge[:2], edge.data or "", edge.conditional))
    leaving = {edge.source for edge in declared}
    return [*declared, *(DrawnEdge(name, END) for name in spec.nodes if name not in leaving)]


def _declared_edges(spec: GraphSpec) -> Iterator[DrawnEdge]:
    for edge in spec.edges:
        yield DrawnEdge(edge.source, edge.target)
    for join in spec.joins:
        for source in join.sources:
            yield DrawnEdge(source, join.target)
    for branch in spec.branches:
        ends = {name: name for name in (*spec.nodes, END)} if branch.ends is None else branch.ends
        for result, target in ends.items():
            label = None if result == target else str(result)
            yield DrawnEdge(branch.source, target, label, conditional=True)
    for node in spec.nodes.values():
        for target in node.goto.names or ():
            yield DrawnEdge(node.name, target, node.labels.get(target), conditional=True)


def _opened(outer: Drawing, name: str, inner: Drawing) -> Drawing:
    """The drawing with one node replaced by the drawing of its subgraph."""
    first = [edge.target for edge in inner.edges if edge.source == START]
    last = [edge.source for edge in inner.edges if edge.target == END]
    nodes: dict[str, DrawnNode] = {}
    for key, node in outer.nodes.items():
        if key != name:
            nodes[key] = node
            continue
        for part in inner.nodes.values():
            if part.id not in (START, END):
                group = (name, *(f"{name}:{outer_group}" for outer_group in part.group))
                nodes[f"{name}:{part.id}"] = DrawnNode(f"{name}:{part.id}", part.name, part.metadata, group)
    edges: dict[DrawnEdge, None] = {}
    for edge in outer.edges:
        sources = [f"{name}:{part}" for part in last] if edge.source == name else [edge.source]
        targets = [f"{name}:{part}" for part in first] if edge.target == name else [edge.target]
        for source in sources:
            for target in targets:
                edges[DrawnEdge(source, target, edge.data, edge.conditional)] = None
    for edge in inner.edges:
        if edge.source != START and edge.target != END:
            edges[DrawnEdge(f"{name}:{edge.source}", f"{name}:{edge.target}", edge.data, edge.conditional)] = None
    return Drawing(nodes, list(edges))


def _box(node: DrawnNode) -> Box:
    kind: Literal["node", "start", "end"] = "start" if node.id == START else "end" if node.id == END else "node"
    within = " / ".join(group.rpartition(":")[2] for group in node.group)
    return Box(node.name, kind, within, "\n".join(f"{key} = {value}" for key, value in node.metadata.items()))


def _without_empty(**items: Any) -> dict[str, Any]:
    return {key: value for key, value in items.items() if value not in (None, False, {})}


def _mermaid(drawing: Drawing, with_styles: bool) -> str:
    ids = _mermaid_ids(drawing.nodes)
    lines = []
    if with_styles:
        lines += [f"\t{ids[node.id]}{_shape(node)}" for node in drawing.nodes.values() if not node.group]
    lines += list(_mermaid_groups(drawing, ids, (), with_styles))
    lines += [_mermaid_edge(edge, ids) for edge in drawing.edges]
    head = _MERMAID_HEAD if with_styles else ""
    return head + "graph TD;\n" + "\n".join(lines) + "\n" + (_MERMAID_STYLES if with_styles else "")


def _mermaid_groups(
    drawing: Drawing, ids: Mapping[str, str], around: tuple[str, ...], with_nodes: bool
) -> Iterator[str]:
    """The subgraphs directly inside `around`, each with its nodes."""
    depth = len(around) + 1
    groups = dict.fromkeys(
        n.group[:depth] for n in drawing.nodes.values() if len(n.group) >= depth and n.group[: depth - 1] == around
    )
    for group in groups:
        name = group[-1].rpartition(":")[2]
        yield f"\tsubgraph {_mermaid_id(group[-1])}[{_quoted(name)}]"
        for node in drawing.nodes.values():
            if node.group == group:
                yield f"\t{ids[node.id]}{_shape(node) if with_nodes else ''}"
        yield from _mermaid_groups(drawing, ids, group, with_nodes)
        yield "\tend"


def _mermaid_edge(edge: DrawnEdge, ids: Mapping[str, str]) -> str:
    source, target = ids[edge.source], ids[edge.target]
    if edge.data is None:
        return f"\t{source} {'-.->' if edge.conditional else '-->'} {target};"
    label = _quoted(edge.data, padded=True)
    return f"\t{source} {f'-. {label} .->' if edge.conditional else f'-- {label} -->'} {target};"


def _shape(node: DrawnNode) -> str:
    if node.id == START:
        return f"([<p>{START}</p>]):::first"
    if node.id == END:
        return f"([<p>{END}</p>]):::last"
    if not node.metadata:
        return f"({_quoted(node.name)})"
    details = "<br/>".join(_escaped(f"{key} = {value}") for key, value in node.metadata.items())
    return f'("{_escaped(node.name)}<hr/><small><em>{details}</em></small>")'


def _quoted(text: str, *, padded: bool = False) -> str:
    if _PLAIN.fullmatch(text):
        return f"&nbsp;{text}&nbsp;" if padded else text
    return f'"{_escaped(text)}"'


def _escaped(text: str) -> str:
    """Text for a Mermaid string: characters with a meaning in it or in HTML become entities."""
    return "".join(f"#{ord(c)};" if c in '"#&;<>`\\\n' else c for c in text)


def _mermaid_ids(names: Mapping[str, Any]) -> dict[str, str]:
    ids: dict[str, str] = {}
    taken: set[str] = set()
    for name in names:
        found = _mermaid_id(name)
        while found in taken:
            found += "_"
        ids[name] = found
        taken.add(found)
    return ids


def _mermaid_id(name: str) -> str:
    """An id that Mermaid takes: letters, digits and underscores, and none of its words."""
    found = re.sub(r"[^A-Za-z0-9_]", lambda match: f"_{ord(match[0]):x}_", name)
    return f"{found}_" if found in _MERMAID_WORDS else found

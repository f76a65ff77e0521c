"""Graphs as SVG images: what is drawn, and that nothing lies on something else."""

from __future__ import annotations

import itertools
from typing import Any, Literal, TypedDict
from xml.etree import ElementTree

from everstep.constants import END, START
from everstep.graph.builder import StateGraph
from everstep.graph.svg import Arrow, Box, draw_svg

_SVG = "{http://www.w3.org/2000/svg}"


class State(TypedDict, total=False):
    value: int


def node(state: State) -> None:
    """A node that does nothing."""


def parts(svg: str, kind: str) -> list[ElementTree.Element]:
    """All elements of a kind, those of the arrow's head left out."""
    root = ElementTree.fromstring(svg)
    return list(root.findall(f"{_SVG}{kind}"))


def texts(svg: str, kind: str = "") -> list[str]:
    """The texts of a class."""
    return [part.text or "" for part in parts(svg, "text") if part.get("class", "") == kind]


def graph(**more: Any) -> Any:
    def route(state: State) -> Literal["left", "right"]:
        return "left"

    builder = StateGraph(State).add_node("first", node, **more).add_node("left", node).add_node("right", node)
    builder.add_edge(START, "first").add_edge("left", END).add_edge("right", END)
    return builder.add_conditional_edges("first", route).compile()


def test_every_node_has_a_box_with_its_name() -> None:
    svg = graph().get_graph().draw_svg()
    assert sorted(texts(svg)) == ["__end__", "__start__", "first", "left", "right"]
    assert [part.get("class") for part in parts(svg, "rect")] == ["start", None, None, None, "end"]


def test_lines_that_may_not_be_taken_are_dashed() -> None:
    svg = graph().get_graph().draw_svg()
    assert [part.get("class") for part in parts(svg, "path")] == [None, "dotted", "dotted", None, None]


def test_boxes_lie_inside_of_the_image_and_not_on_one_another() -> None:
    names = [f"node {number}" for number in range(12)]
    arrows = [Arrow("root", name) for name in names] + [Arrow(names[0], "root"), Arrow(names[1], names[1])]
    svg = draw_svg({name: Box(name) for name in ("root", *names)}, arrows)
    root = ElementTree.fromstring(svg)
    width, height = int(root.get("width", "0")), int(root.get("height", "0"))
    boxes = [tuple(float(part.get(key, "0")) for key in ("x", "y", "width", "height")) for part in parts(svg, "rect")]
    assert all(x > 0 and y > 0 and x + w < width and y + h < height for x, y, w, h in boxes)
    for (x1, y1, w1, h1), (x2, y2, w2, h2) in itertools.combinations(boxes, 2):
        assert x1 + w1 < x2 or x2 + w2 < x1 or y1 + h1 < y2 or y2 + h2 < y1


def test_an_edge_that_leads_back_runs_around_the_boxes() -> None:
    svg = draw_svg({"a": Box("a"), "b": Box("b")}, [Arrow("a", "b"), Arrow("b", "a", dotted=True)])
    down, back = parts(svg, "path")
    assert " C" in (down.get("d") or "")
    assert back.get("class") == "dotted"
    around = float((back.get("d") or "").split(" H")[1].split(" ")[0])
    assert all(float(box.get("x", "0")) + float(box.get("width", "0")) < around for box in parts(svg, "rect"))


def test_an_edge_over_several_rows_has_one_head() -> None:
    boxes = {name: Box(name) for name in "abc"}
    svg = draw_svg(boxes, [Arrow("a", "b"), Arrow("b", "c"), Arrow("a", "c")])
    assert [part.get("marker-end") is not None for part in parts(svg, "path")].count(True) == 3


def test_what_a_route_returns_stands_at_its_target() -> None:
    arrows = [Arrow("a", "b", "yes"), Arrow("a", "b", "sure"), Arrow("a", "c", "no"), Arrow("c", "a", "again")]
    svg = draw_svg({name: Box(name) for name in "abc"}, arrows)
    assert texts(svg, "label") == ["yes, sure", "no", "again"]


def test_nodes_of_a_subgraph_say_where_they_are() -> None:
    inner = StateGraph(State).add_node("deep", node).add_edge(START, "deep").compile()
    middle = StateGraph(State).add_node("inner", inner).add_edge(START, "inner").compile()
    outer = StateGraph(State).add_node("middle", middle).add_edge(START, "middle").compile()
    svg = outer.get_graph(xray=True).draw_svg()
    assert "deep" in texts(svg)
    assert texts(svg, "within") == ["middle / inner"]
    assert "middle" in texts(outer.get_graph().draw_svg())


def test_metadata_shows_on_request() -> None:
    svg = graph(metadata={"owner": "ops"}).get_graph().draw_svg()
    titles = [title.text for part in parts(svg, "rect") for title in part.findall(f"{_SVG}title")]
    assert titles == ["owner = ops"]


def test_names_may_hold_any_characters() -> None:
    svg = draw_svg({"x": Box('a < b & "c"', details="<d>")}, [])
    assert texts(svg) == ['a < b & "c"']


def test_the_same_graph_gives_the_same_image() -> None:
    assert graph().get_graph().draw_svg() == graph().get_graph().draw_svg()

"""`everstep graph ...`: drawings of graphs that a command line names."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from everstep.ops.cli import main

_MODULE = """
from typing import TypedDict
from everstep.constants import START
from everstep.graph.builder import StateGraph

class State(TypedDict, total=False):
    value: int

def node(state):
    return None

inner = StateGraph(State).add_node("deep", node).add_edge(START, "deep").compile(name="inner")
builder = StateGraph(State).add_node("sub", inner).add_edge(START, "sub")
graph = builder.compile(name="shop")

class Holder:
    held = graph
"""


@pytest.fixture(autouse=True)
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A module `shop_graphs` in the current directory."""
    (tmp_path / "shop_graphs.py").write_text(_MODULE)
    (tmp_path / "wants_more.py").write_text("import not_installed_here")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield
    for name in ("shop_graphs", "wants_more"):
        sys.modules.pop(name, None)


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """Exit code, output and errors of a command."""
    code = main(["graph", *arguments])
    out, err = capsys.readouterr()
    return code, out, err


def test_a_graph_is_drawn_as_mermaid_text_or_image(capsys: pytest.CaptureFixture[str]) -> None:
    code, mermaid, _ = said(capsys, "shop_graphs:graph")
    drawing = sys.modules["shop_graphs"].graph.get_graph()
    assert (code, mermaid) == (0, drawing.draw_mermaid())
    assert said(capsys, "shop_graphs:graph", "--format", "ascii") == (0, drawing.draw_ascii() + "\n", "")
    assert said(capsys, "shop_graphs:graph", "--format", "svg") == (0, drawing.draw_svg(), "")


@pytest.mark.parametrize(("xray", "drawn"), [((), False), (("--xray",), True), (("--xray", "1"), True)])
def test_xray_draws_what_is_in_subgraphs(
    capsys: pytest.CaptureFixture[str], xray: tuple[str, ...], drawn: bool
) -> None:
    _, text, _ = said(capsys, "shop_graphs:graph", "--format", "ascii", *xray)
    assert ("deep" in text) == drawn


def test_a_graph_that_is_not_compiled_is_drawn_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert said(capsys, "shop_graphs:builder") == said(capsys, "shop_graphs:graph")
    assert said(capsys, "shop_graphs:Holder.held") == said(capsys, "shop_graphs:graph")


def test_nodes_and_edges_come_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    _, text, _ = said(capsys, "shop_graphs:graph", "--json")
    data = json.loads(text)
    assert data["name"] == "shop"
    assert {"source": "sub", "target": "__end__"} in data["edges"]


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("shop_graphs", "'shop_graphs' names nothing; write package.module:name"),
        ("shop_graphs:grpah", "module 'shop_graphs' has no 'grpah'. Did you mean 'graph'?"),
        ("shop_graphs:Holder.hled", "'Holder' has no 'hled'. Did you mean 'held'?"),
        ("no_such:graph", "there is no module 'no_such'; run this where it can be imported, from {here} it cannot"),
        ("shop_graphs:State.__name__", "shop_graphs:State.__name__ is str 'State', which is no graph"),
    ],
)
def test_what_cannot_be_drawn_is_told_in_a_sentence(
    capsys: pytest.CaptureFixture[str], target: str, message: str
) -> None:
    assert said(capsys, target) == (1, "", message.format(here=Path.cwd()) + "\n")


def test_what_a_module_lacks_itself_is_not_taken_for_the_module(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ModuleNotFoundError, match="not_installed_here"):
        said(capsys, "wants_more:graph")

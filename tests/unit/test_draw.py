"""How a graph is drawn: as nodes and edges, as Mermaid, as text."""

from __future__ import annotations

import re
from typing import Any, Literal, TypedDict

import pytest

from everstep.constants import END, START
from everstep.graph.builder import StateGraph
from everstep.types import Command


class State(TypedDict):
    total: int


def keep(state: State) -> dict[str, Any]:
    return {}


def pay_or_check(state: State) -> Literal["pay", "check"]:
    return "pay"


def anywhere(state: State) -> str:
    return "pay"


def back_to_pay(state: State) -> Command[Literal["pay"]]:
    return Command(goto="pay")


def orders() -> StateGraph:
    builder = StateGraph(State).add_node("pay", keep).add_node("check", keep).add_node("ship", keep, defer=True)
    builder.add_conditional_edges(START, pay_or_check)
    return builder.add_edge(["pay", "check"], "ship")


def named(*names: str) -> StateGraph:
    builder = StateGraph(State)
    for name in names:
        builder.add_node(name, keep)
        builder.add_edge(START, name)
    return builder


def edges_of(builder: StateGraph, **options: Any) -> list[tuple[Any, ...]]:
    drawing = builder.compile().get_graph(**options)
    return [(edge.source, edge.target, edge.data, edge.conditional) for edge in drawing.edges]


def test_edges_joins_and_routes_are_drawn_and_a_last_node_leads_to_the_end() -> None:
    assert edges_of(orders()) == [
        (START, "check", None, True),
        (START, "pay", None, True),
        ("check", "ship", None, False),
        ("pay", "ship", None, False),
        ("ship", END, None, False),
    ]


def test_edges_are_plain_tuples_too_and_those_that_are_not_declared_come_last() -> None:
    edges = named("1", "0").add_edge("1", "0").compile().get_graph().edges
    assert edges == [
        ("1", "0", None, False),
        (START, "0", None, False),
        (START, "1", None, False),
        ("0", END, None, False),
    ]


def test_an_edge_is_labelled_with_what_the_route_returns() -> None:
    builder = named("pay").add_conditional_edges("pay", anywhere, {True: END, "pay": "pay"})
    assert edges_of(builder) == [
        (START, "pay", None, False),
        ("pay", END, "True", True),
        ("pay", "pay", None, True),
    ]


def test_a_route_without_targets_is_drawn_to_every_node() -> None:
    builder = named("pay", "check").add_conditional_edges("check", anywhere)
    assert edges_of(builder)[2:] == [
        ("check", END, None, True),
        ("check", "check", None, True),
        ("check", "pay", None, True),
        ("pay", END, None, False),
    ]


def test_destinations_of_commands_are_drawn_with_their_labels() -> None:
    builder = named("pay").add_node("back", back_to_pay).add_node("told", keep, destinations={"pay": "again"})
    builder.add_edge("pay", "back").add_edge("pay", "told")
    assert edges_of(builder)[1:] == [
        ("back", "pay", None, True),
        ("pay", "back", None, False),
        ("pay", "told", None, False),
        ("told", "pay", "again", True),
    ]


def test_a_graph_that_never_ends_is_drawn_without_an_end() -> None:
    drawing = named("pay").add_edge("pay", "pay").compile().get_graph()
    assert list(drawing.nodes) == [START, "pay"]


def test_nodes_tell_their_metadata_and_breakpoints() -> None:
    builder = orders().add_node("note", keep, metadata={"team": "a"}).add_edge("pay", "note")
    drawing = builder.compile(interrupt_before=["pay"], interrupt_after=["pay", "ship"]).get_graph()
    assert {name: dict(node.metadata) for name, node in drawing.nodes.items() if node.metadata} == {
        "pay": {"__interrupt": "before,after"},
        "ship": {"defer": True, "__interrupt": "after"},
        "note": {"team": "a"},
    }
    everywhere = builder.compile(interrupt_before="*").get_graph()
    assert all("__interrupt" in node.metadata for name, node in everywhere.nodes.items() if name not in (START, END))


def test_json_has_nodes_and_edges_without_empty_entries() -> None:
    builder = named("pay").add_conditional_edges("pay", anywhere, {"done": END})
    assert builder.compile(interrupt_before=["pay"]).get_graph().to_json() == {
        "nodes": [
            {"id": START, "name": START},
            {"id": "pay", "name": "pay", "metadata": {"__interrupt": "before"}},
            {"id": END, "name": END},
        ],
        "edges": [
            {"source": START, "target": "pay"},
            {"source": "pay", "target": END, "data": "done", "conditional": True},
        ],
    }


def test_mermaid_has_the_form_that_people_know() -> None:
    builder = orders().add_conditional_edges("ship", anywhere, {"again": "pay", "end": END})
    assert builder.compile(interrupt_before=["check"]).get_graph().draw_mermaid() == (
        "---\n"
        "config:\n"
        "  flowchart:\n"
        "    curve: linear\n"
        "---\n"
        "graph TD;\n"
        "\t__start__([<p>__start__</p>]):::first\n"
        "\tpay(pay)\n"
        '\tcheck("check<hr/><small><em>__interrupt = before</em></small>")\n'
        '\tship("ship<hr/><small><em>defer = True</em></small>")\n'
        "\t__end__([<p>__end__</p>]):::last\n"
        "\t__start__ -.-> check;\n"
        "\t__start__ -.-> pay;\n"
        "\tcheck --> ship;\n"
        "\tpay --> ship;\n"
        "\tship -. &nbsp;end&nbsp; .-> __end__;\n"
        "\tship -. &nbsp;again&nbsp; .-> pay;\n"
        "\tclassDef default fill:#f2f0ff,line-height:1.2\n"
        "\tclassDef first fill-opacity:0\n"
        "\tclassDef last fill:#bfb6fc\n"
    )


def test_mermaid_without_styles_has_edges_alone() -> None:
    assert named("pay").compile().get_graph().draw_mermaid(with_styles=False) == (
        "graph TD;\n\t__start__ --> pay;\n\tpay --> __end__;\n"
    )


@pytest.mark.parametrize(
    ("name", "id_", "shape"),
    [
        ("end", "end_", "(end)"),
        ("call", "call_", "(call)"),
        ("a b", "a_20_b", "(a b)"),
        ("x-y", "x_2d_y", '("x-y")'),
        ("<lambda>", "_3c_lambda_3e_", '("#60;lambda#62;")'),
        ('say "hi"; #1', "say_20__22_hi_22__3b__20__23_1", '("say #34;hi#34;#59; #35;1")'),
        ("日本", "_65e5__672c_", '("日本")'),
    ],
)
def test_a_name_that_mermaid_would_not_take_gets_an_id_of_its_own(name: str, id_: str, shape: str) -> None:
    text = named(name).compile().get_graph().draw_mermaid()
    assert f"\t{id_}{shape}\n" in text
    assert f"\t__start__ --> {id_};\n" in text


def test_two_names_never_get_one_id() -> None:
    text = named("a b", "a_20_b", "end", "end_").compile().get_graph().draw_mermaid()
    ids = re.findall(r"^\t__start__ --> (\w+);$", text, re.MULTILINE)
    assert len(set(ids)) == 4


def nested() -> StateGraph:
    inner = named("scan").add_node("note", keep).add_edge("scan", "note")
    middle = named("inner-most").add_edge("inner-most", END)
    middle = StateGraph(State).add_node("inner", inner.compile()).add_edge(START, "inner")
    return (
        StateGraph(State)
        .add_node("outer", middle.compile())
        .add_node("ship", keep)
        .add_sequence([("first", keep)])
        .add_edge(START, "first")
        .add_edge("first", "outer")
        .add_edge("outer", "ship")
    )


def test_a_subgraph_is_one_node_unless_asked_to_look_inside() -> None:
    assert list(nested().compile().get_graph().nodes) == [START, "outer", "ship", "first", END]


def test_looking_inside_draws_the_nodes_of_subgraphs() -> None:
    assert edges_of(nested(), xray=True) == [
        (START, "first", None, False),
        ("first", "outer:inner:scan", None, False),
        ("outer:inner:note", "ship", None, False),
        ("ship", END, None, False),
        ("outer:inner:scan", "outer:inner:note", None, False),
    ]


def test_a_number_limits_how_deep_to_look() -> None:
    assert "outer:inner" in nested().compile().get_graph(xray=1).nodes
    assert "outer:inner:scan" in nested().compile().get_graph(xray=2).nodes


def test_mermaid_nests_the_nodes_of_subgraphs() -> None:
    text = nested().compile().get_graph(xray=True).draw_mermaid(with_styles=False)
    assert text.startswith(
        "graph TD;\n"
        "\tsubgraph outer[outer]\n"
        "\tsubgraph outer_3a_inner[inner]\n"
        "\touter_3a_inner_3a_scan\n"
        "\touter_3a_inner_3a_note\n"
        "\tend\n"
        "\tend\n"
        "\t__start__ --> first;\n"
    )


def text_of(builder: StateGraph) -> str:
    """The drawing, between line breaks as it stands in the tests below."""
    return f"\n{builder.compile().get_graph().draw_ascii()}\n"


def test_text_draws_boxes_in_rows_with_lines_between_them() -> None:
    assert (
        text_of(orders())
        == """
    +-----------+
    | __start__ |
    +-----------+
    +.....+....+
    v          v
 +-----+   +-------+
 | pay |   | check |
 +-----+   +-------+
    +-----+    |
          +----+
          v
      +-------+
      | ship  |
      +-------+
          v
     +---------+
     | __end__ |
     +---------+
"""
    )


def test_text_leads_long_edges_past_the_rows_between_and_past_one_another() -> None:
    builder = named("a", "b", "c").add_edge("a", "b").add_edge("b", "c").add_edge("a", "c")
    assert (
        text_of(builder)
        == """
 +-----------+
 | __start__ |
 +-----------+
   +---+-+---+
   v     |   |
 +---+   |   |
 | a |   |   |
 +---+   |   |
 +-+---+ |   |
 |     +-+   |
 |     v     |
 |   +---+   |
 |   | b |   |
 |   +---+   |
 +-----+     |
       +-----+
       v
     +---+
     | c |
     +---+
       v
  +---------+
  | __end__ |
  +---------+
"""
    )


def test_text_lists_what_leads_back_up() -> None:
    builder = named("pay").add_node("back", back_to_pay).add_edge("pay", "back")
    assert builder.compile().get_graph().draw_ascii().endswith("\nback ..> pay (back)")


def test_an_edge_that_may_not_be_taken_and_one_that_is_are_one_line() -> None:
    builder = named("pay").add_node("check", keep).add_edge("pay", "check")
    builder.add_conditional_edges("pay", anywhere, ["check"])
    assert builder.compile().get_graph().draw_ascii().count("v") == 3


def test_a_large_graph_is_drawn() -> None:
    builder = named(*(f"n{number}" for number in range(60)))
    for number in range(59):
        builder.add_edge(f"n{number}", f"n{number + 1}")
    text = builder.compile().get_graph().draw_ascii()
    assert all(f"| n{number} " in text for number in range(60))

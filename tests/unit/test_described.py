"""What a graph tells clients of its input and output, and type checkers of its types."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Annotated, Any, TypedDict

import pytest
from pydantic import BaseModel, ValidationError

from everstep.channels.last_value import LastValue
from everstep.channels.topic import Topic
from everstep.constants import START
from everstep.errors import GraphBuildError
from everstep.graph.builder import StateGraph
from everstep.graph.compiled import CompiledStateGraph
from everstep.pregel.graph import Pregel
from everstep.pregel.nodes import NodeBuilder


class Order(TypedDict, total=False):
    amount: int


class Model(BaseModel):
    amount: int = 1


@dataclass
class Data:
    amount: int = 1


AMOUNT = {"amount": {"type": "integer", "title": "Amount"}}
AMOUNT_OR_1 = {"amount": {"type": "integer", "title": "Amount", "default": 1}}


def graph_of(schema: Any, name: str | None = None, **schemas: Any) -> CompiledStateGraph:
    return StateGraph(schema, **schemas).add_node("n", lambda state: state).add_edge(START, "n").compile(name=name)


def by_hand(**options: Any) -> Pregel:
    node = NodeBuilder().subscribe_only("in").do(lambda value: value).write_to("out")
    return Pregel(nodes={"n": node}, channels={"in": LastValue(int), "out": Topic(str)}, **options)


@pytest.mark.parametrize(
    ("schema", "described"),
    [
        (Order, {"type": "object", "title": "Order", "properties": AMOUNT}),
        (Model, {"type": "object", "title": "Model", "properties": AMOUNT_OR_1}),
        (Data, {"type": "object", "title": "LangGraphInput", "properties": AMOUNT_OR_1}),
        (Annotated[int, operator.add], {"type": "integer", "title": "LangGraphInput"}),
    ],
)
def test_a_state_is_described_by_its_schema(schema: Any, described: dict[str, Any]) -> None:
    graph = graph_of(schema)
    assert graph.get_input_jsonschema() == described
    output = {**described, "title": described["title"].replace("Input", "Output")}
    assert graph.get_output_jsonschema() == output


def test_input_and_output_schemas_are_described_each_by_its_own() -> None:
    graph = graph_of(Order, input_schema=Data, output_schema=Model, name="orders")
    assert graph.get_input_jsonschema()["title"] == "orders_input"
    assert graph.get_output_jsonschema()["title"] == "Model"


def test_the_model_of_a_pydantic_state_is_the_state_itself() -> None:
    assert graph_of(Model).input_schema is Model
    assert graph_of(Model).output_schema is Model


def test_clients_can_check_an_input_with_the_model() -> None:
    model = graph_of(Order).input_schema
    assert model.model_validate({"amount": "3"}).root == {"amount": 3}
    with pytest.raises(ValidationError):
        model.model_validate({"amount": "three"})
    assert graph_of(Order, output_schema=Data).output_schema.model_validate({"amount": 2}).root == Data(2)


def test_a_graph_by_hand_is_described_by_the_types_of_its_channels() -> None:
    one = by_hand(input_channels="in", output_channels="out")
    assert one.input_schema.model_json_schema() == {"type": "integer", "title": "LangGraphInput"}
    assert one.output_schema.model_json_schema() == {
        "type": "array",
        "items": {"type": "string"},
        "title": "LangGraphOutput",
    }
    several = by_hand(input_channels=["in"], output_channels=["in"], name="sums")
    assert several.input_schema.model_json_schema() == {
        "type": "object",
        "title": "sums_input",
        "properties": {"in": {"type": "integer", "title": "In", "default": None}},
    }
    assert several.get_output_jsonschema()["title"] == "sums_output"


def test_graphs_can_be_annotated_with_the_types_of_state_context_input_and_output() -> None:
    assert StateGraph[Order](Order).add_node("n", lambda state: state).add_edge(START, "n").compile().name == "graph"
    # As a module without `from __future__ import annotations` evaluates them.
    assert eval("StateGraph[Order, Data, Order, Order]").__args__ == (Order, Data, Order, Order)
    assert eval("CompiledStateGraph[Order]").__origin__ is CompiledStateGraph


def test_a_graph_without_a_state_is_refused() -> None:
    with pytest.raises(GraphBuildError) as refused:
        StateGraph(None)
    assert (
        str(refused.value) == "a graph needs a state: StateGraph(State), with a TypedDict, dataclass or pydantic model"
    )

"""Options of a call: `context` as the graph's schema has it, and `debug`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypedDict

import pytest
from pydantic import BaseModel, ValidationError

from everstep.constants import START
from everstep.context import Runtime
from everstep.errors import ConfigError
from everstep.graph.builder import StateGraph
from everstep.graph.functional import entrypoint
from tests.engine.graphs import Log, chain, says, thread


@dataclass
class Data:
    key: str
    limit: int = 30


class Model(BaseModel):
    key: str
    limit: int = 30


class Typed(TypedDict):
    key: str


async def seen(schema: Any, given: Any) -> Any:
    """The context that a node and a node of its subgraph find."""
    found: list[Any] = []

    async def node(state: Log, runtime: Runtime[Any]) -> None:
        found.append(runtime.context)

    inner = StateGraph(Log, context_schema=schema).add_node("node", node).add_edge(START, "node").compile()
    outer = StateGraph(Log, context_schema=schema).add_node("node", node).add_node("inner", inner)
    await outer.add_edge(START, "node").add_edge("node", "inner").compile().ainvoke({"log": []}, context=given)
    assert found[0] is found[1]
    return found[0]


@pytest.mark.parametrize("schema", [Data, Model])
async def test_a_dict_becomes_an_instance_of_the_context_schema(schema: Any) -> None:
    assert await seen(schema, {"key": "k", "limit": 60}) == schema(key="k", limit=60)
    assert await seen(schema, {"key": "k"}) == schema(key="k")
    assert await seen(schema, None) is None


async def test_an_instance_and_a_typed_dict_are_handed_on_as_they_are() -> None:
    for schema, given in ((Data, Data("k")), (Model, Model(key="k")), (Typed, {"key": "k"}), (None, {"key": "k"})):
        assert await seen(schema, given) is given


async def test_a_dict_that_does_not_fit_is_refused_before_anything_runs(saver: Any) -> None:
    ran: list[int] = []

    @entrypoint(checkpointer=saver, context_schema=Data)
    async def data(value: int) -> None:
        ran.append(value)

    @entrypoint(checkpointer=saver, context_schema=Model)
    async def model(value: int) -> None:
        ran.append(value)

    config = {"configurable": {"thread_id": "t"}}
    with pytest.raises(TypeError, match="unexpected keyword argument 'lmit'"):
        await data.ainvoke(1, config, context={"key": "k", "lmit": 1})
    with pytest.raises(ValidationError):
        await model.ainvoke(1, config, context={})
    assert ran == []
    assert await saver.aget_thread("t") is None


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("on_pending", "rejct", "on_pending is 'supersede' or 'reject', got 'rejct'"),
        ("on_error", "drian", "on_error is 'cancel' or 'drain', got 'drian'"),
        ("control", 3, "control is a RunControl, got int 3"),
        ("interrupt_before", 3, "interrupt_before is a list of names, got int 3"),
        ("output_keys", 3, "output_keys is a list of names, got int 3"),
        ("stream_mode", 3, "stream_mode is a mode or a list of modes, got int 3"),
    ],
)
async def test_an_option_that_means_nothing_is_refused_and_nothing_runs(
    option: str, value: Any, message: str, saver: Any
) -> None:
    graph = chain(says("a"), saver=saver)
    with pytest.raises(ConfigError) as caught:
        await graph.ainvoke({"log": []}, thread(), **{option: value})
    assert str(caught.value) == message
    assert await saver.aget_thread("t") is None


@pytest.mark.parametrize("option", ["on_pending", "on_error", "unsatisfied_joins"])
def test_an_option_of_compile_that_means_nothing_is_refused(option: str) -> None:
    options: dict[str, Any] = {option: "x"}
    with pytest.raises(ConfigError, match=f"{option} is '.*' or '.*', got 'x'"):
        chain(says("a"), **options)


async def test_debug_can_be_set_for_one_call(capsys: Any) -> None:
    graph = chain(says("a"))
    await graph.ainvoke({"log": []}, debug=True)
    assert capsys.readouterr().out == "[values] {'log': []}\n[updates] {'a': {'log': ['a']}}\n[values] {'log': ['a']}\n"
    await graph.ainvoke({"log": []})
    assert [part async for part in graph.astream({"log": []}, debug=False)] == [{"a": {"log": ["a"]}}]
    assert capsys.readouterr().out == ""


async def test_debug_of_a_graph_can_be_left_out_for_one_call(capsys: Any) -> None:
    await chain(says("a"), debug=True).ainvoke({"log": []}, debug=False)
    assert capsys.readouterr().out == ""


async def test_debug_of_one_call_finds_what_nodes_change_in_place() -> None:
    async def node(state: Log) -> None:
        state["items"][0].append(2)

    assert await chain(node).ainvoke({"items": [[1]]}) is not None
    with pytest.raises(Exception, match=r"items\[0\]"):
        await chain(node).ainvoke({"items": [[1]]}, debug=True)

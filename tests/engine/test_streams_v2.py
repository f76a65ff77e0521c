"""Version 2 of streams and results: typed parts, attempts, `GraphOutput`."""

from __future__ import annotations

import operator
from dataclasses import dataclass, field
from typing import Annotated, Any, TypedDict

import pytest
from pydantic import BaseModel

from everstep.constants import START
from everstep.context import interrupt
from everstep.errors import ConfigError
from everstep.graph.builder import StateGraph
from everstep.types import Command, GraphOutput
from tests.engine.graphs import AT_ONCE, Log, Update, chain, says, thread
from tests.engine.streamed import events_of


class Model(BaseModel):
    """A state with a default."""

    log: Annotated[list[str], operator.add] = []
    value: int = 0
    note: str = "none"


@dataclass
class Record:
    """A state with defaults."""

    log: Annotated[list[str], operator.add] = field(default_factory=list)
    value: int = 0


class Short(BaseModel):
    """An output of one key."""

    value: int


class Needs(BaseModel):
    """A state that is whole only once a node has run."""

    value: int
    total: int


async def ask(state: Log) -> Update:
    return {"log": [interrupt("ok?")]}


async def count(state: Any) -> Update:
    return {"log": ["count"], "value": 2}


def counting(schema: Any, **options: Any) -> Any:
    """A graph over this schema whose node sets two keys."""
    return StateGraph(schema, **options).add_node(count).add_edge(START, "count").compile()


async def test_each_mode_has_its_part() -> None:
    async def work(state: Log, writer: Any) -> Update:
        writer("note")
        return {"log": ["work"]}

    parts = await events_of(chain(work), {"log": []}, stream_mode=["values", "updates", "custom"], version="v2")
    assert parts == [
        {"type": "values", "ns": (), "data": {"log": []}, "interrupts": ()},
        {"type": "custom", "ns": (), "data": "note"},
        {"type": "updates", "ns": (), "data": {"work": {"log": ["work"]}}},
        {"type": "values", "ns": (), "data": {"log": ["work"]}, "interrupts": ()},
    ]


async def test_questions_stand_beside_the_values(saver: Any) -> None:
    graph = chain(says("a"), ask, saver=saver)
    parts = await events_of(graph, {"log": []}, thread(), stream_mode=["values", "updates"], version="v2")
    question = (await graph.aget_state(thread())).interrupts[0]
    assert parts[-2:] == [
        {"type": "updates", "ns": (), "data": {"__interrupt__": (question,)}},
        {"type": "values", "ns": (), "data": {"log": ["a"]}, "interrupts": (question,)},
    ]


async def test_ainvoke_returns_the_output_and_the_questions_apart(saver: Any) -> None:
    graph = chain(says("a"), ask, saver=saver)
    waiting = await graph.ainvoke({"log": []}, thread(), version="v2")
    question = (await graph.aget_state(thread())).interrupts[0]
    assert waiting == GraphOutput({"log": ["a"]}, (question,))
    assert waiting["log"] == ["a"]
    assert ("log" in waiting, "value" in waiting, "__interrupt__" in waiting) == (True, False, True)
    assert "__interrupt__" not in await graph.ainvoke(Command(resume="yes"), thread(), version="v2")
    assert waiting["__interrupt__"] == (question,)


async def test_a_single_output_key_is_not_lost_beside_a_question(saver: Any) -> None:
    graph = chain(says("a"), ask, saver=saver)
    waiting = await graph.ainvoke({"log": []}, thread(), version="v2", output_keys="log")
    assert waiting.value == ["a"]
    assert [question.value for question in waiting.interrupts] == ["ok?"]


def test_invoke_returns_it_too() -> None:
    assert chain(says("a")).invoke({"log": []}, version="v2") == GraphOutput({"log": ["a"]})


@pytest.mark.parametrize(
    ("schema", "given", "first", "last"),
    [
        (Log, {"log": []}, {"log": []}, {"log": ["count"], "value": 2}),
        (Model, {"note": "x"}, Model(note="x"), Model(log=["count"], value=2, note="x")),
        (Record, {"value": 1}, Record(value=1), Record(["count"], 2)),
    ],
)
async def test_values_are_instances_of_the_schema(schema: Any, given: Any, first: Any, last: Any) -> None:
    graph = counting(schema)
    parts = await events_of(graph, given, stream_mode="values", version="v2")
    assert [part["data"] for part in parts] == [first, last]
    assert await graph.ainvoke(given, version="v2") == GraphOutput(last)


async def test_values_are_instances_of_the_output_schema_if_there_is_one() -> None:
    graph = counting(Model, output_schema=Short)
    parts = await events_of(graph, {"value": 1}, stream_mode="values", version="v2")
    assert [part["data"] for part in parts] == [Short(value=1), Short(value=2)]
    assert await graph.ainvoke({"value": 1}, version="v2") == GraphOutput(Short(value=2))


async def test_checkpoints_hold_instances_of_the_state(saver: Any) -> None:
    graph = StateGraph(Model, output_schema=Short).add_node(count).add_edge(START, "count").compile(saver)
    parts = await events_of(graph, {"value": 1}, thread(), stream_mode="checkpoints", version="v2")
    assert parts[-1]["data"]["values"] == Model(log=["count"], value=2)
    events = await events_of(graph, {"value": 1}, thread("u"), stream_mode="checkpoints")
    assert events[-1]["values"] == {"log": ["count"], "value": 2}


async def test_keys_that_the_caller_chose_come_as_a_mapping_of_just_those() -> None:
    graph = counting(Model)
    assert await graph.ainvoke({"note": "x"}, version="v2", output_keys=["value"]) == GraphOutput({"value": 2})
    parts = await events_of(graph, {"note": "x"}, stream_mode="values", version="v2", output_keys=["value"])
    assert [part["data"] for part in parts] == [{"value": 2}]


async def test_values_that_are_not_a_whole_state_yet_come_as_a_mapping() -> None:
    class Input(TypedDict):
        value: int

    async def add(state: Any) -> Update:
        return {"total": state["value"] + 1}

    builder = StateGraph(Needs, input_schema=Input).add_node("add", add, input_schema=Input)
    graph = builder.add_edge(START, "add").compile()
    parts = await events_of(graph, {"value": 1}, stream_mode="values", version="v2")
    assert [part["data"] for part in parts] == [{"value": 1}, Needs(value=1, total=2)]


async def test_parts_of_repeated_attempts_can_be_told_apart() -> None:
    attempts = 0

    async def flaky(state: Log, writer: Any) -> Update:
        nonlocal attempts
        attempts += 1
        writer(f"try {attempts}")
        if attempts < 3:
            raise ConnectionError
        return {"log": [attempts]}

    graph = chain(flaky, node={"retry_policy": AT_ONCE})
    parts = await events_of(graph, {"log": []}, stream_mode=["custom", "updates", "values"], version="v2")
    assert [(part["data"], part.get("attempts")) for part in parts] == [
        ({"log": []}, None),
        ("try 1", None),
        ("try 2", (2,)),
        ("try 3", (3,)),
        ({"flaky": {"log": [3]}}, (3,)),
        ({"log": [3]}, None),
    ]


async def test_parts_of_a_subgraph_tell_the_attempt_of_the_node_that_runs_it() -> None:
    attempts = 0

    async def inner(state: Log, writer: Any) -> Update:
        writer("in")
        return {"log": ["in"]}

    async def flaky(state: Log) -> Update:
        nonlocal attempts
        attempts += 1
        await chain(inner).ainvoke({"log": []})
        await chain(inner).ainvoke({"log": []})
        if attempts == 1:
            raise ConnectionError
        return {"log": []}

    graph = chain(flaky, node={"retry_policy": AT_ONCE})
    parts = await events_of(graph, {"log": []}, stream_mode="custom", version="v2", subgraphs=True)
    assert [(len(part["ns"]), part.get("attempts")) for part in parts] == [
        (1, None),
        (2, None),
        (1, (2, 1)),
        (2, (2, 1, 1)),
    ]


async def test_a_version_that_does_not_exist_is_refused_before_anything_runs(saver: Any) -> None:
    version: Any = "v4"
    with pytest.raises(ConfigError) as caught:
        await chain(says("a"), saver=saver).ainvoke({"log": []}, thread(), version=version)
    assert str(caught.value) == "version is 'v1' or 'v2', got 'v4'"
    assert await saver.aget_thread("t") is None

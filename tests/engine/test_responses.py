"""Questions with a schema for their answer."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass
from typing import Any, TypedDict

import pytest
from pydantic import BaseModel

from everstep.errors import UnknownInterruptError
from everstep.types import Command, interrupt
from tests.engine.graphs import Log, Update, chain, side_by_side, thread


class Model(BaseModel):
    age: int


@dataclass
class Record:
    age: int


class Typed(TypedDict):
    age: int


JSON_SCHEMA = {"type": "object", "properties": {"age": {"type": "integer"}}, "required": ["age"]}


def asking(schema: Any, **options: Any) -> Any:
    async def ask(state: Log) -> Update:
        answer = interrupt("how old?", response_schema=schema)
        return {"log": [answer if isinstance(answer, dict) else vars(answer)], "value": type(answer).__name__}

    return chain(("ask", ask), **options)


@pytest.mark.parametrize(
    ("schema", "kind"), [(Model, "Model"), (Record, "Record"), (Typed, "dict"), (JSON_SCHEMA, "dict")]
)
async def test_a_schema_is_shown_and_its_answer_checked_and_converted(schema: Any, kind: str, saver: Any) -> None:
    graph = asking(schema, saver=saver)
    [question] = (await graph.ainvoke({"log": []}, thread()))["__interrupt__"]
    assert question.response_schema["properties"]["age"]["type"] == "integer"

    with pytest.raises(ValueError, match="integer"):
        await graph.ainvoke(Command(resume={"age": "old"}), thread())
    state = await graph.aget_state(thread())
    assert state.interrupts == (question,)

    assert await graph.ainvoke(Command(resume={"age": 5}), thread()) == {"log": [{"age": 5}], "value": kind}


@pytest.mark.parametrize("schema", [Model, Record])
@pytest.mark.parametrize("by_id", [False, True])
async def test_an_answer_may_be_an_instance_of_the_schema(by_id: bool, schema: Any, saver: Any) -> None:
    graph, given = asking(schema, saver=saver), schema(age=5)
    [question] = (await graph.ainvoke({"log": []}, thread()))["__interrupt__"]
    answer: Any = Command(resume={question.id: given} if by_id else given)
    result = {"log": [{"age": 5}], "value": schema.__name__}
    assert await graph.ainvoke(answer, thread()) == result
    assert await graph.ainvoke(answer, thread()) == result  # repeated
    with pytest.raises(UnknownInterruptError):
        await graph.ainvoke(Command(resume={question.id: schema(age=6)}), thread())


async def test_an_answer_that_does_not_fit_does_not_cut_short_a_task_whose_answer_does(saver: Any) -> None:
    sent, failed = [], asyncio.Event()

    async def send(state: Log) -> Update:
        interrupt("send?")
        sent.append("email")
        await failed.wait()
        return {"log": ["sent"]}

    async def check(state: Log) -> Update:
        try:
            interrupt("check?", response_schema=Model)
        except ValueError:
            failed.set()
            raise
        return {"log": ["checked"]}

    graph = side_by_side(check, send, saver=saver)
    asked = (await graph.ainvoke({"log": []}, thread()))["__interrupt__"]
    ids = {question.value: question.id for question in asked}
    with pytest.raises(ValueError, match="integer"):
        await graph.ainvoke(Command(resume={ids["send?"]: "yes", ids["check?"]: {"age": "old"}}), thread())
    assert [question.value for question in (await graph.aget_state(thread())).interrupts] == ["check?"]
    assert await graph.ainvoke(Command(resume={"age": 5}), thread()) == {"log": ["checked", "sent"]}
    assert sent == ["email"]


async def test_an_answer_that_does_not_fit_inside_a_subgraph_leaves_the_question_open(saver: Any) -> None:
    inner = asking(Model, name="inner")
    graph = chain(("inner", inner), saver=saver)
    [question] = (await graph.ainvoke({"log": []}, thread()))["__interrupt__"]
    with pytest.raises(ValueError, match="integer"):
        await graph.ainvoke(Command(resume={"age": "old"}), thread())

    assert (await graph.aget_state(thread())).interrupts == (question,)
    assert (await graph.ainvoke(Command(resume={question.id: {"age": 5}}), thread()))["log"] == [{"age": 5}]


async def test_earlier_answers_are_kept_when_a_later_one_does_not_fit(saver: Any) -> None:
    async def ask(state: Log) -> Update:
        return {"log": [interrupt("name?"), interrupt("age?", response_schema=Model).age]}

    graph = chain(("ask", ask), saver=saver)
    await graph.ainvoke({"log": []}, thread())
    await graph.ainvoke(Command(resume="Ada"), thread())
    with pytest.raises(ValueError, match="integer"):
        await graph.ainvoke(Command(resume={"age": "old"}), thread())

    assert await graph.ainvoke(Command(resume={"age": 5}), thread()) == {"log": ["Ada", 5]}


async def test_a_json_schema_error_names_the_place(saver: Any) -> None:
    graph = asking(JSON_SCHEMA, saver=saver)
    await graph.ainvoke({"log": []}, thread())
    with pytest.raises(ValueError, match="does not fit") as caught:
        await graph.ainvoke(Command(resume={"age": "old"}), thread())
    assert str(caught.value) == (
        "the answer {'age': 'old'} does not fit its response_schema: 'old' is not of type 'integer' (at ['age'])"
    )


async def test_who_asks_hears_that_the_library_for_json_schemas_is_missing(
    saver: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "jsonschema", None)
    graph = asking(JSON_SCHEMA, saver=saver)
    with pytest.raises(ImportError) as missing:
        await graph.ainvoke({"log": []}, thread())
    assert str(missing.value) == "a JSON Schema as response_schema needs jsonschema: pip install 'everstep[schemas]'"
    assert (await graph.aget_state(thread())).interrupts == ()

"""New input on a thread that waits for an answer, joins that cannot complete, and graphs that changed meanwhile."""

from __future__ import annotations

from typing import Any

import pytest

from everstep.constants import START
from everstep.errors import (
    GraphMismatchError,
    PendingQuestionError,
    UnknownInterruptError,
    UnsatisfiedJoinError,
)
from everstep.graph.builder import StateGraph
from everstep.types import Command, Send, interrupt
from tests.engine.graphs import Log, Update, chain, says, thread


async def ask(state: Log) -> Update:
    return {"log": [f"got {interrupt('name?')}"]}


async def test_new_input_supersedes_an_open_question_on_the_record(saver: Any) -> None:
    graph = chain(("ask", ask), saver=saver)
    old = (await graph.ainvoke({"log": []}, thread()))["__interrupt__"][0]
    new = (await graph.ainvoke({"log": ["again"]}, thread()))["__interrupt__"][0]

    inputs = [state async for state in graph.aget_state_history(thread(), filter={"source": "input"})]
    assert inputs[0].metadata is not None
    assert inputs[0].metadata["superseded"] == [old.id]
    with pytest.raises(UnknownInterruptError) as caught:
        await graph.ainvoke(Command(resume={old.id: "late"}), thread())
    assert str(caught.value) == (
        f"question {old.id} is not open any more: a new input superseded it (checkpoint "
        f"{inputs[0].config['configurable']['checkpoint_id']}). Open: {new.id} (node 'ask' asks 'name?')."
    )
    assert (await graph.ainvoke(Command(resume={new.id: "Ada"}), thread()))["log"] == ["again", "got Ada"]


@pytest.mark.parametrize("where", ["compiled", "called"])
async def test_new_input_is_rejected_while_a_question_is_open_if_asked_for(saver: Any, where: str) -> None:
    compiled: dict[str, Any] = {"on_pending": "reject"} if where == "compiled" else {}
    call: dict[str, Any] = {"on_pending": "reject"} if where == "called" else {}
    graph = chain(("ask", ask), saver=saver, **compiled)
    question = (await graph.ainvoke({"log": []}, thread(), **call))["__interrupt__"][0]
    before = await graph.aget_state(thread())

    with pytest.raises(PendingQuestionError) as caught:
        await graph.ainvoke({"log": ["again"]}, thread(), **call)

    assert str(caught.value) == (
        f"thread 't' waits for an answer, and new input is rejected meanwhile (on_pending='reject'). Open: "
        f"{question.id} (node 'ask' asks 'name?')."
    )
    assert await graph.aget_state(thread()) == before


def routed_around(**options: Any) -> Any:
    builder = StateGraph(Log)
    for name in ("a", "b", "c"):
        builder.add_node(*says(name))
    builder.add_conditional_edges(START, lambda state: ["a"], ["a", "b"])
    builder.add_edge(["a", "b"], "c")
    return builder.compile(**options)


async def test_a_join_whose_source_was_routed_around_ends_in_an_error(saver: Any) -> None:
    graph = routed_around(checkpointer=saver)
    with pytest.raises(UnsatisfiedJoinError) as caught:
        await graph.ainvoke({"log": []}, thread())
    assert str(caught.value) == (
        "the join with 'c' waits for 'b', and nothing is left to run ('a' has come); let every source run, route to "
        "'c' instead of joining, or compile(unsatisfied_joins='ignore')"
    )
    record = await saver.aget_thread("t")
    assert record.status == "failed"
    with pytest.raises(UnsatisfiedJoinError):
        await graph.ainvoke(None, thread())


async def test_an_unsatisfied_join_may_be_ignored(saver: Any) -> None:
    graph = routed_around(checkpointer=saver, unsatisfied_joins="ignore")
    assert await graph.ainvoke({"log": []}, thread()) == {"log": ["a"]}


async def test_work_for_a_node_that_is_gone_is_shown_and_refused(saver: Any) -> None:
    old = chain(says("first"), says("second"), saver=saver, interrupt_before=["second"])
    await old.ainvoke({"log": []}, thread())
    new = chain(says("first"), says("seconds"), saver=saver)

    assert (await new.aget_state(thread())).next == ("second",)
    with pytest.raises(GraphMismatchError) as caught:
        await new.ainvoke(None, thread())
    assert str(caught.value) == (
        "thread 't' waits for node 'second', which graph 'graph' does not have. Did you mean 'seconds'? If it was "
        "renamed, compile with aliases={'second': new name}; if it is gone, move the thread on with "
        "aupdate_state(..., as_node=...)"
    )


async def test_aliases_lead_to_the_renamed_node_with_its_question(saver: Any) -> None:
    old = chain(says("first"), ("ask", ask), saver=saver)
    question = (await old.ainvoke({"log": []}, thread()))["__interrupt__"][0]
    new = chain(says("first"), ("interview", ask), saver=saver, aliases={"ask": "interview"})

    assert (await new.aget_state(thread())).interrupts == (question,)
    assert await new.ainvoke(Command(resume={question.id: "Ada"}), thread()) == {"log": ["first", "got Ada"]}


async def test_aliases_lead_pending_sends_to_the_renamed_node(saver: Any) -> None:
    def graph(name: str, **options: Any) -> Any:
        builder = StateGraph(Log).add_node("plan", lambda state: None).add_node(*says(name)).add_edge(START, "plan")
        builder.add_conditional_edges("plan", lambda state: [Send(name, {}), Send(name, {})])
        return builder.compile(checkpointer=saver, **options)

    await graph("work", interrupt_after=["plan"]).ainvoke({"log": []}, thread())

    renamed = graph("labour", aliases={"work": "labour"})
    assert await renamed.ainvoke(None, thread()) == {"log": ["labour", "labour"]}

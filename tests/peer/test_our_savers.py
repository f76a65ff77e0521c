"""Our savers given to LangGraph: its own conformance suite, and graphs of its own on them."""

from __future__ import annotations

import operator
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.conformance import checkpointer_test, validate
from langgraph.graph import START, StateGraph
from langgraph.types import Command, Send, interrupt

from everstep_savers import InMemorySaver, SQLSaver
from everstep_savers.langgraph import LangGraphSaver


@asynccontextmanager
async def opened(kind: str, place: str) -> AsyncIterator[LangGraphSaver]:
    async with AsyncExitStack() as stack:
        if kind == "memory":
            yield LangGraphSaver(InMemorySaver())
        else:
            yield LangGraphSaver(await stack.enter_async_context(SQLSaver.from_url(place, auto_migrate=True)))


@pytest.fixture(params=["memory", "sqlite", "postgres"])
async def ours(request: pytest.FixtureRequest) -> AsyncIterator[LangGraphSaver]:
    place = "" if request.param == "memory" else request.getfixturevalue(f"{request.param}_url")
    async with opened(request.param, place) as saver:
        yield saver


@pytest.mark.parametrize("kind", ["memory", "sqlite", "postgres"])
async def test_the_suite_of_langgraph_passes(kind: str, request: pytest.FixtureRequest) -> None:
    place = "" if kind == "memory" else request.getfixturevalue(f"{kind}_url")

    async def make() -> AsyncIterator[LangGraphSaver]:
        async with opened(kind, place) as saver:
            yield saver

    report = await validate(checkpointer_test(name=kind)(make))

    results = report.to_dict()["results"]
    assert {name: result["failures"] for name, result in results.items() if result["failures"]} == {}
    assert sum(result["tests_passed"] for result in results.values()) > 70


@dataclass
class Order:
    number: int
    at: datetime


class State(TypedDict, total=False):
    log: Annotated[list[Any], operator.add]
    order: Order


def added(state: list[Any], writes: list[list[Any]]) -> list[Any]:
    return state + [item for write in writes for item in write]


class Deltas(TypedDict, total=False):
    log: Annotated[list[Any], DeltaChannel(added, snapshot_frequency=4)]


def graph_of(saver: Any) -> Any:
    def start(state: State) -> Any:
        return {"log": ["start"], "order": Order(7, datetime(2024, 5, 1))}  # noqa: DTZ001

    def ask(state: State) -> Any:
        return {"log": [interrupt("sure?")]}

    def each(state: Any) -> Any:
        return {"log": [state["n"]]}

    builder = StateGraph(State)
    for name, node in {"start": start, "ask": ask, "each": each}.items():
        builder.add_node(name, node)
    builder.add_edge(START, "start")
    builder.add_edge("start", "ask")
    builder.add_conditional_edges("ask", lambda _: [Send("each", {"n": n}) for n in range(3)], ["each"])
    return builder.compile(checkpointer=saver)


async def test_a_graph_of_langgraph_runs_asks_and_forks_on_our_saver(ours: LangGraphSaver) -> None:
    graph, config = graph_of(ours), {"configurable": {"thread_id": "t"}}

    asked = await graph.ainvoke({"log": []}, config)
    finished = await graph_of(ours).ainvoke(Command(resume="yes"), config)
    states = [state async for state in graph.aget_state_history(config)]
    asked_at = next(state for state in states if state.next == ("ask",))
    replayed = await graph.ainvoke(None, asked_at.config)
    again = await graph.ainvoke(Command(resume="no"), config)

    assert [question.value for question in asked["__interrupt__"]] == ["sure?"]
    assert finished["log"] == ["start", "yes", 0, 1, 2]
    assert finished["order"].number == 7
    assert [state.next for state in states] == [(), ("each",) * 3, ("ask",), ("start",), ("__start__",)]
    assert [question.value for question in replayed["__interrupt__"]] == ["sure?"]
    assert again["log"] == ["start", "no", 0, 1, 2]


async def test_pruning_keeps_what_a_delta_channel_of_langgraph_needs(ours: LangGraphSaver) -> None:
    builder = StateGraph(Deltas)
    builder.add_node("grow", lambda state: {"log": [len(state["log"])]})
    builder.add_edge(START, "grow")
    builder.add_conditional_edges("grow", lambda state: "grow" if len(state["log"]) < 7 else "__end__")
    graph, config = builder.compile(checkpointer=ours), {"configurable": {"thread_id": "t"}}
    finished = await graph.ainvoke({"log": ["x"]}, config)
    before = len([state async for state in graph.aget_state_history(config)])

    await ours.aprune(["t"])

    assert len([state async for state in graph.aget_state_history(config)]) < before
    assert (await graph.aget_state(config)).values == finished == {"log": ["x", 1, 2, 3, 4, 5, 6]}


async def test_a_thread_of_langgraph_is_kept_by_another_process(sqlite_url: str, tmp_path: Path) -> None:
    config = {"configurable": {"thread_id": "t"}}
    async with opened("sqlite", sqlite_url) as saver:
        await graph_of(saver).ainvoke({"log": []}, config)

    async with opened("sqlite", sqlite_url) as saver:
        finished = await graph_of(saver).ainvoke(Command(resume="yes"), config)

    assert finished["log"] == ["start", "yes", 0, 1, 2]

"""Isolation: what a node does to its input in place, and to context variables, stays with that node."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, TypedDict

import pytest

from everstep.config import get_config
from everstep.constants import START
from everstep.context import interrupt
from everstep.errors import EverstepError
from everstep.graph.builder import StateGraph
from everstep.types import Command, Send
from tests.engine.graphs import AT_ONCE, Log, Update, chain, says, side_by_side, thread


class Containers(TypedDict, total=False):
    a_list: list[Any]
    a_dict: dict[str, Any]
    a_set: set[Any]
    log: list[Any]


def given() -> Containers:
    return {"a_list": [1], "a_dict": {"k": 1}, "a_set": {1}}


async def spoil(state: Containers) -> None:
    """Change every container of the input in place, and the input itself."""
    state["a_list"].append("spoilt")
    state["a_dict"]["spoilt"] = True
    state["a_set"].add("spoilt")
    state["log"] = ["spoilt"]


async def look(state: Containers) -> Update:
    return {"log": [state["a_list"], state["a_dict"], state["a_set"]]}


UNSPOILT = [[1], {"k": 1}, {1}]


def containers(*nodes: Callable[..., Any], saver: Any = None) -> Any:
    builder = StateGraph(Containers)
    previous = START
    for node in nodes:
        builder.add_node(node).add_edge(previous, node.__name__)
        previous = node.__name__
    return builder.compile(saver)


async def test_changing_the_input_in_place_changes_neither_state_nor_the_callers_input(saver: Any) -> None:
    value = given()
    graph = containers(spoil, look, saver=saver)
    result = await graph.ainvoke(value, thread())
    assert value == given()
    assert result == {**given(), "log": UNSPOILT}
    assert result == (await graph.aget_state(thread())).values
    states = [snapshot.values async for snapshot in graph.aget_state_history(thread())]
    assert states == [{**given(), "log": UNSPOILT}, given(), given(), {}]


async def test_changing_the_input_in_a_thread_changes_nothing_else() -> None:
    def spoil_it(state: Containers) -> None:
        state["a_list"].append("spoilt")
        state["a_dict"]["spoilt"] = True
        state["a_set"].add("spoilt")

    value = given()
    assert await containers(spoil_it, look).ainvoke(value) == {**given(), "log": UNSPOILT}
    assert value == given()


async def test_changing_the_input_in_place_is_not_seen_by_siblings() -> None:
    spoilt = asyncio.Event()

    async def first(state: Containers) -> None:
        await spoil(state)
        spoilt.set()

    async def second(state: Containers) -> Update:
        await spoilt.wait()
        return {"log": [state["a_list"], state["a_dict"], state["a_set"]]}

    builder = StateGraph(Containers).add_node(first).add_node(second)
    graph = builder.add_edge(START, "first").add_edge(START, "second").compile()
    assert (await graph.ainvoke(given()))["log"] == UNSPOILT


async def test_changing_the_result_of_a_run_changes_nothing_stored(saver: Any) -> None:
    graph = containers(look, saver=saver)
    result = await graph.ainvoke(given(), thread())
    result["a_list"].append("spoilt")
    (await graph.aget_state(thread())).values["a_list"].append("spoilt")
    assert (await graph.aget_state(thread())).values["a_list"] == [1]


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
async def test_changing_the_input_of_a_sent_task_changes_neither_siblings_nor_what_is_stored(
    durability: str, saver: Any
) -> None:
    shared = ["sent"]
    seen: list[Any] = []

    async def work(state: Log) -> Update:
        seen.append(list(state["items"]))
        state["items"].append("spoilt")
        if state["value"]:
            interrupt("q")
        return {"log": [len(state["items"])]}

    builder = StateGraph(Log).add_node(work)
    builder.add_conditional_edges(
        START, lambda state: [Send("work", {"items": shared, "value": asks}) for asks in (False, True)], ["work"]
    )
    graph = builder.compile(saver)
    await graph.ainvoke({"log": []}, thread(), durability=durability)
    assert await graph.ainvoke(Command(resume=1), thread(), durability=durability) == {"log": [2, 2]}
    assert seen == [["sent"]] * 3
    assert shared == ["sent"]


async def test_a_reader_of_the_stream_cannot_change_the_run(saver: Any) -> None:
    read = asyncio.Event()

    async def a(state: Log) -> Update:
        return {"items": ["a"]}

    async def wait(state: Log) -> None:
        await read.wait()

    async def b(state: Log) -> Update:
        return {"log": list(state["items"])}

    graph = chain(a, wait, b, saver=saver)
    async for mode, event in graph.astream({"log": []}, thread(), stream_mode=["updates", "values"]):
        if mode == "updates" and "a" in event:
            event["a"]["items"].append("spoilt by updates")
        elif mode == "values" and event.get("items") == ["a"]:
            event["items"].append("spoilt by values")
            read.set()
    assert (await graph.aget_state(thread())).values == {"items": ["a"], "log": ["a"]}


async def test_a_route_cannot_change_the_state() -> None:
    def route(state: Containers) -> str:
        state["a_list"].append("spoilt")
        return "look"

    builder = StateGraph(Containers).add_node(look)
    builder.add_conditional_edges(START, route, ["look"])
    assert (await builder.compile().ainvoke(given()))["log"] == UNSPOILT


# Context variables ---------------------------------------------------------------------------------------------

variable: ContextVar[str] = ContextVar("variable")


def setting(name: str, seen: dict[str, str]) -> tuple[str, Callable[..., Any]]:
    """A node that notes the variable and then sets it to its own name."""

    async def run(state: Log) -> None:
        seen[name] = variable.get("unset")
        variable.set(name)
        await asyncio.sleep(0)
        seen[f"{name} later"] = variable.get("unset")

    return name, run


def setting_in_a_thread(name: str, seen: dict[str, str]) -> tuple[str, Callable[..., Any]]:
    def run(state: Log) -> None:
        seen[name] = seen[f"{name} later"] = variable.get("unset")
        variable.set(name)

    return name, run


@pytest.mark.parametrize("make", [setting, setting_in_a_thread])
async def test_a_node_sees_the_callers_context_and_leaks_its_own_to_nobody(make: Callable[..., Any]) -> None:
    seen: dict[str, str] = {}
    token = variable.set("caller")
    try:
        await chain(make("a", seen), make("b", seen)).ainvoke({"log": []})
        await side_by_side(make("c", seen), make("d", seen)).ainvoke({"log": []})
        assert variable.get() == "caller"
    finally:
        variable.reset(token)
    assert {name: seen[name] for name in "abcd"} == dict.fromkeys("abcd", "caller")


async def test_what_a_node_sets_holds_for_the_rest_of_it() -> None:
    seen: dict[str, str] = {}
    await chain(setting("a", seen)).ainvoke({"log": []})
    await side_by_side(setting("b", seen), setting("c", seen)).ainvoke({"log": []})
    assert seen == {
        "a": "unset",
        "a later": "a",
        "b": "unset",
        "b later": "b",
        "c": "unset",
        "c later": "c",
    }


async def test_the_context_of_a_streamed_run_is_the_one_its_reader_started_with() -> None:
    seen: dict[str, str] = {}
    token = variable.set("caller")
    try:
        async for _ in chain(setting("a", seen), says("pause"), setting("b", seen)).astream({"log": []}):
            variable.set("reader went on")
    finally:
        variable.reset(token)
    assert (seen["a"], seen["b"]) == ("caller", "caller")


async def test_who_has_run_a_graph_is_not_in_its_nodes() -> None:
    await chain(says("a"), says("b")).ainvoke({"log": []})
    with pytest.raises(EverstepError, match="called outside of a node"):
        get_config()


async def test_each_attempt_begins_with_the_callers_context() -> None:
    seen: list[str] = []

    async def flaky(state: Log) -> None:
        seen.append(variable.get("unset"))
        variable.set("first attempt")
        if len(seen) == 1:
            raise ConnectionError

    await chain(flaky, node={"retry_policy": AT_ONCE}).ainvoke({"log": []})
    assert seen == ["unset", "unset"]

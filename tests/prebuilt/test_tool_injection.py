"""What tools get injected: never shown to a model, never taken from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import pytest
from langchain_core.messages import AIMessage
from langchain_core.tools import BaseTool, tool
from langchain_core.tools.base import InjectedToolCallId
from pydantic import BaseModel

from everstep.constants import START
from everstep.errors import ConfigError
from everstep.graph.builder import StateGraph
from everstep.graph.message import MessagesState
from everstep.prebuilt.injection import InjectedState, InjectedStore, ToolRuntime
from everstep.prebuilt.tool_node import ToolNode
from everstep_savers.store.memory import InMemoryStore
from tests.engine.graphs import thread
from tests.prebuilt.chats import asking, calling, results, tools_graph


@dataclass
class User:
    name: str


def everything(
    text: str,
    state: Annotated[Any, InjectedState],
    messages: Annotated[list[Any], InjectedState("messages")],
    store: Annotated[Any, InjectedStore()],
    runtime: ToolRuntime[User, Any],
    tool_call_id: Annotated[str, InjectedToolCallId],
) -> str:
    """Look at everything."""
    runtime.stream_writer(text)
    assert runtime.store is store
    assert runtime.execution_info is not None
    return (
        f"{text} {len(state['messages'])} {len(messages)} {store.get(('t',), 'k').value['v']} {runtime.context.name} "
        f"{runtime.tool_call_id} {tool_call_id} {runtime.state is state} {runtime.config['configurable']['thread_id']} "
        f"{runtime.execution_info.thread_id} {[each.name for each in runtime.tools]}"
    )


@pytest.mark.parametrize("count", [1, 2])
async def test_tools_get_what_they_want(count: int) -> None:
    store = InMemoryStore()
    await store.aput(("t",), "k", {"v": 7})
    builder = StateGraph(MessagesState, User).add_node("tools", ToolNode([everything])).add_edge(START, "tools")
    graph = builder.compile(store=store)
    given = asking(*[("everything", {"text": "a"})] * count)
    result = await graph.ainvoke(given, thread(), context=User("ann"))
    assert [text for _, _, text in results(result)] == [
        f"a 1 1 7 ann c{n} c{n} False t t ['everything']" for n in range(count)
    ]


def test_what_is_injected_is_not_shown_to_a_model() -> None:
    schema: Any = ToolNode([everything]).tools_by_name["everything"].tool_call_schema
    assert list(schema.model_json_schema()["properties"]) == ["text"]


async def test_what_a_model_gives_in_its_place_is_dropped() -> None:
    def name(user: Annotated[str, InjectedState("user")] = "nobody") -> str:
        """Tell the name."""
        return user

    node = ToolNode([name])
    calls = [calling(("name", {"user": "admin"}))]
    assert [text for _, _, text in results(await node.ainvoke({"messages": calls}))] == ["nobody"]
    assert [text for _, _, text in results(await node.ainvoke({"messages": calls, "user": "ann"}))] == ["ann"]


async def test_a_key_is_read_from_models_too() -> None:
    class State(BaseModel):
        messages: list[Any]
        user: str

    def name(user: Annotated[str | None, InjectedState("user")]) -> str:
        """Tell the name."""
        return f"{user}"

    found = await ToolNode([name]).ainvoke(State(messages=[calling("name")], user="ann"))
    assert [text for _, _, text in results(found)] == ["ann"]


async def test_a_class_of_a_tool_gets_what_its_schema_wants() -> None:
    class Arguments(BaseModel):
        number: int
        messages: Annotated[list[Any], InjectedState("messages")]

    class Count(BaseTool):
        name: str = "count"
        description: str = "Count the messages."
        args_schema: type[BaseModel] = Arguments

        def _run(self, number: int, messages: list[Any]) -> str:
            return f"{number} {len(messages)}"

    assert results(await tools_graph(Count()).ainvoke(asking(("count", {"number": 3})))) == [("c0", "success", "3 1")]


async def test_a_tool_that_changes_the_state_in_place_changes_nothing() -> None:
    @tool
    def clear(state: Annotated[Any, InjectedState]) -> str:
        """Clear the messages."""
        seen = len(state["messages"])
        state["messages"].clear()
        return str(seen)

    result = await tools_graph(clear).ainvoke(asking("clear", "clear"))
    assert results(result) == [("c0", "success", "1"), ("c1", "success", "1")]


async def test_a_key_without_a_value_is_named() -> None:
    def name(user: Annotated[str, InjectedState("user")]) -> str:
        """Tell the name."""
        return user

    with pytest.raises(ConfigError) as caught:
        await tools_graph(name, handle_tool_errors=True).ainvoke({"messages": [calling("name")]})
    assert str(caught.value) == (
        "tool 'name' takes key 'user' of the state as its 'user', and the state has no value for it; "
        "set the key before the tool runs, or give 'user' a default"
    )


async def test_a_store_that_is_not_there_is_named() -> None:
    def look(memory: Annotated[Any, InjectedStore()]) -> None:
        """Look it up."""

    with pytest.raises(ConfigError) as caught:
        await tools_graph(look).ainvoke(asking("look"))
    assert str(caught.value) == (
        "tool 'look' takes the store as its 'memory', and the graph has none; compile it with one: "
        "compile(store=InMemoryStore())"
    )
    store = InMemoryStore()
    assert results(await ToolNode([look]).ainvoke(asking("look"), store=store)) == [("c0", "success", "null")]


async def test_the_whole_state_of_a_list_of_messages_is_under_the_key() -> None:
    def keys(state: Annotated[Any, InjectedState]) -> str:
        """Tell the keys."""
        return ",".join(state)

    found = await ToolNode([keys], messages_key="talk").ainvoke([AIMessage("a"), calling("keys")])
    assert [message.content for message in found] == ["talk"]

"""Commands of tools: every call has a result message, and commands for the containing graph all reach it."""

from __future__ import annotations

import operator
from typing import Annotated, Any

import pytest
from langchain_core.messages import HumanMessage, RemoveMessage, ToolMessage

from everstep.constants import START
from everstep.graph.builder import StateGraph
from everstep.graph.compiled import CompiledStateGraph
from everstep.graph.message import REMOVE_ALL_MESSAGES, MessagesState
from everstep.prebuilt.chat_agent_executor import create_react_agent
from everstep.prebuilt.injection import ToolRuntime
from everstep.prebuilt.tool_node import ToolNode
from everstep.types import Command, Send
from tests.engine.graphs import thread
from tests.prebuilt.chats import asking, calling, results, scripted


class Names(MessagesState):
    names: Annotated[list[str], operator.add]


def done(text: str, runtime: ToolRuntime) -> ToolMessage:
    return ToolMessage(text, tool_call_id=runtime.tool_call_id)


def up(name: str, runtime: ToolRuntime) -> Command[Any]:
    """Tell the containing graph."""
    update = {"names": [name], "messages": [*runtime.state["messages"], done(name, runtime)]}
    return Command(graph=Command.PARENT, update=update)


async def aup(name: str, runtime: ToolRuntime) -> Command[Any]:
    """Tell the containing graph."""
    return up(name, runtime)


def name_only(name: str) -> Command[Any]:
    """Tell the containing graph no more than a name."""
    return Command(graph=Command.PARENT, update={"names": [name]})


def bad() -> None:
    """Fail."""
    raise ValueError("no")


def mark(runtime: ToolRuntime) -> Command[Any]:
    """Change the own state."""
    return Command(update={"names": ["own"], "messages": [done("own", runtime)]})


TOOLS: list[Any] = [up, aup, name_only, bad, mark]
FAILED = "Error: ValueError('no'). Correct the call, or go another way."


def sub_agent(kind: str, *calls: Any) -> Any:
    if kind != "node":
        return create_react_agent(
            scripted(calling(*calls)), TOOLS, state_schema=agent_state(), version="v1" if kind == "v1" else "v2"
        )
    builder = StateGraph(Names).add_node("model", lambda state: {"messages": [calling(*calls)]})
    builder.add_node("tools", ToolNode(TOOLS)).add_edge(START, "model").add_edge("model", "tools")
    return builder.compile()


def agent_state() -> Any:
    from everstep.prebuilt.chat_agent_executor import AgentState

    class NamedState(AgentState):
        names: Annotated[list[str], operator.add]

    return NamedState


def around(kind: str, *calls: Any, saver: Any = None) -> CompiledStateGraph:
    """A graph whose first node is an agent that calls tools."""
    builder = StateGraph(Names).add_node("agent", sub_agent(kind, *calls)).add_edge(START, "agent")
    builder.add_node("after", lambda state: {"names": ["after"]}).add_edge("agent", "after")
    return builder.compile(saver)


KINDS = pytest.mark.parametrize("kind", ["node", "v1", "v2"])
HI = {"messages": [HumanMessage("hi")]}


@KINDS
@pytest.mark.parametrize("tool", ["up", "aup"])
async def test_all_commands_for_the_containing_graph_reach_it_in_call_order(kind: str, tool: str, saver: Any) -> None:
    graph = around(kind, (tool, {"name": "one"}), (tool, {"name": "two"}), saver=saver)
    result = await graph.ainvoke(HI, thread())
    assert result["names"] == ["one", "two", "after"]
    assert [message.content for message in result["messages"]] == ["hi", "", "one", "two"]


@KINDS
async def test_updates_without_messages_reach_it_too(kind: str) -> None:
    result = await around(kind, ("name_only", {"name": "one"}), ("name_only", {"name": "two"})).ainvoke(HI)
    assert result["names"] == ["one", "two", "after"]
    assert [message.content for message in result["messages"]] == ["hi"]


@KINDS
@pytest.mark.parametrize("is_first", [True, False])
async def test_a_failed_call_beside_such_a_command_has_its_result_and_the_run_goes_on(
    kind: str, is_first: bool, saver: Any
) -> None:
    calls = ["bad", ("up", {"name": "one"})] if is_first else [("up", {"name": "one"}), "bad"]
    result = await around(kind, *calls, saver=saver).ainvoke(HI, thread())
    assert result["names"] == ["one", "after"]
    ids = ("c1", "c0") if is_first else ("c0", "c1")
    assert [message.type for message in result["messages"]] == ["human", "ai", "tool", "tool"]
    assert results(result) == [(ids[0], "success", "one"), (ids[1], "error", FAILED)]


@KINDS
async def test_what_is_for_the_own_state_gives_its_result_message_along(kind: str) -> None:
    result = await around(kind, "mark", ("up", {"name": "one"})).ainvoke(HI)
    assert result["names"] == ["one", "after"]
    assert results(result) == [("c1", "success", "one"), ("c0", "success", "own")]


async def run(*calls: Any, tools: list[Any] = TOOLS) -> Any:
    builder = StateGraph(Names).add_node("tools", ToolNode(tools)).add_edge(START, "tools")
    builder.add_node("next", lambda state: {"names": ["next"]})
    return await builder.compile().ainvoke(asking(*calls))


@pytest.mark.parametrize("count", [1, 2])
async def test_updates_and_destinations_of_the_own_graph_are_kept(count: int) -> None:
    def go(runtime: ToolRuntime) -> list[Any]:
        """Go on."""
        return [done("gone", runtime), Command(update={"names": ["went"]}), Command(goto="next")]

    result = await run(*["go"] * count, tools=[go])
    assert results(result) == [(f"c{n}", "success", "gone") for n in range(count)]
    assert result["names"] == [*["went"] * count, "next"]


async def test_a_command_without_a_result_message_gets_one() -> None:
    def go() -> Command[Any]:
        """Go on."""
        return Command(goto=Send("next", {}))

    def other() -> Command[Any]:
        """Answer another call."""
        return Command(update={"messages": [ToolMessage("for another", tool_call_id="c0", id="m")]})

    result = await run("go", tools=[go])
    assert (results(result), result["names"]) == ([("c0", "success", "Done.")], ["next"])
    result = await run("go", "other", tools=[go, other])
    assert results(result)[-1] == ("c1", "success", "Done.")


async def test_a_tool_may_remove_all_messages_its_call_included() -> None:
    def forget() -> Command[Any]:
        """Forget everything."""
        return Command(update={"messages": [RemoveMessage(id=REMOVE_ALL_MESSAGES)]})

    assert (await run("forget", tools=[forget]))["messages"] == []


async def test_a_result_message_gets_the_name_of_the_tool() -> None:
    result = await run("mark")
    assert [message.name for message in result["messages"]] == [None, "mark"]


async def test_a_state_that_is_a_list_of_messages_takes_commands_too() -> None:
    def forward(runtime: ToolRuntime) -> Command[Any]:
        """Go on."""
        return Command(update=[done("on", runtime)], goto="next")

    found = await ToolNode([forward, bad]).ainvoke([calling("bad", "forward")])
    assert found == [
        [ToolMessage(FAILED, name="bad", tool_call_id="c0", status="error")],
        Command(update=[ToolMessage("on", name="forward", tool_call_id="c1")], goto="next"),
    ]

"""`ToolNode`: which calls it runs, where, and what it returns."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.messages.tool import invalid_tool_call
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import tool
from pydantic import BaseModel

from everstep.config import get_stream_writer
from everstep.constants import END, START
from everstep.errors import ConfigError, GraphTypeError
from everstep.graph.builder import StateGraph
from everstep.graph.message import MessagesState, add_messages
from everstep.prebuilt.injection import InjectedState
from everstep.prebuilt.tool_node import ToolCallRequest, ToolNode, tools_condition
from everstep.types import Command, Send
from tests.engine.graphs import thread
from tests.prebuilt.chats import asking, calling, results, tools_graph


def add(a: int, b: int = 1) -> int:
    """Add two numbers."""
    return a + b


async def shout(text: str) -> str:
    """Say it louder."""
    return text.upper()


@tool("sum", return_direct=True)
def total(numbers: list[int]) -> int:
    """Add all numbers."""
    return sum(numbers)


async def test_results_come_in_the_order_of_the_calls() -> None:
    later = asyncio.Event()

    async def slow() -> str:
        """Wait for the other."""
        await later.wait()
        return "slow"

    async def quick() -> str:
        """Let the other go on."""
        later.set()
        return "quick"

    result = await tools_graph(slow, quick).ainvoke(asking("slow", "quick"))
    assert results(result) == [("c0", "success", "slow"), ("c1", "success", "quick")]


async def test_functions_and_tools_are_run_by_their_names() -> None:
    node = ToolNode([add, shout, total])
    calls = asking(("sum", {"numbers": [1, 2]}), ("shout", {"text": "a"}), ("add", {"a": 1}))
    found = (await node.ainvoke(calls))["messages"]
    assert found == [
        ToolMessage("3", name="sum", tool_call_id="c0"),
        ToolMessage("A", name="shout", tool_call_id="c1"),
        ToolMessage("2", name="add", tool_call_id="c2"),
    ]
    assert list(node.tools_by_name) == ["add", "shout", "sum"]


@pytest.mark.parametrize("count", [1, 2])
async def test_sync_tools_run_in_threads_and_async_ones_on_the_loop(count: int) -> None:
    threads: dict[str, list[int]] = {"sync": [], "async": []}

    def in_thread() -> None:
        """Run somewhere."""
        threads["sync"].append(threading.get_ident())

    async def on_loop() -> None:
        """Run somewhere."""
        threads["async"].append(threading.get_ident())

    graph = tools_graph(in_thread, on_loop)
    await graph.ainvoke(asking(*["in_thread"] * count))
    await graph.ainvoke(asking(*["on_loop"] * count))
    assert threads["async"] == [threading.get_ident()] * count
    assert len(threads["sync"]) == count
    assert threading.get_ident() not in threads["sync"]


def test_tools_run_from_a_plain_script() -> None:
    assert results(ToolNode([add, shout]).invoke(asking(("add", {"a": 1}), ("shout", {"text": "a"})))) == [
        ("c0", "success", "2"),
        ("c1", "success", "A"),
    ]
    assert results(tools_graph(add).invoke(asking(("add", {"a": 1}), ("add", {"a": 2})))) == [
        ("c0", "success", "2"),
        ("c1", "success", "3"),
    ]


async def test_a_list_of_messages_gives_a_list_of_messages() -> None:
    found = await ToolNode([add]).ainvoke([HumanMessage("hi"), calling(("add", {"a": 1}))])
    assert found == [ToolMessage("2", name="add", tool_call_id="c0")]


async def test_other_kinds_of_states_give_an_update_too() -> None:
    class Model(BaseModel):
        messages: list[Any]

    found = await ToolNode([add]).ainvoke(Model(messages=[calling(("add", {"a": 1}))]))
    assert found == {"messages": [ToolMessage("2", name="add", tool_call_id="c0")]}


async def test_the_messages_may_be_under_another_key() -> None:
    class Talk(TypedDict):
        talk: Annotated[list[Any], add_messages]

    def say(state: Talk) -> Talk:
        return {"talk": [calling(("add", {"a": 1}))]}

    def route(state: Talk) -> str:
        return tools_condition(state, messages_key="talk")

    builder = StateGraph(Talk).add_node(say).add_node("tools", ToolNode([add], messages_key="talk"))
    graph = builder.add_edge(START, "say").add_conditional_edges("say", route, ["tools", END]).compile()
    result = await graph.ainvoke({"talk": []})
    assert [message.content for message in result["talk"]] == ["", "2"]


async def test_calls_alone_are_run_with_the_state_of_the_graph() -> None:
    def count(text: str, messages: Annotated[list[Any], InjectedState("messages")]) -> str:
        """Count the messages."""
        return f"{text}: {len(messages)}"

    def route(state: Any) -> list[Send]:
        one, two, three = state["messages"][-1].tool_calls
        context = {"__type": "tool_call_with_context", "tool_call": three, "state": {"messages": []}}
        return [Send("tools", one), Send("tools", [two]), Send("tools", context)]

    builder = StateGraph(MessagesState).add_node("tools", ToolNode([count])).add_conditional_edges(START, route)
    graph = builder.compile()
    result = await graph.ainvoke(asking(*(("count", {"text": text}) for text in "abc")))
    assert [text for _, _, text in results(result)] == ["a: 1", "b: 1", "c: 0"]


async def test_no_calls_give_no_messages() -> None:
    assert await ToolNode([add]).ainvoke({"messages": [AIMessage("hi")]}) == {"messages": []}


@pytest.mark.parametrize("given", [{"messages": [HumanMessage("hi")]}, {}, []])
async def test_an_input_without_a_message_of_a_model_is_refused(given: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        await ToolNode([add]).ainvoke(given)
    assert str(caught.value) == (
        "there is no message of a model among the messages (key 'messages') that tools are to be run for; "
        "give a state, a list of messages with an AIMessage in it, or tool calls"
    )


async def test_calls_that_cannot_be_read_get_a_result_too() -> None:
    message = calling(("add", {"a": 1}))
    message.invalid_tool_calls = [invalid_tool_call(name="add", args="{a: ", id="c1", error="not JSON")]
    assert tools_condition([message]) == "tools"
    assert results(await tools_graph(add).ainvoke({"messages": [message]})) == [
        ("c0", "success", "2"),
        ("c1", "error", "Error: the arguments for tool 'add' cannot be read: not JSON"),
    ]


def test_the_condition_leads_to_the_tools_or_to_the_end() -> None:
    assert tools_condition(asking("add")) == "tools"
    assert tools_condition([calling("add"), AIMessage("done")]) == END
    with pytest.raises(ConfigError):
        tools_condition({"messages": []})


def test_tools_that_cannot_be_told_apart_are_refused() -> None:
    with pytest.raises(GraphTypeError) as caught:
        ToolNode([add, add])
    assert str(caught.value) == "two tools are named 'add'; a model could not tell them apart"


def test_what_is_no_tool_is_refused() -> None:
    with pytest.raises(GraphTypeError) as caught:
        ToolNode(["add"])  # type: ignore[list-item]
    assert str(caught.value) == "a ToolNode takes tools of langchain and functions, got 'add'"


async def test_streams_tell_of_the_node_and_what_tools_write() -> None:
    def say(text: str) -> str:
        """Say it to the stream."""
        get_stream_writer()(text)
        return text

    graph = tools_graph(say)
    given = asking(("say", {"text": "a"}), ("say", {"text": "b"}))
    told = [part async for part in graph.astream(given, stream_mode=["custom", "updates", "tasks"])]
    assert sorted(data for mode, data in told if mode == "custom") == ["a", "b"]
    assert [list(data) for mode, data in told if mode == "updates"] == [["tools"]]
    assert [data["name"] for mode, data in told if mode == "tasks"] == ["tools", "tools"]


@pytest.mark.parametrize("count", [1, 2])
async def test_tools_get_the_config_of_the_run(count: int) -> None:
    def see(config: RunnableConfig) -> str:
        """Look at the config."""
        conf, meta = config["configurable"], config["metadata"]
        return f"{conf['user']} {conf['thread_id']} {meta['everstep_node']} {config['tags']} {'run_id' in config}"

    graph = tools_graph(see, tags=["mine"])
    config = {**thread(user="ann"), "tags": ["ours"], "run_id": "4a0b0b1e-6f0e-4f7b-8a55-2c4d9a1f8f11"}
    result = await graph.ainvoke(asking(*["see"] * count), config)
    assert {text for _, _, text in results(result)} == {"ann t tools ['ours', 'mine'] False"}


async def test_a_sync_node_may_run_the_tools_itself() -> None:
    node = ToolNode([add, shout])

    def tools(state: MessagesState) -> Any:
        return node.invoke(state)

    graph = StateGraph(MessagesState).add_node(tools).add_edge(START, "tools").compile()
    result = await graph.ainvoke(asking(("add", {"a": 1}), ("shout", {"text": "a"})))
    assert [text for _, _, text in results(result)] == ["2", "A"]


async def test_max_concurrency_bounds_the_tools_that_run_at_once() -> None:
    running: list[int] = []
    most = 0

    async def work() -> None:
        """Work for a while."""
        nonlocal most
        running.append(1)
        most = max(most, len(running))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        running.pop()

    await tools_graph(work).ainvoke(asking(*["work"] * 6), {"max_concurrency": 2})
    assert most == 2


@pytest.mark.parametrize("count", [1, 2])
async def test_a_sync_wrapper_sees_each_request_and_may_change_it(count: int) -> None:
    seen: list[ToolCallRequest] = []

    def wrap(request: ToolCallRequest, run: Any) -> Any:
        seen.append(request)
        changed = {**request.tool_call, "args": {"text": "changed"}}
        run(request)
        return run(request.override(tool_call=changed))

    result = await tools_graph(shout, wrap_tool_call=wrap).ainvoke(asking(*[("shout", {"text": "a"})] * count))
    assert [text for _, _, text in results(result)] == ["CHANGED"] * count
    assert {(request.tool_call["name"], request.runtime.tool_call_id) for request in seen} == {
        ("shout", f"c{n}") for n in range(count)
    }
    assert all(request.tool is not None and request.state["messages"] for request in seen)


@pytest.mark.parametrize("count", [1, 2])
async def test_an_async_wrapper_may_run_sync_tools_and_tools_of_its_own(count: int) -> None:
    async def wrap(request: ToolCallRequest, run: Any) -> Any:
        if request.tool is None:
            return await run(request.override(tool=total))
        return await run(request)

    given = asking(("add", {"a": 1}), ("mine", {"numbers": [1, 2]})) if count == 2 else asking(("add", {"a": 1}))
    result = await tools_graph(add, awrap_tool_call=wrap).ainvoke(given)
    assert [text for _, _, text in results(result)] == ["2", "3"][:count]


async def test_an_error_of_a_wrapper_becomes_a_result() -> None:
    def wrap(request: ToolCallRequest, run: Any) -> Any:
        raise ValueError("not allowed")

    assert results(await tools_graph(add, wrap_tool_call=wrap).ainvoke(asking(("add", {"a": 1})))) == [
        ("c0", "error", "Error: ValueError('not allowed'). Correct the call, or go another way.")
    ]


async def test_a_wrapper_that_returns_no_result_is_told_so() -> None:
    async def wrap(request: ToolCallRequest, run: Any) -> Any:
        return 3

    node = ToolNode([add], awrap_tool_call=wrap, handle_tool_errors=False)
    with pytest.raises(TypeError) as caught:
        await node.ainvoke(asking(("add", {"a": 1})))
    assert str(caught.value) == (
        "the call of tool 'add' gave int 3; expected a ToolMessage, a Command or a list of these"
    )


def test_commands_are_outputs_of_tools_for_langchain() -> None:
    @tool
    def go() -> Command[Any]:
        """Go on."""
        return Command(goto="next")

    assert go.invoke({"name": "go", "args": {}, "id": "1", "type": "tool_call"}) == Command(goto="next")


def test_without_langchain_the_error_names_the_extra() -> None:
    program = (
        "import sys\n"
        "import everstep, everstep.graph\n"
        "assert 'langchain_core' not in sys.modules\n"
        "sys.modules['langchain_core'] = None\n"
        "from everstep.prebuilt import ToolNode\n"
    )
    done = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, text=True)
    assert done.stderr.splitlines()[-1] == (
        "ImportError: agents and tools need langchain-core: pip install 'everstep[langchain]'"
    )

"""`create_react_agent`: models, prompts, hooks, responses, steps."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import pytest
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.messages.tool import invalid_tool_call
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import tool
from pydantic import BaseModel

from everstep.context import Runtime, interrupt
from everstep.errors import GraphBuildError, GraphTypeError
from everstep.prebuilt.chat_agent_executor import AgentState, AgentStatePydantic, create_react_agent
from everstep.prebuilt.injection import InjectedState
from everstep.prebuilt.tool_node import ToolNode
from everstep.types import Command
from everstep_savers.store.memory import InMemoryStore
from tests.engine.graphs import thread
from tests.prebuilt.chats import calling, results, scripted

HI = {"messages": [HumanMessage("hi")]}
VERSIONS = pytest.mark.parametrize("version", ["v1", "v2"])


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


ADD_TWICE = calling(("add", {"a": 1, "b": 2}), ("add", {"a": 3, "b": 4}))


def said(messages: Any) -> list[tuple[str, Any]]:
    return [(message.type, message.content) for message in messages]


@VERSIONS
async def test_a_model_calls_tools_until_it_answers(version: Literal["v1", "v2"], saver: Any) -> None:
    model = scripted(ADD_TWICE, calling(("add", {"a": 3, "b": 7})), "10")
    agent = create_react_agent(model, [add], version=version, checkpointer=saver, name="adder")
    result = await agent.ainvoke(HI, thread())
    assert said(result["messages"]) == [
        ("human", "hi"),
        ("ai", ""),
        ("tool", "3"),
        ("tool", "7"),
        ("ai", ""),
        ("tool", "10"),
        ("ai", "10"),
    ]
    assert [each.name for each in model.bound] == ["add"]
    assert {m.name for m in result["messages"] if m.type == "ai"} == {"adder"}
    assert agent.name == "adder"


@pytest.mark.parametrize(("version", "updates"), [("v1", 1), ("v2", 2)])
async def test_calls_run_as_tasks_of_their_own_or_in_one(version: Any, updates: int) -> None:
    agent = create_react_agent(scripted(ADD_TWICE, "10"), [add], version=version)
    nodes = [next(iter(update)) async for update in agent.astream(HI, stream_mode="updates")]
    assert nodes == ["agent", *["tools"] * updates, "agent"]


def test_an_agent_runs_from_a_plain_script() -> None:
    agent = create_react_agent(scripted(ADD_TWICE, "10"), [add])
    assert agent.invoke(HI)["messages"][-1].content == "10"


async def test_without_tools_it_answers_at_once() -> None:
    model = scripted("hello")
    agent = create_react_agent(model, [])
    assert set(agent.nodes) == {"__start__", "agent"}
    assert said((await agent.ainvoke(HI))["messages"]) == [("human", "hi"), ("ai", "hello")]
    assert model.bound == []


async def test_a_model_that_binds_no_tools_is_taken_as_it_is() -> None:
    models: list[Any] = [
        GenericFakeChatModel(messages=iter([ADD_TWICE, AIMessage("10")])),
        RunnableLambda(lambda messages: AIMessage("10") if messages[-1].type == "tool" else ADD_TWICE),
    ]
    for model in models:
        result = await create_react_agent(model, [add]).ainvoke(HI)
        assert [text for _, text in said(result["messages"])] == ["hi", "", "3", "7", "10"]


async def test_a_model_with_the_tools_bound_is_left_as_it_is() -> None:
    model = scripted("hello")
    bound = model.bind_tools(ToolNode([add]).tools_by_name.values())  # type: ignore[arg-type]
    create_react_agent(bound, [add])
    assert len(model.bound) == 1

    def subtract(a: int, b: int) -> int:
        """Subtract b from a."""
        return a - b

    with pytest.raises(GraphBuildError) as caught:
        create_react_agent(bound, [add, subtract])
    assert str(caught.value) == (
        "the model has tools bound, but not 'subtract' of the agent; give a model without tools, and the agent binds "
        "them, or bind all of them"
    )


async def test_a_model_within_a_sequence_gets_the_tools() -> None:
    model = scripted("hello")
    agent = create_react_agent(RunnableLambda(lambda messages: messages[-1:]) | model, [add])
    await agent.ainvoke({"messages": [HumanMessage("a"), HumanMessage("b")]})
    assert [each.name for each in model.bound] == ["add"]
    assert said(model.read[0]) == [("human", "b")]


async def test_tools_of_the_provider_are_bound_and_not_run() -> None:
    model = scripted("hello")
    create_react_agent(model, [{"type": "web_search"}, add])
    assert [getattr(each, "name", each) for each in model.bound] == ["add", {"type": "web_search"}]
    assert "tools" not in create_react_agent(scripted("hello"), [{"type": "web_search"}]).nodes


def is_long(state: Any) -> bool:
    return len(state["messages"]) > 1


@pytest.mark.parametrize("is_async", [True, False])
async def test_a_function_chooses_the_model_for_each_step(is_async: bool) -> None:
    first, second = scripted(ADD_TWICE), scripted("10")

    def choose(state: AgentState, runtime: Runtime[str]) -> Any:
        assert runtime.context == "ctx"
        return second if is_long(state) else first

    async def achoose(state: AgentState, runtime: Runtime[str]) -> Any:
        return choose(state, runtime)

    agent = create_react_agent(achoose if is_async else choose, [add], context_schema=str)
    assert (await agent.ainvoke(HI, context="ctx"))["messages"][-1].content == "10"
    assert (len(first.read), len(second.read)) == (1, 1)


async def test_what_is_no_model_is_refused() -> None:
    with pytest.raises(GraphTypeError) as caught:
        create_react_agent(3, [])
    assert str(caught.value) == (
        "the model of an agent is a chat model, its name, or a function of state and runtime that returns one; got 3"
    )
    with pytest.raises(GraphTypeError) as caught:
        await create_react_agent(lambda state, runtime: 3, []).ainvoke(HI)
    assert str(caught.value) == "the function that chooses the model returned 3; expected a chat model"
    with pytest.raises(GraphTypeError) as caught:
        await create_react_agent(RunnableLambda(lambda messages: "hello"), []).ainvoke(HI)
    assert str(caught.value) == "the model of an agent returned 'hello'; expected an AIMessage"
    with pytest.raises(ImportError) as missing:
        create_react_agent("openai:gpt", [])
    assert str(missing.value) == "the model 'openai:gpt' by its name needs langchain: pip install langchain"
    with pytest.raises(GraphBuildError) as wrong:
        create_react_agent(scripted(), [], version="v3")  # type: ignore[arg-type]
    assert str(wrong.value) == "version is 'v1' or 'v2', got 'v3'"


def with_state(state: Any) -> list[Any]:
    return [SystemMessage("be brief"), *state["messages"]]


async def with_store(state: Any, *, store: Any, config: Any) -> list[Any]:
    user = config["configurable"]["user"]
    return [SystemMessage((await store.aget(("p",), user)).value["text"]), *state["messages"]]


def sync_with_store(state: Any, *, store: Any) -> list[Any]:
    return [SystemMessage(store.get(("p",), "ann").value["text"]), *state["messages"]]


@pytest.mark.parametrize(
    "prompt",
    [
        "be brief",
        SystemMessage("be brief"),
        with_state,
        with_store,
        sync_with_store,
        lambda state: SystemMessage("be brief") + state["messages"],
        RunnableLambda(with_state),
        ChatPromptTemplate.from_messages([("system", "be brief"), ("placeholder", "{messages}")]),
    ],
)
async def test_a_prompt_goes_before_the_messages(prompt: Any) -> None:
    store = InMemoryStore()
    await store.aput(("p",), "ann", {"text": "be brief"})
    model = scripted(ADD_TWICE, "10")
    result = await create_react_agent(model, [add], prompt=prompt, store=store).ainvoke(HI, thread(user="ann"))
    assert said(model.read[0]) == [("system", "be brief"), ("human", "hi")]
    assert said(model.read[1])[0] == ("system", "be brief")
    assert said(result["messages"])[0] == ("human", "hi")


class Answer(BaseModel):
    number: int


@pytest.mark.parametrize("response_format", [Answer, ("only the number", Answer)])
@pytest.mark.parametrize("is_chosen", [True, False])
async def test_a_response_comes_in_the_form_that_was_asked_for(response_format: Any, is_chosen: bool) -> None:
    model = scripted(ADD_TWICE, "it is 10", response={"number": 10})
    given: Any = (lambda state, runtime: model.bind_tools([add])) if is_chosen else model
    agent = create_react_agent(given, [add], response_format=response_format)
    result = await agent.ainvoke(HI)
    assert result["structured_response"] == Answer(number=10)
    asked = said(model.read[-1])
    assert asked[-1] == ("ai", "it is 10")
    assert (asked[0] == ("system", "only the number")) is isinstance(response_format, tuple)


@pytest.mark.parametrize("base", [AgentState, AgentStatePydantic])
@VERSIONS
async def test_tools_read_and_write_keys_of_a_wider_state(base: Any, version: Any, saver: Any) -> None:
    schema: Any = type("Wider", (base,), {"__annotations__": {"user": str}}) if base is AgentStatePydantic else Wider

    @tool
    def rename(user: Annotated[str, InjectedState("user")]) -> Command[Any]:
        """Rename the user."""
        return Command(update={"user": user.upper()})

    model = scripted(calling("rename"), "done")
    agent = create_react_agent(model, [rename], state_schema=schema, version=version, checkpointer=saver)
    result = await agent.ainvoke({**HI, "user": "ann"}, thread())
    assert result["user"] == "ANN"
    assert results(result) == [("c0", "success", "Done.")]


class Wider(AgentState):
    user: str


def test_a_state_without_what_an_agent_needs_is_refused() -> None:
    class Bare(BaseModel):
        messages: list[Any]

    with pytest.raises(GraphBuildError) as caught:
        create_react_agent(scripted(), [], state_schema=Bare, response_format=Answer)
    assert str(caught.value) == (
        "state_schema Bare lacks 'remaining_steps', 'structured_response', which an agent needs; let it inherit from "
        "AgentState or AgentStatePydantic"
    )


@pytest.mark.parametrize("schema", [None, AgentStatePydantic])
async def test_a_hook_says_what_the_model_reads_and_it_is_not_kept(schema: Any, saver: Any) -> None:
    def shorten(state: Any) -> dict[str, Any]:
        messages = state["messages"] if isinstance(state, dict) else state.messages
        return {"llm_input_messages": [HumanMessage("short"), *messages[1:]]}

    model = scripted(ADD_TWICE, "10")
    agent = create_react_agent(model, [add], pre_model_hook=shorten, state_schema=schema, checkpointer=saver)
    result = await agent.ainvoke(HI, thread())
    assert [said(read)[0] for read in model.read] == [("human", "short")] * 2
    assert said(result["messages"])[0] == ("human", "hi")
    assert "llm_input_messages" not in result
    assert "llm_input_messages" not in (await agent.aget_state(thread())).values


@pytest.mark.parametrize(("refused", "expected"), [(2, ["refused", "refused"]), (1, ["refused", "7"]), (0, ["3", "7"])])
async def test_a_hook_after_the_model_may_answer_its_calls(refused: int, expected: list[str]) -> None:
    def refuse(state: Any) -> Any:
        calls = state["messages"][-1].tool_calls[:refused]
        return {"messages": [ToolMessage("refused", tool_call_id=call["id"]) for call in calls]}

    result = await create_react_agent(scripted(ADD_TWICE, "10"), [add], post_model_hook=refuse).ainvoke(HI)
    assert [text for _, _, text in results(result)] == expected
    assert result["messages"][-1].content == "10"


@VERSIONS
async def test_the_result_of_some_tools_is_the_answer(version: Any) -> None:
    @tool(return_direct=True)
    def look() -> str:
        """Look it up."""
        return "found"

    for calls in (["look"], ["look", ("add", {"a": 1, "b": 1})]):
        agent = create_react_agent(scripted(calling(*calls)), [look, add], version=version)
        result = await agent.ainvoke(HI)
        assert [text for _, _, text in results(result)] == ["found", "2"][: len(calls)]
        assert result["messages"][-1].type == "tool"


@VERSIONS
@pytest.mark.parametrize("count", [0, 2])
async def test_calls_that_cannot_be_read_go_back_to_the_model(version: Any, count: int) -> None:
    message = calling(*[("add", {"a": 1, "b": 1})] * count)
    message.invalid_tool_calls = [invalid_tool_call(name="add", args="{a: ", id="c9", error="not JSON")]
    result = await create_react_agent(scripted(message, "sorry"), [add], version=version).ainvoke(HI)
    assert [call for call, _, _ in results(result)] == [*(f"c{n}" for n in range(count)), "c9"]
    assert results(result)[-1] == ("c9", "error", "Error: the arguments for tool 'add' cannot be read: not JSON")
    assert result["messages"][-1].content == "sorry"


async def test_an_agent_that_runs_out_of_steps_says_so() -> None:
    agent = create_react_agent(scripted(*[ADD_TWICE] * 3), [add])
    result = await agent.ainvoke(HI, {"recursion_limit": 3})
    assert said(result["messages"])[-1] == ("ai", "I have stopped: there are no steps left for the tools I need.")
    assert result["messages"][-1].tool_calls == []


async def test_it_stops_where_it_is_told_to(saver: Any) -> None:
    agent = create_react_agent(scripted(ADD_TWICE, "10"), [add], checkpointer=saver, interrupt_before=["tools"])
    await agent.ainvoke(HI, thread())
    assert (await agent.aget_state(thread())).next == ("tools", "tools")
    assert (await agent.ainvoke(None, thread()))["messages"][-1].content == "10"


@VERSIONS
async def test_a_conversation_goes_on_past_an_unanswered_question(version: Any, saver: Any) -> None:
    def ask() -> str:
        """Ask."""
        return f"{interrupt('sure?')}"

    model = scripted(calling("ask"), "never mind")
    agent = create_react_agent(model, [ask], checkpointer=saver, version=version)
    await agent.ainvoke(HI, thread())
    result = await agent.ainvoke({"messages": "something else"}, thread())
    assert result["messages"][-1].content == "never mind"
    assert said(model.read[-1]) == [
        ("human", "hi"),
        ("ai", ""),
        ("tool", "Not run: the conversation went on without it."),
        ("human", "something else"),
    ]
    assert results(result) == []

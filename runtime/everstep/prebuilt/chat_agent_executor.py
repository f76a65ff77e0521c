"""`create_react_agent`: a graph in which a model calls tools until it answers.

The model's node is "agent", that of the tools is "tools". With ``version="v2"`` each call is a task of its own; in a
graph that another one contains, and with "v1", the calls of a message run in one task, which journals each: a tool
that hands over to the containing graph then takes the results of the other calls along.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_type_hints

from langchain_core.messages import AIMessage, SystemMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool
from pydantic import BaseModel

from everstep.constants import END, START
from everstep.context import Runtime, current_task
from everstep.errors import GraphBuildError, GraphTypeError
from everstep.graph.builder import StateGraph
from everstep.graph.compiled import CompiledStateGraph
from everstep.prebuilt.agent_model import Model, Prompt, model_input, model_of
from everstep.prebuilt.agent_state import (
    AgentState,
    AgentStatePydantic,
    AgentStateWithStructuredResponse,
    AgentStateWithStructuredResponsePydantic,
    StateSchemaType,
    last_calls,
    open_calls,
    value_in,
    with_all_results,
    with_model_input,
)
from everstep.prebuilt.tool_node import ToolNode
from everstep.tasks.current import Attempt
from everstep.types import Send

__all__ = [
    "AgentState",
    "AgentStatePydantic",
    "AgentStateWithStructuredResponse",
    "AgentStateWithStructuredResponsePydantic",
    "StateSchemaType",
    "create_react_agent",
]

Schema = dict[str, Any] | type[Any]


def create_react_agent(
    model: Any,
    tools: Sequence[BaseTool | Callable[..., Any] | dict[str, Any]] | ToolNode,
    *,
    prompt: Prompt | None = None,
    response_format: Schema | tuple[str, Schema] | None = None,
    pre_model_hook: Any = None,
    post_model_hook: Any = None,
    state_schema: StateSchemaType | None = None,
    context_schema: type[Any] | None = None,
    checkpointer: Any = None,
    store: Any = None,
    interrupt_before: list[str] | None = None,
    interrupt_after: list[str] | None = None,
    debug: bool = False,
    version: Literal["v1", "v2"] = "v2",
    name: str | None = None,
) -> CompiledStateGraph:
    """Make an agent: a graph in which a model calls tools until it answers.

    Args:
        model: A chat model, its name (needs langchain), or a function, async or sync, of state and runtime that
            returns one; such a function binds the tools itself.
        tools: Functions, tools of langchain and dicts of tools that the provider runs; or a `ToolNode`.
        prompt: What the model reads before the messages: a text or a `SystemMessage`; or a function of the state, or
            a runnable, that gives all it reads.
        response_format: Schema of a response that is made at the end, under the key ``structured_response``; with a
            prompt for it, a pair.
        pre_model_hook: A node before each call of the model. What it returns as ``llm_input_messages`` the model
            reads in place of the messages.
        post_model_hook: A node after each call of the model.
        state_schema: Has ``messages`` and ``remaining_steps``; `AgentState` by default.
        context_schema: Type of the `context` that a run is given.
        checkpointer: The saver that keeps its threads.
        store: Handed to tools, prompts and hooks.
        interrupt_before: Nodes before which a run stops.
        interrupt_after: Nodes after which a run stops.
        debug: Check that nodes leave what they share with others as it is.
        version: "v2" runs each call of a tool as a task of its own, "v1" the calls of a message in one.
        name: Of the graph, and of the model's messages.

    Raises:
        GraphBuildError: An argument cannot be used, or the state lacks a key.
    """
    if version not in ("v1", "v2"):
        raise GraphBuildError(f"version is 'v1' or 'v2', got {version!r}")
    # Tools that the provider runs are for the model alone.
    provided = [] if isinstance(tools, ToolNode) else [tool for tool in tools if isinstance(tool, dict)]
    node = tools if isinstance(tools, ToolNode) else ToolNode([tool for tool in tools if not isinstance(tool, dict)])
    schema = _state_schema(state_schema, has_response=response_format is not None)
    agent = _Agent(
        model=model_of(model, [*node.tools_by_name.values(), *provided]),
        prompt=prompt,
        response_format=response_format,
        direct=frozenset(tool.name for tool in node.tools_by_name.values() if tool.return_direct),
        has_tools=bool(node.tools_by_name),
        is_split=version == "v2",
        has_hook=post_model_hook is not None,
        entry="agent" if pre_model_hook is None else "pre_model_hook",
        name=name,
    )
    builder = StateGraph(schema, context_schema)
    seen = schema if pre_model_hook is None else with_model_input(schema)
    builder.add_node("agent", agent.answer, input_schema=seen)
    builder.add_edge(START, agent.entry)
    if pre_model_hook is not None:
        builder.add_node("pre_model_hook", pre_model_hook)
        builder.add_edge("pre_model_hook", "agent")
    agent.add_what_follows(builder, node, post_model_hook)
    return builder.compile(
        checkpointer,
        store=store,
        interrupt_before=interrupt_before,
        interrupt_after=interrupt_after,
        debug=debug,
        name=name,
    )


@dataclass(frozen=True, slots=True)
class _Agent:
    """The nodes and routes of an agent.

    Attributes:
        direct: Tools whose result is the answer.
        is_split: Each call is a task of its own.
        has_hook: A hook follows the model.
        entry: The node that comes before the model, or the model's.
    """

    model: Model
    prompt: Prompt | None
    response_format: Any
    direct: frozenset[str]
    has_tools: bool
    is_split: bool
    has_hook: bool
    entry: str
    name: str | None

    @property
    def last(self) -> str:
        """What comes after an answer."""
        return END if self.response_format is None else "generate_structured_response"

    def add_what_follows(self, builder: StateGraph, tools: ToolNode, post_model_hook: Any) -> None:
        """Add what comes after the model: hook, tools, response."""
        source = "agent"
        if post_model_hook is not None:
            builder.add_node("post_model_hook", post_model_hook)
            builder.add_edge("agent", "post_model_hook")
            source = "post_model_hook"
        if self.response_format is not None:
            builder.add_node("generate_structured_response", self.respond)
            builder.add_edge("generate_structured_response", END)
        targets = [self.last, *(["tools"] if self.has_tools else ()), *([self.entry] if self.has_hook else ())]
        builder.add_conditional_edges(source, self.after_model, targets)
        if not self.has_tools:
            return
        builder.add_node("tools", tools)
        if self.direct:
            builder.add_conditional_edges("tools", self.after_tools, [self.entry, END])
        else:
            builder.add_edge("tools", self.entry)

    async def answer(self, state: Any, runtime: Runtime[Any], config: RunnableConfig) -> dict[str, Any]:
        """Node "agent": let the model answer, or call tools."""
        model = await self.model.for_state(state, runtime)
        answer = await model.ainvoke(await model_input(self.prompt, state, config), config)
        if not isinstance(answer, AIMessage):
            raise GraphTypeError(f"the model of an agent returned {answer!r:.200}; expected an AIMessage")
        if self.name is not None:
            answer.name = self.name
        if self._is_last_step(value_in(state, "remaining_steps"), answer):
            answer = AIMessage("I have stopped: there are no steps left for the tools I need.", id=answer.id)
        return {"messages": [answer]}

    async def respond(self, state: Any, runtime: Runtime[Any], config: RunnableConfig) -> dict[str, Any]:
        """Node "generate_structured_response": have the model say it in the form that was asked for."""
        schema, messages = self.response_format, with_all_results(value_in(state, "messages"))
        if isinstance(schema, tuple):
            prompt, schema = schema
            messages = [SystemMessage(prompt), *messages]
        model = await self.model.plain_for(state, runtime)
        return {"structured_response": await model.with_structured_output(schema).ainvoke(messages, config)}

    def after_model(self, state: Any) -> str | list[Send]:
        """Where to go after the model, or after the hook that follows it."""
        messages = value_in(state, "messages")
        calls = open_calls(messages, after_hook=self.has_hook)
        last = messages[-1] if messages else None
        # Those that nobody can read have to get a result as well, by the node that knows of them.
        has_unreadable = isinstance(last, AIMessage) and bool(last.invalid_tool_calls)
        if not self.has_tools or not (calls or has_unreadable):
            # A hook may have given the results of all calls itself: then the model goes on.
            return self.entry if self.has_hook and isinstance(last, ToolMessage) else self.last
        if self.is_split and len(calls) > 1 and not has_unreadable and not _is_contained():
            return [Send("tools", call) for call in calls]
        if len(calls) < len(last_calls(messages)):
            return [Send("tools", calls)]
        return "tools"

    def after_tools(self, state: Any) -> str:
        """Where to go after the tools: the result of some is the answer."""
        called = (call["name"] for call in last_calls(value_in(state, "messages")))
        return END if self.direct.intersection(called) else self.entry

    def _is_last_step(self, remaining: int | None, answer: AIMessage) -> bool:
        if remaining is None or not answer.tool_calls or not self.has_tools:
            return False
        is_direct = all(call["name"] in self.direct for call in answer.tool_calls)
        return remaining < (1 if is_direct else 2)


def _is_contained() -> bool:
    """Does a node of another graph run this one?"""
    running = current_task.get(None)
    return isinstance(running, Attempt) and running.run.above is not None


def _state_schema(given: StateSchemaType | None, *, has_response: bool) -> StateSchemaType:
    if given is None:
        return AgentStateWithStructuredResponse if has_response else AgentState
    keys = given.model_fields if issubclass(given, BaseModel) else get_type_hints(given)
    wanted = ["messages", "remaining_steps", *(["structured_response"] if has_response else ())]
    if missing := [key for key in wanted if key not in keys]:
        raise GraphBuildError(
            f"state_schema {given.__name__} lacks {', '.join(map(repr, missing))}, which an agent needs; let it "
            f"inherit from AgentState or AgentStatePydantic"
        )
    return given

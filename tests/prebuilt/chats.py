"""A chat model that says what it was told to, and the calls and graphs that tests of tools are made of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, ToolCall
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.runnables import Runnable, RunnableLambda

from everstep.constants import START
from everstep.graph.builder import StateGraph
from everstep.graph.compiled import CompiledStateGraph
from everstep.graph.message import MessagesState
from everstep.prebuilt.tool_node import ToolNode

Call = tuple[str, dict[str, Any]]


class Scripted(BaseChatModel):
    """Gives its answers one after the other, and keeps what it has read and which tools were bound."""

    answers: list[AIMessage]
    read: list[list[BaseMessage]]
    bound: list[Any]
    response: Any = None

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        self.read.append(messages)
        return ChatResult(generations=[ChatGeneration(message=self.answers[len(self.read) - 1])])

    def bind_tools(self, tools: Sequence[Any], **kwargs: Any) -> Runnable[Any, AIMessage]:
        self.bound.extend(tools)
        return self.bind(tools=[{"name": getattr(tool, "name", tool)} for tool in tools])

    def with_structured_output(self, schema: Any, **kwargs: Any) -> Runnable[Any, Any]:
        def respond(messages: list[BaseMessage]) -> Any:
            self.read.append(messages)
            return schema(**self.response)

        return RunnableLambda(respond)


def scripted(*answers: AIMessage | str, **more: Any) -> Scripted:
    """A model with these answers."""
    made = [
        AIMessage(answer) if isinstance(answer, str) else answer.model_copy(update={"id": None}) for answer in answers
    ]
    return Scripted(answers=made, read=[], bound=[], **more)


def calling(*calls: Call | str, first: int = 0) -> AIMessage:
    """A message that calls tools, by name and arguments; the ids are c0, c1, ..."""
    pairs = [(call, {}) if isinstance(call, str) else call for call in calls]
    return AIMessage(
        "", tool_calls=[ToolCall(name=name, args=args, id=f"c{n}") for n, (name, args) in enumerate(pairs, first)]
    )


def asking(*calls: Call | str) -> dict[str, Any]:
    """The state after a model has called tools."""
    return {"messages": [calling(*calls)]}


def tools_graph(*tools: Any, saver: Any = None, store: Any = None, **options: Any) -> CompiledStateGraph:
    """A graph of nothing but its tools."""
    builder = StateGraph(MessagesState).add_node("tools", ToolNode(tools, **options)).add_edge(START, "tools")
    return builder.compile(saver, store=store)


def results(state: Any) -> list[tuple[str, str, str]]:
    """Call, status and text of the result messages."""
    return [(m.tool_call_id, m.status, m.content) for m in state["messages"] if m.type == "tool"]

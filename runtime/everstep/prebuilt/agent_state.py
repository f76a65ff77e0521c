"""The state of an agent: its messages, and how many steps it has left."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, NotRequired, TypedDict, get_type_hints

from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, ToolCall, ToolMessage
from pydantic import BaseModel, create_model

from everstep.channels.last_value import EphemeralValue
from everstep.channels.managed import RemainingSteps
from everstep.graph.message import add_messages

# What a hook gives the model to read in place of the messages.
MODEL_INPUT = "llm_input_messages"


class AgentState(TypedDict):
    """The state of an agent as a dict."""

    messages: Annotated[Sequence[BaseMessage], add_messages]
    remaining_steps: NotRequired[RemainingSteps]


class AgentStatePydantic(BaseModel):
    """The state of an agent as a pydantic model."""

    messages: Annotated[Sequence[BaseMessage], add_messages]
    remaining_steps: RemainingSteps = 25


class AgentStateWithStructuredResponse(AgentState):
    """The state of an agent that ends with a structured response."""

    structured_response: Any


class AgentStateWithStructuredResponsePydantic(AgentStatePydantic):
    """The same as a pydantic model."""

    structured_response: Any = None


StateSchemaType = type[Any]


def value_in(state: Any, key: str, default: Any = None) -> Any:
    """The value of a key of a state."""
    return state.get(key, default) if isinstance(state, Mapping) else getattr(state, key, default)


def with_messages(state: Any, messages: Sequence[AnyMessage]) -> Any:
    """The state with other messages."""
    if isinstance(state, Mapping):
        return {**state, "messages": messages}
    return state.model_copy(update={"messages": messages})


def with_model_input(schema: Any) -> Any:
    """The schema with a key for what a hook gives the model to read; it is not kept once that is done."""
    hint = Annotated[list[Any], EphemeralValue]
    if isinstance(schema, type) and issubclass(schema, BaseModel):
        fields: dict[str, Any] = {MODEL_INPUT: (hint, None)}
        return create_model(f"{schema.__name__}WithInput", __base__=schema, **fields)
    return TypedDict(f"{schema.__name__}WithInput", {**get_type_hints(schema, include_extras=True), MODEL_INPUT: hint})  # type: ignore[operator]


def last_calls(messages: Sequence[Any]) -> Sequence[ToolCall]:
    """The calls of the last message of a model."""
    last = next((message for message in reversed(messages) if isinstance(message, AIMessage)), None)
    return () if last is None else last.tool_calls


def open_calls(messages: Sequence[Any], *, after_hook: bool) -> list[ToolCall]:
    """The calls of the last message of a model that have no result yet.

    Args:
        after_hook: A hook may have given results, and put them anywhere. Without one, results follow their message.
    """
    answered: set[Any] = set()
    for message in reversed(messages):
        if isinstance(message, ToolMessage):
            answered.add(message.tool_call_id)
        elif isinstance(message, AIMessage) and not after_hook:
            break
    return [call for call in last_calls(messages) if call["id"] not in answered]


def with_all_results(messages: Sequence[Any]) -> list[Any]:
    """The messages as models take them: with a result for every call.

    A call has none where the conversation went on while it waited for an answer.
    """
    answered = {message.tool_call_id for message in messages if isinstance(message, ToolMessage)}
    found: list[Any] = []
    missing: list[ToolMessage] = []
    for message in messages:
        if not isinstance(message, ToolMessage):
            found += missing
            missing = []
        found.append(message)
        if isinstance(message, AIMessage):
            missing = [_not_run(call) for call in message.tool_calls if call["id"] not in answered]
    return [*found, *missing]


def _not_run(call: ToolCall) -> ToolMessage:
    text = "Not run: the conversation went on without it."
    return ToolMessage(text, tool_call_id=call["id"] or "", name=call["name"], status="error")

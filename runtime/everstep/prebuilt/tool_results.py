"""From the input of a `ToolNode` to calls, and from the calls' results to an update of the state.

Pure. Every call has a result message in what comes out, in the order of the calls; where commands for the containing
graph come out and bring it messages, the results of the other calls go along.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypedDict

from langchain_core.messages import AIMessage, RemoveMessage, ToolCall, ToolMessage
from langchain_core.messages.tool import ToolOutputMixin

from everstep.errors import ConfigError
from everstep.graph.message import REMOVE_ALL_MESSAGES
from everstep.types import MISSING, Command

# Tools hand back commands as they are: langchain makes a text of whatever it does not know as a tool's output.
if not issubclass(Command, ToolOutputMixin):
    Command.__bases__ = (*Command.__bases__, ToolOutputMixin)

Item = ToolMessage | Command[Any]


ToolCallWithContext = TypedDict(
    "ToolCallWithContext", {"__type": Literal["tool_call_with_context"], "tool_call": ToolCall, "state": Any}
)
ToolCallWithContext.__doc__ = """A call with the state it is run with, for `Send`.

A call alone is run with the state that the node reads, and is smaller to store.
"""


@dataclass(frozen=True, slots=True)
class Asked:
    """The calls in an input.

    Attributes:
        refused: Calls that the model made so that nobody can read them, with the reason.
        state: What tools get injected; `MISSING` if the input is calls alone.
        is_list: The state is the list of messages itself.
    """

    calls: Sequence[ToolCall]
    refused: Sequence[tuple[ToolCall, str]] = ()
    state: Any = MISSING
    is_list: bool = False


def asked_in(value: Any, key: str) -> Asked:
    """The calls in the input of a node: a state, a list of messages, one call or a list of calls.

    Raises:
        ConfigError: There is no message of a model.
    """
    if isinstance(value, Mapping) and value.get("__type") == "tool_call_with_context":
        return Asked([value["tool_call"]], state=value["state"])
    if _is_call(value):
        return Asked([value])
    if isinstance(value, list):
        if value and all(map(_is_call, value)):
            return Asked(value)
        message, state = last_answer(value, key), {key: value}
    else:
        message, state = last_answer(value, key), value
    if message is None:
        raise ConfigError(
            f"there is no message of a model among the messages (key {key!r}) that tools are to be run for; "
            f"give a state, a list of messages with an AIMessage in it, or tool calls"
        )
    refused = [
        (ToolCall(name=call.get("name") or "", args={}, id=call.get("id")), f"{call.get('error') or 'no JSON'}")
        for call in message.invalid_tool_calls
    ]
    return Asked(message.tool_calls, refused, state, isinstance(value, list))


def last_answer(value: Any, key: str) -> AIMessage | None:
    """The last message of a model in a state or a list of messages."""
    if isinstance(value, list):
        messages = value
    else:
        messages = value.get(key, []) if isinstance(value, Mapping) else getattr(value, key, [])
    return next((message for message in reversed(messages) if isinstance(message, AIMessage)), None)


def answering(call: ToolCall, result: Any) -> list[Item]:
    """What a tool has returned, with a message for the call in it.

    Raises:
        TypeError: It is neither message nor command.
    """
    items = list(result) if isinstance(result, list) else [result]
    if wrong := [item for item in items if not isinstance(item, ToolMessage | Command)]:
        raise TypeError(
            f"the call of tool {call['name']!r} gave {type(wrong[0]).__name__} {wrong[0]!r:.80}; expected a "
            f"ToolMessage, a Command or a list of these"
        )
    for item in items:
        for message in [item] if isinstance(item, ToolMessage) else item_messages(item):
            if isinstance(message, ToolMessage) and message.name is None and message.tool_call_id == call["id"]:
                message.name = call["name"]
    if not any(_answers(item, call) for item in items):
        items.append(ToolMessage("Done.", tool_call_id=call["id"] or "", name=call["name"]))
    return items


def failure(call: ToolCall, text: str) -> ToolMessage:
    """The result message of a call that has failed."""
    return ToolMessage(text, tool_call_id=call["id"] or "", name=call["name"], status="error")


def update_from(items: Iterable[Item], key: str, *, is_list: bool) -> Any:
    """What a node returns for the results of all calls."""
    items = list(items)
    if not any(isinstance(item, Command) for item in items):
        return items if is_list else {key: items}
    for_parent = [item for item in items if isinstance(item, Command) and item.graph == Command.PARENT]
    if any(_brings_messages(command, key) for command in for_parent):
        items = list(_all_for_parent(items, key, is_list=is_list))
    return [item if isinstance(item, Command) else _update([item], key, is_list=is_list) for item in items]


def item_messages(command: Command[Any]) -> Iterator[Any]:
    """Whatever messages a command's update brings, under any key."""
    update = command.update
    values: Iterable[Any]
    if isinstance(update, Mapping):
        values = update.values()
    elif isinstance(update, list | tuple):
        values = [update, *(pair[1] for pair in update if isinstance(pair, tuple) and len(pair) == 2)]
    else:
        values = getattr(update, "__dict__", {}).values()
    for value in values:
        yield from value if isinstance(value, list | tuple) else (value,)


def _is_call(value: Any) -> bool:
    return isinstance(value, Mapping) and {"name", "args", "id"} <= value.keys()


def _answers(item: Item, call: ToolCall) -> bool:
    """Does this answer the call, or is it for those who run the graph to answer it?"""
    if isinstance(item, ToolMessage):
        return item.tool_call_id == (call["id"] or "")
    return item.graph == Command.PARENT or any(
        (isinstance(message, ToolMessage) and message.tool_call_id == call["id"])
        or (isinstance(message, RemoveMessage) and message.id == REMOVE_ALL_MESSAGES)
        for message in item_messages(item)
    )


def _brings_messages(command: Command[Any], key: str) -> bool:
    update = command.update
    if isinstance(update, Mapping):
        return key in update
    return isinstance(update, list | tuple) and any(isinstance(message, ToolMessage) for message in update)


def _all_for_parent(items: Sequence[Item], key: str, *, is_list: bool) -> Iterator[Item]:
    """The results of this graph as well: it ends here, and with it what was for its own state.

    They come last: a command may bring the model's message too, which goes before all results.
    """
    kept: list[ToolMessage] = []
    for item in items:
        if isinstance(item, ToolMessage):
            kept.append(item)
        elif item.graph == Command.PARENT:
            yield item
        else:
            kept += [message for message in item_messages(item) if isinstance(message, ToolMessage)]
    if kept:
        yield Command(graph=Command.PARENT, update=_update(kept, key, is_list=is_list))


def _update(messages: list[ToolMessage], key: str, *, is_list: bool) -> Any:
    return messages if is_list else {key: messages}

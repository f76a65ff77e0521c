"""Lists of chat messages as state: `add_messages` and `MessagesState`. Needs the extra `langchain`.

Messages are merged by id: a message with the id of an earlier one replaces it, one without an id gets a new
one before anything is stored, and a `RemoveMessage` takes one out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Annotated, Any, TypedDict, cast
from uuid import uuid4

from everstep.context import running_task

# The id of a `RemoveMessage` that removes everything before it.
REMOVE_ALL_MESSAGES = "__remove_all__"


def add_messages(left: Any = None, right: Any = None, *, format: str | None = None) -> Any:
    """Merge two lists of messages by id; a reducer.

    Args:
        left: The messages so far; anything that langchain converts to messages.
        right: What is added: one message or several.
        format: "langchain-openai" gives the content of all messages in OpenAI's form.

    Returns:
        The merged list of message objects. Called with `format` alone: the reducer with that format.

    Raises:
        ValueError: A `RemoveMessage` names a message that is not there, or one argument is missing.
        ImportError: langchain-core is not installed.
    """
    if left is None and right is None and format is not None:
        return partial(cast(Callable[..., Any], add_messages), format=format)
    if left is None or right is None:
        raise ValueError(
            f"add_messages merges two lists of messages, got {left!r:.100} and {right!r:.100}; give both, or none of "
            f"them and a format"
        )
    if format not in (None, "langchain-openai"):
        raise ValueError(f"format is 'langchain-openai' or None, got {format!r}")
    merged = merge_by_id(_with_ids(left), _with_ids(right))
    if format is None:
        return merged
    from langchain_core.messages import convert_to_messages, convert_to_openai_messages

    return convert_to_messages(convert_to_openai_messages(merged))


def push_message(message: Any, *, state_key: str | None = "messages") -> Any:
    """Show a message to readers of stream mode "messages" now, and write it to the state before what the node returns.

    Args:
        message: With an id; anything that langchain converts to a message.
        state_key: Where to write it; None shows it alone.

    Returns:
        The message.

    Raises:
        ValueError: It has no id.
        EverstepError: Called outside of a node, after its attempt has ended, or for a key in a `@task`.
        InvalidUpdateError: The graph has no such key.
        ImportError: langchain-core is not installed.
    """
    (converted,) = _convert([message])
    if converted.id is None:
        raise ValueError(f"Message ID is required: push_message got {message!r:.200}, which has none; pass id=")
    running_task("push_message").push(converted, state_key)
    return converted


class MessagesState(TypedDict):
    """A state that is a list of messages."""

    messages: Annotated[list[Any], add_messages]


def merge_by_id(left: Sequence[Any], right: Sequence[Any]) -> list[Any]:
    """Merge messages that all have ids: replace, remove, append, in order.

    Raises:
        ValueError: A `RemoveMessage` names a message that is not there.
    """
    cleared = [index for index, message in enumerate(right) if _removes(message) and message.id == REMOVE_ALL_MESSAGES]
    if cleared:
        return list(right[cleared[-1] + 1 :])
    merged: dict[str, Any] = {message.id: message for message in left}
    removed: set[str] = set()
    for message in right:
        if not _removes(message):
            removed.discard(message.id)
            merged[message.id] = message
        elif message.id in merged:
            removed.add(message.id)
        else:
            raise ValueError(f"no message with id {message.id!r} is there to be removed")
    return [message for key, message in merged.items() if key not in removed]


def _messages_delta_reducer(state: Sequence[Any], writes: Sequence[Any]) -> list[Any]:
    """Merge messages by id; the batch reducer for a `DeltaChannel` of messages.

    Unlike `add_messages` it passes over a `RemoveMessage` for a message that is not there.
    """
    merged: dict[Any, Any] = {}
    written = (message for write in writes for message in _convert(write if isinstance(write, list) else [write]))
    for message in (*_convert(list(state)), *written):
        if not _removes(message):
            merged[object() if message.id is None else message.id] = message
        elif message.id == REMOVE_ALL_MESSAGES:
            merged.clear()
        else:
            merged.pop(message.id, None)
    return list(merged.values())


def _with_ids(messages: Any) -> list[Any]:
    """The messages as objects; those without an id get one."""
    converted = _convert(messages if isinstance(messages, list) else [messages])
    for message in converted:
        if message.id is None:
            message.id = str(uuid4())
    return converted


def _convert(messages: list[Any]) -> list[Any]:
    try:
        from langchain_core.messages import BaseMessageChunk, convert_to_messages, message_chunk_to_message
    except ImportError as error:
        raise ImportError("messages as state need langchain-core: pip install 'everstep[langchain]'") from error
    return [
        message_chunk_to_message(message) if isinstance(message, BaseMessageChunk) else message
        for message in convert_to_messages(messages)
    ]


# The ids are part of what is kept: every replay gives the same.
_messages_delta_reducer.settle = _with_ids  # type: ignore[attr-defined]


def _removes(message: Any) -> bool:
    return getattr(message, "type", None) == "remove"

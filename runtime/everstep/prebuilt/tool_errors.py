"""What becomes of a tool's error: a result message for the model, or the failure of the node.

Pure. Signals of the runtime (a question, a command for a containing graph, a drain) and mistakes in how the graph is
put together are never made a message, whatever a user asks for: a model cannot do anything about them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from types import UnionType
from typing import Any, Union, get_args, get_origin

from langchain_core.tools import ToolException

from everstep.errors import (
    ConfigError,
    DeterminismError,
    GraphDrained,
    GraphMismatchError,
    GraphTypeError,
    InputChangedError,
    InterruptError,
    PersistenceError,
)
from everstep.tasks.callable import type_hints

# What `handle_tool_errors` may be.
HandleErrors = bool | str | Callable[[Any], str] | type[Exception] | tuple[type[Exception], ...]

_NEVER = (
    ConfigError,
    DeterminismError,
    GraphDrained,
    GraphMismatchError,
    InputChangedError,
    InterruptError,
    PersistenceError,
)


class ToolInvocationError(ToolException):
    """A model has given a tool arguments that do not fit its schema.

    Attributes:
        tool_name: The tool.
        source: What pydantic has found wrong.
        tool_kwargs: The arguments, as the model gave them.
    """

    def __init__(self, tool_name: str, source: Exception, tool_kwargs: dict[str, Any]) -> None:
        self.tool_name, self.source, self.tool_kwargs = tool_name, source, tool_kwargs
        found: Any = source
        reasons = "; ".join(f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in found.errors())
        super().__init__(f"tool {tool_name!r} cannot be called with {tool_kwargs}: {reasons}")


@dataclass(frozen=True, slots=True)
class ErrorRule:
    """Which errors of tools become messages, and what these say."""

    kinds: tuple[type[Exception], ...]
    text: Callable[[Any], str]

    def message_for(self, error: Exception) -> str | None:
        """What the model is told; None if the error is to fail the node."""
        if isinstance(error, _NEVER) or not isinstance(error, self.kinds):
            return None
        return self.text(error)


def rule_of(handle: HandleErrors) -> ErrorRule:
    """The rule that `handle_tool_errors` stands for.

    Raises:
        GraphTypeError: It is nothing that can be a rule.
    """
    if isinstance(handle, bool):
        return ErrorRule((Exception,) if handle else (), told)
    if isinstance(handle, str):
        return ErrorRule((Exception,), lambda _: handle)
    kinds = handle if isinstance(handle, tuple) else (handle,)
    if all(isinstance(kind, type) and issubclass(kind, Exception) for kind in kinds):
        return ErrorRule(kinds, told)  # type: ignore[arg-type]
    if callable(handle) and not isinstance(handle, type):
        return ErrorRule(_handled_by(handle), handle)
    raise GraphTypeError(
        f"handle_tool_errors is True, False, a text, a function of the error, or one or several types of exceptions; "
        f"got {handle!r}"
    )


def told(error: Exception) -> str:
    """What a model is told of an error."""
    if isinstance(error, ToolInvocationError):
        return f"Error: {error}. Correct the arguments."
    return f"Error: {error!r}. Correct the call, or go another way."


def _handled_by(handler: Callable[..., Any]) -> tuple[type[Exception], ...]:
    """The errors that a function handles, by the annotation of its first parameter; all if there is none."""
    parameters = list(inspect.signature(handler).parameters)
    hint = type_hints(handler).get(parameters[0], Exception) if parameters else Exception
    kinds = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    if all(isinstance(kind, type) and issubclass(kind, BaseException) for kind in kinds):
        return tuple(kinds)
    raise GraphTypeError(
        f"handle_tool_errors is a function whose first parameter is annotated with {hint!r}; annotate it with a type "
        f"of exceptions, or a union of such, or leave it without"
    )

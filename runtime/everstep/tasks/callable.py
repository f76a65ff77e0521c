"""A user's function, looked at once: how to call it, and what to hand it by keyword.

`Action` covers async and sync functions, callable objects, partials, bound methods and objects with
`ainvoke`. Reading a signature is slow, so it happens when the graph is built, never in a run. Nothing is
called here.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Protocol, get_args, get_origin, get_type_hints

from everstep.context import Runtime
from everstep.errors import GraphTypeError, NodeError

# Parameters that are filled by name; `error` only in error handlers.
INJECTED_NAMES = frozenset({"config", "runtime", "writer", "store", "previous"})


class Provider(Protocol):
    """Gives the values of injected parameters."""

    def provide(self, name: str) -> Any:
        """The value for the injectable `name` (one of `INJECTED_NAMES`, or "error")."""


@dataclass(frozen=True, slots=True)
class Action:
    """A callable and how to call it.

    Attributes:
        function: Called with the input first, if `takes_input`.
        is_async: The call returns an awaitable; otherwise it runs in a worker thread.
        injected: Keyword -> injectable name.
    """

    name: str
    function: Callable[..., Any]
    is_async: bool
    takes_input: bool = True
    injected: tuple[tuple[str, str], ...] = ()

    def bind(self, value: Any, provider: Provider) -> Callable[[], Any]:
        """The call as a function without arguments."""
        arguments = (value,) if self.takes_input else ()
        if not self.injected:
            return functools.partial(self.function, *arguments)
        keywords = {keyword: provider.provide(name) for keyword, name in self.injected}
        return functools.partial(self.function, *arguments, **keywords)

    def call(self, value: Any, provider: Provider) -> Any:
        """Call it; an awaitable if `is_async`."""
        if self.injected or not self.takes_input:
            return self.bind(value, provider)()
        return self.function(value)


def action_of(target: Any, name: str | None = None, *, handles_errors: bool = False) -> Action:
    """Look at a callable, or an object with `ainvoke`, and tell how to call it.

    Args:
        handles_errors: It is an error handler, and may take the error besides.

    Raises:
        GraphTypeError: `target` is neither, or a generator.
    """
    # Asked of the class: an object may answer to any name, as mocks do.
    has_ainvoke = hasattr(type(target), "ainvoke")
    if not callable(target) and not has_ainvoke:
        raise GraphTypeError(
            f"expected a function, a callable object or an object with ainvoke(), "
            f"got {type(target).__name__} {target!r}"
        )
    found = name or name_of(target)
    if has_ainvoke:
        return Action(found, target.ainvoke, True, True, (("config", "config"),))
    if _is_a(target, inspect.isgeneratorfunction) or _is_a(target, inspect.isasyncgenfunction):
        raise GraphTypeError(
            "a generator cannot be run; return one value, and send what comes before it to the stream writer: "
            "get_stream_writer()(value)"
        )
    takes_input, injected = _parameters(target, handles_errors=handles_errors)
    return Action(found, target, _is_a(target, inspect.iscoroutinefunction), takes_input, injected)


def name_of(target: Any) -> str:
    """The name a node gets from its action: the function's, or the class's for an object."""
    while isinstance(target, functools.partial):
        target = target.func
    found = getattr(target, "name", None) if hasattr(type(target), "ainvoke") else None
    return str(found or getattr(target, "__name__", None) or type(target).__name__)


def type_hints(target: Any) -> dict[str, Any]:
    """The annotations of a callable, resolved where they can be; {} where they cannot."""
    while isinstance(target, functools.partial):
        target = target.func
    if not inspect.isroutine(target) and not inspect.isclass(target):
        target = type(target).__call__
    try:
        return get_type_hints(target, include_extras=True)
    except Exception:  # one that nothing resolves must not hide the others
        return {name: _resolved(target, hint) for name, hint in getattr(target, "__annotations__", {}).items()}


def _resolved(target: Any, hint: Any) -> Any:
    """One annotation, resolved if it can be, else as it is written."""
    alone = SimpleNamespace(__annotations__={"hint": hint})
    names = getattr(inspect.unwrap(target), "__globals__", {})
    try:
        return get_type_hints(alone, names, include_extras=True)["hint"]
    except Exception:
        return hint


def input_parameter(target: Any) -> str | None:
    """The name of the parameter that takes the node's input, if there is one."""
    for parameter in _signature(target):
        if _takes_position(parameter):
            hint = type_hints(target).get(parameter.name)
            return None if _injectable(parameter, hint) else parameter.name
        break
    return None


def _parameters(target: Any, *, handles_errors: bool) -> tuple[bool, tuple[tuple[str, str], ...]]:
    """Whether the callable takes an input, and which keywords are injected."""
    hints = type_hints(target)
    takes_input = False
    injected = []
    for index, parameter in enumerate(_signature(target)):
        hint = hints.get(parameter.name)
        name = _injectable(parameter, hint)
        if handles_errors and name is None and (parameter.name == "error" or _is_node_error(hint)):
            name = "error"
        if name is not None and parameter.kind is not parameter.POSITIONAL_ONLY:
            injected.append((parameter.name, name))
        elif index == 0 and (_takes_position(parameter) or parameter.kind is parameter.VAR_POSITIONAL):
            takes_input = True
    return takes_input, tuple(injected)


def _injectable(parameter: inspect.Parameter, hint: Any) -> str | None:
    if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
        return None
    if hint is Runtime or get_origin(hint) is Runtime:
        return "runtime"
    return parameter.name if parameter.name in INJECTED_NAMES else None


def _is_node_error(hint: Any) -> bool:
    return hint is NodeError or NodeError in get_args(hint)


def _signature(target: Any) -> tuple[inspect.Parameter, ...]:
    try:
        return tuple(inspect.signature(target).parameters.values())
    except (TypeError, ValueError):  # a builtin without a signature takes the input alone
        return (inspect.Parameter("input", inspect.Parameter.POSITIONAL_ONLY),)


def _takes_position(parameter: inspect.Parameter) -> bool:
    return parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)


def _is_a(target: Any, kind: Callable[[Any], bool]) -> bool:
    """Is the function, or the `__call__` of the object, of this kind?"""
    while isinstance(target, functools.partial):
        target = target.func
    return kind(target) or kind(type(target).__call__)

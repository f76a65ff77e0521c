"""What the annotations of a function promise: its input schema, where it goes, what it routes to.

Pure. What is not annotated promises nothing; nothing is called to find out.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from types import CodeType, NoneType, SimpleNamespace, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from everstep.graph.schema import is_schema_type
from everstep.pregel.graph import Pregel
from everstep.tasks.callable import input_parameter, type_hints
from everstep.types import Command, Send

_UNIONS = (Union, UnionType)
_GROUPS = (list, tuple, set, frozenset)


@dataclass(frozen=True, slots=True)
class Targets:
    """Where a function may go.

    Attributes:
        names: The targets it declares, in order; None if it declares nothing.
        anywhere: It may go to nodes it does not declare.
    """

    names: tuple[Any, ...] | None = None
    anywhere: bool = False


# What a function promises that can only return to the graph's own edges.
NOWHERE = Targets()


def input_schema_of(target: Any) -> Any:
    """The schema that annotates the first parameter, or None."""
    parameter = input_parameter(target)
    hint = None if parameter is None else hint_of(target, parameter)
    return hint if is_schema_type(hint) else None


def goto_targets(target: Any) -> Targets:
    """Where a node's `Command` may go, by its return annotation: ``Command[Literal["a", "b"]]``."""
    hint = hint_of(target, "return")
    if hint is None:
        return Targets(anywhere=_mentions_command(target))
    if isinstance(hint, str):  # cannot be resolved
        return Targets(anywhere="Command" in hint or "Send" in hint)
    names: list[Any] = []
    anywhere = False
    for part in _parts(hint):
        if get_origin(part) is Command:
            found = [_literals(inner) for inner in _parts(get_args(part)[0])]
            names += [name for literals in found for name in literals or ()]
            anywhere = anywhere or None in found
        elif part in (Command, Send, Any):
            anywhere = True
    return Targets(tuple(dict.fromkeys(names)) if names else None, anywhere)


def route_targets(path: Any) -> Targets:
    """Where a path function may go, by its return annotation: a `Literal`, or a list of them."""
    hint = hint_of(path, "return")
    if hint is None or isinstance(hint, str):
        return Targets(anywhere=True)
    parts = list(_parts(hint))
    found = [_literals(part) for part in parts if part not in (Send, NoneType)]
    if not found or None in found:
        return Targets(anywhere=True)
    names = tuple(dict.fromkeys(name for literals in found for name in literals or ()))
    return Targets(names, anywhere=Send in parts)


def called_graph(target: Any) -> Pregel | None:
    """The compiled graph that a function is or calls, as far as its code and closure name one."""
    if isinstance(owner := getattr(target, "__self__", None), Pregel):
        return owner
    code = getattr(_function(target), "__code__", None)
    if code is None:
        return None
    function = _function(target)
    cells = zip(code.co_freevars, function.__closure__ or (), strict=False)
    named = {name: function.__globals__.get(name) for name in code.co_names}
    for name, cell in cells:
        with suppress(ValueError):  # not filled yet: the function is defined before what it calls
            named[name] = cell.cell_contents
    return next((found for found in named.values() if isinstance(found, Pregel)), None)


def hint_of(target: Any, name: str) -> Any:
    """One annotation of a callable: resolved, or as a string where it cannot be, or None if missing."""
    hint = type_hints(target).get(name)
    if not isinstance(hint, str):
        return hint
    # Another annotation of the same function may be the one that cannot be resolved.
    alone = SimpleNamespace(__annotations__={name: hint}, __globals__=_globals(target))
    try:
        return get_type_hints(alone, include_extras=True)[name]
    except Exception:  # whatever an annotation does when it is evaluated
        return hint


def _parts(hint: Any) -> Iterator[Any]:
    """The alternatives of a hint: members of unions, items of containers."""
    if get_origin(hint) is Annotated:
        yield from _parts(get_args(hint)[0])
    elif get_origin(hint) in _UNIONS or _is_group(get_origin(hint)):
        for part in get_args(hint):
            if part is not Ellipsis:
                yield from _parts(part)
    else:
        yield hint


def _is_group(origin: Any) -> bool:
    return origin in _GROUPS or getattr(origin, "__name__", None) in ("Sequence", "Iterable")


def _literals(hint: Any) -> tuple[Any, ...] | None:
    return get_args(hint) if get_origin(hint) is Literal else None


def _function(target: Any) -> Any:
    while isinstance(target, functools.partial):
        target = target.func
    if not inspect.isroutine(target):
        target = vars(type(target)).get("__call__", target)
    return inspect.unwrap(getattr(target, "__func__", target))


def _globals(target: Any) -> dict[str, Any]:
    found: dict[str, Any] = getattr(_function(target), "__globals__", {})
    return found


def _mentions_command(target: Any) -> bool:
    """Does the code of an unannotated action name `Command` or `Send`? Code that cannot be seen may."""
    code = getattr(_function(target), "__code__", None)
    return code is None or any({"Command", "Send"} & {*c.co_names, *c.co_freevars} for c in _codes(code))


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)

"""Calling a `@task`'s function with the arguments of one call and what is injected.

An argument that the caller gives goes before one that is injected. Every attempt gets copies of the containers among
the arguments (one level), so that no attempt sees what another has done to them.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from everstep.channels.snapshot import one_level_copy


class AppliedTo:
    """A function that is called with the arguments of a call: a pair of positional and keyword arguments.

    It goes by the function's name, by which results are kept in a cache.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        functools.update_wrapper(self, function)
        self._function = function
        self._positional = _positional_names(function)

    def __call__(self, arguments: tuple[tuple[Any, ...], Mapping[str, Any]], **injected: Any) -> Any:
        args, kwargs = arguments
        if injected:
            given = self._positional[: len(args)]
            kwargs = {**{name: value for name, value in injected.items() if name not in given}, **kwargs}
        return self._function(
            *map(one_level_copy, args), **{name: one_level_copy(value) for name, value in kwargs.items()}
        )


def _positional_names(function: Callable[..., Any]) -> tuple[str, ...]:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # a builtin without a signature has nothing injected
        return ()
    return tuple(each.name for each in parameters if each.kind is each.POSITIONAL_OR_KEYWORD)

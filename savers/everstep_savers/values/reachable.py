"""The classes that values of an annotated type may consist of, as far as annotations tell.

Looks through `Annotated`, unions, containers, `TypedDict`s, generics, type aliases and the fields of
classes; a class stands for its subclasses too, those that exist by now. Forward references that do not
resolve are passed over: what they name can be registered by hand. Nothing is registered here.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from enum import Enum
from types import SimpleNamespace
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from everstep_savers.values.registry import default_name

# Classes of these packages have no fields of a user's, and subclasses that an annotation does not mean.
_FOREIGN = sys.stdlib_module_names | {"numpy", "pydantic", "pydantic_core", "typing_extensions"}


def reachable_classes(annotation: Any) -> Iterator[type]:
    """Yield the classes that values annotated like this may consist of, each once."""
    seen: dict[int, Any] = {}  # holds what it knows by id, so that no id is given twice
    waiting = [annotation]
    while waiting:
        found = waiting.pop()
        if id(found) in seen:
            continue
        seen[id(found)] = found
        if isinstance(found, type) and get_origin(found) is None:
            yield found
            waiting.extend(_within_class(found))
        else:
            waiting.extend(_within_form(found))


def _within_class(cls: type) -> Iterator[Any]:
    if cls.__module__.partition(".")[0] in _FOREIGN and cls.__module__ != "__main__":
        return
    # A class that was made twice (by a reload, by `slots=True`) is there twice; the later one counts.
    subclasses: list[type] = type.__subclasses__(cls)
    yield from {default_name(sub): sub for sub in subclasses}.values()
    yield from getattr(cls, "__orig_bases__", ())
    yield from _hints(cls)
    # pydantic has resolved what hints may not: the parameters of generics, and names local to a function.
    yield from (field.annotation for field in getattr(cls, "__pydantic_fields__", {}).values())
    yield from (attribute.type for attribute in getattr(cls, "__attrs_attrs__", ()))


def _within_form(form: Any) -> Iterable[Any]:
    origin = get_origin(form)
    if origin is Annotated:
        return (form.__origin__,)
    if origin is Literal:
        return (type(choice) for choice in get_args(form) if isinstance(choice, Enum))
    if isinstance(form, TypeVar):
        return (form.__bound__, *form.__constraints__)
    if origin is None:
        return (getattr(form, "__supertype__", None), _alias_value(form))
    return (origin, *get_args(form))


def _alias_value(form: Any) -> Any:
    """What a `type X = ...` statement stands for."""
    try:
        return getattr(form, "__value__", None)
    except NameError:  # evaluated on access, and not all of its names exist
        return None


def _hints(cls: type) -> Iterator[Any]:
    try:
        yield from get_type_hints(cls, include_extras=True).values()
    except Exception:  # annotations are user code; one that fails hides all others
        for base in cls.__mro__:
            yield from _hints_one_by_one(base)


def _hints_one_by_one(cls: type) -> Iterator[Any]:
    names = vars(sys.modules.get(cls.__module__, SimpleNamespace()))
    for name, annotation in vars(cls).get("__annotations__", {}).items():
        alone = SimpleNamespace(__annotations__={name: annotation})
        try:
            yield from get_type_hints(alone, names, dict(vars(cls)), include_extras=True).values()
        except Exception:  # noqa: S112  see above: this one does not resolve
            continue

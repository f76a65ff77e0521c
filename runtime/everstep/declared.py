"""What those who build graphs may give, one argument at a time.

Pure. Each check takes an argument as it is, or refuses it with its name, its value and what it can be; where it
stands (a node, a task, a graph) is added by `at`. Whether arguments fit together is told elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from math import isnan
from typing import Any, get_origin

from everstep.errors import GraphBuildError, GraphTypeError
from everstep_savers.addresses import checked_key
from everstep_savers.errors import InvalidKeyError

# Modules whose objects are annotations without being classes: Any, unions, type variables, new types, aliases.
_TYPING = ("typing", "typing_extensions", "types")


@contextmanager
def at(place: str) -> Iterator[None]:
    """Have what is refused inside say where it stands."""
    try:
        yield
    except GraphBuildError as error:
        raise type(error)(f"{place}: {error}") from error.__cause__


def refusal(rule: str, given: Any) -> GraphTypeError:
    """The error for an argument of a type that the rule does not allow."""
    got = f"the class {given.__name__}" if isinstance(given, type) else f"{type(given).__name__} {given!r:.100}"
    return GraphTypeError(f"{rule}, got {got}")


def check_kind(rule: str, given: Any, kind: type | tuple[type, ...]) -> None:
    """Refuse what is not an instance of one of these classes.

    Raises:
        GraphTypeError: It is not.
    """
    if not isinstance(given, kind):
        raise refusal(rule, given)


def check_key(kind: str, name: str) -> None:
    """Refuse a name that no database can hold in a key; names of nodes and channels become part of keys.

    Raises:
        GraphBuildError: With kind and name.
    """
    try:
        checked_key(kind, name)
    except InvalidKeyError as error:
        raise GraphBuildError(f"{error}; choose another") from None


def check_flag(what: str, given: Any) -> None:
    """Refuse what is neither True nor False; other values would count by what they happen to be.

    Raises:
        GraphTypeError: It is not.
    """
    check_kind(f"{what} is True or False", given, bool)


def check_number(what: str, given: Any, least: float, *, whole: bool = False) -> None:
    """Refuse what is not a number from `least` on.

    Raises:
        GraphTypeError: It is not a number.
        GraphBuildError: It is too small, or not a number in the sense of floats.
    """
    rule = f"{what} is a {'whole ' if whole else ''}number from {least:g}"
    if isinstance(given, bool) or not isinstance(given, int if whole else int | float):
        raise refusal(rule, given)
    if isnan(given) or given < least:
        raise GraphBuildError(f"{rule}, got {given!r}")


def check_methods(rule: str, given: Any, methods: Iterable[str]) -> None:
    """Refuse a class, and an object without these methods.

    Raises:
        GraphTypeError: It is one.
    """
    if isinstance(given, type) or not all(callable(getattr(given, name, None)) for name in methods):
        raise refusal(rule, given)


def check_schema(what: str, given: Any) -> None:
    """Refuse as a schema what cannot stand in an annotation.

    Raises:
        GraphTypeError: It is a value and no type.
    """
    if isinstance(given, type) or get_origin(given) is not None or type(given).__module__ in _TYPING:
        return
    raise refusal(f"{what} is a type, such as a TypedDict, a dataclass or a pydantic model", given)


def mapping_of(rule: str, given: Any) -> dict[Any, Any]:
    """A mapping as a dict of ours; None is an empty one.

    Raises:
        GraphTypeError: It is not a mapping.
    """
    if given is None:
        return {}
    check_kind(rule, given, Mapping)
    return dict(given)


def names_of(what: str, given: Any) -> tuple[str, ...]:
    """Names of nodes or channels; one may be given as it is.

    Raises:
        GraphTypeError: It is not a list of strings, or a single one.
    """
    if isinstance(given, str):
        return (given,)
    check_kind(f"{what} is a list of names", given, Iterable)
    names = tuple(given)
    for name in names:
        check_kind(f"a name in {what} is a string", name, str)
    return names

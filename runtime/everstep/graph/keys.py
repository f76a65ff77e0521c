"""A state key, from its annotation: which channel it becomes, or which managed value.

Pure. Reads the annotation once, when the graph is built; knows nothing of the schema around it.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from everstep.channels.base import BaseChannel
from everstep.channels.delta import DeltaChannel
from everstep.channels.last_value import LastValue
from everstep.channels.managed import ManagedValue
from everstep.channels.reducer import BinaryOperatorAggregate
from everstep.constants import BRANCH_PREFIX, RESERVED, ROOT
from everstep.declared import check_key
from everstep.errors import GraphBuildError

# Wrappers that say something about a TypedDict's key and nothing about its value; compared by name, for
# `typing` and `typing_extensions` each have their own.
_KEY_WRAPPERS = frozenset({"NotRequired", "ReadOnly", "Required"})
JOIN_PREFIX = "join:"


@dataclass(frozen=True, slots=True)
class Key:
    """One key of a state schema; it has either a channel or a managed value.

    Attributes:
        hint: The annotation, without what only concerns a TypedDict.
    """

    name: str
    hint: Any
    channel: BaseChannel[Any, Any] | None = None
    managed: type[ManagedValue] | None = None


def key_of(name: str, hint: Any, owner: str) -> Key:
    """Read the annotation of a key; `owner` names the schema in messages.

    Raises:
        GraphBuildError: The name is reserved, or a reducer does not take two arguments.
    """
    _check_name(name, owner)
    hint = _bare(hint)
    typ, metadata = _typ_and_metadata(hint)
    # The last word counts, as in nested annotations the outer one is the later one.
    for item in reversed(metadata):
        if isinstance(item, BaseChannel):
            channel = item.of_type(typ) if isinstance(item, DeltaChannel) else item.copy()
            return Key(name, hint, channel=_keyed(channel, name))
        if inspect.isclass(item) and issubclass(item, ManagedValue):
            return Key(name, hint, managed=item)
        if inspect.isclass(item) and issubclass(item, BaseChannel):
            return Key(name, hint, channel=_made(item, typ, name, owner))
        if _is_reducer(item, name, owner):
            return Key(name, hint, channel=BinaryOperatorAggregate(typ, item, name))
    return Key(name, hint, channel=LastValue(typ, name))


def _check_name(name: str, owner: str) -> None:
    if name in RESERVED or name.startswith((BRANCH_PREFIX, JOIN_PREFIX)):
        raise GraphBuildError(f"key {name!r} of {owner} is a name that the engine uses itself; choose another")
    check_key(f"key of {owner}", name)


def _bare(hint: Any) -> Any:
    """The annotation without key wrappers, wherever they stand, and with type aliases opened."""
    while True:
        if type(hint).__name__ == "TypeAliasType":
            hint = hint.__value__
        elif _is_key_wrapper(hint):
            hint = get_args(hint)[0]
        elif get_origin(hint) is Annotated and _is_key_wrapper(get_args(hint)[0]):
            inner, *metadata = get_args(hint)
            hint = Annotated[(get_args(inner)[0], *metadata)]
        else:
            return hint


def _is_key_wrapper(hint: Any) -> bool:
    return getattr(get_origin(hint), "_name", None) in _KEY_WRAPPERS


def _typ_and_metadata(hint: Any) -> tuple[Any, tuple[Any, ...]]:
    if get_origin(hint) is Annotated:
        typ, *metadata = get_args(hint)
        return typ, tuple(metadata)
    # Optional[Annotated[T, reducer]] says the same as Annotated[T | None, reducer].
    if get_origin(hint) in (Union, UnionType):
        inner = [part for part in get_args(hint) if part is not NoneType]
        if len(inner) == 1 and get_origin(inner[0]) is Annotated:
            return _typ_and_metadata(inner[0])
    return hint, ()


def _keyed(channel: BaseChannel[Any, Any], name: str) -> BaseChannel[Any, Any]:
    channel.key = name
    return channel


def _made(kind: Any, typ: Any, name: str, owner: str) -> BaseChannel[Any, Any]:
    try:
        return _keyed(kind(typ), name)
    except TypeError as error:
        raise GraphBuildError(
            f"key {name!r} of {owner}: {kind.__name__} cannot be made from the type alone ({error}); "
            f"annotate the key with an instance of it"
        ) from error


def _is_reducer(item: Any, name: str, owner: str) -> bool:
    """Is this piece of metadata a reducer? A callable of another shape is taken for one gone wrong."""
    # A class is a marker of somebody else's.
    if not callable(item) or inspect.isclass(item):
        return False
    try:
        inspect.signature(item).bind(None, None)
    except ValueError:  # a builtin without a signature, such as max
        return True
    except TypeError:
        raise GraphBuildError(
            f"key {name!r} of {owner}: the reducer {getattr(item, '__name__', item)!s}{_parameters(item)} must take "
            f"two arguments by position, the value so far and the one written"
        ) from None
    return True


def _parameters(item: Any) -> str:
    return f"({', '.join(_names(item))})"


def _names(item: Any) -> Iterator[str]:
    return (str(parameter) for parameter in inspect.signature(item).parameters.values())


def root_key(hint: Any) -> Key:
    """The one key of a schema that is not a mapping of keys."""
    return key_of(ROOT, hint, "the state schema")

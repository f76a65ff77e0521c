"""State schemas: what a TypedDict, dataclass or pydantic model says about a graph's state.

A schema is read once, when the graph is built. Each key becomes a channel or a managed value; a schema
that is not a mapping of keys is one root channel. Nothing here knows nodes or runs.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, get_origin, get_type_hints

from everstep.channels.base import BaseChannel
from everstep.channels.last_value import AnyValue, EphemeralValue, LastValue, UntrackedValue
from everstep.channels.managed import ManagedValue
from everstep.channels.reducer import BinaryOperatorAggregate
from everstep.constants import ROOT
from everstep.declared import check_schema
from everstep.errors import GraphBuildError
from everstep.graph.keys import Key, key_of, root_key
from everstep.graph.models import Check, ModelMapper, field_checks, is_model, is_root_model, model_hints, model_update

Mapper = Callable[[Any], Any]

_ONE_VALUE = (LastValue, AnyValue, EphemeralValue, UntrackedValue)


@dataclass(frozen=True, slots=True)
class Schema:
    """A state schema, read.

    Attributes:
        source: What the user gave.
        keys: In the order of declaration; `(ROOT,)` for a schema that is not a mapping of keys.
        mapper: Makes an instance of the schema from a mapping of keys; None where nodes take the mapping.
        checks: Checks of values, for the fields of a pydantic model.
    """

    source: Any
    name: str
    keys: tuple[Key, ...]
    mapper: Mapper | None = None
    checks: Mapping[str, Check] = field(default_factory=dict)

    @property
    def is_root(self) -> bool:
        """Is it one value rather than a mapping of keys?"""
        return len(self.keys) == 1 and self.keys[0].name == ROOT

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all keys, managed values included."""
        return tuple(key.name for key in self.keys)

    @property
    def stored_names(self) -> tuple[str, ...]:
        """Names of the keys that have a channel."""
        return tuple(key.name for key in self.keys if key.channel is not None)

    @property
    def managed_names(self) -> frozenset[str]:
        """Names of the keys that are computed."""
        return frozenset(key.name for key in self.keys if key.managed is not None)


def read_schema(source: Any) -> Schema:
    """Read a schema.

    Raises:
        GraphBuildError: It is not a type, an annotation cannot be resolved, or a key cannot be what it says.
    """
    check_schema("a schema", source)
    kind = get_origin(source) or source
    name = getattr(kind, "__name__", None) or repr(source)
    if kind is Annotated or not isinstance(kind, type) or is_root_model(kind):
        return Schema(source, name, (root_key(source),))
    hints = _hints(kind, name)
    if not hints and not is_schema_type(kind):
        return Schema(source, name, (root_key(source),))
    keys = tuple(key_of(key, hint, name) for key, hint in hints.items())
    if is_model(kind):
        checked = [key.name for key in keys if key.channel is not None]
        return Schema(source, name, keys, ModelMapper(kind), field_checks(kind, checked))
    return Schema(source, name, keys, _DataclassMapper(source) if dataclasses.is_dataclass(kind) else None)


def is_schema_type(kind: Any) -> bool:
    """Is this a TypedDict, a dataclass or a pydantic model?"""
    kind = get_origin(kind) or kind
    return isinstance(kind, type) and (_is_typed_dict(kind) or dataclasses.is_dataclass(kind) or is_model(kind))


def _is_typed_dict(kind: type[Any]) -> bool:
    # `typing.is_typeddict` does not know the TypedDict of typing_extensions.
    return dict in kind.__mro__ and hasattr(kind, "__required_keys__")


def update_of(value: Any) -> Mapping[str, Any] | None:
    """A state update as a mapping: a dict as it is, an instance of a schema by its fields; else None."""
    if isinstance(value, dict):
        return value
    if isinstance(value, type):
        return None
    if dataclasses.is_dataclass(value):
        return {f.name: getattr(value, f.name) for f in dataclasses.fields(value) if f.init}
    return model_update(value) if is_model(type(value)) else None


@dataclass(frozen=True, slots=True)
class State:
    """Everything that the schemas of one graph say together.

    Attributes:
        checks: Of what is written to keys that keep it.
        reduced_checks: Of what reducers make of what is written.
    """

    channels: Mapping[str, BaseChannel[Any, Any]]
    managed: Mapping[str, type[ManagedValue]]
    checks: Mapping[str, Check]
    reduced_checks: Mapping[str, Check]


def merge_schemas(schemas: Iterable[Schema]) -> State:
    """One set of channels for several schemas; what comes first has precedence.

    A later schema may repeat a key as a plain one: it reads it and leaves its nature to the first.

    Raises:
        GraphBuildError: Two schemas disagree on the nature of a key.
    """
    found: dict[str, tuple[Key, Schema]] = {}
    checks: dict[str, Check] = {}
    for schema in schemas:
        for key in schema.keys:
            first, owner = found.setdefault(key.name, (key, schema))
            if not _agree(first, key):
                raise GraphBuildError(
                    f"key {key.name!r} is {_nature(first)} in {owner.name} and {_nature(key)} in {schema.name}; "
                    f"annotate it alike in both, or leave the later one without a reducer"
                )
        for name, check in schema.checks.items():
            checks.setdefault(name, check)
    keys = [key for key, _ in found.values()]
    return State(
        MappingProxyType({key.name: key.channel for key in keys if key.channel is not None}),
        MappingProxyType({key.name: key.managed for key in keys if key.managed is not None}),
        MappingProxyType({name: check for name, check in checks.items() if _keeps_writes(found[name][0])}),
        MappingProxyType({name: check for name, check in checks.items() if not _keeps_writes(found[name][0])}),
    )


def _keeps_writes(key: Key) -> bool:
    return isinstance(key.channel, _ONE_VALUE)


def _agree(first: Key, later: Key) -> bool:
    if first.managed is not None or later.managed is not None:
        return first.managed is later.managed
    return type(later.channel) is LastValue or first.channel == later.channel


def _nature(key: Key) -> str:
    if key.managed is not None:
        return f"the managed value {key.managed.__name__}"
    if isinstance(key.channel, BinaryOperatorAggregate):
        return f"reduced with {getattr(key.channel.operator, '__name__', key.channel.operator)}"
    return f"a {type(key.channel).__name__}"


def _hints(kind: Any, name: str) -> dict[str, Any]:
    try:
        if is_model(kind):
            return model_hints(kind)
        hints = get_type_hints(kind, include_extras=True)
    except NameError as error:
        raise GraphBuildError(
            f"an annotation of {name} cannot be resolved: {error}; define what it names at the top level of its "
            f"module, or leave `from __future__ import annotations` out of that module"
        ) from error
    except TypeError:  # not a class whose annotations are Python's
        return {}
    if dataclasses.is_dataclass(kind):
        # What the constructor does not take cannot be given to an instance.
        return {f.name: hints[f.name] for f in dataclasses.fields(kind) if f.init}
    return {key: hint for key, hint in hints.items() if not _is_class_variable(hint)}


def _is_class_variable(hint: Any) -> bool:
    return hint is ClassVar or get_origin(hint) is ClassVar


class _DataclassMapper:
    """Makes an instance of a dataclass from what a node reads; its defaults stand for keys without a value."""

    __slots__ = ("_kind",)

    def __init__(self, kind: Callable[..., Any]) -> None:
        self._kind = kind

    def __call__(self, value: Any) -> Any:
        return self._kind(**value) if type(value) is dict else value

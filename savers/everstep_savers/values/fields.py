"""Values that consist of named fields: dataclasses, attrs classes, named tuples, pydantic models.

Putting one together again calls no constructor, validator or conversion of its class: the stored fields
are set as they were. A field that the class has gained since takes its default; one without a default,
or one that the class has lost, is refused, so that no invalid instance comes to be. Attributes beside
the fields are kept too; what `functools.cached_property` computed is not, it is computed anew.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, fields
from functools import cached_property
from types import MemberDescriptorType
from typing import Any, NamedTuple

from everstep_savers.values.builtin import pair_up
from everstep_savers.values.tree import SHAPE_KINDS, Lowering, RefusedError, type_name

# Stored codes; never renumber.
_DATACLASS, _ATTRS, _NAMED_TUPLE, _MODEL = range(96, 100)
SHAPE_KINDS.update(
    {
        _DATACLASS: "a dataclass",
        _ATTRS: "an attrs class",
        _NAMED_TUPLE: "a named tuple",
        _MODEL: "a pydantic model",
    }
)

# attrs keeps a hash here that differs by process; None makes it compute the hash anew.
_ATTRS_HASH = "_attrs_cached_hash"
# typing leaves this on instances that were made through an alias such as Box[int].
_ALIAS = "__orig_class__"


class Attributes:
    """What instances of a class have beside their fields, in `__dict__` and in slots."""

    def __init__(self, cls: type, field_names: Iterable[str] = ()) -> None:
        members = _members(cls)
        self._fields = frozenset(field_names)
        self._ignored = self._fields.union(_cached(members), {_ALIAS})
        self._slots = {
            name: member
            for name, member in members
            if type(member) is MemberDescriptorType and name not in self._ignored
        }

    def lower(self, walk: Lowering, value: Any) -> list[Any] | None:
        """Return their names and values by turns, or None if there are none."""
        found: Mapping[str, Any] = getattr(value, "__dict__", {})
        if not self._slots and found.keys() <= self._fields:
            return None
        kept = {name: item for name, item in found.items() if name not in self._ignored}
        for name, member in self._slots.items():
            try:
                kept[name] = member.__get__(value)
            except AttributeError:  # an empty slot
                continue
        if _ATTRS_HASH in kept:
            kept[_ATTRS_HASH] = None
        return walk.attributes(kept, []) if kept else None

    def restore(self, value: Any, stored: list[Any] | None) -> None:
        """Set them again, past any `__setattr__` or property of the class."""
        for name, item in pair_up(stored or []).items():
            if name in self._slots:
                self._slots[name].__set__(value, item)
            else:
                vars(value)[name] = item


def _members(cls: type) -> list[tuple[str, Any]]:
    return [member for base in cls.__mro__ if base.__module__ != "builtins" for member in vars(base).items()]


def _cached(members: Iterable[tuple[str, Any]]) -> set[str]:
    return {name for name, member in members if isinstance(member, cached_property)}


class FieldsKind(NamedTuple):
    """What the shapes of dataclasses, attrs classes and named tuples differ in.

    Attributes:
        code: Of the mark.
        names: Gives the fields of a class, in order.
        default: Gives the default of a field, `MISSING` if it has none or one that needs the instance.
        build: Makes an instance of all its fields.
    """

    code: int
    names: Callable[[Any], Iterable[str]]
    default: Callable[[Any, str], Any]
    build: Callable[[Any, dict[str, Any]], Any]


class FieldsShape:
    """Takes apart and puts together instances of one class with fields.

    Stored are the attributes beside the fields, then the fields' names and values by turns.
    """

    def __init__(self, cls: type, name: str, kind: FieldsKind) -> None:
        self.cls = cls
        self.name = name
        self.code = kind.code
        self._kind = kind
        self._fields = tuple(kind.names(cls))
        self._attributes = Attributes(cls, self._fields)

    def lower(self, walk: Lowering, value: Any) -> list[Any]:
        """See `Shape`."""
        lowered = walk.mark(self.code, self.name.encode())
        lowered.append(self._attributes.lower(walk, value))
        return walk.attributes(self._read(value), lowered)

    def lift(self, items: list[Any]) -> Any:
        """See `Shape`."""
        beside, *pairs = items
        value = self._kind.build(self.cls, complete(self.cls, self._fields, pair_up(pairs), self._kind.default))
        self._attributes.restore(value, beside)
        return value

    def _read(self, value: Any) -> dict[str, Any]:
        try:
            return {name: getattr(value, name) for name in self._fields}
        except Exception as error:  # a field may be a property of the user's
            raise RefusedError(f"{type_name(self.cls)} lacks the value of a field: {error}") from error


def complete(
    cls: type, names: Sequence[str], stored: dict[str, Any], default: Callable[[Any, str], Any]
) -> dict[str, Any]:
    """Return all fields in the order of the class: the stored ones, and the defaults of gained ones."""
    if tuple(stored) == names:
        return stored
    for name in stored:
        if name not in names:
            raise RefusedError(
                f"the stored {type_name(cls)} has the field {name!r}, which the class has lost since: "
                "put it back, with a default"
            )
    whole = {name: stored[name] if name in stored else default(cls, name) for name in names}
    for name, item in whole.items():
        if item is MISSING:
            raise RefusedError(
                f"the stored {type_name(cls)} lacks the field {name!r}, which the class has gained since: "
                "give it a default"
            )
    return whole


def _set_fields(cls: type, values: dict[str, Any]) -> Any:
    value: Any = object.__new__(cls)
    for name, item in values.items():
        object.__setattr__(value, name, item)
    return value


def _dataclass_names(cls: Any) -> list[str]:
    return [field.name for field in fields(cls)]


def _dataclass_default(cls: Any, name: str) -> Any:
    field = cls.__dataclass_fields__[name]
    return field.default if field.default_factory is MISSING else field.default_factory()


def _attrs_names(cls: Any) -> list[str]:
    return [attribute.name for attribute in cls.__attrs_attrs__]


def _attrs_default(cls: Any, name: str) -> Any:
    attr = sys.modules["attr"]
    default = getattr(cls.__attrs_attrs__, name).default
    if isinstance(default, attr.Factory):
        return MISSING if default.takes_self else default.factory()
    return MISSING if default is attr.NOTHING else default


def _named_tuple_of(cls: Any, values: dict[str, Any]) -> Any:
    return tuple.__new__(cls, values.values())


DATACLASS = FieldsKind(_DATACLASS, _dataclass_names, _dataclass_default, _set_fields)
ATTRS = FieldsKind(_ATTRS, _attrs_names, _attrs_default, _set_fields)
NAMED_TUPLE = FieldsKind(
    _NAMED_TUPLE,
    lambda cls: cls._fields,
    lambda cls, name: cls._field_defaults.get(name, MISSING),
    _named_tuple_of,
)


class ModelShape:
    """Takes apart and puts together pydantic models (version 2).

    Stored are the names of the fields that were set, extra and private attributes, then the fields.
    """

    def __init__(self, cls: type, name: str) -> None:
        self.cls: Any = cls
        self.name = name
        self.code = _MODEL

    def lower(self, walk: Lowering, value: Any) -> list[Any]:
        """See `Shape`."""
        found = self._read(value)
        extra, private = value.__pydantic_extra__, value.__pydantic_private__
        lowered = walk.mark(_MODEL, self.name.encode())
        lowered.append(walk.items(sorted(value.__pydantic_fields_set__), []))
        lowered.append(None if extra is None else walk.attributes(extra, []))
        lowered.append(None if private is None else walk.attributes(private, []))
        return walk.attributes(found, lowered)

    def lift(self, items: list[Any]) -> Any:
        """See `Shape`."""
        fields_set, extra, private, *pairs = items
        value = object.__new__(self.cls)
        object.__setattr__(value, "__dict__", complete(self.cls, self._names, pair_up(pairs), _model_default))
        object.__setattr__(value, "__pydantic_fields_set__", set(fields_set))
        object.__setattr__(value, "__pydantic_extra__", self._extra(extra))
        object.__setattr__(value, "__pydantic_private__", self._private(pair_up(private or [])))
        return value

    @cached_property
    def _names(self) -> tuple[str, ...]:
        """Of the fields; read late, because a model may be complete only after it was registered."""
        return tuple(self.cls.model_fields)

    @cached_property
    def _computed(self) -> set[str]:
        return _cached(_members(self.cls))

    def _read(self, value: Any) -> dict[str, Any]:
        names = self._names
        found: dict[str, Any] = value.__dict__
        if tuple(found) == names:
            return found
        if missing := set(names) - found.keys():
            raise RefusedError(f"{type_name(self.cls)} lacks the value of its field {min(missing)!r}")
        if unknown := found.keys() - set(names) - self._computed:
            raise RefusedError(f"{type_name(self.cls)} has the attribute {min(unknown)!r} beside its fields")
        return {name: found[name] for name in names}

    def _extra(self, stored: list[Any] | None) -> dict[str, Any] | None:
        extra = pair_up(stored or [])
        if self.cls.model_config.get("extra") == "allow":
            return extra
        if extra:
            raise RefusedError(
                f"the stored {type_name(self.cls)} has the extra field {next(iter(extra))!r}, "
                "which the class no longer allows"
            )
        return None

    def _private(self, stored: dict[str, Any]) -> dict[str, Any] | None:
        known = self.cls.__private_attributes__
        for name in stored:
            if name not in known:
                raise RefusedError(
                    f"the stored {type_name(self.cls)} has the private attribute {name!r}, "
                    "which the class has lost since: put it back, with a default"
                )
        if not known:
            return None
        undefined = sys.modules["pydantic_core"].PydanticUndefined
        gained = {name: known[name].get_default() for name in known.keys() - stored.keys()}
        return stored | {name: item for name, item in gained.items() if item is not undefined}


def _model_default(cls: Any, name: str) -> Any:
    field = cls.model_fields[name]
    if field.is_required() or getattr(field, "default_factory_takes_validated_data", False):
        return MISSING
    return field.get_default(call_default_factory=True)

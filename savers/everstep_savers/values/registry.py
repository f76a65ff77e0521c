"""The types that may be stored, each under a stable name.

Stored data names a type by this name and finds it only here: nothing is imported, and no class is made
or called, because data says so. A class is stored under one name, and a name leads to one class.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from enum import Enum
from typing import Any

from everstep_savers.values.derived import HEAP_TYPE, DerivedShape, EnumShape, built_in_base
from everstep_savers.values.fields import ATTRS, DATACLASS, NAMED_TUPLE, FieldsShape, ModelShape
from everstep_savers.values.tree import Shape, type_name
from everstep_savers.values.wellknown import is_well_known, load_well_known

# What to keep instead of things that have no business in a state, by the name of their type.
_INSTEAD = {
    "memoryview": "keep bytes(value)",
    "array.array": "keep a list, bytes, or a numpy array",
    "mappingproxy": "keep dict(value)",
    "types.SimpleNamespace": "keep a dict, or a dataclass",
    "generator": "keep the list of its items",
    "coroutine": "await it, and keep the result",
    "dict_keys": "keep list(value)",
    "dict_values": "keep list(value)",
    "dict_items": "keep list(value)",
    "function": "keep the data it needs, and look the function up where it is called",
    "method": "keep the data it needs, and look the method up where it is called",
    "type": "keep its name",
    "module": "keep its name",
}

# Arguments of a generic model that need no registration.
_SIMPLE = {f"builtins:{cls.__qualname__}": cls for cls in (bool, int, float, complex, str, bytes)}


class Registry:
    """Names and shapes of the registered types.

    Args:
        base: Asked for what this registry does not have.
    """

    def __init__(self, base: Registry | None = None) -> None:
        self._base = base
        self._by_type: dict[type, Shape] = {}
        self._by_name: dict[str, Shape] = {}

    def add(self, shape: Shape) -> None:
        """Register a type.

        Raises:
            ValueError: Another class has the name, which is not an earlier version of this one.
        """
        taken = self._named(shape.name)
        if taken is not None and taken.cls is not shape.cls:
            if not _is_version_of(taken.cls, shape.cls):
                raise ValueError(
                    f"{type_name(shape.cls)} cannot be registered as {shape.name!r}: "
                    f"{type_name(taken.cls)} has that name; give one of them another"
                )
            self._drop(taken.cls)
        self._by_type[shape.cls] = self._by_name[shape.name] = shape

    def _drop(self, old: type) -> None:
        """Forget an earlier version of a class, and the models made from it by arguments."""
        for name, shape in list(self._by_name.items()):
            if shape.cls is old or _generic(shape.cls).get("origin") is old:
                self._by_type.pop(shape.cls, None)
                del self._by_name[name]

    def of_type(self, cls: type) -> Shape | None:
        """See `Shapes`."""
        return self._known(cls) or self._parametrised_type(cls) or self._well_known_type(cls)

    def of_name(self, name: str) -> Shape | None:
        """See `Shapes`."""
        return self._named(name) or self._parametrised_name(name) or self._well_known_name(name)

    def refusal(self, cls: type) -> str:
        """See `Shapes`."""
        name, short = type_name(cls), cls.__qualname__
        shape = shape_of(cls)
        if shape is not None and self._named(shape.name) is not None:
            return (
                f"{name} is registered as another class of the same name, defined before or after this one: "
                "make the value from that class"
            )
        if shape is not None:
            return (
                f"{name} is not registered: it is not reachable from the graph's schemas; call codec.register({short})"
            )
        if issubclass(cls, BaseException):
            return (
                f"{name} cannot be stored: of exceptions only the built-in ones can; "
                "keep its text, or a dataclass made from it"
            )
        instead = _INSTEAD.get(name) or (
            f"make it a dataclass and call codec.register({short}), or keep plain data instead"
        )
        return f"{name} cannot be stored: {instead}"

    def _known(self, cls: type) -> Shape | None:
        return self._by_type.get(cls) or (self._base._known(cls) if self._base else None)

    def _named(self, name: str) -> Shape | None:
        return self._by_name.get(name) or (self._base._named(name) if self._base else None)

    def _parametrised_type(self, cls: type) -> Shape | None:
        """Registering a generic model registers it with every choice of simple or registered arguments."""
        generic = _generic(cls)
        origin = self._known(generic["origin"]) if generic.get("origin") else None
        arguments = [self._argument_name(argument) for argument in generic.get("args", ())]
        if origin is None or None in arguments:
            return None
        return self._add_model(cls, f"{origin.name}[{','.join(map(str, arguments))}]")

    def _parametrised_name(self, name: str) -> Shape | None:
        head, _, rest = name.partition("[")
        origin = self._named(head) if rest.endswith("]") else None
        parameters = _generic(origin.cls).get("parameters", ()) if origin else ()
        arguments = [self._argument(argument) for argument in rest[:-1].split(",")]
        if origin is None or len(parameters) != len(arguments) or None in arguments:
            return None
        generic_model: Any = origin.cls
        return self._add_model(generic_model[tuple(arguments)], name)

    def _well_known_type(self, cls: type) -> Shape | None:
        name = default_name(cls)
        return self._add_well_known(cls, name) if is_well_known(cls, name) else None

    def _well_known_name(self, name: str) -> Shape | None:
        cls = load_well_known(name)
        return None if cls is None else self._add_well_known(cls, name)

    def _add_well_known(self, cls: type, name: str) -> Shape | None:
        shape = shape_of(cls, name)
        if shape is not None:
            self.add(shape)
        return shape

    def _add_model(self, cls: type, name: str) -> Shape:
        shape = ModelShape(cls, name)
        self.add(shape)
        return shape

    def _argument_name(self, argument: Any) -> str | None:
        if not isinstance(argument, type):
            return None
        name = default_name(argument)
        if _SIMPLE.get(name) is argument:
            return name
        shape = self._known(argument)
        return shape.name if shape and "[" not in shape.name else None

    def _argument(self, name: str) -> type | None:
        if name in _SIMPLE:
            return _SIMPLE[name]
        shape = self._named(name)
        return shape.cls if shape else None


def _is_version_of(old: type, new: type) -> bool:
    return (old.__module__, old.__qualname__) == (new.__module__, new.__qualname__)


def _generic(cls: type) -> Mapping[str, Any]:
    return getattr(cls, "__pydantic_generic_metadata__", {})


def default_name(cls: type) -> str:
    """The name of a class that was given none: its module and qualified name.

    A generic model with arguments gets the names of these, which its own name shows without modules.
    """
    generic = _generic(cls)
    if generic.get("origin"):
        arguments = [default_name(a) if isinstance(a, type) else repr(a) for a in generic["args"]]
        return f"{default_name(generic['origin'])}[{','.join(arguments)}]"
    return f"{cls.__module__}:{cls.__qualname__}"


def is_typed_dict(cls: type) -> bool:
    """Whether a class is a `TypedDict`, of `typing` or of `typing_extensions`."""
    return type(cls).__name__ == "_TypedDictMeta"


def shape_of(cls: type, name: str | None = None) -> Shape | None:
    """How instances of a class can be kept, or None if they cannot."""
    name = name or default_name(cls)
    if is_typed_dict(cls):
        return None  # its values are dicts
    if issubclass(cls, Enum):
        return EnumShape(cls, name) if cls._member_map_ else None
    if issubclass(cls, getattr(sys.modules.get("pydantic.main"), "BaseModel", ())):
        return ModelShape(cls, name)
    if (base := built_in_base(cls)) is not None:
        is_named_tuple = base is tuple and hasattr(cls, "_field_defaults")
        return FieldsShape(cls, name, NAMED_TUPLE) if is_named_tuple else DerivedShape(cls, name, base)
    if next(base for base in cls.__mro__ if not base.__flags__ & HEAP_TYPE) is not object:
        return None  # its instances hold more than attributes
    if hasattr(cls, "__dataclass_fields__"):
        return FieldsShape(cls, name, DATACLASS)
    return FieldsShape(cls, name, ATTRS) if hasattr(cls, "__attrs_attrs__") else None

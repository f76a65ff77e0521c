"""A class that has changed since its values were stored: defaults fill in, or reading is refused."""

from __future__ import annotations

import dataclasses
import enum
from collections import namedtuple
from collections.abc import Callable
from functools import partial
from typing import Any

import attrs
import pydantic
import pytest

from everstep_savers.codec import Codec
from everstep_savers.errors import CodecError

HERE = __name__


def _give(value: Any) -> Any:
    return value


def _dataclass(**fields: Any) -> type:
    """A dataclass ``Thing`` whose fields have these defaults; `...` is none."""
    described = [
        (name, Any) if default is ... else (name, Any, dataclasses.field(default_factory=partial(_give, default)))
        for name, default in fields.items()
    ]
    return dataclasses.make_dataclass("Thing", described, namespace={"__module__": HERE})


def _attrs(**fields: Any) -> type:
    described = {
        name: attrs.field() if default is ... else attrs.field(factory=partial(_give, default))
        for name, default in fields.items()
    }
    made: type = attrs.make_class("Thing", described)
    made.__module__ = HERE
    return made


def _model(**fields: Any) -> type:
    described: dict[str, Any] = {
        name: (Any, ... if default is ... else pydantic.Field(default_factory=partial(_give, default)))
        for name, default in fields.items()
    }
    made: type = pydantic.create_model("Thing", __module__=HERE, **described)
    return made


def _named_tuple(**fields: Any) -> type:
    defaults = [default for default in fields.values() if default is not ...]
    make: Any = namedtuple  # noqa: PYI024
    made: type = make("Thing", list(fields), defaults=defaults, module=HERE)
    return made


MAKERS = {"dataclass": _dataclass, "attrs": _attrs, "pydantic": _model, "named tuple": _named_tuple}
Make = Callable[..., Any]


def read_as(old: Any, new: type) -> Any:
    """Store a value, and read it where its class is `new`."""
    writer, reader = Codec(), Codec()
    writer.register(type(old))
    reader.register(new)
    return reader.decode(*writer.encode({"it": old}))["it"]


def refusal(old: Any, new: type) -> str:
    with pytest.raises(CodecError) as caught:
        read_as(old, new)
    return str(caught.value)


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_a_gained_field_takes_its_default(make: Make) -> None:
    new = make(x=..., y=[7])
    found = read_as(make(x=...)(x=1), new)
    assert type(found) is new
    assert (found.x, found.y) == (1, [7])


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_a_gained_field_without_a_default_is_refused(make: Make) -> None:
    assert refusal(make(x=...)(x=1), make(x=..., y=...)) == (
        f"the stored {HERE}.Thing lacks the field 'y', which the class has gained since: give it a default (at ['it'])"
    )


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_a_lost_field_is_refused(make: Make) -> None:
    assert refusal(make(x=..., y=...)(x=1, y=2), make(x=...)) == (
        f"the stored {HERE}.Thing has the field 'y', which the class has lost since: "
        "put it back, with a default (at ['it'])"
    )


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_fields_in_another_order_keep_their_values(make: Make) -> None:
    found = read_as(make(x=..., y=...)(x=1, y=2), make(y=..., x=...))
    assert (found.x, found.y) == (1, 2)


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_a_missing_class_is_named_when_read(make: Make) -> None:
    writer, reader = Codec(), Codec()
    thing = make(x=...)
    writer.register(thing)
    stored = writer.encode([{"it": thing(x=1)}])
    with pytest.raises(CodecError) as caught:
        reader.decode(*stored)
    assert str(caught.value) == (
        f"the stored type '{HERE}:Thing' is not registered: name it in a schema of the graph, or call "
        "codec.register(...) before loading (at [0]['it'])"
    )


def test_a_class_that_became_another_kind_is_refused() -> None:
    kinds = {"dataclass": "a dataclass", "attrs": "an attrs class", "pydantic": "a pydantic model"}
    for one, was in kinds.items():
        for other, now in (kinds | {"named tuple": "a named tuple"}).items():
            if one != other:
                assert refusal(MAKERS[one](x=...)(x=1), MAKERS[other](x=...)) == (
                    f"the stored type '{HERE}:Thing' was {was} and is now {now} (at ['it'])"
                )


def test_a_default_that_needs_the_instance_is_none() -> None:
    new: type = attrs.make_class(
        "Thing", {"x": attrs.field(), "y": attrs.field(default=attrs.Factory(lambda it: it.x, takes_self=True))}
    )
    new.__module__ = HERE
    assert "lacks the field 'y'" in refusal(_attrs(x=...)(x=1), new)


def test_plain_defaults_are_taken_too() -> None:
    new = dataclasses.make_dataclass("Thing", [("x", int), ("y", int, 5)], namespace={"__module__": HERE})
    assert read_as(_dataclass(x=...)(x=1), new) == new(1, 5)
    new_attrs: type = attrs.make_class("Thing", {"x": attrs.field(), "y": attrs.field(default=5)})
    new_attrs.__module__ = HERE
    assert read_as(_attrs(x=...)(x=1), new_attrs) == new_attrs(1, 5)
    assert read_as(_model(x=...)(x=1), pydantic.create_model("Thing", __module__=HERE, x=int, y=(int, 5))).y == 5


def _enum(**members: Any) -> Any:
    return enum.Enum("Thing", members, module=HERE)


def test_an_enum_member_is_found_by_its_name() -> None:
    new = _enum(B=3, A=2)
    assert read_as(_enum(A=1).A, new) is new.A


def test_a_lost_enum_member_is_refused() -> None:
    assert refusal(_enum(A=1).A, _enum(B=1)) == (f"the stored member 'A' is not in {HERE}.Thing any more (at ['it'])")


def test_a_subclass_of_another_built_in_type_is_refused() -> None:
    old, new = (type("Thing", (base,), {"__module__": HERE}) for base in (str, bytes))
    assert refusal(old("a"), new) == (
        f"the stored {HERE}.Thing holds a str, and the class now extends bytes (at ['it'])"
    )


def _model_with(private: dict[str, Any] | None = None, **config: Any) -> Any:
    namespace = {name: pydantic.PrivateAttr(default=default) for name, default in (private or {}).items()}
    body = {"__module__": HERE, "model_config": config, "__annotations__": {"x": int}, **namespace}
    metaclass: Any = type(pydantic.BaseModel)
    return metaclass("Thing", (pydantic.BaseModel,), body)


def test_private_attributes_are_gained_with_their_default_and_not_lost() -> None:
    plain, private = _model_with(), _model_with({"_p": 7})
    assert read_as(plain(x=1), private)._p == 7
    assert refusal(private(x=1), plain) == (
        f"the stored {HERE}.Thing has the private attribute '_p', which the class has lost since: "
        "put it back, with a default (at ['it'])"
    )


def test_extra_fields_are_refused_where_they_are_no_longer_allowed() -> None:
    plain, open_ = _model_with(), _model_with(extra="allow")
    assert read_as(plain(x=1), open_).__pydantic_extra__ == {}
    assert read_as(open_(x=1), plain) == plain(x=1)
    assert refusal(open_(x=1, y=2), plain) == (
        f"the stored {HERE}.Thing has the extra field 'y', which the class no longer allows (at ['it'])"
    )

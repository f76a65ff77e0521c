"""Which types may be stored, and under which names they are found again."""

from __future__ import annotations

import dataclasses
import enum
import subprocess
import sys
import typing
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Generic, Literal, NamedTuple, NewType, NotRequired, Optional, TypedDict, TypeVar

import attrs
import pydantic
import pytest

from everstep_savers.codec import Codec, StoredError, default_codec
from everstep_savers.errors import CodecError

T = TypeVar("T")


@dataclasses.dataclass
class A:
    x: int = 0


@dataclasses.dataclass
class B:
    a: list[A] = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class Tree:
    children: list[Tree] = dataclasses.field(default_factory=list)
    later: Optional["A"] = None  # noqa: UP037, UP045
    missing: "Nowhere | None" = None  # type: ignore[name-defined]  # noqa: F821, UP037


class Shape:
    """Not a type of values itself; its subclasses are."""


@dataclasses.dataclass
class Circle(Shape):
    radius: float = 1.0


@dataclasses.dataclass(slots=True)
class Square(Shape):
    side: float = 1.0


class Hue(enum.Enum):
    RED = "red"


class Spot(NamedTuple):
    hue: Hue


class Part(TypedDict):
    a: NotRequired[dict[str, tuple[A, ...]]]


class Doc(pydantic.BaseModel):
    b: B | None = None
    _spot: Spot = pydantic.PrivateAttr(default=Spot(Hue.RED))


class Box(pydantic.BaseModel, Generic[T]):
    content: T


@attrs.define
class Crate:
    a: A


@dataclasses.dataclass
class Cell(Generic[T]):
    value: T


BoundT = TypeVar("BoundT", bound=A)
Fresh = NewType("Fresh", A)


class NotAState:
    pass


def knows(codec: Codec, value: Any) -> bool:
    """Whether the codec stores this value."""
    try:
        return bool(codec.decode(*codec.encode(value)) == value)
    except CodecError:
        return False


def add(left: Any, right: Any) -> Any:
    return left + right


ANNOTATIONS: dict[str, tuple[Any, list[Any]]] = {
    "class": (A, [A()]),
    "annotated": (Annotated[A, add], [A()]),
    "annotated-list": (Annotated[list[A], add], [A()]),
    "union": (A | None, [A()]),
    "optional": (Optional[A], [A()]),  # noqa: UP045
    "containers": (dict[str, list[tuple[A, Spot]]], [A(), Spot(Hue.RED)]),
    "abstract-container": (Sequence[A], [A()]),
    "typing-container": (typing.List["A"], []),  # noqa: UP006  a bare forward reference has no module
    "callable": (Callable[[A], B], [A(), B()]),
    "literal-enum": (Literal[Hue.RED, "blue"], [Hue.RED]),
    "type-variable": (BoundT, [A()]),
    "new-type": (Fresh, [A()]),
    "typed-dict": (Part, [A()]),
    "dataclass-fields": (B, [B([A()])]),
    "recursive": (Tree, [Tree([Tree()]), A()]),
    "named-tuple": (Spot, [Spot(Hue.RED)]),
    "model-fields-and-private": (Doc, [Doc(b=B([A()])), Hue.RED]),
    "generic-model": (Box[Spot], [Box[Spot](content=Spot(Hue.RED))]),
    "generic-dataclass": (Cell[Spot], [Cell(Spot(Hue.RED))]),
    "attrs": (Crate, [Crate(A())]),
    "subclasses": (Shape, [Circle(), Square()]),
}


@pytest.mark.parametrize(("annotation", "values"), ANNOTATIONS.values(), ids=ANNOTATIONS)
def test_types_reachable_from_an_annotation_are_registered(annotation: Any, values: list[Any]) -> None:
    codec = Codec()
    assert not any(knows(codec, value) for value in values)
    codec.register_annotation(annotation)
    assert all(knows(codec, value) for value in values)


def test_a_type_alias_statement_is_looked_through() -> None:
    if sys.version_info < (3, 12):
        alias: Any = type("TypeAliasType", (), {"__value__": list[A]})()
    else:
        alias = typing.TypeAliasType("alias", list[A])
    codec = Codec()
    codec.register_annotation(dict[str, alias])
    assert knows(codec, A())


def test_what_no_annotation_leads_to_is_not_registered() -> None:
    codec = Codec()
    codec.register_annotation(B)
    assert knows(codec, A())
    assert not knows(codec, Circle())


@pytest.mark.parametrize("annotation", [object, Any, pydantic.BaseModel, enum.Enum, Exception, None, "A", 7, add])
def test_annotations_that_say_nothing_register_nothing(annotation: Any) -> None:
    codec = Codec()
    codec.register_annotation(annotation)
    assert not any(knows(codec, value) for value in (A(), Doc(), Hue.RED, Spot(Hue.RED), Circle()))


def test_local_classes_of_a_function_are_found_through_a_model() -> None:
    class Local(pydantic.BaseModel):
        x: int

    class Outer(pydantic.BaseModel):
        local: Local

    codec = Codec()
    codec.register_annotation(Outer)
    assert knows(codec, Outer(local=Local(x=1)))


def test_registering_a_class_registers_the_classes_of_its_fields() -> None:
    codec = Codec()
    codec.register(B)
    assert knows(codec, B([A()]))


def test_a_codec_of_its_own_knows_what_the_default_one_knows_and_keeps_its_own() -> None:
    codec = Codec()
    assert knows(codec, StoredError("a", "b"))
    codec.register(A)
    assert not knows(default_codec, A())


def test_names_are_module_and_qualified_name_unless_given() -> None:
    codec = Codec()
    codec.register(A)
    assert f"{__name__}:A".encode() in codec.encode(A())[1]
    codec.register(A, name="test:A")
    assert b"test:A" in codec.encode(A())[1]
    assert __name__.encode() not in codec.encode(A())[1]


def test_what_was_stored_under_an_earlier_name_is_still_read() -> None:
    codec = Codec()
    codec.register(A)
    before = codec.encode(A(1))
    codec.register(A, name="test:A")
    assert codec.decode(*before) == A(1)
    assert codec.decode(*codec.encode(A(2))) == A(2)


def test_a_given_name_is_kept_when_the_class_is_met_again() -> None:
    codec = Codec()
    codec.register(A, name="test:A")
    codec.register_annotation(B)
    codec.register(A)
    assert b"test:A" in codec.encode(A())[1]


def test_a_name_belongs_to_one_class() -> None:
    codec = Codec()
    codec.register(A, name="test:X")
    codec.register(A, name="test:X")
    with pytest.raises(ValueError, match="test:X") as caught:
        codec.register(B, name="test:X")
    assert str(caught.value) == (
        f"{__name__}.B cannot be registered as 'test:X': {__name__}.A has that name; give one of them another"
    )


def test_a_name_of_the_default_codec_is_taken_in_all_others() -> None:
    with pytest.raises(ValueError, match="everstep:StoredError") as caught:
        Codec().register(A, name="everstep:StoredError")
    assert str(caught.value) == (
        f"{__name__}.A cannot be registered as 'everstep:StoredError': "
        "everstep_savers.values.failures.StoredError has that name; give one of them another"
    )


def _make_class() -> type:
    @dataclasses.dataclass
    class Made:
        x: int

    return Made


def test_a_class_made_again_takes_the_place_of_the_earlier_one() -> None:
    codec = Codec()
    old, new = _make_class(), _make_class()
    codec.register(old)
    stored = codec.encode(old(1))
    codec.register(new)
    assert codec.decode(*stored) == new(1)
    with pytest.raises(CodecError) as caught:
        codec.encode(old(1))
    assert str(caught.value) == (
        f"{__name__}._make_class.<locals>.Made is registered as another class of the same name, "
        "defined before or after this one: make the value from that class"
    )


def test_of_subclasses_made_twice_the_later_one_counts() -> None:
    base = type("Base", (), {"__module__": __name__})

    def make() -> Any:
        return dataclasses.make_dataclass("Sub", [("x", int)], bases=(base,), namespace={"__module__": __name__})

    old, new = make(), make()
    codec = Codec()
    codec.register_annotation(base)
    codec.register_annotation(list[base])  # type: ignore[valid-type]
    assert knows(codec, new(1))
    assert not knows(codec, old(1))


def test_a_generic_model_comes_with_its_simple_and_registered_arguments() -> None:
    writer, reader = Codec(), Codec()
    for codec in (writer, reader):
        codec.register(Box, A)
    for value in (Box[int](content=1), Box[A](content=A(1))):
        assert type(reader.decode(*writer.encode(value))) is type(value)


def test_a_generic_model_of_an_unregistered_argument_is_refused() -> None:
    codec = Codec()
    codec.register(Box)
    for argument in (Circle, list[int], Box[int], int | None):
        assert not knows(codec, Box[argument].model_construct(content=None))  # type: ignore[valid-type]


def test_generic_models_of_two_classes_of_one_name_are_told_apart() -> None:
    one, other = (dataclasses.make_dataclass("Same", [("x", int)]) for _ in range(2))
    one.__module__, other.__module__ = "one", "other"
    codec = Codec()
    codec.register_annotation(Box[one] | Box[other])  # type: ignore[valid-type]
    for cls in (one, other):
        model: Any = Box[cls]  # type: ignore[valid-type]
        assert type(codec.decode(*codec.encode(model(content=cls(1))))) is model


class Custom:
    def __init__(self, x: Any) -> None:
        self.x = x


class SubCustom(Custom):
    pass


def test_a_record_is_kept_through_its_functions() -> None:
    codec = Codec()
    codec.register_record(Custom, name="test:Custom", to_fields=lambda c: {"x": c.x}, from_fields=lambda f: Custom(**f))
    found = codec.decode(*codec.encode(Custom((1, 2))))
    assert type(found) is Custom
    assert found.x == (1, 2)
    assert not knows(codec, SubCustom(1))


def test_a_sentinel_comes_back_as_itself() -> None:
    sentinel = NotAState()
    codec = Codec()
    codec.register_record(NotAState, name="test:Sentinel", to_fields=lambda _: None, from_fields=lambda _: sentinel)
    assert codec.decode(*codec.encode({"a": sentinel}))["a"] is sentinel


def test_standard_types_need_no_registration() -> None:
    codec = Codec()
    codec.register(int, list, dict, Part)
    assert knows(codec, {"a": [1]})


def test_what_cannot_be_kept_cannot_be_registered() -> None:
    with pytest.raises(TypeError) as caught:
        Codec().register(NotAState)
    assert str(caught.value) == (
        f"{__name__}.NotAState cannot be stored: make it a dataclass and call codec.register(NotAState), "
        "or keep plain data instead"
    )


def test_an_annotation_is_not_a_class() -> None:
    with pytest.raises(TypeError) as caught:
        Codec().register(A | B)  # type: ignore[arg-type]
    assert str(caught.value) == (
        f"codec.register takes classes, not {__name__}.A | {__name__}.B: use codec.register_annotation"
    )


def test_one_name_is_for_one_class() -> None:
    with pytest.raises(TypeError) as caught:
        Codec().register(A, B, name="test:AB")
    assert str(caught.value) == "codec.register(name='test:AB') takes one class, not 2"


def test_importing_the_codec_loads_nothing_that_few_need() -> None:
    lazily = ["decimal", "fractions", "ipaddress", "pathlib", "pickle", "zoneinfo", "numpy", "pydantic", "attr"]
    program = f"import sys, everstep_savers.codec; print([m for m in {lazily} if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-S", "-c", f"import sys; sys.path[:] = {sys.path}; {program}"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "[]"

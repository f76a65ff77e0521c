"""What schemas become: keys, channels, managed values, mappers and checks."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Generic, NamedTuple, NotRequired, Optional, Required, TypedDict, TypeVar

import pytest
from pydantic import AfterValidator, BaseModel, Field, RootModel, ValidationError, field_validator, model_validator
from typing_extensions import TypedDict as ExtensionsTypedDict

from everstep.channels.last_value import EphemeralValue, LastValue
from everstep.channels.managed import IsLastStep, RemainingSteps, RemainingStepsManager
from everstep.channels.reducer import BinaryOperatorAggregate
from everstep.channels.topic import Topic
from everstep.constants import ROOT
from everstep.errors import GraphBuildError
from everstep.graph.keys import key_of
from everstep.graph.schema import is_schema_type, merge_schemas, read_schema, update_of
from everstep.types import MISSING

T = TypeVar("T")
AddedList = Annotated[list[int], operator.add]


def joined(a: str, b: str) -> str:
    return a + b


def of_three(a: Any, b: Any, c: Any) -> Any:
    return a, b, c


class Base(TypedDict):
    total: int
    items: Annotated[list[int], operator.add]


class Extended(Base, total=False):
    note: str
    words: Required[Annotated[str, joined]]
    maybe: NotRequired[Annotated[set[int], operator.or_]]
    left: RemainingSteps


class Empty(TypedDict):
    pass


class FromExtensions(ExtensionsTypedDict):
    total: int


class Pair(TypedDict, Generic[T]):
    left: T


class Plain:
    total: int
    shared: ClassVar[int] = 3


class Tupled(NamedTuple):
    total: int


@dataclass
class Record:
    total: int
    items: Annotated[list[int], operator.add] = field(default_factory=list)
    name: str = "none"
    shared: ClassVar[int] = 3
    computed: int = field(init=False, default=7)


class Inner(BaseModel):
    size: int


class Model(BaseModel):
    shared: ClassVar[int] = 3
    _private: int = 1
    total: float
    items: Annotated[list[int], operator.add] = Field(default_factory=list)
    mood: str = "calm"
    inner: Inner | None = None
    last: IsLastStep = False

    @field_validator("mood")
    @classmethod
    def check_mood(cls, mood: str) -> str:
        if mood not in ("calm", "wild"):
            raise ValueError("neither calm nor wild")
        return mood

    @model_validator(mode="after")
    def check_whole(self) -> Model:
        if self.total < 0 and self.mood == "calm":
            raise ValueError("a negative total is wild")
        return self


class Node(BaseModel):
    name: str = ""
    children: list[Node] = Field(default_factory=list)


def channels_of(source: Any) -> dict[str, Any]:
    return dict(merge_schemas([read_schema(source)]).channels)


def kinds_of(source: Any) -> dict[str, type]:
    return {name: type(channel) for name, channel in channels_of(source).items()}


def test_a_typed_dict_gives_a_channel_for_each_key_its_bases_included() -> None:
    assert kinds_of(Extended) == {
        "total": LastValue,
        "items": BinaryOperatorAggregate,
        "note": LastValue,
        "words": BinaryOperatorAggregate,
        "maybe": BinaryOperatorAggregate,
    }


def test_a_managed_value_has_no_channel() -> None:
    state = merge_schemas([read_schema(Extended)])
    assert dict(state.managed) == {"left": RemainingStepsManager}
    assert read_schema(Extended).names == ("total", "items", "note", "words", "maybe", "left")
    assert read_schema(Extended).stored_names == ("total", "items", "note", "words", "maybe")


@pytest.mark.parametrize(
    ("source", "names"),
    [
        (Empty, ()),
        (FromExtensions, ("total",)),
        (Pair[int], ("left",)),
        (Plain, ("total",)),
        (Tupled, ("total",)),
        (Record, ("total", "items", "name")),
        (Model, ("total", "items", "mood", "inner", "last")),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_a_mapping_of_keys_gives_its_keys_in_order(source: Any, names: tuple[str, ...]) -> None:
    schema = read_schema(source)
    assert schema.names == names
    assert not schema.is_root


@pytest.mark.parametrize(
    "source", [int, dict, list[int], Annotated[list[int], operator.add], str | None, RootModel[list[int]]]
)
def test_any_other_type_is_one_root_key(source: Any) -> None:
    schema = read_schema(source)
    assert schema.is_root
    assert schema.stored_names == (ROOT,)


def test_a_root_key_may_have_a_reducer() -> None:
    channel = channels_of(AddedList)[ROOT]
    channel.update([[1], [2]])
    assert channel.get() == [1, 2]


@pytest.mark.parametrize(
    ("hint", "kind"),
    [
        (int, LastValue),
        (Annotated[list[int], operator.add], BinaryOperatorAggregate),
        (Annotated[list[int], "words", operator.add], BinaryOperatorAggregate),
        (Annotated[list[int], operator.add, "words"], BinaryOperatorAggregate),
        (Annotated[list[int], operator.add, Field(description="words")], BinaryOperatorAggregate),
        (Annotated[int, max], BinaryOperatorAggregate),
        (Annotated[int, functools.partial(of_three, 1)], BinaryOperatorAggregate),
        (Annotated[int, lambda a, b, c=1: a + b + c], BinaryOperatorAggregate),
        (NotRequired[AddedList], BinaryOperatorAggregate),
        (Annotated[NotRequired[list[int]], operator.add], BinaryOperatorAggregate),
        (Optional[AddedList], BinaryOperatorAggregate),  # noqa: UP045
        (AddedList | None, BinaryOperatorAggregate),
        (Annotated[list[int] | None, operator.add], BinaryOperatorAggregate),
        (Annotated[int, EphemeralValue], EphemeralValue),
        (Annotated[list[str], Topic(str, accumulate=True)], Topic),
        (Annotated[int, AfterValidator(abs)], LastValue),
        (Annotated[int, int], LastValue),
    ],
    ids=lambda value: str(value).partition(" at 0x")[0],
)
def test_an_annotation_chooses_the_channel(hint: Any, kind: type) -> None:
    channel = key_of("key", hint, "State").channel
    assert channel is not None
    assert type(channel) is kind
    assert channel.key == "key"


@pytest.mark.parametrize(
    "hint", [AddedList, NotRequired[AddedList], AddedList | None, Annotated[set[int], operator.or_]]
)
def test_a_reducer_starts_from_the_empty_value_of_its_type(hint: Any) -> None:
    channel = key_of("key", hint, "State").channel
    assert channel is not None
    assert channel.get() in ([], set())


def test_a_channel_instance_used_for_two_keys_is_two_channels() -> None:
    shared = Annotated[list[str], Topic(str)]
    one, two = key_of("one", shared, "State").channel, key_of("two", shared, "State").channel
    assert one is not None
    assert two is not None
    assert (one.key, two.key) == ("one", "two")


@pytest.mark.parametrize(
    ("reducer", "named"),
    [(of_three, "of_three(a: 'Any', b: 'Any', c: 'Any')"), (lambda a: a, "<lambda>(a)")],
)
def test_a_reducer_that_does_not_take_two_arguments_is_refused(reducer: Callable[..., Any], named: str) -> None:
    with pytest.raises(GraphBuildError) as caught:
        key_of("items", Annotated[list[int], reducer], "State")
    assert str(caught.value) == (
        f"key 'items' of State: the reducer {named} must take two arguments by position, the value so far and the "
        f"one written"
    )


def test_a_channel_class_that_needs_more_than_a_type_is_refused() -> None:
    with pytest.raises(GraphBuildError, match="annotate the key with an instance of it"):
        key_of("items", Annotated[list[int], BinaryOperatorAggregate], "State")


@pytest.mark.parametrize("name", ["__start__", "__pregel_tasks", "branch:to:a", "join:a+b:c"])
def test_a_key_with_a_name_of_the_engine_is_refused(name: str) -> None:
    with pytest.raises(GraphBuildError) as caught:
        key_of(name, int, "State")
    assert str(caught.value) == f"key {name!r} of State is a name that the engine uses itself; choose another"


def test_an_annotation_that_cannot_be_resolved_is_refused_by_name() -> None:
    class Local(TypedDict):
        value: Nowhere  # type: ignore[name-defined]  # noqa: F821

    class LocalModel(BaseModel):
        value: Nowhere  # type: ignore[name-defined]  # noqa: F821

    with pytest.raises(GraphBuildError, match="an annotation of LocalModel cannot be resolved"):
        read_schema(LocalModel)
    with pytest.raises(GraphBuildError) as caught:
        read_schema(Local)
    assert str(caught.value) == (
        "an annotation of Local cannot be resolved: name 'Nowhere' is not defined; define what it names at the top "
        "level of its module, or leave `from __future__ import annotations` out of that module"
    )


def test_a_later_schema_may_repeat_a_reduced_key_as_a_plain_one() -> None:
    class Reader(TypedDict):
        items: list[int]

    state = merge_schemas([read_schema(Base), read_schema(Reader)])
    assert type(state.channels["items"]) is BinaryOperatorAggregate


def test_two_schemas_that_disagree_on_a_key_are_refused() -> None:
    class Reader(TypedDict):
        total: Annotated[int, operator.add]

    class Other(TypedDict):
        items: Annotated[list[int], joined]

    class Managed(TypedDict):
        total: RemainingSteps

    for later, message in (
        (Reader, "key 'total' is a LastValue in Base and reduced with add in Reader"),
        (Other, "key 'items' is reduced with add in Base and reduced with joined in Other"),
        (Managed, "key 'total' is a LastValue in Base and the managed value RemainingStepsManager in Managed"),
    ):
        with pytest.raises(GraphBuildError) as caught:
            merge_schemas([read_schema(Base), read_schema(later)])
        advice = "; annotate it alike in both, or leave the later one without a reducer"
        assert str(caught.value) == message + advice


def test_only_typed_dicts_dataclasses_and_models_are_schema_types() -> None:
    assert all(map(is_schema_type, (Base, Empty, FromExtensions, Pair[int], Record, Model)))
    assert not any(map(is_schema_type, (int, dict, list[int], Plain, Any, None, Sequence, "Base")))


def test_a_dataclass_is_made_of_the_keys_with_a_value_and_its_defaults() -> None:
    mapper = read_schema(Record).mapper
    assert mapper is not None
    assert mapper({"total": 1, "items": [2]}) == Record(1, [2], "none")
    made = Record(4)
    assert mapper(made) is made


def test_a_model_is_made_of_the_keys_with_a_value_and_validates_them() -> None:
    mapper = read_schema(Model).mapper
    assert mapper is not None
    assert mapper({"total": "1.5", "inner": {"size": 2}, "last": True}) == Model(
        total=1.5, inner=Inner(size=2), last=True
    )
    with pytest.raises(ValidationError, match="a negative total is wild"):
        mapper({"total": -1})


def test_keys_of_a_model_with_aliases_are_the_names_of_its_fields() -> None:
    class Aliased(BaseModel):
        total: int = Field(alias="theTotal")

    schema = read_schema(Aliased)
    assert schema.names == ("total",)
    assert schema.mapper is not None
    assert schema.mapper({"total": 3}) == Aliased(theTotal=3)


def test_a_typed_dict_is_given_as_it_is() -> None:
    assert read_schema(Base).mapper is None


def test_fields_are_checked_where_they_keep_what_is_written_and_where_they_are_reduced() -> None:
    state = merge_schemas([read_schema(Model)])
    assert set(state.checks) == {"total", "mood", "inner"}
    assert set(state.reduced_checks) == {key for key in state.channels if key not in state.checks} != set()
    assert read_schema(Record).checks == {}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("total", 1),
        ("total", "2.5"),
        ("mood", "wild"),
        ("inner", {"size": 1}),
        ("inner", Inner(size=1)),
        ("inner", None),
    ],
)
def test_a_value_that_fits_its_field_passes_the_check(key: str, value: Any) -> None:
    read_schema(Model).checks[key](value)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("total", "foo", "unable to parse string as a number"),
        ("mood", "grim", "neither calm nor wild"),
        ("inner", {"size": "big"}, "unable to parse string as an integer"),
    ],
)
def test_a_value_that_does_not_fit_its_field_fails_the_check(key: str, value: Any, message: str) -> None:
    with pytest.raises(ValidationError, match=message) as caught:
        read_schema(Model).checks[key](value)
    assert caught.value.title == "Model"


def test_a_check_looks_at_its_field_alone() -> None:
    # -1 with the default mood fails as a whole, and there is no whole yet.
    read_schema(Model).checks["total"](-1)


def test_fields_of_recursive_generic_and_frozen_models_are_checked() -> None:
    class Box(BaseModel, Generic[T], frozen=True):
        content: T

    read_schema(Node).checks["children"]([{"name": "a", "children": [{"name": "b"}]}])
    with pytest.raises(ValidationError):
        read_schema(Node).checks["children"]([{"children": 5}])
    with pytest.raises(ValidationError):
        read_schema(Box[int]).checks["content"]("x")


def test_an_update_is_a_dict_or_the_fields_of_an_instance() -> None:
    given = {"total": 1}
    assert update_of(given) is given
    assert update_of(Record(2)) == {"total": 2, "items": [], "name": "none"}
    assert update_of([("total", 1)]) is None
    assert update_of(Record) is None
    assert update_of(5) is None


def test_the_update_of_a_model_has_what_was_set_and_defaults_other_than_none() -> None:
    assert update_of(Model(total=1)) == {"total": 1.0, "items": [], "mood": "calm", "last": False}
    assert update_of(Model(total=1, inner=None)) == {
        "total": 1.0,
        "items": [],
        "mood": "calm",
        "inner": None,
        "last": False,
    }


def test_a_key_without_a_zero_value_starts_empty() -> None:
    assert channels_of(Base)["total"].checkpoint() is MISSING

"""What cannot be kept exactly is refused when it is stored, with its type, its place and the way out."""

from __future__ import annotations

import dataclasses
import enum
import threading
import types
from collections import OrderedDict, UserDict, defaultdict
from collections.abc import Iterator
from datetime import datetime, timedelta, tzinfo
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import attrs
import numpy as np
import pydantic
import pytest

from everstep_savers.codec import Codec
from everstep_savers.errors import CodecError
from tests.unit.codec_samples import Item, Open, Point, Price, Text, make_codec

HERE = __name__


class Plain:
    def __repr__(self) -> str:
        return "<plain>"


class Silent:
    def __repr__(self) -> str:
        raise RuntimeError("no repr")


class OwnError(Exception):
    pass


class OwnZone(tzinfo):
    def utcoffset(self, when: datetime | None) -> timedelta:
        return timedelta(hours=1)

    def dst(self, when: datetime | None) -> None:
        return None

    def tzname(self, when: datetime | None) -> str:
        return "own"


def iter_nothing() -> Iterator[Any]:
    yield from ()


@dataclasses.dataclass
class Unknown:
    x: int


class UnknownModel(pydantic.BaseModel):
    x: int


@attrs.define
class UnknownAttrs:
    x: int


class UnknownEnum(enum.Enum):
    A = 1


class UnknownText(str):
    pass


class Ordered(OrderedDict[str, int]):
    pass


@dataclasses.dataclass
class DataError(Exception):
    x: int


def unregistered(name: str) -> str:
    return f"{HERE}.{name} is not registered: it is not reachable from the graph's schemas; call codec.register({name})"


def make_it_a_dataclass(full: str, short: str) -> str:
    return f"{full} cannot be stored: make it a dataclass and call codec.register({short}), or keep plain data instead"


OTHER_FACTORIES = "use a built-in type such as int or list, or a plain dict"


def not_an_own_exception(name: str) -> str:
    return (
        f"{HERE}.{name} cannot be stored: of exceptions only the built-in ones can; "
        "keep its text, or a dataclass made from it"
    )


def _unset(value: Any, name: str) -> Any:
    delattr(value, name)
    return value


TITLED = np.dtype([(("title", "name"), "i4")])

REFUSED: dict[str, tuple[Any, str]] = {
    "dataclass": (Unknown(1), unregistered("Unknown")),
    "pydantic": (UnknownModel(x=1), unregistered("UnknownModel")),
    "attrs": (UnknownAttrs(1), unregistered("UnknownAttrs")),
    "enum": (UnknownEnum.A, unregistered("UnknownEnum")),
    "str-subclass": (UnknownText("a"), unregistered("UnknownText")),
    "plain-class": (Plain(), make_it_a_dataclass(f"{HERE}.Plain", "Plain")),
    "lock": (threading.Lock(), make_it_a_dataclass("_thread.lock", "lock")),
    "user-dict": (UserDict(), make_it_a_dataclass("collections.UserDict", "UserDict")),
    "ordered-dict-subclass": (Ordered(), make_it_a_dataclass(f"{HERE}.Ordered", "Ordered")),
    "slice": (slice(1), make_it_a_dataclass("slice", "slice")),
    "ellipsis": (..., make_it_a_dataclass("ellipsis", "ellipsis")),
    "memoryview": (memoryview(b"a"), "memoryview cannot be stored: keep bytes(value)"),
    "class": (int, "type cannot be stored: keep its name"),
    "module": (types, "module cannot be stored: keep its name"),
    "namespace": (
        types.SimpleNamespace(),
        "types.SimpleNamespace cannot be stored: keep a dict, or a dataclass",
    ),
    "function": (
        unregistered,
        "function cannot be stored: keep the data it needs, and look the function up where it is called",
    ),
    "generator": (iter_nothing(), "generator cannot be stored: keep the list of its items"),
    "dict-view": ({}.keys(), "dict_keys cannot be stored: keep list(value)"),
    "own-exception": (OwnError("x"), not_an_own_exception("OwnError")),
    "dataclass-exception": (DataError(1), not_an_own_exception("DataError")),
    "default-factory": (
        defaultdict(Plain),
        f"a defaultdict whose default_factory is {Plain!r} cannot be stored: {OTHER_FACTORIES}",
    ),
    "time-zone": (
        datetime(2024, 1, 1, tzinfo=OwnZone()),
        f"a time with the time zone type {HERE}.OwnZone cannot be stored: use datetime.timezone or zoneinfo.ZoneInfo",
    ),
    "numpy-matrix": (
        np.ma.MaskedArray([1], [True]),
        make_it_a_dataclass("numpy.ma.MaskedArray", "MaskedArray"),
    ),
    "numpy-titles": (
        np.zeros(1, TITLED),
        "a numpy value whose data type has titles cannot be stored: use field names alone",
    ),
    "numpy-string-type": (
        np.array(["a"], np.dtypes.StringDType()),
        "a numpy value of data type StringDType() cannot be stored",
    ),
    "numpy-object-field": (
        np.zeros(1, [("a", object)]),
        "a numpy value of data type object cannot be stored",
    ),
    "dataclass-unset-field": (
        _unset(Item("a"), "name"),
        "tests.unit.codec_samples.Item lacks the value of a field: 'Item' object has no attribute 'name'",
    ),
    "pydantic-unset-field": (
        Open.model_construct(),
        "tests.unit.codec_samples.Open lacks the value of its field 'id'",
    ),
}


@pytest.mark.parametrize(("value", "reason"), REFUSED.values(), ids=REFUSED)
def test_a_value_that_cannot_be_kept_is_refused(value: Any, reason: str) -> None:
    with pytest.raises(CodecError) as caught:
        make_codec().encode(value)
    assert (caught.value.reason, caught.value.path, str(caught.value)) == (reason, "", reason)


PLACED: dict[str, tuple[Any, str]] = {
    "dict-and-list": ({"items": [1, 2, 3, Plain()]}, "['items'][3]"),
    "attribute": ({"items": [Item("a", (Plain(),))]}, "['items'][0].size[0]"),  # type: ignore[arg-type]
    "model": ([Price.model_construct(amount=Plain())], "[0].amount"),
    "model-extra": (Open(id=1, more={"a": Plain()}), ".more['a']"),  # type: ignore[call-arg]
    "named-tuple": (Point(1, Plain()), ".y"),  # type: ignore[arg-type]
    "int-key": ({1: {(2, "a"): Plain()}}, "[1][(2, 'a')]"),
    "key-itself": ({"a": {Plain(): 1}}, "['a'].keys()[<plain>]"),
    "key-without-repr": ({(): {Silent(): 1}}, f"[()].keys()[<{HERE}.Silent>]"),
    "long-key": ({"k" * 80: Plain()}, "['" + "k" * 59 + "...]"),
    "set": ({"a": {1, (2, Plain())}}, "['a']{...}[1]"),
    "exception": (ValueError(1, Plain()), ".args[1]"),
    "array": (np.array([1, Plain()], object), "[1]"),
    "subclass": ([Text("a"), {"x": (Plain(),)}], "[1]['x'][0]"),
    "with-surrogates": (["\ud800", {"\ud800": Plain()}], "[1]['\\ud800']"),
    "very-deep": ([[[[[[[[[[[[[[Plain()]]]]]]]]]]]]]], "[0]" * 12 + "..."),
}


@pytest.mark.parametrize(("value", "path"), PLACED.values(), ids=PLACED)
def test_a_refusal_names_the_place(value: Any, path: str) -> None:
    with pytest.raises(CodecError) as caught:
        make_codec().encode(value)
    cls = "Silent" if "Silent" in path else "Plain"
    reason = make_it_a_dataclass(f"{HERE}.{cls}", cls)
    assert (caught.value.path, caught.value.reason) == (path, reason)
    assert str(caught.value) == f"{reason} (at {path})"


TOO_DEEP = "the value is nested more than 200 levels deep, or contains itself"


def _nested(make: Any, levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = make(value)
    return value


def _cycle(value: Any, add: Any) -> Any:
    add(value)
    return value


@pytest.mark.parametrize(
    "value",
    [
        _cycle([], lambda it: it.append(it)),
        _cycle({}, lambda it: it.update(a=it)),
        _cycle(Item("a"), lambda it: setattr(it, "size", (it,))),
        _cycle(Open(id=1), lambda it: setattr(it, "more", it)),
        _nested(lambda it: [it], 201),
        _nested(lambda it: (it,), 201),
        _nested(lambda it: {1: it}, 100_000),
    ],
    ids=["list", "dict", "dataclass", "model", "lists", "tuples", "dicts"],
)
def test_cycles_and_deep_nesting_are_refused(value: Any) -> None:
    with pytest.raises(CodecError) as caught:
        make_codec().encode(value)
    assert caught.value.reason == TOO_DEEP


@pytest.mark.parametrize("make", [lambda it: [it], lambda it: {"a": it}, lambda it: (it,), lambda it: Item("a", it)])
def test_two_hundred_levels_are_kept(make: Any) -> None:
    codec = make_codec()
    value = _nested(make, 200)
    found = codec.decode(*codec.encode(value))
    for _ in range(200):
        value, found = _inside(value), _inside(found)
    assert (value, found) == (1, 1)


def _inside(value: Any) -> Any:
    if isinstance(value, Item):
        return value.size
    return value["a"] if isinstance(value, dict) else value[0]


def test_an_error_in_user_code_is_refused_with_its_reason() -> None:
    class Touchy:
        def __init__(self, broken: bool) -> None:
            self.broken = broken

    def to_fields(value: Touchy) -> Any:
        if value.broken:
            raise OwnError("broken")
        return {}

    codec = Codec()
    codec.register_record(Touchy, name="test:Touchy", to_fields=to_fields, from_fields=lambda _: Touchy(False))
    with pytest.raises(CodecError) as caught:
        codec.encode({"a": Touchy(True)})
    name = f"{HERE}.test_an_error_in_user_code_is_refused_with_its_reason.<locals>.Touchy"
    assert str(caught.value) == f"{name} cannot be stored: OwnError('broken') (at ['a'])"
    assert isinstance(caught.value.__cause__, OwnError)


@pytest.mark.parametrize("error", [TypeError("odd"), ValueError("odd"), LookupError("odd")])
def test_an_error_in_a_property_is_refused_with_its_reason(error: Exception) -> None:
    def fail(self: Any) -> Any:
        raise error

    broken = dataclasses.make_dataclass("Broken", ["x"], namespace={"__module__": HERE})
    value = broken(1)
    broken.x = property(fail)  # type: ignore[attr-defined]
    codec = Codec()
    codec.register(broken)
    with pytest.raises(CodecError) as caught:
        codec.encode([value])
    assert str(caught.value) == f"{HERE}.Broken lacks the value of a field: odd (at [0])"
    assert caught.value.__cause__ is error


def test_a_zone_without_a_key_is_refused() -> None:
    for file in Path("/usr/share/zoneinfo/UTC"), Path("/usr/share/zoneinfo/Etc/UTC"):
        if file.exists():
            with file.open("rb") as content:
                zone = ZoneInfo.from_file(content)
            break
    with pytest.raises(CodecError) as caught:
        Codec().encode([datetime(2024, 1, 1, tzinfo=zone), timedelta(1)])
    assert str(caught.value) == ("a ZoneInfo without a key cannot be stored: use ZoneInfo('Region/City') (at [0])")


def test_without_the_choice_nothing_is_pickled() -> None:
    tag, data = Codec(allow_pickle=True).encode(slice(1))
    with pytest.raises(CodecError) as caught:
        Codec().decode(tag, data)
    assert str(caught.value) == (
        "the value was stored by pickle, which this codec does not read: use Codec(allow_pickle=True)"
    )


def test_what_pickle_cannot_keep_either_is_refused_with_the_first_reason() -> None:
    with pytest.raises(CodecError) as caught:
        Codec(allow_pickle=True).encode(memoryview(b""))
    assert str(caught.value) == "memoryview cannot be stored: keep bytes(value)"

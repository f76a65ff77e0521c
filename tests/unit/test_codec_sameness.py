"""`assert_same`, on which the codec's tests rest, tells apart what ``==`` does not."""

from __future__ import annotations

import re
from collections import Counter, OrderedDict, defaultdict, deque
from datetime import datetime
from decimal import Decimal
from typing import Any
from uuid import UUID, SafeUUID

import numpy as np
import pytest

from tests.unit.codec_samples import (
    BERLIN,
    SAMPLES,
    Attr,
    BigItem,
    Blob,
    Cell,
    Color,
    Item,
    Level,
    Mood,
    OnSlots,
    Open,
    Outer,
    Pair,
    Point,
    Price,
    Stack,
    Text,
    assert_same,
    double,
    noted,
    with_attributes,
)

DIFFERENT: dict[str, tuple[Any, Any]] = {
    "bool-int": (True, 1),
    "int-float": (1, 1.0),
    "zeros": (0.0, -0.0),
    "nan-bits": (double("7ff8000000000000"), double("7ff8000000000001")),
    "complex-zeros": (complex(0.0, 0.0), complex(-0.0, 0.0)),
    "decimal-digits": (Decimal("1.0"), Decimal("1.00")),
    "tuple-list": ((1,), [1]),
    "deep-tuple-list": ({"a": [{"b": (1,)}]}, {"a": [{"b": [1]}]}),
    "bytes-bytearray": (b"a", bytearray(b"a")),
    "dict-order": ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
    "dict-key-type": ({1: "a"}, {True: "a"}),
    "dict-counter": ({"a": 1}, Counter("a")),
    "dict-ordered": ({"a": 1}, OrderedDict(a=1)),
    "default-factory": (defaultdict(int), defaultdict(list)),
    "maxlen": (deque([1]), deque([1], maxlen=2)),
    "set-member-type": ({1}, {True}),
    "set-frozenset": ({1}, frozenset({1})),
    "range": (range(0), range(5, 5)),
    "fold": (datetime(2024, 10, 27, 2, tzinfo=BERLIN), datetime(2024, 10, 27, 2, tzinfo=BERLIN, fold=1)),
    "pattern-flags": (re.compile("a"), re.compile("a", re.I)),
    "uuid-safety": (UUID(int=1), UUID(int=1, is_safe=SafeUUID.safe)),
    "enum-int": (Level.HIGH, 10),
    "enum-str": (Mood.GOOD, "good"),
    "enum-member": (Color.RED, Color.GREEN),
    "namedtuple-tuple": (Point(1.0, 0.0), (1.0, 0.0)),
    "namedtuple-class": (Pair(1, 2), Point(1, 2)),
    "str-subclass-content": (Text("a"), Text("b")),
    "bytes-subclass-content": (Blob(b"a"), Blob(b"b")),
    "list-subclass-content": (Stack([1]), Stack([2])),
    "str-subclass": (Text("a"), "a"),
    "attribute-value": (with_attributes(Text("a"), x=1), with_attributes(Text("a"), x=2)),
    "attribute-missing": (with_attributes(Text("a"), x=1), Text("a")),
    "slot-missing": (OnSlots(1), with_attributes(OnSlots(1), cache=None)),
    "dataclass-field-type": (Item("a", (1,)), Item("a", [1])),  # type: ignore[arg-type]
    "dataclass-value": (Outer.Nested((1, 2)), Outer.Nested((1, 3))),
    "dataclass-class": (Item("a"), BigItem("a")),
    "deep-dataclass-class": (Cell(Item("a")), Cell(BigItem("a"))),
    "attrs-private": (Attr(1, [1]), Attr(1, [2])),
    "pydantic-fields-set": (Price(amount=Decimal(1)), Price(amount=Decimal(1), currency="EUR")),
    "pydantic-private": (Price(amount=Decimal(1)), with_attributes(Price(amount=Decimal(1)), _seen=1)),
    "pydantic-extra": (Open(id=1), Open(id=1, x=1)),  # type: ignore[call-arg]
    "exception-args": (ValueError(1), ValueError(2)),
    "exception-type": (ValueError(1), TypeError(1)),
    "exception-notes": (noted(ValueError(1), "a"), noted(ValueError(1), "b")),
    "exception-file": (OSError(2, "m", "a"), OSError(2, "m", "b")),
    "numpy-python": (np.float64(1.5), 1.5),
    "numpy-width": (np.int32(1), np.int64(1)),
    "numpy-c-type": (np.longlong(1), np.int64(1)),
    "numpy-dtype": (np.array([1], "i4"), np.array([1], "i8")),
    "numpy-shape": (np.zeros((2, 3)), np.zeros((3, 2))),
    "numpy-0d": (np.array(5), np.int64(5)),
    "numpy-value": (np.array([1]), np.array([2])),
    "numpy-object-type": (np.array([(1,), 2], object), np.array([[1], 2], object)),
}


@pytest.mark.parametrize("pair", DIFFERENT.values(), ids=DIFFERENT)
def test_values_that_differ_in_type_or_detail_are_told_apart(pair: tuple[Any, Any]) -> None:
    one, other = pair
    with pytest.raises(AssertionError):
        assert_same(one, other)
    with pytest.raises(AssertionError):
        assert_same([{"a": other}], [{"a": one}])


@pytest.mark.parametrize("value", SAMPLES.values(), ids=SAMPLES)
def test_a_value_is_the_same_as_itself(value: Any) -> None:
    assert_same(value, value)

"""Canonical bytes: equal for equal values, in every process, whatever order their items came up in."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

import pytest

from everstep_savers.codec import Codec
from everstep_savers.errors import CodecError


@dataclass
class Order:
    tags: set[str]
    lines: dict[Any, Any]


@pytest.fixture
def codec() -> Codec:
    made = Codec()
    made.register(Order)
    return made


@pytest.mark.parametrize(
    "items",
    [
        [("a", 1), ("b", [2]), ("c", {"d": 3})],
        [(1, "x"), ("1", "y"), ((2, 3), {"z"})],
    ],
    ids=["str keys", "any keys"],
)
def test_the_order_of_a_dict_makes_no_difference(codec: Codec, items: list[tuple[Any, Any]]) -> None:
    assert len({codec.canonical([dict(order)]) for order in itertools.permutations(items)}) == 1


def test_equal_values_at_any_depth_have_the_same_bytes(codec: Codec) -> None:
    one = [Order({"a", "b", "c"}, {1: {"x": 1, "y": 2}, "k": (frozenset({3, 4}),)})]
    other = [Order({"c", "b", "a"}, {"k": (frozenset({4, 3}),), 1: {"y": 2, "x": 1}})]
    assert codec.canonical(one) == codec.canonical(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ([1, 2], [2, 1]),
        ({"a": 1}, {"a": 2}),
        ({"a", "b"}, {"a", "c"}),
        ({1}, frozenset({1})),
        (OrderedDict(a=1, b=2), OrderedDict(b=2, a=1)),
        (1, 1.0),
    ],
)
def test_values_that_differ_have_other_bytes(codec: Codec, one: Any, other: Any) -> None:
    assert codec.canonical(one) != codec.canonical(other)


def test_bytes_are_the_same_in_processes_that_hash_differently() -> None:
    program = (
        "from everstep_savers.codec import Codec\n"
        "names = {f'name {number}' for number in range(50)}\n"
        "print(Codec().canonical([names, dict.fromkeys(names, {1, 2})]).hex())"
    )
    printed = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(printed) == 1


def test_lone_surrogates_have_bytes_too(codec: Codec) -> None:
    assert codec.canonical({"a": "\ud800", "b": 1}) == codec.canonical({"b": 1, "a": "\ud800"})


def test_what_cannot_be_stored_is_refused_even_where_pickle_is_allowed() -> None:
    with pytest.raises(CodecError, match="object cannot be stored"):
        Codec(allow_pickle=True).canonical([object()])

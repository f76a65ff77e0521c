"""The codec under values and bytes that Hypothesis makes up."""

from __future__ import annotations

import contextlib
import sys
from collections import Counter, OrderedDict, defaultdict, deque
from datetime import timedelta, timezone
from typing import Any

import ormsgpack
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from ormsgpack import Ext

from everstep_savers.errors import CodecError
from tests.unit.codec_samples import (
    SAMPLES,
    Access,
    BigItem,
    Cell,
    Color,
    Frosty,
    Item,
    Level,
    Pair,
    Point,
    Price,
    Stack,
    Table,
    Text,
    assert_same,
    make_codec,
)

CODEC = make_codec()
# The same examples on every machine and in every run.
REPEATABLE = settings(
    derandomize=True,
    database=None,
    deadline=None,
    max_examples=300,
    suppress_health_check=[HealthCheck.too_slow],
)
any_text = st.text(st.characters(), max_size=8)  # lone surrogates and NUL included


def is_nan(value: Any) -> bool:
    """Whether it is no fit member of a set: not equal to itself, or not to be compared at all."""
    return "nan" in repr(value).lower()


zones = st.none() | st.timedeltas(timedelta(hours=-23), timedelta(hours=23)).map(timezone) | st.timezones()
leaves = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=True),
    st.complex_numbers(),
    any_text,
    st.binary(max_size=8),
    st.binary(max_size=8).map(bytearray),
    st.decimals(),
    st.fractions(),
    st.uuids(),
    st.datetimes(timezones=zones),
    st.dates(),
    st.times(timezones=st.none() | st.timedeltas(timedelta(hours=-23), timedelta(hours=23)).map(timezone)),
    st.timedeltas(),
    st.ip_addresses(),
    st.sampled_from([Color.RED, Level.LOW, Access.READ | Access.WRITE]),
    any_text.map(Text),
    st.builds(range, st.integers(), st.integers(), st.integers(1)),
)
hashables = st.recursive(
    leaves.filter(lambda value: not isinstance(value, bytearray) and not is_nan(value)),
    lambda inner: st.tuples(inner, inner) | st.frozensets(inner, max_size=3) | st.builds(Pair, inner, inner),
    max_leaves=4,
)


def containers(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    items = st.lists(inner, max_size=4)
    pairs = st.dictionaries(hashables, inner, max_size=4)
    return st.one_of(
        items,
        items.map(tuple),
        items.map(deque),
        items.map(lambda it: deque(it, maxlen=len(it))),
        items.map(Stack),
        st.dictionaries(any_text, inner, max_size=4),
        pairs,
        pairs.map(OrderedDict),
        pairs.map(Table),
        pairs.map(lambda it: defaultdict(list, it)),
        st.dictionaries(hashables, st.integers(), max_size=3).map(Counter),
        st.sets(hashables, max_size=4),
        st.builds(Point, inner, inner),
        st.builds(Item, any_text, items.map(tuple)),
        st.builds(BigItem, any_text, st.just(()), pairs),
        st.builds(Cell, inner),
        st.builds(Frosty, st.integers(), st.frozensets(hashables, max_size=2)),
        st.builds(Price.model_construct, amount=inner, currency=any_text),
        st.builds(ValueError, inner, inner),
    )


values = st.recursive(leaves, containers, max_leaves=20)


@given(values)
@REPEATABLE
def test_every_value_comes_back_as_it_was(value: Any) -> None:
    assert_same(CODEC.decode(*CODEC.encode(value)), value)


tags = st.sampled_from(["n", "m", "x", "p", "", "z"])
# Trees of what is stored, with marks and leaves of every code in any place.
trees = st.recursive(
    st.one_of(
        st.none(),
        st.integers(-(2**63), 2**64 - 1),
        st.floats(),
        st.text(max_size=5),
        st.binary(max_size=20),
        st.builds(Ext, st.integers(0, 127), st.binary(max_size=24)),
        st.builds(Ext, st.integers(64, 127), st.sampled_from([b"", b"OSError", b"tests.unit.codec_samples:Item"])),
        st.sampled_from(["<i4", "|O", "fields", "array", "name", "size", "int", 2**62, -1, 2**40]),
    ),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=12,
)
ALLOWED_IMPORTS = ("numpy", "decimal", "fractions", "ipaddress", "pathlib", "zoneinfo", "tzdata", "importlib")


class Watcher:
    """Sees each import of a module that is not loaded."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        self.asked.append(name)


def read(tag: str, data: bytes) -> None:
    """Decode anything: a value or a `CodecError`, and no import but from the codec's own tables."""
    watcher = Watcher()
    sys.meta_path.insert(0, watcher)
    try:
        with contextlib.suppress(CodecError):
            CODEC.decode(tag, data)
    finally:
        sys.meta_path.remove(watcher)
    assert [name for name in watcher.asked if not name.startswith(ALLOWED_IMPORTS)] == []


@given(tags, st.binary(max_size=200))
@REPEATABLE
def test_any_bytes_give_a_value_or_a_codec_error(tag: str, data: bytes) -> None:
    read(tag, data)


@given(tags, trees)
@REPEATABLE
def test_any_tree_gives_a_value_or_a_codec_error(tag: str, tree: Any) -> None:
    read(tag, ormsgpack.packb(tree))


@given(st.sampled_from(sorted(SAMPLES.keys() - {"none"})), st.data())
@REPEATABLE
def test_stored_values_with_changed_bytes_give_a_value_or_a_codec_error(name: str, data: st.DataObject) -> None:
    tag, stored = CODEC.encode(SAMPLES[name])
    changed = bytearray(stored)
    for _ in range(data.draw(st.integers(1, 3))):
        changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
    read(tag, bytes(changed))

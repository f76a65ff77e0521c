"""Bodies of checkpoints: given back as they were packed, and refused where they are damaged."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import orjson
import ormsgpack
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from everstep_savers.body import Body, pack_body, unpack_body
from everstep_savers.codec import default_codec
from everstep_savers.decoding import decode_results, decode_tuple
from everstep_savers.errors import CodecError
from everstep_savers.rows import CheckpointRow

names = st.text(st.characters(codec="utf-8"), max_size=5)
versions = st.one_of(st.integers(0, 2**63 - 1), names, st.floats(allow_nan=False))
encoded = st.tuples(names, st.binary(max_size=5))
task_ids = st.one_of(names, st.binary(min_size=16, max_size=16).map(bytes.hex))
results = st.lists(st.tuples(task_ids, st.lists(st.tuples(names, st.none() | encoded), max_size=3)), max_size=3)
bodies = st.builds(
    Body,
    format=st.integers(0, 9),
    transient_versions=st.dictionaries(
        names | names.map("branch:to:{}".format) | st.just("__start__"), versions, max_size=3
    ),
    versions_seen=st.dictionaries(names, st.dictionaries(names, versions, max_size=3), max_size=3),
    updated_channels=st.none() | st.lists(names, max_size=3),
    transient=st.dictionaries(names, encoded, max_size=3),
    results=results,
    ts=st.none() | names,
)


def row(body: bytes, channels: list[str]) -> CheckpointRow:
    """A row with this body."""
    kept = orjson.dumps(dict.fromkeys(channels, 1)).decode()
    return CheckpointRow("t", "", "c", None, 0, "loop", None, 0, kept, body, "{}")


@given(bodies, st.lists(names | names.map("branch:to:{}".format), unique=True, max_size=6))
def test_a_body_comes_back_as_it_was(body: Body, channels: list[str]) -> None:
    channels = [channel for channel in channels if channel not in body.transient_versions]
    assert unpack_body(row(pack_body(body, channels), channels)) == body


@given(st.binary(max_size=60))
def test_arbitrary_bytes_are_a_body_or_refused(data: bytes) -> None:
    with suppress(CodecError):
        assert len(unpack_body(row(data, ["a"]))) == 7


def test_names_that_have_a_version_are_not_repeated() -> None:
    channels = ["a-long-name-of-a-channel"]
    seen: Any = {"node": {channels[0]: 3}}
    body = Body(4, {}, seen, channels, {channels[0]: ("n", b"")}, [("0" * 32, [(channels[0], None)])], None)
    assert channels[0].encode() not in pack_body(body, channels)
    assert len(pack_body(body, channels)) < 50


def test_nodes_are_told_by_their_channels() -> None:
    own = {"__start__": 3, "branch:to:a-node": 4}
    seen: Any = {"__start__": {"__start__": 3}, "a-node": {"branch:to:a-node": 4}, "other": {"n": 1}}
    packed = pack_body(Body(4, own, seen, None, {}, [], None), ["n"])
    assert ormsgpack.unpackb(packed)[1:3] == [[None, 3, ["a-node"], 4], [1, [1, 3], -3, [2, 4], "other", [0, 1]]]


def test_a_node_that_no_channel_starts_is_refused() -> None:
    packed = ormsgpack.packb([4, [], [-1, []], None, [], [], None])
    with pytest.raises(CodecError, match=r"the checkpoint's body cannot be read: the channel 'a' starts no node"):
        unpack_body(row(packed, ["a"]))


def test_a_body_that_names_a_version_which_is_not_there_is_refused() -> None:
    packed = pack_body(Body(4, {}, {}, ["b"], {}, [], None), ["a", "b"])
    with pytest.raises(CodecError, match=r"the checkpoint's body cannot be read: list index out of range"):
        unpack_body(row(packed, ["a"]))


def mutated(part: Any) -> st.SearchStrategy[Any]:
    """The same structure, with something else in the place of some of its parts."""
    other: st.SearchStrategy[Any] = (
        st.none() | st.integers(-2, 2) | st.booleans() | st.floats() | names | st.binary(max_size=3)
    )
    other |= st.lists(other, max_size=2) | st.dictionaries(names, other, max_size=1)
    if isinstance(part, list):
        return other | st.tuples(*map(mutated, part)).map(list)
    if isinstance(part, dict):
        return other | st.fixed_dictionaries({key: mutated(item) for key, item in part.items()})
    return other | st.just(part)


SOUND = [
    4,
    [["c"], 1, None, 2, "d", "x"],
    ["node", [0, 1], 0, ["b", 2], -2, []],
    [0, "b"],
    [[0, "m", b"\x01"], ["b", "x", b"\x01"]],
    [[b"t", [[0], ["b", "n", b""]]]],
    None,
]


@example(ormsgpack.packb([4, {}, [], [], [], [], None]))
@given(mutated(SOUND).map(ormsgpack.packb))
def test_a_body_of_another_structure_is_read_or_refused(packed: bytes) -> None:
    damaged = row(packed, ["a", "branch:to:b"])
    with suppress(CodecError):
        decode_tuple(default_codec, damaged, lambda channel, version: None, [])
    with suppress(CodecError):
        decode_results(default_codec, damaged, lambda channel, version: None)


def test_a_result_without_bytes_and_without_a_version_is_missing() -> None:
    packed = pack_body(Body(4, {}, {}, None, {}, [("t", [("b", None)])], None), ["a"])
    with pytest.raises(CodecError, match=r"the value under version None is missing \(write to 'b', checkpoint 'c'"):
        decode_results(default_codec, row(packed, ["a"]), lambda channel, version: None)


def test_bytes_that_are_none_are_refused() -> None:
    packed = ormsgpack.packb([4, [], [], None, [["a", None, b""]], [], None])
    with pytest.raises(CodecError, match=r"the checkpoint's body cannot be read: NoneType in place of str"):
        unpack_body(row(packed, ["a"]))

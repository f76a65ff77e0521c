"""Bodies of checkpoints: given back as they were packed, and refused where they are damaged."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from everstep_savers.body import Body, pack_body, unpack_body
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


@given(bodies, st.lists(names, unique=True, max_size=6))
def test_a_body_comes_back_as_it_was(body: Body, channels: list[str]) -> None:
    assert unpack_body(row(pack_body(body, channels), channels)) == body


@given(st.binary(max_size=60))
def test_arbitrary_bytes_are_a_body_or_refused(data: bytes) -> None:
    with suppress(CodecError):
        assert len(unpack_body(row(data, ["a"]))) == 6


def test_names_that_have_a_version_are_not_repeated() -> None:
    channels = ["a-long-name-of-a-channel"]
    seen: Any = {"node": {channels[0]: 3}}
    body = Body(4, seen, channels, {channels[0]: ("n", b"")}, [("0" * 32, [(channels[0], None)])], None)
    assert channels[0].encode() not in pack_body(body, channels)
    assert len(pack_body(body, channels)) < 50


def test_a_body_that_names_a_version_which_is_not_there_is_refused() -> None:
    packed = pack_body(Body(4, {}, ["b"], {}, [], None), ["a", "b"])
    with pytest.raises(CodecError, match=r"the checkpoint's body cannot be read: list index out of range"):
        unpack_body(row(packed, ["a"]))

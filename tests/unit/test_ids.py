"""Checkpoint ids: ordered by time, after the parent's, and after the UUIDs of other libraries."""

from __future__ import annotations

import string
import time
import uuid
from uuid import RFC_4122

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everstep_savers import ids
from everstep_savers.ids import new_checkpoint_id, new_run_id, uuid6

NOW = 1_700_000_000_000_000_000
END_OF_DIGITS = "v" * 20


def at(nanoseconds: int, after: str | None = None, random: bytes = bytes(8)) -> str:
    return new_checkpoint_id(after, now_ns=lambda: nanoseconds, entropy=lambda size: random[:size])


def test_an_id_is_twenty_digits_of_base_32() -> None:
    made = new_checkpoint_id()

    assert len(made) == 20
    assert set(made) <= set(string.digits + string.ascii_lowercase[: 32 - 10])


def test_an_id_holds_its_time_and_random_bits() -> None:
    made = at(NOW, random=b"\x01\x23\x45\x67\x89\xab\xcd\xef")

    assert int(made, 32) >> 48 == NOW // 1000
    assert int(made, 32) & (1 << 48) - 1 == 0x0123456789AB


@given(
    st.lists(st.tuples(st.integers(0, (1 << 52) * 1000 - 1), st.binary(min_size=6, max_size=6)), min_size=2, max_size=9)
)
def test_ids_sort_as_their_time_and_random_bits(moments: list[tuple[int, bytes]]) -> None:
    moments = sorted(moments, key=lambda moment: (moment[0] // 1000, moment[1]))

    made = [at(nanoseconds, random=random) for nanoseconds, random in moments]

    assert made == sorted(made)


def test_ids_of_one_moment_differ() -> None:
    assert len({new_checkpoint_id(now_ns=lambda: NOW) for _ in range(1000)}) == 1000


@pytest.mark.parametrize("later", [0, 999, -(10**15)], ids=["same", "same microsecond", "clock went back"])
def test_an_id_sorts_after_its_parent_whatever_the_clock_says(later: int) -> None:
    parent = at(NOW, random=b"\xff" * 8)

    child = at(NOW + later, after=parent)
    grandchild = at(NOW + later, after=child)

    assert parent < child < grandchild


@pytest.mark.parametrize(
    "after",
    ["", "x", "3f2504e0-4f89-41d3-9a0c-0305e82c3301", "w" * 20, END_OF_DIGITS, "1f1ed1f4-8448-6488-97ff-31742d2528b3"],
)
def test_an_id_of_another_kind_sets_no_bound(after: str) -> None:
    assert at(NOW, after=after) == at(NOW)


def test_an_id_sorts_after_the_uuids_of_imported_checkpoints() -> None:
    assert str(uuid6()) < new_checkpoint_id()


def test_ids_by_the_name_of_the_ecosystem_are_uuids_in_order() -> None:
    made = [uuid6() for _ in range(100)]

    assert made == sorted(made)
    assert {(each.version, each.variant) for each in made} == {(6, RFC_4122)}


def test_uuids_stay_in_order_when_the_clock_goes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    first = uuid6()
    monkeypatch.setattr(time, "time_ns", lambda: NOW)

    assert first < uuid6() < uuid6()


def test_the_time_of_a_uuid_is_that_of_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ids, "_last_ticks", 0)
    monkeypatch.setattr(time, "time_ns", lambda: NOW)

    high, middle, low = str(uuid6()).split("-")[:3]

    assert (int(high + middle + low[1:], 16) - 0x01B21DD213814000) * 100 == NOW


def test_the_parts_of_such_an_id_can_be_given() -> None:
    made = uuid6(node=0x123456789ABC, clock_seq=-2)

    assert (made.node, made.clock_seq, made.version) == (0x123456789ABC, 0x3FFE, 6)


def test_the_id_of_a_run_is_a_uuid() -> None:
    assert uuid.UUID(new_run_id()).version == 6

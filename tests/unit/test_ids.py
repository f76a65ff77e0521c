"""Checkpoint ids: UUID version 6, ordered by time and always after the parent's."""

from __future__ import annotations

import uuid
from uuid import RFC_4122

import pytest

from everstep_savers.ids import new_checkpoint_id, uuid6

NOW = 1_700_000_000_000_000_000


def at(nanoseconds: int, after: str | None = None, random: bytes = bytes(8)) -> str:
    return new_checkpoint_id(after, now_ns=lambda: nanoseconds, entropy=lambda size: random[:size])


def test_an_id_is_a_uuid_of_version_6() -> None:
    made = uuid.UUID(new_checkpoint_id())

    assert made.version == 6
    assert made.variant == uuid.RFC_4122


def test_an_id_holds_its_time() -> None:
    high, middle, low = at(NOW).split("-")[:3]

    ticks = int(high + middle + low[1:], 16)
    assert (ticks - 0x01B21DD213814000) * 100 == NOW


def test_ids_sort_by_time() -> None:
    made = [at(NOW + step * 100, random=bytes([255 - step]) * 8) for step in range(200)]

    assert sorted(made) == made


def test_ids_of_one_moment_differ() -> None:
    assert len({new_checkpoint_id(now_ns=lambda: NOW) for _ in range(1000)}) == 1000


@pytest.mark.parametrize("later", [0, 99, -(10**15)], ids=["same", "same tick", "clock went back"])
def test_an_id_sorts_after_its_parent_whatever_the_clock_says(later: int) -> None:
    parent = at(NOW, random=b"\xff" * 8)

    child = at(NOW + later, after=parent)
    grandchild = at(NOW + later, after=child)

    assert parent < child < grandchild


@pytest.mark.parametrize(
    "after",
    ["", "x", "3f2504e0-4f89-41d3-9a0c-0305e82c3301", "zzzzzzzz-zzzz-6zzz-zzzz-zzzzzzzzzzzz"],
)
def test_an_id_of_another_kind_sets_no_bound(after: str) -> None:
    assert at(NOW, after=after) == at(NOW)


def test_ids_by_the_name_of_the_ecosystem_are_uuids_in_order() -> None:
    made = [uuid6() for _ in range(100)]

    assert made == sorted(made)
    assert {(each.version, each.variant) for each in made} == {(6, RFC_4122)}


def test_the_parts_of_such_an_id_can_be_given() -> None:
    made = uuid6(node=0x123456789ABC, clock_seq=-2)

    assert (made.node, made.clock_seq, made.version) == (0x123456789ABC, 0x3FFE, 6)

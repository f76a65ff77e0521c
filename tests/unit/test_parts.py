"""Lists in parts: which parts a list continues, how many there are, what they cost, and how they are joined."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everstep_savers.checkpoint import Chain, Part
from everstep_savers.codec import Codec, default_codec
from everstep_savers.delta import needed_values
from everstep_savers.errors import CodecError
from everstep_savers.parts import (
    RADIX,
    StoredValue,
    decode_parts,
    extended,
    gathered,
    joined,
    same_items,
    shared,
)


def grown(sizes: list[int], *, pinned: int = 0) -> tuple[Chain, int]:
    """The chain of a list to which so many items were added at a time, and how many items were written for it."""
    chain: Chain = ()
    length = written = 0
    for version, size in enumerate(sizes, 1):
        length += size
        chain = extended(chain, version, length, pinned=pinned)
        written += length - (chain[-2].length if len(chain) > 1 else 0)
    return chain, written


def sizes_of(chain: Chain) -> list[int]:
    return [part.length - (chain[n - 1].length if n else 0) for n, part in enumerate(chain)]


def test_a_new_part_continues_the_last_one() -> None:
    chain, _ = grown([3, 2, 2])

    assert chain == (Part(1, 3), Part(2, 5), Part(3, 7))


def test_the_last_of_as_many_parts_of_one_size_takes_the_place_of_all() -> None:
    before, _ = grown([1] * (RADIX - 1))
    chain, _ = grown([1] * (RADIX + 2))

    assert [part.length for part in before] == list(range(1, RADIX))
    assert chain == (Part(RADIX, RADIX), Part(RADIX + 1, RADIX + 1), Part(RADIX + 2, RADIX + 2))


def test_a_larger_part_takes_the_place_of_the_smaller_ones_before_it() -> None:
    chain, _ = grown([RADIX, 1, 1, RADIX])

    assert sizes_of(chain) == [RADIX, RADIX + 2]


def test_a_part_that_adds_nothing_is_left_out_of_what_follows() -> None:
    chain, _ = grown([2, 0])
    longer = extended(chain, 3, 4)

    assert chain == (Part(1, 2), Part(2, 2))
    assert longer == (Part(1, 2), Part(3, 4))


def test_adding_nothing_merges_nothing() -> None:
    chain, written = grown([1] * (RADIX - 1) + [0])

    assert len(chain) == RADIX
    assert written == RADIX - 1


def test_pinned_parts_stay_as_they_are() -> None:
    chain, _ = grown([1] * (RADIX + 1), pinned=1)

    assert chain == (Part(1, 1), Part(RADIX + 1, RADIX + 1))


@given(st.lists(st.integers(0, 80), max_size=400))
def test_parts_stay_few_and_each_item_is_written_rarely(sizes: list[int]) -> None:
    chain, written = grown(sizes)
    length = sum(sizes)
    powers = 1
    while RADIX**powers <= max(length, 1):
        powers += 1

    assert (chain[-1].length if chain else 0) == length
    assert all(size >= 0 for size in sizes_of(chain))
    assert len(chain) <= powers * (RADIX - 1) + 1
    assert written <= length * powers


def test_a_thousand_turns_are_read_in_tens_of_parts() -> None:
    lengths = []
    for turns in range(1, 1001):
        chain, written = grown([1] * turns) if turns in (50, 400, 999, 1000) else ((), 0)
        if chain:
            lengths.append((turns, len(chain), round(written / turns, 2)))

    assert lengths == [(50, 19, 1.62), (400, 28, 1.93), (999, 38, 1.96), (1000, 39, 1.96)]


@given(st.lists(st.integers(0, 80), min_size=1, max_size=200), st.integers(0, 16000))
def test_a_list_that_is_shorter_or_different_shares_whole_parts(sizes: list[int], common: int) -> None:
    chain, _ = grown(sizes)
    kept = shared(chain, common)

    assert kept == chain[: len(kept)]
    assert all(part.length <= common for part in kept)
    assert len(kept) == len(chain) or chain[len(kept)].length > common


def test_items_are_the_same_only_if_they_are_the_same_objects() -> None:
    one, other = [1], [1]

    assert same_items([one, other], [one, other, []]) == 2
    assert same_items([one, other], [one, one]) == 1
    assert same_items([1, 2], [True, 2]) == 0
    assert same_items([one], []) == 0
    assert same_items([], [one]) == 0


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.tuples(st.integers(), st.text()) | st.dates(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.lists(st.lists(values, max_size=40), min_size=1, max_size=5))
def test_parts_decode_and_join_to_the_list_they_were_cut_from(parts: list[list[object]]) -> None:
    rows = [StoredValue(str(n), *default_codec.encode(part), str(n - 1) if n else None) for n, part in enumerate(parts)]
    whole = [item for part in parts for item in part]

    value, lengths = decode_parts(default_codec, rows)

    assert repr(value) == repr(whole)
    assert lengths == [sum(map(len, parts[: n + 1])) for n in range(len(parts))]
    assert repr(default_codec.decode(*joined(rows))) == repr(whole)


def test_long_parts_are_joined_too() -> None:
    rows = [StoredValue("1", *default_codec.encode(list(range(70_000)))), StoredValue("2", *default_codec.encode([1]))]

    assert default_codec.decode(*joined(rows)) == [*range(70_000), 1]


def test_parts_in_a_form_of_their_own_are_not_joined() -> None:
    codec = Codec(allow_pickle=True)
    rows = [StoredValue("1", *codec.encode([object])), StoredValue("2", *codec.encode([1]), "1")]

    assert decode_parts(codec, rows) == ([object, 1], [1, 2])
    with pytest.raises(CodecError) as caught:
        joined(rows)
    assert str(caught.value) == "the value is stored in parts that can only be decoded one by one"


def finder(*rows: StoredValue) -> dict[tuple[str, str], StoredValue]:
    return {("k", row.version): row for row in rows}


def test_the_parts_of_a_value_are_gathered_oldest_first() -> None:
    one, two, three = (
        StoredValue("1", "m", b"1"),
        StoredValue("5", "m", b"5", "1"),
        StoredValue("9", "m", b"9", "5"),
    )
    rows = finder(one, two, three)

    assert gathered(lambda *key: rows.get(key), "k", "9") == [one, two, three]
    assert gathered(lambda *key: rows.get(key), "k", "1") == [one]
    assert gathered(lambda *key: rows.get(key), "k", "7") == []
    assert gathered(lambda *key: rows.get(key), "other", "9") == []


@pytest.mark.parametrize("base", ["7", "9"], ids=["missing", "itself"])
def test_a_part_that_is_not_there_is_an_error(base: str) -> None:
    rows = finder(StoredValue("9", "m", b"\x90", base))

    with pytest.raises(CodecError) as caught:
        gathered(lambda *key: rows.get(key), "k", "9")
    assert str(caught.value) == f"the part of the list that version {base!r} should hold is missing"


def test_parts_that_are_no_lists_are_an_error() -> None:
    list_part, dict_part = (StoredValue("1", *default_codec.encode(value)) for value in ([1], {"a": 1}))

    for rows, complaint in (
        ([dict_part, list_part], "version '1' is continued as a list and is none"),
        ([list_part, dict_part], "the part under version '1' is not a list"),
        ([list_part, StoredValue("2", "m", b"\xc1", "1")], "the items from 1 on"),
    ):
        with pytest.raises(CodecError, match=complaint):
            decode_parts(default_codec, rows)


def test_what_checkpoints_need_is_what_they_name_and_what_that_continues() -> None:
    bases = {
        ("log", "1"): None,
        ("log", "4"): "1",
        ("log", "6"): "4",
        ("log", "7"): "4",
        ("n", "4"): None,
        ("n", "6"): None,
    }

    needed = needed_values([{"log": "6", "n": "6"}, {"log": "6", "n": "4", "empty": "2"}], bases)

    assert needed & bases.keys() == {("log", "6"), ("log", "4"), ("log", "1"), ("n", "6"), ("n", "4")}
    assert needed_values([], bases) == set()

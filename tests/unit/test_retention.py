"""What of a thread may be removed, told from the outlines of its checkpoints."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from everstep_savers.metadata import Descent
from everstep_savers.retention import Lines, Outline, OutlineRow, Policy, outline, policy_of, removable


def chain(*ids: str, ns: str = "", first: str | None = None, **more: Any) -> list[Outline]:
    """Checkpoints one after the other; `created_at` counts from 1."""
    parents = [first, *ids]
    return [made(each, parents[n], ns=ns, created_at=n + 1, **more) for n, each in enumerate(ids)]


def made(
    checkpoint_id: str,
    parent_id: str | None = None,
    *,
    ns: str = "",
    created_at: int = 1,
    parents: Mapping[str, str] | None = None,
    origin: str | None = None,
    asks: bool = False,
    parts: bool = False,
) -> Outline:
    return Outline(ns, checkpoint_id, Descent(parent_id, parts), created_at, parents or {}, origin, asks)


def stored(metadata: str, ns: str = "", source: str = "loop") -> Outline:
    """The outline of a row with this metadata."""
    return outline(OutlineRow(ns, "id", "parent", 7, source, None, metadata, False))


def removed(outlines: list[Outline], head: str | None, keep_last: int = 1, **more: Any) -> list[str]:
    found = removable(outlines, head, Policy(keep_last, **more))
    return [f"{ns}/{checkpoint_id}" if ns else checkpoint_id for ns, checkpoint_id in found]


@pytest.mark.parametrize(("keep_last", "expected"), [(0, "abc"), (1, "abc"), (2, "ab"), (4, ""), (9, "")])
def test_the_head_is_kept_with_as_many_ancestors_as_asked_for(keep_last: int, expected: str) -> None:
    assert removed(chain(*"abcd"), "d", keep_last) == list(expected)


def test_the_head_is_kept_even_where_another_checkpoint_follows_it() -> None:
    assert removed(chain(*"abcd"), "b", 1) == ["a", "c"]


def test_the_tip_of_every_branch_is_kept_and_the_point_where_they_part() -> None:
    thread = [*chain(*"abcdef"), *chain(*"wxyz", first="b")]

    assert removed(thread, "z", 1) == ["a", "d", "e", "x", "y"]
    assert removed(thread, "z", 2) == ["a", "d", "x"]


def test_pruning_again_removes_nothing() -> None:
    thread = [*chain(*"abcdef"), *chain(*"wxyz", first="b"), made("n", "b")]
    gone = removed(thread, "z", 1)
    left = [each for each in thread if each.checkpoint_id not in gone]

    assert "b" not in gone
    assert removed(left, "z", 1) == []


def test_the_point_where_the_head_parts_from_a_branch_stays() -> None:
    assert removed([*chain(*"abc"), *chain(*"xyz", first="b")], "b", 1) == ["a", "y"]


def test_nothing_young_is_removed() -> None:
    assert removed(chain(*"abcd"), "d", 1, before=3) == ["a", "b"]
    assert removed(chain(*"abcd"), "d", 1, before=0) == []


def test_a_subgraph_goes_with_the_checkpoint_it_belongs_to() -> None:
    root = chain(*"abc")
    inner = [*chain("a1", "a2", ns="s:1", parents={"": "a"}), *chain("c1", "c2", ns="s:2", parents={"": "c"})]

    assert removed(root + inner, "c", 1) == ["a", "s:1/a1", "s:1/a2", "b", "s:2/c1"]


def test_a_young_subgraph_of_a_removed_checkpoint_stays_until_it_is_old() -> None:
    thread = [*chain(*"abc"), made("a1", ns="s:1", parents={"": "a"}, created_at=9)]

    assert removed(thread, "c", 1, before=5) == ["a", "b"]


def test_every_question_of_a_kept_subgraph_stays() -> None:
    inner = chain("1", "2", "3", "4", ns="s:1", parents={"": "b"})
    inner[1] = inner[1]._replace(asks=True)

    assert removed(chain(*"ab") + inner, "b", 1) == ["s:1/1", "s:1/3", "a"]


def test_subgraphs_in_subgraphs_go_with_the_checkpoints_of_all_levels() -> None:
    root = chain(*"ab")
    inner = chain("i1", "i2", ns="s:1", parents={"": "b"})
    deep = [
        made("x", ns="s:1|d:1", parents={"": "b", "s:1": "i1"}),
        made("y", ns="s:1|d:2", parents={"": "b", "s:1": "i2"}),
    ]

    assert removed(root + inner + deep, "b", 1) == ["a", "s:1/i1", "s:1|d:1/x"]


def test_a_fork_keeps_the_subgraphs_of_the_checkpoint_it_came_from() -> None:
    thread = [*chain(*"abcd"), made("f", "a", origin="a")]
    inner = [made("i", ns="s:1", parents={"": "a"}), made("j", ns="s:2", parents={"": "c"})]

    assert removed(thread + inner, "f", 1) == ["c", "s:2/j"]


def test_a_subgraph_with_a_history_of_its_own_outlives_what_called_it() -> None:
    root = chain(*"abc")
    inner = [made("i", ns="s", parents={"": "a"}), made("j", "i", ns="s", parents={"": "b"})]

    # The state that c goes on from was made at b.
    assert removed(root + inner, "c", 1) == ["a", "s/i"]
    assert removed(root + inner, "c", 3) == []


def test_a_subgraph_with_a_history_of_its_own_keeps_all_since_the_oldest_kept_container() -> None:
    inner = [
        *chain("1", "2", ns="s", parents={"": "a"}),
        *chain("3", "4", ns="s", first="2", parents={"": "b"}),
        *chain("5", "6", ns="s", first="4", parents={"": "c"}),
    ]

    # A replay of b goes on from 2, which was made at a.
    assert removed(chain(*"abc") + inner, "c", 2) == ["s/1"]


def test_a_checkpoint_whose_container_is_not_stored_is_judged_by_itself() -> None:
    assert removed(chain("1", "2", ns="s:1", parents={"": "gone"}), None, 1) == ["s:1/1"]


def test_checkpoints_that_a_kept_value_is_made_of_stay() -> None:
    thread = chain(*"abcde")
    thread[4] = thread[4]._replace(depth=2)

    assert removed(thread, "e", 1) == ["a", "b"]
    assert removed(thread, "e", 4) == ["a"]


def test_a_thread_of_nothing_has_nothing_to_remove() -> None:
    assert removed([], None) == []


@pytest.mark.parametrize(
    ("metadata", "parents", "origin"),
    [
        ("null", {}, None),
        ('{"parents":{}}', {}, None),
        ('{"parents":{"":"a"},"origin":"b"}', {"": "a"}, "b"),
        ('{"parents":"none","origin":7}', {}, None),
        ("{}", {}, None),
    ],
)
def test_an_outline_is_read_from_the_metadata(metadata: str, parents: dict[str, str], origin: str | None) -> None:
    for ns in ("", "s:1"):
        found = stored(metadata, ns)
        assert found.origin == origin
        assert found.parents == (parents if ns or origin else {})
        assert found.depth == 0


@pytest.mark.parametrize(
    ("metadata", "source", "expected"),
    [
        ("null", "loop", Descent("parent", parts=False)),
        ("null", "fork", Descent("parent", parts=True)),
        ("null", "update", Descent("parent", parts=True)),
        ('{"kept_ancestor":["a",false],"parents":{}}', "fork", Descent("a", parts=False)),
        ('{"kept_ancestor":["a",true],"parents":{}}', "loop", Descent("a", parts=True)),
        ('{"kept_ancestor":"a"}', "loop", Descent("parent", parts=False)),
    ],
)
def test_where_a_checkpoint_comes_from_is_read_from_the_metadata(metadata: str, source: str, expected: Descent) -> None:
    assert stored(metadata, source=source).descent == expected


def test_the_state_of_a_stateful_subgraph_that_a_kept_checkpoint_goes_on_from_stays_with_where_it_was_made() -> None:
    root = chain(*"abcdefgh")
    states = [made("s1", ns="sub", parents={"": "a"}), made("s2", "s1", ns="sub", parents={"": "c"})]
    states.append(made("s3", "s2", ns="sub", parents={"": "g"}))

    assert removed([*root, *states], "h", 1) == ["a", "b", "c", "d", "e", "f", "sub/s1", "sub/s2"]
    # A replay of f goes on from s2.
    assert removed([*root, *states], "h", 3) == ["a", "b", "d", "e"]
    assert removed([*root, *states], "h", 7) == []


def test_what_was_made_where_a_branch_parts_is_not_gone_on_from() -> None:
    root = [*chain(*"abcd"), made("w", "c", parts=True), *chain(*"xyz", first="w")]
    states = [made("s1", ns="sub", parents={"": "a"}), made("s2", "s1", ns="sub", parents={"": "c"})]

    assert removed([*root, *states], "z", 1) == ["b", "x", "y"]


def orphaned(lines: Lines, *gone: str) -> list[tuple[str, Descent]]:
    return [
        (each.checkpoint_id, each.descent) for each in lines.remove([("", checkpoint_id) for checkpoint_id in gone])
    ]


def test_checkpoints_that_lose_their_parent_are_told_the_ancestor_that_is_left() -> None:
    thread = [*chain(*"abcdef"), *chain(*"xy", first="c")]
    told = Descent("a", parts=False)

    assert sorted(orphaned(Lines(thread), *"bcde")) == [("f", told), ("x", told)]
    assert orphaned(Lines(thread), "a") == [("b", Descent(None, parts=False))]


def test_checkpoints_are_told_their_ancestor_while_others_go_one_after_the_other() -> None:
    lines = Lines([*chain(*"abcdef"), *chain(*"xy", first="c")])
    told, none = Descent("a", parts=False), Descent(None, parts=False)

    assert sorted(orphaned(lines, *"bcd")) == [("e", told), ("x", told)]
    assert orphaned(lines, "e") == [("f", told)]
    assert orphaned(lines, "x") == [("y", told)]
    assert sorted(orphaned(lines, "a")) == [("f", none), ("y", none)]


def test_a_branch_still_parts_where_its_first_checkpoint_was_removed() -> None:
    thread = [*chain(*"ab"), made("w", "b", parts=True), *chain(*"xy", first="w")]

    assert orphaned(Lines(thread), "w", "x") == [("y", Descent("b", parts=True))]


def test_an_ancestor_that_is_told_counts_as_the_parent() -> None:
    thread = [made("a"), made("d", "a"), made("e", "d")]

    assert removed(thread, "e", 1) == ["a", "d"]
    assert removed([*thread, made("x", "a")], "e", 1) == []


def test_how_deep_a_value_goes_is_read_from_the_metadata() -> None:
    counters = '{"counters_since_delta_snapshot":{"log":[1,4],"other":[0,2],"odd":["x"]}}'

    assert stored(counters).depth == 4
    assert stored('{"counters_since_delta_snapshot":7}').depth == 0


def test_what_decides_about_whole_threads() -> None:
    assert Policy(0).takes_whole("done", 5)
    assert not Policy(0).takes_whole("interrupted", 5)
    assert not Policy(1).takes_whole("done", 5)
    assert not Policy(0, before=5).takes_whole("done", 5)
    assert Policy(0, before=6).takes_whole("done", 5)
    assert Policy(0, deletes=True).takes_whole("interrupted", 5)
    assert Policy(1).leaves_alone(has_input=True)
    assert not Policy(1).leaves_alone(has_input=False)
    assert not Policy(0, deletes=True).leaves_alone(has_input=True)


def test_a_moment_is_taken_in_its_time_zone() -> None:
    moment = datetime(1970, 1, 1, 2, tzinfo=timezone(timedelta(hours=2)))

    assert policy_of(None, moment, 3, None) == Policy(3, 0)


def test_an_age_counts_from_now() -> None:
    now = datetime.now(UTC).timestamp() * 1e6

    before = policy_of(None, timedelta(hours=1), 1, None).before

    assert before is not None
    assert 0 <= before - (now - 3600e6) < 60e6


def test_strategies_are_policies() -> None:
    assert policy_of(["t"], None, 5, "keep_latest") == Policy(1)
    assert policy_of(["t"], None, 5, "delete") == Policy(0, None, deletes=True)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (
            (None, None, 1, None),
            (
                "aprune was not told what to prune: pass thread_ids, older_than or both; "
                "older_than=timedelta(0) prunes every thread"
            ),
        ),
        (("t-1", None, 1, None), "thread_ids must be a list of thread ids, not the text 't-1'"),
        ((["t"], None, 1, "most"), "strategy must be 'keep_latest' or 'delete', not 'most'"),
        ((["t"], None, -1, None), "keep_last must be a number of checkpoints, 0 or more, not -1"),
        ((["t"], None, True, None), "keep_last must be a number of checkpoints, 0 or more, not True"),
        (
            (["t"], timedelta(1), 1, "delete"),
            "strategy='delete' goes with thread_ids alone; use keep_last with older_than",
        ),
        (
            (["t"], datetime(2024, 5, 1), 1, None),  # noqa: DTZ001
            (
                "older_than must say its time zone, as datetime.now(UTC) does; datetime.datetime(2024, 5, 1, 0, 0) "
                "does not"
            ),
        ),
    ],
    ids=str,
)
def test_arguments_that_make_no_sense_are_refused(arguments: Any, complaint: str) -> None:
    with pytest.raises(ValueError) as caught:
        policy_of(*arguments)

    assert str(caught.value) == complaint

"""Which journalled call a call of code that runs again is, and which calls are refused."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from everstep.errors import DeterminismError
from everstep.tasks.replay import CallRecord, Journalled, Replay, digest_of, shown_call
from everstep.types import MISSING
from everstep_savers.codec import Codec

CODEC = Codec()


def journalled(number: int, name: str, *args: Any, value: Any = "done", **more: Any) -> Journalled:
    """A call as the journal holds it."""
    record = CallRecord("caller", number, name, shown_call(name, args, {}), digest_of(CODEC, args, {}), **more)
    return Journalled(record, value)


def find(replay: Replay, name: str, *args: Any, aside: bool = False) -> Any:
    """What is found for a call: its value, or the place of a new one."""
    found = replay.find(name, digest_of(CODEC, args, {}), shown_call(name, args, {}), aside=aside)
    return replay.next_place(aside=aside) if found is None else found.value


def test_calls_of_the_flow_are_found_by_their_number() -> None:
    replay = Replay("node 'n'", [journalled(1, "u", 1, value="second"), journalled(0, "u", 1, value="first")])
    assert [find(replay, "u", 1), find(replay, "u", 1), find(replay, "u", 1)] == ["first", "second", (2, False)]


def test_a_call_that_had_not_returned_leaves_its_place() -> None:
    replay = Replay("node 'n'", [journalled(1, "b")])
    assert [find(replay, "a"), find(replay, "b"), find(replay, "c")] == [(0, False), "done", (2, False)]


def test_the_same_task_with_other_arguments_is_refused_and_both_calls_are_named() -> None:
    replay = Replay("node 'n'", [journalled(0, "u", 1)])
    message = (
        "node 'n' now calls u(7) where it had called u(1) (call 0); code that runs again must make the same calls in "
        "the same order: let them depend on its input, earlier results and answers alone"
    )
    with pytest.raises(DeterminismError, match=f"^{re.escape(message)}$"):
        find(replay, "u", 7)


def test_another_task_is_refused_and_one_that_had_failed_is_told_apart() -> None:
    replay = Replay("node 'n'", [journalled(0, "u", 1, value=MISSING, ended=False)])
    with pytest.raises(DeterminismError, match=r"^node 'n' now calls v\(1\) where it had tried u\(1\) \(call 0\);"):
        find(replay, "v", 1)


def test_arguments_that_look_alike_and_are_not_are_told_so() -> None:
    replay = Replay("node 'n'", [journalled(0, "u", "x" * 100)])
    with pytest.raises(DeterminismError, match=r"now calls u\('x+\.\.\.x+'\) with other arguments where it had called"):
        find(replay, "u", "x" * 49 + "y" + "x" * 50)


def test_calls_beside_the_flow_are_found_by_task_and_arguments() -> None:
    known = [journalled(number, "u", number, value=number, aside=True) for number in range(3)]
    replay = Replay("node 'n'", known)
    assert [find(replay, "u", number, aside=True) for number in (2, 0, 1)] == [2, 0, 1]


def test_a_new_call_beside_the_flow_gets_a_place_of_its_own() -> None:
    replay = Replay("node 'n'", [journalled(0, "u", 0, aside=True), journalled(1, "u", 1, aside=True)])
    assert find(replay, "u", 7, aside=True) == (2, True)
    assert find(replay, "u", 1, aside=True) == "done"
    assert find(replay, "u", 8, aside=True) == (3, True)


def test_a_call_is_found_once() -> None:
    replay = Replay("node 'n'", [journalled(0, "u", 1, aside=True)])
    assert [find(replay, "u", 1, aside=True), find(replay, "u", 1, aside=True)] == ["done", (1, True)]


def test_a_call_that_moves_between_the_flow_and_beside_it_is_found() -> None:
    replay = Replay("node 'n'", [journalled(0, "u", 1, value="aside", aside=True), journalled(0, "v", value="flow")])
    assert find(replay, "v", aside=True) == "flow"
    assert find(replay, "u", 1) == "aside"


def test_arguments_that_cannot_be_stored_are_not_compared() -> None:
    unknown = replace(journalled(0, "u", 1).record, arguments=None)
    assert find(Replay("node 'n'", [Journalled(unknown, "done")]), "u", 7) == "done"
    assert find(Replay("node 'n'", [journalled(0, "u", 1)]), "u", object()) == "done"


def test_after_a_call_that_ended_only_when_tried_again_the_flow_may_go_elsewhere() -> None:
    known = [journalled(0, "u", again=True), journalled(1, "u"), journalled(2, "v", value="v")]
    replay = Replay("node 'n'", known)
    assert [find(replay, "u"), find(replay, "v"), find(replay, "w")] == ["done", "v", (0, True)]


def test_a_digest_does_not_depend_on_the_order_of_keywords_sets_and_dicts() -> None:
    one = digest_of(CODEC, ({"a", "b"}, {"x": 1, "y": {2: 3, 4: 5}}), {"k": 1, "l": 2})
    assert one == digest_of(CODEC, ({"b", "a"}, {"y": {4: 5, 2: 3}, "x": 1}), {"l": 2, "k": 1})
    assert one != digest_of(CODEC, ({"b", "a"}, {"y": {4: 5, 2: 3}, "x": 2}), {"l": 2, "k": 1})


def test_a_digest_tells_the_type_of_a_value() -> None:
    assert len({digest_of(CODEC, (value,), {}) for value in (1, 1.0, True, "1", b"1", (1,), [1])}) == 7


def test_a_digest_of_what_cannot_be_stored_is_none() -> None:
    assert digest_of(CODEC, (object(),), {}) is None


def test_a_call_of_the_flow_that_is_journalled_beside_it_tells_that_the_flow_had_left_its_way() -> None:
    replay = Replay("node 'n'", [journalled(0, "a", aside=True), journalled(1, "b", aside=True)])
    assert [find(replay, "a"), find(replay, "c"), find(replay, "b")] == ["done", (2, True), "done"]


def test_a_call_beside_the_flow_that_ended_when_tried_again_lets_the_flow_go_elsewhere() -> None:
    known = [journalled(0, "a", aside=True, again=True), journalled(0, "b"), journalled(1, "c", aside=True)]
    replay = Replay("node 'n'", known)
    assert find(replay, "a", aside=True) == "done"
    assert [find(replay, "c"), find(replay, "d"), find(replay, "b")] == ["done", (2, True), "done"]


@pytest.mark.parametrize(
    ("args", "kwargs", "shown"),
    [
        ((), {}, "u()"),
        ((1, "a"), {"key": [2]}, "u(1, 'a', key=[2])"),
        ((1, 2, 3), {"x": 4, "y": 5}, "u(1, 2, 3, x=4, ...)"),
        (("x" * 100,), {}, f"u('{'x' * 17}...{'x' * 18}')"),
    ],
)
def test_a_call_is_shown_shortened(args: tuple[Any, ...], kwargs: dict[str, Any], shown: str) -> None:
    assert shown_call("u", args, kwargs) == shown

"""Channels: what they hold, how they react, and that storing them changes nothing."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, MutableSequence, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

import pytest

from everstep.channels.barrier import NamedBarrierValue, NamedBarrierValueAfterFinish, absent
from everstep.channels.base import BaseChannel
from everstep.channels.last_value import (
    AnyValue,
    EphemeralValue,
    LastValue,
    LastValueAfterFinish,
    UntrackedValue,
)
from everstep.channels.reducer import BinaryOperatorAggregate
from everstep.channels.snapshot import Channels, input_copy, one_level_copy
from everstep.channels.topic import Topic
from everstep.errors import EmptyChannelError, InvalidUpdateError
from everstep.types import MISSING, Overwrite

Channel = BaseChannel[Any, Any]


def fresh(spec: Channel) -> Channel:
    spec.key = "k"
    return spec.from_checkpoint(MISSING)


def total(*values: Any) -> Channel:
    channel = fresh(BinaryOperatorAggregate(list, operator.add))
    channel.update(values)
    return channel


MAKERS: dict[str, Callable[[], Channel]] = {
    "last": lambda: LastValue(int),
    "any": lambda: AnyValue(int),
    "ephemeral": lambda: EphemeralValue(int),
    "untracked": lambda: UntrackedValue(int),
    "after finish": lambda: LastValueAfterFinish(int),
    "reducer": lambda: BinaryOperatorAggregate(list, operator.add),
    "topic": lambda: Topic(int),
    "accumulating topic": lambda: Topic(int, accumulate=True),
    "barrier": lambda: NamedBarrierValue(str, {"a", "b"}),
    "barrier after finish": lambda: NamedBarrierValueAfterFinish(str, {"a", "b"}),
}
WRITES: dict[str, list[Any]] = {
    "reducer": [[1], [2]],
    "barrier": ["a", "b"],
    "barrier after finish": ["a", "b"],
}
STORED = [name for name in MAKERS if name != "untracked"]


@pytest.mark.parametrize("name", STORED)
def test_a_channel_restored_from_what_it_stores_goes_on_the_same_way(name: str) -> None:
    original = fresh(MAKERS[name]())
    for value in [None, *WRITES.get(name, [1, 2]), None]:
        restored = original.from_checkpoint(original.checkpoint())
        written = () if value is None else (value,)
        assert restored.update(written) == original.update(written)
        assert restored.consume() == original.consume()
        assert restored.finish() == original.finish()
        assert (restored.checkpoint(), restored.peek(), restored.is_available()) == (
            original.checkpoint(),
            original.peek(),
            original.is_available(),
        )


@pytest.mark.parametrize("name", MAKERS)
def test_a_copy_goes_its_own_way(name: str) -> None:
    original = fresh(MAKERS[name]())
    original.update([WRITES.get(name, [1])[0]])
    before = original.checkpoint(), original.peek()
    copy = original.copy()
    assert (copy.checkpoint(), copy.peek()) == before
    copy.update([WRITES.get(name, [1, 2])[-1]])
    copy.finish()
    copy.consume()
    assert (original.checkpoint(), original.peek()) == before


@pytest.mark.parametrize("name", [name for name in MAKERS if name != "reducer"])
def test_a_channel_without_a_value_says_so(name: str) -> None:
    channel = fresh(MAKERS[name]())
    assert not channel.is_available()
    assert channel.peek() is MISSING
    assert channel.checkpoint() is MISSING
    with pytest.raises(EmptyChannelError, match="'k'"):
        channel.get()


def test_a_last_value_takes_one_write_a_step_and_keeps_it() -> None:
    channel = fresh(LastValue(int))
    assert channel.update([1])
    assert not channel.update([])
    assert channel.get() == 1
    with pytest.raises(InvalidUpdateError) as caught:
        channel.update([2, 3])
    assert str(caught.value) == (
        "key 'k' keeps one value and got 2 in one step; write it from one node, or annotate it with a reducer: "
        "Annotated[..., reducer]"
    )
    assert channel.get() == 1


def test_none_is_a_value() -> None:
    channel = fresh(LastValue(int))
    channel.update([None])
    assert channel.is_available()
    assert channel.get() is None


def test_an_any_value_takes_several_and_is_empty_after_a_step_without_one() -> None:
    channel = fresh(AnyValue(int))
    assert channel.update([1, 1])
    assert channel.get() == 1
    assert channel.update([])
    assert not channel.is_available()
    assert not channel.update([])


def test_an_ephemeral_value_is_there_for_one_step() -> None:
    channel = fresh(EphemeralValue(int))
    assert channel.update([1])
    assert channel.get() == 1
    assert channel.update([])
    assert not channel.is_available()
    with pytest.raises(InvalidUpdateError) as caught:
        channel.update([1, 2])
    assert str(caught.value) == "key 'k' takes one value a step and got 2; use guard=False to keep the last"
    unguarded = fresh(EphemeralValue(int, guard=False))
    unguarded.update([1, 2])
    assert unguarded.get() == 2


def test_an_untracked_value_is_never_stored() -> None:
    channel = fresh(UntrackedValue(int))
    channel.update([1])
    assert (channel.get(), channel.checkpoint()) == (1, MISSING)
    assert not channel.from_checkpoint(channel.checkpoint()).is_available()


def test_a_value_after_finish_waits_until_nothing_else_runs_and_is_consumed() -> None:
    channel = fresh(LastValueAfterFinish(int))
    assert channel.update([1, 2])
    assert not channel.is_available()
    assert not channel.consume()
    assert channel.finish()
    assert not channel.finish()
    assert channel.get() == 2
    assert channel.consume()
    assert not channel.is_available()
    assert not channel.finish()


# Reducers --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "zero"),
    [
        (list, []),
        (list[int], []),
        (dict, {}),
        (set, set()),
        (int, 0),
        (str, ""),
        (Sequence[int], []),
        (MutableSequence, []),
        (Mapping, {}),
        (AbstractSet, set()),
    ],
)
def test_a_reducer_starts_from_the_zero_of_its_type(kind: Any, zero: Any) -> None:
    channel = fresh(BinaryOperatorAggregate(kind, operator.add))
    assert channel.get() == zero
    assert type(channel.get()) is type(zero)


def test_a_reducer_of_a_type_without_a_zero_starts_from_the_first_write() -> None:
    channel = fresh(BinaryOperatorAggregate(int | None, max))
    assert not channel.is_available()
    channel.update([3, 5, 4])
    assert channel.get() == 5


def test_writes_are_reduced_in_order() -> None:
    assert total([1], [2], [3]).get() == [1, 2, 3]
    channel = fresh(BinaryOperatorAggregate(str, lambda so_far, new: f"({so_far}{new})"))
    channel.update(["a", "b"])
    assert channel.get() == "((a)b)"


@pytest.mark.parametrize("overwrite", [Overwrite([9]), {"__overwrite__": [9]}])
def test_an_overwrite_replaces_the_value_and_drops_the_other_writes_of_its_step(overwrite: Any) -> None:
    channel = total([1])
    channel.update([[2], overwrite, [3]])
    assert channel.get() == [9]
    channel.update([[10]])
    assert channel.get() == [9, 10]


def test_two_overwrites_in_one_step_are_refused() -> None:
    channel = total([1])
    with pytest.raises(InvalidUpdateError) as caught:
        channel.update([Overwrite([2]), Overwrite([3])])
    assert str(caught.value) == "key 'k' got more than one Overwrite in one step; one node at most may replace it"
    assert channel.get() == [1]


def test_every_run_starts_from_a_zero_of_its_own() -> None:
    def extend(so_far: list[int], new: list[int]) -> list[int]:
        so_far.extend(new)
        return so_far

    spec: Channel = BinaryOperatorAggregate(list, extend)
    one, other = fresh(spec), fresh(spec)
    one.update([[1]])
    assert other.get() == []


# Joins -----------------------------------------------------------------------------------------------------------


def test_a_join_is_complete_once_every_source_has_written() -> None:
    channel = fresh(NamedBarrierValue(str, {"a", "b"}))
    assert channel.update(["a"])
    assert not channel.update(["a"])
    assert not channel.is_available()
    with pytest.raises(EmptyChannelError) as caught:
        channel.get()
    assert str(caught.value) == "join 'k' still waits for ['b']"
    assert channel.update(["b"])
    assert channel.is_available()
    assert channel.consume()
    assert not channel.is_available()


def test_a_join_refuses_a_source_it_does_not_wait_for() -> None:
    with pytest.raises(InvalidUpdateError) as caught:
        fresh(NamedBarrierValue(str, {"a", "b"})).update(["c"])
    assert str(caught.value) == "join 'k' waits for ['a', 'b'], not for ['c']"


def test_a_deferred_join_waits_for_its_sources_and_for_the_end() -> None:
    channel = fresh(NamedBarrierValueAfterFinish(str, {"a", "b"}))
    channel.update(["a"])
    assert not channel.finish()
    channel.update(["b"])
    assert not channel.is_available()
    assert channel.finish()
    assert channel.is_available()
    assert channel.consume()
    assert not channel.is_available()


# Live channels ---------------------------------------------------------------------------------------------------


def test_versions_go_on_from_the_newest_that_was_ever_stored() -> None:
    spec = {"k": fresh(LastValue(int))}
    channels = Channels(spec, None, newest=7)
    assert channels.next_version() == 8
    channels.bump("k", 8)
    assert (channels.versions, channels.newest, channels.next_version()) == ({"k": 8}, 8, 9)


def test_changes_are_taken_once() -> None:
    channels = Channels({"k": fresh(LastValue(int))}, None)
    channels.bump("k", 1)
    assert channels.take_changed() == {"k": 1}
    assert channels.take_changed() == {}


def test_reading_with_writes_leaves_the_channels_alone() -> None:
    channels = Channels({"k": fresh(BinaryOperatorAggregate(list, operator.add)), "v": fresh(LastValue(int))}, None)
    assert channels.read_with(["k", "v", "unknown"], [("k", [1]), ("k", [2]), ("v", 3)]) == {"k": [1, 2], "v": 3}
    assert channels.read(["k", "v"]) == {"k": []}


@pytest.mark.parametrize("value", [[1], {"a": 1}, {1}])
def test_containers_are_copied_one_level_deep(value: Any) -> None:
    assert one_level_copy(value) == value
    assert one_level_copy(value) is not value


@pytest.mark.parametrize("value", [(1,), "text", 1, None, frozenset({1})])
def test_what_cannot_be_changed_is_not_copied(value: Any) -> None:
    assert one_level_copy(value) is value


def test_an_input_is_copied_with_the_containers_that_are_values_in_it() -> None:
    value: dict[str, Any] = {"items": [1], "deep": {"inner": [1]}}
    copy = input_copy(value)
    copy["items"].append(2)
    copy["deep"]["more"] = 1
    assert value == {"items": [1], "deep": {"inner": [1]}}
    assert copy["deep"]["inner"] is value["deep"]["inner"]


def barrier(*names: str) -> NamedBarrierValue:
    return NamedBarrierValue(str, set(names), "k")


def test_a_join_without_an_absent_name_is_called_off_when_the_others_have_come() -> None:
    channel = barrier("a", "b", "c")
    assert channel.update([absent("a"), "b"])
    assert channel.missing() == (frozenset("b"), frozenset("c"))
    channel = channel.from_checkpoint(channel.checkpoint())
    assert channel.missing() == (frozenset("b"), frozenset("c"))
    assert channel.update(["c"])
    assert (channel.is_available(), channel.checkpoint()) == (False, MISSING)
    channel.update(["a", "b", "c"])
    assert channel.is_available()


def test_a_join_waits_for_nobody_while_nobody_has_come() -> None:
    channel = barrier("a", "b")
    assert channel.missing() == (frozenset(), frozenset())
    channel.update([absent("a")])
    assert channel.missing() == (frozenset(), frozenset())


def test_a_name_that_was_absent_may_come_after_all() -> None:
    channel = barrier("a", "b")
    channel.update([absent("a")])
    channel.update(["a", "b"])
    assert channel.is_available()


def test_an_unknown_name_cannot_be_absent() -> None:
    with pytest.raises(InvalidUpdateError, match=r"not for \['c'\]"):
        barrier("a", "b").update([absent("c")])

"""The channel of a batch reducer: what it holds, what it keeps, and that replaying gives the same value."""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everstep.channels import DeltaChannel
from everstep.channels.delta import restored
from everstep.channels.last_value import LastValue
from everstep.channels.reducer import BinaryOperatorAggregate
from everstep.channels.snapshot import Channels
from everstep.errors import EmptyChannelError, InvalidUpdateError
from everstep.types import MISSING, Overwrite
from everstep_savers.codec import Codec, default_codec
from everstep_savers.delta import DeltaSeed, is_log


def extend(value: list[Any], writes: Sequence[Any]) -> list[Any]:
    return [*value, *(item for write in writes for item in write)]


def in_place(value: list[Any], writes: Sequence[Any]) -> list[Any]:
    for write in writes:
        value.extend(write)
    return value


def merge(value: dict[str, Any], writes: Sequence[dict[str, Any]]) -> dict[str, Any]:
    return {key: item for each in (value, *writes) for key, item in each.items()}


def fresh(reducer: Callable[..., Any] = extend, typ: Any = list, frequency: int = 100) -> DeltaChannel[Any]:
    return DeltaChannel(reducer, typ, snapshot_frequency=frequency, key="log").from_checkpoint(MISSING)


def reloaded(channel: DeltaChannel[Any]) -> DeltaChannel[Any]:
    """The channel after what it keeps went through the codec."""
    kept = channel.checkpoint()
    return channel.from_checkpoint(MISSING if kept is MISSING else default_codec.decode(*default_codec.encode(kept)))


def log_of(channel: DeltaChannel[Any]) -> list[Any]:
    """What it keeps, with the value of its seed."""
    seed, *batches = channel.checkpoint()
    assert type(seed) is DeltaSeed
    return [seed.value, *batches]


def test_all_writes_of_a_step_are_reduced_at_once() -> None:
    seen: list[Any] = []

    def reducer(value: list[Any], writes: Sequence[Any]) -> list[Any]:
        seen.append((value, writes))
        return extend(value, writes)

    channel = fresh(reducer)

    assert channel.update([[1], [2]]) is True
    assert channel.update([[3]]) is True
    assert channel.update([]) is False
    assert seen == [([], [[1], [2]]), ([1, 2], [[3]])]
    assert channel.get() == channel.peek() == [1, 2, 3]


def test_it_starts_from_the_value_of_its_type_and_a_specification_has_none() -> None:
    assert [fresh(typ=typ).get() for typ in (list, list[int], dict, set, int, Sequence[int])] == [
        [],
        [],
        {},
        set(),
        0,
        [],
    ]
    assert fresh(typ=None).get() == []
    spec: DeltaChannel[Any] = DeltaChannel(extend, key="log")
    assert not spec.is_available()
    with pytest.raises(EmptyChannelError, match="channel 'log' has no value yet"):
        spec.get()


def test_a_type_without_a_zero_value_starts_from_none() -> None:
    def count(value: int | None, writes: Sequence[int]) -> int:
        return (value or 0) + sum(writes)

    channel = fresh(count, int | None)

    assert not channel.is_available()
    channel.update([1, 2])
    assert channel.get() == 3
    assert reloaded(channel).get() == 3


def test_it_keeps_a_seed_and_a_batch_for_every_step() -> None:
    channel = fresh()
    assert channel.checkpoint() is MISSING

    channel.update([[1], [2]])
    channel.update([[3]])

    assert log_of(channel) == [[], [[1], [2]], [[3]]]
    assert reloaded(channel).get() == [1, 2, 3]


def test_every_so_many_batches_the_value_is_the_seed_of_a_new_log() -> None:
    channel = fresh(frequency=3)
    logs = []

    for n in range(7):
        channel.update([[n]])
        logs.append(log_of(channel))

    assert logs == [
        [[], [[0]]],
        [[], [[0]], [[1]]],
        [[0, 1, 2]],
        [[0, 1, 2], [[3]]],
        [[0, 1, 2], [[3]], [[4]]],
        [[0, 1, 2, 3, 4, 5]],
        [[0, 1, 2, 3, 4, 5], [[6]]],
    ]


def test_one_overwrite_replaces_the_value_and_the_log() -> None:
    channel = fresh()
    channel.update([[1]])

    channel.update([[2], Overwrite([9]), [3]])
    assert (channel.get(), log_of(channel)) == ([9], [[9]])
    channel.update([{"__overwrite__": [8]}])
    assert channel.get() == [8]
    channel.update([Overwrite(None)])
    assert (channel.get(), log_of(channel)) == ([], [[]])
    with pytest.raises(InvalidUpdateError) as caught:
        channel.update([Overwrite([1]), Overwrite([2])])
    assert str(caught.value) == ("key 'log' got more than one Overwrite in one step; one node at most may replace it")
    assert channel.get() == []


def test_what_is_kept_does_not_change_with_the_value() -> None:
    channel = fresh(in_place, frequency=2)
    kept = []
    for n in range(5):
        channel.update([[n]])
        kept.append((channel.checkpoint(), list(channel.get())))

    assert [in_place_value(log) for log, _ in kept] == [value for _, value in kept]


def in_place_value(log: list[Any]) -> Any:
    return DeltaChannel(in_place, list).from_checkpoint(log).get()


def test_a_reducer_that_fails_leaves_the_channel_as_it_was() -> None:
    def picky(value: list[Any], writes: Sequence[Any]) -> list[Any]:
        if [0] in writes:
            raise ValueError("no zero")
        return extend(value, writes)

    channel = fresh(picky)
    channel.update([[1]])

    with pytest.raises(ValueError, match="no zero"):
        channel.update([[2], [0]])

    assert (channel.get(), log_of(channel)) == ([1], [[], [[1]]])


def test_a_copy_is_independent() -> None:
    channel = fresh()
    channel.update([[1]])

    other = channel.copy()
    other.update([[2]])

    assert (channel.get(), other.get()) == ([1], [1, 2])
    assert reloaded(channel).get() == [1]


@pytest.mark.parametrize("frequency", [0, -1])
def test_a_frequency_is_positive(frequency: int) -> None:
    with pytest.raises(ValueError, match=f"snapshot_frequency must be a positive int, got {frequency}"):
        DeltaChannel(extend, list, snapshot_frequency=frequency)


def test_specifications_are_equal_if_they_keep_the_same_things() -> None:
    assert DeltaChannel(extend, list) == DeltaChannel(extend, list)
    assert DeltaChannel(extend, list) != DeltaChannel(merge, list)
    assert DeltaChannel(extend, list) != DeltaChannel(extend, list, snapshot_frequency=3)
    assert DeltaChannel(extend, list) != LastValue(list)


@given(
    st.integers(1, 5),
    st.lists(st.lists(st.dictionaries(st.sampled_from("abc"), st.integers()), min_size=1, max_size=3), max_size=20),
    st.sets(st.integers(0, 20)),
)
def test_replaying_gives_the_value_wherever_it_is_reloaded(
    frequency: int, batches: list[list[dict[str, int]]], reloads: set[int]
) -> None:
    live, stored = fresh(merge, dict, frequency), fresh(merge, dict, frequency)

    for place, batch in enumerate(batches):
        live.update(batch)
        stored = reloaded(stored) if place in reloads else stored
        stored.update(batch)
        assert live.get() == stored.get()

    assert reloaded(live).get() == live.get()


# What is new in a write is settled once -------------------------------------------------------------------------


def test_a_reducer_may_settle_writes_before_they_are_kept() -> None:
    ids = iter(range(100))

    def reducer(value: list[Any], writes: Sequence[Any]) -> list[Any]:
        return [*value, *writes]

    reducer.settle = lambda write: {"id": next(ids), **write}  # type: ignore[attr-defined]
    channel = fresh(reducer)

    channel.update([{"a": 1}, {"id": "own"}])
    channel.update([{"a": 2}])
    channel.update([Overwrite({"a": 3})])

    assert channel.get() == {"id": 3, "a": 3}
    earlier = fresh(reducer)
    earlier.update([{"a": 1}])
    assert reloaded(earlier).get() == earlier.get() == [{"id": 4, "a": 1}]


class Message:
    """What langchain's messages look like from here."""

    def __init__(self, content: str, id: str | None = None) -> None:
        self.content, self.id = content, id


def test_messages_get_their_ids_before_they_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "langchain_core.messages", SimpleNamespace(BaseMessage=Message))
    channel = fresh(lambda value, writes: [*value, *writes])

    channel.update([Message("a"), Message("b", "own"), "text"])
    kept = [write.id for write in channel.checkpoint()[1][:2]]
    channel.update([Overwrite([Message("c")])])

    assert kept[1] == "own"
    assert len(kept[0]) == 36
    assert len(channel.get()[0].id) == 36


# From other channels, and to them -------------------------------------------------------------------------------


def test_a_plain_value_that_is_stored_is_where_it_goes_on_from() -> None:
    channel: DeltaChannel[Any] = DeltaChannel(extend, list).from_checkpoint([1, 2])
    assert (channel.get(), channel.checkpoint()) == ([1, 2], [1, 2])

    channel.update([[3]])

    assert (channel.get(), log_of(channel)) == ([1, 2, 3], [[1, 2], [[3]]])
    assert DeltaChannel(extend, list).from_checkpoint(None).get() is None


def test_a_log_that_is_stored_is_replayed_by_a_plain_reducer() -> None:
    delta = fresh()
    delta.update([[1], [2]])
    delta.update([[3]])

    plain = restored(BinaryOperatorAggregate(list, operator.add, "log"), delta.checkpoint())

    assert plain.get() == [1, 2, 3]
    plain.update([[4]])
    assert plain.checkpoint() == [1, 2, 3, 4]
    assert restored(BinaryOperatorAggregate(list, operator.add), MISSING).get() == []
    assert restored(LastValue(list), [1]).get() == [1]
    assert restored(DeltaChannel(extend, list), delta.checkpoint()).get() == [1, 2, 3]


def test_a_log_is_replayed_by_a_channel_of_one_value_if_one_was_written_at_a_time() -> None:
    delta = fresh(lambda value, writes: writes[-1], typ=int | None)
    delta.update([1])
    delta.update([2])

    assert restored(LastValue(int, "n"), delta.checkpoint()).get() == 2
    delta.update([3, 4])
    with pytest.raises(InvalidUpdateError, match="key 'n' keeps one value and got 2 in one step"):
        restored(LastValue(int, "n"), delta.checkpoint())


def test_no_list_of_a_user_is_a_log() -> None:
    seed = DeltaSeed([1])

    assert is_log([seed, [1]])
    assert not any(map(is_log, ([], [[1]], [[seed]], (seed,), [1, seed], None, MISSING)))
    again = Codec().decode(*Codec().encode([seed, [2]]))
    assert is_log(again)
    assert (again[0].value, again[1:]) == ([1], [[2]])


def test_kept_writes_can_be_replayed_from_outside() -> None:
    channel: DeltaChannel[Any] = DeltaChannel(extend, list).from_checkpoint([1])

    channel.replay_writes([("t", "log", [2]), ("u", "log", [3])])
    assert channel.get() == [1, 2, 3]
    channel.replay_writes([("t", "log", [4]), ("u", "log", Overwrite([5])), ("v", "log", [6])])
    assert channel.get() == [5, 6]
    channel.replay_writes([])
    assert channel.get() == [5, 6]


def test_savers_that_know_nothing_of_logs_store_the_value() -> None:
    channels = Channels({"log": DeltaChannel(extend, list, key="log"), "n": LastValue(int, "n")}, None)
    channels.write("log", [[1], [2]])

    assert channels.dump(channels.live, whole=True) == {"log": [1, 2]}
    assert is_log(channels.dump(["log", "n"])["log"])

"""The journal's parts: the queue of commits, deadlines, and checkpoints merged for durability "exit"."""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

import pytest

from everstep.channels.last_value import LastValue
from everstep.channels.snapshot import Channels
from everstep.pregel.checkpoints import Lineage, Taken, make_checkpoint, next_id
from everstep.pregel.commits import MAX_BEHIND, CommitQueue, shielded
from everstep.pregel.held import HeldSteps
from everstep.types import MISSING, Durability
from everstep_savers.checkpoint import Claim, Commit, NewCheckpoint
from everstep_savers.memory import InMemorySaver
from tests.guards.counted import counted


class Paced(InMemorySaver):
    """Stores one commit each time it is told to, or fails it."""

    never_waits: ClassVar[bool] = False

    def __init__(self) -> None:
        super().__init__()
        self.begun: list[Any] = []
        self.stored: list[Any] = []
        self.turns: asyncio.Queue[Exception | None] = asyncio.Queue()

    def prepare(self, commit: Commit) -> Any:
        return commit.error

    async def acommit(self, prepared: Any) -> int:
        self.begun.append(prepared)
        error = await self.turns.get()
        if error is not None:
            raise error
        self.stored.append(prepared)
        return 1

    def join(self, first: Any, second: Any) -> Any:
        return None

    def let(self, number: int, error: Exception | None = None) -> None:
        for _ in range(number):
            self.turns.put_nowait(error)


def queue(durability: Durability) -> tuple[Paced, CommitQueue]:
    saver = Paced()
    return saver, CommitQueue(saver, "t", durability)


async def turns() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_in_sync_durability_a_step_is_stored_when_step_returns() -> None:
    saver, commits = queue("sync")
    step = asyncio.create_task(commits.step("1"))
    await turns()
    assert (saver.begun, step.done()) == (["1"], False)
    saver.let(1)
    await step
    assert saver.stored == ["1"]


async def test_in_async_durability_steps_go_on_until_two_are_behind() -> None:
    saver, commits = queue("async")
    for number in range(MAX_BEHIND):
        await commits.step(number)
    third = asyncio.create_task(commits.step("third"))
    await turns()
    assert (saver.begun, third.done()) == ([0], False)
    saver.let(1)
    await third
    saver.let(2)
    await commits.drain()
    assert saver.stored == [0, 1, "third"]


async def test_commits_take_effect_in_order_whatever_is_handed_over_how() -> None:
    saver, commits = queue("async")
    saver.let(4)
    await commits.step("1")
    _ = commits.behind("2")
    await commits.step("3")
    await commits.store("4")
    assert saver.stored == ["1", "2", "3", "4"]


async def test_an_error_fails_what_is_behind_it_and_is_raised_at_the_next_step() -> None:
    saver, commits = queue("async")
    saver.let(1, OSError("full"))
    await commits.step("1")
    _ = commits.behind("2")
    await turns()
    with pytest.raises(OSError, match="full"):
        await commits.step("3")
    assert saver.begun == ["1"]


async def test_what_is_handed_over_behind_a_failed_commit_fails_until_the_queue_is_drained() -> None:
    saver, commits = queue("async")
    saver.let(1, OSError("full"))
    await commits.step("1")
    await turns()
    late = commits.behind("2")
    assert isinstance(late.exception(), OSError)
    with pytest.raises(OSError, match="full"):
        await commits.drain()
    saver.let(1)
    await commits.store("3")
    assert (saver.begun, saver.stored) == (["1", "3"], ["3"])


@pytest.mark.parametrize("durability", ["sync", "async"])
async def test_a_saver_that_never_waits_stores_in_place(durability: Durability) -> None:
    saver = InMemorySaver()
    commits = CommitQueue(saver, "t", durability)
    async with counted() as made:
        await commits.claim(Commit("t", claim=Claim(None, "run", "graph")))
        await commits.step(saver.prepare(Commit("t", token=commits.token, error="first")))
        assert saver._threads["t"].token == commits.token == 1
    assert not made.now


class Joining(Paced):
    """Joins commits that wait, all but those called "alone"."""

    def join(self, first: Any, second: Any) -> Any:
        return None if "alone" in (first, second) else f"{first}+{second}"


async def test_commits_that_wait_at_the_same_time_are_stored_together() -> None:
    saver = Joining()
    commits = CommitQueue(saver, "t", "async")
    await commits.step("1")
    await turns()
    await commits.step("2")
    third = asyncio.create_task(commits.step("3"))
    await turns()
    assert (saver.begun, third.done()) == (["1"], False)
    saver.let(1)
    stored = await third
    assert (saver.begun, stored is not None and stored.done()) == (["1", "2+3"], False)
    saver.let(5)
    await commits.store("4")
    assert stored is not None
    assert stored.done()
    for one in ("5", "alone", "6"):
        _ = commits.behind(one)
    await commits.drain()
    assert saver.stored == ["1", "2+3", "4", "5", "alone", "6"]


async def test_commits_that_are_stored_together_fail_together() -> None:
    saver = Joining()
    commits = CommitQueue(saver, "t", "async")
    both = [commits.behind("1"), commits.behind("2")]
    saver.let(1, OSError("full"))
    with pytest.raises(OSError, match="full"):
        await commits.store("3")
    assert [isinstance(one.exception(), OSError) for one in both] == [True, True]
    assert (saver.begun, saver.stored) == (["1+2+3"], [])


async def test_an_error_is_raised_by_drain_once() -> None:
    saver, commits = queue("async")
    saver.let(1, OSError("full"))
    await commits.step("1")
    with pytest.raises(OSError, match="full"):
        await commits.drain()
    await commits.drain()


async def test_cancelling_who_waits_for_a_commit_does_not_cut_the_commit() -> None:
    for durability in ("sync", "async"):
        saver, commits = queue(durability)
        steps = [asyncio.create_task(commits.step(str(number))) for number in range(1 if durability == "sync" else 3)]
        await turns()
        steps[-1].cancel()
        await turns()
        saver.let(len(steps))
        results = await asyncio.gather(*steps, return_exceptions=True)
        assert isinstance(results[-1], asyncio.CancelledError)
        await commits.drain()
        assert saver.stored == [str(number) for number in range(len(steps))]


async def test_what_must_be_done_is_done_although_its_caller_is_cancelled() -> None:
    go, done = asyncio.Event(), []

    async def work() -> str:
        await go.wait()
        done.append("done")
        return "result"

    caller = asyncio.create_task(shielded(work(), 30))
    await turns()
    caller.cancel()
    await turns()
    assert not caller.done()
    go.set()
    with pytest.raises(asyncio.CancelledError):
        await caller
    assert done == ["done"]


async def test_what_must_be_done_has_its_result_and_its_error() -> None:
    async def work() -> str:
        return "result"

    async def fail() -> None:
        raise OSError("full")

    assert await shielded(work(), 30) == "result"
    with pytest.raises(OSError, match="full"):
        await shielded(fail(), 30)


async def test_what_takes_longer_than_its_deadline_is_given_up() -> None:
    ended = asyncio.Event()

    async def hang() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    with pytest.raises(TimeoutError):
        await shielded(hang(), 0.01)
    await asyncio.wait_for(ended.wait(), 5)
    assert len(asyncio.all_tasks()) == 1


# Durability "exit" ----------------------------------------------------------------------------------------------


SPECS: dict[str, LastValue[str]] = {key: LastValue(str, key) for key in "abc"}


def barrier(channels: Channels, **values: str | None) -> Channels:
    """Write to the channels, or empty them, at one version."""
    version = channels.next_version()
    for key, value in values.items():
        if value is None:
            channels.live[key] = SPECS[key].from_checkpoint(MISSING)
        else:
            channels.write(key, [value])
        channels.bump(key, version)
    return channels


def merged(first: dict[str, Any], *more: dict[str, Any]) -> tuple[HeldSteps, NewCheckpoint]:
    """A run from these writes on, each a step, and what stands for it; the parent is "p"."""
    lineage, channels = Lineage("", {}), Channels(SPECS, None)
    made = make_checkpoint(
        barrier(channels, **first), lineage, parent_id="p", source="input", step=-1, updated=first.keys()
    )
    held, last = HeldSteps(made), made.checkpoint["id"]
    for step, values in enumerate(more):
        own = next_id(lineage, last)
        held.add(Taken(barrier(channels, **values), lineage, own, last, step, values.keys(), ()))
        last = own
    return held, held.new()


def test_a_merged_checkpoint_is_the_later_one_as_child_of_the_earlier_ones_parent() -> None:
    held, new = merged({"a": "a1", "b": "b1"}, {"b": "b2", "c": "c2"})
    assert (new.parent_id, held.parent_id) == ("p", "p")
    assert new.metadata == {"source": "loop", "step": 0, "parents": {}}
    assert new.checkpoint["channel_values"] == {"a": "a1", "b": "b2", "c": "c2"}
    assert new.changed == {"a": 1, "b": 2, "c": 2}
    assert new.checkpoint["channel_versions"] == {"a": 1, "b": 2, "c": 2}
    assert new.checkpoint["updated_channels"] == ["b", "c"]


def test_a_channel_that_was_emptied_is_stored_as_empty() -> None:
    _, new = merged({"a": "a1"}, {"a": None})
    assert (new.changed, new.checkpoint["channel_values"]) == ({"a": 2}, {})


def test_a_barrier_that_has_failed_leaves_no_trace_in_what_is_held_back() -> None:
    channels = Channels(SPECS, None)
    lineage = Lineage("", {})
    held = HeldSteps(
        make_checkpoint(barrier(channels, a="a1"), lineage, parent_id=None, source="input", step=-1, updated=("a",))
    )
    barrier(channels, a="a2", b="b2")
    channels.seen["node"] = {"a": 2}
    new = held.new()
    assert (new.checkpoint["channel_values"], new.checkpoint["channel_versions"]) == ({"a": "a1"}, {"a": 1})
    assert (new.changed, new.checkpoint["versions_seen"]) == ({"a": 1}, {})


def test_only_what_came_before_the_last_step_has_merged() -> None:
    held, new = merged({"a": "a1"}, {"a": "a2"}, {"a": "a3"})
    first, last = merged({"a": "a1"})[1].checkpoint["id"], new.checkpoint["id"]
    assert [held.have_merged(one) for one in (None, "p", last, first)] == [False, False, False, False]
    one, new = merged({"a": "a1"})
    assert not one.have_merged(new.checkpoint["id"])
    one.add(Taken(barrier(Channels(SPECS, None), a="a2"), Lineage("", {}), "~", None, 0, ("a",), ()))
    assert one.have_merged(new.checkpoint["id"])

"""The journal's parts: the queue of commits, deadlines, and checkpoints merged for durability "exit"."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from everstep.pregel.commits import MAX_BEHIND, CommitQueue, shielded
from everstep.pregel.journal import merge_checkpoints
from everstep.types import Durability
from everstep_savers.checkpoint import Commit, NewCheckpoint, empty_checkpoint
from everstep_savers.memory import InMemorySaver


class Paced(InMemorySaver):
    """Stores one commit each time it is told to, or fails it."""

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


def checkpoint(
    parent: str | None, changed: Mapping[str, int], values: Mapping[str, Any], versions: Mapping[str, int]
) -> NewCheckpoint:
    made = empty_checkpoint()
    made["channel_values"], made["channel_versions"] = dict(values), dict(versions)
    return NewCheckpoint("", made, {"step": len(versions)}, parent, dict(changed))


def test_a_merged_checkpoint_is_the_later_one_as_child_of_the_earlier_ones_parent() -> None:
    earlier = checkpoint("p", {"a": 1, "b": 1}, {"a": "a1", "b": "b1"}, {"a": 1, "b": 1})
    later = checkpoint(earlier.checkpoint["id"], {"b": 2, "c": 2}, {"b": "b2", "c": "c2"}, {"a": 1, "b": 2, "c": 2})
    merged = merge_checkpoints(earlier, later)
    assert (merged.checkpoint["id"], merged.parent_id, merged.metadata) == (
        later.checkpoint["id"],
        "p",
        later.metadata,
    )
    assert merged.checkpoint["channel_values"] == {"a": "a1", "b": "b2", "c": "c2"}
    assert merged.changed == {"a": 1, "b": 2, "c": 2}
    assert merged.checkpoint["channel_versions"] == {"a": 1, "b": 2, "c": 2}


def test_a_channel_that_was_emptied_is_stored_as_empty() -> None:
    earlier = checkpoint(None, {"a": 1}, {"a": "a1"}, {"a": 1})
    later = checkpoint(earlier.checkpoint["id"], {"a": 2}, {}, {"a": 2})
    merged = merge_checkpoints(earlier, later)
    assert (merged.changed, merged.checkpoint["channel_values"]) == ({"a": 2}, {})

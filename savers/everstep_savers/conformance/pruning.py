"""`aprune`: what goes, what stays, and that nothing is left over or lost, also while runs write."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from everstep_savers.base import MaintainedSaver
from everstep_savers.checkpoint import INTERRUPT, Commit, NewCheckpoint, Status, TaskWrites
from everstep_savers.conformance.records import checkpoint, claim, config, named, new, put_chain, record, step
from everstep_savers.errors import LeaseLost, ThreadConflict, ThreadDeleted
from everstep_savers.retention import Pruned

Saver = MaintainedSaver[Any]

# More threads than a saver may look at in one go.
MANY = 105


async def store(saver: Saver, commit: Commit) -> int:
    return await saver.acommit(saver.prepare(commit))


async def ids(saver: Saver, thread_id: str = "t-1", ns: str | None = "") -> list[str]:
    return [named(each) async for each in saver.alist(config(thread_id, ns=ns))]


async def run(saver: Saver, length: int, thread_id: str = "t-1", status: Status = "done") -> list[str]:
    """A run of some checkpoints, in each of which `n` is new while `once` stays as it was; their ids."""
    loaded = await saver.aload(config(thread_id))
    version, parent, made = loaded.newest_version, named(loaded.saved) if loaded.saved else None, []
    token = await store(saver, claim(thread_id, seen=loaded.thread))
    for _ in range(length):
        version += 1
        changed = {"n": version} if version > 1 else {"n": 1, "once": 1}
        one = checkpoint({"n": version, "once": "first"}, {"n": version, "once": 1}, after=parent)
        await store(saver, step(token, record(one, changed, parent=parent), thread_id=thread_id))
        parent = one["id"]
        made.append(parent)
    await store(saver, step(token, thread_id=thread_id, status=status))
    return made


async def test_old_checkpoints_go_and_the_newest_stay(saver: Saver) -> None:
    made = await run(saver, 6)

    pruned = await saver.aprune(["t-1"], keep_last=2)

    assert pruned == Pruned({"t-1": 4})
    assert await ids(saver) == made[:-3:-1]
    for checkpoint_id in made[:-2]:
        assert await saver.aget_tuple(config(checkpoint_id=checkpoint_id)) is None


async def test_the_head_is_kept_by_default_and_goes_on(saver: Saver) -> None:
    made = await run(saver, 5)

    await saver.aprune(["t-1"])

    assert await ids(saver) == made[-1:]
    more = await run(saver, 2)
    assert await ids(saver) == [*more[::-1], made[-1]]


async def test_a_value_that_a_kept_checkpoint_shares_stays(saver: Saver) -> None:
    await run(saver, 5)

    await saver.aprune(["t-1"])

    found = await saver.aget(config())
    assert found is not None
    assert found["channel_values"] == {"n": 5, "once": "first"}


async def test_a_dry_run_tells_the_same_and_removes_nothing(saver: Saver) -> None:
    made = await run(saver, 4)

    told = await saver.aprune(["t-1"], keep_last=1, dry_run=True)

    assert await ids(saver) == made[::-1]
    assert told == await saver.aprune(["t-1"], keep_last=1) == Pruned({"t-1": 3})


async def test_pruning_again_finds_nothing(saver: Saver) -> None:
    await run(saver, 4)
    await saver.aprune(["t-1"], keep_last=2)

    assert await saver.aprune(["t-1"], keep_last=2) == Pruned()


async def test_threads_that_are_not_named_are_left_alone(saver: Saver) -> None:
    await run(saver, 3)
    made = await run(saver, 3, "t-2")

    await saver.aprune(["t-1", "nobody", "t-1"])

    assert await ids(saver, "t-2") == made[::-1]


async def test_a_branch_and_the_point_where_it_parts_stay(saver: Saver) -> None:
    made = await run(saver, 5)
    token = await store(saver, claim(seen=await saver.aget_thread("t-1")))
    branch = new({"n": "other"}, 9, parent=made[1])
    await store(saver, step(token, branch))

    await saver.aprune(["t-1"])

    assert await ids(saver) == [branch.checkpoint["id"], made[4], made[2], made[1]]
    old_tip = await saver.aget(config(checkpoint_id=made[4]))
    assert old_tip is not None
    assert old_tip["channel_values"] == {"n": 5, "once": "first"}
    assert await saver.aprune(["t-1"]) == Pruned()


async def test_open_questions_and_results_of_finished_siblings_stay(saver: Saver) -> None:
    made = await run(saver, 4, status="interrupted")
    token = await store(saver, claim(seen=await saver.aget_thread("t-1")))
    writes = [
        TaskWrites("", made[-1], "task-1", [("n", "finished")]),
        TaskWrites("", made[-1], "task-2", [(INTERRUPT, ["sure?"])]),
    ]
    await store(saver, step(token, writes=writes))
    before = await saver.aget_tuple(config())

    await saver.aprune(["t-1"])

    assert before is not None
    assert len(before.pending_writes or ()) == 2
    assert await saver.aget_tuple(config()) == before


def inner(parent_id: str, ns: str, *, asks: bool = False, after: str | None = None) -> tuple[NewCheckpoint, Any]:
    """A checkpoint of a subgraph which belongs to a root checkpoint, and its open question."""
    metadata = {"source": "loop", "step": 0, "parents": {"": parent_id}}
    made = new({"m": "later" if after else ns}, 51 if after else 50, ns=ns, parent=after, metadata=metadata)
    asked = TaskWrites(ns, made.checkpoint["id"], "task-9", [(INTERRUPT, ["sure?"])])
    return made, [asked] if asks else []


async def test_a_subgraph_stays_as_long_as_what_it_belongs_to(saver: Saver) -> None:
    made = await run(saver, 3, status="interrupted")
    token = await store(saver, claim(seen=await saver.aget_thread("t-1")))
    gone, _ = inner(made[0], "sub:1")
    asked, question = inner(made[-1], "sub:2", asks=True)
    later, _ = inner(made[-1], "sub:2", after=asked.checkpoint["id"])
    await store(saver, step(token, gone, asked, later, writes=question))

    await saver.aprune(["t-1"])

    assert await ids(saver, ns=None) == [later.checkpoint["id"], asked.checkpoint["id"], made[-1]]
    found = await saver.aget_tuple(config(checkpoint_id=asked.checkpoint["id"], ns="sub:2"))
    assert found is not None
    assert found.checkpoint["channel_values"] == {"m": "sub:2"}
    assert found.pending_writes == [("task-9", INTERRUPT, ["sure?"])]


async def test_only_what_is_old_enough_goes(saver: Saver) -> None:
    made = await run(saver, 3)
    for older_than in (datetime(2024, 5, 1, tzinfo=UTC), timedelta(hours=1)):
        assert await saver.aprune(older_than=older_than) == Pruned()
        assert await saver.aprune(["t-1"], older_than=older_than) == Pruned()
    assert await ids(saver) == made[::-1]

    pruned = await saver.aprune(older_than=timedelta(0))

    assert pruned == Pruned({"t-1": 2})


async def test_without_names_all_threads_are_pruned(saver: Saver) -> None:
    names = [f"t-{number:03}" for number in range(MANY)]
    for name in names:
        await put_chain(saver, 2, name)

    pruned = await saver.aprune(older_than=timedelta(0))

    assert pruned == Pruned(dict.fromkeys(names, 1))


async def test_threads_that_are_done_can_be_removed_altogether(saver: Saver) -> None:
    await run(saver, 3, "done")
    asking = await run(saver, 3, "asking", status="interrupted")
    token = await store(saver, claim("running"))

    pruned = await saver.aprune(older_than=timedelta(0), keep_last=0)

    assert pruned == Pruned({"done": 3, "asking": 2}, ("done",))
    assert await saver.aget_thread("done") is None
    assert await ids(saver, "asking") == asking[-1:]
    await store(saver, step(token, new({"n": 0}), thread_id="running"))


async def test_the_strategies_of_the_ecosystem(saver: Saver) -> None:
    made = await run(saver, 3)
    await run(saver, 2, "t-2", status="interrupted")

    assert await saver.aprune(["t-1"], strategy="keep_latest") == Pruned({"t-1": 2})
    assert await ids(saver) == made[-1:]
    assert await saver.aprune(["t-1", "t-2"], strategy="delete") == Pruned({"t-1": 1, "t-2": 2}, ("t-1", "t-2"))
    assert [each async for each in saver.alist_threads()] == []


async def test_a_run_goes_on_after_its_thread_was_pruned(saver: Saver) -> None:
    token = await store(saver, claim("t-1", new({"n": 0})))
    parent = named(await saver.aget_tuple(config()))
    for number in range(1, 5):
        one = new({"n": number}, number + 1, parent=parent)
        await store(saver, step(token, one))
        parent = one.checkpoint["id"]

    await saver.aprune(["t-1"])

    last = new({"n": 5}, 6, parent=parent)
    await store(saver, step(token, last))
    assert await ids(saver) == [last.checkpoint["id"], parent]


async def test_a_run_whose_thread_was_deleted_by_pruning_stores_nothing_more(saver: Saver) -> None:
    token = await store(saver, claim("t-1", new({"n": 0})))

    await saver.aprune(["t-1"], strategy="delete")

    with pytest.raises((LeaseLost, ThreadDeleted)):
        await store(saver, step(token, new({"n": 1}, 2)))


async def test_a_thread_whose_input_has_no_checkpoint_yet_is_left_alone(saver: Saver) -> None:
    made = await run(saver, 3)
    await store(saver, claim(seen=await saver.aget_thread("t-1"), input="next", has_input=True))

    assert await saver.aprune(["t-1"]) == Pruned()

    assert await ids(saver) == made[::-1]


async def test_a_run_from_a_past_checkpoint_is_refused_if_checkpoints_were_removed_since_it_was_read(
    saver: Saver,
) -> None:
    made = await run(saver, 4)
    loaded = await saver.aload(config(checkpoint_id=made[0]))
    assert loaded.is_past
    await saver.aprune(["t-1"], keep_last=2)
    branch = new({"n": "other"}, 9, parent=made[0])

    with pytest.raises(ThreadConflict):
        await store(saver, claim("t-1", branch, seen=loaded.thread, is_from_past=True))

    assert await ids(saver) == made[:1:-1]
    await store(saver, claim("t-1", new({"n": 5}, 9, parent=made[-1]), seen=loaded.thread))


async def test_a_run_from_a_past_checkpoint_is_let_through_if_none_was_removed(saver: Saver) -> None:
    made = await run(saver, 4)
    await saver.aprune(["t-1"], keep_last=2)
    loaded = await saver.aload(config(checkpoint_id=made[-2]))
    await saver.aprune(["t-1"], keep_last=2)
    await saver.aprune(["t-1"], keep_last=1, dry_run=True)
    branch = new({"n": "other"}, 9, parent=made[-2])

    await store(saver, claim("t-1", branch, seen=loaded.thread, is_from_past=True))

    assert await ids(saver) == [branch.checkpoint["id"], *made[:1:-1]]


async def test_a_prune_needs_to_know_what(saver: Saver) -> None:
    with pytest.raises(ValueError, match=r"^aprune was not told what to prune"):
        await saver.aprune()


async def test_runs_write_while_their_threads_are_pruned(saver: Saver) -> None:
    names = [f"t-{number}" for number in range(4)]

    async def write(name: str) -> list[str]:
        return await run(saver, 60, name)

    writing = [asyncio.create_task(write(name)) for name in names]
    while not all(task.done() for task in writing):
        await saver.aprune(names, keep_last=2)
        await asyncio.sleep(0)
    made = [await task for task in writing]

    await saver.aprune(names, keep_last=2)
    for name, own in zip(names, made, strict=True):
        assert await ids(saver, name) == own[:-3:-1]
        found = await saver.aget(config(name))
        assert found is not None
        assert found["channel_values"] == {"n": 60, "once": "first"}

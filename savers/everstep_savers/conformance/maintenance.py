"""Copying threads, removing runs, and raw access to values that cannot be decoded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from everstep_savers.base import MaintainedSaver
from everstep_savers.checkpoint import CheckpointTuple, Commit, TaskWrites
from everstep_savers.codec import Codec
from everstep_savers.conformance.records import checkpoint, claim, config, named, new, put_chain, record, step
from everstep_savers.errors import CodecError, LeaseLost, ThreadConflict, ThreadDeleted

Saver = MaintainedSaver[Any]


async def store(saver: Saver, commit: Commit) -> int:
    return await saver.acommit(saver.prepare(commit))


async def listed(saver: Saver, thread_id: str = "t-1") -> list[Any]:
    return [each[1:] async for each in saver.alist(config(thread_id, ns=None))]


async def run_of(saver: Saver, run_id: str, thread_id: str = "t-1") -> list[str]:
    """A run of two checkpoints: `n` changes in both, `once` in the first; each has a write. Their ids."""
    loaded = await saver.aload(config(thread_id))
    token = await store(saver, claim(thread_id, seen=loaded.thread, run_id=run_id))
    one, two = loaded.newest_version + 1, loaded.newest_version + 2
    parent, ids = named(loaded.saved) if loaded.saved else None, []
    for changed, versions in (
        ({"n": one, "once": one}, {"n": one, "once": one}),
        ({"n": two}, {"n": two, "once": one}),
    ):
        made = checkpoint({"n": f"{run_id}/{changed['n']}", "once": run_id}, versions, after=parent)
        each = record(made, changed, parent=parent, run_id=run_id)
        parent = made["id"]
        writes = [TaskWrites("", parent, "task-1", [("n", 1)])]
        await store(saver, step(token, each, thread_id=thread_id, writes=writes))
        ids.append(parent)
    await store(saver, step(token, thread_id=thread_id, status="done"))
    return ids


async def test_a_copy_has_the_whole_history_and_goes_its_own_way(saver: Saver) -> None:
    made = await run_of(saver, "run-1")
    await put_chain(saver, 2, ns="child")

    await saver.acopy_thread("t-1", "t-2")

    def without_configs(each: CheckpointTuple) -> tuple[Any, ...]:
        return each.checkpoint, each.metadata, each.pending_writes

    source = [each async for each in saver.alist(config(ns=None))]
    copies = [each async for each in saver.alist(config("t-2", ns=None))]
    assert [without_configs(each) for each in copies] == [without_configs(each) for each in source]
    assert {each.config["configurable"]["thread_id"] for each in copies} == {"t-2"}
    copied = await saver.aload(config("t-2"))
    assert named(copied.saved) == made[-1]
    assert copied.newest_version == (await saver.aload(config())).newest_version
    await run_of(saver, "run-2", "t-2")
    assert named(await saver.aget_tuple(config())) == made[-1]


async def test_the_copy_of_a_running_thread_stands_still_with_the_same_input(saver: Saver) -> None:
    await store(saver, claim(input="kept", has_input=True))

    await saver.acopy_thread("t-1", "t-2")

    copied, source = await saver.aget_thread("t-2"), await saver.aget_thread("t-1")
    assert copied is not None
    assert source is not None
    assert (source.status, copied.status) == ("running", "drained")
    assert (copied.input, copied.run_id, copied.graph, copied.token) == ("kept", None, "orders", 0)


async def test_a_copied_thread_is_listed_beside_its_source(saver: Saver) -> None:
    made = await put_chain(saver, 60)
    await saver.acopy_thread("t-1", "t-2")

    assert [named(each) async for each in saver.alist(None)] == [each for each in made[::-1] for _ in range(2)]


@pytest.mark.parametrize(("source", "target"), [("nobody", "t-3"), ("t-1", "t-2"), ("t-1", "t-1")])
async def test_a_copy_needs_a_source_and_a_free_target(saver: Saver, source: str, target: str) -> None:
    await put_chain(saver, 1)
    await put_chain(saver, 1, "t-2")
    before = await listed(saver), await listed(saver, "t-2"), await listed(saver, "t-3")

    with pytest.raises(ThreadConflict):
        await saver.acopy_thread(source, target)

    assert (await listed(saver), await listed(saver, "t-2"), await listed(saver, "t-3")) == before


async def test_a_copy_may_take_the_place_of_a_deleted_thread(saver: Saver) -> None:
    token = await store(saver, claim("t-2", new({"n": 0})))
    await saver.adelete_thread("t-2")
    await put_chain(saver, 2)

    await saver.acopy_thread("t-1", "t-2")

    assert len(await listed(saver, "t-2")) == 2
    with pytest.raises(ThreadDeleted):
        await store(saver, step(token, new({"n": 1}, 2), thread_id="t-2"))


async def test_removing_a_run_moves_the_head_back_and_keeps_what_others_use(saver: Saver) -> None:
    first = await run_of(saver, "run-1")
    before = await listed(saver)
    await run_of(saver, "run-2")
    other = await run_of(saver, "run-2", "t-2")

    await saver.adelete_for_runs(["run-2", "unknown"])

    assert await listed(saver) == before
    assert named(await saver.aget_tuple(config())) == first[-1]
    assert await saver.aget_thread("t-2") is None
    assert await saver.aget_tuple(config("t-2", other[0])) is None


async def test_one_run_has_to_be_given_as_a_list(saver: Saver) -> None:
    run: Any = "run-1"
    with pytest.raises(ValueError, match=r"^run_ids must be a list of run ids, not the text 'run-1'$"):
        await saver.adelete_for_runs(run)


async def test_checkpoints_of_no_run_are_not_those_of_a_run_without_a_name(saver: Saver) -> None:
    await saver.aput(config(), checkpoint({"n": 1}, {"n": 1}), {}, {"n": 1})

    await saver.adelete_for_runs([""])

    assert len(await listed(saver)) == 1


async def test_removing_the_run_before_keeps_values_that_the_later_one_shows(saver: Saver) -> None:
    await run_of(saver, "run-1")
    token = await store(saver, claim(seen=await saver.aget_thread("t-1"), run_id="run-2"))
    head = await saver.aget_tuple(config())
    assert head is not None
    last = checkpoint({"n": "run-2"}, head.checkpoint["channel_versions"] | {"n": 9}, after=named(head))
    await store(saver, step(token, record(last, {"n": 9}, parent=named(head), run_id="run-2")))

    await saver.adelete_for_runs(["run-1"])

    (left,) = await listed(saver)
    assert left[0]["channel_values"] == {"n": "run-2", "once": "run-1"}
    await store(saver, step(token, new({"n": "on"}, 10)))


async def test_a_removed_run_that_is_under_way_stores_nothing_more(saver: Saver) -> None:
    await run_of(saver, "run-1")
    token = await store(saver, claim(seen=await saver.aget_thread("t-1"), run_id="run-2"))

    await saver.adelete_for_runs(["run-2"])

    with pytest.raises(LeaseLost):
        await store(saver, step(token, new({"n": 1}, 9)))
    await saver.adelete_for_runs(["run-1", "run-2"])
    with pytest.raises(ThreadDeleted):
        await store(saver, step(token, new({"n": 1}, 9)))


async def test_removing_runs_that_came_before_stops_a_run_only_with_its_thread(saver: Saver) -> None:
    await run_of(saver, "run-1")
    await run_of(saver, "run-2")
    token = await store(saver, claim(seen=await saver.aget_thread("t-1"), run_id="run-3"))

    await saver.adelete_for_runs(["run-1"])
    await store(saver, step(token, status="interrupted"))
    await saver.adelete_for_runs(["run-2"])

    with pytest.raises((LeaseLost, ThreadDeleted)):
        await store(saver, step(token, new({"n": 1}, 9)))


async def test_a_run_stores_nothing_more_after_its_head_moved_back(saver: Saver) -> None:
    first = await run_of(saver, "run-1")
    await run_of(saver, "run-2")
    token = await store(saver, claim(seen=await saver.aget_thread("t-1"), run_id="run-3"))

    await saver.adelete_for_runs(["run-2"])

    with pytest.raises(LeaseLost):
        await store(saver, step(token, new({"n": 1}, 9)))
    assert named(await saver.aget_tuple(config())) == first[-1]


async def test_the_input_and_the_starting_point_of_a_removed_run_are_forgotten(saver: Saver) -> None:
    await run_of(saver, "run-1")
    await run_of(saver, "run-2")
    asked = claim(seen=await saver.aget_thread("t-1"), run_id="run-3", input=7, has_input=True, starting_point="here")
    await store(saver, asked)

    await saver.adelete_for_runs(["run-1"])
    thread = await saver.aget_thread("t-1")
    assert thread is not None
    assert (thread.input, thread.starting_point) == (7, "here")

    await saver.adelete_for_runs(["run-3"])
    thread = await saver.aget_thread("t-1")
    assert thread is not None
    assert (thread.has_input, thread.starting_point) == (False, None)


async def test_a_head_that_moves_back_has_another_starting_point(saver: Saver) -> None:
    await run_of(saver, "run-1")
    await run_of(saver, "run-2")
    await store(saver, claim(seen=await saver.aget_thread("t-1"), run_id="run-3", starting_point="here"))

    await saver.adelete_for_runs(["run-2"])

    thread = await saver.aget_thread("t-1")
    assert thread is not None
    assert thread.starting_point is None


@dataclass
class Order:
    """A value that only a codec which knows it can read."""

    number: int


@pytest.fixture
async def written_by_others(saver: Saver) -> Saver:
    """The saver, with a codec that does not know the value another program has stored."""
    ours, theirs = saver.codec, Codec()
    theirs.register(Order)
    saver.codec = theirs
    made = checkpoint({"order": Order(7), "n": 1, "now": Order(8)}, {"order": 1, "n": 1, "now": 1})
    changed = dict.fromkeys(made["channel_values"], 1)
    await store(saver, claim("t-1", record(made, changed, transient=["now"])))
    saver.codec = ours
    return saver


async def test_a_value_that_cannot_be_read_is_named_by_key_thread_and_checkpoint(
    written_by_others: Saver,
) -> None:
    (thread,) = [each async for each in written_by_others.alist_threads()]

    with pytest.raises(CodecError) as caught:
        await written_by_others.aget_tuple(config())

    assert caught.value.place == ("state key 'order'", f"checkpoint {thread.head!r}", "thread 't-1'")
    with pytest.raises(CodecError):
        [each async for each in written_by_others.alist(config())]


async def test_the_bytes_of_a_value_can_be_read_though_it_cannot_be_decoded(written_by_others: Saver) -> None:
    theirs = Codec()
    theirs.register(Order)

    for channel, number in {"order": 7, "now": 8}.items():
        raw = await written_by_others.araw_value("t-1", channel)
        assert raw is not None
        assert theirs.decode(*raw) == Order(number)

    assert await written_by_others.araw_value("t-1", "missing") is None
    assert await written_by_others.araw_value("nobody", "order") is None
    assert await written_by_others.araw_value("t-1", "order", checkpoint_id="none") is None

"""`AtomicSaver.acommit`: all or nothing, guarded by the token; a test per sentence of the contract."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from everstep_savers.base import AtomicSaver
from everstep_savers.checkpoint import ERROR, INTERRUPT, Commit, TaskPlace, TaskWrites
from everstep_savers.conformance.records import claim, config, named, new, step
from everstep_savers.errors import CodecError

Saver = AtomicSaver[Any]


async def store(saver: Saver, commit: Commit) -> int:
    return await saver.acommit(saver.prepare(commit))


async def everything(saver: Saver) -> Any:
    """All that can be seen of the saver's content."""
    threads = [each async for each in saver.alist_threads()]
    return threads, [each async for each in saver.alist(None)]


async def test_a_claim_makes_the_thread_and_grants_the_first_token(saver: Saver) -> None:
    first = new({"n": 0})

    token = await store(saver, claim("t-1", first, attempt=2))

    thread = await saver.aget_thread("t-1")
    assert thread is not None
    assert token == thread.token == 1
    assert (thread.thread_id, thread.head) == ("t-1", first.checkpoint["id"])
    assert (thread.status, thread.run_id, thread.graph, thread.attempt) == ("running", "run-1", "orders", 2)
    assert (thread.error, thread.input, thread.has_input) == (None, None, False)
    assert thread.created_at is not None
    assert thread.created_at == thread.updated_at


async def test_each_claim_raises_the_token_by_one(saver: Saver) -> None:
    tokens = []
    for number in range(3):
        seen = await saver.aget_thread("t-1")
        tokens.append(await store(saver, claim(seen=seen, run_id=f"run-{number}")))

    assert tokens == [1, 2, 3]
    thread = await saver.aget_thread("t-1")
    assert thread is not None
    assert (thread.token, thread.run_id) == (3, "run-2")


async def test_a_step_moves_the_head_to_its_last_root_checkpoint(saver: Saver) -> None:
    token = await store(saver, claim("t-1", new({"n": 0})))
    second = new({"n": 1}, 2)
    third = new({"n": 2}, 3, parent=second.checkpoint["id"])
    child = new({"n": 9}, 9, ns="child")

    assert await store(saver, step(token, second, third, child)) == token

    assert named(await saver.aget_tuple(config())) == third.checkpoint["id"]
    assert named(await saver.aget_tuple(config(ns="child"))) == child.checkpoint["id"]
    thread = await saver.aget_thread("t-1")
    assert thread is not None
    assert thread.head == third.checkpoint["id"]


async def test_the_head_follows_the_run_even_to_a_checkpoint_with_an_older_id(saver: Saver) -> None:
    older = new({"n": 1}, 2)
    token = await store(saver, claim("t-1", new({"n": 0})))

    await store(saver, step(token, older))

    assert named(await saver.aget_tuple(config())) == older.checkpoint["id"]


async def test_a_commit_stores_checkpoints_values_writes_and_status_together(saver: Saver) -> None:
    first = new({"n": 0, "gone": "x"}, transient=["gone"])
    writes = [
        TaskWrites("", first.checkpoint["id"], "task-1", [("n", 1), (INTERRUPT, "?")], "path", "a"),
        TaskWrites("", first.checkpoint["id"], "task-2", [(ERROR, RuntimeError("broken"))], "", "b"),
    ]
    token = await store(saver, claim("t-1", first))

    await store(saver, step(token, status="failed", error="broken\0 \ud800", writes=writes))

    loaded = await saver.aload(config())
    assert loaded.saved is not None
    assert loaded.thread is not None
    assert loaded.saved.checkpoint == first.checkpoint
    assert loaded.saved.pending_writes is not None
    assert [write[:2] for write in loaded.saved.pending_writes] == [
        ("task-1", INTERRUPT),
        ("task-1", "n"),
        ("task-2", ERROR),
    ]
    assert (loaded.thread.status, loaded.thread.error) == ("failed", "broken\\x00 \\ud800")


async def test_no_status_leaves_status_and_error_as_they_are(saver: Saver) -> None:
    token = await store(saver, claim(status="running"))
    await store(saver, step(token, status="failed", error="broken"))

    await store(saver, step(token, new({"n": 0})))

    thread = await saver.aget_thread("t-1")
    assert thread is not None
    assert (thread.status, thread.error) == ("failed", "broken")


async def test_a_new_claim_clears_the_error_of_the_last_run(saver: Saver) -> None:
    token = await store(saver, claim())
    await store(saver, step(token, status="failed", error="broken"))

    await store(saver, claim(seen=await saver.aget_thread("t-1"), run_id="run-2"))

    thread = await saver.aget_thread("t-1")
    assert thread is not None
    assert (thread.status, thread.error) == ("running", None)


async def test_an_input_is_kept_until_it_has_a_checkpoint_of_its_own(saver: Saver) -> None:
    token = await store(saver, claim(input={"order": (1, 2)}, has_input=True))
    thread = await saver.aget_thread("t-1")
    assert thread is not None
    assert (thread.has_input, thread.input, thread.head) == (True, {"order": (1, 2)}, None)
    assert await saver.aget_tuple(config()) is None
    await store(saver, step(token, status="interrupted"))
    assert (await saver.aget_thread("t-1")).has_input  # type: ignore[union-attr]

    await store(saver, step(token, new({"n": 0})))

    thread = await saver.aget_thread("t-1")
    assert thread is not None
    assert (thread.has_input, thread.input) == (False, None)


async def test_none_is_an_input_too(saver: Saver) -> None:
    await store(saver, claim(input=None, has_input=True))

    thread = await saver.aget_thread("t-1")
    assert thread is not None
    assert (thread.has_input, thread.input) == (True, None)


async def test_a_claim_keeps_its_input_beside_the_checkpoint_it_brings(saver: Saver) -> None:
    await store(saver, claim("t-1", new({"n": 0}), input="next", has_input=True))

    thread = await saver.aget_thread("t-1")
    assert thread is not None
    assert thread.input == "next"


async def test_what_happens_to_values_after_prepare_is_not_stored(saver: Saver) -> None:
    items = ["a"]
    first = new({"items": items})
    prepared = saver.prepare(claim("t-1", first, input=items, has_input=True))

    items.append("b")
    first.checkpoint["channel_versions"]["items"] = 5
    await saver.acommit(prepared)

    loaded = await saver.aload(config())
    assert loaded.saved is not None
    assert loaded.thread is not None
    assert loaded.saved.checkpoint["channel_values"] == {"items": ["a"]}
    assert loaded.saved.checkpoint["channel_versions"] == {"items": 1}
    assert loaded.thread.input == ["a"]


async def test_a_value_that_cannot_be_kept_names_key_and_thread_and_stores_nothing(saver: Saver) -> None:
    token = await store(saver, claim())
    before = await everything(saver)

    with pytest.raises(CodecError) as caught:
        saver.prepare(step(token, new({"job": {"lock": asyncio.Lock()}})))

    assert caught.value.place == ("state key 'job'", "thread 't-1'")
    assert await everything(saver) == before


async def test_a_write_that_cannot_be_kept_names_key_node_and_thread(saver: Saver) -> None:
    for channel, what in {"job": "state key 'job'", INTERRUPT: "question"}.items():
        writes = [TaskWrites("", "id", "task-1", [(channel, asyncio.Lock())], "", "node-a")]
        with pytest.raises(CodecError) as caught:
            saver.prepare(step(1, writes=writes))
        assert caught.value.place == (what, "node 'node-a'", "thread 't-1'")


async def test_newest_version_counts_over_all_branches(saver: Saver) -> None:
    first = new({"n": 0}, 1)
    token = await store(saver, claim("t-1", first))
    await store(saver, step(token, new({"n": 1}, 7, parent=first.checkpoint["id"])))
    await store(saver, step(token, new({"m": 1}, 8, parent=first.checkpoint["id"], transient=["m"])))

    loaded = await saver.aload(config(checkpoint_id=first.checkpoint["id"]))

    assert loaded.newest_version == 8
    assert named(loaded.saved) == first.checkpoint["id"]
    assert loaded.thread == await saver.aget_thread("t-1")


async def test_repeating_a_step_stores_it_once(saver: Saver) -> None:
    first = new({"n": 0})
    token = await store(saver, claim("t-1", first))
    writes = [TaskWrites("", first.checkpoint["id"], "task-1", [("n", 1), (INTERRUPT, "?")])]
    prepared = saver.prepare(step(token, new({"n": 1}, 2), writes=writes))
    await saver.acommit(prepared)
    before = await everything(saver)

    assert await saver.acommit(prepared) == token

    assert await everything(saver) == before


@pytest.mark.parametrize("second_status", [None, "interrupted"])
async def test_joined_commits_leave_the_thread_as_the_two_do_one_after_the_other(
    second_status: Any, saver: Saver
) -> None:
    start = new({"n": 0, "items": ["a"]})
    made = new({"n": 1}, 2, parent=start.checkpoint["id"])
    later = new({"items": ["b"]}, 3, parent=made.checkpoint["id"])
    place = ("", made.checkpoint["id"], "task-1")
    first = [TaskWrites("", start.checkpoint["id"], "task-0", [("n", 1)]), TaskWrites(*place, [("n", 7), (ERROR, "1")])]
    second = [
        TaskWrites(*place, [("n", 8), (ERROR, "2")]),
        TaskWrites("", later.checkpoint["id"], "task-2", [("n", 9)]),
    ]
    for thread_id in ("t-1", "t-2"):
        token = await store(saver, claim(thread_id, start))
        prepared = [
            saver.prepare(step(token, made, thread_id=thread_id, status="failed", error="no", writes=first)),
            saver.prepare(step(token, later, thread_id=thread_id, status=second_status, writes=second)),
        ]
        joined = saver.join(*prepared) if thread_id == "t-2" else None
        for commit in prepared if joined is None else [joined]:
            assert await saver.acommit(commit) == token

    (one, other), listed = await everything(saver)
    assert {one.thread_id, other.thread_id} == {"t-1", "t-2"}
    assert (one.head, one.status, one.error) == (other.head, other.status, other.error)
    assert one.status == second_status or (one.status, one.error) == ("failed", "no")
    found = {
        thread_id: [each[1:3] + each[4:] for each in listed if each.config["configurable"]["thread_id"] == thread_id]
        for thread_id in ("t-1", "t-2")
    }
    assert found["t-1"] == found["t-2"]
    assert len(found["t-1"]) == 3
    assert (await saver.aload(config("t-1"))).newest_version == (await saver.aload(config("t-2"))).newest_version == 3


async def test_what_claims_a_thread_or_has_another_token_is_not_joined_to_what_came_before(saver: Saver) -> None:
    before = saver.prepare(step(1, new({"n": 1}, 2)))

    assert saver.join(before, saver.prepare(claim())) is None
    assert saver.join(before, saver.prepare(step(2, new({"n": 1}, 3)))) is None


@pytest.mark.parametrize("is_current", [True, False])
async def test_results_are_taken_back_under_the_threads_token_and_special_writes_stay(
    is_current: bool, saver: Saver
) -> None:
    first = new({"n": 0})
    token, here = await store(saver, claim("t-1", first)), ("", first.checkpoint["id"])
    writes = [
        TaskWrites(*here, "task-1", [("n", 1), ("m", 2), (INTERRUPT, "?")]),
        TaskWrites(*here, "task-2", [("n", 3)]),
    ]
    await store(saver, step(token, writes=writes))
    before = await everything(saver)

    await saver.atake_back("t-1", token if is_current else token + 1, [TaskPlace(*here, "task-1")])

    found = await saver.aget_tuple(config())
    assert found is not None
    if is_current:
        assert found.pending_writes == [("task-1", INTERRUPT, "?"), ("task-2", "n", 3)]
        await store(saver, step(token, writes=[TaskWrites(*here, "task-1", [("n", 7)])]))
        found = await saver.aget_tuple(config())
        assert found is not None
        assert ("task-1", "n", 7) in (found.pending_writes or ())
    else:
        assert await everything(saver) == before


async def test_commits_of_one_thread_take_effect_in_the_order_they_are_awaited(saver: Saver) -> None:
    token = await store(saver, claim("t-1", new({"n": 0})))
    steps = [new({"n": number}, number) for number in range(2, 40)]

    async with asyncio.TaskGroup() as group:
        for each in steps:
            group.create_task(store(saver, step(token, each)))

    assert named(await saver.aget_tuple(config())) == steps[-1].checkpoint["id"]
    assert len([each async for each in saver.alist(config())]) == len(steps) + 1


async def test_threads_are_listed_most_recently_updated_first(saver: Saver) -> None:
    names = [f"t-{number:03}" for number in range(130)]
    for name in names:
        token = await store(saver, claim(name))
        await store(saver, step(token, thread_id=name, status="done" if name < "t-100" else "interrupted"))

    async def listed(**options: Any) -> list[str]:
        return [each.thread_id async for each in saver.alist_threads(**options)]

    assert await listed() == names[::-1]
    assert await listed(status="done") == names[:100][::-1]
    assert await listed(status="interrupted", limit=3) == names[-3:][::-1]
    assert await listed(limit=0) == []
    assert await listed(status="failed") == []


async def test_a_deleted_thread_is_not_listed(saver: Saver) -> None:
    await store(saver, claim("t-1"))
    await store(saver, claim("t-2"))

    await saver.adelete_thread("t-1")

    assert [each.thread_id async for each in saver.alist_threads()] == ["t-2"]
    assert await saver.aget_thread("t-1") is None

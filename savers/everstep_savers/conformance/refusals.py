"""`AtomicSaver.acommit`: what is refused, and that it leaves no trace."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from everstep_savers.base import AtomicSaver
from everstep_savers.checkpoint import ERROR, Commit, TaskWrites
from everstep_savers.conformance.records import claim, config, new, put_chain, step
from everstep_savers.errors import LeaseLost, ThreadConflict, ThreadDeleted

Saver = AtomicSaver[Any]


async def store(saver: Saver, commit: Commit) -> int:
    return await saver.acommit(saver.prepare(commit))


async def everything(saver: Saver) -> Any:
    """All that can be seen of the saver's content."""
    threads = [each async for each in saver.alist_threads()]
    return threads, [each async for each in saver.alist(None)]


async def test_a_claim_of_a_thread_that_moved_is_refused(saver: Saver) -> None:
    first = new({"n": 0})
    await store(saver, claim("t-1", first))
    seen = await saver.aget_thread("t-1")
    await store(saver, claim(seen=seen, run_id="run-2"))
    before = await everything(saver)

    with pytest.raises(ThreadConflict) as caught:
        await store(saver, claim("t-1", new({"n": 5}, 5), seen=seen, run_id="run-3"))

    assert type(caught.value) is ThreadConflict
    assert await everything(saver) == before


async def test_a_claim_is_refused_if_only_the_head_moved(saver: Saver) -> None:
    await put_chain(saver, 1)
    seen = await saver.aget_thread("t-1")
    await put_chain(saver, 1, thread_id="t-1", ns="child")
    other = new({"x": 5}, 5)
    await saver.aput(config(), other.checkpoint, {}, other.changed)

    with pytest.raises(ThreadConflict):
        await store(saver, claim(seen=seen))


async def test_a_claim_of_a_new_thread_is_refused_if_there_is_one(saver: Saver) -> None:
    await put_chain(saver, 1)

    with pytest.raises(ThreadConflict):
        await store(saver, claim())


async def test_a_claim_of_a_seen_thread_is_refused_if_there_is_none(saver: Saver) -> None:
    await store(saver, claim())
    seen = await saver.aget_thread("t-1")
    await saver.adelete_thread("t-1")

    with pytest.raises(ThreadConflict):
        await store(saver, claim(seen=seen))


async def test_of_claims_that_saw_the_same_exactly_one_wins(saver: Saver) -> None:
    await put_chain(saver, 1)
    seen = await saver.aget_thread("t-1")
    claims = [claim("t-1", new({"x": n}, 100 + n), seen=seen, run_id=f"run-{n}") for n in range(8)]

    outcomes = await asyncio.gather(*(store(saver, each) for each in claims), return_exceptions=True)

    granted = [n for n, outcome in enumerate(outcomes) if outcome == 1]
    assert len(granted) == 1
    assert {type(outcome) for n, outcome in enumerate(outcomes) if n not in granted} == {ThreadConflict}
    found = await saver.aget(config())
    assert found is not None
    assert found["channel_values"] == {"x": granted[0]}
    assert len([each async for each in saver.alist(config())]) == 2


async def test_of_claims_of_a_new_thread_exactly_one_wins(saver: Saver) -> None:
    claims = [claim("t-1", new({"x": n}, n + 1), run_id=f"run-{n}") for n in range(8)]

    outcomes = await asyncio.gather(*(store(saver, each) for each in claims), return_exceptions=True)

    assert outcomes.count(1) == 1
    assert len([each async for each in saver.alist(config())]) == 1


async def test_a_run_whose_thread_was_claimed_stores_nothing_more(saver: Saver) -> None:
    first = new({"n": 0})
    token = await store(saver, claim("t-1", first))
    await store(saver, claim(seen=await saver.aget_thread("t-1"), run_id="run-2"))
    before = await everything(saver)
    writes = [TaskWrites("", first.checkpoint["id"], "task-1", [("n", 1), (ERROR, ValueError())])]

    for late in (step(token, new({"n": 5}, 5)), step(token, status="done"), step(token, writes=writes)):
        with pytest.raises(LeaseLost):
            await store(saver, late)

    assert await everything(saver) == before


async def test_a_late_write_does_not_bring_a_deleted_thread_back(saver: Saver) -> None:
    token = await store(saver, claim("t-1", new({"n": 0})))
    await saver.adelete_thread("t-1")

    with pytest.raises(ThreadDeleted):
        await store(saver, step(token, new({"n": 5}, 5)))

    assert await everything(saver) == ([], [])


async def test_a_late_write_does_not_enter_a_thread_made_anew(saver: Saver) -> None:
    token = await store(saver, claim("t-1", new({"n": 0})))
    await saver.adelete_thread("t-1")
    new_token = await store(saver, claim("t-1", new({"n": 1})))
    before = await everything(saver)

    with pytest.raises(ThreadDeleted):
        await store(saver, step(token, new({"n": 5}, 5)))

    assert new_token > token
    assert await everything(saver) == before
    assert (await saver.aload(config())).newest_version == 1


async def test_a_late_write_does_not_enter_a_thread_that_was_put_anew(saver: Saver) -> None:
    token = await store(saver, claim("t-1", new({"n": 0})))
    await saver.adelete_thread("t-1")
    await put_chain(saver, 1)

    with pytest.raises(ThreadDeleted):
        await store(saver, step(token, new({"n": 5}, 5)))


async def test_a_step_of_a_thread_that_never_was_is_refused(saver: Saver) -> None:
    with pytest.raises(ThreadDeleted):
        await store(saver, step(1, new({"n": 0})))


async def test_a_conflict_of_values_leaves_nothing_of_the_commit(saver: Saver) -> None:
    token = await store(saver, claim("t-1", new({"n": 0, "m": 0}, 1)))
    before = await everything(saver)

    with pytest.raises(ThreadConflict):
        await store(saver, step(token, new({"fresh": 1, "n": 1}, 1), status="done"))

    assert await everything(saver) == before

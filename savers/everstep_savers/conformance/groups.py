"""Commits of many threads at once: each stands or falls alone, whoever else commits or gives up."""

from __future__ import annotations

import asyncio
from typing import Any

from everstep_savers.base import AtomicSaver
from everstep_savers.checkpoint import Commit
from everstep_savers.conformance.records import checkpoint, claim, config, new, put_chain, step
from everstep_savers.errors import LeaseLost, ThreadConflict, ThreadDeleted

Saver = AtomicSaver[Any]


async def store(saver: Saver, commit: Commit) -> int:
    return await saver.acommit(saver.prepare(commit))


async def heads(saver: Saver) -> dict[str, Any]:
    return {each.thread_id: each.head async for each in saver.alist_threads()}


async def test_many_threads_commit_at_once(saver: Saver) -> None:
    names = [f"t-{number:03}" for number in range(150)]
    firsts = {name: new({"n": name}) for name in names}
    tokens = await asyncio.gather(*(store(saver, claim(name, first)) for name, first in firsts.items()))
    seconds = {name: new({"n": name, "m": 2}, 2, parent=firsts[name].checkpoint["id"]) for name in names}

    await asyncio.gather(
        *(
            store(saver, step(token, second, thread_id=name))
            for token, (name, second) in zip(tokens, seconds.items(), strict=True)
        )
    )

    assert tokens == [1] * len(names)
    assert await heads(saver) == {name: second.checkpoint["id"] for name, second in seconds.items()}
    for name in names[::37]:
        found = await saver.aget(config(name))
        assert found is not None
        assert found["channel_values"] == {"n": name, "m": 2}


async def test_a_refused_commit_does_not_spoil_the_others(saver: Saver) -> None:
    names = ["lost", "deleted", "taken", "clash", "t-1", "t-2"]
    for name in names:
        await store(saver, claim(name, new({"n": 0})))
    await store(saver, claim("lost", seen=await saver.aget_thread("lost"), run_id="run-2"))
    await saver.adelete_thread("deleted")
    before = await heads(saver)
    good = {name: new({"n": 1}, 2) for name in ("t-1", "t-2", "t-new")}
    put = checkpoint({"n": 1}, {"n": 1})

    outcomes = await asyncio.gather(
        store(saver, step(1, good["t-1"], thread_id="t-1")),
        store(saver, step(1, new({"n": 1}, 2), thread_id="lost")),
        store(saver, step(1, new({"n": 1}, 2), thread_id="deleted")),
        store(saver, claim("taken", new({"n": 1}, 2))),
        store(saver, step(1, new({"n": 1}, 1), thread_id="clash")),
        store(saver, step(1, good["t-2"], thread_id="t-2")),
        store(saver, claim("t-new", good["t-new"])),
        saver.aput(config("t-put"), put, {}, {"n": 1}),
        return_exceptions=True,
    )

    assert [outcome if isinstance(outcome, int) else type(outcome) for outcome in outcomes] == [
        1,
        LeaseLost,
        ThreadDeleted,
        ThreadConflict,
        ThreadConflict,
        1,
        1,
        dict,
    ]
    moved = {name: each.checkpoint["id"] for name, each in good.items()}
    assert await heads(saver) == before | moved | {"t-put": put["id"]}


async def test_giving_up_while_others_commit_touches_no_other(saver: Saver) -> None:
    names = [f"t-{number}" for number in range(12)]
    for name in names:
        await store(saver, claim(name, new({"n": 0})))
    commits = {name: new({"n": 1}, 2) for name in names}
    tasks = {name: asyncio.create_task(store(saver, step(1, each, thread_id=name))) for name, each in commits.items()}
    await asyncio.sleep(0)

    for name in names[::3]:
        tasks[name].cancel()
    outcomes = dict(zip(tasks, await asyncio.gather(*tasks.values(), return_exceptions=True), strict=True))

    stored = await heads(saver)
    for name, outcome in outcomes.items():
        if name not in names[::3]:
            assert outcome == 1
            assert stored[name] == commits[name].checkpoint["id"]
    # Whoever gave up has either committed all the same or nothing at all, and can go on.
    for name in names[::3]:
        await store(saver, step(1, commits[name], thread_id=name))
    assert await heads(saver) == {name: each.checkpoint["id"] for name, each in commits.items()}


async def test_a_chain_survives_many_writers(saver: Saver) -> None:
    await asyncio.gather(*(put_chain(saver, 5, thread_id=f"t-{number}") for number in range(10)))

    assert len([each async for each in saver.alist(None)]) == 50

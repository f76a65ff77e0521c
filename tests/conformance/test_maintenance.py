"""The conformance suite on our own savers: `maintenance`."""

from __future__ import annotations

import random
from typing import Any

import asyncpg
import pytest

from everstep_savers.base import MaintainedSaver
from everstep_savers.conformance.maintenance import *  # noqa: F403
from everstep_savers.conformance.maintenance import run_of, store
from everstep_savers.conformance.records import claim, config, new, put_chain, step
from everstep_savers.errors import InvalidKeyError, LeaseLost, ThreadConflict
from everstep_savers.sql import maintenance
from everstep_savers.sql.saver import SQLSaver
from everstep_savers.sql.statements import compiled


async def test_a_thread_cannot_be_written_to_while_it_is_copied(postgres_url: str) -> None:
    """Each of the statements that copy a thread sees a moment of its own."""
    async with SQLSaver.from_url(postgres_url) as saver:
        await put_chain(saver, 1)
    guard = compiled(maintenance.copy_guard(is_postgres=True), is_postgres=True)
    copier, other = await asyncpg.connect(postgres_url), await asyncpg.connect(postgres_url)
    async with copier.transaction():
        assert await copier.fetch(guard.text, *guard.arguments({"thread_id": "t-1", "target": "t-2", "now": 1}))
        with pytest.raises(asyncpg.LockNotAvailableError):
            await other.fetch("SELECT 1 FROM threads WHERE thread_id = 't-1' FOR UPDATE NOWAIT")
    await copier.close()
    await other.close()


async def test_a_run_is_told_that_it_was_removed_until_another_has_claimed_its_thread(
    saver: MaintainedSaver[Any],
) -> None:
    await run_of(saver, "run-1")
    seen = await saver.aget_thread("t-1")
    token = await store(saver, claim(seen=seen, run_id="run-2"))

    await saver.adelete_for_runs(["run-2"])

    with pytest.raises(LeaseLost, match=r"^thread 't-1' lost this run, or the one it goes on from, when runs were rem"):
        await store(saver, step(token, new({"n": 1}, 9)))
    with pytest.raises(ThreadConflict, match=r"^runs of thread 't-1' were removed \(adelete_for_runs\) since it was "):
        await store(saver, claim(seen=seen, run_id="run-3"))

    await store(saver, claim(seen=await saver.aget_thread("t-1"), run_id="run-4"))
    with pytest.raises(
        LeaseLost, match=r"^thread 't-1' has been claimed by a later run \(token 4, this run holds 2\);"
    ):
        await store(saver, step(token, new({"n": 1}, 9)))


async def test_a_name_that_postgres_cannot_index_is_refused_by_name(postgres_url: str) -> None:
    long = random.Random(1).randbytes(2000).hex()
    async with SQLSaver.from_url(postgres_url) as saver:
        with pytest.raises(
            InvalidKeyError, match=rf"^thread '{long[:50]}.* has a name that is longer than an index of"
        ):
            await put_chain(saver, 1, thread_id=long)
        await put_chain(saver, 1)
        with pytest.raises(InvalidKeyError, match=r"^thread 't-1' has a name that is longer than an index of"):
            await saver.aput_writes(config("t-1", "c"), [("n", 1)], long)

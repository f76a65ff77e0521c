"""How SQL savers prune: in batches, giving way to runs, and what is left when they are killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import Any

import pytest

from everstep_savers.checkpoint import INTERRUPT
from everstep_savers.conformance.pruning import ids, run, store
from everstep_savers.conformance.records import claim, config, named
from everstep_savers.retention import Pruned
from everstep_savers.sql import pruning
from everstep_savers.sql.saver import SQLSaver
from everstep_savers.sql.statements import Statement


async def rows(url: str) -> dict[str, int]:
    """How many rows each table has for the thread."""
    async with SQLSaver.from_url(url) as saver:
        database: Any = await saver._opened()
        counts = {}
        for table in ("checkpoints", "channel_values", "checkpoint_writes"):
            text = f"SELECT count(*) FROM {table} WHERE thread_id = 't-1'"
            statement = Statement(text, (), {})
            counts[table] = (await database.fetch(statement, {}))[0][0]
        return counts


async def test_no_row_is_left_over(saver_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pruning, "BATCH", 7)
    async with SQLSaver.from_url(saver_url) as saver:
        made = await run(saver, 30)
        for each in made:
            await saver.aput_writes(config(checkpoint_id=each), [("n", 1), (INTERRUPT, ["?"])], "task-1")
        assert await rows(saver_url) == {"checkpoints": 30, "channel_values": 31, "checkpoint_writes": 60}

        await saver.aprune(["t-1"], keep_last=2)

        assert await rows(saver_url) == {"checkpoints": 2, "channel_values": 3, "checkpoint_writes": 4}
        await saver.aprune(["t-1"], keep_last=0)
        assert await rows(saver_url) == {"checkpoints": 0, "channel_values": 0, "checkpoint_writes": 0}


async def test_a_prune_gives_way_to_a_run_that_was_claimed_meanwhile(
    saver_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pruning, "BATCH", 2)
    async with SQLSaver.from_url(saver_url) as saver, SQLSaver.from_url(saver_url) as other:
        made = await run(saver, 6)
        database: Any = await saver._opened()
        write, batches = database.write, 0

        async def write_and_let_another_claim(steps: Any, **options: Any) -> bool:
            nonlocal batches
            batches += 1
            if batches == 2:
                await store(other, claim(seen=await other.aget_thread("t-1"), run_id="run-2"))
            done: bool = await write(steps, **options)
            return done

        monkeypatch.setattr(database, "write", write_and_let_another_claim)

        assert await saver.aprune(["t-1"]) == Pruned({"t-1": 2})

        assert await ids(other) == made[:1:-1]
        assert await other.aprune(["t-1"]) == Pruned({"t-1": 3})
        found = await other.aget(config())
        assert found is not None
        assert found["channel_values"] == {"n": 6, "once": "first"}


KILLED = """
import asyncio, os, signal, sys
from everstep_savers.sql import pruning
from everstep_savers.sql.saver import SQLSaver
from everstep_savers.sql.statements import Statement

async def main(url, batches):
    pruning.BATCH = 3
    async with SQLSaver.from_url(url) as saver:
        database = await saver._opened()
        write = database.write

        async def write_and_die(steps, may_repeat, left=[int(batches)]):
            if not left[0]:
                os.kill(os.getpid(), signal.SIGKILL)
            left[0] -= 1
            return await write(steps, may_repeat=may_repeat)

        database.write = write_and_die
        await saver.aprune(["t-1"], keep_last=2)

asyncio.run(main(*sys.argv[1:]))
"""


def prune_and_be_killed(url: str, batches: int) -> None:
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, url, str(batches)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        check=False,
        timeout=50,
    )
    assert killed.returncode == -signal.SIGKILL


@pytest.mark.parametrize("batches", [0, 1, 2])
async def test_a_prune_killed_between_batches_is_repeated(saver_url: str, batches: int) -> None:
    async with SQLSaver.from_url(saver_url) as saver:
        made = await run(saver, 11)
    prune_and_be_killed(saver_url, batches)

    async with SQLSaver.from_url(saver_url) as saver:
        left = [each async for each in saver.alist(config())]
        assert [named(each) for each in left] == made[3 * batches :][::-1]
        for each in left:
            assert each.checkpoint["channel_values"]["once"] == "first"
        await saver.aprune(["t-1"], keep_last=2)
    assert await rows(saver_url) == {"checkpoints": 2, "channel_values": 3, "checkpoint_writes": 0}

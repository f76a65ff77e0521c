"""Two processes on one thread: one of them may win, and the other hears of it."""

from __future__ import annotations

import asyncio
import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from everstep_savers.sql.saver import SQLSaver
from tests.recovery.conftest import Raise
from tests.recovery.killable import Life, Plan


async def finished(plan: Plan) -> None:
    """Give the plan's thread one finished run."""
    async with SQLSaver.from_url(plan.url) as saver:
        await Life(replace(plan, tag="0")).graph(saver).ainvoke({"entries": []}, plan.config())


async def entries_of(plan: Plan) -> list[str]:
    async with SQLSaver.from_url(plan.url) as saver:
        found: list[str] = (await Life(plan).graph(saver).aget_state(plan.config())).values["entries"]
        return found


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
async def test_of_two_processes_that_read_a_thread_at_once_one_is_refused_before_it_runs(
    durability: str, saver_url: str, tmp_path: Path, children: Raise
) -> None:
    plan = Plan(saver_url, str(tmp_path / "ledger"), meet="AB", durability=durability)
    await finished(replace(plan, ledger=str(tmp_path / "first")))
    endings = await children("start", [replace(plan, tag=tag) for tag in plan.meet])
    won = [ending.result["entries"] for ending in endings if ending.error is None]
    lost = [ending.error for ending in endings if ending.error is not None]
    assert (len(won), len(lost)) == (1, 1)
    assert lost[0].startswith("ThreadConflict: thread 't' was moved by another run since it was read: ")
    assert await entries_of(plan) == won[0]
    assert (tmp_path / "ledger").read_text().count("ran s1") == 1


async def test_of_many_processes_no_success_is_lost(saver_url: str, tmp_path: Path, children: Raise) -> None:
    plan = Plan(saver_url, str(tmp_path / "ledger"))
    await finished(plan)
    endings = await children("start", [replace(plan, tag=tag) for tag in "ABCDE"])
    won = [ending.result["entries"] for ending in endings if ending.error is None]
    lost = [ending.error.split(":")[0] for ending in endings if ending.error is not None]
    assert won
    assert set(lost) <= {"ThreadConflict", "LeaseLost"}
    final = await entries_of(plan)
    for entries in won:
        assert final[: len(entries)] == entries


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
async def test_a_process_that_wakes_up_after_another_took_its_thread_stores_nothing(
    durability: str, saver_url: str, tmp_path: Path, children: Raise
) -> None:
    plan = Plan(saver_url, str(tmp_path / "ledger"), durability=durability, pipe=str(tmp_path / "pipe"))
    os.mkfifo(plan.pipe)
    sleeper = asyncio.create_task(children("start", [plan]))
    process = int(await asyncio.to_thread(Path(plan.pipe).read_text))
    async with SQLSaver.from_url(saver_url) as saver:
        graph = Life(replace(plan.survived(), tag="new ")).graph(saver)
        result = await graph.ainvoke(None, plan.config())
    os.kill(process, signal.SIGCONT)
    (ending,) = await sleeper
    assert ending.error == (
        "LeaseLost: thread 't' has been claimed by a later run (token 2, this run holds 1); nothing was written and "
        "this run stores nothing more."
    )
    assert await entries_of(plan) == result["entries"] == ["new s1", "new s2", "new s3"]

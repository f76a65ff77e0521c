"""kill -9 at every store call: the run is found, goes on, and nothing that was acknowledged runs again."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from everstep.errors import EmptyInputError
from everstep.types import Command
from everstep_savers.sql.saver import SQLSaver
from tests.recovery.conftest import Raise
from tests.recovery.killable import Ledger, Life, Plan

# The commits of a run: its claim, the input made into state, then one a step; the diamond stores one result by itself.
# A task is stored when it has returned.
COMMITS = {"chain": 5, "diamond": 6, "asking": 4, "tasks": 7, "tools": 7, "handled": 6}
ENDS = {
    "chain": ["s1", "s2", "s3"],
    "diamond": ["s1", "quick", "slow", "s3"],
    "asking": ["s1", "answer", "s3"],
    "tasks": ["s1", "t1", "t2", "s3"],
    "tools": ["s1", "t1", "t2", "s3"],
    "handled": ["s1", "mended", "s3"],
    "paying": ["s1", "paid", "s3"],
}


def plans_for(plan: Plan, points: Sequence[str], folder: Path) -> list[Plan]:
    """The plan once for each point, each on a thread and with a ledger of its own."""
    return [replace(plan, point=point, thread=point, ledger=str(folder / point)) for point in points]


def at_commits(number: int, first: int = 1) -> list[str]:
    return [f"{when} {commit}" for commit in range(first, number + 1) for when in ("before", "after")]


def check_ledger(plan: Plan) -> list[str]:
    """No node whose result was acknowledged ran again; the ledger's lines."""
    lines = Ledger(Path(plan.ledger)).lines()
    kept = set()
    for line in lines:
        what, node = line.split()
        assert what == "kept" or node not in kept, (plan.point, lines)
        if what == "kept":
            kept.add(node)
    return lines


async def finish(saver: Any, plan: Plan, running: set[str]) -> None:
    """Go on in this process with a thread whose process was killed, and check how it ends."""
    graph = Life(plan.survived()).graph(saver)
    if plan.point == "before 1":
        # Nothing was acknowledged, so there is nothing to find; whoever asked for the run asks again.
        assert plan.thread not in running
        with pytest.raises(EmptyInputError):
            await graph.ainvoke(None, plan.config())
        result = await graph.ainvoke({"entries": []}, plan.config())
    else:
        assert plan.thread in running or (await saver.aget_thread(plan.thread)).status in ("done", "interrupted")
        result = await graph.ainvoke(None, plan.config())
    if "__interrupt__" in result:
        assert plan.graph == "asking"
        result = await graph.ainvoke(Command(resume="answer"), plan.config())
    assert result["entries"] == ENDS[plan.graph]
    assert (await graph.aget_state(plan.config())).values["entries"] == ENDS[plan.graph]
    assert (await saver.aget_thread(plan.thread)).status == "done"


async def kill_and_finish(children: Raise, deed: str, plans: list[Plan]) -> None:
    endings = await children(deed, plans)
    assert {plan.point: (ending.killed, ending.error) for plan, ending in zip(plans, endings, strict=True)} == {
        plan.point: (signal.SIGKILL, None) for plan in plans
    }
    async with SQLSaver.from_url(plans[0].url) as saver:
        running = {record.thread_id async for record in saver.alist_threads(status="running")}
        await asyncio.gather(*(finish(saver, plan, running) for plan in plans))
    for plan in plans:
        check_ledger(plan)


@pytest.mark.parametrize("durability", ["sync", "async"])
@pytest.mark.parametrize("graph", ["chain", "diamond", "asking", "tasks", "tools", "handled"])
async def test_a_run_killed_at_any_commit_is_found_and_finished(
    graph: str, durability: str, saver_url: str, tmp_path: Path, children: Raise
) -> None:
    plan = Plan(saver_url, "", graph=graph, durability=durability)
    plans = plans_for(plan, at_commits(COMMITS[graph]), tmp_path)
    await kill_and_finish(children, "start", plans)


@pytest.mark.parametrize("graph", ["chain", "diamond", "asking", "tasks", "handled"])
async def test_a_run_killed_at_a_commit_that_is_several_joined_is_found_and_finished(
    graph: str, saver_url: str, tmp_path: Path, children: Raise
) -> None:
    plan = Plan(saver_url, "", graph=graph, joins=True)
    # How many are joined is a matter of time; the claim is stored by itself, and something after it.
    await kill_and_finish(children, "start", plans_for(plan, at_commits(2), tmp_path))


def slowed(plan: Plan, kind: str, seconds: float) -> Plan:
    return replace(plan, slow_results=seconds) if kind == "results" else replace(plan, slow_steps=seconds)


@pytest.mark.parametrize("slow", ["results", "steps"])
async def test_which_of_two_writes_is_slower_decides_nothing(
    slow: str, saver_url: str, tmp_path: Path, children: Raise
) -> None:
    plan = slowed(Plan(saver_url, "", graph="diamond"), slow, 0.1)
    plans = plans_for(plan, at_commits(COMMITS["diamond"], first=3), tmp_path)
    await kill_and_finish(children, "start", plans)


@pytest.mark.parametrize("slow", ["results", "steps"])
async def test_a_write_that_takes_half_a_second_longer_than_the_other_decides_nothing(
    slow: str, sqlite_url: str, tmp_path: Path, children: Raise
) -> None:
    plan = slowed(Plan(sqlite_url, "", graph="diamond"), slow, 0.6)
    points = ["after 4", "before 5"] if slow == "results" else ["before 3", "after 3"]
    await kill_and_finish(children, "start", plans_for(plan, points, tmp_path))


async def test_in_sync_durability_only_the_node_under_way_runs_twice(
    saver_url: str, tmp_path: Path, children: Raise
) -> None:
    plan = Plan(saver_url, "", durability="sync")
    plans = plans_for(plan, [*at_commits(5), "in s2"], tmp_path)
    await kill_and_finish(children, "start", plans)
    twice = {
        plan.point: [node for node in ("s1", "s2", "s3") if Ledger(Path(plan.ledger)).lines().count(f"ran {node}") > 1]
        for plan in plans
    }
    assert {point: nodes for point, nodes in twice.items() if nodes} == {
        "before 3": ["s1"],
        "before 4": ["s2"],
        "in s2": ["s2"],
        "before 5": ["s3"],
    }


async def test_in_sync_durability_only_the_task_under_way_runs_twice(
    saver_url: str, tmp_path: Path, children: Raise
) -> None:
    plan = Plan(saver_url, "", graph="tasks", durability="sync")
    plans = plans_for(plan, [*at_commits(7, first=4), "in t1", "in t2"], tmp_path)
    await kill_and_finish(children, "start", plans)
    twice = {
        plan.point: [name for name in ("t1", "t2", "s3") if Ledger(Path(plan.ledger)).lines().count(f"ran {name}") > 1]
        for plan in plans
    }
    assert {point: names for point, names in twice.items() if names} == {
        "before 4": ["t1"],
        "in t1": ["t1"],
        "before 5": ["t2"],
        "in t2": ["t2"],
        "before 7": ["s3"],
    }


@pytest.mark.parametrize("durability", ["sync", "async"])
async def test_a_process_killed_after_a_failure_goes_on_with_the_handler(
    durability: str, saver_url: str, tmp_path: Path, children: Raise
) -> None:
    plan = Plan(saver_url, "", graph="handled", durability=durability)
    plans = plans_for(plan, ["before 4", "after 4", "in mend", "before 5", "after 5"], tmp_path)
    await kill_and_finish(children, "start", plans)
    runs = {
        plan.point: [Ledger(Path(plan.ledger)).lines().count(f"ran {node}") for node in ("bad", "mend")]
        for plan in plans
    }
    assert runs == {"before 4": [2, 1], "after 4": [1, 1], "in mend": [1, 2], "before 5": [1, 2], "after 5": [1, 1]}


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
async def test_an_idempotency_key_is_the_same_in_the_process_that_goes_on(
    durability: str, saver_url: str, tmp_path: Path, children: Raise
) -> None:
    plan = Plan(saver_url, "", graph="paying", durability=durability)
    points = ["in s1", "in pay", "in s3", "before 2" if durability == "exit" else "before 4"]
    plans = plans_for(plan, points, tmp_path)
    await kill_and_finish(children, "start", plans)
    keys = {
        plan.point: [line for line in Ledger(Path(plan.ledger)).lines() if line.startswith("key")] for plan in plans
    }
    assert {point: len(set(found)) for point, found in keys.items()} == dict.fromkeys(points, 1)
    assert len(keys["in pay"]) == 2
    assert len({found[0] for found in keys.values()}) == len(points)


async def test_in_exit_durability_a_killed_run_starts_again_from_its_input(
    saver_url: str, tmp_path: Path, children: Raise
) -> None:
    plan = Plan(saver_url, "", durability="exit")
    plans = plans_for(plan, [*at_commits(2), "in s1", "in s3"], tmp_path)
    await kill_and_finish(children, "start", plans)


async def test_a_process_killed_while_it_answers_has_answered_or_not(
    saver_url: str, tmp_path: Path, children: Raise
) -> None:
    plans = plans_for(Plan(saver_url, "", graph="asking"), [*at_commits(3), "in ask"], tmp_path)
    async with SQLSaver.from_url(saver_url) as saver:
        for plan in plans:
            await Life(plan.survived()).graph(saver).ainvoke({"entries": []}, plan.config())
    assert {ending.killed for ending in await children("answer", plans)} == {signal.SIGKILL}
    async with SQLSaver.from_url(saver_url) as saver:
        for plan in plans:
            graph = Life(plan.survived()).graph(saver)
            state = await graph.aget_state(plan.config())
            assert bool(state.interrupts) == (plan.point == "before 1")
            given: Command[Any] | None = Command(resume="answer") if state.interrupts else None
            assert (await graph.ainvoke(given, plan.config()))["entries"] == ENDS["asking"]
            check_ledger(plan)


async def test_a_run_may_be_killed_again_and_again(saver_url: str, tmp_path: Path, children: Raise) -> None:
    plan = Plan(saver_url, str(tmp_path / "ledger"), graph="diamond")
    deeds = [("start", "after 1"), ("resume", "in s1"), ("resume", "after 3"), ("resume", "after 2")]
    for deed, point in deeds:
        (ending,) = await children(deed, [replace(plan, point=point)])
        assert (ending.killed, ending.error) == (signal.SIGKILL, None)
    (ending,) = await children("resume", [plan])
    assert (ending.error, ending.result and ending.result["entries"]) == (None, ENDS["diamond"])
    lines = check_ledger(plan)
    assert lines.count("ran s1") == 2
    async with SQLSaver.from_url(saver_url) as saver:
        record = await saver.aget_thread("t")
    assert record is not None
    assert (record.status, record.attempt) == ("done", 5)

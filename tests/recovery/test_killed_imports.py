"""kill -9 in the middle of an import: whatever is there is whole, and a second import brings the rest."""

from __future__ import annotations

import signal
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from everstep_savers.sql.saver import SQLSaver
from tests.recovery.conftest import Ending, Raise
from tests.recovery.killable import Plan
from tests.recovery.killable_import import THREADS

Rows = Mapping[str, list[Any]]
# Everything but times, and the id of a run that is made up for the thread.
CONTENTS = {
    "threads": "thread_id, generation, head, status, graph, token, error, newest_version",
    "checkpoints": "thread_id, checkpoint_ns, checkpoint_id, parent_id, step, source, versions, body, metadata",
    "channel_values": "*",
    "checkpoint_writes": "*",
}


def queries() -> Mapping[str, str]:
    return {table: f"SELECT {columns} FROM {table} ORDER BY 1, 2, 3, 4" for table, columns in CONTENTS.items()}


async def rows_of(url: str) -> Rows:
    """What a database holds."""
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as file:
            return {table: file.execute(query).fetchall() for table, query in queries().items()}
    server = await asyncpg.connect(url)
    try:
        return {table: [tuple(row) for row in await server.fetch(query)] for table, query in queries().items()}
    finally:
        await server.close()


def of_threads(rows: Rows, names: set[str]) -> Rows:
    return {table: [row for row in found if row[0] in names] for table, found in rows.items()}


async def whole(ending: Ending, url: str) -> Rows:
    """What a target holds after an import that nothing disturbed."""
    assert (ending.killed, ending.error) == (0, None)
    assert (ending.result["code"], ending.result["err"]) == (0, "")
    assert [each["thread_id"] for each in ending.result["said"]["imported"]] == list(THREADS)
    return await rows_of(url)


def check_second(ending: Ending, there: set[str]) -> None:
    """The second import brought what was not there, left alone what was, and all is well."""
    assert (ending.killed, ending.error) == (0, None)
    said = ending.result["said"]
    assert (ending.result["code"], ending.result["err"], said["refused"]) == (0, "", {})
    assert said["present"] == [name for name in THREADS if name in there]
    assert [each["thread_id"] for each in said["imported"]] == [name for name in THREADS if name not in there]


async def test_an_import_killed_at_any_statement_is_repeated(
    sqlite_template: Path, tmp_path: Path, children: Raise
) -> None:
    def plan(name: str, point: str = "") -> Plan:
        path = tmp_path / f"{name}.db"
        path.write_bytes(sqlite_template.read_bytes())
        return Plan(f"sqlite:///{path}", str(tmp_path / name), point=point)

    (undisturbed,) = await children("bring", [reference := plan("reference")])
    complete = await whole(undisturbed, reference.url)
    counts = []
    number = 1
    while True:
        plans = [plan(f"{each}", f"statement {each}") for each in range(number, number + 24)]
        endings = await children("bring", plans)
        killed = [each for each, ending in zip(plans, endings, strict=True) if ending.killed]
        found = [{row[0] for row in (await rows_of(each.url))["threads"]} for each in killed]
        for each, there in zip(killed, found, strict=True):
            assert await rows_of(each.url) == of_threads(complete, there), each.point
        for ending, there in zip(await children("bring", [each.survived() for each in killed]), found, strict=True):
            check_second(ending, there)
        for each in killed:
            assert await rows_of(each.url) == complete, each.point
        counts += [len(there) for there in found]
        if len(killed) < len(plans):
            break
        number += len(plans)

    assert set(counts) == set(range(len(THREADS)))
    assert counts == sorted(counts)
    # Many of the statements are between the beginning of a commit and its end.
    assert min(counts.count(each) for each in range(len(THREADS))) > 10


@pytest.mark.parametrize("point", [f"{when} {number}" for number in (1, 2, 3) for when in ("before", "after")])
async def test_an_import_killed_beside_any_commit_is_repeated(
    point: str, saver_url: str, tmp_path: Path, children: Raise
) -> None:
    plan = Plan(saver_url, str(tmp_path / "ledger"), point=point)
    when, number = point.split()

    (ending,) = await children("bring", [plan])
    assert (ending.killed, ending.error) == (signal.SIGKILL, None)
    there = {row[0] for row in (await rows_of(saver_url))["threads"]}
    (again,) = await children("bring", [plan.survived()])

    assert there == set(THREADS[: int(number) - (when == "before")])
    check_second(again, there)
    assert {row[0] for row in (await rows_of(saver_url))["threads"]} == set(THREADS)


async def test_two_imports_at_once_bring_every_thread_once(saver_url: str, tmp_path: Path, children: Raise) -> None:
    plan = Plan(saver_url, str(tmp_path / "ledger"), meet="ab")

    endings = await children("bring", [replace(plan, tag=tag) for tag in plan.meet])

    assert [(ending.killed, ending.error) for ending in endings] == [(0, None)] * 2
    said = [ending.result["said"] for ending in endings]
    assert [(ending.result["code"], ending.result["err"]) for ending in endings] == [(0, "")] * 2
    assert [each["refused"] for each in said] == [{}, {}]
    imported = [{thread["thread_id"] for thread in each["imported"]} for each in said]
    assert imported[0] | imported[1] == set(THREADS)
    assert imported[0] & imported[1] == set()
    assert [set(each["present"]) for each in said] == [imported[1], imported[0]]
    async with SQLSaver.from_url(saver_url) as saver:
        assert {each.thread_id async for each in saver.alist_threads()} == set(THREADS)
        for name in THREADS:
            assert await saver.aget_tuple({"configurable": {"thread_id": name}}) is not None

"""Postgres with 100,000 checkpoints: whatever a run or a reader asks for is found through an index.

Each checkpoint has a number, a value that never changes, and a list in parts. What operators ask for seldom
and of all threads (which there are, which are old, which a run has written) may read whole tables, and is left out.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import asyncpg
import pytest

from everstep_savers.checkpoint import INTERRUPT, NewCheckpoint, TaskWrites
from everstep_savers.sql.saver import SQLSaver
from everstep_savers.sql.schema import metadata
from tests.conformance.records import checkpoint, claim, config, named, new, step

THREADS, STEPS = 10_000, 10

# A body without anything in it, as the savers write it: format 4.
FILL = f"""
INSERT INTO threads (thread_id, head, status, token, newest_version, created_at, updated_at)
SELECT 't-' || t, 'id-{STEPS:03}', 'done', 1, {STEPS}, t, t FROM generate_series(1, {THREADS}) t;

INSERT INTO checkpoints (thread_id, checkpoint_ns, checkpoint_id, parent_id, step, source, run_id, created_at,
                         versions, body, metadata)
SELECT 't-' || t, '', 'id-' || lpad(s::text, 3, '0'),
       CASE WHEN s > 1 THEN 'id-' || lpad((s - 1)::text, 3, '0') END, s, 'loop', 'run', s,
 json_build_object('n', s, 'once', 1, 'list', s), '\\x97049090c09090c0', 'null'
FROM generate_series(1, {THREADS}) t, generate_series(1, {STEPS}) s;

INSERT INTO channel_values (thread_id, checkpoint_ns, channel, version, tag, data)
SELECT 't-' || t, '', 'n', s::text, 'n', '' FROM generate_series(1, {THREADS}) t, generate_series(1, {STEPS}) s;
INSERT INTO channel_values (thread_id, checkpoint_ns, channel, version, tag, data)
SELECT 't-' || t, '', 'once', '1', 'n', '' FROM generate_series(1, {THREADS}) t;

INSERT INTO channel_values (thread_id, checkpoint_ns, channel, version, tag, data, base)
SELECT 't-' || t, '', 'list', s::text, 'm', '\\x9101', CASE WHEN s > 1 THEN (s - 1)::text END
FROM generate_series(1, {THREADS}) t, generate_series(1, {STEPS}) s;

INSERT INTO checkpoint_writes (thread_id, checkpoint_ns, checkpoint_id, task_id, idx, channel, tag, data, task_path)
SELECT 't-' || t, '', 'id-' || lpad(s::text, 3, '0'), 'task', 0, 'n', 'n', '', ''
FROM generate_series(1, {THREADS}) t, generate_series(1, {STEPS}) s;
ANALYZE;
"""


@pytest.fixture
async def filled(postgres_url: str) -> str:
    connection = await asyncpg.connect(postgres_url)
    await connection.execute(FILL)
    await connection.close()
    return postgres_url


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> dict[str, tuple[Any, ...]]:
    """Every statement that is sent while the test runs, with the arguments it was last sent with."""
    sent: dict[str, tuple[Any, ...]] = {}

    def recording(method: Any) -> Any:
        async def run(self: Any, text: str, *arguments: Any, **options: Any) -> Any:
            if any(table in text for table in metadata.tables):
                sent[text] = arguments
            return await method(self, text, *arguments, **options)

        return run

    for name in ("fetch", "fetchrow", "execute"):
        monkeypatch.setattr(asyncpg.Connection, name, recording(getattr(asyncpg.Connection, name)))
    return sent


async def work(saver: SQLSaver) -> None:
    """What runs and readers do."""
    loaded = await saver.aload(config("t-77"))
    head = named(loaded.saved)
    assert loaded.saved is not None
    assert loaded.saved.checkpoint["channel_values"]["list"] == [1] * STEPS
    assert len(loaded.chains["list"]) == STEPS
    history = await saver.aget_delta_channel_history(config=config("t-77"), channels=["n", "list"])
    assert history["list"]["seed"] == [1] * (STEPS - 1)
    assert await saver.araw_value("t-77", "list", "id-003") == ("m", b"\x93\x01\x01\x01")
    await saver.aget_tuple(config("t-77", "id-002"))
    await saver.aget_tuple(config("t-77", ns="child"))
    await saver.aget_thread("t-77")
    async for found in saver.alist(config("t-77")):
        assert found.pending_writes
    assert [each async for each in saver.alist(config("t-77", ns=None), limit=3)]
    assert [each async for each in saver.alist(config("t-77"), before=config("t-77", "id-006"), limit=3)]
    assert [each async for each in saver.alist(config("t-77", "id-006"))]
    assert [each async for each in saver.alist(config("t-77"), filter={"step": 7})]
    token = await saver.acommit(saver.prepare(claim("t-77", seen=loaded.thread)))
    grown = checkpoint({"list": [1] * (STEPS + 1)}, {"list": 60}, after=head)
    longer = NewCheckpoint("", grown, {}, head, {"list": 60}, bases={"list": loaded.chains["list"][-1]})
    result = TaskWrites("", head, "task-2", [("n", 1), (INTERRUPT, ["?"])])
    await saver.acommit(saver.prepare(step(token, longer, thread_id="t-77", writes=[result])))
    names = [f"t-{number}" for number in range(100, 120)]
    await asyncio.gather(
        *(saver.acommit(saver.prepare(step(1, new({"n": 1}, 61), thread_id=name))) for name in names),
        *(saver.acommit(saver.prepare(claim(f"new-{name}", new({"n": 1})))) for name in names),
    )
    await saver.aput(config("t-78", "id-010"), new({"n": 1}, 62).checkpoint, {}, {"n": 62})
    await saver.aput_writes(config("t-78", "id-010"), [("n", 1)], "task-2")
    await saver.acopy_thread("t-79", "copy")
    await saver.aprune(["t-79", "t-80"], keep_last=3)
    kept = await saver.aget(config("t-79"))
    assert kept is not None
    assert kept["channel_values"]["list"] == [1] * STEPS
    await saver.adelete_thread("t-81")


def scans(plan: dict[str, Any]) -> Iterator[str]:
    """The tables that a plan reads from end to end."""
    if plan["Node Type"] == "Seq Scan" and plan["Relation Name"] in metadata.tables:
        yield plan["Relation Name"]
    for part in plan.get("Plans", ()):
        yield from scans(part)


async def test_every_hot_query_uses_an_index(filled: str, asked: dict[str, tuple[Any, ...]]) -> None:
    async with SQLSaver.from_url(filled) as saver:
        await work(saver)
    statements = dict(asked)
    connection = await asyncpg.connect(filled)

    found = {}
    for mode in ("force_custom_plan", "force_generic_plan"):
        await connection.execute(f"SET plan_cache_mode = {mode}")
        for text, arguments in statements.items():
            explained = json.loads(await connection.fetchval(f"EXPLAIN (FORMAT JSON) {text}", *arguments))
            if tables := list(scans(explained[0]["Plan"])):
                found[mode, text] = tables
    await connection.close()

    assert len(statements) > 25
    assert found == {}


async def test_a_table_that_is_read_from_end_to_end_is_found(postgres_url: str) -> None:
    connection = await asyncpg.connect(postgres_url)

    explained = json.loads(await connection.fetchval("EXPLAIN (FORMAT JSON) SELECT * FROM checkpoints WHERE step = 3"))

    assert list(scans({"Node Type": "Append", "Plans": [explained[0]["Plan"]]})) == ["checkpoints"]
    await connection.close()

"""Counts work that does not depend on the machine: statements, round trips, thread hops, asyncio tasks, bytes."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg
from sqlalchemy import make_url

from everstep_savers.sql.saver import SQLSaver
from everstep_savers.sql.schema import metadata


class Work:
    """What has been done so far.

    Attributes:
        statements: Texts of the SQL statements, without the parts of a statement with many rows.
        counts: By "hops" (wake-ups of the loop from another thread) and "tasks" (asyncio tasks made).
    """

    def __init__(self) -> None:
        self.statements: list[str] = []
        self.counts: Counter[str] = Counter()

    @property
    def now(self) -> Counter[str]:
        """The counts, statements among them."""
        return self.counts + Counter(statements=len(self.statements))


@asynccontextmanager
async def counted(saver: Any = None) -> AsyncIterator[Work]:
    """Count what the running loop and an SQL saver do meanwhile."""
    work, loop = Work(), asyncio.get_running_loop()
    wake = loop.call_soon_threadsafe

    def hop(*args: Any, **kwargs: Any) -> Any:
        work.counts["hops"] += 1
        return wake(*args, **kwargs)

    def make(loop: asyncio.AbstractEventLoop, coroutine: Any, **kwargs: Any) -> asyncio.Task[Any]:
        work.counts["tasks"] += 1
        return asyncio.Task(coroutine, loop=loop, **kwargs)

    loop.set_task_factory(make)
    vars(loop)["call_soon_threadsafe"] = hop
    try:
        if isinstance(saver, SQLSaver):
            await _listen(saver, work)
        work.counts.clear()
        yield work
    finally:
        del vars(loop)["call_soon_threadsafe"]
        loop.set_task_factory(None)


async def _listen(saver: SQLSaver, work: Work) -> None:
    database: Any = saver._database
    if not database.is_postgres:
        for worker in database._workers:
            await worker.call(lambda connection: connection.set_trace_callback(work.statements.append))
        return

    async def add_logger(raw: asyncpg.Connection) -> None:
        raw.add_query_logger(lambda query: work.statements.append(query.query))

    await database._run(add_logger)


async def stored_bytes(url: str) -> int:
    """How many bytes the database takes: the closed file, or the tables with their indexes."""
    if url.startswith("sqlite"):
        return Path(make_url(url).database or "").stat().st_size
    connection = await asyncpg.connect(url)
    try:
        sizes = [await connection.fetchval("SELECT pg_total_relation_size($1)", name) for name in metadata.tables]
    finally:
        await connection.close()
    return sum(sizes)

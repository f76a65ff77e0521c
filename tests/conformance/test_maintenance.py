"""The conformance suite on our own savers: `maintenance`."""

from __future__ import annotations

import asyncpg
import pytest

from everstep_savers.conformance.maintenance import *  # noqa: F403
from everstep_savers.conformance.records import put_chain
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

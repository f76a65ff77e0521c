"""The SQL store for plain scripts, under the name and with the methods that people who come from LangGraph know.

Every method blocks, and is served by the one background loop of the bridge. It adds nothing to `SQLStore`; async
programs use that one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, Self

from everstep_savers.blocking import run_blocking
from everstep_savers.sql.store import SQLStore
from everstep_savers.store.base import BaseStore, Op, Result


class SqliteStore(BaseStore):
    """An `SQLStore` whose methods, context manager and `setup` included, are sync.

    Args:
        store: The store; it must not be open on an event loop of the program's own.
    """

    supports_ttl = True

    def __init__(self, store: SQLStore) -> None:
        self.store = store
        self.ttl_config = store.ttl_config

    @classmethod
    def from_conn_string(cls, conn_string: str, **options: Any) -> Self:
        """Make a store, see `SQLStore.from_conn_string`."""
        return cls(SQLStore.from_conn_string(conn_string, **options))

    def __enter__(self) -> Self:
        run_blocking(self.store.__aenter__, "enter")
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Give back all connections; the next use opens them again."""
        run_blocking(self.store.aclose, "close")

    def setup(self) -> None:
        """Create or upgrade the schema; any number of processes may do so at once."""
        run_blocking(self.store.setup, "setup")

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        return self.store.batch(ops)

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        return await self.store.abatch(ops)

    def sweep_ttl(self) -> int:
        """Remove the items whose time to live is over, and tell how many."""
        return run_blocking(self.store.sweep_ttl, "sweep_ttl")

    def start_ttl_sweeper(self, sweep_interval_minutes: float | None = None) -> asyncio.Task[None]:
        """Sweep again and again in the background, until `stop_ttl_sweeper` or `close`."""
        return run_blocking(lambda: self.store.start_ttl_sweeper(sweep_interval_minutes), "start_ttl_sweeper")

    def stop_ttl_sweeper(self, timeout: float | None = None) -> bool:
        """Stop sweeping; False if a sweep under way has not ended within `timeout` seconds."""
        return run_blocking(lambda: self.store.stop_ttl_sweeper(timeout), "stop_ttl_sweeper")

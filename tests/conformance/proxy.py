"""A connection to Postgres that breaks when told: a proxy between the saver and the server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from sqlalchemy import make_url


class Proxy:
    """Passes bytes on, until it is told to drop a connection."""

    def __init__(self, url: str) -> None:
        self._target = make_url(url)
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()
        self.connections = 0
        self.drops_next_answer = False
        self.drops_next_request = False

    @property
    def url(self) -> str:
        """The database, as reached through the proxy."""
        assert self._server is not None
        port = self._server.sockets[0].getsockname()[1]
        through = self._target.set(host="127.0.0.1", port=port).difference_update_query(["host"])
        return through.render_as_string(hide_password=False)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Proxy]:
        """Accept connections."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        try:
            yield self
        finally:
            self._server.close()
            self.drop_all()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def drop_all(self) -> None:
        """Drop every connection there is."""
        for writer in self._writers:
            writer.close()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        there_reader, there_writer = await self._connect()
        self._writers |= {writer, there_writer}
        for task in (
            asyncio.ensure_future(self._pass(reader, there_writer, writer, is_answer=False)),
            asyncio.ensure_future(self._pass(there_reader, writer, there_writer, is_answer=True)),
        ):
            self._tasks.add(task)

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        port = self._target.port or 5432
        folder = self._target.query.get("host")
        if isinstance(folder, str) and folder.startswith("/"):
            return await asyncio.open_unix_connection(f"{folder}/.s.PGSQL.{port}")
        return await asyncio.open_connection(self._target.host or "localhost", port)

    async def _pass(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        back: asyncio.StreamWriter,
        *,
        is_answer: bool,
    ) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(65536):
                if self._is_dropped(is_answer=is_answer):
                    break
                writer.write(data)
                await writer.drain()
        for each in (writer, back):
            each.close()
            with suppress(ConnectionError):
                await each.wait_closed()
        self._writers -= {writer, back}

    def _is_dropped(self, *, is_answer: bool) -> bool:
        if is_answer and self.drops_next_answer:
            self.drops_next_answer = False
            return True
        if not is_answer and self.drops_next_request:
            self.drops_next_request = False
            return True
        return False

"""A pooler as PgBouncer is in mode "transaction", at its worst: each transaction meets another server connection.

Knows of the protocol where messages end, and when the server says that no transaction is open.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress

import asyncpg
from sqlalchemy import make_url

# What a server says at the end of an answer, and of itself when it is in no transaction.
READY, IDLE = b"Z", b"I"

Messages = asyncio.Queue[bytes]


class _Peer:
    """One end of a connection whose messages wait in a queue; an empty one says that it has ended."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.messages: Messages = asyncio.Queue()
        self._reading: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._reading = asyncio.create_task(self._read())

    async def close(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait({self._reading})
        self.writer.close()
        with suppress(ConnectionError):
            await self.writer.wait_closed()

    async def _read(self) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                self.messages.put_nowait(await self.message())
        self.messages.put_nowait(b"")

    async def message(self) -> bytes:
        head = await self.reader.readexactly(5)
        return head + await self.reader.readexactly(int.from_bytes(head[1:]) - 4)


class Pooler:
    """Lends connections to a Postgres server, in turn, for one transaction each."""

    def __init__(self, url: str, size: int = 3) -> None:
        self._target = make_url(url)
        self._size = size
        self._free: asyncio.Queue[_Peer] = asyncio.Queue()
        self._greeting = b""
        self._listener: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.transactions = 0

    @property
    def url(self) -> str:
        """The database, as reached through the pooler."""
        assert self._listener is not None
        port = self._listener.sockets[0].getsockname()[1]
        through = self._target.set(host="127.0.0.1", port=port).difference_update_query(["host"])
        return through.render_as_string(hide_password=False)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Pooler]:
        servers = [await self._connect() for _ in range(self._size)]
        for server in servers:
            server.start()
            self._free.put_nowait(server)
        self._listener = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        try:
            yield self
        finally:
            self._listener.close()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            for server in servers:
                await server.close()

    async def _connect(self) -> _Peer:
        port, folder = self._target.port or 5432, self._target.query.get("host")
        if isinstance(folder, str) and folder.startswith("/"):
            server = _Peer(*await asyncio.open_unix_connection(f"{folder}/.s.PGSQL.{port}"))
        else:
            server = _Peer(*await asyncio.open_connection(self._target.host or "localhost", port))
        names = ["user", self._target.username or "postgres", "database", self._target.database or "", ""]
        body = (196608).to_bytes(4) + b"\0".join(name.encode() for name in names) + b"\0"
        server.writer.write((len(body) + 4).to_bytes(4) + body)
        self._greeting = b""
        while self._greeting[-6:-5] != READY:
            self._greeting += await server.message()
        return server

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        client = _Peer(reader, writer)
        try:
            await self._greet(client)
            client.start()
            while (message := await client.messages.get())[:1] not in (b"", b"X"):
                await self._lend(message, client)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the client is gone
        finally:
            await client.close()

    async def _greet(self, client: _Peer) -> None:
        size = int.from_bytes(await client.reader.readexactly(4))
        code = int.from_bytes(await client.reader.readexactly(4))
        await client.reader.readexactly(size - 8)
        if code == 80877103:  # asks for TLS
            client.writer.write(b"N")
            await self._greet(client)
        else:
            client.writer.write(self._greeting)

    async def _lend(self, message: bytes, client: _Peer) -> None:
        """Serve a client until the server has answered and is in no transaction."""
        server = await self._free.get()
        self.transactions += 1
        unanswered = 0
        asked = asyncio.create_task(_at_once(message))
        answered = asyncio.create_task(server.messages.get())
        try:
            while True:
                await asyncio.wait({asked, answered}, return_when=asyncio.FIRST_COMPLETED)
                if asked.done():
                    message = asked.result()
                    if not message:
                        raise ConnectionError("a client left in the middle of a transaction")
                    server.writer.write(message)
                    unanswered += message[:1] in (b"Q", b"S")
                    asked = asyncio.create_task(client.messages.get())
                if answered.done():
                    message = answered.result()
                    client.writer.write(message)
                    unanswered -= message[:1] == READY
                    if message[:1] == READY and message[5:6] == IDLE and not unanswered:
                        break
                    answered = asyncio.create_task(server.messages.get())
        finally:
            asked.cancel()
            answered.cancel()
        self._free.put_nowait(server)


async def _at_once(message: bytes) -> bytes:
    return message


async def names_of_statements(url: str) -> Sequence[str]:
    """The prepared statements that a client finds on its connections, one transaction after the other."""
    connection = await asyncpg.connect(url, statement_cache_size=0)
    found: list[str] = []
    for _ in range(6):
        async with connection.transaction():
            found += [row[0] for row in await connection.fetch("SELECT name FROM pg_prepared_statements")]
    await connection.close()
    return [name for name in found if name]

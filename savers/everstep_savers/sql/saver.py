"""The SQL saver, for SQLite and Postgres alike.

It turns configs into statements and rows into checkpoints, and knows neither a dialect nor a driver. It opens
at its first use, on the event loop of that use, and belongs to that loop until `aclose`. Nothing is held
between two calls or between two pages of a listing: no reader ever holds back a writer.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any, Self, Unpack

from sqlalchemy.ext.asyncio import AsyncEngine

from everstep_savers.addresses import Address, address_of, checked_key
from everstep_savers.base import Config, MaintainedSaver
from everstep_savers.checkpoint import (
    Chain,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    Commit,
    DeltaChannelHistory,
    Loaded,
    TaskPlace,
    ThreadRecord,
    Version,
)
from everstep_savers.codec import UNOPENED, Codec, Encoded
from everstep_savers.decoding import decode_thread
from everstep_savers.encoding import encode_commit, encode_put, encode_put_writes, joined, task_writes
from everstep_savers.errors import CodecError, ThreadConflict
from everstep_savers.fencing import checkpoint_missing, copy_refused, copy_without_key
from everstep_savers.history import HistoryWalk, values_of, visit_row
from everstep_savers.retention import Lines, Pruned, Strategy, checked_runs, policy_of
from everstep_savers.rows import CheckpointRow, EncodedCommit
from everstep_savers.script import ScriptOpening
from everstep_savers.sealing import SealedCodec, closed_commit
from everstep_savers.sql import maintenance, queries
from everstep_savers.sql.copying import copy_sealed
from everstep_savers.sql.database import Database, parse_url
from everstep_savers.sql.opening import OpensDatabase, Where
from everstep_savers.sql.pages import Page, listing_of, read_page
from everstep_savers.sql.parts import bound_texts
from everstep_savers.sql.pruning import link_steps, outlines_of, prune
from everstep_savers.sql.resealing import reseal
from everstep_savers.sql.statements import Statement, compiled

# Checkpoints, threads, and ancestors of a checkpoint that are read at once.
PAGE = 50
LINE = 50
THREADS_PAGE = 100
# Where values of a saver's are.
SEALED_TABLES = ("threads", "checkpoints", "channel_values", "checkpoint_writes")


class SQLSaver(OpensDatabase, ScriptOpening, MaintainedSaver[EncodedCommit]):
    """Keeps checkpoints in SQLite or Postgres.

    Made by `from_url`, or from an engine that the program owns and closes itself. Use it as an async context manager
    (in a plain script, as a sync one), or as it is: it opens at its first use, and `aclose` (`close`) closes it.
    """

    kind = "saver"

    def __init__(
        self,
        engine: AsyncEngine | Database,
        *,
        auto_migrate: bool = False,
        codec: Codec | None = None,
        **where: Unpack[Where],
    ) -> None:
        OpensDatabase.__init__(self, engine, auto_migrate=auto_migrate, **where)
        MaintainedSaver.__init__(self, codec=codec)

    @classmethod
    def from_url(
        cls,
        url: str,
        *,
        auto_migrate: bool = False,
        codec: Codec | None = None,
        synchronous: str = "FULL",
        **where: Unpack[Where],
    ) -> Self:
        """Make a saver for a database URL, such as ``sqlite:///threads.db`` or ``postgresql://host/name``.

        Args:
            url: An in-memory database, ``sqlite:///:memory:``, always has the newest schema.
            auto_migrate: Create or upgrade the schema when the saver opens.
            codec: Turns values into bytes and back.
            synchronous: SQLite's setting of that name; ``FULL`` syncs each commit to disk.
            where: See `Where`.
        """
        database = cls._database_of(parse_url(url), synchronous=synchronous, **where)
        return cls(database, auto_migrate=auto_migrate, codec=codec)

    @classmethod
    def from_conn_string(cls, conn_string: str, **options: Any) -> Self:
        """`from_url` as people who come from LangGraph know it.

        Args:
            conn_string: A URL; or the path of a SQLite database, which may be ``:memory:``.
            options: See `SQLSaver`; the schema is created or upgraded on opening, unless `auto_migrate` is False, and
                `setup` finds nothing to do.
        """
        url = conn_string if "://" in conn_string else f"sqlite:///{conn_string}"
        return cls.from_url(url, **{"auto_migrate": True, **options})

    def prepare(self, commit: Commit) -> EncodedCommit:
        return closed_commit(self.sealing, encode_commit(self.codec, commit))

    async def acommit(self, prepared: EncodedCommit) -> int:
        database = await self._opened()
        return await database.commit(prepared)

    def join(self, first: EncodedCommit, second: EncodedCommit) -> EncodedCommit | None:
        return joined(first, second)

    async def atake_back(self, thread_id: str, token: int, tasks: Sequence[TaskPlace]) -> None:
        database = await self._opened()
        guard, step = _take_back_steps(database.is_postgres)
        thread = {"thread_id": thread_id, "token": token, "now": _now()}
        steps = [(guard, thread), *((step, thread | task._asdict()) for task in tasks)]
        await database.write(steps, may_repeat=True)

    async def aget_tuple(self, config: Config) -> CheckpointTuple | None:
        page = await self._load(address_of(config))
        return next(page.tuples(self.codec, {}), None)

    async def aload(self, config: Config) -> Loaded:
        address = address_of(config)
        page = await self._load(address, has_thread=True)
        if address.checkpoint_id and not page.checkpoints:
            raise checkpoint_missing(address)
        chains: dict[str, Chain] = {}
        return Loaded(
            saved=next(page.tuples(self.codec, {}, chains), None),
            thread=decode_thread(self.codec, page.threads[0]) if page.threads else None,
            newest_version=page.newest_version,
            chains=chains,
        )

    async def alist(
        self,
        config: Config | None,
        *,
        filter: Mapping[str, Any] | None = None,
        before: Config | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        database = await self._opened()
        is_postgres = database.is_postgres
        listing = listing_of(config, filter, before, is_postgres=is_postgres)
        left = limit
        while left is None or left > 0:
            size = PAGE if left is None else min(PAGE, left)
            query = _page_query(listing.shape, is_postgres)
            page = await self._fetch(query, listing.values | {"limit": size})
            for found in listing.take(self.codec, page):
                yield found
            if len(page.checkpoints) < size:
                return
            left = None if left is None else left - size

    async def aget_delta_channel_history(
        self, *, config: Config, channels: Sequence[str]
    ) -> dict[str, DeltaChannelHistory]:
        walk = HistoryWalk(channels)
        page = await self._load(address_of(config))
        if not page.checkpoints:
            return walk.result()
        child = page.checkpoints[0]
        walk.start(values_of(self.codec, child, channels, page.finder(child)))
        seen: set[str] = set()
        while walk.open and child.parent_id and child.parent_id not in seen:
            line = await self._line(child, walk.open)
            rows = {row.checkpoint_id: row for row in line.checkpoints}
            while walk.open and (row := rows.get(child.parent_id or "")) and row.checkpoint_id not in seen:
                seen.add(row.checkpoint_id)
                visit_row(walk, self.codec, row, child, line.writes.get(row[:3], ()), line.finder(row))
                child = row
            if len(rows) < LINE:
                break
        return walk.result()

    async def aput(
        self,
        config: Config,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: Mapping[str, Version],
    ) -> dict[str, Any]:
        parent = address_of(config)
        try:
            await self._put(encode_put(self.codec, parent, checkpoint, metadata, new_versions))
        except ThreadConflict:
            # Another value is stored under one of these versions already, and may be shared.
            await self._put(encode_put(self.codec, parent, checkpoint, metadata, new_versions, is_apart=True))
        return parent._replace(checkpoint_id=checkpoint["id"]).config()

    async def aput_writes(
        self, config: Config, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        address = address_of(config)
        task = task_writes(address, writes, task_id, task_path)
        await self._put(encode_put_writes(self.codec, address, task))

    async def aget_thread(self, thread_id: str) -> ThreadRecord | None:
        page = await self._fetch(
            _thread_query(await self._dialect()), {"thread_id": checked_key("thread_id", thread_id)}
        )
        return decode_thread(self.codec, page.threads[0]) if page.threads else None

    async def alist_threads(
        self, *, status: str | None = None, limit: int | None = None
    ) -> AsyncIterator[ThreadRecord]:
        is_postgres = await self._dialect()
        values: dict[str, Any] = {"status": status}
        left = limit
        while left is None or left > 0:
            size = THREADS_PAGE if left is None else min(THREADS_PAGE, left)
            query = _threads_query(status is not None, "cursor_thread_id" in values, is_postgres)
            page = await self._fetch(query, values | {"limit": size})
            for row in page.threads:
                yield decode_thread(self.codec, row)
            if len(page.threads) < size:
                return
            last = page.threads[-1]
            values |= {"cursor_updated_at": last.updated_at, "cursor_thread_id": last.thread_id}
            left = None if left is None else left - size

    async def adelete_thread(self, thread_id: str) -> None:
        values = {"thread_id": checked_key("thread_id", thread_id), "now": _now()}
        await self._write(_delete_steps(await self._dialect()), values, may_repeat=True)

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        source, target = checked_key("thread_id", source_thread_id), checked_key("thread_id", target_thread_id)
        if isinstance(self.sealing, SealedCodec) and self.sealing.is_secret:
            await copy_sealed(await self._opened(), self.sealing, source, target, _now())
            return
        values = {"thread_id": source, "target": target, "now": _now(), "begin": maintenance.ENCRYPTED_BODY}
        if await self._database.fetch(_encrypted_query(await self._dialect()), values):
            raise copy_without_key(source, target)
        if not await self._write(_copy_steps(await self._dialect()), values):
            raise copy_refused(source_thread_id, target_thread_id)

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        runs = checked_runs(run_ids)
        is_postgres = await self._dialect()
        values = {"runs": bound_texts(runs, is_postgres=is_postgres), "now": _now()}
        query = _runs_query(is_postgres)
        for (thread_id,) in await self._database.fetch(query, values):
            _, outlines = await outlines_of(self._database, thread_id)
            doomed = {(each.checkpoint_ns, each.checkpoint_id) for each in outlines if each.run_id in runs}
            links = link_steps(thread_id, Lines(outlines).remove(doomed), is_postgres=is_postgres)
            guard, *rest = ((step, values | {"thread_id": thread_id}) for step in _delete_run_steps(is_postgres))
            await self._database.write([guard, *links, *rest], may_repeat=True)

    async def aprune(
        self,
        thread_ids: Sequence[str] | None = None,
        *,
        older_than: datetime | timedelta | None = None,
        keep_last: int = 1,
        strategy: Strategy | None = None,
        dry_run: bool = False,
    ) -> Pruned:
        policy = policy_of(thread_ids, older_than, keep_last, strategy)
        return await prune(await self._opened(), thread_ids, policy, now=_now(), dry_run=dry_run)

    async def areseal(self) -> int:
        """Put everything under the codec's current key that is not, and tell how many rows that were.

        Runs may go on meanwhile. Afterwards the codec can do without its older keys; values that were not encrypted
        are, if it may read them.

        Raises:
            CodecError: Something cannot be opened; names the place of the first such row. All others are done.
        """
        if not isinstance(self.sealing, SealedCodec):
            return 0
        return await reseal(await self._opened(), self.sealing, *SEALED_TABLES)

    async def araw_value(
        self, thread_id: str, channel: str, checkpoint_id: str | None = None, checkpoint_ns: str = ""
    ) -> Encoded | None:
        stored = await self._load(Address(thread_id, checkpoint_ns, checkpoint_id), is_opened=False)
        if not stored.checkpoints:
            return None
        try:
            found = stored.opened(self.sealing).raw_value(channel)
        except CodecError:
            return stored.raw_value(channel)
        is_unopened = found is not None and found[0].startswith(UNOPENED)
        return stored.raw_value(channel) if is_unopened else found

    async def _put(self, commit: EncodedCommit) -> None:
        await self.acommit(closed_commit(self.sealing, commit))

    async def _load(self, address: Address, *, has_thread: bool = False, is_opened: bool = True) -> Page:
        which = "named" if address.checkpoint_id else "newest" if address.checkpoint_ns else "head"
        query = _load_query(which, has_thread, await self._dialect())
        return await self._fetch(query, address._asdict(), is_opened=is_opened)

    async def _line(self, row: CheckpointRow, channels: Iterable[str]) -> Page:
        """A checkpoint and its nearest ancestors, with what is stored of some channels."""
        is_postgres = await self._dialect()
        texts = bound_texts(sorted(channels), is_postgres=is_postgres)
        values = {"thread_id": row.thread_id, "checkpoint_ns": row.checkpoint_ns, "checkpoint_id": row.checkpoint_id}
        return await self._fetch(_line_query(is_postgres), values | {"limit": LINE, "channels": texts})

    async def _fetch(self, query: Statement, values: Mapping[str, Any], *, is_opened: bool = True) -> Page:
        database = await self._opened()
        page = read_page(await database.fetch(query, values))
        return page.opened(self.sealing) if is_opened and self.sealing.seals else page

    async def _write(self, steps: Sequence[Statement], values: Mapping[str, Any], *, may_repeat: bool = False) -> bool:
        database = await self._opened()
        return await database.write([(step, values) for step in steps], may_repeat=may_repeat)

    async def _dialect(self) -> bool:
        return (await self._opened()).is_postgres


def _now() -> int:
    return time.time_ns() // 1000


@lru_cache
def _load_query(which: str, has_thread: bool, is_postgres: bool) -> Statement:
    query = queries.load_query(which, is_postgres=is_postgres, has_thread=has_thread)
    return compiled(query, is_postgres=is_postgres)


@lru_cache
def _line_query(is_postgres: bool) -> Statement:
    return compiled(queries.line_query(is_postgres=is_postgres), is_postgres=is_postgres)


@lru_cache(maxsize=512)
def _page_query(shape: queries.PageShape, is_postgres: bool) -> Statement:
    return compiled(queries.page_query(shape, is_postgres=is_postgres), is_postgres=is_postgres)


@lru_cache
def _thread_query(is_postgres: bool) -> Statement:
    return compiled(queries.thread_query(), is_postgres=is_postgres)


@lru_cache
def _threads_query(has_status: bool, has_cursor: bool, is_postgres: bool) -> Statement:
    query = queries.threads_query(has_status=has_status, has_cursor=has_cursor)
    return compiled(query, is_postgres=is_postgres)


@lru_cache
def _runs_query(is_postgres: bool) -> Statement:
    return compiled(maintenance.runs_query(is_postgres=is_postgres), is_postgres=is_postgres)


@lru_cache
def _delete_steps(is_postgres: bool) -> list[Statement]:
    return [compiled(step, is_postgres=is_postgres) for step in maintenance.delete_steps()]


@lru_cache
def _take_back_steps(is_postgres: bool) -> list[Statement]:
    return [compiled(step, is_postgres=is_postgres) for step in maintenance.take_back_steps()]


@lru_cache
def _encrypted_query(is_postgres: bool) -> Statement:
    return compiled(maintenance.encrypted_query(), is_postgres=is_postgres)


@lru_cache
def _copy_steps(is_postgres: bool) -> list[Statement]:
    return [compiled(step, is_postgres=is_postgres) for step in maintenance.copy_steps(is_postgres=is_postgres)]


@lru_cache
def _delete_run_steps(is_postgres: bool) -> list[Statement]:
    steps = maintenance.delete_run_steps(is_postgres=is_postgres)
    return [compiled(step, is_postgres=is_postgres) for step in steps]


# What people who come from LangGraph look for.
AsyncSqliteSaver = AsyncPostgresSaver = SQLSaver

"""Pruning: old checkpoints removed in batches, each a transaction of its own.

What may go is decided by `retention` from the outlines of a thread's checkpoints, read without a lock. A batch
takes effect only while the thread's token is the one it was decided under: a run may go on writing meanwhile, since
what it adds follows from the head, but one that was claimed since may start anywhere. Values lose their last user
only with the last batch, which removes them; until then a prune that was killed is simply repeated.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import orjson
from sqlalchemy import (
    ARRAY,
    BigInteger,
    Delete,
    Select,
    Table,
    Text,
    Update,
    and_,
    any_,
    bindparam,
    cast,
    delete,
    func,
    literal_column,
    select,
    tuple_,
    update,
)

from everstep_savers.addresses import checked_key
from everstep_savers.checkpoint import INTERRUPT, WRITES_IDX_MAP
from everstep_savers.metadata import with_descent
from everstep_savers.retention import Lines, Outline, OutlineRow, Place, Policy, Pruned, outline, removable
from everstep_savers.sql.database import Database
from everstep_savers.sql.maintenance import Step, delete_steps, delete_unused_values
from everstep_savers.sql.parts import bound_texts
from everstep_savers.sql.resealing import brought
from everstep_savers.sql.schema import checkpoint_writes, checkpoints, threads
from everstep_savers.sql.statements import Statement, compiled

# Threads that are looked at, and checkpoints that are removed, at once.
THREADS_AT_ONCE = 100
BATCH = 500

_THREAD = bindparam("thread_id", type_=Text())
_TOKEN = bindparam("token", type_=BigInteger())


class Candidate(NamedTuple):
    """A thread that may have something to prune, as it is seen."""

    thread_id: str
    token: int
    status: str
    updated_at: int
    has_input: bool


async def prune(
    database: Database, thread_ids: Sequence[str] | None, policy: Policy, *, now: int, dry_run: bool
) -> Pruned:
    """Prune threads, see `MaintainedSaver.aprune`."""
    removed: dict[str, int] = {}
    gone: list[str] = []
    async for thread in _candidates(database, thread_ids, policy):
        if policy.leaves_alone(has_input=thread.has_input):
            continue
        is_whole = policy.takes_whole(thread.status, thread.updated_at)
        head, outlines = await outlines_of(database, thread.thread_id)
        if is_whole:
            places = [(each.checkpoint_ns, each.checkpoint_id) for each in outlines]
        else:
            places = removable(outlines, head, policy)
        count = len(places)
        if is_whole:
            if not dry_run and not await _delete(database, thread, now, is_certain=policy.deletes):
                continue
            gone.append(thread.thread_id)
        elif not dry_run:
            count = await _remove(database, thread, outlines, places)
        if count:
            removed[thread.thread_id] = count
    return Pruned(removed, tuple(gone))


async def _candidates(database: Database, thread_ids: Sequence[str] | None, policy: Policy) -> AsyncIterator[Candidate]:
    if thread_ids is not None:
        names = [checked_key("thread_id", thread_id) for thread_id in dict.fromkeys(thread_ids)]
        query = _named_query(database.is_postgres)
        for start in range(0, len(names), THREADS_AT_ONCE):
            batch = bound_texts(names[start : start + THREADS_AT_ONCE], is_postgres=database.is_postgres)
            found = {row[0]: row for row in await database.fetch(query, {"ids": batch})}
            for thread_id in names[start : start + THREADS_AT_ONCE]:
                if thread_id in found:
                    yield Candidate(*found[thread_id])
        return
    query, after = _older_query(database.is_postgres), ""
    while page := await database.fetch(query, {"before": policy.before, "after": after, "limit": THREADS_AT_ONCE}):
        for row in page:
            yield Candidate(*row)
        after = page[-1][0]


async def outlines_of(database: Database, thread_id: str) -> tuple[str | None, list[Outline]]:
    """The head of a thread, and the outlines of all its checkpoints."""
    rows = await database.fetch(_outlines_query(database.is_postgres), {"thread_id": thread_id})
    return (rows[0][0] if rows else None), [outline(OutlineRow(*row)) for _, *row in rows]


async def _remove(database: Database, thread: Candidate, outlines: Sequence[Outline], places: Sequence[Place]) -> int:
    """Remove checkpoints until a run is claimed, which may need them; how many."""
    is_postgres, lines = database.is_postgres, Lines(outlines)
    for start in range(0, len(places), BATCH):
        batch = places[start : start + BATCH]
        values = {
            "thread_id": thread.thread_id,
            "token": thread.token,
            **_bound_places(batch, is_postgres=is_postgres),
        }
        guard, *rest = _remove_steps(is_postgres, start + BATCH >= len(places))
        links = link_steps(thread.thread_id, lines.remove(batch), is_postgres=is_postgres)
        if not await database.write([(guard, values), *links, *((step, values) for step in rest)], may_repeat=True):
            return start
    return len(places)


def link_steps(
    thread_id: str, orphans: Iterable[Outline], *, is_postgres: bool
) -> list[tuple[Statement, Mapping[str, Any]]]:
    """Name to the checkpoints that lose their parent the nearest ancestor that is left, see `Lines.remove`."""
    return [
        (
            _link(is_postgres),
            {
                "thread_id": thread_id,
                "ns": each.checkpoint_ns,
                "id": each.checkpoint_id,
                "new_metadata": with_descent(each.metadata, each.descent),
            },
        )
        for each in orphans
    ]


def link_update(*, is_postgres: bool) -> Update:
    """Replace the metadata of a checkpoint."""
    kept = checkpoints.c
    is_it = (kept.thread_id == _THREAD, kept.checkpoint_ns == bindparam("ns", type_=Text()))
    new = {"metadata": brought(kept.metadata, "new_", is_postgres=is_postgres)}
    return update(checkpoints).where(*is_it, kept.checkpoint_id == bindparam("id", type_=Text())).values(new)


async def _delete(database: Database, thread: Candidate, now: int, *, is_certain: bool) -> bool:
    values = {"thread_id": thread.thread_id, "token": thread.token, "now": now}
    steps = _delete_steps(database.is_postgres, not is_certain)
    return await database.write([(step, values) for step in steps])


def candidates_query(is_chosen: Any) -> Select[Any]:
    """Threads that are there, with what decides about them."""
    kept = threads.c
    has_input = kept.input_tag.is_not(None)
    query = select(kept.thread_id, kept.token, kept.status, kept.updated_at, has_input)
    return query.where(kept.deleted_at.is_(None), is_chosen)


def outlines_query() -> Select[Any]:
    """The outlines of a thread's checkpoints, each after the thread's head at that moment."""
    head = select(threads.c.head).where(threads.c.thread_id == _THREAD).scalar_subquery()
    kept, writes = checkpoints.c, checkpoint_writes.c
    asked: Select[Any] = select(literal_column("1")).where(
        writes.thread_id == kept.thread_id,
        writes.checkpoint_ns == kept.checkpoint_ns,
        writes.checkpoint_id == kept.checkpoint_id,
        writes.idx == literal_column(str(WRITES_IDX_MAP[INTERRUPT])),
    )
    return select(
        head,
        kept.checkpoint_ns,
        kept.checkpoint_id,
        kept.parent_id,
        kept.created_at,
        kept.source,
        kept.run_id,
        cast(kept.metadata, Text),
        # Only of subgraphs this is asked.
        and_(kept.checkpoint_ns != literal_column("''"), asked.exists()),
    ).where(kept.thread_id == _THREAD)


def remove_steps(*, is_postgres: bool, is_last: bool) -> list[Step]:
    """Remove some checkpoints of a thread with their writes; with the last batch the values that nothing uses now."""
    is_as_seen = (threads.c.thread_id == _THREAD) & (threads.c.token == _TOKEN) & threads.c.deleted_at.is_(None)
    counted = threads.c.removals + literal_column("1", BigInteger)
    guard = update(threads).where(is_as_seen).values(removals=counted).returning(threads.c.thread_id)
    rows = [_delete_places(table, is_postgres=is_postgres) for table in (checkpoint_writes, checkpoints)]
    return [guard, *rows, *([delete_unused_values(is_postgres=is_postgres)] if is_last else [])]


def _delete_places(table: Table, *, is_postgres: bool) -> Delete:
    place = tuple_(table.c.checkpoint_ns, table.c.checkpoint_id)
    doomed: Any
    if is_postgres:
        arrays = [bindparam(name, type_=ARRAY(Text())) for name in ("namespaces", "ids")]
        rows = func.unnest(*arrays).table_valued("ns", "id", name="doomed").render_derived()
        doomed = select(rows.c.ns, rows.c.id)
    else:
        each = func.json_each(bindparam("places", type_=Text())).table_valued("value", name="doomed")
        doomed = select(*(func.json_extract(each.c.value, literal_column(f"'$[{n}]'")) for n in range(2)))
    return delete(table).where(table.c.thread_id == _THREAD, place.in_(doomed))


def _bound_places(places: Sequence[Place], *, is_postgres: bool) -> dict[str, Any]:
    if is_postgres:
        return {"namespaces": [place[0] for place in places], "ids": [place[1] for place in places]}
    return {"places": orjson.dumps(places).decode()}


@lru_cache
def _named_query(is_postgres: bool) -> Statement:
    if is_postgres:
        is_named = threads.c.thread_id == any_(bindparam("ids", type_=ARRAY(Text())))
    else:
        ids = func.json_each(bindparam("ids", type_=Text())).table_valued("value", name="named")
        is_named = threads.c.thread_id.in_(select(ids.c.value))
    return compiled(candidates_query(is_named), is_postgres=is_postgres)


@lru_cache
def _older_query(is_postgres: bool) -> Statement:
    kept = threads.c
    is_older = (kept.created_at < bindparam("before", type_=BigInteger())) & (
        kept.thread_id > bindparam("after", type_=Text())
    )
    page = candidates_query(is_older).order_by(kept.thread_id).limit(bindparam("limit", type_=BigInteger))
    return compiled(page, is_postgres=is_postgres)


@lru_cache
def _outlines_query(is_postgres: bool) -> Statement:
    return compiled(outlines_query(), is_postgres=is_postgres)


@lru_cache
def _link(is_postgres: bool) -> Statement:
    return compiled(link_update(is_postgres=is_postgres), is_postgres=is_postgres)


@lru_cache
def _remove_steps(is_postgres: bool, is_last: bool) -> list[Statement]:
    steps = remove_steps(is_postgres=is_postgres, is_last=is_last)
    return [compiled(step, is_postgres=is_postgres) for step in steps]


@lru_cache
def _delete_steps(is_postgres: bool, is_as_seen: bool) -> list[Statement]:
    return [compiled(step, is_postgres=is_postgres) for step in delete_steps(is_as_seen=is_as_seen)]

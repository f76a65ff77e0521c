"""Statements that remove and copy whole threads, as Core expressions.

Pure, see `statements`. Each function gives the steps of one transaction on one thread. The first step changes
the thread's row and returns it; if it returns nothing, there is nothing to do and the rest is left out.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Delete,
    Insert,
    LargeBinary,
    Select,
    Table,
    Text,
    Update,
    bindparam,
    case,
    delete,
    func,
    literal_column,
    null,
    select,
    tuple_,
    union,
    union_all,
    update,
)
from sqlalchemy.dialects import postgresql, sqlite

from everstep_savers.codec import ENCRYPTED, SEALED_BODY
from everstep_savers.sql.parts import is_among, needed_values
from everstep_savers.sql.schema import channel_values, checkpoint_writes, checkpoints, threads
from everstep_savers.sql.statements import ROW_TABLES

Step = Update | Delete | Insert

_ONE: ColumnElement[int] = literal_column("1", BigInteger)
_TARGET = bindparam("target", type_=Text())
_THREAD = bindparam("thread_id", type_=Text())
ENCRYPTED_BODY = SEALED_BODY + ENCRYPTED.encode()
# What changes of a thread's row whenever anything of the thread does.
SEEN = ("token", "updated_at", "removals")
_INPUT = ("input_tag", "input_data")
_NOW = bindparam("now", type_=BigInteger())


def delete_steps(*, is_as_seen: bool = False) -> list[Step]:
    """Remove everything of a thread but a row that remembers its tokens.

    Args:
        is_as_seen: Only if no run has claimed it since, by its ``token``.
    """
    emptied = update(threads).where(threads.c.thread_id == _THREAD, threads.c.deleted_at.is_(None))
    if is_as_seen:
        emptied = emptied.where(threads.c.token == bindparam("token", type_=BigInteger()))
    return [
        emptied.values(_tombstone()).returning(threads.c.thread_id),
        *(delete(table).where(table.c.thread_id == _THREAD) for table in ROW_TABLES),
    ]


def take_back_steps() -> list[Step]:
    """Remove the results of a task, if the thread still has this token."""
    kept, writes = threads.c, checkpoint_writes.c
    guard = update(threads).where(
        kept.thread_id == _THREAD, kept.deleted_at.is_(None), kept.token == bindparam("token", type_=BigInteger())
    )
    names = (writes.checkpoint_ns, writes.checkpoint_id, writes.task_id)
    return [
        guard.values(updated_at=_NOW).returning(kept.thread_id),
        delete(checkpoint_writes).where(
            writes.thread_id == _THREAD,
            *(column == bindparam(column.name, type_=Text()) for column in names),
            writes.idx >= literal_column("0"),
        ),
    ]


def copy_steps(*, is_postgres: bool) -> list[Step]:
    """Copy a thread to one that does not exist; the copy of a running thread stands still."""
    return [copy_guard(is_postgres=is_postgres), *(_copied_rows(table) for table in ROW_TABLES)]


def copy_guard(*, is_postgres: bool, is_as_seen: bool = False) -> Insert:
    """Copy a thread's row, and keep others from writing to it until the transaction ends.

    Args:
        is_postgres: The dialect, Postgres or SQLite.
        is_as_seen: Only if nothing of the thread has changed since, by the columns `SEEN`.
    """
    both = select(threads).where(threads.c.thread_id.in_((_THREAD, _TARGET))).order_by(threads.c.thread_id)
    kept = both.with_for_update().cte("locked").c if is_postgres else threads.c
    names = ("head", "graph", "error", "input_tag", "input_data", "newest_version", "starting_point")
    row: dict[str, Any] = {name: kept[name] for name in names}
    row |= {
        "thread_id": _TARGET,
        "status": case((kept.status == _text("running"), _text("drained")), else_=kept.status),
        "token": literal_column("0", BigInteger),
        "created_at": _NOW,
        "updated_at": _NOW,
    }
    source = select(*row.values()).where(kept.thread_id == _THREAD, kept.deleted_at.is_(None))
    if is_as_seen:
        source = source.where(*(kept[name] == bindparam(f"seen_{name}", type_=BigInteger()) for name in SEEN))
    insert = postgresql.insert if is_postgres else sqlite.insert
    copied = insert(threads).from_select(list(row), source)
    revived: dict[str, Any] = {name: copied.excluded[name] for name in row if name not in ("thread_id", "token")}
    revived["deleted_at"] = null()
    guard: Insert = copied.on_conflict_do_update(
        index_elements=[threads.c.thread_id], set_=revived, where=threads.c.deleted_at.is_not(None)
    ).returning(threads.c.thread_id)
    return guard


def encrypted_query() -> Any:
    """Anything of a thread that is encrypted: a checkpoint whose body begins with `ENCRYPTED_BODY`, or the input."""
    begin = func.substr(checkpoints.c.body, literal_column("1"), literal_column(str(len(ENCRYPTED_BODY))))
    return union_all(
        select(_ONE).where(checkpoints.c.thread_id == _THREAD, begin == bindparam("begin", type_=LargeBinary())),
        select(_ONE).where(threads.c.thread_id == _THREAD, threads.c.input_tag.like(_text(f"{ENCRYPTED}%"))),
    ).limit(_ONE)


def runs_query(*, is_postgres: bool) -> Any:
    """The threads that hold anything of some runs."""
    return union(
        *(select(table.c.thread_id).where(_is_of_runs(table, is_postgres)) for table in (checkpoints, threads))
    )


def delete_run_steps(*, is_postgres: bool) -> list[Step]:
    """Remove the checkpoints of some runs from a thread, and what only they used.

    The head moves back to the newest checkpoint that is left. A run under way loses its token if it is among them,
    or goes on from a head that is removed, or from states of subgraphs: it would name values that are gone.
    """
    is_here, kept = checkpoints.c.thread_id == _THREAD, threads.c
    is_doomed = is_here & _is_of_runs(checkpoints, is_postgres)
    doomed = select(checkpoints.c.checkpoint_ns, checkpoints.c.checkpoint_id).where(is_doomed)
    writes = checkpoint_writes.c
    is_root = is_here & (checkpoints.c.checkpoint_ns == _text(""))
    head = select(func.max(checkpoints.c.checkpoint_id)).where(is_root)
    has_head = select(_ONE).where(is_root, checkpoints.c.checkpoint_id == kept.head)
    is_theirs = _is_of_runs(threads, is_postgres)
    has_states = select(_ONE).where(is_doomed, checkpoints.c.checkpoint_ns != _text(""))
    loses = is_theirs | has_head.where(_is_of_runs(checkpoints, is_postgres)).exists()
    loses |= (kept.status == _text("running")) & has_states.exists()
    token = case((loses, kept.token + _ONE), else_=kept.token)
    owner = case((loses, null()), else_=kept.owner)  # by which the run is told what has happened
    left: dict[str, Any] = {name: case((is_theirs, null()), else_=kept[name]) for name in (*_INPUT, "starting_point")}
    left |= {"token": token, "owner": owner}
    this = update(threads).where(kept.thread_id == _THREAD, kept.deleted_at.is_(None))
    return [
        this.values(removals=kept.removals + _ONE, updated_at=_NOW, **left).returning(kept.thread_id),
        delete(checkpoint_writes).where(
            writes.thread_id == _THREAD, tuple_(writes.checkpoint_ns, writes.checkpoint_id).in_(doomed)
        ),
        delete(checkpoints).where(is_doomed),
        delete_unused_values(is_postgres=is_postgres),
        this.where(~has_head.exists()).values(head=head.scalar_subquery(), starting_point=null()),
        this.where(~select(_ONE).where(is_here).exists()).values(_tombstone()),
    ]


def delete_unused_values(*, is_postgres: bool) -> Step:
    """Remove the values of a thread that none of its checkpoints shows, in whole or in part."""
    values = channel_values.c
    return delete(channel_values).where(
        values.thread_id == _THREAD,
        tuple_(values.checkpoint_ns, values.channel, values.version).not_in(_values_in_use(is_postgres)),
    )


def _tombstone() -> dict[str, Any]:
    kept = threads.c
    names = ("head", "graph", "owner", "lease_expires_at", "run_id", "error", *_INPUT, "starting_point")
    return {
        "token": kept.token + _ONE,
        "generation": kept.token + _ONE,
        "deleted_at": _NOW,
        "newest_version": literal_column("0", BigInteger),
        **{name: null() for name in names},
    }


def _copied_rows(table: Table) -> Insert:
    names = [column.name for column in table.columns if column.name != "thread_id"]
    rows = select(_TARGET, *(table.c[name] for name in names)).where(table.c.thread_id == _THREAD)
    return table.insert().from_select(["thread_id", *names], rows)


def _is_of_runs(table: Table, is_postgres: bool) -> ColumnElement[bool]:
    return is_among(table.c.run_id, "runs", is_postgres=is_postgres)


def _values_in_use(is_postgres: bool) -> Select[Any]:
    left = select(checkpoints).where(checkpoints.c.thread_id == _THREAD).subquery("left_over")
    needed = needed_values(left, is_postgres=is_postgres).c
    return select(needed.checkpoint_ns, needed.channel, needed.version)


def _text(literal: str) -> ColumnElement[str]:
    return literal_column(f"'{literal}'", Text)

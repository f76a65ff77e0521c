"""Statements of a commit, as Core expressions.

Pure: built from table definitions and counts, tested by compiling them. A thread's row guards everything
else: the insert of any other row follows from the change of the thread's row, so that a refused commit
stores nothing. Only text and argument order of a compiled statement are used at run time, on the raw driver.

Four ways to change a thread's row: a *step* of the run that holds the token; a run that *takes* a thread it
has seen; a run that *makes* a thread which has no row; and the *plain* methods, which ask for no token.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from sqlalchemy import (
    ARRAY,
    CTE,
    JSON,
    BigInteger,
    ColumnElement,
    Dialect,
    FromClause,
    Insert,
    Select,
    Table,
    Text,
    Update,
    any_,
    bindparam,
    case,
    cast,
    collate,
    column,
    func,
    literal_column,
    null,
    select,
    true,
    union_all,
    update,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.dialects.postgresql import asyncpg
from sqlalchemy.dialects.sqlite import pysqlite
from sqlalchemy.types import TypeEngine

from everstep_savers.fencing import ThreadState
from everstep_savers.rows import EncodedCommit
from everstep_savers.sql.schema import (
    alembic_version,
    channel_values,
    checkpoint_writes,
    checkpoints,
    threads,
)

ROW_TABLES: tuple[Table, ...] = (checkpoints, channel_values, checkpoint_writes)

# What a commit brings to the thread's row, in the order of `change_of`; a claim brings more.
_CHANGE = ("thread_id", "token", "head", "status", "error", "newest_version", "updated_at")
_CLAIM = (
    "seen_head",
    "run_id",
    "graph",
    "attempt",
    "owner",
    "input_tag",
    "input_data",
    "starting_point",
    "seen_removals",
)
FIELDS: Mapping[str, tuple[str, ...]] = {
    "step": _CHANGE,
    "take": _CHANGE + _CLAIM,
    "make": _CHANGE + _CLAIM,
    "plain": _CHANGE,
}

_DIALECTS: Mapping[bool, Dialect] = {True: asyncpg.dialect(), False: pysqlite.dialect()}  # type: ignore[no-untyped-call]

# Written into the text: an argument less.
_ZERO: ColumnElement[int] = literal_column("0", BigInteger)
_ONE: ColumnElement[int] = literal_column("1", BigInteger)

# Where values come from: bound one by one, or the columns of an array of rows.
Values = Mapping[str, ColumnElement[Any]]


@dataclass(frozen=True, slots=True)
class Statement:
    """Text for a raw driver connection, and the names of its positional arguments."""

    text: str
    names: tuple[str, ...]
    constants: Mapping[str, Any]

    def arguments(self, values: Mapping[str, Any]) -> list[Any]:
        """The arguments in their order."""
        return [values[name] if name in values else self.constants[name] for name in self.names]


class Shape(NamedTuple):
    """How many rows of each kind a commit statement takes: 0, 1 (bound), or 2 for any number (arrays)."""

    step: int = 0
    take: int = 0
    make: int = 0
    plain: int = 0
    checkpoints: int = 0
    channel_values: int = 0
    checkpoint_writes: int = 0


class _Incoming(NamedTuple):
    """Values that a statement brings, and the array they are columns of, if they are many."""

    values: Values
    source: FromClause | None


def compiled(statement: Any, *, is_postgres: bool) -> Statement:
    """Compile for asyncpg or for sqlite3."""
    result = statement.compile(dialect=_DIALECTS[is_postgres])
    constants = {name: value for name, value in result.params.items() if value is not None}
    return Statement(str(result), tuple(result.positiontup or ()), constants)


def kind_of(commit: EncodedCommit) -> str:
    """In which of the four ways a commit changes the thread's row."""
    if not commit.is_fenced:
        return "plain"
    if commit.claim is None:
        return "step"
    return "make" if commit.claim.seen_token is None else "take"


def change_of(commit: EncodedCommit) -> tuple[Any, ...]:
    """What a commit brings to the thread's row, in the order of `FIELDS`."""
    claim = commit.claim
    change = (
        commit.thread_id,
        commit.token if claim is None else claim.seen_token,
        commit.head,
        commit.status,
        commit.error,
        commit.newest_version,
        commit.at,
    )
    if claim is None:
        return change
    return (
        *change,
        claim.seen_head,
        claim.run_id,
        claim.graph,
        claim.attempt,
        claim.nonce,
        claim.input_tag,
        claim.input_data,
        claim.starting_point,
        claim.seen_removals,
    )


def change_statement(kind: str) -> Update | Insert:
    """The change of one thread's row on SQLite; returns its token if the commit is let through."""
    new = _Incoming(_bound(kind, FIELDS[kind], _thread_type), None)
    return _changed(kind, new, sqlite.insert, None).returning(threads.c.token)


def row_statement(table: Table) -> Insert:
    """The insert of one row of a table on SQLite."""
    values = _bound(table.name, table.c.keys(), lambda name: table.c[name].type)
    return _with_conflict(sqlite.insert(table).values(dict(values)), table)


def commit_statement(shape: Shape) -> Select[Any]:
    """A group of commits as one Postgres statement; returns thread and token of those let through.

    In a group, the rows of threads that exist are locked first, in the order of their ids, and those of new
    threads are inserted in that order. Two groups can only wait for each other when a thread is created in
    between; Postgres then breaks the knot, and the loser's commits are tried one by one.
    """
    locked = _locked_threads() if sum(shape[:4]) > 1 else None
    guards: list[CTE] = []
    for kind, count in zip(FIELDS, shape, strict=False):
        if count:
            new = _incoming(kind, FIELDS[kind], _thread_type, count)
            change = _changed(kind, new, postgresql.insert, locked)
            guards.append(change.returning(threads.c.thread_id, threads.c.token).cte(f"{kind}_let_through"))
    guard = guards[0]
    if len(guards) > 1:
        guard = union_all(*(select(each.c.thread_id, each.c.token) for each in guards)).cte("let_through")
    inserts = [
        _guarded_insert(table, count, guard) for table, count in zip(ROW_TABLES, shape[4:], strict=True) if count
    ]
    return select(guard.c.thread_id, guard.c.token).add_cte(*inserts)


def state_query() -> Select[Any]:
    """What guards a thread: token, head, generation, when it was deleted, and who claimed it last."""
    kept = threads.c
    query = select(kept.token, kept.head, kept.generation, kept.deleted_at, kept.owner)
    return query.where(kept.thread_id == bindparam("thread_id", type_=Text()))


def thread_state(
    token: int, head: str | None, generation: int, deleted_at: int | None, owner: str | None
) -> ThreadState:
    """What guards a thread, of a row of `state_query`."""
    return ThreadState(token, head, generation, is_deleted=deleted_at is not None, is_owned=owner is not None)


def revision_query() -> Select[Any]:
    """The revision of the schema, if there is one."""
    return select(alembic_version.c.version_num)


def _changed(kind: str, new: _Incoming, insert: Callable[[Table], Any], locked: CTE | None) -> Update | Insert:
    if kind == "step":
        return _update(new, _step_changes(new.values), [], locked)
    if kind == "take":
        removals = threads.c.removals
        is_as_seen = threads.c.head.is_not_distinct_from(new.values["seen_head"])
        is_as_seen &= removals == func.coalesce(new.values["seen_removals"], removals)
        changes = _step_changes(new.values) | _claim_changes(new.values, threads.c.token + _ONE)
        return _update(new, changes, [is_as_seen], locked)
    return _made(new, insert) if kind == "make" else _plainly_put(new, insert)


def _update(
    new: _Incoming, changes: dict[str, Any], conditions: list[ColumnElement[bool]], locked: CTE | None
) -> Update:
    conditions = [
        threads.c.thread_id == new.values["thread_id"],
        threads.c.token == new.values["token"],
        *conditions,
    ]
    if locked is not None:
        conditions.append(threads.c.thread_id == locked.c.thread_id)
    return update(threads).where(*conditions).values(changes)


def _step_changes(new: Values) -> dict[str, ColumnElement[Any]]:
    kept = threads.c
    moves_head = new["head"].is_not(None)
    return {
        "head": func.coalesce(new["head"], kept.head),
        "status": func.coalesce(new["status"], kept.status),
        "error": case((new["status"].is_(None), kept.error), else_=new["error"]),
        # The input is kept until it has a checkpoint of its own.
        "input_tag": case((moves_head, null()), else_=kept.input_tag),
        "input_data": case((moves_head, null()), else_=kept.input_data),
        "newest_version": _greater(new["newest_version"], kept.newest_version),
        "updated_at": new["updated_at"],
    }


def _claim_changes(new: Values, token: Any) -> dict[str, Any]:
    names = ("run_id", "graph", "attempt", "owner", "input_tag", "input_data", "starting_point")
    return {"token": token} | {name: new[name] for name in names}


def _made(new: _Incoming, insert: Callable[[Table], Any]) -> Insert:
    values = new.values
    row = {name: values[name] for name in ("thread_id", "head", "status", "error", "newest_version")}
    row |= _claim_changes(values, _ONE)
    row |= {"created_at": values["updated_at"], "updated_at": values["updated_at"]}
    made = _insert(insert, row, new.source)
    revived = {name: made.excluded[name] for name in row if name not in ("thread_id", "token")}
    revived |= {"token": threads.c.token + _ONE, "deleted_at": null()}
    result: Insert = made.on_conflict_do_update(
        index_elements=[threads.c.thread_id], set_=revived, where=threads.c.deleted_at.is_not(None)
    )
    return result


def _plainly_put(new: _Incoming, insert: Callable[[Table], Any]) -> Insert:
    values = new.values
    row: dict[str, Any] = {name: values[name] for name in ("thread_id", "head", "newest_version")}
    row |= {"token": _ZERO, "status": literal_column("'done'", Text)}
    row |= {"created_at": values["updated_at"], "updated_at": values["updated_at"]}
    put = _insert(insert, row, new.source)
    brought, kept = put.excluded, threads.c
    moves_head = brought.head.is_not(None)
    changes = {
        "head": case((moves_head & (kept.head.is_(None) | (kept.head < brought.head)), brought.head), else_=kept.head),
        "input_tag": case((moves_head, null()), else_=kept.input_tag),
        "input_data": case((moves_head, null()), else_=kept.input_data),
        "newest_version": _greater(brought.newest_version, kept.newest_version),
        "updated_at": brought.updated_at,
        "created_at": case((kept.deleted_at.is_(None), kept.created_at), else_=brought.created_at),
        "deleted_at": null(),
    }
    result: Insert = put.on_conflict_do_update(index_elements=[kept.thread_id], set_=changes)
    return result


def _insert(insert: Callable[[Table], Any], row: Mapping[str, Any], source: FromClause | None) -> Any:
    rows = select(*row.values())
    if source is not None:
        # As `_locked_threads` does, whatever the collation of the database.
        rows = rows.select_from(source).order_by(collate(source.c.thread_id, "C"))
    # SQLite takes "ON CONFLICT" after a SELECT for a join condition unless there is a WHERE.
    return insert(threads).from_select(list(row), rows.where(true()))


def _guarded_insert(table: Table, count: int, guard: CTE) -> CTE:
    new = _incoming(table.name, table.c.keys(), lambda name: table.c[name].type, count)
    columns = [
        cast(value, JSON) if isinstance(table.c[name].type, JSON) else value for name, value in new.values.items()
    ]
    rows = select(*columns).select_from(guard if new.source is None else new.source.join(guard, true()))
    rows = rows.where(guard.c.thread_id == new.values["thread_id"])
    insert = postgresql.insert(table).from_select(table.c.keys(), rows)
    return _with_conflict(insert, table).cte(f"new_{table.name}")


def _with_conflict(insert: Any, table: Table) -> Insert:
    """What happens to a row whose key is there already.

    A checkpoint is replaced. A value may only be stored again as it is, since other checkpoints may share it:
    anything else fails on the tag, which is not nullable. Special writes are replaced, others stay.
    """
    kept, brought = table.c, insert.excluded
    rest = [column for column in kept if not column.primary_key]
    changes: dict[str, Any] = {column.name: brought[column.name] for column in rest}
    where = None
    if table is channel_values:
        is_same = (kept.tag == brought.tag) & (kept.data == brought.data)
        is_same &= kept.base.is_not_distinct_from(brought.base)
        changes = {"tag": case((is_same, brought.tag), else_=null())}
    elif table is checkpoint_writes:
        where = brought.idx < _ZERO
    result: Insert = insert.on_conflict_do_update(index_elements=list(table.primary_key), set_=changes, where=where)
    return result


def _locked_threads() -> CTE:
    ids = bindparam("group_ids", type_=ARRAY(Text()))
    return (
        select(threads.c.thread_id)
        .where(threads.c.thread_id == any_(ids))
        .order_by(threads.c.thread_id)
        .with_for_update()
        .cte("locked")
    )


def _incoming(prefix: str, names: Sequence[str], type_of: Callable[[str], TypeEngine[Any]], count: int) -> _Incoming:
    if count == 1:
        return _Incoming(_bound(prefix, names, type_of), None)
    arrays = [bindparam(f"{prefix}_{name}", type_=ARRAY(_bare(type_of(name)))) for name in names]
    columns = [column(name, _bare(type_of(name))) for name in names]
    source = func.unnest(*arrays).table_valued(*columns, name=f"{prefix}_rows").render_derived()
    return _Incoming({name: source.c[name] for name in names}, source)


def _bound(prefix: str, names: Sequence[str], type_of: Callable[[str], TypeEngine[Any]]) -> Values:
    return {name: bindparam(f"{prefix}_{name}", type_=_bare(type_of(name))) for name in names}


def _bare(kind: TypeEngine[Any]) -> TypeEngine[Any]:
    """The type in which a value is bound: plain text for keys and for JSON."""
    return Text() if isinstance(kind, Text | JSON) else kind


def _thread_type(name: str) -> TypeEngine[Any]:
    return threads.c[name.removeprefix("seen_")].type


def _greater(left: Any, right: Any) -> ColumnElement[Any]:
    # Postgres and SQLite have different functions for this.
    return case((left > right, left), else_=right)

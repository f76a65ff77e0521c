"""The statements of commits and queries, by what they compile to for both databases."""

from __future__ import annotations

import itertools
import re
from typing import Any

import pytest

from everstep_savers.checkpoint import Claim, Commit, TaskWrites, ThreadRecord
from everstep_savers.codec import default_codec
from everstep_savers.encoding import encode_commit
from everstep_savers.rows import CheckpointRow, EncodedCommit, ValueRow, WriteRow
from everstep_savers.sql import include_object, maintenance, queries
from everstep_savers.sql.postgres import _statement_of
from everstep_savers.sql.queries import PageShape
from everstep_savers.sql.schema import (
    alembic_version,
    channel_values,
    checkpoint_writes,
    checkpoints,
    metadata,
    threads,
)
from everstep_savers.sql.statements import (
    FIELDS,
    ROW_TABLES,
    Shape,
    change_of,
    change_statement,
    commit_statement,
    compiled,
    kind_of,
    row_statement,
)
from tests.conformance.records import new

SEEN = ThreadRecord("t", "head", "done", 7)
SHAPES = [Shape(*counts) for counts in itertools.product((0, 1, 2), repeat=4) if sum(counts)]


def encoded(commit: Commit, *, is_fenced: bool = True) -> EncodedCommit:
    return encode_commit(default_codec, commit, is_fenced=is_fenced)


COMMITS = {
    "step": encoded(Commit("t", token=3)),
    "take": encoded(Commit("t", claim=Claim(SEEN, "run", "graph"))),
    "make": encoded(Commit("t", claim=Claim(None, "run", "graph"))),
    "plain": encoded(Commit("t"), is_fenced=False),
}


@pytest.mark.parametrize("kind", FIELDS)
def test_a_commit_is_of_one_kind_and_brings_its_fields(kind: str) -> None:
    commit = COMMITS[kind]

    assert kind_of(commit) == kind
    brought = dict(zip(FIELDS[kind], change_of(commit), strict=kind in ("take", "make")))
    assert brought["thread_id"] == "t"
    assert brought["token"] == {"step": 3, "take": 7, "make": None, "plain": 0}[kind]


@pytest.mark.parametrize("kind", ["step", "take"])
def test_a_run_that_holds_or_saw_a_token_only_updates(kind: str) -> None:
    text = compiled(change_statement(kind), is_postgres=False).text

    assert text.startswith("UPDATE threads SET ")
    assert " WHERE threads.thread_id = ? AND threads.token = ?" in text
    assert (" AND threads.head IS ?" in text) == (kind == "take")
    assert text.endswith(" RETURNING token")


def test_a_new_thread_is_made_only_where_none_lives() -> None:
    text = compiled(change_statement("make"), is_postgres=False).text

    assert text.startswith("INSERT INTO threads ")
    assert text.endswith(" WHERE threads.deleted_at IS NOT NULL RETURNING token")


@pytest.mark.parametrize(
    ("table", "row"),
    [(checkpoints, CheckpointRow), (channel_values, ValueRow), (checkpoint_writes, WriteRow)],
    ids=lambda each: getattr(each, "name", ""),
)
def test_a_row_has_the_columns_of_its_table_in_their_order(table: Any, row: Any) -> None:
    names = tuple(table.c.keys())

    assert row._fields == names
    assert compiled(row_statement(table), is_postgres=False).names == tuple(f"{table.name}_{name}" for name in names)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_every_row_of_a_commit_follows_from_the_change_of_its_thread(shape: Shape) -> None:
    full = shape._replace(checkpoints=1, channel_values=2, checkpoint_writes=2)
    text = compiled(commit_statement(full), is_postgres=True).text

    guards = re.findall(r"(\w+) AS \n\((?:UPDATE|INSERT INTO) threads", text)
    guard = guards[0] if len(guards) == 1 else "let_through"
    for table in ROW_TABLES:
        (insert,) = re.findall(rf"INSERT INTO {table.name} .*?ON CONFLICT", text, re.DOTALL)
        assert f"WHERE {guard}.thread_id = " in insert
    assert text.endswith(f"SELECT {guard}.thread_id, {guard}.token \nFROM {guard}")


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_group_touches_rows_of_threads_in_one_order(shape: Shape) -> None:
    text = compiled(commit_statement(shape), is_postgres=True).text

    assert ("ORDER BY threads.thread_id FOR UPDATE" in text) == (sum(shape) > 1 and bool(shape.step or shape.take))
    for insert in re.findall(r"INSERT INTO threads .*?ON CONFLICT", text, re.DOTALL):
        assert "unnest" not in insert or re.search(r'ORDER BY anon_\d+.thread_id COLLATE "C" ON CONFLICT', insert)


def test_a_small_step_binds_each_value_once_and_locks_nothing() -> None:
    checkpoint = new({"n": 1})
    text, arguments = _statement_of([encoded(Commit("t", token=3, checkpoints=(checkpoint,)))])

    assert "unnest" not in text
    assert "FOR UPDATE" not in text
    assert len(arguments) == len(FIELDS["step"]) + len(checkpoints.c) + len(channel_values.c)


def test_arguments_follow_their_names() -> None:
    commits = [
        encoded(
            Commit(
                f"t-{number}",
                token=number,
                checkpoints=(new({"a": number, "b": number}),),
                writes=(TaskWrites("", "id", "task", [("a", number)]),),
            )
        )
        for number in range(3)
    ]

    text, arguments = _statement_of(commits)

    numbered = {int(n) for n in re.findall(r"\$(\d+)", text)}
    assert numbered == set(range(1, len(arguments) + 1))
    assert ["t-0", "t-1", "t-2"] in [list(each) for each in arguments]
    assert (0, 1, 2) in arguments


def test_a_value_may_only_be_stored_again_as_it_is() -> None:
    for is_postgres in (True, False):
        statement = row_statement(channel_values) if not is_postgres else commit_statement(Shape(1, 0, 0, 0, 0, 1))
        text = compiled(statement, is_postgres=is_postgres).text
        is_same = "IS NOT DISTINCT FROM" if is_postgres else "IS"
        assert (
            "DO UPDATE SET tag = CASE WHEN (channel_values.tag = excluded.tag AND channel_values.data = "
            f"excluded.data AND channel_values.base {is_same} excluded.base) THEN excluded.tag ELSE NULL END"
        ) in text


def test_only_special_writes_replace_earlier_ones() -> None:
    text = compiled(row_statement(checkpoint_writes), is_postgres=False).text

    assert text.endswith("WHERE excluded.idx < 0")


HOSTILE = "'; DROP TABLE threads; --"


def every_query() -> list[tuple[Any, bool]]:
    made: list[tuple[Any, bool]] = []
    for is_postgres in (True, False):
        made += [
            (queries.load_query(which, is_postgres=is_postgres, has_thread=has_thread), is_postgres)
            for which in ("named", "head", "newest")
            for has_thread in (True, False)
        ]
        shapes = [
            PageShape(),
            PageShape(has_thread=True, has_cursor=True),
            PageShape(True, True, True, True, True, ("source", "step"), ("text", "real", "object"), True),
        ]
        made += [(queries.page_query(shape, is_postgres=is_postgres), is_postgres) for shape in shapes]
        made += [
            (queries.thread_query(), is_postgres),
            (queries.threads_query(has_status=True, has_cursor=True), is_postgres),
            (maintenance.runs_query(is_postgres=is_postgres), is_postgres),
        ]
        steps = [
            *maintenance.delete_steps(),
            *maintenance.copy_steps(is_postgres=is_postgres),
            *maintenance.delete_run_steps(is_postgres=is_postgres),
        ]
        made += [(step, is_postgres) for step in steps]
    return made


@pytest.mark.parametrize(("query", "is_postgres"), every_query())
def test_every_argument_of_a_query_is_bound(query: Any, is_postgres: bool) -> None:
    statement = compiled(query, is_postgres=is_postgres)

    assert statement.names
    values = {name: HOSTILE for name in statement.names if name not in statement.constants}
    arguments = statement.arguments(values)
    places = re.findall(r"\$\d+", statement.text) if is_postgres else re.findall(r"\?", statement.text)
    assert len(set(places) if is_postgres else places) == len(arguments)
    assert HOSTILE not in statement.text
    assert arguments.count(HOSTILE) >= 1


def test_thread_id_leads_every_primary_key_of_what_belongs_to_threads() -> None:
    leading = {table.name: next(iter(table.primary_key)).name for table in metadata.sorted_tables}
    assert {name for name, column in leading.items() if column != "thread_id"} == {
        "store_items",
        "store_vectors",
        "cache_entries",
    }


def test_a_host_application_leaves_our_tables_alone() -> None:
    assert not include_object(threads, "threads", "table", False, None)
    assert not include_object(alembic_version, "everstep_alembic_version", "table", True, None)
    assert include_object(None, "orders", "table", True, None)
    assert include_object(None, "head", "column", True, None)

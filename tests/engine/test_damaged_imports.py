"""Databases of LangGraph's that are damaged, or written to meanwhile: the wrong is named, all else brought over."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import asyncpg
import ormsgpack
import pytest

from everstep.ops.cli import main
from everstep.ops.importing import Import, Imported, import_langgraph
from everstep.ops.langgraph_rows import TheirDatabase, TheirThread
from everstep.ops.langgraph_values import StoredValues
from everstep_savers.codec import default_codec
from everstep_savers.memory import InMemorySaver
from everstep_savers.sql.saver import SQLSaver
from tests.conftest import run_apart
from tests.data.langgraph import graphs
from tests.data.langgraph.graphs import GRAPHS, TASKS

DATA = Path(__file__).parent.parent / "data" / "langgraph"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file that LangGraph's SQLite saver has written."""
    return Path(shutil.copy(DATA / "threads.sqlite", tmp_path / "theirs.db"))


@pytest.fixture
async def postgres(empty_postgres_url: str) -> str:
    """A database that LangGraph's Postgres saver has written."""
    await executed(empty_postgres_url, (DATA / "threads.sql").read_text())
    return empty_postgres_url


def changed(path: Path, statement: str, *values: Any) -> str:
    """The URL of a file in which something was changed by hand."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(statement, values)
    return f"sqlite:///{path}"


async def executed(url: str, statement: str, *values: Any) -> str:
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(statement, *values)
    finally:
        await connection.close()
    return url


async def brought(url: str, *names: str) -> tuple[Imported, InMemorySaver]:
    saver = InMemorySaver()
    what = Import(url, annotations=[graphs.State], thread_ids=names or None, tasks=TASKS)
    return await import_langgraph(what, saver), saver


def ids_of(name: str, source: Path = DATA / "threads.sqlite") -> list[str]:
    """The ids of a thread's checkpoints, oldest first."""
    with closing(sqlite3.connect(source)) as connection:
        query = "SELECT checkpoint_id FROM checkpoints WHERE thread_id = ? ORDER BY checkpoint_id"
        return [checkpoint_id for (checkpoint_id,) in connection.execute(query, [name])]


FIRST, SECOND, LAST = ids_of("asked")
BODY: Mapping[str, Any] = {
    "v": 4,
    "id": FIRST,
    "ts": "2026-11-30T22:06:14+00:00",
    "channel_values": {},
    "channel_versions": {},
    "versions_seen": {},
}


def body(**changes: Any) -> bytes:
    """The bytes of a checkpoint; what is None is left out."""
    packed: bytes = ormsgpack.packb({name: each for name, each in {**BODY, **changes}.items() if each is not None})
    return packed


BODIES: Mapping[str, tuple[Any, str]] = {
    "nothing": (b"", "the stored bytes cannot be read: unexpected end of file"),
    "half": (body()[:-1], "the stored bytes cannot be read: unexpected end of file"),
    "more": (body() + b"x", "the stored bytes cannot be read: they go on after the value"),
    "text": (b"garbage", "the stored bytes cannot be read: they go on after the value"),
    "NULL": (None, "the stored bytes cannot be read: they are NoneType None"),
    "list": (ormsgpack.packb([1]), "the stored checkpoint is list [1], not dict"),
    "without values": (body(channel_values=None), "the stored checkpoint has no 'channel_values'"),
    "list of versions": (body(channel_versions=[1]), "'channel_versions' is list [1], not dict"),
    "no version": (
        body(channel_versions={"log": "x"}),
        "channel_versions has the version 'x' for 'log', which is none",
    ),
    "seen": (body(versions_seen={"one": 3}), "versions_seen of 'one' is int 3, not dict"),
    "format": (body(v="4"), "'v' is str '4', not int"),
    "another": (body(id=LAST), f"the stored checkpoint is another one, {LAST!r}"),
}


@pytest.mark.parametrize("damage", BODIES)
async def test_a_damaged_checkpoint_is_named(path: Path, damage: str) -> None:
    data, complaint = BODIES[damage]
    url = changed(path, "UPDATE checkpoints SET checkpoint = ? WHERE checkpoint_id = ?", data, FIRST)

    imported, saver = await brought(url)

    assert imported.refused == {"asked": f"{complaint} (checkpoint {FIRST!r}, thread 'asked')"}
    assert sorted(each.thread_id for each in imported.threads) == sorted(GRAPHS.keys() - {"asked"})
    assert await saver.aget_thread("asked") is None


CELLS: Mapping[str, tuple[str, str, Any, str]] = {
    # what: statement's beginning, its condition, the value, the complaint with {} for the checkpoint's id
    "pickle": (
        "checkpoints SET type",
        "checkpoint_id = {}",
        "pickle",
        "it was stored by pickle, which is not read: reading it would run code that the data chooses (checkpoint {}",
    ),
    "metadata": (
        "checkpoints SET metadata",
        "checkpoint_id = {}",
        "{",
        "its metadata cannot be read: unexpected end of data: line 1 column 2 (char 1) (checkpoint {}",
    ),
    "step": (
        "checkpoints SET metadata",
        "checkpoint_id = {}",
        '{"step": "x"}',
        "'step' in metadata is str 'x', not int (checkpoint {}",
    ),
    "run id": (
        "checkpoints SET metadata",
        "checkpoint_id = {}",
        '{"run_id": 5}',
        "'run_id' in metadata is int 5, not str (checkpoint {}",
    ),
    "NUL": (
        "checkpoints SET checkpoint_ns",
        "checkpoint_id = {}",
        "a\0b",
        "checkpoint_ns 'a\\x00b' contains a NUL character, which a database key cannot hold (checkpoint {}",
    ),
    "own parent": (
        "checkpoints SET parent_checkpoint_id",
        "checkpoint_id = {}",
        LAST,
        "its parent {} is not older than it (checkpoint {}",
    ),
    "question": (
        "writes SET value",
        "checkpoint_id = {} AND channel = '__interrupt__'",
        ormsgpack.packb(["sure?"]),
        "the stored question is str 'sure?', not Interrupt (write to '__interrupt__', checkpoint {}",
    ),
    "kind": (
        "writes SET type",
        "checkpoint_id = {} AND channel = 'log'",
        "json",
        "it was stored as 'json', which is not known (write to 'log', checkpoint {}",
    ),
    "task": (
        "writes SET task_id",
        "checkpoint_id = {} AND channel = 'log'",
        b"\xff",
        "task_id must be a string, got bytes b'\\xff' (write to 'log', checkpoint {}",
    ),
}


@pytest.mark.parametrize("damage", CELLS)
async def test_a_damaged_row_is_named(path: Path, damage: str) -> None:
    place, condition, value, complaint = CELLS[damage]
    url = changed(path, f"UPDATE {place} = ? WHERE {condition.replace('{}', repr(LAST))}", value)

    imported, saver = await brought(url)

    assert imported.refused == {"asked": f"{complaint.replace('{}', repr(LAST))}, thread 'asked')"}
    assert len(imported.threads) == len(GRAPHS) - 1
    assert await saver.aget_thread("asked") is None


@pytest.mark.parametrize("task_path", ["", "~__pregel_pull", "~__pregel_push, 99", "~__pregel_push, ~x, y, z"])
async def test_a_task_that_cannot_be_told_is_named(path: Path, task_path: str) -> None:
    row = "SELECT max(rowid) FROM writes WHERE thread_id = 'calls-asking'"
    url = changed(path, f"UPDATE writes SET task_path = ? WHERE rowid = ({row})", task_path)

    imported, _ = await brought(url, "calls-asking")

    (reason,) = imported.refused.values()
    assert reason.startswith("the task ")
    assert f" has the path {task_path!r}, which tells no " in reason


async def test_whatever_cell_is_damaged_the_thread_is_brought_over_or_refused_in_words(path: Path) -> None:
    names = ("calls-answered", "sends", "done")
    for table in ("checkpoints", "writes"):
        with closing(sqlite3.connect(path)) as connection:
            columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
            (row,) = connection.execute(f"SELECT max(rowid) FROM {table} WHERE thread_id = 'sends'").fetchone()
        for column in columns[1:]:
            for value in (b"", b"\xc1", b"\xff\xfe", "", "x", "a\0b", 5, None):
                copy = Path(shutil.copy(path, path.with_name("copy.db")))
                try:
                    url = changed(copy, f"UPDATE {table} SET {column} = ? WHERE rowid = ?", value, row)
                except sqlite3.IntegrityError:
                    continue  # LangGraph's schema does not let it in
                imported, saver = await brought(url, *names)

                assert [*imported.refused] in ([], ["sends"])
                assert len(imported.threads) + len(imported.refused) == len(names)
                assert not any("Error:" in reason for reason in imported.refused.values()), imported.refused
                assert (await saver.aget_thread("sends") is None) == bool(imported.refused)


async def test_a_parent_that_was_pruned_is_missed_by_nobody(path: Path) -> None:
    url = changed(path, "DELETE FROM checkpoints WHERE checkpoint_id = ?", SECOND)

    imported, saver = await brought(url, "asked")

    assert imported.refused == {}
    found = [each async for each in saver.alist({"configurable": {"thread_id": "asked"}})]
    assert [each.checkpoint["id"] for each in found] == [LAST, FIRST]
    assert found[0].checkpoint["channel_values"]["log"] == ["in", "first"]


async def test_a_value_that_rests_on_a_missing_checkpoint_is_named(path: Path) -> None:
    first, second, third, *_ = ids_of("delta")
    url = changed(path, "DELETE FROM checkpoints WHERE checkpoint_id = ?", second)

    imported, _ = await brought(url, "delta", "done")

    assert imported.refused == {
        "delta": f"its value rests on the checkpoint {second!r}, which is missing from the database "
        f"(state key 'log', checkpoint {third!r}, thread 'delta')"
    }
    assert first < second


NAMES = {"a\0b": "'a\\x00b' contains a NUL character, which a database key cannot hold", b"a": "must be a string"}


@pytest.mark.parametrize("name", NAMES)
async def test_a_thread_whose_name_cannot_be_a_key_does_not_keep_others_from_being_brought(
    path: Path, name: Any
) -> None:
    url = changed(path, "UPDATE checkpoints SET thread_id = ? WHERE thread_id = 'asked'", name)

    imported, _ = await brought(url)

    assert [*imported.refused] == [str(name)]
    assert NAMES[name] in imported.refused[str(name)]
    assert len(imported.threads) == len(GRAPHS) - 1


FILES: Mapping[str, tuple[Callable[[bytes], bytes], str]] = {
    "garbage": (lambda _: b"no database" * 100, "cannot use database {}: file is not a database"),
    "half": (lambda data: data[: len(data) // 2], "cannot use database {}: database disk image is malformed"),
    "head": (lambda data: data[:50], "cannot use database {}: database disk image is malformed"),
    "empty": (lambda _: b"", "database {} was not written by LangGraph's savers: it has no such checkpoints"),
}


@pytest.mark.parametrize("damage", FILES)
def test_a_file_that_cannot_be_read_is_told(
    path: Path, sqlite_url: str, damage: str, capsys: pytest.CaptureFixture[str]
) -> None:
    make, complaint = FILES[damage]
    path.write_bytes(make(path.read_bytes()))
    url = f"sqlite:///{path}"

    assert main(["import", "langgraph", "--from", url, "--to", sqlite_url]) == 1

    assert capsys.readouterr() == ("", complaint.format(url) + "\n")


WAY_OUT = "if an old version of them made it, let the setup() of a newer one bring it up to date"
TABLES: Mapping[str, tuple[str, str]] = {
    "no writes": ("DROP TABLE writes", "no table writes"),
    "no paths": ("ALTER TABLE writes DROP COLUMN task_path", "no task_path in its table writes"),
    "no namespace": (
        "ALTER TABLE checkpoints RENAME COLUMN checkpoint_ns TO ns",
        "no checkpoint_ns in its table checkpoints",
    ),
}


@pytest.mark.parametrize("damage", TABLES)
def test_tables_of_another_shape_are_told_once(
    path: Path, sqlite_url: str, damage: str, capsys: pytest.CaptureFixture[str]
) -> None:
    statement, what = TABLES[damage]
    url = changed(path, statement)

    assert main(["import", "langgraph", "--from", url, "--to", sqlite_url]) == 1

    assert capsys.readouterr() == (
        "",
        f"database {url} is not as LangGraph's savers leave it: it has {what}; {WAY_OUT}\n",
    )


def test_what_was_refused_is_told_and_can_be_brought_later(
    path: Path, sqlite_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["import", "langgraph", "--from", f"sqlite:///{path}", "--to", sqlite_url, "--json"]
    command += ["--thread", "asked", "--thread", "done"]
    with closing(sqlite3.connect(path)) as connection:
        query = "SELECT checkpoint FROM checkpoints WHERE checkpoint_id = ?"
        (whole,) = connection.execute(query, [LAST]).fetchone()
    changed(path, "UPDATE checkpoints SET checkpoint = ? WHERE checkpoint_id = ?", whole[:20], LAST)
    first = main(command), json.loads(capsys.readouterr().out)
    changed(path, "UPDATE checkpoints SET checkpoint = ? WHERE checkpoint_id = ?", whole, LAST)
    second = main(command), json.loads(capsys.readouterr().out)

    assert [first[0], list(first[1]["refused"]), first[1]["present"]] == [1, ["asked"], []]
    assert [second[0], second[1]["refused"], second[1]["present"]] == [0, {}, ["done"]]
    assert [each["thread_id"] for each in second[1]["imported"]] == ["asked"]


NEWEST_LOG = "SELECT max(version) FROM checkpoint_blobs WHERE thread_id = 'asked' AND channel = 'log'"
POSTGRES: Mapping[str, tuple[str, str]] = {
    "value": (
        r"UPDATE checkpoint_blobs SET blob = '\xc1' WHERE thread_id = 'asked' AND channel = 'log'",
        "the stored bytes cannot be read: invalid type Reserved (state key 'log', version 0000",
    ),
    "missing value": (
        f"DELETE FROM checkpoint_blobs WHERE version = ({NEWEST_LOG})",
        "its value is missing from the database (state key 'log', checkpoint '",
    ),
    "missing input": (
        "DELETE FROM checkpoint_blobs WHERE thread_id = 'asked' AND channel = '__start__'",
        "its value is missing from the database (state key '__start__', checkpoint '",
    ),
    "checkpoint": (
        "UPDATE checkpoints SET checkpoint = checkpoint - 'channel_versions' WHERE thread_id = 'asked'",
        "the stored checkpoint has no 'channel_versions' (checkpoint '",
    ),
    "metadata": (
        "UPDATE checkpoints SET metadata = '[]' WHERE thread_id = 'asked'",
        "metadata is list [], not dict (checkpoint '",
    ),
    "parent": (
        "UPDATE checkpoints SET parent_checkpoint_id = checkpoint_id WHERE thread_id = 'asked'",
        "its parent '",
    ),
    "write": (
        "UPDATE checkpoint_writes SET type = 'pickle' WHERE thread_id = 'asked'",
        "it was stored by pickle, which is not read: reading it would run code that the data chooses (write to '",
    ),
}


@pytest.mark.parametrize("damage", POSTGRES)
async def test_damage_in_postgres_is_named(postgres: str, postgres_url: str, damage: str) -> None:
    statement, complaint = POSTGRES[damage]
    await executed(postgres, statement)

    async with SQLSaver.from_url(postgres_url) as saver:
        what = Import(postgres, annotations=[graphs.State], thread_ids=["asked", "done"], tasks=TASKS)
        imported = await import_langgraph(what, saver)

        assert [*imported.refused] == ["asked"]
        assert imported.refused["asked"].startswith(complaint)
        assert imported.refused["asked"].endswith(", thread 'asked')")
        assert [each.thread_id async for each in saver.alist_threads()] == ["done"]


class Meddling(StoredValues):
    """Has somebody write to the thread once its first value has been read."""

    def __init__(self, meddle: Callable[[], Any]) -> None:
        super().__init__()
        self._meddle: Callable[[], Any] | None = meddle

    def lifted(self, value: Any) -> Any:
        if (meddle := self._meddle) is not None:
            self._meddle = None
            meddle()
        return super().lifted(value)


async def read(url: str, values: StoredValues) -> TheirThread:
    async with TheirDatabase(url, values, default_codec) as source:
        return await source.thread("asked")


async def test_a_thread_is_read_as_it_was_at_one_moment_from_sqlite(path: Path) -> None:
    url = changed(path, "PRAGMA journal_mode = WAL")  # as LangGraph's saver has it
    before = await read(url, StoredValues())

    during = await read(url, Meddling(lambda: changed(path, "DELETE FROM writes WHERE thread_id = 'asked'")))

    assert before.writes != (await read(url, StoredValues())).writes
    assert during == before


async def test_a_thread_is_read_as_it_was_at_one_moment_from_postgres(postgres: str) -> None:
    before = await read(postgres, StoredValues())
    deletion = "DELETE FROM checkpoints WHERE thread_id = 'asked'"

    during = await read(postgres, Meddling(lambda: run_apart(executed(postgres, deletion))))

    assert (await read(postgres, StoredValues())).checkpoints == []
    assert during == before

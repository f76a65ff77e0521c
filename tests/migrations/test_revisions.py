"""Revisions up and down on filled databases, alone and by many at once, and what a broken one leaves."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from alembic.script import ScriptDirectory
from sqlalchemy import inspect
from sqlalchemy.ext.asyncio import create_async_engine

from everstep_savers.checkpoint import NewCheckpoint, Part
from everstep_savers.codec import default_codec
from everstep_savers.errors import DatabaseUnavailable
from everstep_savers.sql import migrate
from everstep_savers.sql.cache import SQLCache
from everstep_savers.sql.database import parse_url
from everstep_savers.sql.saver import SQLSaver
from everstep_savers.sql.schema import SCHEMA_REVISION, VERSION_TABLE, metadata
from everstep_savers.sql.store import SQLStore
from everstep_savers.store.vectors import IndexConfig
from tests.conformance.records import checkpoint, claim, config, named, put_chain

ROOT = Path(__file__).resolve().parents[2]
REVISIONS = [revision.revision for revision in ScriptDirectory(str(migrate.migrations_directory())).walk_revisions()][
    ::-1
]

INDEX: IndexConfig = {"dims": 1, "embed": lambda texts: [[float(len(text))] for text in texts]}

BROKEN_REVISION = f"{int(SCHEMA_REVISION) + 1:04}"
BROKEN = '''
"""A revision that breaks half-way."""
import os, signal
import sqlalchemy as sa
from alembic import op

revision, down_revision, branch_labels, depends_on = "{revision}", "{newest}", None, None

def upgrade():
    op.create_table("half", sa.Column("a", sa.Integer))
    op.add_column("threads", sa.Column("half", sa.Text))
    {fault}

def downgrade():
    op.drop_table("half")
'''


async def tables(url: str) -> set[str]:
    engine = create_async_engine(parse_url(url))
    async with engine.connect() as connection:
        names = await connection.run_sync(lambda sync: inspect(sync).get_table_names())
    await engine.dispose()
    return set(names)


async def execute(url: str, statement: str) -> Any:
    engine = create_async_engine(parse_url(url))
    async with engine.begin() as connection:
        result = await connection.exec_driver_sql(statement)
        rows = [tuple(row) for row in result] if result.returns_rows else None
    await engine.dispose()
    return rows


def python(program: str, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **more}
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
        timeout=50,
    )


def alembic(url: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "alembic", *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "EVERSTEP_DATABASE_URL": url},
        timeout=50,
    )


def test_the_package_reads_and_writes_the_newest_revision() -> None:
    assert REVISIONS[-1] == SCHEMA_REVISION
    assert sorted(REVISIONS) == REVISIONS


async def test_an_empty_database_becomes_the_schema(empty_url: str) -> None:
    assert await migrate.current(empty_url) is None

    await migrate.upgrade(empty_url)

    assert await migrate.current(empty_url) == SCHEMA_REVISION
    assert await migrate.differences(empty_url) == []
    assert await tables(empty_url) == {*metadata.tables, VERSION_TABLE}


async def test_every_revision_goes_up_and_down_on_a_filled_database(empty_url: str) -> None:
    for revision, before in zip(REVISIONS[::-1], [*REVISIONS[-2::-1], "base"], strict=True):
        await migrate.upgrade(empty_url)
        async with SQLSaver.from_url(empty_url) as saver:
            made = await put_chain(saver, 3)
            await saver.aput_writes(config(checkpoint_id=made[0]), [("a", 1)], "task-1")
        async with SQLStore.from_url(empty_url, index=INDEX) as store, SQLCache[Any].from_url(empty_url) as cache:
            await store.aput(("notes",), "a", {"text": "b"}, ttl=1)
            await cache.aset({(("everstep",), "k"): ("v", 1)})

        await migrate.downgrade(empty_url, before)
        assert await migrate.current(empty_url) == (None if before == "base" else before)
        await migrate.upgrade(empty_url, revision)
        assert await migrate.current(empty_url) == revision

    await migrate.upgrade(empty_url)
    assert await migrate.differences(empty_url) == []
    async with SQLSaver.from_url(empty_url) as saver:
        await put_chain(saver, 1)


async def test_going_down_makes_lists_in_parts_whole_again(empty_url: str) -> None:
    """Lists of every kind of item, on branches; version 0001 read whole values only."""
    lists: dict[str, list[Any]] = {"1": [0, "a"], "2": [0, "a", (1, 2)], "3": [0, "a", *range(40)], "4": [0, "a", None]}
    bases = {"2": Part(1, 2), "3": Part(1, 2), "4": Part(1, 2)}
    await migrate.upgrade(empty_url)
    async with SQLSaver.from_url(empty_url) as saver:
        made = [
            NewCheckpoint(
                "",
                checkpoint({"log": items, "n": 1}, {"log": int(version), "n": 1}),
                {},
                None,
                {"log": int(version)} | ({"n": 1} if version == "1" else {}),
                bases={"log": bases[version]} if version in bases else {},
            )
            for version, items in lists.items()
        ]
        await saver.acommit(saver.prepare(claim("t-1", *made)))
    assert len(await execute(empty_url, "SELECT 1 FROM channel_values WHERE base IS NOT NULL")) == 3

    await migrate.downgrade(empty_url, "0001")

    rows = await execute(empty_url, "SELECT version, tag, data FROM channel_values WHERE channel = 'log'")
    assert {row[0]: default_codec.decode(row[1], bytes(row[2])) for row in rows} == lists
    await migrate.upgrade(empty_url)
    async with SQLSaver.from_url(empty_url) as saver:
        for new in made:
            found = await saver.aget_tuple(config(checkpoint_id=new.checkpoint["id"]))
            assert found is not None
            assert found.checkpoint["channel_values"] == new.checkpoint["channel_values"]


async def test_going_down_to_the_base_leaves_nothing_but_the_version_table(empty_url: str) -> None:
    await migrate.upgrade(empty_url)

    await migrate.downgrade(empty_url, "base")

    assert await tables(empty_url) == {VERSION_TABLE}
    assert await migrate.current(empty_url) is None


async def test_tables_of_a_host_application_are_left_alone(empty_url: str) -> None:
    await execute(empty_url, "CREATE TABLE orders (id INTEGER)")
    await execute(empty_url, "CREATE TABLE alembic_version (version_num VARCHAR(32))")

    await migrate.upgrade(empty_url)
    assert await migrate.differences(empty_url) == []
    await migrate.downgrade(empty_url, "base")

    assert await tables(empty_url) == {"orders", "alembic_version", VERSION_TABLE}


async def test_differences_are_told(empty_url: str) -> None:
    await migrate.upgrade(empty_url)
    await execute(empty_url, "ALTER TABLE threads ADD COLUMN extra INTEGER")

    (difference,) = await migrate.differences(empty_url)

    assert difference == "remove_column: threads, threads.extra"


async def test_an_engine_of_the_host_can_be_migrated(empty_url: str) -> None:
    engine = create_async_engine(parse_url(empty_url))

    await migrate.upgrade(engine)

    assert await migrate.current(engine) == SCHEMA_REVISION
    async with SQLSaver(engine) as saver:
        await saver.setup()
        await put_chain(saver, 1)
    await engine.dispose()


async def test_an_unknown_revision_is_refused(empty_url: str) -> None:
    with pytest.raises(LookupError) as caught:
        await migrate.upgrade(empty_url, "7777")

    assert str(caught.value) == "Can't locate revision identified by '7777'"


async def test_the_in_memory_schema_is_the_migrated_one(sqlite_url: str) -> None:
    query = "SELECT name, type, sql FROM sqlite_master ORDER BY name"
    async with SQLSaver.from_url("sqlite:///:memory:") as saver:
        database: Any = saver._database
        rows = await database._workers[0].call(lambda connection: connection.execute(query).fetchall())

    def bare(sql: str | None) -> str:
        return "".join((sql or "").split())

    migrated = await execute(sqlite_url, query)
    assert [(*row[:2], bare(row[2])) for row in rows] == [(*row[:2], bare(row[2])) for row in migrated]


async def test_many_tasks_set_up_at_once(empty_url: str) -> None:
    savers = [SQLSaver.from_url(empty_url, auto_migrate=True) for _ in range(6)]

    await asyncio.gather(*(put_chain(saver, 1, thread_id=f"t-{n}") for n, saver in enumerate(savers)))

    assert len([each async for each in savers[0].alist(None)]) == len(savers)
    for saver in savers:
        await saver.aclose()


WORKER = """
import asyncio, sys
from everstep_savers.checkpoint import empty_checkpoint
from everstep_savers.sql.cache import SQLCache
from everstep_savers.sql.saver import SQLSaver

async def main(url, thread_id):
    saver = SQLSaver.from_url(url)
    print("ready", flush=True)
    sys.stdin.readline()
    await saver.setup()
    await saver.aput({"configurable": {"thread_id": thread_id}}, empty_checkpoint(), {}, {})
    await saver.aclose()

asyncio.run(main(*sys.argv[1:]))
"""


def set_up_by_processes(url: str, thread_ids: list[str]) -> list[tuple[str, int]]:
    """Let a process for each thread set the database up, all at the same time; their errors and exit codes."""
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", WORKER, url, thread_id],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        for thread_id in thread_ids
    ]
    for worker in workers:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "ready\n"
    for worker in workers:
        assert worker.stdin is not None
        worker.stdin.write("go\n")
        worker.stdin.flush()
    return [(worker.communicate()[1], worker.returncode) for worker in workers]


async def test_many_processes_set_up_at_once(empty_url: str) -> None:
    thread_ids = [f"t-{number}" for number in range(5)]

    assert set_up_by_processes(empty_url, thread_ids) == [("", 0)] * len(thread_ids)

    async with SQLSaver.from_url(empty_url) as saver:
        found = {each.config["configurable"]["thread_id"] async for each in saver.alist(None)}
    assert found == set(thread_ids)


def with_broken_revision(tmp_path: Path, fault: str) -> Path:
    """A migrations directory with one more revision, which breaks half-way."""
    folder = tmp_path / "migrations"
    shutil.copytree(migrate.migrations_directory(), folder, ignore=shutil.ignore_patterns("__pycache__"))
    text = BROKEN.format(fault=fault, revision=BROKEN_REVISION, newest=SCHEMA_REVISION)
    (folder / "versions" / f"{BROKEN_REVISION}_broken.py").write_text(text)
    return folder


async def filled(url: str) -> list[str]:
    await migrate.upgrade(url)
    async with SQLSaver.from_url(url) as saver:
        return await put_chain(saver, 2)


async def assert_untouched(url: str, made: list[str]) -> None:
    assert await migrate.current(url) == SCHEMA_REVISION
    assert await tables(url) == {*metadata.tables, VERSION_TABLE}
    assert await migrate.differences(url) == []
    async with SQLSaver.from_url(url) as saver:
        assert [named(each) async for each in saver.alist(config())] == made[::-1]


async def test_a_migration_that_fails_half_way_leaves_nothing(
    empty_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = await filled(empty_url)
    folder = with_broken_revision(tmp_path, 'op.execute("no such statement")')
    with monkeypatch.context() as patched:
        patched.setattr(migrate, "migrations_directory", lambda: folder)

        with pytest.raises(DatabaseUnavailable, match=r'syntax error|near "no"'):
            await migrate.upgrade(empty_url, BROKEN_REVISION)

    await assert_untouched(empty_url, made)


async def test_a_migration_killed_half_way_leaves_nothing(empty_url: str, tmp_path: Path) -> None:
    made = await filled(empty_url)
    folder = with_broken_revision(tmp_path, "os.kill(os.getpid(), signal.SIGKILL)")
    program = (
        "import asyncio, pathlib, sys\n"
        "from everstep_savers.sql import migrate\n"
        "migrate.migrations_directory = lambda: pathlib.Path(sys.argv[2])\n"
        f"asyncio.run(migrate.upgrade(sys.argv[1], {BROKEN_REVISION!r}))\n"
    )

    killed = python(program, empty_url, str(folder))

    assert killed.returncode == -signal.SIGKILL, killed.stderr
    await assert_untouched(empty_url, made)


async def test_alembic_works_from_the_repository_root(empty_url: str) -> None:
    upgraded = alembic(empty_url, "upgrade", "head")
    assert upgraded.returncode == 0, upgraded.stderr
    assert await migrate.differences(empty_url) == []

    checked = alembic(empty_url, "check")
    assert (checked.stdout, checked.returncode) == ("No new upgrade operations detected.\n", 0), checked.stderr
    assert alembic(empty_url, "downgrade", "base").returncode == 0
    assert await migrate.current(empty_url) is None


async def test_alembic_takes_the_url_from_the_command_line(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'x.db'}"

    assert alembic("", "-x", f"url={url}", "upgrade", "head").returncode == 0

    assert await migrate.current(url) == SCHEMA_REVISION


def test_alembic_without_a_url_says_so() -> None:
    done = alembic("", "upgrade", "head")

    assert done.stderr == "no database: set EVERSTEP_DATABASE_URL, or pass -x url=sqlite:///threads.db\n"
    assert done.returncode == 1


@pytest.mark.parametrize(
    ("url", "excerpt"),
    [
        ("sqlite:///x.db", "thread_id TEXT NOT NULL"),
        ("postgresql://nowhere/x", 'thread_id TEXT COLLATE "C" NOT NULL'),
    ],
)
def test_alembic_prints_statements_without_a_database(url: str, excerpt: str) -> None:
    printed = alembic(url, "upgrade", "head", "--sql")

    assert printed.returncode == 0, printed.stderr
    assert excerpt in printed.stdout
    for name in metadata.tables:
        assert f"CREATE TABLE {name} (" in printed.stdout
    assert f"UPDATE everstep_alembic_version SET version_num='{SCHEMA_REVISION}'" in printed.stdout


async def test_an_installed_package_brings_its_own_migrations(tmp_path: Path, empty_url: str) -> None:
    site = tmp_path / "site"
    without_caches = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "savers" / "everstep_savers", site / "everstep_savers", ignore=without_caches)
    shutil.copytree(ROOT / "migrations", site / "everstep_savers" / "_migrations", ignore=without_caches)
    program = (
        "import asyncio, sys\n"
        "from everstep_savers.sql import migrate\n"
        "print(migrate.migrations_directory())\n"
        "asyncio.run(migrate.upgrade(sys.argv[1]))\n"
    )

    done = python(program, empty_url, PYTHONPATH=str(site))

    assert done.stdout == f"{site / 'everstep_savers' / '_migrations'}\n", done.stderr
    assert await migrate.differences(empty_url) == []

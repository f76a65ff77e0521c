"""`everstep db ...`: what it says, to people and to scripts, and its exit codes."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import asyncpg
import pytest

from everstep.ops.cli import main
from everstep_savers.sql import migrate
from everstep_savers.sql.database import parse_url, shown
from everstep_savers.sql.place import Place
from everstep_savers.sql.schema import SCHEMA_REVISION as NEWEST


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """Exit code, output and errors of a command."""
    code = main(["db", *arguments])
    out, err = capsys.readouterr()
    return code, out, err


def test_upgrade_current_check_and_downgrade_say_what_they_did(
    empty_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    place = shown(parse_url(empty_url))
    url = ("--url", empty_url)

    assert said(capsys, "current", *url) == (0, f"{place}: no schema, newest is {NEWEST}\n", "")
    assert said(capsys, "upgrade", *url) == (0, f"{place}: from no schema to {NEWEST}\n", "")
    assert said(capsys, "upgrade", *url) == (0, f"{place}: at {NEWEST} already\n", "")
    assert said(capsys, "current", *url) == (0, f"{place}: {NEWEST}, newest is {NEWEST}\n", "")
    assert said(capsys, "check", *url) == (0, f"{place}: at {NEWEST}, as this version needs it\n", "")
    downgrade = ("downgrade", *url, "--revision", "base")
    assert said(capsys, *downgrade) == (0, f"{place}: from {NEWEST} to no schema\n", "")


def test_json_is_for_scripts(empty_url: str, capsys: pytest.CaptureFixture[str]) -> None:
    url = ("--url", empty_url, "--json")
    place = shown(parse_url(empty_url))

    def data(*arguments: str) -> object:
        return json.loads(said(capsys, *arguments)[1])

    assert data("upgrade", *url) == {"url": place, "before": None, "revision": NEWEST}
    assert data("current", *url) == {"url": place, "revision": NEWEST, "newest": NEWEST}
    assert data("check", *url) == {
        "url": place,
        "revision": NEWEST,
        "newest": NEWEST,
        "ok": True,
        "differences": [],
    }


def test_a_place_is_named_by_options(empty_postgres_url: str, capsys: pytest.CaptureFixture[str]) -> None:
    url = ("--url", empty_postgres_url)
    place = ("--schema", "mine", "--table-prefix", "my_")
    shown_url = shown(parse_url(empty_postgres_url))

    code, _, complaint = said(capsys, "check", *url, *place)
    assert code == 1
    assert complaint == (
        f"database {shown_url} has no Everstep tables yet; create them: everstep db upgrade --url {shown_url} "
        "--schema mine --table-prefix my_\n"
    )
    assert said(capsys, "upgrade", *url, *place)[0] == 0
    assert said(capsys, "check", *url, *place)[0] == 0
    assert said(capsys, "current", *url)[1].startswith(f"{shown_url}: no schema")


async def test_printed_statements_make_the_schema(
    empty_postgres_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = ("--schema", "mine", "--table-prefix", "my_")
    code, statements, complaint = await asyncio.to_thread(
        said, capsys, "sql", "--url", "postgresql://nowhere:s3cret@nowhere/x", *place
    )
    assert (code, complaint) == (0, "")
    assert "s3cret" not in statements
    connection = await asyncpg.connect(empty_postgres_url)
    await connection.execute(statements)
    await connection.close()
    assert await migrate.differences(empty_postgres_url, place=Place("mine", "my_")) == []

    path = tmp_path / "x.db"
    _, statements, _ = await asyncio.to_thread(said, capsys, "sql", "--url", "sqlite:///nowhere.db")
    with contextlib.closing(sqlite3.connect(path)) as lite:
        lite.executescript(statements)
    assert await migrate.differences(f"sqlite:///{path}") == []


def test_check_fails_for_a_database_without_a_schema(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    url = f"sqlite:///{tmp_path / 'x.db'}"
    complaint = f"database {url} has no Everstep tables yet; create them: everstep db upgrade --url {url}"

    assert said(capsys, "check", "--url", url) == (1, "", f"{complaint}\n")
    code, out, _ = said(capsys, "check", "--url", url, "--json")
    assert (code, json.loads(out)["error"]) == (1, complaint)
    assert not (tmp_path / "x.db").exists()


def test_check_fails_for_a_schema_that_was_changed(sqlite_url: str, capsys: pytest.CaptureFixture[str]) -> None:
    def drop(connection: object) -> None:
        connection.exec_driver_sql("DROP TABLE checkpoint_writes")  # type: ignore[attr-defined]

    asyncio.run(migrate.run_locked(sqlite_url, drop))

    code, _, err = said(capsys, "check", "--url", sqlite_url)

    assert code == 1
    assert err == (f"{sqlite_url}: at {NEWEST}, but not as its revision made it:\n  add_table: checkpoint_writes\n")


@pytest.mark.parametrize("command", [["upgrade"], ["downgrade", "--revision", "base"], ["current"], ["check"]])
def test_a_database_that_cannot_be_reached_is_a_sentence(
    command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = said(capsys, *command, "--url", "postgresql://user:s3cret@127.0.0.1:1/x")

    assert (code, out) == (1, "")
    assert err == (
        "cannot use database postgresql://user:***@127.0.0.1:1/x: [Errno 111] Connect call failed ('127.0.0.1', 1)\n"
    )


def test_a_revision_that_does_not_exist_is_a_sentence(sqlite_url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert said(capsys, "upgrade", "--url", sqlite_url, "--revision", "7777") == (
        1,
        "",
        "Can't locate revision identified by '7777'\n",
    )


def test_a_command_line_that_cannot_be_understood_exits_with_two(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("EVERSTEP_DATABASE_URL", raising=False)

    for arguments in (
        ["db"],
        ["db", "upgrade"],
        ["db", "downgrade", "--url", "sqlite:///x.db"],
        ["nonsense"],
    ):
        with pytest.raises(SystemExit) as caught:
            main(arguments)
        assert caught.value.code == 2
        assert "usage: everstep" in capsys.readouterr().err


def test_the_url_comes_from_the_environment(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'x.db'}"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "EVERSTEP_DATABASE_URL": url}

    done = subprocess.run(
        [sys.executable, "-m", "everstep.ops.cli", "db", "upgrade"],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )

    assert (done.stdout, done.stderr, done.returncode) == (f"{url}: from no schema to {NEWEST}\n", "", 0)

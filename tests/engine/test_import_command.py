"""`everstep import langgraph`: what it says, to people and to scripts, and its exit codes."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from everstep.ops.cli import main
from everstep.ops.report import progress
from everstep_savers.sql.database import parse_url, shown
from tests.data.langgraph.graphs import GRAPHS

SOURCE = f"sqlite:///{Path(__file__).parent.parent / 'data' / 'langgraph' / 'threads.sqlite'}"
TYPES = ("--type", "tests.data.langgraph.graphs:State")


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """Exit code, output and errors of a command."""
    code = main(["import", "langgraph", "--from", SOURCE, *arguments])
    out, err = capsys.readouterr()
    return code, out, err


def data(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    code, out, err = said(capsys, *arguments, "--json")
    assert (code, err) == (0, "")
    return json.loads(out)


def test_threads_are_told_with_the_new_ids_of_their_questions(
    saver_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    dry = data(capsys, "--to", saver_url, "--thread", "asked", "--thread", "done", "--dry-run")
    code, out, err = said(capsys, "--to", saver_url, "--thread", "asked", "--thread", "done")

    asked, done = dry["imported"]
    ((old, new),) = asked["questions"].items()
    assert (code, err) == (0, "")
    assert out.splitlines() == [
        f"2 threads imported from {SOURCE}",
        "",
        "THREAD  STATUS       CHECKPOINTS  QUESTIONS",
        "asked   interrupted  3            1",
        "done    done         5            0",
        "",
        "open questions have new ids:",
        "THREAD  LANGGRAPH                         EVERSTEP",
        f"asked   {old}  {new}",
    ]
    assert done == {"thread_id": "done", "status": "done", "checkpoints": 5, "questions": {}, "asked_again": []}
    assert {name: dry[name] for name in ("present", "refused", "dry_run")} == {
        "present": [],
        "refused": {},
        "dry_run": True,
    }


def test_everything_is_brought_over_once_the_types_and_tasks_are_named(
    saver_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    named = ("--to", saver_url, *TYPES, "--task", "double", "--task", "ask", "--task", "outer")

    first = data(capsys, *named)
    again = data(capsys, *named)

    assert sorted(each["thread_id"] for each in first["imported"]) == sorted(GRAPHS)
    assert [again["imported"], sorted(again["present"])] == [[], sorted(GRAPHS)]
    assert said(capsys, *named)[1].splitlines() == [
        f"0 threads imported from {SOURCE}",
        "",
        f"{len(GRAPHS)} threads were here already, and were left alone:",
        *(f"  {name}" for name in sorted(GRAPHS)),
    ]


def test_what_cannot_be_brought_over_is_told_with_the_reason(
    saver_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = said(capsys, "--to", saver_url, "--thread", "typed", "--thread", "calls-asking")

    assert (code, out) == (1, "")
    lines = err.splitlines()
    assert lines[0] == f"1 threads imported from {SOURCE}"
    assert "asked again when the thread goes on without an answer:" in lines
    assert lines[-2] == "1 threads refused:"
    assert lines[-1].startswith("  typed: the class tests.data.langgraph.graphs.Order is not known; name the graph")


def test_the_graph_names_types_and_tasks(
    saver_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    name = f"flow_of_{tmp_path.name}"
    (tmp_path / f"{name}.py").write_text(
        "from everstep.func import entrypoint, task\n\n@task\ndef ask(): ...\n\n@entrypoint()\ndef flow(state): ...\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))

    found = data(capsys, "--to", saver_url, "--thread", "calls-answered", "--graph", f"{name}:flow")

    assert [len(each["questions"]) for each in found["imported"]] == [1]
    assert main(["threads", "show", "calls-answered", "--url", saver_url]) == 0
    assert "graph: flow" in capsys.readouterr().out.splitlines()
    sys.modules.pop(name)


def test_a_target_that_is_no_graph_is_told(saver_url: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = said(capsys, "--to", saver_url, "--graph", "json:dumps")

    assert code == 1
    assert err.startswith("json:dumps is function <function dumps at ")
    assert err.endswith(", which is no graph\n")
    code, _, err = said(capsys, "--to", saver_url, "--type", "json:dumps")
    assert code == 1
    assert err.endswith(", which is no class\n")


def test_the_database_itself_is_no_target_unless_its_tables_have_other_names(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = tmp_path / "both.db"
    copy.write_bytes(Path(SOURCE.removeprefix("sqlite:///")).read_bytes())
    both = f"sqlite:///{copy}"

    def brought(*more: str) -> tuple[int, str]:
        code = main(["import", "langgraph", "--from", both, "--to", both, "--thread", "done", *more])
        found = capsys.readouterr()
        return code, found.out + found.err

    code, text = brought()
    assert code == 1
    assert text == (
        "LangGraph's tables and ours have the same names: choose another database, or keep ours apart with "
        "--schema or --table-prefix\n"
    )
    assert main(["db", "upgrade", "--url", both, "--table-prefix", "our_"]) == 0
    capsys.readouterr()
    code, text = brought("--table-prefix", "our_")
    assert (code, text.splitlines()[0]) == (0, f"1 threads imported from {both}")
    assert main(["threads", "list", "--url", both, "--table-prefix", "our_"]) == 0


def test_a_target_without_a_schema_is_told(empty_url: str, capsys: pytest.CaptureFixture[str]) -> None:
    place = shown(parse_url(empty_url))

    assert said(capsys, "--to", empty_url) == (
        1,
        "",
        f"database {place} has no Everstep tables yet; create them: everstep db upgrade --url {place}\n",
    )


class Terminal(io.StringIO):
    """An error stream that somebody is looking at."""

    def isatty(self) -> bool:
        return True


def test_a_bar_shows_how_far_it_has_got(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = Terminal()
    monkeypatch.setattr(sys, "stderr", seen)
    with progress("threads") as told:
        told(1, 4)
        told(4, 4)

    assert seen.getvalue() == (
        f"\r[{'#' * 10}{' ' * 30}] 1/4 threads"  #
        f"\r[{'#' * 40}] 4/4 threads"
        "\r\x1b[K"
    )


@pytest.mark.parametrize(("stream", "is_shown"), [(io.StringIO(), True), (Terminal(), False)])
def test_no_bar_is_shown_where_nobody_is_looking(
    monkeypatch: pytest.MonkeyPatch, stream: io.StringIO, is_shown: bool
) -> None:
    monkeypatch.setattr(sys, "stderr", stream)
    with progress("threads", is_shown=is_shown) as told:
        told(1, 2)

    assert stream.getvalue() == ""

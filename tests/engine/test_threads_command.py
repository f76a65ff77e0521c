"""`everstep threads ...`: what it says of threads, to people and to scripts, and what it removes."""

from __future__ import annotations

import asyncio
import importlib
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from everstep import Command, interrupt
from everstep.ops.cli import main
from everstep_savers.codec import Codec
from everstep_savers.sql.saver import SQLSaver
from tests.conformance.records import checkpoint, config
from tests.conftest import run_apart
from tests.engine.graphs import Log, Update, chain, says, thread

_MODULE = """
from dataclasses import dataclass

@dataclass
class Order:
    number: int
"""


@pytest.fixture
def orders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A module in the current directory with a class that no codec knows."""
    name = f"orders_of_{tmp_path.name}"
    (tmp_path / f"{name}.py").write_text(_MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    yield importlib.import_module(name)
    sys.modules.pop(name)


def asks(state: Log) -> Update:
    return {"log": [interrupt("sure?")]}


def fails(state: Log) -> Update:
    raise ValueError("out of\nstock")


async def fill(url: str) -> None:
    """Three threads: one that asks, one that is done, one that failed."""
    async with SQLSaver.from_url(url) as saver:
        graph = chain(says("one"), asks, saver=saver, name="orders")
        for name in ("asks", "done"):
            await graph.ainvoke({"log": []}, thread(name))
        await graph.ainvoke(Command(resume="yes"), thread("done"))
        with pytest.raises(ValueError, match="stock"):
            await chain(fails, saver=saver, name="orders").ainvoke({"log": []}, thread("fails"))


@pytest.fixture
def filled(saver_url: str) -> str:
    run_apart(fill(saver_url))
    return saver_url


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """Exit code, output and errors of a command."""
    code = main(["threads", *arguments])
    out, err = capsys.readouterr()
    return code, out, err


def data(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    code, out, err = said(capsys, *arguments, "--json")
    assert (code, err) == (0, "")
    return json.loads(out)


def shown(text: str) -> list[list[str]]:
    """A table's cells."""
    return [re.split(r"  +", line) for line in text.splitlines()]


def test_threads_are_listed_the_newest_first(filled: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = said(capsys, "list", "--url", filled)

    assert code == 0
    head, *rows = shown(out)
    assert head == ["THREAD", "STATUS", "GRAPH", "UPDATED", "ERROR"]
    assert [(row[:3], row[4]) for row in rows] == [
        (["fails", "failed", "orders"], "ValueError: out of stock"),
        (["done", "done", "orders"], "-"),
        (["asks", "interrupted", "orders"], "-"),
    ]


def test_threads_of_one_status_are_listed(filled: str, capsys: pytest.CaptureFixture[str]) -> None:
    listed = data(capsys, "list", "--url", filled, "--status", "interrupted")["threads"]
    assert [each["thread_id"] for each in listed] == ["asks"]
    assert [each["thread_id"] for each in data(capsys, "list", "--url", filled, "--limit", "2")["threads"]] == [
        "fails",
        "done",
    ]

    assert said(capsys, "list", "--url", filled, "--status", "running") == (0, "no threads\n", "")


def test_a_thread_is_shown_with_its_values_and_questions(filled: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = said(capsys, "show", "asks", "--url", filled)
    found = data(capsys, "show", "asks", "--url", filled)

    assert code == 0
    question = found["questions"][0]
    for line in ("thread_id: asks", "status: interrupted", "graph: orders", "  log = ['one']", "questions:"):
        assert line in out.splitlines()
    assert f"  {question['id']}  'sure?'" in out.splitlines()
    assert question["value"] == "sure?"
    assert found["values"]["log"] == ["one"]
    assert found["checkpoint"]["id"] == found["head"]
    assert [write[1] for write in found["writes"]] == ["__interrupt__"]


def test_a_checkpoint_of_a_thread_is_shown(filled: str, capsys: pytest.CaptureFixture[str]) -> None:
    checkpoints = data(capsys, "history", "done", "--url", filled)["checkpoints"]
    assert [each["step"] for each in checkpoints] == [2, 1, 0, -1]
    assert [each["parent"] for each in checkpoints] == [*(each["id"] for each in checkpoints[1:]), None]

    found = data(capsys, "show", "done", "--url", filled, "--checkpoint", checkpoints[2]["id"])
    assert found["values"]["log"] == []


def test_history_is_a_table(filled: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = said(capsys, "history", "done", "--url", filled, "--limit", "2")

    head, *rows = shown(out)
    assert code == 0
    assert head == ["CHECKPOINT", "STEP", "SOURCE", "MADE", "PARENT", "WRITES"]
    assert [row[1:3] for row in rows] == [["2", "loop"], ["1", "loop"]]


@pytest.mark.parametrize("command", ["show", "history"])
def test_a_thread_that_is_not_there_is_told(filled: str, capsys: pytest.CaptureFixture[str], command: str) -> None:
    assert said(capsys, command, "nobody", "--url", filled) == (1, "", "there is no thread 'nobody'\n")


def test_a_checkpoint_that_is_not_there_is_told(filled: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = said(capsys, "show", "asks", "--url", filled, "--checkpoint", "none")

    assert (code, err) == (1, "thread 'asks' has no checkpoint 'none'\n")


def test_values_of_classes_are_shown_once_the_classes_are_named(
    saver_url: str, orders: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    codec = Codec()
    codec.register(orders.Order)

    async def store() -> None:
        async with SQLSaver.from_url(saver_url, codec=codec) as saver:
            await saver.aput(config("t"), checkpoint({"order": orders.Order(7)}, {"order": 1}), {}, {"order": 1})

    asyncio.run(store())

    code, _, err = said(capsys, "show", "t", "--url", saver_url)
    named = ("--type", f"{orders.__name__}:Order")
    assert code == 1
    assert orders.__name__ in err
    assert data(capsys, "show", "t", "--url", saver_url, *named)["values"] == {"order": "Order(number=7)"}


def test_threads_are_deleted(filled: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert said(capsys, "delete", "done", "--url", filled) == (0, "deleted done\n", "")
    code, out, err = said(capsys, "delete", "done", "fails", "--url", filled)

    assert (code, out, err) == (1, "", "deleted fails\nthere is no thread 'done'\n")
    assert [each["thread_id"] for each in data(capsys, "list", "--url", filled)["threads"]] == ["asks"]


def test_threads_are_pruned(filled: str, capsys: pytest.CaptureFixture[str]) -> None:
    dry = data(capsys, "prune", "--older-than", "0s", "--dry-run", "--url", filled)
    code, out, _ = said(capsys, "prune", "--older-than", "0s", "--url", filled)
    again = data(capsys, "prune", "--older-than", "0s", "--keep-last", "0", "--url", filled)

    assert dry == {"checkpoints": {"asks": 2, "done": 3, "fails": 1}, "threads": [], "dry_run": True}
    assert code == 0
    assert out.splitlines()[0] == "6 checkpoints of 3 threads removed"
    assert shown(out)[2:] == [["THREAD", "CHECKPOINTS"], ["asks", "2"], ["done", "3"], ["fails", "1"]]
    assert again == {"checkpoints": {"done": 1}, "threads": ["done"], "dry_run": False}


def test_only_old_and_named_threads_are_pruned(filled: str, capsys: pytest.CaptureFixture[str]) -> None:
    for age in ("1h", "2w", "2024-05-01", "2024-05-01T10:00:00+02:00"):
        assert data(capsys, "prune", "--older-than", age, "--url", filled)["checkpoints"] == {}

    assert data(capsys, "prune", "asks", "--url", filled)["checkpoints"] == {"asks": 2}


def test_a_prune_needs_to_know_what(filled: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert said(capsys, "prune", "--url", filled) == (
        1,
        "",
        "name threads, or say how old: --older-than 30d; --older-than 0s prunes every thread\n",
    )
    for age in ("soon", "99999999999w", "900000w"):
        with pytest.raises(SystemExit) as caught:
            said(capsys, "prune", "--older-than", age, "--url", filled)
        assert caught.value.code == 2
        assert f"'{age}' is neither an age such as 30d, 12h or 2w nor a date" in capsys.readouterr().err


def test_a_status_that_is_none_is_refused(filled: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        said(capsys, "list", "--url", filled, "--status", "finished")
    assert caught.value.code == 2
    assert "argument --status: invalid choice: 'finished'" in capsys.readouterr().err


def test_threads_in_another_place_are_listed(empty_url: str, capsys: pytest.CaptureFixture[str]) -> None:
    where = ("--url", empty_url, "--table-prefix", "my_")
    assert main(["db", "upgrade", *where]) == 0
    capsys.readouterr()

    assert said(capsys, "list", *where) == (0, "no threads\n", "")
    code, _, err = said(capsys, "list", "--url", empty_url)
    assert code == 1
    assert "has no Everstep tables yet; create them: everstep db upgrade --url" in err

"""`everstep import langgraph` in a process that may be killed at any statement that it sends to its SQLite target.

A plan's point is ``"statement 7"``: the seventh, before it takes effect. On any target, ``"before 2"`` and
``"after 2"`` mean the second thread's commit, as elsewhere. Of two processes whose plans meet, each waits with its
first commit until both have found that the thread is not there.
"""

from __future__ import annotations

import asyncio
import io
import itertools
import json
import sqlite3
from contextlib import ExitStack, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any
from unittest.mock import patch

from everstep.ops.cli import main
from everstep_savers.sql.saver import SQLSaver
from tests.recovery.killable import Life, Plan

SOURCE = f"sqlite:///{Path(__file__).parent.parent / 'data' / 'langgraph' / 'threads.sqlite'}"
# With an open question, calls and their results, states of subgraphs.
THREADS = ("asked", "calls-answered", "inside")


async def bring(plan: Plan) -> Any:
    """Run the command; its exit code and what it said."""
    arguments = ["import", "langgraph", "--from", SOURCE, "--to", plan.url, "--json"]
    arguments += [part for name in THREADS for part in ("--thread", name)]
    arguments += [part for name in ("ask", "double", "outer") for part in ("--task", name)]
    out, err = io.StringIO(), io.StringIO()
    life = Life(plan)
    with ExitStack() as changes:
        changes.enter_context(patch.object(SQLSaver, "acommit", _mortal(life)))
        changes.enter_context(patch("sqlite3.connect", _counting(life)))
        changes.enter_context(redirect_stdout(out))
        changes.enter_context(redirect_stderr(err))
        code = await asyncio.to_thread(main, arguments)
    return {"code": code, "said": json.loads(out.getvalue()), "err": err.getvalue()}


def _mortal(life: Life) -> Any:
    store, numbers, plan = SQLSaver.acommit, itertools.count(1), life.plan

    async def acommit(self: SQLSaver, prepared: Any) -> int:
        number = next(numbers)
        life.pass_by(f"before {number}")
        Path(f"{plan.ledger}.{plan.tag}").touch()
        while not all(Path(f"{plan.ledger}.{tag}").exists() for tag in plan.meet):  # noqa: ASYNC110 - see below
            await asyncio.sleep(0.001)  # no event reaches from one process to another
        token = await store(self, prepared)
        life.pass_by(f"after {number}")
        return token

    return acommit


def _counting(life: Life) -> Any:
    connect, numbers = sqlite3.connect, itertools.count(1)

    def opened(name: str, **options: Any) -> sqlite3.Connection:
        connection: sqlite3.Connection = connect(name, **options)
        if Path(name).name == Path(life.plan.url).name:
            connection.set_trace_callback(lambda _: life.pass_by(f"statement {next(numbers)}"))
        return connection

    return opened

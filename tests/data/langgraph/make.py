"""Makes the test data: threads that LangGraph has left in the middle of something, as its own savers store them.

Run it with LangGraph 1.2 and its savers installed, from the root of the repository::

    python -m tests.data.langgraph.make sqlite tests/data/langgraph/threads.sqlite
    python -m tests.data.langgraph.make postgres tests/data/langgraph/threads.sql postgresql://...

Beside the database goes what LangGraph itself says of each thread: values, what comes next, what is asked.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import sys
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from langgraph.channels.delta import DeltaChannel
from langgraph.func import entrypoint, task
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, Send, interrupt

from tests.data.langgraph.graphs import BROKEN, GRAPHS

LANGGRAPH = SimpleNamespace(
    StateGraph=StateGraph,
    START=START,
    END=END,
    Send=Send,
    interrupt=interrupt,
    Command=Command,
    DeltaChannel=DeltaChannel,
    entrypoint=entrypoint,
    task=task,
)


def at(name: str) -> Any:
    return {"configurable": {"thread_id": name}, "metadata": {"customer": "c-1"}}


async def run_all(saver: Any) -> dict[str, Any]:
    """Run every graph up to where it is left, and tell how it stands there."""
    BROKEN["is"] = True
    said = {}
    for name, graph_of in GRAPHS.items():
        graph = graph_of(LANGGRAPH, saver)
        with suppress(ValueError):
            await graph.ainvoke({"log": ["in"]}, at(name))
        await go_on(name, graph)
        said[name] = await described(graph, name)
    return said


async def go_on(name: str, graph: Any) -> None:
    if name in ("done", "calls-done", "calls-answered"):
        await graph.ainvoke(Command(resume="yes"), at(name))
    elif name in ("second", "handler-asks"):
        await graph.ainvoke(Command(resume="first"), at(name))
    elif name == "failed-later":
        with suppress(RuntimeError):
            await graph.ainvoke(Command(resume="yes"), at(name))
    elif name == "partly":
        asked = (await graph.aget_state(at(name))).interrupts
        left = next(question for question in asked if question.value == "left?")
        await graph.ainvoke(Command(resume={left.id: "yes"}), at(name))
    elif name == "forked":
        past = [state async for state in graph.aget_state_history(at(name))][1]
        await graph.aupdate_state(past.config, {"log": ["edited"]}, as_node="one")
        await graph.ainvoke(None, at(name))
    elif name == "edited":
        await graph.aupdate_state(at(name), {"log": ["edited"]}, as_node="one")
        await graph.aupdate_state(at(name), {"log": ["again"]}, as_node="one")
        await graph.ainvoke(None, at(name))
    elif name == "previous":
        await graph.ainvoke({"log": ["again"]}, at(name))
    elif name == "updated":
        await graph.ainvoke(Command(update={"log": ["note"]}), at(name))


async def described(graph: Any, name: str) -> Any:
    state = await graph.aget_state(at(name))
    states = [each async for each in graph.aget_state_history(at(name))]
    return {
        "log": (state.values or {}).get("log", []),
        "next": list(state.next),
        "questions": [question.value for question in state.interrupts],
        "history": [[(each.values or {}).get("log", []), list(each.next), each.metadata["step"]] for each in states],
    }


async def make_sqlite(path: Path) -> None:
    from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

    path.unlink(missing_ok=True)
    async with AsyncSqliteSaver.from_conn_string(str(path)) as saver:
        said = await run_all(saver)
    path.with_suffix(".json").write_text(json.dumps(said, indent=1) + "\n")
    with sqlite3.connect(path) as database:
        database.execute("PRAGMA journal_mode = DELETE")
        database.execute("VACUUM")


async def make_postgres(path: Path, url: str) -> None:
    import psycopg
    from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver

    async with AsyncPostgresSaver.from_conn_string(url) as saver:
        await saver.setup()
        await run_all(saver)
    with psycopg.connect(url) as connection:
        path.write_text("".join(dumped(connection, table) for table in TABLES))


TABLES = {
    "checkpoints": "thread_id TEXT, checkpoint_ns TEXT, checkpoint_id TEXT, parent_checkpoint_id TEXT, type TEXT, "
    "checkpoint JSONB, metadata JSONB",
    "checkpoint_blobs": "thread_id TEXT, checkpoint_ns TEXT, channel TEXT, version TEXT, type TEXT, blob BYTEA",
    "checkpoint_writes": "thread_id TEXT, checkpoint_ns TEXT, checkpoint_id TEXT, task_id TEXT, task_path TEXT, "
    "idx INTEGER, channel TEXT, type TEXT, blob BYTEA",
}


def dumped(connection: Any, table: str) -> str:
    """A table as statements; keys and indexes of no interest are left out."""
    columns = TABLES[table].split(", ")
    names = ", ".join(column.split()[0] for column in columns)
    rows = connection.execute(f"SELECT {names} FROM {table} ORDER BY 1, 2, 3, 4, 5").fetchall()
    lines = [f"({', '.join(map(literal, row))})" for row in rows]
    values = ",\n".join(lines)
    return f"CREATE TABLE {table} ({TABLES[table]});\nINSERT INTO {table} ({names}) VALUES\n{values};\n"


def literal(value: Any) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, bytes):
        return f"'\\x{value.hex()}'"
    if isinstance(value, int):
        return str(value)
    text = value if isinstance(value, str) else json.dumps(value)
    return "'" + text.replace("'", "''") + "'"


def main(kind: str, path: str, *url: str) -> None:
    """Make one of the two."""
    asyncio.run(make_sqlite(Path(path)) if kind == "sqlite" else make_postgres(Path(path), *url))


if __name__ == "__main__":
    main(*sys.argv[1:])

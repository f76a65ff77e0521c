"""The command `everstep`: an argument parser, and one function for each command.

A command may wait or not. It returns what it has to say, as text for people and as data for scripts (``--json``),
with an exit code: 0 when all is well, 1 when it is not, 2 when the command line cannot be understood. What can be
expected to go wrong is a sentence on standard error, never a traceback.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Sequence
from typing import Any

from everstep.ops.import_command import add_import
from everstep.ops.report import Command, Report, add_command, add_database, place_of
from everstep.ops.targets import load_target
from everstep.ops.threads_command import add_threads
from everstep_savers.errors import PersistenceError, SchemaOutOfDate
from everstep_savers.sql import migrate
from everstep_savers.sql.database import check_revision, parse_url, shown
from everstep_savers.sql.schema import SCHEMA_REVISION


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line; the exit code."""
    options = _parser().parse_args(arguments)
    command: Command = options.command
    try:
        made = command(options)
        report = made if isinstance(made, Report) else asyncio.run(made)
    except (PersistenceError, ValueError, LookupError) as error:
        report = Report(str(error), {"error": str(error)}, 1)
    if options.json:
        print(json.dumps(report.data))
    else:
        print(report.text, file=sys.stderr if report.exit_code else sys.stdout)
    return report.exit_code


async def db_upgrade(options: argparse.Namespace) -> Report:
    """Bring the schema to a revision."""
    place = place_of(options)
    before = await migrate.current(options.url, place=place)
    await migrate.upgrade(options.url, options.revision, place=place)
    return _moved(options.url, before, await migrate.current(options.url, place=place))


async def db_downgrade(options: argparse.Namespace) -> Report:
    """Take the schema back to an older revision."""
    place = place_of(options)
    before = await migrate.current(options.url, place=place)
    await migrate.downgrade(options.url, options.revision, place=place)
    return _moved(options.url, before, await migrate.current(options.url, place=place))


async def db_current(options: argparse.Namespace) -> Report:
    """Say which revision the schema has."""
    revision = await migrate.current(options.url, place=place_of(options))
    place = shown(parse_url(options.url))
    data = {"url": place, "revision": revision, "newest": SCHEMA_REVISION}
    return Report(f"{place}: {_named(revision)}, newest is {SCHEMA_REVISION}", data)


async def db_check(options: argparse.Namespace) -> Report:
    """Compare the database with what this version needs."""
    url, place = parse_url(options.url), place_of(options)
    revision = await migrate.current(url, place=place)
    data: dict[str, Any] = {"url": shown(url), "revision": revision, "newest": SCHEMA_REVISION}
    try:
        check_revision(revision, url, place)
    except SchemaOutOfDate as error:
        return Report(str(error), {**data, "ok": False, "error": str(error)}, 1)
    differences = await migrate.differences(url, place=place)
    data |= {"ok": not differences, "differences": differences}
    if differences:
        listed = "".join(f"\n  {each}" for each in differences)
        return Report(f"{shown(url)}: at {revision}, but not as its revision made it:{listed}", data, 1)
    return Report(f"{shown(url)}: at {revision}, as this version needs it", data)


def draw_graph(options: argparse.Namespace) -> Report:
    """Draw a graph."""
    graph = load_target(options.graph)
    if not hasattr(graph, "get_graph") and hasattr(graph, "compile"):
        graph = graph.compile()
    if not hasattr(graph, "get_graph"):
        raise ValueError(f"{options.graph} is {type(graph).__name__} {graph!r:.100}, which is no graph")
    drawing = graph.get_graph(xray=options.xray)
    text: str = getattr(drawing, f"draw_{options.format}")()
    return Report(text.rstrip("\n"), {"name": graph.name, **drawing.to_json()})


async def db_sql(options: argparse.Namespace) -> Report:
    """Print the statements of an upgrade, for somebody else to run."""
    # Alembic's environment runs an event loop of its own, in other cases than this.
    text = await asyncio.to_thread(migrate.statements, options.url, options.revision, place=place_of(options))
    return Report(text, {"url": shown(parse_url(options.url)), "sql": text})


def _moved(url: str, before: str | None, after: str | None) -> Report:
    place = shown(parse_url(url))
    data = {"url": place, "before": before, "revision": after}
    if before == after:
        return Report(f"{place}: at {_named(after)} already", data)
    return Report(f"{place}: from {_named(before)} to {_named(after)}", data)


def _named(revision: str | None) -> str:
    return revision or "no schema"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="everstep", description="Operate a database of durable graphs.")
    groups = parser.add_subparsers(required=True, metavar="COMMAND")
    db = groups.add_parser("db", help="the database's schema")
    commands = db.add_subparsers(required=True, metavar="COMMAND")
    _add(commands, "upgrade", db_upgrade, revision="head")
    _add(commands, "downgrade", db_downgrade, revision="")
    _add(commands, "current", db_current)
    _add(commands, "check", db_check)
    _add(commands, "sql", db_sql, revision="head")
    add_threads(groups)
    add_import(groups)
    _add_graph(groups)
    return parser


def _add_graph(groups: Any) -> None:
    parser = groups.add_parser("graph", help="a graph as a drawing", description=draw_graph.__doc__)
    parser.add_argument("graph", metavar="MODULE:NAME", help="where it is: package.module:name")
    parser.add_argument("--format", choices=("mermaid", "ascii", "svg"), default="mermaid", help="how it is drawn")
    parser.add_argument(
        "--xray", type=int, nargs="?", const=True, default=False, metavar="DEPTH", help="draw what is in subgraphs too"
    )
    parser.add_argument("--json", action="store_true", help="print nodes and edges as JSON, for scripts")
    parser.set_defaults(command=draw_graph)


def _add(commands: Any, name: str, command: Command, *, revision: str | None = None) -> None:
    parser = add_command(commands, name, command)
    add_database(parser)
    if revision is not None:
        parser.add_argument(
            "--revision",
            default=revision or None,
            required=not revision,
            help='a revision such as 0001, or "base" for none',
        )


if __name__ == "__main__":
    sys.exit(main())

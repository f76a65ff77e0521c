"""``everstep import langgraph``: threads that LangGraph has written, brought into a database of ours."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from typing import Any

from everstep.graph.functional import TaskFunction
from everstep.ops.importing import Import, Imported, import_langgraph
from everstep.ops.report import (
    Report,
    add_command,
    add_database,
    add_types,
    annotations_of,
    graph_of,
    place_of,
    progress,
    saver_of,
    table,
)
from everstep_savers.sql.database import parse_url, shown

# The name that a graph has if nobody gave it one.
_NAMELESS = "graph"


def add_import(groups: Any) -> None:
    """Add the command to the parser."""
    parser = groups.add_parser("import", help="threads of another runtime")
    sources = parser.add_subparsers(required=True, metavar="SOURCE")
    langgraph = add_command(sources, "langgraph", import_from_langgraph)
    langgraph.add_argument(
        "--from", dest="source", required=True, metavar="URL", help="a database of LangGraph's savers"
    )
    add_database(langgraph, "--to")
    add_types(langgraph)
    langgraph.add_argument(
        "--task",
        dest="tasks",
        action="append",
        default=[],
        metavar="NAME",
        help="a @task that threads wait in, if importing the graph does not define it in a module; may be repeated",
    )
    langgraph.add_argument(
        "--thread", dest="threads", action="append", metavar="ID", help="only this one; may be repeated"
    )
    langgraph.add_argument("--dry-run", action="store_true", help="only tell what could be imported")


async def import_from_langgraph(options: argparse.Namespace) -> Report:
    """Bring over threads that LangGraph's SQLite or Postgres saver has stored."""
    if parse_url(options.source) == parse_url(options.url) and not place_of(options):
        raise ValueError(
            "LangGraph's tables and ours have the same names: choose another database, or keep ours apart with "
            "--schema or --table-prefix"
        )
    graph = graph_of(options)
    what = Import(
        options.source,
        graph.name if graph is not None else _NAMELESS,
        annotations_of(options),
        options.threads,
        options.dry_run,
        [*options.tasks, *(_known_tasks() if graph is not None else ())],
    )
    async with saver_of(options) as saver:
        with progress("threads", is_shown=not options.json) as told:
            imported = await import_langgraph(what, saver, told)
    return _said(imported, options)


def _known_tasks() -> list[str]:
    """The names of the `@task`s that modules define by now."""
    found = (value for module in list(sys.modules.values()) for value in list(vars(module).values()))
    return sorted({value.name for value in found if isinstance(value, TaskFunction)})


def _said(imported: Imported, options: argparse.Namespace) -> Report:
    data = {
        "imported": [
            {
                "thread_id": each.thread_id,
                "status": each.status,
                "checkpoints": each.checkpoints,
                "questions": dict(each.questions),
                "asked_again": list(each.asked_again),
            }
            for each in imported.threads
        ],
        "present": list(imported.present),
        "refused": imported.refused,
        "dry_run": options.dry_run,
    }
    return Report("\n".join(_lines(imported, options)), data, 1 if imported.refused else 0)


def _lines(imported: Imported, options: argparse.Namespace) -> Iterator[str]:
    verb = "could be imported" if options.dry_run else "imported"
    yield f"{len(imported.threads)} threads {verb} from {shown(parse_url(options.source))}"
    if imported.threads:
        yield ""
        rows = [(each.thread_id, each.status, each.checkpoints, len(each.questions)) for each in imported.threads]
        yield table(("THREAD", "STATUS", "CHECKPOINTS", "QUESTIONS"), rows)
    questions = [(each.thread_id, *pair) for each in imported.threads for pair in each.questions.items()]
    if questions:
        yield from ("", "open questions have new ids:", table(("THREAD", "LANGGRAPH", "EVERSTEP"), questions))
    again = [(each.thread_id, old) for each in imported.threads for old in each.asked_again]
    if again:
        yield from ("", "asked again when the thread goes on without an answer:", table(("THREAD", "LANGGRAPH"), again))
    if imported.present:
        yield from ("", f"{len(imported.present)} threads were here already, and were left alone:")
        yield from (f"  {thread_id}" for thread_id in imported.present)
    if imported.refused:
        yield from ("", f"{len(imported.refused)} threads refused:")
        yield from (f"  {thread_id}: {reason}" for thread_id, reason in imported.refused.items())

"""What commands have in common: what they say, the options that name a database, and plain tables."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from everstep.ops.targets import load_target
from everstep_savers.sql.place import Place
from everstep_savers.sql.saver import SQLSaver

# Characters of a progress bar.
_BAR = 40

URL_VARIABLE = "EVERSTEP_DATABASE_URL"


@dataclass(frozen=True, slots=True)
class Report:
    """What a command has to say."""

    text: str
    data: dict[str, Any] = field(default_factory=dict)
    exit_code: int = 0


Command = Callable[[argparse.Namespace], Coroutine[Any, Any, Report] | Report]


def add_command(commands: Any, name: str, command: Command) -> argparse.ArgumentParser:
    """Add a parser for a command, which is described by its docstring."""
    parser: argparse.ArgumentParser = commands.add_parser(name, help=command.__doc__, description=command.__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON, for scripts")
    parser.set_defaults(command=command)
    return parser


def add_database(parser: argparse.ArgumentParser, option: str = "--url") -> None:
    """Add the options that name a database of ours."""
    default = os.environ.get(URL_VARIABLE)
    parser.add_argument(
        option,
        dest="url",
        default=default,
        required=default is None,
        help=f"such as sqlite:///threads.db or postgresql://host/name; {URL_VARIABLE} if left out",
    )
    parser.add_argument("--schema", help="the Postgres schema of the tables")
    parser.add_argument("--table-prefix", default="", help="what the names of the tables begin with")


def add_types(parser: argparse.ArgumentParser) -> None:
    """Add the options that name what values may consist of."""
    parser.add_argument("--graph", metavar="MODULE:GRAPH", help="the graph whose threads these are")
    parser.add_argument(
        "--type",
        dest="types",
        action="append",
        default=[],
        metavar="MODULE:CLASS",
        help="a class that values may be of; may be repeated",
    )


def place_of(options: argparse.Namespace) -> Place:
    """Where in the database the tables are."""
    return Place(options.schema, options.table_prefix)


def saver_of(options: argparse.Namespace) -> SQLSaver:
    """A saver on the database that the options name."""
    return SQLSaver.from_url(options.url, schema=options.schema, table_prefix=options.table_prefix)


def graph_of(options: argparse.Namespace) -> Any:
    """The compiled graph that the options name, None if they name none.

    Raises:
        ValueError: It is no graph.
    """
    if options.graph is None:
        return None
    graph = load_target(options.graph)
    if not hasattr(graph, "blueprint") and hasattr(graph, "compile"):
        graph = graph.compile()
    if not hasattr(graph, "blueprint"):
        raise ValueError(f"{options.graph} is {type(graph).__name__} {graph!r:.100}, which is no graph")
    return graph


def annotations_of(options: argparse.Namespace) -> list[Any]:
    """What values may consist of, as far as the options tell.

    Raises:
        ValueError: What should be a class is none.
    """
    graph = graph_of(options)
    found = list(graph.blueprint.annotations) if graph is not None else []
    for name in options.types:
        cls = load_target(name)
        if not isinstance(cls, type):
            raise ValueError(f"{name} is {type(cls).__name__} {cls!r:.100}, which is no class")
        found.append(cls)
    return found


@contextmanager
def progress(what: str, *, is_shown: bool = True) -> Iterator[Callable[[int, int], None]]:
    """A bar that is told how much is done, and of how much; only where somebody may be looking.

    It stands on the error stream, so that the output can be piped.
    """
    stream = sys.stderr
    is_shown = is_shown and stream.isatty()

    def told(done: int, total: int) -> None:
        if is_shown:
            filled = _BAR * done // max(total, 1)
            stream.write(f"\r[{'#' * filled}{' ' * (_BAR - filled)}] {done}/{total} {what}")
            stream.flush()

    try:
        yield told
    finally:
        if is_shown:
            stream.write("\r\x1b[K")
            stream.flush()


def table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Rows in columns, with a head; for people."""
    lines = [list(head), *([_cell(each) for each in row] for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )


def _cell(value: Any) -> str:
    return "-" if value is None else " ".join(str(value).split())

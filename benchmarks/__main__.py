"""Run the kernels and print the table: `python -m benchmarks [--peer] [--only loop] [--json out.json]`.

With `--peer` both packages run in turn, A B A B, each kernel in new processes, so that a machine that
slows down or speeds up meanwhile does so for both.
"""

from __future__ import annotations

import argparse
import datetime
import fnmatch
import json
import os
import platform
import statistics
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.postgres import databases
from benchmarks.report import Result, show_number, show_table
from benchmarks.sides import Side, our_side, peer_side
from benchmarks.workloads import KERNELS


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__.splitlines()[0])
    parser.add_argument("--peer", action="store_true", help="compare with LangGraph")
    parser.add_argument("--peer-python", help="an interpreter that has LangGraph, instead of one made here")
    parser.add_argument("--only", nargs="+", default=["*"], metavar="PATTERN", help="kernels, as in 'loop_*'")
    parser.add_argument("--rounds", type=int, default=5, help="processes per kernel and package")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write all numbers here")
    parser.add_argument("--list", action="store_true", help="list the kernels and stop")
    return parser.parse_args(arguments)


def measure(
    kernel: str, sides: Sequence[Side], rounds: int, new_database: Callable[[str], str], progress: str
) -> Result:
    """Run one kernel on all sides in turn."""
    about = KERNELS[kernel]
    result = Result(kernel, about.title, about.unit, {side.package: [] for side in sides})
    for turn in range(1, rounds + 1):
        for side in sides:
            numbers = side.run(kernel, new_database)
            result.numbers[side.package].extend(numbers)
            shown = show_number(statistics.median(numbers), about.unit)
            sys.stderr.write(f"{progress} {kernel}, round {turn} of {rounds}, {side.package}: {shown}\n")
    return result


def describe_machine() -> dict[str, object]:
    """What a reader must know to judge the numbers."""
    return {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "cores": os.cpu_count(),
        "platform": platform.platform(),
        "python": platform.python_version(),
    }


def main() -> None:
    """Run what the command line asks for."""
    options = parse()
    kernels = [k for k in KERNELS if any(fnmatch.fnmatch(k, pattern) for pattern in options.only)]
    if options.list:
        print("\n".join(f"{kernel:24} {KERNELS[kernel].title}" for kernel in kernels))
        return
    if not kernels:
        sys.exit(f"no kernel is called {' or '.join(options.only)}; --list shows them")
    sides = [our_side()]
    if options.peer:
        peer = Side("langgraph", options.peer_python) if options.peer_python else peer_side()
        sides = [peer, *sides]
    with databases() as new_database:
        results = [
            measure(kernel, sides, options.rounds, new_database, f"[{i}/{len(kernels)}]")
            for i, kernel in enumerate(kernels, start=1)
        ]
    machine = describe_machine()
    versions = {side.package: side.versions() for side in sides}
    print(f"\n{machine['date']}, {machine['cores']} cores, Python {machine['python']}, {machine['platform']}")
    for package, found in versions.items():
        print(f"{package}: {', '.join(f'{name} {version}' for name, version in found.items())}")
    print(f"\n{show_table(results, with_peer=options.peer)}")
    if options.json:
        report = {"machine": machine, "versions": versions, "results": [r.as_json() for r in results]}
        options.json.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

"""The two libraries, each in a process of its own, and what they make of programs."""

from __future__ import annotations

import json
import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.differential.differences import Difference, Place, explanation, first_difference
from tests.differential.programs import Program
from tests.differential.shrinking import shrink

INTERPRETER = Path(__file__).with_name("interpreter.py")
# Seconds for one program.
PATIENCE = 120.0


class Side:
    """A process that runs programs on one library."""

    def __init__(self, package: str, python: str) -> None:
        self.package = package
        environment = dict(os.environ)
        if package != "everstep":
            environment.pop("PYTHONPATH", None)  # a path that leads to our sources is not the peer's business
        self.process = subprocess.Popen(
            [python, str(INTERPRETER), package],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )

    def send(self, program: Program) -> None:
        """Let it begin with a program."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(program) + "\n")
        self.process.stdin.flush()

    def receive(self) -> Any:
        """What the program did.

        Raises:
            RuntimeError: The process has ended, or had to be ended because it took too long.
        """
        assert self.process.stdout is not None
        watch = threading.Timer(PATIENCE, self.process.kill)
        watch.start()
        try:
            line = self.process.stdout.readline()
        finally:
            watch.cancel()
        if not line:
            raise RuntimeError(f"the process that runs {self.package} ended with {self.process.wait()}")
        return json.loads(line)

    def close(self) -> None:
        """End the process."""
        self.process.communicate()


@contextmanager
def both_sides(ours: str, theirs: str, package: str = "langgraph") -> Iterator[Pair]:
    """Start both processes with these interpreters; end them afterwards."""
    sides = (Side("everstep", ours), Side(package, theirs))
    try:
        yield Pair(*sides)
    finally:
        for side in sides:
            side.close()


@dataclass(frozen=True, slots=True)
class Verdict:
    """What came of one program.

    Attributes:
        place: Where the two differ first; None if nowhere.
        known: The difference on purpose that it is.
        is_steady: They differ there every time.
    """

    place: Place | None
    known: Difference | None = None
    is_steady: bool = True


class Pair:
    """Both libraries, asked about the same programs."""

    def __init__(self, ours: Side, theirs: Side) -> None:
        self.ours, self.theirs = ours, theirs

    def compare(self, program: Program) -> Place | None:
        """Run a program on both; the first place where they differ."""
        for side in (self.ours, self.theirs):
            side.send(program)
        ours, theirs = self.ours.receive(), self.theirs.receive()
        return first_difference(program, ours, theirs)

    def judge(self, program: Program) -> Verdict:
        """Compare, and if the two disagree, twice more: what a loaded machine does once is no disagreement."""
        place = self.compare(program)
        if place is None:
            return Verdict(None)
        known = explanation(place)
        if known is not None:
            return Verdict(place, known)
        again = [self.compare(program) for _ in range(2)]
        return Verdict(place, None, all(other is not None and other.name == place.name for other in again))

    def shortest(self, program: Program, place: Place) -> tuple[Program, Place]:
        """The shortest program found that shows the same disagreement."""

        def still(smaller: Program) -> bool:
            found = self.compare(smaller)
            return found is not None and found.name == place.name and explanation(found) is None

        small = shrink(program, still)
        return small, self.compare(small) or place

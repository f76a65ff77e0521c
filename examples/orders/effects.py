"""The effects log: a file in which every node leaves a line when its body runs, whichever process runs it.

One `write` of one short line to a file opened with O_APPEND: lines of many processes never mix, and what
was written before a SIGKILL stays. It stands outside the database on purpose: it is the witness of what
really ran.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Effect:
    """A node's body ran."""

    thread: str
    node: str
    attempt: int
    """From 1; greater where the retry policy ran the node again."""
    pid: int
    time: float
    """Seconds since the epoch."""


@dataclass(frozen=True, slots=True)
class EffectsLog:
    """A log that is appended to."""

    path: Path

    def note(self, thread: str, node: str, attempt: int = 1) -> None:
        """Append one line for this process and moment."""
        effect = Effect(thread, node, attempt, os.getpid(), time.time())
        data = json.dumps(asdict(effect)).encode() + b"\n"
        descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(descriptor, data)
        finally:
            os.close(descriptor)


class EffectsReader:
    """Reads a log as it grows."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.effects: list[Effect] = []
        self._offset = 0

    def refresh(self) -> list[Effect]:
        """Take in what was appended since the last call, and return everything so far."""
        if self.path.exists():
            with self.path.open("rb") as file:
                file.seek(self._offset)
                whole, newline, _ = file.read().rpartition(b"\n")
            self._offset += len(whole) + len(newline)
            self.effects += [Effect(**json.loads(line)) for line in whole.splitlines()]
        return self.effects

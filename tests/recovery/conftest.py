"""Children for the tests that kill processes."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.recovery.killable import Plan

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Ending:
    """How a child ended: by a signal, or with a result or an error."""

    killed: int
    result: Any
    error: str | None


Raise = Callable[[str, Sequence[Plan]], Coroutine[Any, Any, list[Ending]]]


@pytest.fixture(scope="session")
def nursery() -> Iterator[subprocess.Popen[str]]:
    """The process that forks children; see `tests.recovery.nursery`."""
    path = os.pathsep.join((str(ROOT), *filter(None, sys.path)))
    with subprocess.Popen(
        [sys.executable, "-m", "tests.recovery.nursery"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path},
    ) as process:
        yield process
        assert process.stdin is not None
        process.stdin.close()


@pytest.fixture
def children(nursery: subprocess.Popen[str]) -> Raise:
    """Run a deed once for each plan, each in a process of its own, all at once."""

    def ask(deed: str, plans: Sequence[Plan]) -> list[Ending]:
        assert nursery.stdin is not None
        assert nursery.stdout is not None
        nursery.stdin.write(json.dumps([deed, [asdict(plan) for plan in plans]]) + "\n")
        nursery.stdin.flush()
        return [Ending(**ending) for ending in json.loads(nursery.stdout.readline())]

    async def run(deed: str, plans: Sequence[Plan]) -> list[Ending]:
        return await asyncio.to_thread(ask, deed, plans)

    return run

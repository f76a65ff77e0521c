"""A process that has everything imported and forks children, so that a child costs milliseconds.

It reads lines of JSON, ``["deed", [plan, ...]]``, from its input, forks a child for each plan, all at once, waits
until they have ended, and writes how: ``{"killed": signal or 0, "result": ..., "error": ...}`` for each. It has
neither threads nor an event loop, so that forking is safe.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.recovery.killable import DEEDS, Plan
from tests.recovery.killable_cache import CACHE_DEEDS
from tests.recovery.killable_import import bring

ALL_DEEDS = {**DEEDS, **CACHE_DEEDS, "bring": bring}


def main() -> None:
    """Serve until the input ends."""
    for line in sys.stdin:
        deed, plans = json.loads(line)
        sys.stdout.write(json.dumps(raise_children(deed, plans)) + "\n")
        sys.stdout.flush()


def raise_children(deed: str, plans: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Run a child for each plan, and tell how each ended."""
    with tempfile.TemporaryDirectory() as folder:
        outcomes = [Path(folder, str(number)) for number in range(len(plans))]
        children = [fork(deed, plan, outcome) for plan, outcome in zip(plans, outcomes, strict=True)]
        return [ending(child, outcome) for child, outcome in zip(children, outcomes, strict=True)]


def fork(deed: str, plan: dict[str, Any], outcome: Path) -> int:
    """Fork a child that does its deed and writes the outcome; its process id."""
    if child := os.fork():
        return child
    signal.alarm(30)  # a child that hangs fails its test, and not all that come after it
    result: Any = None
    error: str | None = None
    try:
        result = asyncio.run(ALL_DEEDS[deed](Plan(**plan)))
    except BaseException as failure:
        error = f"{type(failure).__name__}: {failure}"
    outcome.write_text(json.dumps({"result": result, "error": error}, default=repr))
    os._exit(0)


def ending(child: int, outcome: Path) -> dict[str, Any]:
    """Wait for a child."""
    _, status = os.waitpid(child, 0)
    told = json.loads(outcome.read_text()) if outcome.exists() else {"result": None, "error": None}
    return {"killed": os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0, **told}


if __name__ == "__main__":
    main()

"""Sync calls in the middle of a run: they are served by the run's own loop.

A sync node runs in a worker thread. What it calls there (a subgraph, a store) belongs to its run, and so to the
run's loop. The bridge itself is that of the savers; it is told here where to look.
"""

from __future__ import annotations

import asyncio

from everstep.context import current_task
from everstep_savers.blocking import iterate_blocking, run_blocking, serve_from

__all__ = ["iterate_blocking", "run_blocking"]


def _loop_of_run() -> asyncio.AbstractEventLoop | None:
    attempt = current_task.get(None)
    run = getattr(attempt, "run", None)
    loop = getattr(run, "loop", None)
    return loop if isinstance(loop, asyncio.AbstractEventLoop) else None


serve_from(_loop_of_run)

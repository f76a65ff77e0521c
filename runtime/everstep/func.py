"""Home of the functional API: `entrypoint` and `task`."""

from __future__ import annotations

from everstep.graph.functional import TaskFunction, entrypoint, task

__all__ = ["TaskFunction", "entrypoint", "task"]

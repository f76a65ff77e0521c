"""Static breakpoints: does a run stop before or after these tasks? Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from everstep.channels.snapshot import Channels
from everstep.pregel.request import NodeNames
from everstep.tasks.task import Task


def stops_at(names: NodeNames, tasks: Sequence[Task], channels: Channels, last_stop: Any) -> bool:
    """Is one of the tasks a breakpoint, and has a channel changed since the run last stopped?

    Args:
        names: Node names, or "*" for all that are not hidden.
        last_stop: The newest channel version at the last stop, None if there was none. A resumed run
            must not stop at once at the place it has just left.
    """
    if not names or (last_stop is not None and channels.newest is not None and not channels.newest > last_stop):
        return False
    if names == "*":
        return any(not task.node.hidden for task in tasks)
    return any(task.name in names for task in tasks)

"""Events: what a run tells its readers, before a reader's version of the stream gives them their form.

An event is taken at once: what happens later does not change it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from everstep.types import Interrupt


@dataclass(slots=True)  # not frozen, which makes one six times as slow: there are many
class Event:
    """One event, shared by all who read it; nobody changes it.

    Attributes:
        ns: The graph it comes from, ``node:task_id`` for each level below the root.
        mode: The stream mode it belongs to.
        data: The payload; for mode "values" without the questions, which stand in `interrupts`.
        attempts: The number of the attempt of the task at each level of `ns`, and of its own task if it has one.
        model: Makes an instance of the graph's schema of the values in `data`; None leaves them a mapping.
    """

    ns: tuple[str, ...]
    mode: str
    data: Any
    interrupts: tuple[Interrupt, ...] = ()
    attempts: tuple[int, ...] = ()
    model: Callable[[Any], Any] | None = None

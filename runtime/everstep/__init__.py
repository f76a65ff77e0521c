"""Everstep: a durable, async-first graph runtime.

Describe a workflow or an agent as a graph of nodes over shared state; it runs in supersteps on asyncio,
every step is stored, and a thread survives whatever happens to the process.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from everstep.constants import END, START
from everstep.context import interrupt
from everstep.types import Command, Interrupt, Overwrite, RetryPolicy, Send, StateSnapshot, TimeoutPolicy

if TYPE_CHECKING:
    from everstep.graph.builder import StateGraph

__all__ = [
    "END",
    "START",
    "Command",
    "Interrupt",
    "Overwrite",
    "RetryPolicy",
    "Send",
    "StateGraph",
    "StateSnapshot",
    "TimeoutPolicy",
    "interrupt",
]


def __getattr__(name: str) -> Any:
    if name == "StateGraph":
        from everstep.graph.builder import StateGraph

        return StateGraph
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

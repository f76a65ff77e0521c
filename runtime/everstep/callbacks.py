"""Lifecycle callbacks: told when a run starts, goes on, stops for a question, and ends.

Given as ``config["callbacks"]``, a handler or a list of them. Other handlers that a user keeps there, such as those
of model libraries, are left alone. Without a `GraphCallbackHandler` in the list nothing of this runs. A callback
watches: what it raises is logged and changes nothing.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal
from uuid import UUID

from everstep.types import Interrupt

__all__ = [
    "GraphCallbackHandler",
    "GraphInterruptEvent",
    "GraphResumeEvent",
    "GraphRunEndEvent",
    "GraphRunStartEvent",
    "callback_handlers",
]

logger = logging.getLogger("everstep")

# Where a run stood: at a question or in the middle of a step, or at a static breakpoint.
GraphLifecycleStatus = Literal["pending", "interrupt_before", "interrupt_after"]
RunEnding = Literal["done", "interrupted", "failed", "cancelled", "drained", "out_of_steps"]


@dataclass(frozen=True, slots=True)
class GraphRunStartEvent:
    """A run begins: with an input, or by continuing its thread.

    Attributes:
        checkpoint_ns: Empty for the root graph; a level ``node:task_id`` for each graph that contains a subgraph.
        graph: Name of the graph.
        checkpoint_id: The checkpoint it starts from; None without a saver.
        is_resumed: It continues a thread, or replays a part of it.
    """

    run_id: UUID | str | None
    graph: str
    checkpoint_id: str | None
    checkpoint_ns: tuple[str, ...]
    is_resumed: bool


@dataclass(frozen=True, slots=True)
class GraphResumeEvent:
    """A thread goes on from where it stood."""

    run_id: UUID | str | None
    status: GraphLifecycleStatus
    checkpoint_id: str
    checkpoint_ns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class GraphInterruptEvent:
    """A root run stops for questions, or at a static breakpoint.

    Attributes:
        interrupts: The open questions; empty at a breakpoint.
    """

    run_id: UUID | str | None
    status: GraphLifecycleStatus
    checkpoint_id: str
    checkpoint_ns: tuple[str, ...]
    interrupts: tuple[Interrupt, ...]


@dataclass(frozen=True, slots=True)
class GraphRunEndEvent:
    """A run has ended, and how it ended is stored.

    Attributes:
        error: What it raised; None if it is done or interrupted.
    """

    run_id: UUID | str | None
    graph: str
    status: RunEnding
    checkpoint_id: str | None
    checkpoint_ns: tuple[str, ...]
    error: BaseException | None = None


GraphEvent = GraphRunStartEvent | GraphResumeEvent | GraphInterruptEvent | GraphRunEndEvent


class GraphCallbackHandler:
    """Override what you want to hear of; each method may be async.

    Sync methods are called on the run's event loop and hold it up while they run.
    """

    # LangChain passes callbacks on from what calls to what is called, and asks nothing of this one.
    run_inline = ignore_llm = ignore_chat_model = ignore_chain = ignore_agent = True
    ignore_retriever = ignore_retry = ignore_custom_event = True
    raise_error = False

    def on_run_start(self, event: GraphRunStartEvent) -> Any:
        """A run of the root graph or of a subgraph begins."""

    def on_resume(self, event: GraphResumeEvent) -> Any:
        """The run that begins continues its thread."""

    def on_interrupt(self, event: GraphInterruptEvent) -> Any:
        """The root run stops for questions or at a breakpoint; it is stored already."""

    def on_run_end(self, event: GraphRunEndEvent) -> Any:
        """A run of the root graph or of a subgraph has ended."""


def callback_handlers(callbacks: Any) -> tuple[GraphCallbackHandler, ...]:
    """The lifecycle handlers among what a config has as `callbacks`: one, several, or a manager with `handlers`."""
    if callbacks is None:
        return ()
    if isinstance(callbacks, GraphCallbackHandler):
        return (callbacks,)
    found = getattr(callbacks, "handlers", callbacks)
    if not isinstance(found, Iterable):
        return ()
    return tuple(handler for handler in found if isinstance(handler, GraphCallbackHandler))


async def tell(handlers: Sequence[GraphCallbackHandler], method: str, event: GraphEvent) -> None:
    """Call a method of each handler in turn; what one raises is logged."""
    for handler in handlers:
        try:
            told = getattr(handler, method)(event)
            if inspect.isawaitable(told):
                await told
        except Exception as error:
            logger.warning("callback %s.%s failed", type(handler).__name__, method, exc_info=error)


def shown_run_id(run_id: str | None) -> UUID | str | None:
    """A run's id as events show it: as a UUID if it is one."""
    if run_id is None:
        return None
    try:
        return UUID(run_id)
    except ValueError:
        return run_id

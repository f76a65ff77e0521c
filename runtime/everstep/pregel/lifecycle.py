"""What lifecycle callbacks are told of one run, see `everstep.callbacks`.

Made only for a run whose config has handlers. It knows where the run stands from what it is told; it neither decides
nor stores anything.
"""

from __future__ import annotations

from collections.abc import Sequence

from everstep.callbacks import (
    GraphCallbackHandler,
    GraphInterruptEvent,
    GraphLifecycleStatus,
    GraphResumeEvent,
    GraphRunEndEvent,
    GraphRunStartEvent,
    RunEnding,
    callback_handlers,
    shown_run_id,
    tell,
)
from everstep.pregel.request import RunRequest
from everstep.pregel.subgraphs import levels_of
from everstep.types import Interrupt


class Lifecycle:
    """Tells the handlers of one run."""

    def __init__(self, request: RunRequest, handlers: Sequence[GraphCallbackHandler], run_id: str | None) -> None:
        self.handlers = handlers
        self.graph = request.graph.name
        self.is_root = request.parent is None
        self.run_id = shown_run_id(run_id)
        self.ns = levels_of(request.config.checkpoint_ns)

    async def started(self, checkpoint_id: str | None, *, is_resumed: bool) -> None:
        """The run begins."""
        begun = GraphRunStartEvent(self.run_id, self.graph, checkpoint_id, self.ns, is_resumed)
        await tell(self.handlers, "on_run_start", begun)
        if is_resumed:
            resumed = GraphResumeEvent(self.run_id, "pending", checkpoint_id or "", self.ns)
            await tell(self.handlers, "on_resume", resumed)

    async def interrupted(
        self, checkpoint_id: str | None, status: GraphLifecycleStatus, questions: Sequence[Interrupt]
    ) -> None:
        """The run stops, and that is stored; questions of a subgraph are told by the root."""
        if self.is_root:
            event = GraphInterruptEvent(self.run_id, status, checkpoint_id or "", self.ns, tuple(questions))
            await tell(self.handlers, "on_interrupt", event)

    async def ended(self, checkpoint_id: str | None, status: RunEnding, error: BaseException | None) -> None:
        """The run has ended."""
        event = GraphRunEndEvent(self.run_id, self.graph, status, checkpoint_id, self.ns, error)
        await tell(self.handlers, "on_run_end", event)


def lifecycle_of(request: RunRequest, run_id: str | None) -> Lifecycle | None:
    """The lifecycle of a run that somebody watches, else None."""
    if request.config.callbacks is None:
        return None
    handlers = callback_handlers(request.config.callbacks)
    return Lifecycle(request, handlers, run_id) if handlers else None

"""What a run tells its readers: engine events as the payloads of the stream modes.

Made only where somebody listens. The reader of a graph sees its own events, and those of its subgraphs if
it asked for them. Payloads are taken at once, so that what happens later does not change them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from everstep.channels.snapshot import Channels
from everstep.constants import INTERRUPT
from everstep.pregel import payloads
from everstep.pregel.checkpoints import Point
from everstep.pregel.io import output_of, touches, update_of
from everstep.pregel.messages import Messages
from everstep.pregel.request import RunRequest
from everstep.pregel.subgraphs import levels_of
from everstep.stream.buffer import Outlet
from everstep.stream.events import Event
from everstep.tasks.current import Attempt, RunScope
from everstep.tasks.task import Task
from everstep.types import Interrupt


class Events:
    """Projects a run onto the stream modes that are read.

    Args:
        outlets: Of those who read this run.
        scope: Of the run; tells the step under way.
    """

    def __init__(self, outlets: Sequence[Outlet], request: RunRequest, scope: RunScope) -> None:
        self.outlets = outlets
        self.modes = frozenset(mode for outlet in outlets for mode in outlet.modes)
        # Of these two, mode "debug" shows all.
        self._reads_tasks = not self.modes.isdisjoint(("tasks", "debug"))
        self._reads_checkpoints = not self.modes.isdisjoint(("checkpoints", "debug"))
        self._scope = scope
        self._config = request.config
        # What "values" and "updates" show may be limited by the caller; results and checkpoints show all.
        self._output, self._keys = request.shown, request.graph.stream_channels
        self._ns = levels_of(request.config.checkpoint_ns)
        self._attempts = scope.attempts
        self._output_model = request.output_model
        self._state_model = request.graph.state_model
        self._is_root = request.parent is None
        self._asked: set[str] = set()
        read = [outlet for outlet in outlets if "messages" in outlet.modes]
        self.messages = Messages(read, request, scope, self._ns) if read else None

    @property
    def is_full(self) -> bool:
        """Has one of the readers fallen behind?"""
        return any(outlet.is_full for outlet in self.outlets)

    async def room(self) -> None:
        """Wait for slow readers."""
        for outlet in self.outlets:
            if outlet.is_full:
                await outlet.room()

    def entered(self, channels: Channels, tasks: Sequence[Task], point: Point | None, *, is_resumed: bool) -> None:
        """The run begins; a resumed one shows where it stands."""
        if is_resumed:
            self._values(channels)
        if point is not None:
            self.stored(point, tasks, channels)

    def begun(self, tasks: Sequence[Task]) -> None:
        """The tasks of a superstep begin; what those of them had already done that need not run is shown again."""
        self._asked.clear()
        if self.messages is not None:
            for task in tasks:
                self.messages.begun(task)
        if self._reads_tasks:
            for task in tasks:
                if not task.finished and not task.suspended:
                    self.started(task)
        for task in tasks:
            if task.finished and task.handler is None and not task.node.hidden:
                self._updates(task, {"cached": True})

    def started(self, task: Task) -> None:
        """An attempt of a task begins."""
        if self._reads_tasks and not task.node.hidden:
            self._task("task", payloads.started(task, self._config), task)

    def retried(self, task: Task, error: BaseException, delay: float) -> None:
        """An attempt has failed, and another one follows."""
        if self._reads_tasks and not task.node.hidden:
            payload = payloads.ended(task, self._keys, error)
            payload["attempt"], payload["retry_in"] = task.attempt, delay
            self._task("task_result", payload, task)

    def finished(self, task: Task) -> None:
        """A task has returned."""
        if not task.node.hidden:
            if self.messages is not None and not task.cached:
                self.messages.returned(task)
            self._updates(task, {"cached": True} if task.cached else {})
            if not task.cached:
                self._ended(task)

    def failed(self, task: Task) -> None:
        """A task has failed for good."""
        if not task.node.hidden:
            self._ended(task)

    def suspended(self, task: Task, channels: Channels) -> None:
        """A task has asked; one that only stops at a breakpoint of its subgraph shows when the run stops."""
        if task.questions:
            self._questions(task, channels)
            if not task.node.hidden:
                self._ended(task)

    def updated(self, tasks: Sequence[Task], channels: Channels) -> None:
        """The barrier has applied the tasks' writes."""
        if "values" in self.modes and touches((task.writes for task in tasks), self._output):
            self._values(channels)

    def stored(self, point: Point, tasks: Sequence[Task], channels: Channels) -> None:
        """A checkpoint was taken; `tasks` follow it."""
        if self._reads_checkpoints:
            values = output_of(channels, self._keys)
            payload = payloads.checkpoint(point, self._config, values, tasks, self._keys)
            self._emit("checkpoints", payload, model=self._state_model)
            if "debug" in self.modes:
                step = point.metadata.get("step", self._scope.step)
                self._emit("debug", payloads.debug("checkpoint", step, payload), model=self._state_model)

    def stopped(self, tasks: Sequence[Task], channels: Channels) -> None:
        """The run stops for its open questions, or at a breakpoint if there are none."""
        waiting = [task for task in tasks if task.questions]
        for task in waiting:
            if task.id not in self._asked:  # it was asked before this run, and is still open
                self._questions(task, channels)
        if not waiting and self._is_root:
            self._emit("updates", {INTERRUPT: ()})

    def custom(self, attempt: Attempt, value: Any) -> None:
        """A node wrote to the stream; a sync one waits here for slow readers."""
        if attempt.in_thread:
            for outlet in self.outlets:
                if "custom" in outlet.modes:
                    outlet.wait_for_room()
            if attempt.closed:
                return
        self._emit("custom", value, task=attempt.task)

    def _values(self, channels: Channels, questions: tuple[Interrupt, ...] = ()) -> None:
        if "values" in self.modes:
            self._emit("values", output_of(channels, self._output), questions, model=self._output_model)

    def _updates(self, task: Task, metadata: Mapping[str, Any]) -> None:
        if "updates" in self.modes:
            data = {task.name: update_of(task, self._output)}
            self._emit("updates", {**data, "__metadata__": dict(metadata)} if metadata else data, task=task)

    def _questions(self, task: Task, channels: Channels) -> None:
        questions = tuple(task.questions)
        self._asked.add(task.id)
        self._emit("updates", {INTERRUPT: questions}, task=task)
        self._values(channels, questions)

    def _ended(self, task: Task) -> None:
        if self._reads_tasks:
            self._task("task_result", payloads.ended(task, self._keys, task.error), task)

    def _task(self, kind: Literal["task", "task_result"], payload: Any, task: Task) -> None:
        self._emit("tasks", payload, task=task)
        if "debug" in self.modes:
            self._emit("debug", payloads.debug(kind, self._scope.step, payload), task=task)

    def _emit(
        self,
        mode: str,
        data: Any,
        questions: tuple[Interrupt, ...] = (),
        *,
        task: Task | None = None,
        model: Any = None,
    ) -> None:
        attempts = self._attempts if task is None else (*self._attempts, task.attempt)
        event = Event(self._ns, mode, data, questions, attempts, model)
        for outlet in self.outlets:
            if mode in outlet.modes:
                outlet.put(event)


def events_of(request: RunRequest, scope: RunScope) -> Events | None:
    """The events of a run; None if nobody reads any."""
    above: Sequence[Outlet] = scope.nesting.outlets
    outlets = (
        list(above) if request.outlet is None else [*(o for o in above if o is not request.outlet), request.outlet]
    )
    return Events(outlets, request, scope) if outlets else None

"""What a run tells its readers: engine events as the payloads of the stream modes.

Made only where somebody listens. The reader of a graph sees its own events, and those of its subgraphs if
it asked for them. Payloads are taken at once, so that what happens later does not change them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from everstep.channels.snapshot import Channels
from everstep.constants import INTERRUPT, NS_SEP
from everstep.pregel.blueprint import Names
from everstep.pregel.io import output_of, touches, update_of, with_questions
from everstep.stream.buffer import Outlet
from everstep.tasks.task import Task
from everstep.types import Interrupt


class Events:
    """Projects a run onto the stream modes that are read.

    Args:
        outlets: Each with the namespace in which its reader sees this graph.
        output: The channels that modes "values" and "updates" show.
    """

    def __init__(self, outlets: Sequence[tuple[Outlet, tuple[str, ...]]], output: Names) -> None:
        self.outlets = outlets
        self.output = output
        self.modes = frozenset(mode for outlet, _ in outlets for mode in outlet.modes)

    async def room(self) -> None:
        """Wait for slow readers."""
        for outlet, _ in self.outlets:
            await outlet.room()

    def entered(self, channels: Channels, tasks: Sequence[Task], is_resumed: bool) -> None:
        """The run begins; a resumed one shows where it stands and what its tasks had already done."""
        if not is_resumed:
            return
        self._values(output_of(channels, self.output))
        for task in tasks:
            if task.finished and not task.node.hidden:
                self._emit("updates", {task.name: self._update(task), "__metadata__": {"cached": True}})

    def finished(self, task: Task) -> None:
        """A task has returned."""
        if "updates" in self.modes and not task.node.hidden:
            self._emit("updates", {task.name: self._update(task)})

    def updated(self, tasks: Sequence[Task], channels: Channels) -> None:
        """The barrier has applied the tasks' writes."""
        if "values" in self.modes and touches((task.writes for task in tasks), self.output):
            self._values(output_of(channels, self.output))

    def suspended(self, questions: Sequence[Interrupt], channels: Channels) -> None:
        """The run stops for questions, or at a breakpoint if there are none."""
        self._emit("updates", {INTERRUPT: tuple(questions)})
        if questions:
            self._values(with_questions(output_of(channels, self.output), questions, tuple))

    def custom(self, task: Task, value: Any) -> None:
        """A node wrote to the stream."""
        self._emit("custom", value)

    def _values(self, values: Any) -> None:
        self._emit("values", values)

    def _update(self, task: Task) -> Any:
        return update_of(task, self.output)

    def _emit(self, mode: str, payload: Any) -> None:
        for outlet, ns in self.outlets:
            if mode in outlet.modes:
                outlet.put((ns, mode, payload))


def levels(checkpoint_ns: str, below: str = "") -> tuple[str, ...]:
    """A namespace as its levels, seen from the graph at namespace `below`."""
    return tuple(checkpoint_ns.removeprefix(below).strip(NS_SEP).split(NS_SEP)) if checkpoint_ns != below else ()

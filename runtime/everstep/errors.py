"""Errors of graphs and runs.

Every error says what happened, with node, key, thread and value, then the way out.

::

    Exception
    ├── EverstepError
    │   ├── GraphBuildError (ValueError)      the graph is not well formed; raised while it is built
    │   │   └── GraphTypeError (TypeError)        an argument of a builder is of a type that it cannot be
    │   ├── GraphMismatchError                work waits for a node that the graph does not have any more
    │   ├── UnsatisfiedJoinError              nothing is left to run, and a join still waits for sources
    │   ├── ConfigError (ValueError)          the run's config or input cannot be used
    │   │   └── EmptyInputError               there is nothing to run: no input, and nothing to continue
    │   ├── InvalidUpdateError                a node's result does not fit the graph; the step is not stored
    │   │   └── NoParentError (ParentCommand)     a command for a containing graph, where there is none
    │   ├── EmptyChannelError                 a channel without a value was read
    │   ├── GraphRecursionError (RecursionError)  the run used up its supersteps
    │   ├── InterruptError                    a question or an answer out of place; nothing was run or written
    │   │   ├── PendingQuestionError          new input on a thread that waits for an answer
    │   │   ├── UnknownInterruptError         the answer belongs to no open question
    │   │   └── InterruptMismatchError        the code asks another question than the stored answer answers
    │   ├── DeterminismError                  code that runs again calls another @task than the journal holds
    │   ├── NodeTimeoutError (TimeoutError)   an attempt took too long
    │   ├── NodeCancelledError                a node raised CancelledError itself
    │   ├── InputChangedError                 a node changed in place what it shares with others (debug=True)
    │   ├── RestoredError                     what a node raised, in another process, of a type that is not kept
    │   ├── StepTimeoutError (TimeoutError)   a superstep took too long
    │   ├── DeadlineExceededError (TimeoutError)  the whole run took too long
    │   └── GraphDrained                      the run stopped at a barrier because it was asked to
    BaseException
    ├── GraphInterrupt                        signal, not an error: the task is suspended
    └── ParentCommand                         signal, not an error: commands for the graph that contains this one

Errors of the storage (`ThreadConflict`, `LeaseLost`, `CodecError`, ...) are those of the savers; they are
importable from here too.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from everstep_savers.errors import (
    CheckpointNotFound,
    CodecError,
    DatabaseUnavailable,
    InvalidKeyError,
    LeaseLost,
    PersistenceError,
    SchemaOutOfDate,
    ThreadConflict,
    ThreadDeleted,
)

if TYPE_CHECKING:
    from everstep.types import Command, Interrupt

__all__ = [
    "CheckpointNotFound",
    "CodecError",
    "ConfigError",
    "DatabaseUnavailable",
    "DeadlineExceededError",
    "DeterminismError",
    "EmptyChannelError",
    "EmptyInputError",
    "EverstepError",
    "GraphBuildError",
    "GraphDrained",
    "GraphInterrupt",
    "GraphMismatchError",
    "GraphRecursionError",
    "GraphTypeError",
    "InputChangedError",
    "InterruptError",
    "InterruptMismatchError",
    "InvalidKeyError",
    "InvalidUpdateError",
    "LeaseLost",
    "NoParentError",
    "NodeCancelledError",
    "NodeError",
    "NodeTimeoutError",
    "ParentCommand",
    "PendingQuestionError",
    "PersistenceError",
    "RestoredError",
    "SchemaOutOfDate",
    "StepTimeoutError",
    "ThreadConflict",
    "ThreadDeleted",
    "UnknownInterruptError",
    "UnsatisfiedJoinError",
    "is_invalid_resume",
]


class EverstepError(Exception):
    """Base of the errors of graphs and runs."""


class GraphBuildError(EverstepError, ValueError):
    """The graph is not well formed; the message names node or edge and the nearest match."""


class GraphTypeError(GraphBuildError, TypeError):
    """What a graph was given while it was built is of a type that it cannot be."""


class ConfigError(EverstepError, ValueError):
    """The config or the input of a run cannot be used; nothing was run or written."""


class EmptyInputError(ConfigError):
    """There is nothing to run: no input was given, and the thread has nothing to continue."""


class InvalidUpdateError(EverstepError):
    """A node's result does not fit the graph: wrong shape, key, target or number of writes."""


class GraphMismatchError(EverstepError):
    """A thread waits for a node that the graph does not have (any more)."""


class UnsatisfiedJoinError(EverstepError):
    """A run has nothing left to do, and a join waits for sources that were routed around."""


class EmptyChannelError(EverstepError):
    """A channel was read that has no value."""


class GraphRecursionError(EverstepError, RecursionError):
    """The run used as many supersteps as `recursion_limit` allows, and had more to do."""


class InterruptError(EverstepError):
    """A question or an answer is out of place."""


class PendingQuestionError(InterruptError):
    """New input came while a question is open, and the graph rejects that (``on_pending="reject"``)."""


class UnknownInterruptError(InterruptError):
    """An answer names a question that is not open, or answers an answered one differently."""


class InterruptMismatchError(InterruptError):
    """On the re-run the node asks another question than the one the stored answer belongs to."""


class DeterminismError(EverstepError):
    """Code that runs again calls another `@task`, or the same with other arguments, than its journal holds there."""


class NodeTimeoutError(EverstepError, TimeoutError):
    """An attempt of a node took too long.

    Attributes:
        node: Name of the node.
        kind: "run", or "idle" if it gave no sign of life.
        elapsed: Seconds the attempt had taken.
        timeout: The limit it went over, in seconds.
        idle_timeout: The limit of the policy, whichever it was; so is `run_timeout`.
    """

    def __init__(
        self,
        node: str,
        elapsed: float,
        *,
        kind: Literal["idle", "run"],
        idle_timeout: float | None = None,
        run_timeout: float | None = None,
    ) -> None:
        self.node, self.elapsed, self.kind = node, elapsed, kind
        self.idle_timeout, self.run_timeout = idle_timeout, run_timeout
        self.timeout = (idle_timeout if kind == "idle" else run_timeout) or 0.0
        advice = "raise the timeout"
        if kind == "idle":
            advice = "raise the timeout, or call runtime.heartbeat() while it works"
        super().__init__(
            f"node {node!r} was stopped by its {kind} timeout of {self.timeout:g} s after {elapsed:.3f} s; if it needs "
            f"longer, {advice}"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        made = partial(type(self), kind=self.kind, idle_timeout=self.idle_timeout, run_timeout=self.run_timeout)
        return made, (self.node, self.elapsed)


class NodeCancelledError(EverstepError):
    """A node raised `asyncio.CancelledError` itself, though nobody cancelled the run.

    Attributes:
        node: Name of the node.
    """

    def __init__(self, node: str, message: str | None = None) -> None:
        self.node = node
        super().__init__(
            message
            or f"node {node!r} raised CancelledError itself, though nobody cancelled the run; let it raise another "
            f"error"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.node, str(self))


class InputChangedError(EverstepError):
    """With ``compile(debug=True)``: a node changed in place a value that it shares with others.

    Attributes:
        node: Name of the node.
        key: The state key whose value it changed.
    """

    def __init__(self, node: str, key: str, place: str) -> None:
        self.node, self.key, self.place = node, key, place
        super().__init__(
            f"node {node!r} (or one beside it) changed key {key!r} in place, at {place}, and did not write it; other "
            f"nodes and stored state share that value. Make a changed copy and return it"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.node, self.key, self.place)


class RestoredError(EverstepError):
    """What a node raised before the process ended, where only a record of it can be kept.

    Attributes:
        type_name: Module and name of the class it had.
        text: What it said.
    """

    def __init__(self, type_name: str, text: str) -> None:
        self.type_name, self.text = type_name, text
        super().__init__(f"{type_name}: {text}")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.type_name, self.text)


class StepTimeoutError(EverstepError, TimeoutError):
    """A superstep took longer than the `step_timeout` of its graph; what has finished is kept.

    Attributes:
        timeout: The limit, in seconds.
        nodes: The nodes that were running.
    """

    def __init__(self, timeout: float, step: int, nodes: Sequence[str] = ()) -> None:
        self.timeout, self.step, self.nodes = timeout, step, tuple(nodes)
        super().__init__(
            f"step {step} was stopped in node {', '.join(map(repr, self.nodes))} by the graph's step timeout of "
            f"{timeout:g} s; if it needs longer, raise step_timeout"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.timeout, self.step, self.nodes)


class DeadlineExceededError(EverstepError, TimeoutError):
    """The whole run took longer than the `deadline` of its call; its thread can be continued.

    Attributes:
        deadline: The limit, in seconds.
        nodes: The nodes that were running.
    """

    def __init__(self, deadline: float, graph: str, nodes: Sequence[str] = ()) -> None:
        self.deadline, self.graph, self.nodes = deadline, graph, tuple(nodes)
        where = f" in node {', '.join(map(repr, self.nodes))}" if self.nodes else ""
        super().__init__(
            f"the run of {graph!r} was stopped{where} by its deadline of {deadline:g} s; with a saver, input None "
            f"continues its thread where it stopped"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.deadline, self.graph, self.nodes)


class GraphDrained(EverstepError):
    """The run stopped at a barrier because `RunControl.request_drain` asked for it; input None continues its thread.

    Attributes:
        reason: As given to `request_drain`.
    """

    def __init__(self, reason: str = "shutdown") -> None:
        self.reason = reason
        super().__init__(f"the run was drained ({reason}); with a saver, input None continues its thread")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.reason,)


@dataclass(frozen=True, slots=True)
class NodeError:
    """What an error handler is told.

    Attributes:
        node: The node that failed.
        error: What its last attempt raised; a `RestoredError` if the handler runs in another process and the
            exception is of a type that is not kept.
    """

    node: str
    error: BaseException


class GraphInterrupt(BaseException):
    """The signal by which `interrupt()` leaves a node; not an `Exception`, so that nodes do not catch it."""

    def __init__(self, interrupts: Sequence[Interrupt] = ()) -> None:
        super().__init__(interrupts)
        self.interrupts = tuple(interrupts)


class ParentCommand(BaseException):
    """The signal by which a node's `Command(graph=Command.PARENT)` reaches the graph that contains this one."""

    def __init__(self, *commands: Command[str]) -> None:
        super().__init__(*commands)
        self.commands = commands


class NoParentError(InvalidUpdateError, ParentCommand):
    """A node of a graph that no other contains returned commands for the graph that contains it.

    Attributes:
        commands: For whoever runs the graph and can hand them on; also its `args`.
    """

    def __init__(self, node: str, graph: str, commands: Sequence[Command[str]]) -> None:
        super().__init__(*commands)
        self.node, self.graph, self.commands = node, graph, tuple(commands)

    def __str__(self) -> str:
        return (
            f"node {self.node!r} returned a Command with graph=Command.PARENT, but graph {self.graph!r} has no parent "
            f"here; leave out graph=, or run this graph as a node of another"
        )

    def __reduce__(self) -> Any:
        return NoParentError, (self.node, self.graph, self.commands)


def error_text(error: BaseException) -> str:
    """Type and text of an exception; also of one whose own text cannot be made."""
    try:
        return f"{type(error).__name__}: {error}"
    except Exception as broken:
        return f"{type(error).__name__} (its text raised {type(broken).__name__})"


def is_invalid_resume(error: BaseException) -> bool:
    """Was the run refused because of its answer? Then nothing was run or written."""
    return isinstance(error, UnknownInterruptError)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The near matches of a mistyped name as the end of a message: " Did you mean 'x'?", or nothing."""
    matches = get_close_matches(name, [k for k in known if isinstance(k, str)], n=3, cutoff=0.6)
    return f" Did you mean {' or '.join(map(repr, matches))}?" if matches else ""

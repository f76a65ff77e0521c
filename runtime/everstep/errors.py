"""Errors of graphs and runs.

Every error says what happened, with node, key, thread and value, then the way out.

::

    Exception
    ├── EverstepError
    │   ├── GraphBuildError (ValueError)      the graph is not well formed; raised while it is built
    │   ├── GraphMismatchError                work waits for a node that the graph does not have any more
    │   ├── UnsatisfiedJoinError              nothing is left to run, and a join still waits for sources
    │   ├── ConfigError (ValueError)          the run's config or input cannot be used
    │   │   └── EmptyInputError               there is nothing to run: no input, and nothing to continue
    │   ├── InvalidUpdateError                a node's result does not fit the graph; the step is not stored
    │   ├── EmptyChannelError                 a channel without a value was read
    │   ├── GraphRecursionError (RecursionError)  the run used up its supersteps
    │   ├── InterruptError                    a question or an answer out of place; nothing was run or written
    │   │   ├── PendingQuestionError          new input on a thread that waits for an answer
    │   │   ├── UnknownInterruptError         the answer belongs to no open question
    │   │   └── InterruptMismatchError        the code asks another question than the stored answer answers
    │   ├── DeterminismError                  code that runs again calls another @task than the journal holds
    │   ├── NodeTimeoutError (TimeoutError)   an attempt took too long
    │   └── NodeCancelledError                a node raised CancelledError itself
    BaseException
    ├── GraphInterrupt                        signal, not an error: the task is suspended
    └── ParentCommand                         signal, not an error: commands for the graph that contains this one

Errors of the storage (`ThreadConflict`, `LeaseLost`, `CodecError`, ...) are those of the savers; they are
importable from here too.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING

from everstep_savers.errors import (
    CheckpointNotFound,
    CodecError,
    DatabaseUnavailable,
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
    "DeterminismError",
    "EmptyChannelError",
    "EmptyInputError",
    "EverstepError",
    "GraphBuildError",
    "GraphInterrupt",
    "GraphMismatchError",
    "GraphRecursionError",
    "InterruptError",
    "InterruptMismatchError",
    "InvalidUpdateError",
    "LeaseLost",
    "NodeCancelledError",
    "NodeTimeoutError",
    "ParentCommand",
    "PendingQuestionError",
    "PersistenceError",
    "SchemaOutOfDate",
    "ThreadConflict",
    "ThreadDeleted",
    "UnknownInterruptError",
    "UnsatisfiedJoinError",
]


class EverstepError(Exception):
    """Base of the errors of graphs and runs."""


class GraphBuildError(EverstepError, ValueError):
    """The graph is not well formed; the message names node or edge and the nearest match."""


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
        kind: "run" or "idle".
        timeout: The limit, in seconds.
        elapsed: Seconds the attempt had taken.
    """

    def __init__(self, node: str, kind: str, timeout: float, elapsed: float) -> None:
        self.node, self.kind, self.timeout, self.elapsed = node, kind, timeout, elapsed
        super().__init__(
            f"node {node!r} was stopped by its {kind} timeout of {timeout:g} s after {elapsed:.3f} s; if it needs "
            f"longer, raise the timeout"
        )

    def __reduce__(self) -> tuple[type[NodeTimeoutError], tuple[str, str, float, float]]:
        return type(self), (self.node, self.kind, self.timeout, self.elapsed)


class NodeCancelledError(EverstepError):
    """A node raised `asyncio.CancelledError` itself, though nobody cancelled the run."""


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


def error_text(error: BaseException) -> str:
    """Type and text of an exception; also of one whose own text cannot be made."""
    try:
        return f"{type(error).__name__}: {error}"
    except Exception as broken:
        return f"{type(error).__name__} (its text raised {type(broken).__name__})"


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The near matches of a mistyped name as the end of a message: " Did you mean 'x'?", or nothing."""
    matches = get_close_matches(name, [k for k in known if isinstance(k, str)], n=3, cutoff=0.6)
    return f" Did you mean {' or '.join(map(repr, matches))}?" if matches else ""

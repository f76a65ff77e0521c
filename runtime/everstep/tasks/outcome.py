"""How an attempt of a task ended, told from what it returned or raised and what it had asked.

Pure: maps values to values, and does not run, store or retry anything.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from everstep.errors import GraphInterrupt, NodeCancelledError, ParentCommand
from everstep.tasks.node import Write
from everstep.types import Command, Interrupt


@dataclass(frozen=True, slots=True)
class Returned:
    """The task is finished."""

    writes: list[Write]


@dataclass(frozen=True, slots=True)
class Interrupted:
    """The task is suspended until its questions are answered."""

    questions: list[Interrupt]


@dataclass(frozen=True, slots=True)
class BubbledUp:
    """The task is finished, and what it returned is for the graph that contains this one."""

    commands: tuple[Command[Any], ...]


@dataclass(frozen=True, slots=True)
class Drained:
    """A run inside the task stopped because it was asked to: the task is neither finished nor failed."""

    reason: str


@dataclass(frozen=True, slots=True)
class Failed:
    """The attempt failed with the node's own exception."""

    error: BaseException


Outcome = Returned | Interrupted | BubbledUp | Drained | Failed


def outcome_of(error: BaseException | None, writes: list[Write], questions: Sequence[Interrupt], node: str) -> Outcome:
    """Map what an attempt did to its outcome.

    An open question suspends the task whatever its body returned or raised: user code may have caught the
    signal, or a task group may have wrapped it.
    """
    if questions:
        return Interrupted(list(questions))
    if error is None:
        return Returned(writes)
    if isinstance(error, GraphInterrupt):
        return Interrupted(list(error.interrupts))
    if isinstance(error, ParentCommand):
        return BubbledUp(error.commands)
    if isinstance(error, asyncio.CancelledError):
        failure = NodeCancelledError(node)
        failure.__cause__ = error
        return Failed(failure)
    return Failed(error)

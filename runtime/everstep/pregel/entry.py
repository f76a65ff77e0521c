"""How a run starts, told from its input and from the thread as it stands.

Pure: `Fresh` begins with an input, `Resume` goes on where the thread stopped, `Fork` replays from an
earlier checkpoint on a branch of its own. Nothing is loaded, claimed or written here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from everstep.channels.snapshot import Channels
from everstep.constants import COMMANDS, INPUT
from everstep.errors import EmptyInputError, PendingQuestionError
from everstep.pregel.answers import describe_open
from everstep.pregel.blueprint import Blueprint
from everstep.pregel.request import RunRequest
from everstep.pregel.update import apply_writes
from everstep.tasks.handlers import restore_handlers
from everstep.tasks.node import Write
from everstep.tasks.task import Answer, Task
from everstep.types import MISSING, Command, Interrupt
from everstep_savers.checkpoint import (
    INTERRUPT,
    NO_WRITES,
    NULL_TASK_ID,
    RESUME,
    WRITES_IDX_MAP,
    CheckpointTuple,
    Loaded,
    PendingWrite,
)

# Task ids of the run's own writes: batches are numbered, 0 is for marks.
_RUN_WRITES = NULL_TASK_ID[:-12]


@dataclass(frozen=True, slots=True)
class Fresh:
    """Begin with an input.

    Attributes:
        start: The starting point under which an earlier process had begun with it; None for a new input.
    """

    input: Any
    start: str | None = None


@dataclass(frozen=True, slots=True)
class Resume:
    """Go on from the loaded checkpoint.

    Attributes:
        answer: The value of `Command(resume=...)`, `MISSING` if there is none.
        command: The command, if it has an update or a destination besides.
    """

    answer: Any = MISSING
    command: Command[Any] | None = None


@dataclass(frozen=True, slots=True)
class Kept:
    """What a graph keeps on a branch on which questions are answered anew: all but what came of these.

    Attributes:
        reopened: Ids of the tasks that run again, because a question of theirs is answered anew.
        answered: Ids of the questions that are answered anew.
    """

    reopened: frozenset[str]
    answered: frozenset[str]


@dataclass(frozen=True, slots=True)
class Fork:
    """Go on from the loaded checkpoint, which is not the thread's head, on a branch.

    Attributes:
        kept: What was there is there on the branch too, for a subgraph; None replays it.
    """

    resume: Resume
    kept: Kept | None = None


Entry = Fresh | Resume | Fork


@dataclass(frozen=True, slots=True)
class RunWrites:
    """Writes that belong to the run rather than to a task."""

    name: str
    writes: Sequence[Write]
    path: tuple[Any, ...] = ()
    triggers: tuple[str, ...] = ()


def choose_entry(request: RunRequest, loaded: Loaded) -> Entry:
    """How a root run starts.

    Raises:
        EmptyInputError: There is no input and nothing to continue.
    """
    value, thread_id, checkpoint_id = request.input, request.config.thread_id, request.config.checkpoint_id
    command = value if isinstance(value, Command) else None
    if command is None and value is not None:
        return Fresh(value)
    thread = loaded.thread
    if value is None and thread is not None and thread.has_input:
        # Durability "exit": the run was killed before it left, and only its input was stored.
        return Fresh(thread.input, thread.starting_point)
    if loaded.saved is None:
        if command is not None and command.resume is MISSING and has_writes(command):
            return Fresh(command)
        raise _nothing_to_continue(thread_id, command)
    resume = Resume()
    if command is not None:
        resume = Resume(command.resume, command if has_writes(command) else None)
    head = thread.head if thread is not None else None
    is_past = checkpoint_id is not None and head is not None and checkpoint_id != head
    if is_past or request.replay:
        return Fork(resume)
    return resume


def has_writes(command: Command[Any]) -> bool:
    """Has the command an update or a destination?"""
    return command.update is not None or bool(command.goto)


def restore_tasks(
    tasks: list[Task], pending: Sequence[PendingWrite], answers: Mapping[str, Answer] | None = None
) -> None:
    """Fill planned tasks with what earlier runs stored: results, open questions, accepted answers, handled failures.

    Handlers of failed tasks are added to the tasks.

    Args:
        answers: Accepted elsewhere: those that the task of the containing graph got, for a subgraph.
    """
    given = answers or {}
    tasks += restore_handlers(tasks, pending)
    by_id = {task.id: task for task in tasks}
    for task_id, channel, value in pending:
        task = by_id.get(task_id)
        if task is None:
            continue
        if channel == INTERRUPT:
            task.questions = [question for question in value if isinstance(question, Interrupt)]
            task.suspended = True
        elif channel == RESUME:
            task.answers = {answer.id: answer for answer in value}
        elif channel == NO_WRITES:
            task.finished = task.stored = True
        elif channel == COMMANDS:
            task.finished = task.stored = True
            task.commands = tuple(value)
        elif channel not in WRITES_IDX_MAP:
            task.finished = task.stored = True
            task.writes.append((channel, value))
    for task in tasks:
        answered = task.answers.keys() | given.keys()
        left = [] if task.finished else [question for question in task.questions if question.id not in answered]
        # An answer given further up lets a task run whatever else it asks: it may be for a task within it.
        task.suspended = bool(left) and not any(question.id in given for question in task.questions)
        task.questions = left


def ask_again(tasks: Sequence[Task]) -> None:
    """Let suspended tasks run again without an answer: they ask what they have to ask now."""
    for task in tasks:
        task.questions, task.suspended = [], False


def apply_run_writes(graph: Blueprint, channels: Channels, pending: Sequence[PendingWrite]) -> None:
    """Apply the stored writes of the run itself (updates and destinations that came with answers)."""
    batches: dict[str, list[Write]] = {}
    for task_id, key, value in pending:
        if task_id.startswith(_RUN_WRITES) and key in graph.channels:
            batches.setdefault(task_id, []).append((key, value))
    for task_id in sorted(batches):
        apply_writes(graph, channels, [RunWrites(INPUT, batches[task_id])])


def run_writes_id(pending: Sequence[PendingWrite]) -> str:
    """The task id for one more batch of the run's own writes; stored writes are never overwritten."""
    batches = {task_id for task_id, _, _ in pending if task_id.startswith(_RUN_WRITES)}
    return f"{_RUN_WRITES}{len(batches - {NULL_TASK_ID}) + 1:012}"


def stopped_here(saved: CheckpointTuple, tasks: Sequence[Task]) -> bool:
    """Did the thread stop at this checkpoint: at a static breakpoint, for a question, or for an update by hand?"""
    if saved.metadata.get("source") in ("update", "fork"):
        return True
    return at_breakpoint(saved.pending_writes or ()) or any(task.suspended or task.answers for task in tasks)


def at_breakpoint(pending: Sequence[PendingWrite]) -> bool:
    """Did the thread stop at a static breakpoint at this checkpoint, its own or a subgraph's?"""
    return any(channel == INTERRUPT and not value for _, channel, value in pending)


def discarded(tasks: Sequence[Task]) -> list[RunWrites]:
    """Tasks that wait at a checkpoint, as having run without result: a new input supersedes them."""
    return [RunWrites(task.name, (), task.path, task.triggers) for task in tasks]


def superseded_questions(tasks: Sequence[Task], request: RunRequest) -> list[str]:
    """The ids of the open questions that a new input supersedes.

    Raises:
        PendingQuestionError: The input is to be rejected while a question is open.
    """
    questions = [(task, question) for task in tasks for question in task.questions]
    if questions and request.on_pending == "reject":
        raise PendingQuestionError(
            f"thread {request.config.thread_id!r} waits for an answer, and new input is rejected meanwhile "
            f"(on_pending='reject'). {describe_open(questions)}"
        )
    return [question.id for _, question in questions]


def _nothing_to_continue(thread_id: str | None, command: Command[Any] | None) -> EmptyInputError:
    if thread_id is None:
        return EmptyInputError("the run got no input; only a graph with a saver can continue, by its thread_id")
    what = "continue" if command is None else "answer"
    return EmptyInputError(f"thread {thread_id!r} has no checkpoint: there is nothing to {what}; give the run an input")

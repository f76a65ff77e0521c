"""Error handlers: the task that takes over when a node has failed and its retries are spent.

A handler is a task of its own in the superstep of the failed one. Its id and path follow from the failed task's, so
that every process which finds the failure stored gives it the same. Pure: nothing is run or stored here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from everstep.channels.snapshot import input_copy
from everstep.constants import COMMANDS, ERROR, SCHEDULED
from everstep.errors import RestoredError
from everstep.tasks.node import Write
from everstep.tasks.task import Task
from everstep_savers.checkpoint import NO_WRITES, WRITES_IDX_MAP, PendingWrite
from everstep_savers.codec import StoredError

# The last part of a handler's path; its place at the barrier is right after the failed task's.
HANDLER = "error_handler"


def hand_over(task: Task, error: BaseException) -> Task | None:
    """The task that handles the failure of `task`, which is finished thereby; None if nothing handles it."""
    node = task.node.error_handler
    if node is None or not isinstance(error, Exception):
        return None
    handler = Task(task.ids, node, (*task.path, HANDLER), (), input_copy(task.input))
    handler.source = task
    task.error, task.handler, task.finished = error, handler, True
    return handler


def restore_handlers(tasks: Sequence[Task], pending: Iterable[PendingWrite]) -> list[Task]:
    """The handlers of failures that earlier runs stored; the failed tasks do not run again.

    A task that has a result besides has run after all, in a process whose graph had no handler for it.
    """
    errors: dict[str, Any] = {}
    scheduled, returned = set(), set()
    for task_id, channel, value in pending:
        if channel == ERROR:
            errors[task_id] = value
        elif channel == SCHEDULED:
            scheduled.add(task_id)
        elif channel not in WRITES_IDX_MAP:
            returned.add(task_id)
    handlers = []
    if waiting := scheduled - returned:
        for task in tasks:
            if task.id in waiting and (handler := hand_over(task, _restored(errors.get(task.id)))) is not None:
                task.stored = True
                handlers.append(handler)
    return handlers


def result_of(task: Task) -> Sequence[Write]:
    """What is stored of a finished task: its writes or commands, a mark if there are none, or a handled failure."""
    if task.handler is not None:
        return [(ERROR, task.error), (SCHEDULED, task.handler.name)]
    if task.commands:
        return [(COMMANDS, list(task.commands))]
    return task.writes or [(NO_WRITES, None)]


def _restored(error: Any) -> Exception:
    if isinstance(error, Exception):
        return error
    if isinstance(error, StoredError):
        restored = RestoredError(error.type_name, error.text)
        for note in error.notes:
            restored.add_note(note)
        return restored
    return RestoredError(type(error).__name__, str(error))

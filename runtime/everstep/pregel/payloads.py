"""The payloads of stream modes "tasks", "checkpoints" and "debug". Pure but for the clock."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Literal

from everstep.channels.snapshot import input_copy
from everstep.config import RunConfig
from everstep.constants import ERROR, INTERRUPT, PULL, PUSH
from everstep.pregel.blueprint import Names
from everstep.pregel.checkpoints import Point, with_map
from everstep.pregel.io import result_of
from everstep.pregel.subgraphs import subgraph_config
from everstep.tasks.task import Task
from everstep.types import (
    CheckpointPayload,
    CheckpointTask,
    DebugPayload,
    Interrupt,
    TaskPayload,
    TaskResultPayload,
)
from everstep_savers.codec import StoredError


def started(task: Task, config: RunConfig) -> TaskPayload:
    """A task begins, or begins again."""
    triggers = (PUSH,) if task.path[0] == PUSH else task.triggers
    payload = TaskPayload(id=task.id, name=task.name, input=_input_of(task), triggers=triggers)
    metadata = {**config.metadata, **task.node.metadata}
    if tags := [*config.tags, *task.node.tags]:
        metadata["tags"] = tags
    if metadata:
        payload["metadata"] = metadata
    if task.attempt > 1:
        payload["attempt"] = task.attempt
    return payload


def ended(task: Task, names: Names, error: BaseException | None = None) -> TaskResultPayload:
    """A task has returned, failed or asked."""
    payload = TaskResultPayload(
        id=task.id,
        name=task.name,
        error=error,
        result=result_of(task, names),
        interrupts=[_fields(question) for question in task.questions],
    )
    if task.attempt > 1:
        payload["attempt"] = task.attempt
    return payload


def _input_of(task: Task) -> Any:
    """A task's input as its node gets it."""
    value = input_copy(task.input)
    if task.node.mapper is None or task.path[0] != PULL:
        return value
    try:
        return task.node.mapper(value)
    except Exception:  # what the schema says about this input fails the node, not the stream
        return value


def _fields(question: Interrupt) -> dict[str, Any]:
    return {field.name: getattr(question, field.name) for field in dataclasses.fields(question)}


def checkpoint(point: Point, config: RunConfig, values: Any, tasks: Sequence[Task], names: Names) -> CheckpointPayload:
    """A checkpoint was taken, or a run begins at one; `tasks` follow it."""
    return CheckpointPayload(
        config=_named(config, point.id, point),
        parent_config=None if point.parent_id is None else _named(config, point.parent_id, point),
        values=values,
        metadata=dict(point.metadata),
        next=[task.name for task in tasks],
        tasks=[_following(task, point, config, names) for task in tasks],
    )


def _named(config: RunConfig, checkpoint_id: str, point: Point) -> dict[str, Any]:
    found = config.saved(checkpoint_id)
    found["configurable"] = {**config.configurable, **found["configurable"]}
    return with_map(found, point.metadata)


def _following(task: Task, point: Point, config: RunConfig, names: Names) -> CheckpointTask:
    state = subgraph_config(config, task)
    stored = {channel: value for task_id, channel, value in point.pending if task_id == task.id}
    if ERROR in stored and not task.finished:
        return CheckpointTask(id=task.id, name=task.name, error=shown_error(stored[ERROR]), state=state)
    # All that were asked here, also those that are answered by now.
    questions = tuple(_fields(question) for question in stored.get(INTERRUPT, ()))
    if task.finished:
        result = result_of(task, names)
        return CheckpointTask(id=task.id, name=task.name, result=result, interrupts=questions, state=state)
    return CheckpointTask(id=task.id, name=task.name, interrupts=questions, state=state)


def debug(kind: Literal["checkpoint", "task", "task_result"], step: int, payload: Any) -> DebugPayload:
    """What modes "tasks" and "checkpoints" tell, for mode "debug"."""
    return DebugPayload(step=step, timestamp=datetime.now(UTC).isoformat(), type=kind, payload=payload)


def shown_error(stored: Any) -> str:
    """What is shown of a stored failure: the exception's repr, as far as it is known."""
    if isinstance(stored, StoredError):
        return f"{stored.type_name.rpartition('.')[2]}({stored.text!r})"
    return repr(stored)

"""A thread as users see it: snapshots and history."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from everstep.channels.snapshot import Channels
from everstep.config import RunConfig
from everstep.constants import ERROR, INTERRUPT, PULL, PUSH
from everstep.pregel.blueprint import Blueprint
from everstep.pregel.checkpoints import continues_of, origin_of, with_map
from everstep.pregel.entry import apply_run_writes, restore_tasks
from everstep.pregel.io import output_of, result_of
from everstep.pregel.payloads import shown_error
from everstep.pregel.plan import At, plan
from everstep.pregel.renames import missing_nodes, read_with_aliases
from everstep.pregel.subgraphs import subgraph_config, subgraph_namespace
from everstep.pregel.update import apply_writes
from everstep.tasks.task import Task
from everstep.types import Interrupt, PregelTask, StateSnapshot
from everstep_savers.base import AtomicSaver
from everstep_savers.checkpoint import (
    CheckpointTuple,
    PendingWrite,
)
from everstep_savers.listings import closing


def snapshot(
    graph: Blueprint,
    config: RunConfig,
    saved: CheckpointTuple | None,
    *,
    applies_results: bool = True,
    states: Mapping[str, Any] | None = None,
) -> StateSnapshot:
    """What a checkpoint shows.

    Args:
        applies_results: Results of finished tasks whose siblings have not finished count as applied, as for the
            thread as it stands; in history they stand with their tasks.
        states: Task id -> what `PregelTask.state` shows; the config of the task's subgraph by default.
    """
    if saved is None:
        named = config.saved(config.checkpoint_id) if config.thread_id is not None else {"configurable": {}}
        return StateSnapshot({}, (), named, None, None, None, (), ())
    saved = read_with_aliases(graph, saved)
    channels, tasks = restore(graph, saved)
    pending = saved.pending_writes or ()
    missing = missing_nodes(graph, saved)
    # What a finished task asked belongs to history.
    asked = {} if applies_results else {task_id: value for task_id, key, value in pending if key == INTERRUPT}
    shown = tuple(_shown(graph, config, task, pending, asked, states or {}) for task in tasks)
    if applies_results and (finished := [task for task in tasks if task.finished]):
        with contextlib.suppress(Exception):  # results that a reducer refuses, or that clash, show with their tasks
            apply_writes(graph, channels, finished)
    return StateSnapshot(
        values=output_of(channels, graph.stream_channels),
        next=(*(task.name for task in tasks if _is_next(task, applies_results)), *missing),
        config=with_map(saved.config, saved.metadata),
        metadata=dict(saved.metadata),
        created_at=saved.checkpoint["ts"],
        parent_config=with_map(saved.parent_config, saved.metadata) if saved.parent_config else None,
        tasks=(*shown, *(PregelTask("", name, (PULL, name)) for name in missing)),
        interrupts=tuple(question for task in tasks for question in task.questions),
    )


def restore(graph: Blueprint, saved: CheckpointTuple) -> tuple[Channels, list[Task]]:
    """The channels of a checkpoint, and its tasks with what is stored of them."""
    # What is only shown gets no versions of its own; those of the ecosystem's savers can be made by these alone.
    channels = Channels(graph.channels, saved.checkpoint, next_version=lambda current, _: current)
    step = saved.metadata.get("step", -1) + 1
    pending = list(saved.pending_writes or ())
    apply_run_writes(graph, channels, pending)
    ns = saved.config["configurable"].get("checkpoint_ns", "")
    tasks = plan(graph, channels, At(origin_of(saved.checkpoint["id"], saved.metadata), ns, step, step))
    restore_tasks(tasks, pending)
    return channels, tasks


def _shown(
    graph: Blueprint,
    config: RunConfig,
    task: Task,
    pending: Sequence[PendingWrite],
    asked: Mapping[str, Sequence[Interrupt]],
    states: Mapping[str, Any],
) -> PregelTask:
    failed = [shown_error(value) for task_id, key, value in pending if task_id == task.id and key == ERROR]
    result: Any = None
    if task.finished and task.handler is None:
        names = graph.stream_channels
        result = result_of(task, names)
        if isinstance(names, str):  # a graph of one value shows it as it is
            result = result.get(names)
    questions = tuple(asked.get(task.id, ()) if task.finished else task.questions)
    state = states.get(task.id)
    if state is None:
        state = subgraph_config(config, task)
    error = failed[-1] if failed and (task.handler is not None or not task.finished) else None
    return PregelTask(task.id, task.name, _path_of(task), error, questions, state, result)


def _path_of(task: Task) -> tuple[Any, ...]:
    """The path of a task; that of a `Send` says, as readers know it, that it is no call of a node's code."""
    return (*task.path, False) if task.path[0] == PUSH else task.path


def _is_next(task: Task, applies_results: bool) -> bool:
    """Would the task run next? In history a handler was not planned yet."""
    return not task.finished if applies_results else task.source is None


async def get_state(
    graph: Blueprint, saver: AtomicSaver[Any], config: RunConfig, *, subgraphs: bool = False
) -> StateSnapshot:
    """The thread's head, or the checkpoint that `config` names."""
    saved = await _find(saver, config)
    states = await _subgraph_states(graph, saver, config, saved) if subgraphs and saved is not None else {}
    return snapshot(graph, config, saved, applies_results=config.checkpoint_id is None, states=states)


async def _find(saver: AtomicSaver[Any], config: RunConfig) -> CheckpointTuple | None:
    """The named checkpoint, or the head."""
    if config.checkpoint_id is None:
        return await saver.aget_tuple(config.saved())
    # Only a listing shows the results of a step that has been taken.
    async with closing(saver.alist(config.saved(config.checkpoint_id), limit=1)) as listing:
        return await anext(listing, None)


async def _subgraph_states(
    graph: Blueprint, saver: AtomicSaver[Any], config: RunConfig, saved: CheckpointTuple
) -> dict[str, StateSnapshot]:
    """The snapshots of the subgraphs of a checkpoint's tasks, by task id."""
    _, tasks = restore(graph, saved)
    own = {saved.checkpoint["id"], *(checkpoint_id for checkpoint_id, _ in continues_of(saved.metadata))}
    found = {}
    for task in tasks:
        if task.node.subgraph is None:
            continue
        inner: Blueprint = task.node.subgraph.blueprint
        inner_config = replace(config, checkpoint_ns=subgraph_namespace(task), checkpoint_id=None)
        async with closing(saver.alist(inner_config.saved())) as listing:
            async for state in listing:
                if state.metadata.get("parents", {}).get(config.checkpoint_ns) in own:
                    states = await _subgraph_states(inner, saver, inner_config, state)
                    found[task.id] = snapshot(inner, inner_config, state, states=states)
                    break
    return found


async def get_history(
    graph: Blueprint,
    saver: AtomicSaver[Any],
    config: RunConfig,
    *,
    filter: dict[str, Any] | None = None,
    before: Mapping[str, Any] | None = None,
    limit: int | None = None,
) -> AsyncIterator[StateSnapshot]:
    """The thread's checkpoints, newest first."""
    found = saver.alist(config.saved(config.checkpoint_id), filter=filter, before=before, limit=limit)
    async with closing(found) as listing:
        async for saved in listing:
            yield snapshot(graph, config, saved, applies_results=False)

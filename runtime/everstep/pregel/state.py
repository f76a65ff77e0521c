"""A thread as users see it: snapshots, history, and updates from outside of a run."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from everstep.channels.snapshot import Channels
from everstep.config import RunConfig
from everstep.constants import ERROR, INTERRUPT, PULL, START
from everstep.errors import InvalidUpdateError, did_you_mean
from everstep.pregel.answering import kept_writes
from everstep.pregel.blueprint import Blueprint
from everstep.pregel.checkpoints import Lineage, make_checkpoint, origin_of
from everstep.pregel.entry import RunWrites, apply_run_writes, restore_tasks
from everstep.pregel.io import output_of, update_of
from everstep.pregel.plan import At, plan
from everstep.pregel.renames import missing_nodes, read_with_aliases
from everstep.pregel.subgraphs import stable_namespace
from everstep.pregel.update import apply_writes
from everstep.tasks.attempt import write_result
from everstep.tasks.current import Attempt, RunScope
from everstep.tasks.task import Task, TaskIds
from everstep.types import Interrupt, PregelTask, StateSnapshot, StateUpdate
from everstep_savers.base import AtomicSaver
from everstep_savers.checkpoint import (
    CheckpointTuple,
    Claim,
    Commit,
    Loaded,
    NewCheckpoint,
    PendingWrite,
    TaskWrites,
    copy_checkpoint,
)
from everstep_savers.ids import new_checkpoint_id


def snapshot(
    graph: Blueprint,
    config: RunConfig,
    saved: CheckpointTuple | None,
    *,
    is_head: bool = True,
    states: Mapping[str, Any] | None = None,
) -> StateSnapshot:
    """What a checkpoint shows.

    Args:
        is_head: Results of finished tasks whose siblings have not finished count as applied; in history they
            stand with their tasks.
        states: Task id -> what `PregelTask.state` shows; the config of the task's subgraph by default.
    """
    if saved is None:
        named = config.saved(config.checkpoint_id) if config.thread_id is not None else {"configurable": {}}
        return StateSnapshot({}, (), named, None, None, None, (), ())
    saved = read_with_aliases(graph, saved)
    channels, tasks = restore(graph, saved)
    pending = saved.pending_writes or ()
    missing = missing_nodes(graph, saved)
    shown = tuple(_shown(graph, config, task, pending, states or {}) for task in tasks)
    if is_head and (finished := [task for task in tasks if task.finished]):
        with contextlib.suppress(InvalidUpdateError):  # results that do not fit together show with their tasks
            apply_writes(graph, channels, finished)
    return StateSnapshot(
        values=output_of(channels, graph.stream_channels),
        next=(*(task.name for task in tasks if not (is_head and task.finished)), *missing),
        config=saved.config,
        metadata=dict(saved.metadata),
        created_at=saved.checkpoint["ts"],
        parent_config=saved.parent_config,
        tasks=(*shown, *(PregelTask("", name, (PULL, name)) for name in missing)),
        interrupts=tuple(question for task in tasks for question in task.questions),
    )


def restore(graph: Blueprint, saved: CheckpointTuple) -> tuple[Channels, list[Task]]:
    """The channels of a checkpoint, and its tasks with what is stored of them."""
    channels = Channels(graph.channels, saved.checkpoint)
    step = saved.metadata.get("step", -1) + 1
    pending = list(saved.pending_writes or ())
    apply_run_writes(graph, channels, pending)
    ns = saved.config["configurable"].get("checkpoint_ns", "")
    tasks = plan(graph, channels, At(origin_of(saved.checkpoint["id"], saved.metadata), ns, step, step))
    restore_tasks(tasks, pending)
    return channels, tasks


def _shown(
    graph: Blueprint, config: RunConfig, task: Task, pending: Sequence[PendingWrite], states: Mapping[str, Any]
) -> PregelTask:
    error = next((value for task_id, key, value in pending if task_id == task.id and key == ERROR), None)
    asked = next((value for task_id, key, value in pending if task_id == task.id and key == INTERRUPT), ())
    result: Any = None
    if task.finished:
        result = update_of(task, graph.stream_channels)
        if result is None and not isinstance(graph.stream_channels, str):
            result = {}
    questions: tuple[Interrupt, ...] = tuple(asked) if task.finished else tuple(task.questions)
    state = states.get(task.id)
    if state is None and task.node.subgraph is not None:
        state = config.saved(checkpoint_ns=subgraph_namespace(task))
    return PregelTask(task.id, task.name, task.path, None if task.finished else error, questions, state, result)


def subgraph_namespace(task: Task) -> str:
    """Where the checkpoints of the subgraph are that the task's node runs."""
    is_stateful = task.node.subgraph.options.checkpointer is True
    return stable_namespace(task.ns) if is_stateful else task.ns


async def get_state(
    graph: Blueprint, saver: AtomicSaver[Any], config: RunConfig, *, subgraphs: bool = False
) -> StateSnapshot:
    """The thread's head, or the checkpoint that `config` names."""
    saved, is_head = await _find(saver, config)
    states = await _subgraph_states(graph, saver, config, saved) if subgraphs and saved is not None else {}
    return snapshot(graph, config, saved, is_head=is_head, states=states)


async def _find(saver: AtomicSaver[Any], config: RunConfig) -> tuple[CheckpointTuple | None, bool]:
    """The checkpoint, and whether it is the head."""
    head = await saver.aget_tuple(config.saved())
    if config.checkpoint_id is None or (head is not None and head.checkpoint["id"] == config.checkpoint_id):
        return head, True
    # Only a listing shows the results of a step that has been taken.
    async for saved in saver.alist(config.saved(config.checkpoint_id), limit=1):
        return saved, False
    return None, False


async def _subgraph_states(
    graph: Blueprint, saver: AtomicSaver[Any], config: RunConfig, saved: CheckpointTuple
) -> dict[str, StateSnapshot]:
    """The snapshots of the subgraphs of a checkpoint's tasks, by task id."""
    _, tasks = restore(graph, saved)
    own = {saved.checkpoint["id"], origin_of(saved.checkpoint["id"], saved.metadata)}
    found = {}
    for task in tasks:
        if task.node.subgraph is None:
            continue
        inner: Blueprint = task.node.subgraph.blueprint
        inner_config = replace(config, checkpoint_ns=subgraph_namespace(task), checkpoint_id=None)
        async for state in saver.alist(inner_config.saved()):
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
    is_head = before is None and filter is None
    async for saved in saver.alist(config.saved(config.checkpoint_id), filter=filter, before=before, limit=limit):
        yield snapshot(graph, config, saved, is_head=is_head)
        is_head = False


async def update_state(
    graph: Blueprint, saver: AtomicSaver[Any], config: RunConfig, updates: Sequence[StateUpdate]
) -> dict[str, Any]:
    """Write to a thread from outside of a run, as if `as_node` had returned the values; one checkpoint each.

    All updates are stored in one transaction, or none.

    Returns:
        The config of the last new checkpoint.

    Raises:
        InvalidUpdateError: The values do not fit, or it is not clear as which node they come.
        ThreadConflict: A run moved the thread meanwhile.
    """
    loaded = await saver.aload(config.saved(config.checkpoint_id))
    if loaded.saved is not None:
        loaded = replace(loaded, saved=read_with_aliases(graph, loaded.saved))
    channels = Channels(
        graph.channels,
        loaded.saved.checkpoint if loaded.saved else None,
        newest=loaded.newest_version,
        next_version=saver.get_next_version,
    )
    if loaded.saved is not None:
        apply_run_writes(graph, channels, list(loaded.saved.pending_writes or ()))
    editor = _Editor(graph, saver, config, loaded, channels)
    for update in updates:
        await editor.apply(update)
    return await editor.commit()


class _Editor:
    """Applies updates one after the other, then stores their checkpoints at once."""

    def __init__(
        self, graph: Blueprint, saver: AtomicSaver[Any], config: RunConfig, loaded: Loaded, channels: Channels
    ) -> None:
        self.graph, self.saver, self.config, self.thread = graph, saver, config, loaded.thread
        self.channels = channels
        self.scope = RunScope(config, channels, graph.name)
        saved = loaded.saved
        self.parent_id = saved.checkpoint["id"] if saved else None
        self.step = saved.metadata.get("step", -1) + 1 if saved else -1
        head = self.thread.head if self.thread and not config.checkpoint_ns else None
        parents = saved.metadata.get("parents", {}) if saved else {}
        self.lineage = Lineage(config.checkpoint_ns, config.metadata, saver.wants_whole, head, parents)
        self.made: list[NewCheckpoint] = []
        self.saved = saved
        self.writes: list[TaskWrites] = []
        self.waiting: list[Task] | None = None

    async def apply(self, update: StateUpdate) -> None:
        """Apply one update to the channels and take its checkpoint."""
        name = update.as_node or last_node(self.graph, self.channels)
        node = self.graph.nodes.get(name)
        if node is None:
            raise InvalidUpdateError(
                f"the update comes as node {name!r}, which does not exist.{did_you_mean(name, self.graph.nodes)}"
            )
        ids = TaskIds(self.parent_id or "", self.config.checkpoint_ns)
        attempt = Attempt(self.scope, Task(ids, node, (PULL, name), node.triggers, None), 1, 0.0)
        await write_result(attempt, update.values)
        updated = apply_writes(self.graph, self.channels, [RunWrites(name, attempt.writes, (), node.triggers)])
        new = make_checkpoint(
            self.channels,
            self.lineage,
            parent_id=self.parent_id,
            source="update",
            step=self.step,
            updated=updated,
        )
        # The next update goes on with the same maps.
        self.made.append(replace(new, checkpoint=copy_checkpoint(new.checkpoint)))
        self.parent_id, self.step = new.checkpoint["id"], self.step + 1
        self._keep_questions()

    def _keep_questions(self) -> None:
        """Keep questions open whose tasks still wait after the update: nobody has answered them.

        Questions of subgraphs are left behind: the subgraph begins anew.
        """
        if self.waiting is None:
            self.waiting = _waiting_tasks(self.graph, self.saved)
        if not self.waiting or self.saved is None:
            return
        origin = origin_of(self.saved.checkpoint["id"], self.saved.metadata)
        at = At(origin, self.config.checkpoint_ns, self.step, self.step)
        pending = {task.id for task in plan(self.graph, self.channels, at)}
        kept = [task for task in self.waiting if task.id in pending]
        self.writes = []
        if kept:
            new = self.made[-1]
            metadata: Any = {**new.metadata, "origin": origin}
            self.made[-1] = replace(new, metadata=metadata)
            self.writes = kept_writes(self.config.checkpoint_ns, new.checkpoint["id"], kept)

    async def commit(self) -> dict[str, Any]:
        """Claim the thread and store all checkpoints in one transaction."""
        seen = self.thread
        claim = Claim(seen, self.config.run_id or new_checkpoint_id(), self.graph.name)
        commit = Commit(
            self.config.thread_id or "",
            claim=claim,
            status=seen.status if seen is not None else "done",
            error=seen.error if seen is not None else None,
            checkpoints=self.made,
            writes=self.writes,
        )
        await self.saver.acommit(self.saver.prepare(commit))
        return self.config.saved(self.parent_id)


def _waiting_tasks(graph: Blueprint, saved: CheckpointTuple | None) -> list[Task]:
    """The tasks that are suspended by questions of their own at this checkpoint."""
    if saved is None or not any(channel == INTERRUPT for _, channel, _ in saved.pending_writes or ()):
        return []
    _, tasks = restore(graph, saved)
    return [task for task in tasks if task.questions and _asks_itself(task)]


def _asks_itself(task: Task) -> bool:
    """Are the task's open questions its own, and not those of a subgraph?"""
    own = {task.question_id(number) for number in range(len(task.answers) + len(task.questions))}
    return all(question.id in own for question in task.questions)


def last_node(graph: Blueprint, channels: Channels) -> str:
    """The node that an update comes as when none is named: the one that ran last.

    Raises:
        InvalidUpdateError: Several nodes ran last.
    """
    ran = {name: max(seen.values(), default=0) for name, seen in channels.seen.items() if name in graph.nodes and seen}
    if not ran:
        if START in graph.nodes:
            return START
        if len(graph.nodes) == 1:
            return next(iter(graph.nodes))
    newest = max(ran.values(), default=0)
    latest = sorted(name for name, version in ran.items() if version == newest)
    if len(latest) != 1:
        raise InvalidUpdateError(
            f"it is not clear as which node the update comes: {latest or sorted(graph.nodes)} are possible; "
            f"pass as_node"
        )
    return latest[0]

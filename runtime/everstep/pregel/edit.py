"""Writing to a thread from outside of a run.

Each superstep of updates becomes a checkpoint, as if the named nodes had returned the values; all of them are
stored in one transaction, or none. Questions that still wait after the update stay open.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from everstep.channels.snapshot import Channels
from everstep.config import RunConfig
from everstep.constants import END, INPUT, PULL, START
from everstep.errors import ConfigError, InvalidUpdateError, did_you_mean
from everstep.pregel.answering import kept_writes
from everstep.pregel.blueprint import Blueprint
from everstep.pregel.calls import calls_of, journalled_calls, kept_calls
from everstep.pregel.checkpoints import Lineage, make_checkpoint, origin_of, users_metadata
from everstep.pregel.entry import RunWrites, apply_run_writes, discarded, restore_tasks
from everstep.pregel.growth import StoredLists
from everstep.pregel.io import input_writes
from everstep.pregel.plan import At, plan
from everstep.pregel.renames import read_with_aliases
from everstep.pregel.starting import StartingPoint
from everstep.pregel.update import apply_writes
from everstep.tasks.attempt import write_result
from everstep.tasks.current import Attempt, RunScope
from everstep.tasks.node import Write
from everstep.tasks.replay import Journalled
from everstep.tasks.task import Task, TaskIds
from everstep.types import StateUpdate
from everstep_savers.base import AtomicSaver
from everstep_savers.checkpoint import (
    Claim,
    Commit,
    Loaded,
    NewCheckpoint,
    TaskWrites,
    copy_checkpoint,
)
from everstep_savers.ids import new_run_id

# `as_node` of an update that copies a checkpoint, with other results for some of its tasks.
COPY = "__copy__"


async def update_state(
    graph: Blueprint, saver: AtomicSaver[Any], config: RunConfig, supersteps: Sequence[Sequence[StateUpdate]]
) -> dict[str, Any]:
    """Write to a thread, one checkpoint for each superstep of updates.

    An update `as_node` ``"__input__"`` is a new input, ``"__end__"`` drops what waits, ``"__copy__"`` copies the
    checkpoint (its values may be updates of the copied checkpoint's tasks).

    Returns:
        The config of the last new checkpoint.

    Raises:
        InvalidUpdateError: The values do not fit, or it is not clear as which node they come.
        ConfigError: There are no supersteps, or one without updates.
        ThreadConflict: A run moved the thread meanwhile.
    """
    checked = _checked(supersteps)
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
    for updates in checked:
        await editor.apply(updates)
    return await editor.commit()


def _checked(supersteps: Any) -> list[list[StateUpdate]]:
    """Supersteps of updates, each a `StateUpdate` or a tuple with the same items."""
    if not supersteps:
        raise ConfigError("No supersteps provided: pass at least one list of StateUpdates")
    checked = []
    for updates in supersteps if isinstance(supersteps, Sequence) else (None,):
        if not isinstance(updates, Sequence) or not all(isinstance(update, tuple) for update in updates):
            raise ConfigError(
                f"supersteps are lists of StateUpdates, such as [[StateUpdate(...)]], got {supersteps!r:.100}"
            )
        if not updates:
            raise ConfigError("No updates provided: pass at least one StateUpdate for each superstep")
        checked.append([StateUpdate(*update) for update in updates])
    return checked


class _Editor:
    """Applies supersteps of updates one after the other, then stores their checkpoints at once."""

    def __init__(
        self, graph: Blueprint, saver: AtomicSaver[Any], config: RunConfig, loaded: Loaded, channels: Channels
    ) -> None:
        self.graph, self.saver, self.config, self.thread = graph, saver, config, loaded.thread
        self.channels, self.saved, self.is_past = channels, loaded.saved, loaded.is_past
        self.scope = RunScope(config, channels, graph.name)
        saved = loaded.saved
        self.parent_id = saved.checkpoint["id"] if saved else None
        self.step = saved.metadata.get("step", -1) + 1 if saved else -1
        head = self.thread.head if self.thread and not config.checkpoint_ns else None
        parents = saved.metadata.get("parents", {}) if saved else {}
        self.lineage = Lineage(config.checkpoint_ns, users_metadata(config.metadata), saver.wants_whole, head, parents)
        self.lists = StoredLists(saver.codec, loaded)
        self.made: list[NewCheckpoint] = []
        self.writes: list[TaskWrites] = []
        self.keeps_waiting = False

    async def apply(self, updates: Sequence[StateUpdate]) -> None:
        """Apply one superstep of updates and take its checkpoint."""
        special = {update.as_node for update in updates} & {INPUT, END, COPY}
        if special and len(updates) > 1:
            raise InvalidUpdateError(f"an update as {special.pop()!r} stands alone in its superstep")
        first = updates[0]
        if first.as_node == COPY:
            await self._copy(first.values)
        elif first.as_node == INPUT:
            self._barrier("input", [*self._waiting_as_done(), RunWrites(INPUT, input_writes(self.graph, first.values))])
        elif first.as_node == END:
            if first.values is not None:
                raise InvalidUpdateError(
                    f"an update as {END!r} drops what waits and writes nothing, got values; write them with an update "
                    f"of their own, as a node"
                )
            self._barrier("update", self._finished_and_discarded())
        elif first.values is None and first.as_node is None and len(updates) == 1:
            self._barrier("update", [])
        else:
            self._barrier("update", [await self._as_node(update, len(updates) == 1) for update in updates])

    async def _as_node(self, update: StateUpdate, may_infer: bool) -> RunWrites:
        """The writes of an update as those of its node."""
        if update.as_node is None and not may_infer:
            raise InvalidUpdateError("one of several updates in a superstep names no node; pass as_node with each")
        name = update.as_node or last_node(self.graph, self.channels)
        node = self.graph.nodes.get(name)
        if node is None:
            raise InvalidUpdateError(
                f"the update comes as node {name!r}, which does not exist.{did_you_mean(str(name), self.graph.nodes)}"
            )
        ids = TaskIds(self.parent_id or "", self.config.checkpoint_ns)
        task = Task(ids, node, (PULL, name), node.triggers, None)
        return RunWrites(name, await self._writes_of(task, update.values), (PULL, name), node.triggers)

    async def _writes_of(self, task: Task, values: Any) -> list[Write]:
        attempt = Attempt(self.scope, task, 1, 0.0)
        await write_result(attempt, values)
        return attempt.writes

    def _barrier(self, source: str, writes: Sequence[RunWrites]) -> None:
        if source == "update":
            self.step = max(self.step, 0)  # -1 is for the input of a thread
        waiting = _suspended(self._tasks(), self._calls())
        updated = apply_writes(self.graph, self.channels, writes) if writes else None
        new = make_checkpoint(
            self.channels, self.lineage, parent_id=self.parent_id, source=source, step=self.step, updated=updated
        )
        self._add(new)
        self._keep_questions(waiting)

    def _add(self, new: NewCheckpoint) -> None:
        # The next superstep goes on with the same maps.
        self.made.append(self.lists.with_bases(replace(new, checkpoint=copy_checkpoint(new.checkpoint))))
        self.parent_id, self.step = new.checkpoint["id"], self.step + 1

    def _tasks(self) -> list[Task]:
        """The tasks that wait now; with what is stored of them as long as their step goes on."""
        tasks = plan(self.graph, self.channels, At(self._origin(), self.config.checkpoint_ns, self.step, self.step))
        if self._goes_on() and self.saved is not None:
            restore_tasks(tasks, self.saved.pending_writes or ())
        return tasks

    def _calls(self) -> list[Journalled]:
        """The `@task` calls of the tasks that wait."""
        return journalled_calls(self.saved.pending_writes or ()) if self.saved is not None else []

    def _goes_on(self) -> bool:
        """Do the tasks of the loaded checkpoint still wait, as far as nothing was updated since?"""
        return self.keeps_waiting or not self.made

    def _origin(self) -> str:
        if not self._goes_on() or self.saved is None:
            return self.parent_id or ""
        return origin_of(self.saved.checkpoint["id"], self.saved.metadata)

    def _waiting_as_done(self) -> list[RunWrites]:
        return discarded(self._tasks())

    def _finished_and_discarded(self) -> list[RunWrites]:
        """What waits, as done: finished tasks with their results, the others without any."""
        return [
            RunWrites(task.name, task.writes if task.finished else (), task.path, task.triggers)
            for task in self._tasks()
        ]

    async def _copy(self, values: Any) -> None:
        """Copy the checkpoint; updates in `values` become the results of its tasks."""
        if self.saved is None:
            raise InvalidUpdateError("there is no checkpoint to copy on this thread")
        tasks = {task.name: task for task in reversed(self._tasks())}
        parent = (self.saved.parent_config or {}).get("configurable", {}).get("checkpoint_id")
        origin = self._origin()
        new = make_checkpoint(
            self.channels, self.lineage, parent_id=parent, source="fork", step=self.step, updated=None, origin=origin
        )
        results = []
        for update in values or ():
            task = tasks.get(update.as_node or "")
            if task is None:
                known = ", ".join(map(repr, tasks)) or "none"
                raise InvalidUpdateError(
                    f"no task of node {update.as_node!r} waits at the copied checkpoint; {known} do"
                )
            writes = await self._writes_of(task, update.values)
            ns, checkpoint_id = self.config.checkpoint_ns, new.checkpoint["id"]
            results.append(TaskWrites(ns, checkpoint_id, task.id, writes, task.path_text, task.name))
        self._add(new)
        self.writes = results

    def _keep_questions(self, waiting: Sequence[Task]) -> None:
        """Keep questions open whose tasks still wait after the update, and the results of finished tasks beside them.

        Questions of subgraphs are left behind: the subgraph begins anew.
        """
        self.writes, self.keeps_waiting = [], False
        if not waiting or self.saved is None:
            return
        origin = origin_of(self.saved.checkpoint["id"], self.saved.metadata)
        at = At(origin, self.config.checkpoint_ns, self.step, self.step)
        pending = {task.id for task in plan(self.graph, self.channels, at)}
        kept = [task for task in waiting if task.id in pending]
        kept += [task.handler for task in kept if task.handler is not None]
        if any(not task.finished for task in kept):
            self.keeps_waiting = True
            new = self.made[-1]
            metadata: Any = {**new.metadata, "origin": origin}
            self.made[-1] = replace(new, metadata=metadata)
            place = (self.config.checkpoint_ns, new.checkpoint["id"])
            self.writes = kept_writes(*place, kept) + kept_calls(place, calls_of(kept, self._calls()))

    async def commit(self) -> dict[str, Any]:
        """Claim the thread and store all checkpoints in one transaction."""
        seen = self.thread
        run_id = self.config.run_id or new_run_id()
        starting_point = self._starting_point()
        claim = Claim(seen, run_id, self.graph.name, starting_point=starting_point, is_from_past=self.is_past)
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

    def _starting_point(self) -> str | None:
        """Where the thread's branch starts now: here, unless tasks wait on as they did."""
        before = self.thread.starting_point if self.thread is not None else None
        if self.config.checkpoint_ns:
            return before
        is_head = self.thread is not None and self.saved is not None and self.thread.head == self.saved.checkpoint["id"]
        if before is not None and is_head and self.keeps_waiting:
            return StartingPoint.of(before).after_updates(len(self.made)).text
        return self.parent_id


def _suspended(tasks: Sequence[Task], calls: Sequence[Journalled]) -> list[Task]:
    """The tasks of a step that waits for answers: those that ask, and those that have finished beside them.

    Questions count that are a task's own, of its `@task` calls or of its error handler.
    """
    asking = {task.id for task in tasks if any(_asks(one, calls) for one in (task, task.handler) if one is not None)}
    return [task for task in tasks if asking and (task.finished or task.id in asking)]


def _asks(task: Task, calls: Sequence[Journalled]) -> bool:
    """Are the task's open questions its own or those of its `@task` calls, and not those of a subgraph?"""
    asking = [task, *(call for call, _ in calls_of([task], calls))]
    most = len(task.answers) + len(task.questions)
    own = {one.question_id(number) for one in asking for number in range(most)}
    return bool(task.questions) and all(question.id in own for question in task.questions)


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

"""When the steps and writes of one graph's run are stored: durability.

``"sync"``: before the next step starts. ``"async"``: behind the run, two step commits at the most.
``"exit"``: when the run leaves. In every mode the claim of the thread, with input and status, is stored
before the first node starts, commits take effect in order, and a storage error fails the run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from everstep.errors import InvalidUpdateError
from everstep.pregel.checkpoints import Taken, step_checkpoint
from everstep.pregel.commits import CommitQueue, shielded, unbroken
from everstep.pregel.growth import StoredLists
from everstep.pregel.held import HeldSteps
from everstep.tasks.handlers import result_of
from everstep.tasks.task import Task
from everstep_savers.checkpoint import (
    ERROR,
    INTERRUPT,
    NO_WRITES,
    NULL_TASK_ID,
    RESUME,
    CheckpointTuple,
    Claim,
    Commit,
    NewCheckpoint,
    Status,
    TaskPlace,
    TaskWrites,
)
from everstep_savers.errors import CodecError

# Seconds in which results of siblings that finish close together are gathered into one commit.
_GATHER = 0.001
# How a run ends that could not be finished: with an error, which may be that of storing.
_AFTER_ERRORS = ("failed", "cancelled")


class Journal:
    """Stores the run of one graph in one checkpoint namespace.

    Attributes:
        checkpoint_id: The checkpoint against which writes of tasks are stored now.
        is_root: The run owns the thread: it claims it and tells how it ended.
        untracked: Channels that are not stored, nor the writes to them.
        lists: What is stored of the lists; None stores every list as a whole.
        status: How the run ended, once that is handed over to be stored.
        start: The checkpoint that the run went on from.
        beside: Writes of `@task` calls by their ids that are not handed over yet; stored when the run leaves.
    """

    def __init__(self, queue: CommitQueue, checkpoint_ns: str, *, is_root: bool = True) -> None:
        self.queue = queue
        self.checkpoint_ns = checkpoint_ns
        self.is_root = is_root
        self.lists: StoredLists | None = None
        self.checkpoint_id = ""
        self.start: CheckpointTuple | None = None
        self.status: Status | None = None
        self.untracked: frozenset[str] = frozenset()
        self.beside: dict[str, TaskWrites] = {}
        self._unstored: list[Task] = []
        self._stored: asyncio.Future[int] | None = None
        self._gathering: asyncio.TimerHandle | None = None
        self._held: HeldSteps | None = None
        self._kept: Sequence[TaskWrites] = ()

    async def begin(
        self, claim: Claim, checkpoint: NewCheckpoint | None = None, writes: Sequence[TaskWrites] = ()
    ) -> None:
        """Claim the thread, with what the run starts from, in one transaction."""
        checkpoints: Sequence[NewCheckpoint] = ()
        if checkpoint is not None and claim.has_input:
            self._held = HeldSteps(checkpoint)
        elif checkpoint is not None:
            checkpoints = (self._with_bases(checkpoint),)
        await self.queue.claim(
            Commit(self.queue.thread_id, claim=claim, status="running", checkpoints=checkpoints, writes=writes)
        )

    def task_finished(self, task: Task) -> None:
        """Store a task's result while its siblings still run; the last one's goes along with the step."""
        self._unstored.append(task)
        if self.queue.durability != "exit" and self._gathering is None:
            self._gathering = asyncio.get_running_loop().call_later(_GATHER, self._gather)

    async def handed_over(self, task: Task) -> None:
        """Store a failure and who handles it, before the handler starts; with durability "exit" when the run leaves.

        A crash from here on resumes with the handler, not with the node.
        """
        if self.queue.durability != "exit":
            await unbroken(self.queue.behind(self.prepare([self._result_of(task)])))
            task.stored = True

    async def first(self, checkpoint: NewCheckpoint, kept: Sequence[TaskWrites] = ()) -> None:
        """Store the checkpoint from which the run of a subgraph starts.

        Args:
            kept: What a branch keeps of the tasks of the checkpoint it starts from.
        """
        if self.queue.durability == "exit":
            self._held, self._kept = HeldSteps(checkpoint), kept
            self.checkpoint_id = checkpoint.checkpoint["id"]
        else:
            await self._step(checkpoint, (), None, kept)

    async def step(self, taken: Taken, status: Status | None = None) -> None:
        """Store a superstep: its checkpoint with the results of its tasks, and the run's status if it ends here.

        Args:
            status: "interrupted" marks the checkpoint as one at which the thread has stopped at a breakpoint.
        """
        self.beside.clear()
        self._stop_gathering()
        if self.queue.durability != "exit":
            results = [self._result_of(task) for task in taken.tasks if not task.stored]
            await self._step(step_checkpoint(taken, results), taken.tasks, status)
            return
        if self._held is None:
            self._held = HeldSteps(step_checkpoint(taken, ()))
        else:
            self._held.add(taken)
        self._kept = ()
        # The subgraphs of tasks whose results are taken; those that did not go that far are gone on from.
        if self.queue.held:
            self.queue.held.forget({task.ns for task in taken.tasks})
        self.checkpoint_id = taken.checkpoint_id

    async def _step(
        self,
        checkpoint: NewCheckpoint,
        tasks: Sequence[Task],
        status: Status | None,
        kept: Sequence[TaskWrites] = (),
    ) -> None:
        told = status if self.is_root else None
        checkpoint = self._with_bases(checkpoint, tasks)
        checkpoint_id = checkpoint.checkpoint["id"]
        writes = (*kept, self._stop_mark(checkpoint_id)) if status == "interrupted" else kept
        commit = Commit(self.queue.thread_id, None, self.queue.token, told, None, (checkpoint,), writes)
        prepared = self._prepare(commit, tasks)
        self.checkpoint_id = checkpoint_id
        for task in tasks:
            task.stored = True  # from here on: whatever ends the run, the commit is not taken back
        self._stored = await self.queue.step(prepared)
        self.status = status

    def parent_of(self, taken: Taken) -> str | None:
        """The parent a step's checkpoint has in the storage: steps that are held back merge into one."""
        return taken.parent_id if self._held is None else self._held.parent_id

    async def leave(
        self, status: Status, error: str | None = None, tasks: Sequence[Task] = (), *, at_breakpoint: bool = False
    ) -> None:
        """Store how the run ended, unless it is stored: status, results, failures, questions, what was held back.

        Args:
            at_breakpoint: The run stops at a static breakpoint, and must not stop there again.

        Raises:
            LeaseLost: A later run has claimed the thread.
            CodecError: A question or a result cannot be kept, and the run did not fail already.
        """
        self._stop_gathering()
        has_ended, is_lost = self.status is not None and self._held is None, False
        if has_ended or status in _AFTER_ERRORS:
            try:
                await self.queue.drain()
            except Exception:
                self.status, has_ended, is_lost = None, False, True
                if status not in _AFTER_ERRORS:
                    raise
        if has_ended:
            return
        if is_lost or _has_failed(self._stored):
            # The caller knows that storing failed. What the tasks did cannot hang on a checkpoint that is
            # not there; how the run ended can still be told.
            tasks = ()
            self.beside.clear()
        writes = [found for task in tasks if not task.stored and (found := self._final_writes(task)) is not None]
        writes += self.beside.values()
        told = {one.task_id for one in writes}
        writes += [one for one in self._kept if one.task_id not in told]
        self.beside.clear()
        if at_breakpoint:
            writes.append(self._stop_mark(self.checkpoint_id))
        if status in _AFTER_ERRORS:
            writes = [one for one in writes if self._can_be_kept(writes=[one])]
            if self._held is not None and not self._can_be_kept(self._held.new()):
                # What the run did cannot be stored; its input is, and it can be run again from there.
                self._held, writes = None, []
        await self._store_end(status, error, writes, tasks)
        self._held, self.status = None, status

    async def leave_shielded(
        self, status: Status, error: str | None, tasks: Sequence[Task], refused: Sequence[Task]
    ) -> None:
        """`leave` for a run that may be cancelled: not cut short, but bounded in time.

        Args:
            refused: Tasks whose results the barrier refused: those that were stored while siblings ran are taken back.
        """
        await shielded(self._leave_without(refused, status, error, tasks))

    async def _leave_without(
        self, refused: Sequence[Task], status: Status, error: str | None, tasks: Sequence[Task]
    ) -> None:
        await self.leave(status, error, tasks)
        places = [TaskPlace(self.checkpoint_ns, self.checkpoint_id, task.id) for task in refused if task.stored]
        if places:
            await self.queue.saver.atake_back(self.queue.thread_id, self.queue.token, places)

    async def _store_end(
        self, status: Status, error: str | None, writes: list[TaskWrites], tasks: Sequence[Task]
    ) -> None:
        queue = self.queue
        new = None
        if self._held is not None:
            queue.held.rename(self.checkpoint_ns, self._held)
            new = self._with_bases(self._held.new(), tasks)
        if not self.is_root and queue.durability == "exit":
            queue.held.take(self.checkpoint_ns, self.start, new, writes)
            return
        checkpoints = [] if new is None else [new]
        told: Status | None = None
        if self.is_root:
            told = status
            checkpoints, writes = [*queue.held.checkpoints, *checkpoints], [*queue.held.writes, *writes]
        elif not checkpoints and not writes:
            return
        commit = Commit(queue.thread_id, None, queue.token, told, error if told else None, checkpoints, writes)
        await queue.store(self._prepare(commit, tasks))

    def _with_bases(self, checkpoint: NewCheckpoint, tasks: Sequence[Task] = ()) -> NewCheckpoint:
        return checkpoint if self.lists is None else self.lists.with_bases(checkpoint, tasks)

    def _can_be_kept(self, held: NewCheckpoint | None = None, writes: Sequence[TaskWrites] = ()) -> bool:
        """Can they be stored? A run that failed because they cannot must still be able to say so."""
        try:
            checkpoints = () if held is None else (self._with_bases(held),)
            commit = Commit(self.queue.thread_id, token=self.queue.token, checkpoints=checkpoints, writes=writes)
            self.queue.saver.prepare(commit)
        except (CodecError, InvalidUpdateError):
            return False
        return True

    def _gather(self) -> None:
        self._gathering = None
        tasks, self._unstored = self._unstored, []
        writes = list(map(self._result_of, tasks))
        try:
            prepared = self.prepare(writes, tasks)
        except CodecError:
            return  # a timer has no caller; the step, or the end of the run, will find and raise it
        for task in tasks:
            task.stored = True
        _ = self.queue.behind(prepared)

    def _stop_gathering(self) -> None:
        self._unstored.clear()
        if self._gathering is not None:
            self._gathering.cancel()
            self._gathering = None

    def _result_of(self, task: Task) -> TaskWrites:
        writes = result_of(task)
        if self.untracked:
            writes = [write for write in writes if write[0] not in self.untracked] or [(NO_WRITES, None)]
        return self.writes_of(task, writes)

    def _final_writes(self, task: Task) -> TaskWrites | None:
        """What a task leaves when the run ends in the middle of a step."""
        if task.finished:
            return self._result_of(task)
        if task.suspended:
            return self.writes_of(task, [(INTERRUPT, list(task.questions))])
        if task.error is not None:
            writes: list[tuple[str, Any]] = [(ERROR, task.error)]
            if task.answers.keys() & self.queue.rejected:
                kept = [answer for key, answer in task.answers.items() if key not in self.queue.rejected]
                writes.append((RESUME, kept))
            return self.writes_of(task, writes)
        return None

    def _stop_mark(self, checkpoint_id: str) -> TaskWrites:
        """Says that the thread has stopped here: a resumed run must not stop at once again."""
        return TaskWrites(self.checkpoint_ns, checkpoint_id, NULL_TASK_ID, [(INTERRUPT, [])])

    def writes_of(self, task: Task, writes: Sequence[tuple[str, Any]]) -> TaskWrites:
        """Writes of a task against the current checkpoint."""
        return TaskWrites(self.checkpoint_ns, self.checkpoint_id, task.id, writes, task.path_text, task.name)

    def prepare(self, writes: Sequence[TaskWrites], tasks: Sequence[Task] = ()) -> Any:
        """Encode writes against the current checkpoint, for the queue."""
        return self._prepare(Commit(self.queue.thread_id, token=self.queue.token, writes=writes), tasks)

    def _prepare(self, commit: Commit, tasks: Sequence[Task] = ()) -> Any:
        try:
            return self.queue.saver.prepare(commit)
        except CodecError as error:
            raise error.within(*_places(error, tasks)) from None


def _has_failed(commit: asyncio.Future[int] | None) -> bool:
    return commit is not None and commit.done() and (commit.cancelled() or commit.exception() is not None)


def _places(error: CodecError, tasks: Sequence[Task]) -> tuple[str, ...]:
    """The nodes that wrote the value which cannot be stored, for the error's message."""
    nodes = {task.name for task in tasks for key, _ in task.writes if any(repr(key) in place for place in error.place)}
    named = {place for place in error.place if place.startswith("node ")}
    return () if named or not nodes else (f"written by node {', '.join(map(repr, sorted(nodes)))}",)

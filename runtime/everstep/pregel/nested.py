"""Where the run of a subgraph goes on: from which checkpoint of its own, and whether that becomes a branch.

A subgraph's checkpoints name the checkpoints of the graphs that contain it. What was made under the checkpoint at which
the calling task runs is continued. On a branch that goes on from what was there, checkpoints made under the point where
it parted are continued too, as branches of their own: the old line's are never written to. A stateful subgraph, which
keeps its state from run to run, begins a new run from its newest state on the caller's line.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any

from everstep.constants import INTERRUPT
from everstep.pregel.blueprint import Blueprint
from everstep.pregel.calls import calls_of, journalled_calls
from everstep.pregel.entry import Entry, Fork, Fresh, Kept, Resume
from everstep.pregel.renames import read_with_aliases
from everstep.pregel.request import Nesting, RunRequest
from everstep.pregel.state import restore
from everstep.pregel.subgraphs import caller_of, subgraph_namespace
from everstep.tasks.current import Attempt, RunScope
from everstep.tasks.task import Task
from everstep_savers.checkpoint import CheckpointTuple, Loaded
from everstep_savers.listings import closing
from everstep_savers.metadata import descent


async def load_nested(request: RunRequest, attempt: Attempt) -> tuple[Loaded, Entry]:
    """Load what a subgraph's run starts from, and how it starts."""
    nesting: Nesting = attempt.run.nesting
    fresh = Fresh(request.input)
    if request.saver is None:
        return Loaded(None), fresh
    config = request.config
    if (replayed := request.replay.get(config.checkpoint_ns)) is not None:
        return await request.saver.aload(config.saved(replayed)), Fork(Resume())
    assert nesting.queue is not None  # whoever has a saver has commits
    if left := nesting.queue.held.left_by(config.checkpoint_ns):
        return await _left_in_this_run(request, attempt, left)
    is_first = attempt.number == 1 and not attempt.task.is_repeated
    if is_first and not request.is_stateful and not nesting.may_continue:
        return Loaded(None), fresh  # nothing can be stored in a namespace that is new: no need to look
    loaded = await request.saver.aload(config.saved())
    if loaded.saved is None:
        return loaded, fresh
    search = _Search(request, attempt)
    current = attempt.run.checkpoint_id
    own = loaded.saved if search.is_under(current, loaded.saved) else await search.newest_under(current)
    if own is not None:
        return await _loaded(request, loaded, own), Resume()
    if (branching := await search.where_parted()) is not None:
        saved, kept = branching
        loaded = await _loaded(request, loaded, saved)
        assert loaded.saved is not None  # it was listed just now
        # Listed with the results that ended its step: what has finished beside a question is not run again.
        return replace(loaded, saved=loaded.saved._replace(pending_writes=saved.pending_writes)), Fork(Resume(), kept)
    earlier = await _on_this_line(request, attempt) if request.is_stateful else None
    return earlier or replace(loaded, saved=None), fresh


async def _left_in_this_run(request: RunRequest, attempt: Attempt, left: list[CheckpointTuple]) -> tuple[Loaded, Entry]:
    """Go on from where the subgraph stands that has left in this root run, and is not stored yet."""
    assert request.saver is not None
    search = _Search(request, attempt)
    own = next((saved for saved in left if search.is_under(attempt.run.checkpoint_id, saved)), None)
    saved = own or left[-1]
    versions = saved.checkpoint["channel_versions"].values()
    newest = max((version for version in versions if isinstance(version, int)), default=0)
    loaded = await request.saver.aload(request.config.saved())
    loaded = replace(loaded, saved=saved, newest_version=max(loaded.newest_version, newest), chains={})
    return loaded, Fresh(request.input) if own is None else Resume()


async def _loaded(request: RunRequest, newest: Loaded, saved: CheckpointTuple) -> Loaded:
    if newest.saved is not None and newest.saved.checkpoint["id"] == saved.checkpoint["id"]:
        return newest
    assert request.saver is not None
    # A listing shows results of the old line, which do not count here.
    return await request.saver.aload(saved.config)


class _Search:
    """Finds the checkpoints of a subgraph that belong to checkpoints of the graph whose node calls it."""

    def __init__(self, request: RunRequest, attempt: Attempt) -> None:
        assert request.saver is not None
        self.request, self.saver, self.task = request, request.saver, attempt.task
        self.nesting: Nesting = attempt.run.nesting
        self.parent_ns = attempt.run.config.checkpoint_ns
        self.caller = caller_of(request)
        self.answers = {*attempt.run.answers, *attempt.task.answers}
        self.asks = _Asking(self.saver, request, most=len(self.answers) + 1)

    def is_under(self, checkpoint_id: str | None, saved: CheckpointTuple) -> bool:
        """Was this one made under a checkpoint of the caller's graph, for this call?"""
        if checkpoint_id is None:
            return False
        metadata = saved.metadata
        return (
            metadata.get("parents", {}).get(self.parent_ns) == checkpoint_id and metadata.get("caller") == self.caller
        )

    async def under(self, checkpoint_id: str) -> AsyncIterator[CheckpointTuple]:
        """Those that were made under a checkpoint, newest first: their ids come after its own."""
        async with closing(self.saver.alist(self.request.config.saved())) as listing:
            async for saved in listing:
                if saved.checkpoint["id"] < checkpoint_id:
                    return
                if self.is_under(checkpoint_id, saved):
                    yield saved

    async def newest_under(self, checkpoint_id: str | None) -> CheckpointTuple | None:
        """The newest one that was made under a checkpoint."""
        if checkpoint_id is None:
            return None
        async with closing(self.under(checkpoint_id)) as found:
            return await anext(found, None)

    async def where_parted(self) -> tuple[CheckpointTuple, Kept] | None:
        """The one to go on from on a branch, and what is kept of it.

        Where a question is answered anew, it is the one at which the subgraph asked it. A subgraph that asked nothing,
        called by the node that asked, was called before or after the question; as nobody can tell, it is run again.
        """
        answered: frozenset[str] = frozenset()
        for checkpoint_id, then_answered in self.nesting.continues:
            answered |= then_answered
            found = [saved async for saved in self.under(checkpoint_id)]
            if not found:
                continue
            for saved in found:
                if asking := await self.asks.tasks_of(self.request.graph, saved, answered):
                    return saved, Kept(asking, answered)
            if not self._may_follow(answered) or await self._any_asks(found):
                return found[0], Kept(frozenset(), answered)
            return None
        return None

    def _may_follow(self, answered: frozenset[str]) -> bool:
        """May the subgraph have been called because of the earlier answer to one of these questions?"""
        if self.nesting.reopened is not None and not self.task.depth:
            return self.task.id in self.nesting.reopened
        return not answered.isdisjoint(self.answers)

    async def _any_asks(self, found: list[CheckpointTuple]) -> bool:
        return any([await self.asks.tasks_of(self.request.graph, saved, self.answers) for saved in found])


class _Asking:
    """Finds the tasks that asked questions, by the questions' ids: an id tells the task and the position."""

    def __init__(self, saver: Any, request: RunRequest, most: int) -> None:
        self.saver, self.config, self.most = saver, request.config, most

    async def tasks_of(
        self, graph: Blueprint, saved: CheckpointTuple, ids: frozenset[str] | set[str]
    ) -> frozenset[str]:
        """The ids of a checkpoint's tasks that asked one of these questions, or whose subgraph did."""
        if not ids:
            return frozenset()
        saved = read_with_aliases(graph, saved)
        _, tasks = restore(graph, saved)
        pending = saved.pending_writes or ()
        asked: Mapping[str, Any] = {task_id: value for task_id, channel, value in pending if channel == INTERRUPT}
        calls = journalled_calls(pending)
        found = set()
        for task in tasks:
            own = [task, *(call for call, _ in calls_of([task], calls))]
            if (
                any(question.id in ids for question in asked.get(task.id, ()))
                or any(one.question_id(number) in ids for one in own for number in range(self.most))
                or await self._inside(task, saved, ids)
            ):
                found.add(task.id)
        return frozenset(found)

    async def _inside(self, task: Task, saved: CheckpointTuple, ids: frozenset[str] | set[str]) -> bool:
        """Did the subgraph of a task ask one of the questions?"""
        if task.node.subgraph is None:
            return False
        inner: Blueprint = task.node.subgraph.blueprint
        ns = saved.config["configurable"].get("checkpoint_ns", "")
        config = self.config.saved(checkpoint_ns=subgraph_namespace(task))
        async with closing(self.saver.alist(config)) as listing:
            async for state in listing:
                made_at = state.metadata.get("parents", {}).get(ns)
                if made_at == saved.checkpoint["id"] and await self.tasks_of(inner, state, ids):
                    return True
        return False


async def _on_this_line(request: RunRequest, attempt: Attempt) -> Loaded | None:
    """The newest checkpoint of a stateful subgraph that was made on the line this run is on."""
    assert request.saver is not None
    lines: dict[str, _Line] = {}
    async with AsyncExitStack() as listings:
        async for saved in await listings.enter_async_context(closing(request.saver.alist(request.config.saved()))):
            parents: Mapping[str, str] = saved.metadata.get("parents", {})
            run: RunScope | None = attempt.run
            # A graph in between may have run for another task then: a graph above it knows both.
            while run is not None and run.config.checkpoint_ns not in parents:
                run = run.above
            if run is None:
                return await request.saver.aload(saved.config)
            ns = run.config.checkpoint_ns
            if ns not in lines:
                listing = request.saver.alist(request.config.saved(checkpoint_ns=ns))
                lines[ns] = _Line(run, await listings.enter_async_context(closing(listing)))
            if await lines[ns].holds(parents[ns]):
                return await request.saver.aload(saved.config)
    return None


class _Line:
    """The checkpoints of the containing graph whose tasks led to where its run is, read as far back as needed.

    The point where a branch parts from the old line is not among them: what its tasks did belongs to the old line.
    """

    def __init__(self, run: RunScope, listing: AsyncIterator[CheckpointTuple]) -> None:
        self.first_made = run.first_made
        self.next = run.started_from
        self.known = set() if run.has_parted else {self.next}
        self.listing = listing

    async def holds(self, checkpoint_id: str) -> bool:
        """Is this checkpoint on the line? Ids sort by time, and a parent's before its child's."""
        if self.first_made is not None and checkpoint_id >= self.first_made:
            return True  # nobody else writes the thread while this run does
        while checkpoint_id not in self.known and self.next is not None and checkpoint_id < self.next:
            saved = await anext(self.listing, None)
            if saved is None:
                self.next = None
            elif saved.checkpoint["id"] == self.next:
                parent = saved.parent_config
                found = descent(parent["configurable"]["checkpoint_id"] if parent else None, saved.metadata)
                self.next = found.ancestor
                if not found.parts:
                    self.known.add(self.next)
        return checkpoint_id in self.known

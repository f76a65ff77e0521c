"""Runs inside runs: where a subgraph's run belongs, and where it goes on.

A subgraph that is called in a node runs in the namespace of the node's task, on the thread, the commits and
the slots of the root run. Its checkpoints name the checkpoints of the graphs that contain it, so that the one
that belongs to a parent's checkpoint is found on whatever branch.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, Literal

from everstep.config import DEFAULT_RECURSION_LIMIT, RunConfig
from everstep.constants import INTERRUPT, NS_END, NS_SEP
from everstep.context import current_task
from everstep.pregel.entry import Entry, Fork, Fresh, Resume
from everstep.pregel.request import Nesting, RunRequest
from everstep.tasks.current import Attempt, RunScope
from everstep.tasks.task import Task
from everstep.tasks.threads import lending_slot
from everstep_savers.checkpoint import CheckpointTuple, Loaded

# None: inherits the parent's saver; True: and keeps a history of its own; False: has none.
Persistence = Literal[True, False] | None


def calling_attempt(config: RunConfig) -> Attempt | None:
    """The attempt whose node calls a graph here; None outside of a node, or for a call on a thread of its own."""
    attempt = current_task.get(None)
    if not isinstance(attempt, Attempt) or attempt.closed:
        return None
    if config.thread_id is not None and config.thread_id != attempt.run.config.thread_id:
        return None
    return attempt


def nested_request(request: RunRequest, attempt: Attempt, persistence: Persistence) -> RunRequest:
    """The request of a call in a node, as the run of a subgraph."""
    run = attempt.run
    nesting: Nesting = run.nesting
    is_stateful = persistence is True
    queue = None if persistence is False else nesting.queue
    return replace(
        request,
        config=_nested_config(request.config, run.config, _namespace(attempt, is_stateful=is_stateful)),
        saver=queue.saver if queue is not None else None,
        durability=queue.durability if queue is not None else request.durability,
        context=run.context if request.context is None else request.context,
        store=run.store if request.store is None else request.store,
        cache=run.cache if request.cache is None else request.cache,
        parent=attempt,
        is_stateful=is_stateful,
        replay=nesting.replay,
    )


def _namespace(attempt: Attempt, *, is_stateful: bool) -> str:
    """The checkpoint namespace of the attempt's next subgraph call; the same at each attempt."""
    base = stable_namespace(attempt.task.ns) if is_stateful else attempt.task.ns
    number = attempt.calls.get(base, 0)
    attempt.calls[base] = number + 1
    return base if number == 0 else f"{base}{NS_SEP}{number}"


def stable_namespace(checkpoint_ns: str) -> str:
    """A namespace without its task ids: the same in every run of the thread."""
    return NS_SEP.join(level.split(NS_END)[0] for level in checkpoint_ns.split(NS_SEP))


def node_names(checkpoint_ns: str) -> list[str]:
    """The nodes that lead to a namespace, outermost first; numbers of repeated calls are left out."""
    levels = checkpoint_ns.split(NS_SEP) if checkpoint_ns else []
    return [level.split(NS_END)[0] for level in levels if not level.isdigit()]


def _nested_config(own: RunConfig, parent: RunConfig, checkpoint_ns: str) -> RunConfig:
    metadata = {key: value for key, value in own.metadata.items() if not key.startswith("everstep_")}
    return replace(
        parent,
        checkpoint_ns=checkpoint_ns,
        checkpoint_id=None,
        configurable={**parent.configurable, **own.configurable},
        recursion_limit=own.recursion_limit
        if own.recursion_limit != DEFAULT_RECURSION_LIMIT
        else parent.recursion_limit,
        tags=tuple(dict.fromkeys((*parent.tags, *own.tags))),
        metadata={**parent.metadata, **metadata},
        run_name=own.run_name,
        callbacks=own.callbacks or parent.callbacks,
    )


def subgraph_namespace(task: Task) -> str:
    """Where the checkpoints of the subgraph are that the task's node runs."""
    is_stateful = task.node.subgraph.options.checkpointer is True
    return stable_namespace(task.ns) if is_stateful else task.ns


def subgraph_config(config: RunConfig, task: Task) -> dict[str, Any] | None:
    """The config that names the state of the subgraph that the task's node runs, if anything is kept of one."""
    graph = task.node.subgraph
    if graph is None or graph.options.checkpointer is False:
        return None
    return config.saved(checkpoint_ns=subgraph_namespace(task))


def scope_inside(scope: RunScope, request: RunRequest, caller: Attempt) -> None:
    """Fill in what the run of a subgraph shares with the run of the node that calls it."""
    above = caller.run
    scope.durable = scope.durable or above.durable
    scope.slots, scope.run_id, scope.rejected = above.slots, above.run_id, above.rejected
    scope.attempts = attempts_above(caller, request.config.checkpoint_ns)
    scope.answers = {**above.answers, **caller.task.answers}
    if request.control is None:
        scope.control = above.control
    if request.on_error is None:
        scope.drains = above.drains
    scope.verifies = scope.verifies or above.verifies
    scope.server_info = scope.server_info or above.server_info
    # Not the namespace: task ids may be others after a crash. Which call of the node it is stays the same.
    own = stable_namespace(caller.task.ns) if request.is_stateful else caller.task.ns
    number = request.config.checkpoint_ns.removeprefix(own)
    scope.branch = f"{caller.idempotency_key}{'=' if request.is_stateful else ''}{number}"


async def load_nested(request: RunRequest, attempt: Attempt) -> tuple[Loaded, Entry]:
    """Load what a subgraph's run starts from, and how it starts."""
    nesting: Nesting = attempt.run.nesting
    fresh = Fresh(request.input)
    if request.saver is None:
        return Loaded(None), fresh
    config = request.config
    if (replayed := request.replay.get(config.checkpoint_ns)) is not None:
        return await request.saver.aload(config.saved(replayed)), Fork(Resume())
    is_first = attempt.number == 1 and not attempt.task.is_repeated
    if is_first and not request.is_stateful and not nesting.may_continue:
        return Loaded(None), fresh  # nothing can be stored in a namespace that is new: no need to look
    assert nesting.queue is not None  # whoever has a saver has commits
    await nesting.queue.release(config.checkpoint_ns)
    loaded = await request.saver.aload(config.saved())
    if loaded.saved is None:
        return loaded, fresh
    found = await _belonging(request, attempt, loaded.saved)
    if found is not None:
        if found is not loaded.saved:  # a listing shows results of the old line, which do not count here
            loaded = await request.saver.aload(found.config)
        return loaded, Resume()
    kept = await _on_this_line(request, attempt) if request.is_stateful else None
    return kept or replace(loaded, saved=None), fresh


async def _belonging(request: RunRequest, attempt: Attempt, newest: CheckpointTuple) -> CheckpointTuple | None:
    """The newest checkpoint of the subgraph that belongs to the parent's checkpoint.

    On a branch on which a question is answered anew, it is the one at which the subgraph asked it.
    """
    nesting: Nesting = attempt.run.nesting
    own = {attempt.run.checkpoint_id, nesting.origin} - {None}
    parent_ns = attempt.run.config.checkpoint_ns
    caller = caller_of(request)

    def belongs(saved: CheckpointTuple) -> bool:
        if saved.metadata.get("parents", {}).get(parent_ns) not in own or saved.metadata.get("caller") != caller:
            return False
        return not nesting.answered or _asks(saved, nesting.answered)

    if belongs(newest):
        return newest
    assert request.saver is not None
    async for saved in request.saver.alist(request.config.saved()):
        if belongs(saved):
            return saved
    return None


async def _on_this_line(request: RunRequest, attempt: Attempt) -> Loaded | None:
    """The newest checkpoint of a stateful subgraph that was made on the parent's own branch."""
    assert request.saver is not None
    parent_ns = attempt.run.config.checkpoint_ns
    line = _Line(request, attempt)
    async for saved in request.saver.alist(request.config.saved()):
        made_at = saved.metadata.get("parents", {}).get(parent_ns)
        if made_at is None or await line.holds(made_at):
            return await request.saver.aload(saved.config)
    return None


class _Line:
    """The checkpoints of the containing graph that lead to where its run is, read as far back as needed."""

    def __init__(self, request: RunRequest, attempt: Attempt) -> None:
        self.first_made = attempt.run.first_made
        self.next = attempt.run.started_from
        self.known = {self.next}
        ns = attempt.run.config.checkpoint_ns
        assert request.saver is not None
        self.listing = request.saver.alist(request.config.saved(checkpoint_ns=ns))

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
                self.next = parent["configurable"]["checkpoint_id"] if parent else None
                self.known.add(self.next)
        return checkpoint_id in self.known


def caller_of(request: RunRequest) -> str | None:
    """The `@task` call that runs a subgraph whose namespace other calls may share, because it names no tasks."""
    if request.parent is None or not request.is_stateful or not request.parent.task.depth:
        return None
    return request.parent.task.id


def _asks(saved: CheckpointTuple, ids: frozenset[str]) -> bool:
    return any(
        question.id in ids
        for _, channel, value in saved.pending_writes or ()
        if channel == INTERRUPT
        for question in value
    )


@asynccontextmanager
async def waiting_for_subgraph(attempt: Attempt) -> AsyncIterator[None]:
    """The node waits for its subgraph: it holds no slot meanwhile, and its attempt knows of the run."""
    current = asyncio.current_task()
    assert current is not None
    attempt.inner[current] = None
    try:
        async with lending_slot(attempt):
            yield
    finally:
        attempt.inner.pop(current, None)


def nesting_of(request: RunRequest, queue: Any, **more: Any) -> Nesting:
    """What a run hands to the runs of its subgraphs."""
    own = (request.outlet,) if request.outlet is not None and request.outlet.subgraphs else ()
    if request.parent is None:
        return Nesting(queue, {}, own, replay=request.replay, **more)
    run = request.parent.run
    above: Nesting = run.nesting
    parents = dict(above.parents)
    if run.checkpoint_id is not None:
        parents[run.config.checkpoint_ns] = run.checkpoint_id
    return Nesting(queue, parents, (*above.outlets, *own), replay=request.replay, **more)


def levels_of(checkpoint_ns: str) -> tuple[str, ...]:
    """A namespace as its levels, the outermost first."""
    return tuple(checkpoint_ns.split(NS_SEP)) if checkpoint_ns else ()


def attempts_above(attempt: Attempt, checkpoint_ns: str) -> tuple[int, ...]:
    """For each level of a subgraph's namespace, the attempt of the task at that level.

    A node's further subgraph calls have a level of their own, which is no task's: its attempt is the first.
    """
    found = (*attempt.run.attempts, *attempt.task.above, attempt.number)
    return (*found, *[1] * (len(levels_of(checkpoint_ns)) - len(found)))

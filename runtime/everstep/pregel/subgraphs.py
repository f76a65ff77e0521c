"""Runs inside runs: where a subgraph's run belongs.

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
from everstep.constants import NS_END, NS_SEP
from everstep.context import current_task
from everstep.errors import EverstepError
from everstep.pregel.request import Nesting, RunRequest
from everstep.tasks.current import Attempt, RunScope
from everstep.tasks.task import Task
from everstep.tasks.threads import lending_slot

# None: inherits the parent's saver; True: and keeps a history of its own; False: has none.
Persistence = Literal[True, False] | None


def calling_attempt(config: RunConfig, graph: str) -> Attempt | None:
    """The attempt whose node calls a graph here; None outside of a node, or for a call on a thread of its own.

    Raises:
        EverstepError: The attempt has ended, so that its run can have no part in the call.
    """
    attempt = current_task.get(None)
    if not isinstance(attempt, Attempt):
        return None
    if config.thread_id is not None and config.thread_id != attempt.run.config.thread_id:
        return None
    if attempt.closed:
        raise EverstepError(
            f"graph {graph!r} was called by {attempt.task.title} after its attempt had ended; for a run apart from "
            f"that node's, pass another thread_id, or call it in a context of its own: contextvars.Context().run(...)"
        )
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
    scope.above = above = caller.run
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


def caller_of(request: RunRequest) -> str | None:
    """The `@task` call that runs a subgraph whose namespace other calls may share, because it names no tasks."""
    if request.parent is None or not request.is_stateful or not request.parent.task.depth:
        return None
    return request.parent.task.id


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

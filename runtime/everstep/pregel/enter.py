"""Starting a run: load the thread, decide how to start, claim it.

Everything that can be refused is refused before the claim, and the claim stores what the run starts
from (the input's checkpoint, or the accepted answers) in one transaction: before it nothing is written,
after it the run can be found and continued by any process.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from everstep.channels.snapshot import Channels
from everstep.constants import INPUT, START
from everstep.errors import ConfigError
from everstep.pregel.answering import accepted_writes, answer_again, bind_or_refuse, kept_writes, reopen
from everstep.pregel.calls import CallJournal, calls_of, journalled_calls, kept_calls
from everstep.pregel.checkpoints import (
    Lineage,
    Point,
    continues_of,
    make_checkpoint,
    origin_of,
    point_of,
    users_metadata,
)
from everstep.pregel.commits import CommitQueue
from everstep.pregel.entry import (
    Entry,
    Fork,
    Fresh,
    Resume,
    RunWrites,
    apply_run_writes,
    ask_again,
    choose_entry,
    discarded,
    restore_tasks,
    run_writes_id,
    stopped_here,
    superseded_questions,
)
from everstep.pregel.growth import StoredLists
from everstep.pregel.io import input_writes
from everstep.pregel.joins import check_joins
from everstep.pregel.journal import Journal
from everstep.pregel.nested import load_nested
from everstep.pregel.plan import At, plan
from everstep.pregel.renames import read_with_aliases, refuse_missing
from everstep.pregel.request import Continues, Nesting, RunRequest
from everstep.pregel.starting import StartingPoint, starting_point_of
from everstep.pregel.subgraphs import caller_of, nesting_of, scope_inside
from everstep.pregel.update import apply_writes
from everstep.tasks.calls import CallLog, CallTask
from everstep.tasks.current import RunScope
from everstep.tasks.replay import Journalled
from everstep.tasks.task import Task
from everstep.types import MISSING, Command
from everstep_savers.checkpoint import CheckpointTuple, Claim, Loaded, NewCheckpoint, PendingWrite, TaskWrites
from everstep_savers.ids import new_run_id


@dataclass(slots=True)
class Start:
    """Where a run stands when its loop begins.

    Attributes:
        checkpoint_id: The checkpoint its first superstep starts from.
        last_stop: The newest channel version when the run last stopped at a breakpoint; None for none.
        point: The checkpoint at which the run begins, for those who read checkpoints.
    """

    channels: Channels
    scope: RunScope
    at: At
    lineage: Lineage
    tasks: list[Task]
    checkpoint_id: str | None = None
    journal: Journal | None = None
    last_stop: Any = None
    is_resumed: bool = False
    point: Point | None = None


async def start_run(request: RunRequest) -> Start:
    """Load, decide and claim.

    Raises:
        ConfigError: The request cannot be run; `EmptyInputError` if there is nothing to continue.
        UnknownInterruptError: The answer belongs to no open question.
        ThreadConflict: Another run moved the thread meanwhile.
    """
    loaded, entry = await _load(request)
    if loaded.saved is not None and (saved := read_with_aliases(request.graph, loaded.saved)) is not loaded.saved:
        loaded = replace(loaded, saved=saved)
    if isinstance(entry, Fresh):
        return await _start_fresh(request, loaded, entry)
    assert loaded.saved is not None  # without a checkpoint every entry is Fresh
    refuse_missing(request.graph, loaded.saved, request.config.thread_id)
    if isinstance(entry, Fork):
        return await _start_fork(request, loaded, loaded.saved, entry)
    return await _start_resumed(request, loaded, loaded.saved, entry)


async def _load(request: RunRequest) -> tuple[Loaded, Entry]:
    config = request.config
    if request.parent is not None:
        return await load_nested(request, request.parent)
    if request.saver is None:
        return Loaded(None), choose_entry(request, Loaded(None))
    if config.thread_id is None:
        raise ConfigError(
            'a graph with a saver needs a thread_id: pass {"configurable": {"thread_id": "..."}} as the config, or '
            "compile the graph without a checkpointer"
        )
    loaded = await request.saver.aload(config.saved(config.checkpoint_id))
    return loaded, choose_entry(request, loaded)


def _begin(request: RunRequest, loaded: Loaded, step: int, first_counted: int) -> Start:
    """A start with the channels as loaded; `first_counted` is the first step the recursion limit counts."""
    config, saver = request.config, request.saver
    channels = Channels(
        request.graph.channels,
        loaded.saved.checkpoint if loaded.saved else None,
        newest=loaded.newest_version,
        next_version=saver.get_next_version if saver is not None else None,
    )
    queue = _queue_of(request)
    nesting = nesting_of(request, queue)
    scope = _scope_of(request, channels)
    if loaded.saved is not None:
        scope.started_from = loaded.saved.checkpoint["id"]
    scope.nesting = nesting
    metadata = users_metadata(config.metadata)
    if config.run_id is not None:
        metadata["run_id"] = config.run_id
    if (caller := caller_of(request)) is not None:
        metadata["caller"] = caller
    head = loaded.thread.head if loaded.thread is not None and request.parent is None else None
    whole = saver is not None and saver.wants_whole
    lineage = Lineage(config.checkpoint_ns, metadata, whole, head, nesting.parents)
    # Without a saver the namespace and the step tell the tasks' ids apart.
    at = At(f"{config.checkpoint_ns}/{step}", config.checkpoint_ns, step, first_counted + config.recursion_limit - 1)
    start = Start(channels, scope, at, lineage, [])
    if queue is not None:
        queue.rejected = scope.rejected
        start.journal = Journal(queue, config.checkpoint_ns, is_root=request.parent is None)
        start.journal.untracked = request.graph.untracked
        if queue.durability == "exit":
            start.journal.start = loaded.saved
        start.journal.lists = StoredLists(queue.saver.codec, loaded, verify=request.debug)
        scope.calls = CallLog(CallJournal(start.journal))
    return start


def _queue_of(request: RunRequest) -> CommitQueue | None:
    if request.saver is None:
        return None
    if request.parent is not None:
        nesting: Nesting = request.parent.run.nesting
        return nesting.queue
    assert request.config.thread_id is not None  # _load has checked
    return CommitQueue(request.saver, request.config.thread_id, request.durability)


def _scope_of(request: RunRequest, channels: Channels) -> RunScope:
    scope = RunScope(request.config, channels, request.graph.name)
    scope.context, scope.store, scope.durable = request.context, request.store, request.saver is not None
    scope.cache, scope.managed = request.cache, request.graph.managed
    scope.verifies, scope.server_info, scope.drains = request.debug, request.server_info, request.on_error == "drain"
    if request.control is not None:
        scope.control = request.control
    if request.parent is not None:
        scope_inside(scope, request, request.parent)
    return scope


async def _start_fresh(request: RunRequest, loaded: Loaded, entry: Fresh) -> Start:
    graph, saved = request.graph, loaded.saved
    step = saved.metadata.get("step", -1) + 1 if saved else -1
    start = _begin(request, loaded, step + 1, step + (2 if START in graph.nodes else 1))
    if isinstance(entry.input, Command):
        writes = command_writes(request, entry.input)
        if saved is None and START in graph.nodes:
            writes += input_writes(graph, {})  # a thread begins at the start, wherever else the command goes
    else:
        writes = input_writes(graph, entry.input)
    if saved is not None:
        apply_run_writes(graph, start.channels, saved.pending_writes or ())
    waiting = _waiting(request, start, saved) if saved else []
    superseded = superseded_questions(waiting, request)
    if superseded:
        metadata = {**start.lineage.metadata, "superseded": superseded}
        lineage = replace(start.lineage, metadata=metadata)
    else:
        lineage = start.lineage
    updated = apply_writes(graph, start.channels, [*discarded(waiting), RunWrites(INPUT, writes)])
    if start.journal is not None:
        new = make_checkpoint(
            start.channels,
            lineage,
            parent_id=saved.checkpoint["id"] if saved else None,
            source="input",
            step=step,
            updated=updated,
        )
        await _claim(request, start, loaded, new, fresh=entry)
    start.tasks = plan(graph, start.channels, start.at, updated)
    return start


def _waiting(request: RunRequest, start: Start, saved: CheckpointTuple) -> list[Task]:
    """The tasks that wait at the checkpoint, with what is stored of them."""
    step = saved.metadata.get("step", -1) + 1
    at = At(origin_of(saved.checkpoint["id"], saved.metadata), request.config.checkpoint_ns, step, step)
    tasks = plan(request.graph, start.channels, at)
    restore_tasks(tasks, saved.pending_writes or ())
    return tasks


async def _start_fork(request: RunRequest, loaded: Loaded, saved: CheckpointTuple, fork: Fork) -> Start:
    """Replay from an earlier checkpoint, or answer a question that was asked there, on a branch."""
    graph, step, resume = request.graph, saved.metadata.get("step", -1) + 1, fork.resume
    start = _begin(request, loaded, step + 1, step + 1)
    start.is_resumed = start.scope.has_parted = True
    pending = list(saved.pending_writes or ()) if resume.answer is MISSING else await _whole_step(request, saved)
    origin = origin_of(saved.checkpoint["id"], saved.metadata)
    start.at = start.at._replace(origin=origin)
    apply_run_writes(graph, start.channels, pending)
    if resume.command is not None:
        apply_writes(graph, start.channels, [RunWrites(INPUT, command_writes(request, resume.command))])
    start.last_stop = start.channels.newest
    start.tasks = plan(graph, start.channels, start.at)
    kept = fork.kept
    if resume.answer is not MISSING:
        kept = answer_again(resume.answer, start.tasks, pending)
    elif kept is not None:
        restore_tasks(start.tasks, pending, start.scope.answers)
        reopen(start.tasks, kept.reopened)
    continues = () if kept is None else ((saved.checkpoint["id"], kept.answered), *continues_of(saved.metadata))
    new = make_checkpoint(
        start.channels,
        _with_continues(start.lineage, continues),
        parent_id=saved.checkpoint["id"],
        source="fork",
        step=step,
        updated=None,
        origin=origin,
    )
    reask = kept is None or (request.parent is not None and request.parent.run.nesting.reask)
    reopened = None if kept is None else kept.reopened
    start.scope.nesting = replace(
        start.scope.nesting, may_continue=True, reask=reask, continues=continues, reopened=reopened
    )
    at = (request.config.checkpoint_ns, new.checkpoint["id"])
    writes = kept_writes(*at, start.tasks)
    if kept is not None:
        writes += kept_calls(at, _restore_calls_before(start, pending, kept.answered))
        if reask:
            ask_again(start.tasks)
    await _claim(request, start, loaded, new, writes=writes)
    start.at = start.at._replace(origin=origin)
    return start


async def _whole_step(request: RunRequest, saved: CheckpointTuple) -> list[PendingWrite]:
    """What is stored of the tasks of a checkpoint, results included that went along with the next one.

    What has finished beside a question is not run again when that is answered anew; which of them ended the step is
    chance.
    """
    assert request.saver is not None  # whoever forks has a saver
    async for listed in request.saver.alist(saved.config, limit=1):
        return list(listed.pending_writes or ())
    return list(saved.pending_writes or ())


def _with_continues(lineage: Lineage, continues: Continues) -> Lineage:
    """Tells in the first checkpoint of a branch from where it goes on, and what is answered anew there."""
    if not continues:
        return lineage
    told = [[checkpoint_id, sorted(answered)] for checkpoint_id, answered in continues]
    return replace(lineage, metadata={**lineage.metadata, "continues": told})


async def _start_resumed(request: RunRequest, loaded: Loaded, saved: CheckpointTuple, resume: Resume) -> Start:
    graph = request.graph
    step = saved.metadata.get("step", -1) + 1
    start = _begin(request, loaded, step, step)
    start.is_resumed = True
    start.checkpoint_id = saved.checkpoint["id"]
    start.point = point_of(saved)
    start.at = start.at._replace(origin=origin_of(saved.checkpoint["id"], saved.metadata))
    pending = list(saved.pending_writes or ())
    apply_run_writes(graph, start.channels, pending)
    writes: list[TaskWrites] = []
    if resume.command is not None:
        sent = command_writes(request, resume.command)
        apply_writes(graph, start.channels, [RunWrites(INPUT, sent)])
        writes.append(TaskWrites(request.config.checkpoint_ns, start.checkpoint_id, run_writes_id(pending), sent))
    start.tasks = plan(graph, start.channels, start.at)
    if not start.tasks and not writes and request.parent is None and resume.answer is MISSING:
        await _settle(request, start, loaded)
    if any(task.name == START for task in start.tasks):
        start.at = start.at._replace(stop=start.at.stop + 1)  # the start is no superstep that counts
    restore_tasks(start.tasks, pending, start.scope.answers)
    # A command counts as a stop: whoever gives it knows where the thread stands.
    if resume.command is not None or stopped_here(saved, start.tasks):
        start.last_stop = start.channels.newest
    reask = resume.answer is MISSING if request.parent is None else request.parent.run.nesting.reask
    continues = continues_of(saved.metadata)
    start.scope.nesting = replace(start.scope.nesting, may_continue=True, reask=reask, continues=continues)
    if start.scope.calls is not None:
        start.scope.calls.note(*journalled_calls(pending))
    if reask:
        ask_again(start.tasks)
    elif request.parent is None:
        binding = await bind_or_refuse(request, saved, resume.answer, start.tasks)
        if binding is None:
            start.tasks, writes = [], []  # it repeats what was accepted: nothing runs
        else:
            writes += accepted_writes(request, start.checkpoint_id, binding)
    if start.tasks or writes:
        await _claim(request, start, loaded, None, writes=writes)
    else:
        start.journal = None  # nothing will happen that would have to be stored
    return start


def _restore_calls_before(
    start: Start, pending: list[PendingWrite], answered: frozenset[str]
) -> list[tuple[CallTask, Journalled]]:
    """Restore the `@task` calls that were made before questions were answered which are now answered anew."""

    def limit(task: Task) -> int:
        return len({*start.scope.answers, *task.answers} - answered)

    calls = calls_of(start.tasks, journalled_calls(pending), limit)
    if start.scope.calls is not None:
        start.scope.calls.note(*(call for _, call in calls))
    return calls


async def _settle(request: RunRequest, start: Start, loaded: Loaded) -> None:
    """Tell that a thread with nothing left to do is done, if its last run could not."""
    check_joins(request.graph, start.channels)
    if loaded.thread is not None and loaded.thread.status not in ("done", "interrupted"):
        await _claim(request, start, loaded, None)
        assert start.journal is not None
        await start.journal.leave("done")


async def _claim(
    request: RunRequest,
    start: Start,
    loaded: Loaded,
    new: NewCheckpoint | None,
    *,
    writes: list[TaskWrites] | None = None,
    fresh: Fresh | None = None,
) -> None:
    assert start.journal is not None
    if new is not None:
        start.checkpoint_id = new.checkpoint["id"]
        start.scope.first_made = start.checkpoint_id
        start.point = Point(start.checkpoint_id, new.parent_id, new.metadata)
        start.at = start.at._replace(origin=start.checkpoint_id)
    start.journal.checkpoint_id = start.checkpoint_id or ""
    if request.parent is not None:
        if new is not None:
            await start.journal.first(new, writes or ())
        return
    seen = loaded.thread
    if fresh is not None and fresh.start is not None:
        point = StartingPoint.of(fresh.start)
    elif new is not None:
        point = StartingPoint(new.checkpoint["id"])
    else:
        assert request.saver is not None
        point = await starting_point_of(request.saver, loaded, request.config.thread_id or "")
    start.scope.branch, start.scope.skipped = point.id, point.skipped
    claim = Claim(
        seen=seen,
        run_id=request.config.run_id or new_run_id(),
        graph=request.graph.name,
        attempt=seen.attempt + 1 if seen is not None and seen.status == "running" else 1,
        input=None if fresh is None else fresh.input,
        has_input=fresh is not None and request.durability == "exit",
        starting_point=point.text,
        is_from_past=loaded.is_past,
    )
    await start.journal.begin(claim, new, writes or ())


def command_writes(request: RunRequest, command: Command[Any]) -> list[tuple[str, Any]]:
    """The writes of a command given as input."""
    write = request.graph.write_command
    if write is None:
        raise ConfigError(
            "this graph takes no Command with update or goto as input; it has no keys or nodes to write them to"
        )
    return list(write(command))

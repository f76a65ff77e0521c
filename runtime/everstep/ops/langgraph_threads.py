"""Threads of LangGraph's made into threads of ours.

Pure. Checkpoints keep their ids, order, parents and values. What differs between the two engines is mapped: versions
become numbers in the same order; tasks get the ids that our planning gives the same node at the same checkpoint, so
that finished ones do not run again; with them the namespaces of subgraphs and the ids of open questions change. A list
that grows is stored as what was added.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from xxhash import xxh3_128_hexdigest

from everstep.constants import (
    BRANCH_PREFIX,
    DEFAULT_HANDLER,
    HANDLER_PREFIX,
    NS_END,
    NS_SEP,
    NULL_TASK_ID,
    PULL,
    PUSH,
    START,
    TASKS,
)
from everstep.ops.langgraph_calls import (
    Caller,
    Calls,
    NotImportableError,
    TheirCall,
    is_call,
    main_path,
    their_question,
)
from everstep.ops.langgraph_checks import check_complete, check_lineage, reading
from everstep.ops.langgraph_deltas import delta_channels, with_logs
from everstep.ops.langgraph_rows import TheirCheckpoint, TheirThread, TheirWrite
from everstep.pregel.growth import StoredLists
from everstep.tasks.handlers import HANDLER
from everstep.tasks.task import Answer, Path, TaskIds
from everstep.types import MISSING, Interrupt, Send
from everstep_savers.checkpoint import (
    CHECKPOINT_FORMAT,
    ERROR,
    INTERRUPT,
    RESUME,
    SCHEDULED,
    WRITES_IDX_MAP,
    Checkpoint,
    Loaded,
    NewCheckpoint,
    Status,
    TaskWrites,
    Version,
)
from everstep_savers.codec import Codec
from everstep_savers.errors import CodecError

# Namespace and checkpoint id.
Place = tuple[str, str]

# The oldest format whose checkpoints hold everything that belongs to them.
_OLDEST_FORMAT = 4
# Entries of "versions seen" that are no nodes.
_NO_NODES = ("__input__", "__interrupt__")
# What the names of channels begin with whose values live for a step or two: triggers and joins.
_TRANSIENT = (START, TASKS, BRANCH_PREFIX, "join:")
# What the paths of updates from outside begin with, which are no tasks; what they wrote is in the checkpoint they made.
_UPDATE = f"~{INTERRUPT}, "
# What the path of an error handler has after that of the failed task, and where LangGraph says that one was called.
_HANDLED, _HANDED_OVER = ", node_error_handler, ", "__error_source_node__"
# The task id of writes that came with an answer.
_RUN_WRITES = f"{NULL_TASK_ID[:-12]}{1:012}"


@dataclass(frozen=True, slots=True)
class OurThread:
    """A thread ready to be stored.

    Attributes:
        questions: The ids of open questions, LangGraph's -> ours.
        asked_again: Ids of LangGraph's for questions that are open no more: the thread asks them anew when it goes on.
    """

    thread_id: str
    checkpoints: Sequence[NewCheckpoint]
    writes: Sequence[TaskWrites]
    status: Status
    error: str | None = None
    questions: Mapping[str, str] = field(default_factory=dict)
    asked_again: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class _Task:
    """A task of LangGraph's at one checkpoint.

    Attributes:
        calls: The `@task` calls in it, if it has not finished.
        is_handled: Its failure is its error handler's business, which has not finished.
    """

    theirs: str
    ours: str
    name: str
    path: Path
    writes: Sequence[tuple[str, Any]]
    calls: Calls
    is_handled: bool = False

    def of(self, channel: str) -> Any:
        """What was written to a channel, None if nothing."""
        return next((value for name, value in self.writes if name == channel), None)

    @property
    def answers(self) -> list[Any]:
        """The answers it was given, in the order of its questions."""
        return list(self.of(RESUME) or ())

    @property
    def is_finished(self) -> bool:
        return self.is_handled or any(channel not in WRITES_IDX_MAP for channel, _ in self.writes)

    @property
    def is_asking(self) -> bool:
        """Whether its question is open. One that failed after an answer has an old question beside the error."""
        failed_later = self.of(ERROR) is not None and bool(self.answers)
        return self.of(INTERRUPT) is not None and not self.is_finished and not failed_later


def converted(thread: TheirThread, codec: Codec, names: Sequence[str] = ()) -> OurThread:
    """Make a thread of ours.

    Args:
        codec: Will encode it.
        names: Of `@task`s that may have been called.

    Raises:
        NotImportableError: Something in it has no counterpart.
        CodecError: Something is missing from it, or damaged; names the checkpoint.
    """
    check_lineage({(each.checkpoint_ns, each.checkpoint_id): each.parent_id for each in thread.checkpoints})
    channels = delta_channels(thread)
    thread = with_logs(thread, channels)
    known = {(each.checkpoint_ns, channel) for each in thread.checkpoints for channel in each.values} - channels
    for each in thread.checkpoints:
        check_complete((each.checkpoint_ns, each.checkpoint_id), each.updated, each.values, known)
    return _Conversion(thread, codec, names).result()


class _Conversion:
    def __init__(self, thread: TheirThread, codec: Codec, names: Sequence[str]) -> None:
        self._thread, self._codec, self._names = thread, codec, names
        self._checkpoints: dict[Place, TheirCheckpoint] = {}
        for each in thread.checkpoints:
            if each.format < _OLDEST_FORMAT:
                raise NotImportableError(
                    f"checkpoint {each.checkpoint_id} has LangGraph's format {each.format}; {_OLDEST_FORMAT} is the "
                    "oldest that can be imported"
                )
            self._checkpoints[each.checkpoint_ns, each.checkpoint_id] = each
        self._ranks = _ranks(thread.checkpoints)
        self._namespaces = {"": ""}
        self._tasks: dict[Place, list[_Task]] = {}
        self._questions: dict[str, str] = {}
        # LangGraph's ids of tasks by their paths.
        self._ids: dict[tuple[Place, str], str] = {}
        # What each checkpoint has stored of its lists, and the versions that are stored by now.
        self._lists: dict[Place, StoredLists] = {}
        self._stored: set[tuple[str, str, Version]] = set()
        root = [each.checkpoint_id for each in thread.checkpoints if each.checkpoint_ns == ""]
        if not root:
            raise NotImportableError("it has no checkpoint of the graph itself")
        self._head = max(root)
        self._parents = {(each.checkpoint_ns, each.parent_id) for each in thread.checkpoints}

    def result(self) -> OurThread:
        written: dict[Place, list[TheirWrite]] = defaultdict(list)
        for write in self._thread.writes:
            written[write.checkpoint_ns, write.checkpoint_id].append(write)
        # What contains a namespace is its prefix: it comes first.
        for place in sorted(self._checkpoints, key=lambda place: (len(place[0]), place)):
            if place[0] not in self._namespaces:
                self._namespaces[place[0]] = self._our_namespace(self._checkpoints[place])
            with reading(f"checkpoint {place[1]!r}"):
                self._tasks[place] = list(self._tasks_at(place, written.get(place, ())))
        for place in reversed(self._tasks):  # subgraphs first
            for task in self._tasks[place]:
                self._note_question(place[0], task)
        at_head = self._tasks["", self._head]
        failed = next((task.of(ERROR) for task in at_head if task.of(ERROR) is not None and not task.is_finished), None)
        return OurThread(
            self._thread.thread_id,
            [self._checkpoint(each) for each in self._thread.checkpoints],
            [*self._writes(written), *self._stops()],
            self._status(failed),
            None if failed is None else f"{type(failed).__name__}: {failed}",
            dict(self._questions),
            [each for tasks in self._tasks.values() for task in tasks for each in task.calls.asked_again],
        )

    def _our_namespace(self, checkpoint: TheirCheckpoint) -> str:
        above, _, level = checkpoint.checkpoint_ns.rpartition(NS_SEP)
        container = self._namespaces.get(above, above)
        name, colon, their_task = level.partition(NS_END)
        if colon:
            known = (
                task.ours
                for place in self._tasks
                if place[0] == above
                for task in self._tasks[place]
                if task.theirs == their_task
            )
            parent = str(checkpoint.metadata.get("parents", {}).get(above, ""))
            ours = next(known, None) or TaskIds(parent, container).id_of(name, (PULL, name))
            level = f"{name}{NS_END}{ours}"
        return f"{container}{NS_SEP}{level}" if container else level

    def _tasks_at(self, place: Place, writes: Sequence[TheirWrite]) -> Iterator[_Task]:
        by_task: dict[tuple[str, str], list[tuple[str, Any]]] = defaultdict(list)
        for write in writes:
            if write.task_id != NULL_TASK_ID and not write.task_path.startswith(_UPDATE):
                by_task[write.task_id, write.task_path].append((write.channel, write.value))
        calls: dict[str, list[TheirCall]] = defaultdict(list)
        if place == ("", self._head) or place not in self._parents:  # else their results are in what came of them
            for (task_id, path), own in by_task.items():
                if is_call(path):
                    calls[main_path(path)].append(TheirCall.of(task_id, path, own))
        for path in calls:
            if not any(known == path for _, known in by_task):
                by_task["", path] = []  # it was killed before it had anything to store itself
        self._ids |= {(place, path): task_id for task_id, path in by_task}
        own_path = {path: own for (_, path), own in by_task.items()}
        if len(own_path) < len(by_task):
            raise CodecError("two of its tasks have the same path")
        results = {path.partition(_HANDLED)[0]: own for path, own in own_path.items() if _is_result(path, own)}
        for (task_id, path), own in by_task.items():
            if not is_call(path) and not _is_result(path, own):
                # A task whose handler has finished has its result: which of its handlers it was is not told.
                yield self._task(place, task_id, path, results.get(path, own), calls.get(path, ()))

    def _task(
        self, place: Place, task_id: str, path_text: str, writes: Sequence[tuple[str, Any]], calls: Sequence[TheirCall]
    ) -> _Task:
        name, path = self._handler_of(place, task_id, path_text, writes) or self._node_of(place, task_id, path_text)
        container = self._namespaces[place[0]]
        ours = TaskIds(place[1], container).id_of(name, path)
        is_handled = any(channel == _HANDED_OVER for channel, _ in writes)
        if is_handled:
            handler = f"{HANDLER_PREFIX}{name}"
            writes = [*((channel, value) for channel, value in writes if channel == ERROR), (SCHEDULED, handler)]
        task = _Task(task_id, ours, name, path, writes, Calls(self._names), is_handled)
        if calls and not task.is_finished:
            their_ns, our_ns = self._their_ns(place, name, task_id, path_text), _inner(container, name, ours)
            task.calls.add(Caller(their_ns, path_text, ours, our_ns, path), calls, len(task.answers))
        return task

    def _handler_of(
        self, place: Place, task_id: str, path_text: str, writes: Sequence[tuple[str, Any]]
    ) -> tuple[str, Path] | None:
        """Name and path of an error handler that has not finished; None if this is none."""
        failed, mark, _ = path_text.partition(_HANDLED)
        if not mark:
            return None
        name, path = self._node_of(place, task_id, failed)
        own = f"{HANDLER_PREFIX}{name}"
        asked = {question.id for channel, value in writes if channel == INTERRUPT for question in value}
        number = sum(len(value) for channel, value in writes if channel == RESUME)
        # Whether it is the node's own, the id of its question tells; else that is the likelier.
        shared = their_question(self._their_ns(place, DEFAULT_HANDLER, task_id, path_text), number)
        return DEFAULT_HANDLER if shared in asked else own, (*path, HANDLER)

    def _their_ns(self, place: Place, name: str, task_id: str, path_text: str) -> str:
        """The namespace of a task in LangGraph; that of an error handler is within the failed task's."""
        failed, mark, _ = path_text.partition(_HANDLED)
        container = place[0]
        if mark:
            container = _inner(container, self._node_of(place, task_id, failed)[0], self._ids.get((place, failed), ""))
        return _inner(container, name, task_id)

    def _node_of(self, place: Place, task_id: str, path_text: str) -> tuple[str, Path]:
        kind, _, rest = path_text.removeprefix("~").partition(", ")
        if kind == PULL and rest:
            return rest, (PULL, rest)
        number = rest.partition(",")[0]
        sends = self._checkpoints[place].values.get(TASKS) or ()
        if kind == PUSH and number.isdigit() and int(number) < len(sends):
            send: Send = sends[int(number)]
            return send.node, (PUSH, int(number))
        raise NotImportableError(
            f"the task {task_id} at checkpoint {place[1]} has the path {path_text!r}, which tells no node"
        )

    def _note_question(self, checkpoint_ns: str, task: _Task) -> None:
        """Give a task's open question our id, unless it is one of its subgraph's, which have theirs by now."""
        self._questions |= task.calls.renamed
        if not task.is_asking:
            return
        for question in task.of(INTERRUPT):
            if question.id not in self._questions and question.id not in task.calls.asked_again:
                self._questions[question.id] = self._our_question(checkpoint_ns, task, len(task.answers))

    def _our_question(self, checkpoint_ns: str, task: _Task, number: int) -> str:
        place = _inner(self._namespaces[checkpoint_ns], task.name, task.ours)
        return xxh3_128_hexdigest((f"{place}#{number}" if number else place).encode())

    def _checkpoint(self, theirs: TheirCheckpoint) -> NewCheckpoint:
        versions = self._ranked(theirs.versions)
        checkpoint = Checkpoint(
            v=CHECKPOINT_FORMAT,
            id=theirs.checkpoint_id,
            ts=theirs.ts,
            channel_values=dict(theirs.values),
            channel_versions=versions,
            versions_seen={node: self._ranked(seen) for node, seen in theirs.seen.items() if node not in _NO_NODES},
            updated_channels=theirs.updated,
        )
        metadata: Any = dict(theirs.metadata)
        if isinstance(metadata.get("parents"), dict):
            metadata["parents"] = {self._namespaces.get(ns, ns): each for ns, each in metadata["parents"].items()}
        ns = self._namespaces[theirs.checkpoint_ns]
        changed = {
            channel: versions[channel]
            for channel, version in theirs.versions.items()
            if (ns, channel, version) not in self._stored
        }
        self._stored |= {(ns, channel, version) for channel, version in theirs.versions.items()}
        transient = frozenset(channel for channel in theirs.values if channel.startswith(_TRANSIENT))
        new = NewCheckpoint(ns, checkpoint, metadata, theirs.parent_id, changed, transient)
        lists = self._lists.get((theirs.checkpoint_ns, theirs.parent_id or ""))
        lists = StoredLists(self._codec, Loaded(None)) if lists is None else lists.copy()
        self._lists[theirs.checkpoint_ns, theirs.checkpoint_id] = lists
        return lists.with_bases(new)

    def _ranked(self, versions: Mapping[str, Version]) -> dict[str, Version]:
        return {channel: self._ranks[version] for channel, version in versions.items()}

    def _writes(self, written: Mapping[Place, Sequence[TheirWrite]]) -> Iterator[TaskWrites]:
        for place, tasks in self._tasks.items():
            ns = self._namespaces[place[0]]
            for task in tasks:
                if writes := list(self._task_writes(place[0], task)):
                    yield TaskWrites(ns, place[1], task.ours, writes, "~" + ", ".join(map(str, task.path)), task.name)
                yield from task.calls.at(ns, place[1])
            own = [
                (write.channel, write.value)
                for write in written.get(place, ())
                if write.task_id == NULL_TASK_ID and write.channel not in WRITES_IDX_MAP
            ]
            if own:
                yield TaskWrites(ns, place[1], _RUN_WRITES, own)

    def _task_writes(self, checkpoint_ns: str, task: _Task) -> Iterator[tuple[str, Any]]:
        questions = [*self._own_questions(task), *task.calls.questions]
        if questions:
            yield INTERRUPT, questions
        # What was asked before is not kept by LangGraph.
        answers = [
            Answer(self._our_question(checkpoint_ns, task, number), given, MISSING)
            for number, given in enumerate(task.answers)
        ]
        if answers or task.calls.answers:
            yield RESUME, [*answers, *task.calls.answers]
        others = (INTERRUPT, RESUME) if task.is_handled else (INTERRUPT, RESUME, SCHEDULED)
        yield from (write for write in task.writes if write[0] not in others)

    def _own_questions(self, task: _Task) -> list[Interrupt]:
        """The open questions of a task but those of its calls."""
        if not task.is_asking:
            return []
        others = {*task.calls.renamed, *task.calls.asked_again}
        return [self._renamed(each) for each in task.of(INTERRUPT) if each.id not in others]

    def _renamed(self, question: Interrupt) -> Interrupt:
        return Interrupt(question.value, self._questions.get(question.id, question.id), question.response_schema)

    def _stops(self) -> Iterator[TaskWrites]:
        """Marks of where the thread stands: LangGraph goes on from there without stopping at a breakpoint again."""
        newest: dict[str, TheirCheckpoint] = {}
        for each in self._thread.checkpoints:
            if each.checkpoint_ns == "" or each.metadata.get("parents", {}).get("") == self._head:
                newest[each.checkpoint_ns] = each
        for each in newest.values():
            tasks = self._tasks[each.checkpoint_ns, each.checkpoint_id]
            if _is_pending(each) and not any(task.is_asking or task.of(ERROR) is not None for task in tasks):
                ns = self._namespaces[each.checkpoint_ns]
                yield TaskWrites(ns, each.checkpoint_id, NULL_TASK_ID, [(INTERRUPT, [])])

    def _status(self, failed: Any) -> Status:
        head = self._checkpoints["", self._head]
        if any(task.is_asking or task.calls.questions for task in self._tasks["", self._head]):
            return "interrupted"
        if failed is not None:
            return "failed"
        return "interrupted" if _is_pending(head) else "done"


def _inner(checkpoint_ns: str, name: str, task_id: str) -> str:
    """The namespace of a task."""
    own = f"{name}{NS_END}{task_id}"
    return f"{checkpoint_ns}{NS_SEP}{own}" if checkpoint_ns else own


def _is_result(path: str, writes: Sequence[tuple[str, Any]]) -> bool:
    """Whether this is an error handler's result."""
    return _HANDLED in path and not is_call(path) and any(channel not in WRITES_IDX_MAP for channel, _ in writes)


def _ranks(checkpoints: Sequence[TheirCheckpoint]) -> dict[Version, int]:
    """A number for every version, in their order; a version tells its branch by what comes after the number."""
    versions: set[Version] = set()
    for each in checkpoints:
        versions.update(each.versions.values())
        for seen in each.seen.values():
            versions.update(seen.values())
    ordered = sorted(versions, key=lambda version: (int(str(version).partition(".")[0]), str(version)))
    return {version: rank for rank, version in enumerate(ordered, 1)}


def _is_pending(checkpoint: TheirCheckpoint) -> bool:
    """Whether something waits to be run, as far as the channels tell."""
    values = checkpoint.values
    if START in values or values.get(TASKS):
        return True
    return any(key.startswith(BRANCH_PREFIX) and not _is_deferred(value) for key, value in values.items())


def _is_deferred(value: Any) -> bool:
    """Whether a trigger waits for everything else: then it holds a value, and that nothing has finished."""
    return isinstance(value, list) and len(value) == 2 and value[1] is False

"""One thread as it is kept in memory: its row, its rows of the other tables by key, and what changes them.

The counterpart of the SQL statements: it lets a commit through, or removes rows, by the same rules. Whoever calls
these functions has found out that a commit is admitted, and refuses it otherwise.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from everstep_savers.checkpoint import INTERRUPT, WRITES_IDX_MAP, Status, TaskPlace
from everstep_savers.codec import Encoded
from everstep_savers.decoding import version_keys
from everstep_savers.delta import ValueKey, needed_values
from everstep_savers.fencing import ThreadState, value_conflict
from everstep_savers.metadata import with_descent
from everstep_savers.parts import StoredValue
from everstep_savers.retention import Lines, Outline, OutlineRow, Policy, outline, removable
from everstep_savers.rows import CheckpointRow, EncodedClaim, EncodedCommit, ThreadRow, WriteRow

_QUESTION = WRITES_IDX_MAP[INTERRUPT]


@dataclass(slots=True)
class MemoryThread:
    """One thread: its row, and its rows of the other tables by key."""

    thread_id: str
    created_at: int
    updated_at: int
    token: int = 0
    generation: int = 0
    is_deleted: bool = False
    head: str | None = None
    status: Status = "done"
    newest_version: int = 0
    error: str | None = None
    run_id: str | None = None
    graph: str | None = None
    attempt: int = 1
    input: Encoded | None = None
    starting_point: str | None = None
    removals: int = 0
    is_owned: bool = True
    namespaces: dict[str, MemoryNamespace] = field(default_factory=dict)

    def row(self) -> ThreadRow:
        return ThreadRow(
            thread_id=self.thread_id,
            head=self.head,
            status=self.status,
            token=self.token,
            run_id=self.run_id,
            graph=self.graph,
            attempt=self.attempt,
            error=self.error,
            input_tag=self.input[0] if self.input else None,
            input_data=self.input[1] if self.input else None,
            created_at=self.created_at,
            updated_at=self.updated_at,
            starting_point=self.starting_point,
            removals=self.removals,
        )

    def state(self) -> ThreadState:
        return ThreadState(self.token, self.head, self.generation, self.is_deleted, self.is_owned)

    def is_as_seen(self, claim: EncodedClaim) -> bool:
        return (self.token, self.head) == (claim.seen_token, claim.seen_head) and (
            claim.seen_removals is None or claim.seen_removals == self.removals
        )


@dataclass(slots=True)
class MemoryNamespace:
    """The rows of one checkpoint namespace."""

    checkpoints: dict[str, CheckpointRow] = field(default_factory=dict)
    newest: str | None = None
    children: dict[str, list[str]] = field(default_factory=dict)
    values: dict[ValueKey, StoredValue] = field(default_factory=dict)
    writes: dict[str, dict[tuple[str, int], WriteRow]] = field(default_factory=dict)

    def find(self, channel: str, version: str) -> StoredValue | None:
        return self.values.get((channel, version))


def is_admitted(commit: EncodedCommit, thread: MemoryThread | None) -> bool:
    claim = commit.claim
    if claim is None:
        return not commit.is_fenced or (thread is not None and not thread.is_deleted and thread.token == commit.token)
    if thread is None or thread.is_deleted:
        return claim.seen_token is None
    return thread.is_as_seen(claim)


def check_values(thread: MemoryThread, commit: EncodedCommit) -> None:
    """Refuse a second, different value under one channel version: other checkpoints may share the first."""
    for row in commit.values:
        namespace = thread.namespaces.get(row.checkpoint_ns)
        stored = namespace.values.get((row.channel, row.version)) if namespace else None
        if stored is not None and stored != row[3:]:
            raise value_conflict(commit.thread_id)


def change_row(thread: MemoryThread, commit: EncodedCommit) -> None:
    if thread.is_deleted:
        thread.is_deleted, thread.created_at = False, commit.at
    head = commit.head
    if head is not None:
        if commit.is_fenced or thread.head is None or thread.head < head:
            thread.head = head
        thread.input = None
    if (claim := commit.claim) is not None:
        thread.token += 1
        thread.is_owned = True
        thread.run_id, thread.graph, thread.attempt = claim.run_id, claim.graph, claim.attempt
        thread.starting_point = claim.starting_point
        thread.input = None if claim.input_tag is None else (claim.input_tag, claim.input_data or b"")
    if commit.status is not None:
        thread.status, thread.error = commit.status, commit.error
    if commit.newest_version > thread.newest_version:
        thread.newest_version = commit.newest_version
    thread.updated_at = commit.at


def add_rows(thread: MemoryThread, commit: EncodedCommit) -> None:
    for row in commit.checkpoints:
        namespace = namespace_of(thread, row.checkpoint_ns)
        checkpoint_id, parent_id = row.checkpoint_id, row.parent_id
        if parent_id is not None and checkpoint_id not in namespace.checkpoints:
            namespace.children.setdefault(parent_id, []).append(checkpoint_id)
        namespace.checkpoints[checkpoint_id] = row
        if namespace.newest is None or namespace.newest < checkpoint_id:
            namespace.newest = checkpoint_id
    for _, ns, channel, version, tag, data, base in commit.values:
        namespace_of(thread, ns).values[channel, version] = StoredValue(version, tag, data, base)
    for write in commit.writes:
        kept = namespace_of(thread, write.checkpoint_ns).writes.setdefault(write.checkpoint_id, {})
        if write.idx < 0:
            kept[write.task_id, write.idx] = write
        else:
            kept.setdefault((write.task_id, write.idx), write)


def take_back(thread: MemoryThread, tasks: Iterable[TaskPlace]) -> None:
    """Remove the results of tasks."""
    for task in tasks:
        kept = namespace_of(thread, task.checkpoint_ns).writes.get(task.checkpoint_id, {})
        for task_id, idx in [key for key in kept if key[0] == task.task_id and key[1] >= 0]:
            del kept[task_id, idx]


def namespace_of(thread: MemoryThread, name: str) -> MemoryNamespace:
    namespace = thread.namespaces.get(name)
    if namespace is None:
        namespace = thread.namespaces[name] = MemoryNamespace()
    return namespace


def copy_of(source: MemoryThread, thread_id: str, buried: MemoryThread | None) -> MemoryThread:
    at = time.time_ns() // 1000
    copy = MemoryThread(thread_id, at, at)
    if buried is not None:
        copy.token, copy.generation = buried.token, buried.generation
    copy.head, copy.newest_version, copy.input = source.head, source.newest_version, source.input
    copy.status = "drained" if source.status == "running" else source.status
    copy.graph, copy.error, copy.starting_point = source.graph, source.error, source.starting_point
    for name, kept in source.namespaces.items():
        namespace = namespace_of(copy, name)
        namespace.newest, namespace.values = kept.newest, dict(kept.values)
        namespace.children = {parent: list(ids) for parent, ids in kept.children.items()}
        namespace.checkpoints = {key: row._replace(thread_id=thread_id) for key, row in kept.checkpoints.items()}
        namespace.writes = {
            key: {place: row._replace(thread_id=thread_id) for place, row in rows.items()}
            for key, rows in kept.writes.items()
        }
    return copy


def remove_runs(thread: MemoryThread, runs: set[str]) -> bool:
    """Remove what only these runs made; whether anything was removed and nothing is left."""
    was_theirs = thread.run_id in runs
    doomed = [row for row in rows_of(thread, None) if row.run_id in runs]
    if was_theirs:
        thread.input = thread.starting_point = None
    # A run may have loaded the states of subgraphs, and goes on from them.
    has_loaded = thread.status == "running" and any(row.checkpoint_ns for row in doomed)
    if was_theirs or has_loaded or any(row.checkpoint_ns == "" and row.checkpoint_id == thread.head for row in doomed):
        thread.token += 1
        thread.is_owned = False
    remove(thread, doomed)
    return (was_theirs or bool(doomed)) and not any(rows_of(thread, None))


def remove(thread: MemoryThread, doomed: Iterable[CheckpointRow]) -> None:
    """Remove checkpoints, and what only they used; the head moves back if it is among them."""
    thread.removals += 1
    doomed = list(doomed)
    places = {(row.checkpoint_ns, row.checkpoint_id) for row in doomed}
    for each in Lines(_outlines(thread)).remove(places):
        kept = thread.namespaces[each.checkpoint_ns].checkpoints
        kept[each.checkpoint_id] = kept[each.checkpoint_id]._replace(metadata=with_descent(each.metadata, each.descent))
    for row in doomed:
        namespace = thread.namespaces[row.checkpoint_ns]
        del namespace.checkpoints[row.checkpoint_id]
        namespace.writes.pop(row.checkpoint_id, None)
        if row.parent_id is not None and row.checkpoint_id in namespace.children.get(row.parent_id, ()):
            namespace.children[row.parent_id].remove(row.checkpoint_id)
    for namespace in thread.namespaces.values():
        bases = {key: value.base for key, value in namespace.values.items()}
        used = needed_values((version_keys(row.versions) for row in namespace.checkpoints.values()), bases)
        namespace.values = {key: value for key, value in namespace.values.items() if key in used}
        namespace.newest = max(namespace.checkpoints, default=None)
    root = thread.namespaces.get("")
    if root is not None and thread.head not in root.checkpoints:
        thread.head, thread.starting_point = root.newest, None


def prunable(thread: MemoryThread, policy: Policy) -> list[CheckpointRow]:
    """The checkpoints that are to be pruned."""
    places = removable(_outlines(thread), thread.head, policy)
    return [thread.namespaces[ns].checkpoints[checkpoint_id] for ns, checkpoint_id in places]


def _outlines(thread: MemoryThread) -> list[Outline]:
    return [
        outline(
            OutlineRow(
                row.checkpoint_ns,
                row.checkpoint_id,
                row.parent_id,
                row.created_at,
                row.source,
                row.run_id,
                row.metadata,
                any(
                    idx == _QUESTION
                    for _, idx in thread.namespaces[row.checkpoint_ns].writes.get(row.checkpoint_id, ())
                ),
            )
        )
        for row in rows_of(thread, None)
    ]


def rows_of(thread: MemoryThread, checkpoint_ns: str | None) -> Iterator[CheckpointRow]:
    for name, namespace in thread.namespaces.items():
        if checkpoint_ns is None or name == checkpoint_ns:
            yield from namespace.checkpoints.values()

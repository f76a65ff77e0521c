"""What durability "exit" holds back: of each run one checkpoint, until the root run leaves.

The steps of a run merge into one checkpoint. It is kept apart from the live channels: a barrier that fails leaves
them changed in part, and what is stored is the last step that was taken. A subgraph leaves its own to the root run;
whoever calls it again before that is stored goes on from what it has left. Nothing here stores.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from everstep.constants import NS_SEP
from everstep.pregel.checkpoints import Taken, timestamp
from everstep_savers.addresses import Address
from everstep_savers.checkpoint import (
    WRITES_IDX_MAP,
    CheckpointTuple,
    NewCheckpoint,
    TaskWrites,
    copy_checkpoint,
)


class HeldSteps:
    """The steps of one run, as the one checkpoint that stands for them.

    Attributes:
        parent_id: Of that checkpoint: of the one the run began with, which has merged into it.
    """

    def __init__(self, first: NewCheckpoint) -> None:
        self.parent_id = first.parent_id
        self._first = first
        self._checkpoint = copy_checkpoint(first.checkpoint)
        self._changed = dict(first.changed)
        self._last: Taken | None = None
        self._at = datetime.now(UTC)

    def add(self, taken: Taken) -> None:
        """Merge a step: what it has changed, and nothing else."""
        channels, checkpoint, changed = taken.channels, self._checkpoint, taken.channels.take_changed()
        values, seen = checkpoint["channel_values"], checkpoint["versions_seen"]
        for key in changed:
            values.pop(key, None)
        values |= channels.dump(changed, whole=taken.lineage.whole)
        checkpoint["channel_versions"] |= changed
        self._changed |= changed
        for task in taken.tasks:
            if task.name in channels.seen:
                seen[task.name] = dict(channels.seen[task.name])
        self._last, self._at = taken, datetime.now(UTC)

    def new(self) -> NewCheckpoint:
        """The checkpoint as it is to be stored now."""
        if self._last is None:
            return replace(self._first, checkpoint=self._checkpoint)
        self._checkpoint["id"], self._checkpoint["ts"] = self._last.checkpoint_id, timestamp(self._at)
        self._checkpoint["updated_channels"] = sorted(self._last.updated)
        return replace(self._first, checkpoint=self._checkpoint, metadata=self._last.metadata, changed=self._changed)

    def have_merged(self, checkpoint_id: str | None) -> bool:
        """Is this one of the run's checkpoints, which has merged into a later one?"""
        if self._last is None or checkpoint_id is None:
            return False
        return self._first.checkpoint["id"] <= checkpoint_id < self._last.checkpoint_id


class Held:
    """What the runs of subgraphs have left, in the order in which they left."""

    def __init__(self, thread_id: str) -> None:
        self.checkpoints: list[NewCheckpoint] = []
        self.writes: list[TaskWrites] = []
        self._thread_id = thread_id
        # By namespace and calling task: where the run stands, with whole values. The newest comes last.
        self._left: dict[str, dict[str | None, CheckpointTuple]] = {}

    def take(
        self,
        checkpoint_ns: str,
        start: CheckpointTuple | None,
        new: NewCheckpoint | None,
        writes: Sequence[TaskWrites],
    ) -> None:
        """Take what a run has left.

        Args:
            start: What it went on from.
            new: What stands for its steps; None if it took none.
        """
        self.writes += writes
        if new is not None:
            self.checkpoints.append(new)
            start = _after(start, new, self._thread_id)
        if start is not None:
            left = self._left.setdefault(checkpoint_ns, {})
            caller: Any = start.metadata.get("caller")
            left.pop(caller, None)
            left[caller] = _with_writes(start, writes)

    def __bool__(self) -> bool:
        return bool(self._left)

    def left_by(self, checkpoint_ns: str) -> list[CheckpointTuple]:
        """Where the runs of a subgraph stand that have left, the newest last: one for each task that calls it."""
        return list(self._left.get(checkpoint_ns, {}).values())

    def forget(self, namespaces: set[str]) -> None:
        """Drop what was left by subgraphs at or below these places: nobody will go on from there."""
        self.checkpoints = [one for one in self.checkpoints if not _is_inside(one.checkpoint_ns, namespaces)]
        self.writes = [one for one in self.writes if not _is_inside(one.checkpoint_ns, namespaces)]
        self._left = {ns: left for ns, left in self._left.items() if not _is_inside(ns, namespaces)}

    def rename(self, checkpoint_ns: str, steps: HeldSteps) -> None:
        """Let what was made under checkpoints that have merged into a later one name the parent of that one."""
        self.checkpoints = [_renamed(one, checkpoint_ns, steps) for one in self.checkpoints]


def _after(start: CheckpointTuple | None, new: NewCheckpoint, thread_id: str) -> CheckpointTuple:
    """A checkpoint as a saver would give it back, once it were stored after the one before."""
    own = new.checkpoint["channel_values"]
    values = {**start.checkpoint["channel_values"], **own} if start is not None else dict(own)
    for key in new.changed:
        if key not in own:
            values.pop(key, None)
    checkpoint = copy_checkpoint(new.checkpoint)
    checkpoint["channel_values"] = values
    place = Address(thread_id, new.checkpoint_ns, checkpoint["id"])
    parent = place._replace(checkpoint_id=new.parent_id).config() if new.parent_id is not None else None
    return CheckpointTuple(place.config(), checkpoint, new.metadata, parent)


def _with_writes(saved: CheckpointTuple, writes: Sequence[TaskWrites]) -> CheckpointTuple:
    """A checkpoint with more writes against it; special ones replace what is there."""
    added = [(one.task_id, channel, value) for one in writes for channel, value in one.writes]
    replaced = {(task_id, channel) for task_id, channel, _ in added if channel in WRITES_IDX_MAP}
    kept = [one for one in saved.pending_writes or () if one[:2] not in replaced]
    return saved._replace(pending_writes=kept + added)


def _renamed(one: NewCheckpoint, checkpoint_ns: str, steps: HeldSteps) -> NewCheckpoint:
    parents = dict(one.metadata.get("parents", {}))
    if not steps.have_merged(parents.get(checkpoint_ns)):
        return one
    del parents[checkpoint_ns]
    if steps.parent_id is not None:
        parents[checkpoint_ns] = steps.parent_id
    metadata: Any = {**one.metadata, "parents": parents}
    return replace(one, metadata=metadata)


def _is_inside(checkpoint_ns: str, namespaces: set[str]) -> bool:
    levels = checkpoint_ns.split(NS_SEP)
    return any(NS_SEP.join(levels[:depth]) in namespaces for depth in range(1, len(levels) + 1))

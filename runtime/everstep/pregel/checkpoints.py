"""Checkpoints as the engine makes them from live channels. Pure but for the clock."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, NamedTuple, cast

from everstep.channels.snapshot import Channels
from everstep.tasks.task import Task
from everstep_savers.checkpoint import (
    CHECKPOINT_FORMAT,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    NewCheckpoint,
    PendingWrite,
    TaskWrites,
)
from everstep_savers.ids import new_checkpoint_id
from everstep_savers.metadata import KEPT_ANCESTOR

# What the engine itself tells and reads in the metadata of checkpoints.
_OWN_KEYS = frozenset({"source", "step", "parents", "origin", "continues", "caller", "superseded", KEPT_ANCESTOR})


@dataclass(frozen=True, slots=True)
class Lineage:
    """Where the checkpoints of a run belong.

    Attributes:
        checkpoint_ns: The namespace of the graph.
        metadata: The user's own keys, repeated in every checkpoint's metadata.
        whole: The saver wants all channel values, not only those that changed.
        parents: Namespace -> checkpoint id of each graph that contains this one.
        head: The thread's head when the run began; on a branch the new checkpoints follow it in time too.
    """

    checkpoint_ns: str
    metadata: Mapping[str, Any]
    whole: bool = False
    head: str | None = None
    parents: Mapping[str, str] = field(default_factory=dict)


def users_metadata(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of a config's metadata that are stored with checkpoints: all but those that mean something there."""
    return {key: value for key, value in metadata.items() if key not in _OWN_KEYS}


class Taken(NamedTuple):
    """A superstep that has been taken: what its checkpoint is made of."""

    channels: Channels
    lineage: Lineage
    checkpoint_id: str
    parent_id: str | None
    step: int
    updated: Collection[str]
    tasks: Sequence[Task]

    @property
    def metadata(self) -> CheckpointMetadata:
        """The metadata of its checkpoint."""
        return metadata_of(self.lineage, "loop", self.step)


def next_id(lineage: Lineage, parent_id: str | None) -> str:
    """The id of the next checkpoint: after that of its parent, and of all that contain it."""
    earlier = [one for one in (parent_id, lineage.head, *lineage.parents.values()) if one is not None]
    return new_checkpoint_id(max(earlier, default=None))


def make_checkpoint(
    channels: Channels,
    lineage: Lineage,
    *,
    parent_id: str | None,
    source: str,
    step: int,
    updated: Collection[str] | None,
    origin: str | None = None,
) -> NewCheckpoint:
    """Take a checkpoint of the channels as they are now.

    Args:
        origin: For a fork, the checkpoint whose task ids it keeps.
    """
    metadata = metadata_of(lineage, source, step)
    if origin is not None:
        metadata = cast(CheckpointMetadata, {**metadata, "origin": origin})
    return _checkpoint(channels, lineage, next_id(lineage, parent_id), parent_id, updated, metadata)


def step_checkpoint(taken: Taken, results: Sequence[TaskWrites]) -> NewCheckpoint:
    """Take the checkpoint of a superstep.

    Args:
        results: Writes of its tasks, see `NewCheckpoint`.
    """
    channels, lineage, checkpoint_id, parent_id, _, updated, _ = taken
    return _checkpoint(channels, lineage, checkpoint_id, parent_id, updated, taken.metadata, results)


def _checkpoint(
    channels: Channels,
    lineage: Lineage,
    checkpoint_id: str,
    parent_id: str | None,
    updated: Collection[str] | None,
    metadata: CheckpointMetadata,
    results: Sequence[TaskWrites] = (),
) -> NewCheckpoint:
    changed = channels.take_changed()
    keys = channels.live if lineage.whole else changed.keys() | channels.transient
    values = channels.dump(keys, whole=lineage.whole)
    checkpoint: Checkpoint = {
        "v": CHECKPOINT_FORMAT,
        "id": checkpoint_id,
        "ts": timestamp(datetime.now(UTC)),
        "channel_values": values,
        "channel_versions": channels.versions,
        "versions_seen": channels.seen,
        "updated_channels": None if updated is None else sorted(updated),
    }
    return NewCheckpoint(lineage.checkpoint_ns, checkpoint, metadata, parent_id, changed, channels.transient, results)


def metadata_of(lineage: Lineage, source: str, step: int) -> CheckpointMetadata:
    """The metadata of a checkpoint: how it came to be, beside the user's own keys."""
    told = {**lineage.metadata, "source": source, "step": step, "parents": dict(lineage.parents)}
    return cast(CheckpointMetadata, told)


def timestamp(at: datetime) -> str:
    """A moment, as checkpoints tell it."""
    return at.isoformat(timespec="microseconds")


@dataclass(frozen=True, slots=True)
class Point:
    """A checkpoint, as far as streams show it beside its values.

    Attributes:
        pending: What is stored of the tasks that follow it.
    """

    id: str
    parent_id: str | None
    metadata: Mapping[str, Any]
    pending: Sequence[PendingWrite] = ()


def point_of(saved: CheckpointTuple) -> Point:
    """A stored checkpoint, as streams show it."""
    parent = saved.parent_config["configurable"]["checkpoint_id"] if saved.parent_config is not None else None
    return Point(saved.checkpoint["id"], parent, saved.metadata, saved.pending_writes or ())


def continues_of(metadata: Mapping[str, Any]) -> tuple[tuple[str, frozenset[str]], ...]:
    """The checkpoints from which the branch of a checkpoint parted, if it goes on from what was there."""
    found: Any = metadata.get("continues", ())
    return tuple((checkpoint_id, frozenset(answered)) for checkpoint_id, answered in found)


def with_map(config: dict[str, Any], metadata: Mapping[str, Any] | None) -> dict[str, Any]:
    """The config of a subgraph's checkpoint, with the checkpoints it belongs to by namespace, for readers.

    It is taken and not looked at where such a config is passed to a graph: the checkpoint itself names its parents.
    """
    configurable = config["configurable"]
    ns, checkpoint_id = configurable.get("checkpoint_ns", ""), configurable.get("checkpoint_id")
    if not ns or checkpoint_id is None:
        return config
    parents = (metadata or {}).get("parents", {})
    return {**config, "configurable": {**configurable, "checkpoint_map": {**parents, ns: checkpoint_id}}}


def origin_of(checkpoint_id: str, metadata: Mapping[str, Any]) -> str:
    """The id that task ids planned from this checkpoint hash."""
    origin = metadata.get("origin")
    return origin if isinstance(origin, str) else checkpoint_id

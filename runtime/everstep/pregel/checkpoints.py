"""Checkpoints as the engine makes them from live channels. Pure but for the clock."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, cast

from everstep.channels.snapshot import Channels
from everstep_savers.checkpoint import (
    CHECKPOINT_FORMAT,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    NewCheckpoint,
    PendingWrite,
    TaskWrites,
    copy_checkpoint,
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


def make_checkpoint(
    channels: Channels,
    lineage: Lineage,
    *,
    parent_id: str | None,
    source: str,
    step: int,
    updated: Collection[str] | None,
    origin: str | None = None,
    results: Sequence[TaskWrites] = (),
) -> NewCheckpoint:
    """Take a checkpoint of the channels as they are now.

    Args:
        origin: For a fork, the checkpoint whose task ids it keeps.
        results: Writes of the tasks that led here, see `NewCheckpoint`.
    """
    changed = channels.take_changed()
    earlier = [one for one in (parent_id, lineage.head, *lineage.parents.values()) if one is not None]
    checkpoint: Checkpoint = {
        "v": CHECKPOINT_FORMAT,
        "id": new_checkpoint_id(max(earlier, default=None)),
        "ts": datetime.now(UTC).isoformat(timespec="microseconds"),
        "channel_values": channels.dump_whole()
        if lineage.whole
        else channels.dump(changed.keys() | channels.transient),
        "channel_versions": channels.versions,
        "versions_seen": channels.seen,
        "updated_channels": None if updated is None else sorted(updated),
    }
    metadata: dict[str, Any] = {**lineage.metadata, "source": source, "step": step, "parents": dict(lineage.parents)}
    if origin is not None:
        metadata["origin"] = origin
    return NewCheckpoint(
        lineage.checkpoint_ns,
        checkpoint,
        cast(CheckpointMetadata, metadata),  # user keys beside ours
        parent_id,
        changed,
        channels.transient,
        results,
    )


def whole_checkpoint(channels: Channels, checkpoint_id: str) -> Checkpoint:
    """The channels as they are now as a checkpoint of their own, for somebody who goes on from it in this process."""
    checkpoint: Checkpoint = {
        "v": CHECKPOINT_FORMAT,
        "id": checkpoint_id,
        "ts": datetime.now(UTC).isoformat(timespec="microseconds"),
        "channel_values": channels.dump_whole(),
        "channel_versions": channels.versions,
        "versions_seen": channels.seen,
        "updated_channels": None,
    }
    return copy_checkpoint(checkpoint)


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

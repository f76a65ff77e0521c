"""Data model of what is stored: checkpoints, pending writes, the thread's row, and one commit.

`Checkpoint`, `CheckpointMetadata` and `CheckpointTuple` have the shapes that the neighbouring ecosystem
uses, so that its savers and tests fit. The frozen records below them are what the engine hands to a
saver that can store a whole superstep atomically. Nothing here encodes, stores or awaits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal, NamedTuple, NotRequired, TypedDict

from everstep_savers.ids import new_checkpoint_id

ERROR = "__error__"
SCHEDULED = "__scheduled__"
INTERRUPT = "__interrupt__"
RESUME = "__resume__"
# The one write of a finished task that wrote nothing: that it has finished must be known.
NO_WRITES = "__no_writes__"

# Special writes: one per task and kind, overwritten by upsert. Ordinary writes count from 0 and are
# never overwritten.
WRITES_IDX_MAP = {ERROR: -1, SCHEDULED: -2, INTERRUPT: -3, RESUME: -4}

# The task id of writes that belong to the run rather than to one task.
NULL_TASK_ID = "00000000-0000-0000-0000-000000000000"

# Format of `Checkpoint`, kept in its `v`.
CHECKPOINT_FORMAT = 4

Version = int | str | float
ChannelVersions = dict[str, Version]
Status = Literal["running", "interrupted", "done", "failed", "cancelled", "drained", "out_of_steps"]
PendingWrite = tuple[str, str, Any]  # task id, channel, value


class Checkpoint(TypedDict):
    """The channels of one graph at one barrier."""

    v: int
    id: str
    ts: str  # ISO 8601, UTC
    channel_values: dict[str, Any]  # channels that hold a value
    channel_versions: dict[str, Version]
    versions_seen: dict[str, dict[str, Version]]  # node -> trigger channel -> version last acted on
    updated_channels: list[str] | None


class CheckpointMetadata(TypedDict, total=False):
    """How a checkpoint came to be; user keys from the run's `metadata` stand beside these."""

    source: str  # "input" | "loop" | "update" | "fork"
    step: int  # -1 for the input, then 0, 1, ...
    parents: dict[str, str]  # checkpoint namespace of an ancestor graph -> its checkpoint id
    run_id: str


class CheckpointTuple(NamedTuple):
    """A checkpoint as a saver returns it."""

    config: dict[str, Any]
    checkpoint: Checkpoint
    metadata: CheckpointMetadata
    parent_config: dict[str, Any] | None = None
    pending_writes: list[PendingWrite] | None = None


class DeltaChannelHistory(TypedDict):
    """What one channel got from the ancestors of a checkpoint."""

    writes: list[PendingWrite]  # oldest first; those stored against the checkpoint itself are not among them
    seed: NotRequired[Any]  # the value at the nearest ancestor that has one stored; `writes` came after it


@dataclass(frozen=True, slots=True)
class ThreadRecord:
    """The row of one thread: where its head is, what its last run did, who may write it.

    Attributes:
        starting_point: Where the head's branch starts, as the engine wrote it with the last claim: the id of the
            last input, fork or update. It is there before that checkpoint is (durability "exit"), and the same
            after a crash, when steps are taken again under other ids.
        removals: How often checkpoints were removed from the thread.
    """

    thread_id: str
    head: str | None  # id of the newest root checkpoint
    status: Status
    token: int  # fencing token of the last claim; grows by one with every claim
    run_id: str | None = None
    graph: str | None = None
    attempt: int = 1
    error: str | None = None
    input: Any = None  # kept only while the input has no checkpoint of its own (durability "exit")
    has_input: bool = False
    created_at: datetime | None = None
    updated_at: datetime | None = None
    starting_point: str | None = None
    removals: int = 0


class Part(NamedTuple):
    """A part of a list that is stored as what was added.

    Attributes:
        version: The version of the channel that ends with it.
        length: Items of that version, those of the parts before included.
        stored: Tag and bytes of its own items as they are stored; None if the run at hand has stored them.
    """

    version: Version
    length: int
    stored: tuple[str, bytes] | None = None


# The parts of one list, oldest first.
Chain = tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Loaded:
    """What a run needs to start: the checkpoint it starts from, and the thread as it stands.

    Attributes:
        saved: The named checkpoint, or the head; None for a thread without one.
        thread: None when the thread has no row yet.
        newest_version: The greatest integer channel version stored anywhere in this thread, 0 if none;
            savers without a thread row may count the namespace alone. A branch that starts at an older
            checkpoint counts on from here, so that versions stay unique in the namespace and a value is
            found by channel and version alone.
        chains: Of the lists among the channel values, the parts they are stored in. A list without one is
            stored anew when it changes.
    """

    saved: CheckpointTuple | None
    thread: ThreadRecord | None = None
    newest_version: int = 0
    chains: Mapping[str, Chain] = field(default_factory=dict)

    @property
    def is_past(self) -> bool:
        """Whether the checkpoint is another one than the thread's head."""
        head = self.thread.head if self.thread is not None else None
        return self.saved is not None and self.saved.checkpoint["id"] != head


@dataclass(frozen=True, slots=True)
class TaskWrites:
    """The writes of one task against one checkpoint.

    Special channels (`WRITES_IDX_MAP`) go under their negative index and replace what was there; all
    others count from 0 and are kept as first written.
    """

    checkpoint_ns: str
    checkpoint_id: str
    task_id: str
    writes: Sequence[tuple[str, Any]]
    task_path: str = ""
    node: str = ""  # named in errors


class TaskPlace(NamedTuple):
    """Where the writes of one task are stored."""

    checkpoint_ns: str
    checkpoint_id: str
    task_id: str


@dataclass(frozen=True, slots=True)
class NewCheckpoint:
    """A checkpoint to be stored.

    Attributes:
        changed: Channels whose value is new in this checkpoint, with their versions. A changed channel
            that has no value in `checkpoint["channel_values"]` is stored as empty.
        transient: Channels that live for a step or two; their values are kept inside the checkpoint
            rather than as rows of their own.
        results: Writes of the finished tasks that led here and that have no rows yet; `alist` shows them
            as pending writes of the parent checkpoint.
        bases: Changed lists that begin with all items of a version of the channel that is stored, or comes
            before in the same commit: that version and its length. A saver may store only the items after it.
            `everstep_savers.parts.extended` chooses them so that no list gets many parts.
    """

    checkpoint_ns: str
    checkpoint: Checkpoint
    metadata: CheckpointMetadata
    parent_id: str | None
    changed: Mapping[str, Version]
    transient: frozenset[str] = frozenset()
    results: Sequence[TaskWrites] = ()
    bases: Mapping[str, Part] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Claim:
    """The right to write a thread, taken at the start of a run.

    It is granted only if the thread's row is still as the run saw it (`seen`, None for a thread without
    a row): token and head are compared in the same transaction that sets them.

    Attributes:
        is_from_past: The run goes on from another checkpoint than the head. It is not granted if any checkpoint was
            removed meanwhile: that one may have been among them, with values that what follows it names.
    """

    seen: ThreadRecord | None
    run_id: str
    graph: str
    attempt: int = 1
    input: Any = None
    has_input: bool = False
    starting_point: str | None = None
    is_from_past: bool = False


@dataclass(frozen=True, slots=True)
class Commit:
    """Everything that becomes durable at once: all of it or none of it.

    Attributes:
        claim: Set on the first commit of a run; then `token` is ignored and the new token returned.
        token: The token of the run's claim. A commit whose token is no longer the thread's is refused
            with `LeaseLost`.
        status: New status of the thread's row; None leaves it.
        error: Text of the failure that goes with status "failed".
        checkpoints: In order. The head moves to the last one of the root namespace ("").
    """

    thread_id: str
    claim: Claim | None = None
    token: int = 0
    status: Status | None = None
    error: str | None = None
    checkpoints: Sequence[NewCheckpoint] = ()
    writes: Sequence[TaskWrites] = ()


def empty_checkpoint() -> Checkpoint:
    """A checkpoint of a thread on which nothing has happened yet."""
    return Checkpoint(
        v=CHECKPOINT_FORMAT,
        id=new_checkpoint_id(),
        ts=datetime.now(UTC).isoformat(),
        channel_values={},
        channel_versions={},
        versions_seen={},
        updated_channels=None,
    )


def create_checkpoint(
    checkpoint: Checkpoint, channels: Mapping[str, Any] | None, step: int, *, id: str | None = None
) -> Checkpoint:
    """The checkpoint after another one, as tests and tools of the neighbouring ecosystem make it.

    Args:
        checkpoint: The one before.
        channels: Live channels, whose values it has; None for the values of the one before.
        step: Not used; ids are in order without it.
        id: Its id, a new one by default.
    """
    made = copy_checkpoint(checkpoint)
    made["id"] = id or new_checkpoint_id(checkpoint["id"])
    made["ts"] = datetime.now(UTC).isoformat()
    if channels is not None:
        live = {key: channels[key] for key in checkpoint["channel_versions"] if key in channels}
        made["channel_values"] = {key: channel.checkpoint() for key, channel in live.items() if channel.is_available()}
    return made


def copy_checkpoint(checkpoint: Checkpoint) -> Checkpoint:
    """A copy whose maps may be changed; the channel values themselves are shared."""
    return Checkpoint(
        v=checkpoint["v"],
        id=checkpoint["id"],
        ts=checkpoint["ts"],
        channel_values=dict(checkpoint["channel_values"]),
        channel_versions=dict(checkpoint["channel_versions"]),
        versions_seen={node: dict(seen) for node, seen in checkpoint["versions_seen"].items()},
        updated_channels=checkpoint.get("updated_channels"),
    )

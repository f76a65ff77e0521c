"""Checkpoints, commits and configs as tests of savers need them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from everstep_savers.base import BaseCheckpointSaver
from everstep_savers.checkpoint import (
    Checkpoint,
    CheckpointTuple,
    Claim,
    Commit,
    NewCheckpoint,
    Status,
    TaskWrites,
    ThreadRecord,
    Version,
    empty_checkpoint,
)
from everstep_savers.ids import new_checkpoint_id


def config(thread_id: str = "t-1", checkpoint_id: str | None = None, ns: str | None = "") -> dict[str, Any]:
    """A config; without a namespace if `ns` is None."""
    names = {"thread_id": thread_id, "checkpoint_ns": ns, "checkpoint_id": checkpoint_id}
    return {"configurable": {name: value for name, value in names.items() if value is not None}}


def named(found: CheckpointTuple | None) -> str:
    """The id of a checkpoint that must have been found."""
    assert found is not None
    return found.checkpoint["id"]


def checkpoint(values: Mapping[str, Any], versions: Mapping[str, Version], after: str | None = None) -> Checkpoint:
    """A checkpoint with these channels, made after another one."""
    made = empty_checkpoint()
    made["id"] = new_checkpoint_id(after)
    made["channel_values"] = dict(values)
    made["channel_versions"] = dict(versions)
    made["versions_seen"] = {"a": dict(versions)}
    made["updated_channels"] = sorted(versions)
    return made


def new(
    values: Mapping[str, Any],
    version: Version = 1,
    *,
    ns: str = "",
    parent: str | None = None,
    transient: Sequence[str] = (),
    results: Sequence[TaskWrites] = (),
    metadata: Mapping[str, Any] | None = None,
) -> NewCheckpoint:
    """A checkpoint to store in which every channel is new."""
    versions = dict.fromkeys(values, version)
    return NewCheckpoint(
        checkpoint_ns=ns,
        checkpoint=checkpoint(values, versions, after=parent),
        metadata=metadata or {"source": "loop", "step": 0},  # type: ignore[arg-type]
        parent_id=parent,
        changed=versions,
        transient=frozenset(transient),
        results=results,
    )


def record(
    made: Checkpoint,
    changed: Mapping[str, Version],
    *,
    parent: str | None = None,
    run_id: str = "run-1",
    transient: Sequence[str] = (),
) -> NewCheckpoint:
    """A checkpoint to store in which some channels are new."""
    return NewCheckpoint("", made, {"source": "loop", "run_id": run_id}, parent, changed, frozenset(transient))


def claim(
    thread_id: str = "t-1",
    *checkpoints: NewCheckpoint,
    seen: ThreadRecord | None = None,
    run_id: str = "run-1",
    status: Status | None = None,
    **more: Any,
) -> Commit:
    """The first commit of a run."""
    claimed = Claim(seen=seen, run_id=run_id, graph="orders", **more)
    return Commit(thread_id, claim=claimed, status=status, checkpoints=checkpoints)


def step(
    token: int,
    *checkpoints: NewCheckpoint,
    thread_id: str = "t-1",
    status: Status | None = None,
    error: str | None = None,
    writes: Sequence[TaskWrites] = (),
) -> Commit:
    """A later commit of the run that holds the token."""
    return Commit(thread_id, token=token, status=status, error=error, checkpoints=checkpoints, writes=writes)


async def put_chain(saver: BaseCheckpointSaver, length: int, thread_id: str = "t-1", ns: str = "") -> list[str]:
    """Put checkpoints one after the other, each with ``n`` counted up, and return their ids."""
    ids: list[str] = []
    for number in range(length):
        parent = ids[-1] if ids else None
        made = checkpoint({"n": number}, {"n": number + 1}, after=parent)
        at = config(thread_id, parent, ns)
        await saver.aput(at, made, {"source": "loop", "step": number}, {"n": number + 1})
        ids.append(made["id"])
    return ids

"""Rows: what every saver keeps, in the order of the tables' columns, and a commit made of them.

All savers keep the same rows, so that memory behaves as SQL does. They hold encoded values only, so that
nothing a program does to its values later changes what is stored. `encoding` makes them, `decoding` reads
them; nothing here computes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from everstep_savers.checkpoint import Status
from everstep_savers.codec import Encoded


class CheckpointRow(NamedTuple):
    """One row of `checkpoints`, in the order of its columns.

    Attributes:
        run_id: Without one it is "" (in older rows None): a NULL would make every row on Postgres 8 bytes longer.
    """

    thread_id: str
    checkpoint_ns: str
    checkpoint_id: str
    parent_id: str | None
    step: int | None
    source: str | None
    run_id: str | None
    created_at: int
    versions: str
    body: bytes
    metadata: str


class ValueRow(NamedTuple):
    """One row of `channel_values`, in the order of its columns."""

    thread_id: str
    checkpoint_ns: str
    channel: str
    version: str
    tag: str
    data: bytes
    base: str | None = None


class WriteRow(NamedTuple):
    """One row of `checkpoint_writes`, in the order of its columns."""

    thread_id: str
    checkpoint_ns: str
    checkpoint_id: str
    task_id: str
    idx: int
    channel: str
    tag: str
    data: bytes
    task_path: str


class ThreadRow(NamedTuple):
    """A row of `threads`, without what guards it."""

    thread_id: str
    head: str | None
    status: Status
    token: int
    run_id: str | None
    graph: str | None
    attempt: int
    error: str | None
    input_tag: str | None
    input_data: bytes | None
    created_at: int
    updated_at: int
    starting_point: str | None = None
    removals: int = 0


# Task id, and by channel what the task wrote: None is what the checkpoint stores of the channel. A task that wrote
# nothing has nothing here. Tasks are in the order in which their writes were applied.
TaskResult = tuple[str, Sequence[tuple[str, Encoded | None]]]


@dataclass(frozen=True, slots=True)
class EncodedClaim:
    """A claim ready to be stored.

    `nonce` is new for every prepared claim: whoever repeats a claim of unknown fate recognises its own.
    `seen_removals` is None if the claim goes on from the head, which no removal takes away unseen.
    """

    seen_token: int | None
    seen_head: str | None
    run_id: str
    graph: str
    attempt: int
    nonce: str
    input_tag: str | None
    input_data: bytes | None
    starting_point: str | None = None
    seen_removals: int | None = None


class EncodedCommit(NamedTuple):
    """A commit ready to be stored.

    Attributes:
        is_fenced: False for the plain methods `aput` and `aput_writes`, which ask for no token.
        head: The new head, None if no checkpoint of the root namespace is among them.
        newest_version: The greatest integer version among the changed channels, 0 if there is none.
        at: Microseconds since the epoch.
    """

    thread_id: str
    claim: EncodedClaim | None
    token: int
    is_fenced: bool
    status: Status | None
    error: str | None
    head: str | None
    newest_version: int
    at: int
    checkpoints: Sequence[CheckpointRow]
    values: Sequence[ValueRow]
    writes: Sequence[WriteRow]

"""Commits encoded into rows.

Encoding copies: values may change afterwards. Everything that can be refused because of what it is (a value,
a name, metadata) is refused here, before storage is touched; whether the thread may be written is for the
saver to find out.

A result that equals what the checkpoint stores of its channel (a last value, the items added to a list) is not stored
twice.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from os import urandom
from typing import Any

import orjson
import ormsgpack

from everstep_savers.addresses import Address, checked_key
from everstep_savers.body import Body, pack_body
from everstep_savers.checkpoint import (
    ERROR,
    INTERRUPT,
    NO_WRITES,
    RESUME,
    WRITES_IDX_MAP,
    Checkpoint,
    CheckpointMetadata,
    Claim,
    Commit,
    NewCheckpoint,
    Part,
    TaskWrites,
    Version,
)
from everstep_savers.codec import Codec, Encoded
from everstep_savers.decoding import EPOCH, moment
from everstep_savers.errors import CodecError
from everstep_savers.metadata import encode_metadata
from everstep_savers.rows import CheckpointRow, EncodedClaim, EncodedCommit, TaskResult, ValueRow, WriteRow

# Every JSON number among the versions is an integer.
_INTEGERS = frozenset({int})
# Of a timestamp with microseconds in UTC, as `datetime.isoformat` writes it.
_USUAL_LENGTH = 32
# What a write of the engine's own is called in messages; all others are state keys.
_SPECIAL_PLACES = {ERROR: "error", INTERRUPT: "question", RESUME: "answer", "__return__": "result"}


def encode_commit(codec: Codec, commit: Commit, *, is_fenced: bool = True) -> EncodedCommit:
    """Encode a commit.

    Raises:
        CodecError: A value cannot be kept; names channel, node and thread.
        ValueError: A name cannot be part of a key.
    """
    thread_id = checked_key("thread_id", commit.thread_id)
    claim = commit.claim
    head: str | None = None
    newest = 0
    checkpoints: list[CheckpointRow] = []
    values: list[ValueRow] = []
    for new in commit.checkpoints:
        seen: dict[int, Encoded] = {}
        # Results first: what cannot be kept is told with its node.
        results = [_encode_result(codec, thread_id, task, seen) for task in new.results]
        before = len(values)
        newest = max(newest, _add_value_rows(codec, thread_id, new, values, seen))
        row = _checkpoint_row(codec, thread_id, new, _without_stored(results, values[before:]))
        checkpoints.append(row)
        if row.checkpoint_ns == "":
            head = row.checkpoint_id
    return EncodedCommit(
        thread_id,
        _encode_claim(codec, thread_id, claim) if claim else None,
        commit.token,
        is_fenced,
        commit.status or ("running" if claim else None),
        _shown(commit.error) if commit.error else None,
        head,
        newest,
        time.time_ns() // 1000,
        checkpoints,
        values,
        _write_rows(codec, thread_id, commit.writes) if commit.writes else (),
    )


def joined(first: EncodedCommit, second: EncodedCommit) -> EncodedCommit | None:
    """One commit for two of a run that follow each other; None if the second one claims the thread anew."""
    if second.claim is not None or (first.thread_id, first.token, first.is_fenced) != (
        second.thread_id,
        second.token,
        second.is_fenced,
    ):
        return None
    writes = {row[1:5]: row for row in first.writes}
    for row in second.writes:
        if row.idx < 0 or row[1:5] not in writes:  # ordinary ones are kept as first written
            writes[row[1:5]] = row
    told = second if second.status is not None else first
    return second._replace(
        claim=first.claim,
        status=told.status,
        error=told.error,
        head=second.head or first.head,
        newest_version=max(first.newest_version, second.newest_version),
        checkpoints=[*first.checkpoints, *second.checkpoints],
        values=[*first.values, *second.values],
        writes=list(writes.values()),
    )


def encode_put(
    codec: Codec,
    parent: Address,
    checkpoint: Checkpoint,
    metadata: CheckpointMetadata,
    new_versions: Mapping[str, Version],
    *,
    is_apart: bool = False,
) -> EncodedCommit:
    """Encode the checkpoint of a plain `aput`, child of `parent`.

    A value of a channel that has no version cannot be found by it, and is kept inside the checkpoint.

    Args:
        is_apart: The checkpoint keeps its new values to itself.
    """
    unversioned = frozenset(checkpoint["channel_values"].keys() - checkpoint["channel_versions"].keys())
    inside = unversioned | frozenset(new_versions) if is_apart else unversioned
    new = NewCheckpoint(parent.checkpoint_ns, checkpoint, metadata, parent.checkpoint_id, new_versions, inside)
    return encode_commit(codec, Commit(parent.thread_id, checkpoints=(new,)), is_fenced=False)


def encode_put_writes(codec: Codec, address: Address, task: TaskWrites) -> EncodedCommit:
    """Encode the writes of a plain `aput_writes`."""
    return encode_commit(codec, Commit(address.thread_id, writes=(task,)), is_fenced=False)


def task_writes(address: Address, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str) -> TaskWrites:
    """The writes of one task against the checkpoint at `address`.

    Raises:
        ValueError: The address names no checkpoint.
    """
    if address.checkpoint_id is None:
        raise ValueError(
            f"writes of task {task_id!r} belong to a checkpoint, but the config for thread "
            f"{address.thread_id!r} has no checkpoint_id; pass the config that aput or aget_tuple returned"
        )
    return TaskWrites(address.checkpoint_ns, address.checkpoint_id, task_id, writes, task_path)


def _encode_claim(codec: Codec, thread_id: str, claim: Claim) -> EncodedClaim:
    tag: str | None = None
    data: bytes | None = None
    if claim.has_input:
        try:
            tag, data = codec.encode(claim.input)
        except CodecError as error:
            raise error.within("input", f"thread {thread_id!r}") from error
    seen = claim.seen
    return EncodedClaim(
        seen_token=seen.token if seen else None,
        seen_head=seen.head if seen else None,
        run_id=checked_key("run_id", claim.run_id),
        graph=checked_key("graph", claim.graph),
        attempt=claim.attempt,
        nonce=urandom(8).hex(),
        input_tag=tag,
        input_data=data,
        starting_point=claim.starting_point,
        seen_removals=seen.removals if seen is not None and claim.is_from_past else None,
    )


def _checkpoint_row(codec: Codec, thread_id: str, new: NewCheckpoint, results: Sequence[TaskResult]) -> CheckpointRow:
    checkpoint = new.checkpoint
    created_at, ts = _timestamp(checkpoint["ts"])
    try:
        metadata = encode_metadata(new.metadata)
    except CodecError as error:
        raise error.within(f"thread {thread_id!r}") from error
    source, step, run_id, rest = metadata
    return CheckpointRow(
        thread_id,
        checked_key("checkpoint_ns", new.checkpoint_ns) if new.checkpoint_ns else "",
        checked_key("checkpoint_id", checkpoint["id"]),
        checked_key("parent checkpoint_id", new.parent_id) if new.parent_id else None,
        step,
        source,
        run_id or "",
        created_at,
        *_versions_and_body(codec, thread_id, new, results, ts),
        rest,
    )


def _split_versions(new: NewCheckpoint) -> tuple[dict[str, Version], dict[str, Version]]:
    """Versions of transient channels, which the body keeps, and of the others."""
    transient, others = {}, {}
    for channel, version in new.checkpoint["channel_versions"].items():
        if channel in new.transient:
            transient[channel] = version
        else:
            others[channel] = version
    return transient, others


def _encode_versions(versions: Mapping[str, Version]) -> str:
    """Versions as JSON; every JSON value, read as text, is the version's key in `channel_values`."""
    try:
        if _INTEGERS.issuperset(map(type, versions.values())):
            text = orjson.dumps(versions).decode()
        else:
            text = orjson.dumps({channel: _json_version(at) for channel, at in versions.items()}).decode()
    except orjson.JSONEncodeError as error:
        for channel in versions:
            checked_key("channel", channel)
        raise ValueError(f"channel versions {versions!r} cannot be kept: {error}") from None
    if "\\u0000" in text:
        for channel in versions:
            checked_key("channel", channel)
    return text


def _json_version(version: Version) -> int | str:
    # A prefix keeps 1, "1" and 1.0 apart, and lets both databases agree on a float's text.
    if type(version) is int:
        return version
    if isinstance(version, str):
        return "s:" + checked_key("channel version", version)
    if isinstance(version, float):
        return f"f:{version!r}"
    raise ValueError(f"channel version {version!r} is neither an integer, a string nor a float")


def _add_value_rows(
    codec: Codec, thread_id: str, new: NewCheckpoint, rows: list[ValueRow], seen: Mapping[int, Encoded]
) -> int:
    """Add a row for each changed value; the greatest integer version.

    Args:
        seen: By the id of the object, values that are encoded already: a result that became the value.
    """
    values, transient, ns = new.checkpoint["channel_values"], new.transient, new.checkpoint_ns
    newest = 0
    for channel, version in new.changed.items():
        if type(version) is int and version > newest:
            newest = version
        if channel in values and channel not in transient:
            value, key = values[channel], _version_key(version)
            base = new.bases.get(channel)
            if base is not None and (part := _encode_part(codec, value, base)) is not None:
                rows.append(ValueRow(thread_id, ns, channel, key, *part))
            else:
                tag, data = seen.get(id(value)) or _encode_value(codec, thread_id, channel, value)
                rows.append(ValueRow(thread_id, ns, channel, key, tag, data))
    return newest


def _version_key(version: Version) -> str:
    return str(version) if type(version) is int else str(_json_version(version))


def _encode_part(codec: Codec, value: list[Any], base: Part) -> tuple[str, bytes, str] | None:
    """Encode what a list has after its base; None if that fails, as the whole list will, naming the place in it."""
    try:
        return *codec.encode(value[base.length :]), _version_key(base.version)
    except CodecError:
        return None


def _versions_and_body(
    codec: Codec, thread_id: str, new: NewCheckpoint, results: Sequence[TaskResult], ts: str | None
) -> tuple[str, bytes]:
    checkpoint = new.checkpoint
    transient, versions = _split_versions(new)
    body = Body(
        checkpoint["v"],
        transient,
        checkpoint["versions_seen"],
        checkpoint.get("updated_channels"),
        _encode_transient(codec, thread_id, new) if new.transient else {},
        results,
        ts,
    )
    try:
        return _encode_versions(versions), pack_body(body, versions)
    except ormsgpack.MsgpackEncodeError as error:
        raise CodecError(
            f"the record of what each node has seen cannot be kept: {error}", place=(f"thread {thread_id!r}",)
        ) from error


def _encode_transient(codec: Codec, thread_id: str, new: NewCheckpoint) -> dict[str, Encoded]:
    values = new.checkpoint["channel_values"]
    return {
        channel: _encode_value(codec, thread_id, channel, values[channel])
        for channel in new.transient
        if channel in values
    }


def _encode_result(
    codec: Codec, thread_id: str, task: TaskWrites, seen: dict[int, Encoded]
) -> tuple[str, list[tuple[str, Encoded]]]:
    """Encode what a task wrote; `seen` gets every value by the id of the object."""
    encoded = []
    for channel, value in task.writes:
        if channel != NO_WRITES:
            seen[id(value)] = written = _encode_write(codec, thread_id, task, channel, value)
            encoded.append((channel, written))
    return task.task_id, encoded


def _without_stored(
    results: Sequence[tuple[str, Sequence[tuple[str, Encoded]]]], values: Sequence[ValueRow]
) -> Sequence[TaskResult]:
    """Results without the values that are stored with the checkpoint in the same words."""
    stored = {row.channel: (row.tag, row.data) for row in values}
    return [
        (task_id, [(channel, None if stored.get(channel) == value else value) for channel, value in written])
        for task_id, written in results
    ]


def _write_rows(codec: Codec, thread_id: str, writes: Sequence[TaskWrites]) -> list[WriteRow]:
    rows: dict[tuple[str, str, str, int], WriteRow] = {}
    for task in writes:
        checked_key("checkpoint_ns", task.checkpoint_ns)
        checked_key("checkpoint_id", task.checkpoint_id)
        checked_key("task_id", task.task_id)
        checked_key("task_path", task.task_path)
        ordinary = 0
        for channel, value in task.writes:
            idx = WRITES_IDX_MAP.get(channel)
            if idx is None:
                idx, ordinary = ordinary, ordinary + 1
            key = (task.checkpoint_ns, task.checkpoint_id, task.task_id, idx)
            if idx >= 0 and key in rows:
                continue  # kept as first written
            tag, data = _encode_write(codec, thread_id, task, channel, value)
            rows[key] = WriteRow(thread_id, *key, checked_key("channel", channel), tag, data, task.task_path)
    return list(rows.values())


def _encode_value(codec: Codec, thread_id: str, channel: str, value: Any) -> Encoded:
    try:
        return codec.encode(value)
    except CodecError as error:
        raise error.within(f"state key {channel!r}", f"thread {thread_id!r}") from error


def _encode_write(codec: Codec, thread_id: str, task: TaskWrites, channel: str, value: Any) -> Encoded:
    if channel == ERROR and isinstance(value, BaseException):
        return codec.encode_exception(value)
    try:
        return codec.encode(value)
    except CodecError as error:
        node = [f"node {task.node!r}"] if task.node else []
        what = _SPECIAL_PLACES.get(channel) or f"state key {channel!r}"
        raise error.within(what, *node, f"thread {thread_id!r}") from error


def _timestamp(ts: str) -> tuple[int, str | None]:
    """Microseconds, and the text itself where they do not say the same."""
    if len(ts) == _USUAL_LENGTH and (second := _second(ts[:20], ts[26:])) is not None:
        fraction = ts[20:26]
        if fraction.isdecimal() and fraction.isascii() and fraction != "000000":
            return second + int(fraction), None
    try:
        micros = (datetime.fromisoformat(ts) - EPOCH) // timedelta(microseconds=1)
    except (ValueError, TypeError):
        return time.time_ns() // 1000, ts
    return micros, None if moment(micros).isoformat() == ts else ts


@lru_cache(maxsize=4)
def _second(start: str, end: str) -> int | None:
    """Microseconds of the second that a usual timestamp starts with, None if it is not a usual one.

    Parsing and comparing a whole timestamp would cost more than all else in a small checkpoint.
    """
    try:
        second = datetime.fromisoformat(f"{start[:-1]}{end}")
    except ValueError:
        return None
    if second.tzinfo is None or f"{start}{end}" != f"{second.isoformat()[:19]}.+00:00":
        return None
    return (second - EPOCH) // timedelta(microseconds=1)


def _shown(error: str | None) -> str | None:
    """An error text that every database can keep."""
    if error is None or (error.isascii() and "\0" not in error):
        return error
    return error.encode("utf-8", "backslashreplace").decode().replace("\0", "\\x00")

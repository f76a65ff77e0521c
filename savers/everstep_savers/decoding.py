"""Stored rows decoded into checkpoints, pending writes and threads.

A value that cannot be read raises `CodecError` with key, thread and checkpoint; nothing is skipped and
nothing is guessed. The counterpart of `encoding`.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson

from everstep_savers.addresses import Address
from everstep_savers.body import place_of, unpack_body
from everstep_savers.checkpoint import (
    NO_WRITES,
    Chain,
    Checkpoint,
    CheckpointTuple,
    Part,
    PendingWrite,
    ThreadRecord,
    Version,
)
from everstep_savers.codec import Codec, Encoded
from everstep_savers.errors import CodecError
from everstep_savers.metadata import MetadataRow, decode_metadata
from everstep_savers.parts import Find, decode_parts, gathered
from everstep_savers.rows import CheckpointRow, ThreadRow, WriteRow

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def moment(micros: int) -> datetime:
    """The point in time, in UTC."""
    return EPOCH + timedelta(microseconds=micros)


def decode_tuple(
    codec: Codec,
    row: CheckpointRow,
    find: Find,
    writes: Iterable[PendingWrite],
    chains: dict[str, Chain] | None = None,
) -> CheckpointTuple:
    """Put a checkpoint together.

    Args:
        codec: Decodes the values.
        row: The checkpoint.
        find: Gives the row of a channel under a version's key.
        writes: Its pending writes, decoded.
        chains: Gets the parts of each list among the values.

    Raises:
        CodecError: A value cannot be read; names key, thread and checkpoint.
    """
    body = unpack_body(row)
    channel_values = {}
    for channel, version in version_keys(row.versions).items():
        if find(channel, version) is not None:
            channel_values[channel], chain = decode_value(codec, find, channel, version, row)
            if chain and chains is not None:
                chains[channel] = chain
    for channel, (tag, data) in body.transient.items():
        channel_values[channel] = _decode(codec, tag, data, f"state key {channel!r}", row)
    checkpoint = Checkpoint(
        v=body.format,
        id=row.checkpoint_id,
        ts=body.ts or moment(row.created_at).isoformat(),
        channel_values=channel_values,
        channel_versions={**_decode_versions(row.versions), **body.transient_versions},
        versions_seen=body.versions_seen,
        updated_channels=body.updated_channels,
    )
    here = Address(row.thread_id, row.checkpoint_ns, row.checkpoint_id)
    return CheckpointTuple(
        here.config(),
        checkpoint,
        decode_metadata(metadata_of(row)),
        here._replace(checkpoint_id=row.parent_id).config() if row.parent_id else None,
        list(writes),
    )


def metadata_of(row: CheckpointRow) -> MetadataRow:
    """The metadata of a checkpoint's row, as stored."""
    return MetadataRow(row.source, row.step, row.run_id or None, row.metadata)


def version_keys(versions: str) -> dict[str, str]:
    """Channel -> key of its version in `channel_values`."""
    return {channel: str(version) for channel, version in orjson.loads(versions).items()}


def _decode_versions(text: str) -> dict[str, Version]:
    versions: dict[str, Version] = orjson.loads(text)
    if '"s:' in text or '"f:' in text:
        return {channel: _version(version) for channel, version in versions.items()}
    return versions


def decode_value(codec: Codec, find: Find, channel: str, version: str, row: CheckpointRow) -> tuple[Any, Chain]:
    """Decode the value of a channel under a version's key, and for a list its parts.

    Raises:
        CodecError: It cannot be read; names key, thread and checkpoint.
    """
    try:
        parts = gathered(find, channel, version)
        value, lengths = decode_parts(codec, parts)
    except CodecError as error:
        raise error.within(f"state key {channel!r}", *place_of(row)) from error
    if not lengths:
        return value, ()
    return value, tuple(
        Part(_version_of(part.version), length, (part.tag, part.data))
        for part, length in zip(parts, lengths, strict=True)
    )


def _version_of(key: str) -> Version:
    return _version(key) if key[1:2] == ":" else int(key)


def _version(stored: Version) -> Version:
    if not isinstance(stored, str):
        return stored
    return stored[2:] if stored.startswith("s:") else float(stored[2:])


def decode_writes(codec: Codec, rows: Iterable[WriteRow], *, by_path: bool = False) -> list[PendingWrite]:
    """Decode pending writes, in the order of task, then index; `by_path` in the order in which they are applied."""
    return [
        (row.task_id, row.channel, _decode(codec, row.tag, row.data, f"write to {row.channel!r}", row))
        for row in sorted(rows, key=lambda row: (row.task_path if by_path else "", row.task_id, row.idx))
    ]


def decode_results(
    codec: Codec, child: CheckpointRow, find: Find, channels: Container[str] | None = None
) -> list[PendingWrite]:
    """Decode the results kept in a checkpoint, optionally of some channels: pending writes of its parent."""
    results = unpack_body(child).results
    if not results:
        return []
    versions = version_keys(child.versions)
    writes: list[PendingWrite] = []
    for task_id, values in results:
        if not values and channels is None:
            writes.append((task_id, NO_WRITES, None))
        for channel, encoded in values:
            if channels is not None and channel not in channels:
                continue
            tag, data = encoded or _stored_part(find, channel, versions.get(channel), child)
            writes.append((task_id, channel, _decode(codec, tag, data, f"write to {channel!r}", child)))
    return writes


def _stored_part(find: Find, channel: str, version: str | None, row: CheckpointRow) -> Encoded:
    stored = None if version is None else find(channel, version)
    if stored is None:
        raise CodecError(
            f"the value under version {version!r} is missing", place=(f"write to {channel!r}", *place_of(row))
        )
    return stored.tag, stored.data


def decode_thread(codec: Codec, row: ThreadRow) -> ThreadRecord:
    """Decode a thread's row."""
    kept = None
    if row.input_tag is not None:
        try:
            kept = codec.decode(row.input_tag, row.input_data or b"")
        except CodecError as error:
            raise error.within("input", f"thread {row.thread_id!r}") from error
    return ThreadRecord(
        thread_id=row.thread_id,
        head=row.head,
        status=row.status,
        token=row.token,
        run_id=row.run_id,
        graph=row.graph,
        attempt=row.attempt,
        error=row.error,
        input=kept,
        has_input=row.input_tag is not None,
        created_at=moment(row.created_at),
        updated_at=moment(row.updated_at),
        starting_point=row.starting_point,
        removals=row.removals,
    )


def _decode(codec: Codec, tag: str, data: bytes, what: str, row: CheckpointRow | WriteRow) -> Any:
    try:
        return codec.decode(tag, data)
    except CodecError as error:
        raise error.within(what, *place_of(row)) from error

"""The body of a checkpoint's row: what is read only together with the checkpoint.

One msgpack array: the checkpoint's format, versions seen, updated channels, values of transient channels, results of
the tasks that led to it, and its timestamp if `created_at` cannot give back the same text. A channel that has a version
is told by its place among the versions, which stand in the same row, so that its name is not repeated. Pure; values are
encoded already.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import orjson
import ormsgpack

from everstep_savers.checkpoint import Version
from everstep_savers.codec import SEALED_BODY, Encoded, unread
from everstep_savers.errors import CodecError
from everstep_savers.rows import CheckpointRow, TaskResult, WriteRow

T = TypeVar("T")


class Body(NamedTuple):
    """A checkpoint's body; values still encoded."""

    format: int
    versions_seen: dict[str, dict[str, Version]]
    updated_channels: list[str] | None
    transient: Mapping[str, Encoded]
    results: Sequence[TaskResult]
    ts: str | None


def pack_body(body: Body, versions: Iterable[str]) -> bytes:
    """Pack a body.

    Args:
        versions: The channels that have a version, in the order in which they are stored.

    Raises:
        ormsgpack.MsgpackEncodeError: A version is of a type that cannot be kept.
    """
    numbers: dict[str, Any] = {channel: number for number, channel in enumerate(versions)}
    place = numbers.get
    seen = {
        node: [part for channel, version in channels.items() for part in (place(channel, channel), version)]
        for node, channels in body.versions_seen.items()
    }
    updated = None if body.updated_channels is None else [place(channel, channel) for channel in body.updated_channels]
    transient = [(place(channel, channel), *encoded) for channel, encoded in body.transient.items()]
    results = [
        (_short(task_id), [(place(channel, channel), *(encoded or ())) for channel, encoded in writes])
        for task_id, writes in body.results
    ]
    return ormsgpack.packb((body.format, seen, updated, transient, results, body.ts))


def unpack_body(row: CheckpointRow) -> Body:
    """Unpack the body of a row.

    Raises:
        CodecError: The bytes are not a body, or are sealed; names thread and checkpoint.
    """
    if row.body.startswith(SEALED_BODY):
        tag = row.body[len(SEALED_BODY) :].partition(b"\0")[0].decode("utf-8", "replace")
        raise CodecError(unread(tag), place=place_of(row))
    try:
        return _unpacked(row.body, list(orjson.loads(row.versions)))
    except (ormsgpack.MsgpackDecodeError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise CodecError(f"the checkpoint's body cannot be read: {error}", place=place_of(row)) from error


def place_of(row: CheckpointRow | WriteRow) -> tuple[str, ...]:
    """Where a row belongs, for messages."""
    namespace = (f"namespace {row.checkpoint_ns!r}",) if row.checkpoint_ns else ()
    return (f"checkpoint {row.checkpoint_id!r}", *namespace, f"thread {row.thread_id!r}")


def _unpacked(packed: bytes, names: list[str]) -> Body:
    def name(place: Any) -> str:
        return names[place] if type(place) is int else _checked(place, str)

    def write(place: Any, *rest: Any) -> tuple[str, Encoded | None]:
        return name(place), _encoded(*rest) if rest else None

    version_format, seen, updated, transient, results, ts = ormsgpack.unpackb(packed)
    return Body(
        version_format,
        {node: dict(zip(map(name, parts[::2]), parts[1::2], strict=True)) for node, parts in seen.items()},
        updated if updated is None else list(map(name, updated)),
        {name(place): _encoded(tag, data) for place, tag, data in transient},
        [(_long(task_id), [write(*each) for each in writes]) for task_id, writes in results],
        ts,
    )


def _encoded(tag: Any, data: Any) -> Encoded:
    return _checked(tag, str), _checked(data, bytes)


def _checked(found: Any, kind: type[T]) -> T:
    if type(found) is not kind:
        raise TypeError(f"{type(found).__name__} in place of {kind.__name__}")
    return found


def _short(task_id: str) -> str | bytes:
    """A task id in half its length, if it is 32 hex digits."""
    try:
        short = bytes.fromhex(task_id)
    except ValueError:
        return task_id
    return short if short.hex() == task_id else task_id


def _long(task_id: str | bytes) -> str:
    return task_id if isinstance(task_id, str) else _checked(task_id, bytes).hex()

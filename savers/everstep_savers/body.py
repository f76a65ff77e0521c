"""The body of a checkpoint's row: what is read only together with the checkpoint.

One msgpack array: the checkpoint's format, versions of transient channels, versions seen, updated channels, values of
transient channels, results of the tasks that led to it, and its timestamp if `created_at` cannot give back the same
text. The versions of all other channels stand in the same row, for queries. A channel that has a version is told by its
place among these and then those, so that its name is not repeated; a node likewise by the channel of its name or by the
one that starts it. Pure; values are encoded already.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple, TypeVar

import orjson
import ormsgpack

from everstep_savers.checkpoint import Version
from everstep_savers.codec import SEALED_BODY, Encoded, unread
from everstep_savers.errors import CodecError
from everstep_savers.rows import CheckpointRow, TaskResult, WriteRow

T = TypeVar("T")

# Graphs of edges start a node by the channel of this prefix and its name; input arrives in the other.
_STARTS = "branch:to:"
_INPUT = "__start__"


class Body(NamedTuple):
    """A checkpoint's body; values still encoded."""

    format: int
    transient_versions: Mapping[str, Version]
    versions_seen: dict[str, dict[str, Version]]
    updated_channels: list[str] | None
    transient: Mapping[str, Encoded]
    results: Sequence[TaskResult]
    ts: str | None


def pack_body(body: Body, versions: Iterable[str]) -> bytes:
    """Pack a body.

    Args:
        versions: The other channels that have a version, in the order in which they are stored.

    Raises:
        ormsgpack.MsgpackEncodeError: A version is of a type that cannot be kept.
    """
    numbers: dict[str, Any] = {
        channel: number for number, channel in enumerate(chain(versions, body.transient_versions))
    }
    place = numbers.get
    own = [part for channel, version in body.transient_versions.items() for part in (_short_name(channel), version)]
    seen: list[Any] = []
    for node, channels in body.versions_seen.items():
        starting = place(_STARTS + node)
        seen.append(place(node, node) if starting is None else -1 - starting)
        seen.append([part for channel, version in channels.items() for part in (place(channel, channel), version)])
    updated = None if body.updated_channels is None else [place(channel, channel) for channel in body.updated_channels]
    transient = [(place(channel, channel), *encoded) for channel, encoded in body.transient.items()]
    results = [
        (_short(task_id), [(place(channel, channel), *(encoded or ())) for channel, encoded in writes])
        for task_id, writes in body.results
    ]
    return ormsgpack.packb((body.format, own, seen, updated, transient, results, body.ts))


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
    # LookupError: from Python 3.12 on, a mapping in the place of a list takes a slice for a key.
    except (ormsgpack.MsgpackDecodeError, TypeError, ValueError, LookupError, AttributeError) as error:
        raise CodecError(f"the checkpoint's body cannot be read: {error}", place=place_of(row)) from error


def place_of(row: CheckpointRow | WriteRow) -> tuple[str, ...]:
    """Where a row belongs, for messages."""
    namespace = (f"namespace {row.checkpoint_ns!r}",) if row.checkpoint_ns else ()
    return (f"checkpoint {row.checkpoint_id!r}", *namespace, f"thread {row.thread_id!r}")


def _unpacked(packed: bytes, names: list[str]) -> Body:
    def name(place: Any) -> str:
        return names[place] if type(place) is int else _checked(place, str)

    def node(place: Any) -> str:
        if type(place) is not int or place >= 0:
            return name(place)
        if not (channel := names[-1 - place]).startswith(_STARTS):
            raise ValueError(f"the channel {channel!r} starts no node")
        return channel.removeprefix(_STARTS)

    def write(place: Any, *rest: Any) -> tuple[str, Encoded | None]:
        return name(place), _encoded(*rest) if rest else None

    version_format, own, seen, updated, transient, results, ts = ormsgpack.unpackb(packed)
    versions = dict(zip(map(_long_name, own[::2]), own[1::2], strict=True))
    names += versions
    return Body(
        version_format,
        versions,
        {
            node(place): dict(zip(map(name, parts[::2]), parts[1::2], strict=True))
            for place, parts in zip(seen[::2], seen[1::2], strict=True)
        },
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


def _short_name(channel: str) -> str | list[str] | None:
    if channel.startswith(_STARTS):
        return [channel.removeprefix(_STARTS)]
    return None if channel == _INPUT else channel


def _long_name(short: Any) -> str:
    if isinstance(short, list):
        (node,) = short
        return _STARTS + _checked(node, str)
    return _INPUT if short is None else _checked(short, str)


def _short(task_id: str) -> str | bytes:
    """A task id in half its length, if it is 32 hex digits."""
    try:
        short = bytes.fromhex(task_id)
    except ValueError:
        return task_id
    return short if short.hex() == task_id else task_id


def _long(task_id: str | bytes) -> str:
    return task_id if isinstance(task_id, str) else _checked(task_id, bytes).hex()

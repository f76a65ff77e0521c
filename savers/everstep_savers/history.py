"""What one channel got from the checkpoints that lead to another: a seed, and the writes since.

Pure. A walk goes from a checkpoint to its parent, and on, until every channel has met a stored value. Branches beside
that line count for nothing. Where the walk gets its checkpoints from is the saver's business.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from everstep_savers.body import unpack_body
from everstep_savers.checkpoint import NULL_TASK_ID, DeltaChannelHistory, PendingWrite
from everstep_savers.codec import Codec
from everstep_savers.decoding import decode_results, decode_value, decode_writes, version_keys
from everstep_savers.delta import is_log
from everstep_savers.parts import Find
from everstep_savers.rows import CheckpointRow, WriteRow


class HistoryWalk:
    """Collects what the ancestors of a checkpoint hold of some channels, nearest first.

    Attributes:
        open: Channels that have met no stored value yet.
    """

    def __init__(self, channels: Sequence[str]) -> None:
        self.open = set(channels)
        self._writes: dict[str, list[list[PendingWrite]]] = {channel: [] for channel in channels}
        self._seeds: dict[str, Any] = {}

    def start(self, values: Mapping[str, Any]) -> None:
        """Begin at a checkpoint with these values; a log tells all there is to its channel."""
        self.visit({channel: value for channel, value in values.items() if is_log(value)}, ())

    def visit(self, values: Mapping[str, Any], writes: Iterable[PendingWrite]) -> None:
        """Go one checkpoint back: to one that has these values, and against which these writes are stored."""
        written: dict[str, list[PendingWrite]] = {channel: [] for channel in self.open}
        for write in writes:
            if write[1] in written:
                written[write[1]].append(write)
        for channel, here in written.items():
            self._writes[channel].append(here)
            if channel in values:
                self._end(channel, values[channel])

    def result(self) -> dict[str, DeltaChannelHistory]:
        """By channel, the seed if there is one, and the writes since, oldest first."""
        found: dict[str, DeltaChannelHistory] = {}
        for channel, blocks in self._writes.items():
            found[channel] = {"writes": [write for block in reversed(blocks) for write in block]}
            if channel in self._seeds:
                found[channel]["seed"] = self._seeds[channel]
        return found

    def _end(self, channel: str, value: Any) -> None:
        if is_log(value):
            seed, *batches = value
            self._writes[channel].append([(NULL_TASK_ID, channel, write) for batch in batches for write in batch])
            value = seed.value
        self._seeds[channel] = value
        self.open.discard(channel)


def values_of(codec: Codec, row: CheckpointRow, channels: Iterable[str], find: Find) -> dict[str, Any]:
    """The stored values of some channels at a checkpoint.

    Raises:
        CodecError: A value cannot be read; names key, thread and checkpoint.
    """
    versions, inside = version_keys(row.versions), unpack_body(row).transient
    found = {}
    for channel in channels:
        if channel in inside:
            found[channel] = codec.decode(*inside[channel])
        elif channel in versions and find(channel, versions[channel]) is not None:
            found[channel] = decode_value(codec, find, channel, versions[channel], row)[0]
    return found


def visit_row(
    walk: HistoryWalk, codec: Codec, row: CheckpointRow, child: CheckpointRow, rows: Iterable[WriteRow], find: Find
) -> None:
    """Go back from a checkpoint to its parent, as both are stored.

    Args:
        walk: The walk under way.
        codec: Decodes what is met.
        row: The parent.
        child: The checkpoint of the line that came of it, with results of the tasks between.
        rows: The writes stored against the parent.
        find: The values stored in this namespace.
    """
    writes = decode_writes(codec, [each for each in rows if each.channel in walk.open], by_path=True)
    walk.visit(values_of(codec, row, walk.open, find), [*writes, *decode_results(codec, child, find, walk.open)])

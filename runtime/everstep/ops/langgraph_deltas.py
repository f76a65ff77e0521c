"""Values of LangGraph's delta channels, put together as logs of ours.

Pure. LangGraph stores such a value now and then, and finds it again from the writes of the checkpoints since. Our log
holds the same: a seed, and one batch of writes for each superstep. The reducer is not needed to make it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from everstep.ops.langgraph_checks import COUNTERS
from everstep.ops.langgraph_rows import TheirCheckpoint, TheirThread
from everstep.ops.langgraph_values import Snapshot
from everstep_savers.checkpoint import WRITES_IDX_MAP
from everstep_savers.delta import DeltaSeed
from everstep_savers.errors import CodecError

Log = list[Any]


def delta_channels(thread: TheirThread) -> set[tuple[str, str]]:
    """The delta channels of a thread, by namespace."""
    return {
        (each.checkpoint_ns, channel)
        for each in thread.checkpoints
        for channel in (*each.metadata.get(COUNTERS, ()), *_snapshots(each.values))
    }


def with_logs(thread: TheirThread, channels: set[tuple[str, str]]) -> TheirThread:
    """The thread with a log in place of every value of a delta channel.

    Raises:
        CodecError: A checkpoint is missing from which a value is to be made.
    """
    if not channels:
        return thread
    writes: dict[tuple[str, str, str], list[Any]] = defaultdict(list)
    for write in thread.writes:
        if (write.checkpoint_ns, write.channel) in channels and write.channel not in WRITES_IDX_MAP:
            writes[write.checkpoint_ns, write.checkpoint_id, write.channel].append(write.value)
    places = {(each.checkpoint_ns, each.checkpoint_id) for each in thread.checkpoints}
    logs: dict[tuple[str, str, str], Log] = {}
    made = []
    for each in thread.checkpoints:  # parents come before their children
        own = {channel for ns, channel in channels if ns == each.checkpoint_ns}
        is_cut_off = each.parent_id is not None and (each.checkpoint_ns, each.parent_id) not in places
        for channel in own:
            if is_cut_off and channel in each.versions and not isinstance(each.values.get(channel), Snapshot):
                raise CodecError(
                    f"its value rests on the checkpoint {each.parent_id!r}, which is missing from the database",
                    place=(f"state key {channel!r}", f"checkpoint {each.checkpoint_id!r}"),
                )
            if log := _log(each, channel, logs, writes):
                logs[each.checkpoint_ns, each.checkpoint_id, channel] = log
        found = {
            channel: logs[key] for channel in own if (key := (each.checkpoint_ns, each.checkpoint_id, channel)) in logs
        }
        metadata = {key: value for key, value in each.metadata.items() if key != COUNTERS}
        made.append(replace(each, values={**each.values, **found}, metadata=metadata))
    return replace(thread, checkpoints=made)


def _snapshots(values: Mapping[str, Any]) -> Iterable[str]:
    return (channel for channel, value in values.items() if isinstance(value, Snapshot))


def _log(
    checkpoint: TheirCheckpoint,
    channel: str,
    logs: Mapping[tuple[str, str, str], Log],
    writes: Mapping[tuple[str, str, str], Sequence[Any]],
) -> Log | None:
    stored = checkpoint.values.get(channel)
    if isinstance(stored, Snapshot):
        return [DeltaSeed(stored.value)]
    before = (checkpoint.checkpoint_ns, checkpoint.parent_id or "", channel)
    batch = list(writes.get(before, ()))
    if not batch:
        return logs.get(before)
    # The value starts from its type called without arguments, and writes are mostly of that type.
    first = type(batch[0])() if type(batch[0]) in (list, dict, set) else None
    return [*logs.get(before, [DeltaSeed(first)]), batch]

"""Values that consist of earlier ones: what a checkpoint needs of the values before it, and logs of writes.

Pure. A channel's value is stored under the channel's version. A row that *continues* an earlier version (its base)
holds only what came after it, so a value may need a chain of rows, which forks and later versions share: a row goes
only when no checkpoint that is left needs it. A log is what a delta channel stores in place of its value: a list of
a seed and the writes since, one batch a superstep. Nothing here reads, stores or removes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from everstep_savers.codec import default_codec

# Channel, and the key of its version: what names a row of `channel_values` within one namespace of a thread.
ValueKey = tuple[str, str]


def needed_values(live: Iterable[Mapping[str, str]], bases: Mapping[ValueKey, str | None]) -> set[ValueKey]:
    """The value rows that some checkpoints of one namespace need, with all that these continue.

    Args:
        live: For each checkpoint that stays, channel -> key of its version (`decoding.version_keys`).
        bases: For each row there is, the key of the version that it continues, None for a whole value.

    Returns:
        The rows to keep; every other row of the namespace may go. Versions without a row (channels that are
        empty, or live inside the checkpoint) are among them too.
    """
    needed: set[ValueKey] = set()
    for versions in live:
        for channel, version in versions.items():
            key: ValueKey | None = (channel, version)
            while key is not None and key not in needed:
                needed.add(key)
                base = bases.get(key)
                key = None if base is None else (channel, base)
    return needed


@dataclass(frozen=True, slots=True, eq=False)
class DeltaSeed:
    """The value from which a log starts; always its first item, which no list of a user's can have."""

    value: Any


def is_log(stored: Any) -> bool:
    """Is this stored value a log?"""
    return type(stored) is list and bool(stored) and type(stored[0]) is DeltaSeed


default_codec.register_record(
    DeltaSeed, name="everstep:DeltaSeed", to_fields=lambda seed: seed.value, from_fields=DeltaSeed
)

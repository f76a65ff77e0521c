"""Checkpoint ids: time-ordered, and always after their parent's, whatever the clocks say.

The layout is UUID version 6 (RFC 9562, section 5.6): 60 bits of 100 ns ticks since 1582-10-15, most
significant first, then 62 random bits. As text in lower case the ids sort by time.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from uuid import UUID

# 100 ns ticks between the Gregorian epoch of RFC 9562 and the Unix epoch.
_GREGORIAN_TICKS = 0x01B21DD213814000


def new_checkpoint_id(
    after: str | None = None,
    *,
    now_ns: Callable[[], int] = time.time_ns,
    entropy: Callable[[int], bytes] = os.urandom,
) -> str:
    """Make an id that sorts after every earlier one of this clock, and after `after`.

    Args:
        after: The id which the new one must follow; usually the parent checkpoint's.
        now_ns: Nanoseconds since the Unix epoch.
        entropy: Gives that many random bytes.
    """
    ticks = now_ns() // 100 + _GREGORIAN_TICKS
    if after is not None and (last := _ticks(after)) >= ticks:
        ticks = last + 1
    time_hex = f"{ticks:015x}"
    rest = int.from_bytes(entropy(8), "big") & 0x3FFFFFFFFFFFFFFF | 0x8000000000000000
    rest_hex = f"{rest:016x}"
    return f"{time_hex[:8]}-{time_hex[8:12]}-6{time_hex[12:]}-{rest_hex[:4]}-{rest_hex[4:]}"


_last_uuid6: str | None = None


def uuid6(node: int | None = None, clock_seq: int | None = None) -> UUID:
    """Make an id as `new_checkpoint_id` does, of the type and by the name that the neighbouring ecosystem uses.

    Each sorts after the one made before it.

    Args:
        node: The last 48 bits; random by default.
        clock_seq: The 14 bits before these; random by default.
    """
    global _last_uuid6
    _last_uuid6 = new_checkpoint_id(_last_uuid6)
    made = UUID(_last_uuid6)
    low = made.int & (1 << 48) - 1 if node is None else node & (1 << 48) - 1
    sequence = made.clock_seq if clock_seq is None else clock_seq & 0x3FFF
    return UUID(int=made.int >> 64 << 64 | 0b10 << 62 | sequence << 48 | low)


def _ticks(checkpoint_id: str) -> int:
    """The time in an id of this layout; -1 for an id of another kind, which then sets no bound."""
    if len(checkpoint_id) != 36 or checkpoint_id[14] != "6":
        return -1
    try:
        return int(checkpoint_id[:8] + checkpoint_id[9:13] + checkpoint_id[15:18], 16)
    except ValueError:
        return -1

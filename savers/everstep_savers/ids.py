"""Checkpoint ids: time-ordered, and always after their parent's, whatever the clocks say.

An id is 100 bits as 20 digits of base 32: 52 bits of microseconds since 1970 (enough until 2112), then 48 random bits.
The digits are those of base32hex (RFC 4648, section 7) in lower case, whose order as text is that of the numbers under
every collation. Ids sort after all UUIDs of version 6 of their time, which LangGraph uses: an imported thread goes on.
An id stands three times in a checkpoint's row and index, so that a UUID as text would cost 144 bytes a checkpoint more.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from uuid import UUID

_DIGITS = "0123456789abcdefghijklmnopqrstuv"
_PAIRS = [high + low for high in _DIGITS for low in _DIGITS]
_LENGTH = 20
_RANDOM_BITS = 48
_LAST_MICROSECOND = (1 << 52) - 1

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
    microseconds = now_ns() // 1000
    if after is not None and microseconds <= (last := _microseconds(after)) < _LAST_MICROSECOND:
        microseconds = last + 1
    bits = microseconds << _RANDOM_BITS | int.from_bytes(entropy(_RANDOM_BITS // 8), "big")
    return "".join([_PAIRS[bits >> shift & 1023] for shift in range(90, -1, -10)])


_last_ticks = 0


def uuid6(node: int | None = None, clock_seq: int | None = None) -> UUID:
    """Make a UUID of version 6 (RFC 9562, section 5.6), by the name that the neighbouring ecosystem uses.

    Each sorts after the one made before it.

    Args:
        node: The last 48 bits; random by default.
        clock_seq: The 14 bits before these; random by default.
    """
    global _last_ticks
    _last_ticks = ticks = max(time.time_ns() // 100 + _GREGORIAN_TICKS, _last_ticks + 1)
    random = int.from_bytes(os.urandom(8), "big")
    low = (random if node is None else node) & (1 << 48) - 1
    sequence = (random >> 48 if clock_seq is None else clock_seq) & 0x3FFF
    return UUID(int=(ticks >> 12) << 80 | 6 << 76 | (ticks & 0xFFF) << 64 | 0b10 << 62 | sequence << 48 | low)


def new_run_id() -> str:
    """Make the id of a run: a UUID, as the tools that trace runs demand."""
    return str(uuid6())


def _microseconds(checkpoint_id: str) -> int:
    """The time in an id of this layout; -1 for an id of another kind, which then sets no bound."""
    if len(checkpoint_id) != _LENGTH:
        return -1
    try:
        return int(checkpoint_id, 32) >> _RANDOM_BITS
    except ValueError:
        return -1

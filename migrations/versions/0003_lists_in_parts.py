"""Lists stored in parts: a value may hold only what was added to an earlier version.

Revision 0003. Values of before are whole, and stay so; going back makes every value whole again.
"""

from __future__ import annotations

from collections.abc import Mapping

import sqlalchemy as sa
from alembic import context, op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

KEY = sa.Text(collation="C").with_variant(sa.Text(), "sqlite")

_NAMES = ("thread_id", "checkpoint_ns", "channel", "version")
_VALUES = sa.table("channel_values", *map(sa.column, (*_NAMES, "tag", "data", "base")))
_ROWS = sa.select(*(_VALUES.c[name] for name in (*_NAMES, "tag", "data", "base")))

Key = tuple[str, str, str, str]
Value = tuple[str, bytes, str | None]


def upgrade() -> None:
    op.add_column("channel_values", sa.Column("base", KEY))


def downgrade() -> None:
    if not context.is_offline_mode():
        _make_whole(op.get_bind())
    op.drop_column("channel_values", "base")


def _make_whole(connection: sa.Connection) -> None:
    """Store each list as a whole again, channel by channel."""
    channels = sa.select(*(_VALUES.c[name] for name in _NAMES[:3])).where(_VALUES.c.base.is_not(None)).distinct()
    for channel in connection.execute(channels).all():
        here = sa.and_(*(_VALUES.c[name] == value for name, value in zip(_NAMES[:3], channel, strict=True)))
        rows = {row.version: (row.tag, bytes(row.data), row.base) for row in connection.execute(_ROWS.where(here))}
        for version, (_, _, base) in rows.items():
            if base is not None:
                tag, data = _joined(rows, version)
                change = sa.update(_VALUES).where(here, _VALUES.c.version == version)
                connection.execute(change.values(tag=tag, data=data))


def _joined(rows: Mapping[str, Value], version: str | None) -> tuple[str, bytes]:
    """One msgpack array of the arrays that a list consists of."""
    parts: list[tuple[int, bytes]] = []
    tags: set[str] = set()
    while version is not None:
        tag, data, version = rows[version]
        if tag not in ("m", "x"):
            raise ValueError(f"a list has a part with tag {tag!r}, which cannot be made whole")
        tags.add(tag)
        parts.append(_opened(data))
    count = sum(count for count, _ in parts)
    header = bytes([0x90 | count]) if count < 16 else b"\xdd" + count.to_bytes(4, "big")
    return max(tags), header + b"".join(items for _, items in reversed(parts))


def _opened(data: bytes) -> tuple[int, bytes]:
    """The number of a msgpack array's items, and their bytes."""
    if data[0] & 0xF0 == 0x90:
        return data[0] & 0x0F, data[1:]
    end = {0xDC: 3, 0xDD: 5}[data[0]]
    return int.from_bytes(data[1:end], "big"), data[end:]

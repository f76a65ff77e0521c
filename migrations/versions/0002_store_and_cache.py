"""Store items, their vectors, and cache entries.

Revision 0002, follows 0001. Only adds tables.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

# Keys compare byte by byte on both databases.
KEY = sa.Text(collation="C").with_variant(sa.Text(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "store_items",
        sa.Column("namespace", KEY, nullable=False),
        sa.Column("key", KEY, nullable=False),
        sa.Column("tag", sa.Text, nullable=False),
        sa.Column("data", sa.LargeBinary, nullable=False),
        sa.Column("fields", sa.JSON, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("updated_at", sa.BigInteger, nullable=False),
        sa.Column("ttl", sa.BigInteger),
        sa.Column("expires_at", sa.BigInteger),
        sa.PrimaryKeyConstraint("namespace", "key", name="store_items_pkey"),
        sqlite_with_rowid=False,
    )
    op.create_index("store_items_expires_at", "store_items", ["expires_at"])
    op.create_table(
        "store_vectors",
        sa.Column("namespace", KEY, nullable=False),
        sa.Column("key", KEY, nullable=False),
        sa.Column("place", sa.Integer, nullable=False),
        sa.Column("vector", sa.ARRAY(sa.REAL).with_variant(sa.LargeBinary(), "sqlite"), nullable=False),
        sa.PrimaryKeyConstraint("namespace", "key", "place", name="store_vectors_pkey"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "cache_entries",
        sa.Column("namespace", KEY, nullable=False),
        sa.Column("key", KEY, nullable=False),
        sa.Column("tag", sa.Text, nullable=False),
        sa.Column("data", sa.LargeBinary, nullable=False),
        sa.Column("expires_at", sa.BigInteger),
        sa.PrimaryKeyConstraint("namespace", "key", name="cache_entries_pkey"),
        sqlite_with_rowid=False,
    )
    op.create_index("cache_entries_expires_at", "cache_entries", ["expires_at"])


def downgrade() -> None:
    for table in ("cache_entries", "store_vectors", "store_items"):
        op.drop_table(table)

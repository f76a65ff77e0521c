"""Threads, checkpoints, channel values and pending writes.

Revision 0001, the first.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

# Keys compare byte by byte on both databases.
KEY = sa.Text(collation="C").with_variant(sa.Text(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "threads",
        sa.Column("thread_id", KEY, nullable=False),
        sa.Column("generation", sa.BigInteger, nullable=False, server_default="0"),
        sa.Column("deleted_at", sa.BigInteger),
        sa.Column("head", KEY),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("graph", sa.Text),
        sa.Column("owner", sa.Text),
        sa.Column("token", sa.BigInteger, nullable=False),
        sa.Column("lease_expires_at", sa.BigInteger),
        sa.Column("run_id", sa.Text),
        sa.Column("attempt", sa.Integer, nullable=False, server_default="1"),
        sa.Column("error", sa.Text),
        sa.Column("input_tag", sa.Text),
        sa.Column("input_data", sa.LargeBinary),
        sa.Column("newest_version", sa.BigInteger, nullable=False, server_default="0"),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("updated_at", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("thread_id", name="threads_pkey"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "checkpoints",
        sa.Column("thread_id", KEY, nullable=False),
        sa.Column("checkpoint_ns", KEY, nullable=False),
        sa.Column("checkpoint_id", KEY, nullable=False),
        sa.Column("parent_id", KEY),
        sa.Column("step", sa.BigInteger),
        sa.Column("source", sa.Text),
        sa.Column("run_id", sa.Text),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("versions", sa.JSON, nullable=False),
        sa.Column("body", sa.LargeBinary, nullable=False),
        sa.Column("metadata", sa.JSON, nullable=False),
        sa.PrimaryKeyConstraint("thread_id", "checkpoint_ns", "checkpoint_id", name="checkpoints_pkey"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "channel_values",
        sa.Column("thread_id", KEY, nullable=False),
        sa.Column("checkpoint_ns", KEY, nullable=False),
        sa.Column("channel", KEY, nullable=False),
        sa.Column("version", KEY, nullable=False),
        sa.Column("tag", sa.Text, nullable=False),
        sa.Column("data", sa.LargeBinary, nullable=False),
        sa.PrimaryKeyConstraint("thread_id", "checkpoint_ns", "channel", "version", name="channel_values_pkey"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "checkpoint_writes",
        sa.Column("thread_id", KEY, nullable=False),
        sa.Column("checkpoint_ns", KEY, nullable=False),
        sa.Column("checkpoint_id", KEY, nullable=False),
        sa.Column("task_id", KEY, nullable=False),
        sa.Column("idx", sa.Integer, nullable=False),
        sa.Column("channel", sa.Text, nullable=False),
        sa.Column("tag", sa.Text, nullable=False),
        sa.Column("data", sa.LargeBinary, nullable=False),
        sa.Column("task_path", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint(
            "thread_id",
            "checkpoint_ns",
            "checkpoint_id",
            "task_id",
            "idx",
            name="checkpoint_writes_pkey",
        ),
        sqlite_with_rowid=False,
    )


def downgrade() -> None:
    for table in ("checkpoint_writes", "channel_values", "checkpoints", "threads"):
        op.drop_table(table)

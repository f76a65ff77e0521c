"""The one schema, for both databases, and for Alembic.

`thread_id` leads every key of what belongs to threads, so that these tables can be sharded by thread. Keys are
compared byte by byte (collation "C" on Postgres), so that both databases sort as Python does. On SQLite only `threads`
goes without rowid: a long row of such a table takes a page of its own. Values are bytes made by the codec; JSON columns
hold only what the savers made themselves. Revisions live in `migrations/versions`; `alembic check` keeps the two equal.
"""

from __future__ import annotations

from sqlalchemy import (
    ARRAY,
    JSON,
    REAL,
    BigInteger,
    Column,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    String,
    Table,
    Text,
)

# The revision this package reads and writes: the newest in `migrations/versions`.
SCHEMA_REVISION = "0006"
VERSION_TABLE = "everstep_alembic_version"

metadata = MetaData()

Key = Text(collation="C").with_variant(Text(), "sqlite")

threads = Table(
    "threads",
    metadata,
    Column("thread_id", Key, nullable=False),
    # Token of the last deletion: older tokens belong to a thread that is gone.
    Column("generation", BigInteger, nullable=False, server_default="0"),
    # The row of a deleted thread stays, so that its tokens are never given out again.
    Column("deleted_at", BigInteger),
    Column("head", Key),
    Column("status", Text, nullable=False),
    Column("graph", Text),
    # Whoever claimed the thread last; today one nonce per claim.
    Column("owner", Text),
    Column("token", BigInteger, nullable=False),
    Column("lease_expires_at", BigInteger),
    Column("run_id", Text),
    Column("attempt", Integer, nullable=False, server_default="1"),
    Column("error", Text),
    Column("input_tag", Text),
    Column("input_data", LargeBinary),
    # The greatest integer version of any channel in any namespace of the thread.
    Column("newest_version", BigInteger, nullable=False, server_default="0"),
    Column("created_at", BigInteger, nullable=False),
    Column("updated_at", BigInteger, nullable=False),
    # Where the head's branch starts, see `ThreadRecord`; after the other columns, as a migration adds it.
    Column("starting_point", Text),
    # How often checkpoints were removed: a branch starts from one only if none was since it was read.
    Column("removals", BigInteger, nullable=False, server_default="0"),
    PrimaryKeyConstraint("thread_id", name="threads_pkey"),
    sqlite_with_rowid=False,
)

checkpoints = Table(
    "checkpoints",
    metadata,
    Column("thread_id", Key, nullable=False),
    Column("checkpoint_ns", Key, nullable=False),
    Column("checkpoint_id", Key, nullable=False),
    Column("parent_id", Key),
    Column("step", BigInteger),
    Column("source", Text),
    Column("run_id", Text),
    Column("created_at", BigInteger, nullable=False),
    # {channel: version}; each version, read as text, is the version in `channel_values`.
    Column("versions", JSON, nullable=False),
    Column("body", LargeBinary, nullable=False),
    # JSON rather than JSONB: the text must come back as it was (1.0 as 1.0).
    Column("metadata", JSON, nullable=False),
    PrimaryKeyConstraint("thread_id", "checkpoint_ns", "checkpoint_id", name="checkpoints_pkey"),
)

channel_values = Table(
    "channel_values",
    metadata,
    Column("thread_id", Key, nullable=False),
    Column("checkpoint_ns", Key, nullable=False),
    Column("channel", Key, nullable=False),
    # Text holds the versions of every saver in the ecosystem, and a small integer in two bytes.
    Column("version", Key, nullable=False),
    Column("tag", Text, nullable=False),
    Column("data", LargeBinary, nullable=False),
    # The version that this one continues, if the row holds only what was added to a list since.
    Column("base", Key),
    PrimaryKeyConstraint("thread_id", "checkpoint_ns", "channel", "version", name="channel_values_pkey"),
)

checkpoint_writes = Table(
    "checkpoint_writes",
    metadata,
    Column("thread_id", Key, nullable=False),
    Column("checkpoint_ns", Key, nullable=False),
    Column("checkpoint_id", Key, nullable=False),
    Column("task_id", Key, nullable=False),
    Column("idx", Integer, nullable=False),
    Column("channel", Text, nullable=False),
    Column("tag", Text, nullable=False),
    Column("data", LargeBinary, nullable=False),
    Column("task_path", Text, nullable=False),
    PrimaryKeyConstraint(
        "thread_id", "checkpoint_ns", "checkpoint_id", "task_id", "idx", name="checkpoint_writes_pkey"
    ),
)

store_items = Table(
    "store_items",
    metadata,
    # The labels, joined by periods.
    Column("namespace", Key, nullable=False),
    Column("key", Key, nullable=False),
    Column("tag", Text, nullable=False),
    Column("data", LargeBinary, nullable=False),
    # What filters need of the value, see `everstep_savers.sql.filters`.
    Column("fields", JSON, nullable=False),
    # Times are microseconds since 1970. No two items of one process are created at the same time.
    Column("created_at", BigInteger, nullable=False),
    Column("updated_at", BigInteger, nullable=False),
    Column("ttl", BigInteger),
    Column("expires_at", BigInteger),
    PrimaryKeyConstraint("namespace", "key", name="store_items_pkey"),
    Index("store_items_expires_at", "expires_at"),
)

store_vectors = Table(
    "store_vectors",
    metadata,
    Column("namespace", Key, nullable=False),
    Column("key", Key, nullable=False),
    # Which of the item's texts it is of, from 0.
    Column("place", Integer, nullable=False),
    # Postgres: pgvector casts arrays. SQLite: 32-bit floats, little-endian.
    Column("vector", ARRAY(REAL).with_variant(LargeBinary(), "sqlite"), nullable=False),
    PrimaryKeyConstraint("namespace", "key", "place", name="store_vectors_pkey"),
)

cache_entries = Table(
    "cache_entries",
    metadata,
    # The labels as a JSON array.
    Column("namespace", Key, nullable=False),
    Column("key", Key, nullable=False),
    Column("tag", Text, nullable=False),
    Column("data", LargeBinary, nullable=False),
    Column("expires_at", BigInteger),
    PrimaryKeyConstraint("namespace", "key", name="cache_entries_pkey"),
    Index("cache_entries_expires_at", "expires_at"),
)


# Alembic's own table; it makes and keeps it.
alembic_version = Table(
    VERSION_TABLE,
    MetaData(),
    Column("version_num", String(32), nullable=False),
    PrimaryKeyConstraint("version_num", name=f"{VERSION_TABLE}_pkc"),
)

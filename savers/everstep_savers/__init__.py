"""Everything of Everstep that outlives the process: savers, codec, data model and errors.

SQLAlchemy and Alembic load only when `SQLSaver` is first asked for. Knows nothing of graphs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from everstep_savers.base import AtomicSaver, BaseCheckpointSaver
from everstep_savers.checkpoint import (
    WRITES_IDX_MAP,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    Claim,
    Commit,
    Loaded,
    NewCheckpoint,
    PendingWrite,
    TaskWrites,
    ThreadRecord,
    copy_checkpoint,
    empty_checkpoint,
)
from everstep_savers.codec import Codec, default_codec
from everstep_savers.errors import (
    CheckpointNotFound,
    CodecError,
    DatabaseUnavailable,
    LeaseLost,
    PersistenceError,
    SchemaOutOfDate,
    ThreadConflict,
    ThreadDeleted,
)
from everstep_savers.memory import InMemorySaver, MemorySaver

if TYPE_CHECKING:
    from everstep_savers.sql.saver import SQLSaver

__all__ = [
    "WRITES_IDX_MAP",
    "AtomicSaver",
    "BaseCheckpointSaver",
    "Checkpoint",
    "CheckpointMetadata",
    "CheckpointNotFound",
    "CheckpointTuple",
    "Claim",
    "Codec",
    "CodecError",
    "Commit",
    "DatabaseUnavailable",
    "InMemorySaver",
    "LeaseLost",
    "Loaded",
    "MemorySaver",
    "NewCheckpoint",
    "PendingWrite",
    "PersistenceError",
    "SQLSaver",
    "SchemaOutOfDate",
    "TaskWrites",
    "ThreadConflict",
    "ThreadDeleted",
    "ThreadRecord",
    "copy_checkpoint",
    "default_codec",
    "empty_checkpoint",
]


def __getattr__(name: str) -> Any:
    if name == "SQLSaver":
        # SQLAlchemy costs more to import than all the rest together.
        from everstep_savers.sql.saver import SQLSaver

        return SQLSaver
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

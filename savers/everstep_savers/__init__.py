"""Everything of Everstep that outlives the process: savers, stores, caches, codec, data model and errors.

Stores, and whatever needs SQLAlchemy and Alembic, load when they are first asked for. Knows nothing of graphs.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from everstep_savers.base import AtomicSaver, BaseCheckpointSaver, MaintainedSaver
from everstep_savers.cache import BaseCache, InMemoryCache
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
    InvalidKeyError,
    InvalidNamespaceError,
    LeaseLost,
    PersistenceError,
    SchemaOutOfDate,
    ThreadConflict,
    ThreadDeleted,
)
from everstep_savers.memory import InMemorySaver, MemorySaver
from everstep_savers.retention import Pruned

if TYPE_CHECKING:
    from everstep_savers.compression import Compression
    from everstep_savers.encryption import Encryption
    from everstep_savers.sealing import SealedCodec
    from everstep_savers.sql.cache import SQLCache
    from everstep_savers.sql.saver import SQLSaver
    from everstep_savers.sql.store import SQLStore
    from everstep_savers.store.base import BaseStore, Item, SearchItem
    from everstep_savers.store.memory import InMemoryStore

__all__ = [
    "WRITES_IDX_MAP",
    "AtomicSaver",
    "BaseCache",
    "BaseCheckpointSaver",
    "BaseStore",
    "Checkpoint",
    "CheckpointMetadata",
    "CheckpointNotFound",
    "CheckpointTuple",
    "Claim",
    "Codec",
    "CodecError",
    "Commit",
    "Compression",
    "DatabaseUnavailable",
    "Encryption",
    "InMemoryCache",
    "InMemorySaver",
    "InMemoryStore",
    "InvalidKeyError",
    "InvalidNamespaceError",
    "Item",
    "LeaseLost",
    "Loaded",
    "MaintainedSaver",
    "MemorySaver",
    "NewCheckpoint",
    "PendingWrite",
    "PersistenceError",
    "Pruned",
    "SQLCache",
    "SQLSaver",
    "SQLStore",
    "SchemaOutOfDate",
    "SealedCodec",
    "SearchItem",
    "TaskWrites",
    "ThreadConflict",
    "ThreadDeleted",
    "ThreadRecord",
    "copy_checkpoint",
    "default_codec",
    "empty_checkpoint",
]


# Where names are that a graph without a store or a database does not need.
_ELSEWHERE = {
    "BaseStore": "store.base",
    "Compression": "compression",
    "Encryption": "encryption",
    "InMemoryStore": "store.memory",
    "Item": "store.base",
    "SQLCache": "sql.cache",
    "SQLSaver": "sql.saver",
    "SQLStore": "sql.store",
    "SealedCodec": "sealing",
    "SearchItem": "store.base",
}


def __getattr__(name: str) -> Any:
    if name in _ELSEWHERE:
        return getattr(import_module(f"everstep_savers.{_ELSEWHERE[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

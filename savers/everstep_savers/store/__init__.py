"""Stores: items that outlive threads, by namespace and key.

Opens doors only; the SQL store is in `everstep_savers.sql.store`.
"""

from __future__ import annotations

from everstep_savers.errors import InvalidNamespaceError
from everstep_savers.store.base import (
    NOT_PROVIDED,
    BaseStore,
    GetOp,
    Item,
    ListNamespacesOp,
    MatchCondition,
    NamespaceMatchType,
    NamespacePath,
    NotProvided,
    Op,
    PutOp,
    Result,
    SearchItem,
    SearchOp,
    TTLConfig,
    validate_op_namespace,
)
from everstep_savers.store.batch import AsyncBatchedBaseStore
from everstep_savers.store.memory import InMemoryStore
from everstep_savers.store.texts import get_text_at_path, tokenize_path
from everstep_savers.store.vectors import AEmbeddingsFunc, Embeddings, EmbeddingsFunc, IndexConfig, ensure_embeddings

__all__ = [
    "NOT_PROVIDED",
    "AEmbeddingsFunc",
    "AsyncBatchedBaseStore",
    "BaseStore",
    "Embeddings",
    "EmbeddingsFunc",
    "GetOp",
    "InMemoryStore",
    "IndexConfig",
    "InvalidNamespaceError",
    "Item",
    "ListNamespacesOp",
    "MatchCondition",
    "NamespaceMatchType",
    "NamespacePath",
    "NotProvided",
    "Op",
    "PutOp",
    "Result",
    "SearchItem",
    "SearchOp",
    "TTLConfig",
    "ensure_embeddings",
    "get_text_at_path",
    "tokenize_path",
    "validate_op_namespace",
]

"""The optional vector index of a store: which texts, whose function, how similar.

The embedding function is the user's; it is called before a store takes a lock or a connection, once for all new
texts of a batch. Vectors are kept as 32-bit floats. Similarity is the cosine, computed by numpy where it is
installed and by plain Python elsewhere; numpy loads at the first search.
"""

from __future__ import annotations

import asyncio
import inspect
import math
import struct
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from operator import mul
from typing import Any, Protocol, TypedDict, cast, runtime_checkable

from everstep_savers.blocking import run_blocking
from everstep_savers.store.base import Op, PutOp, SearchOp
from everstep_savers.store.texts import WHOLE, get_text_at_path

EmbeddingsFunc = Callable[[Sequence[str]], Sequence[Sequence[float]]]
AEmbeddingsFunc = Callable[[Sequence[str]], Awaitable[Sequence[Sequence[float]]]]


@runtime_checkable
class Embeddings(Protocol):
    """What makes vectors of texts; the shape is that of the neighbouring ecosystem."""

    def embed_documents(self, texts: list[str]) -> Sequence[Sequence[float]]:
        """A vector for each text that is stored."""

    def embed_query(self, text: str) -> Sequence[float]:
        """The vector of a text that is searched for."""

    async def aembed_documents(self, texts: list[str]) -> Sequence[Sequence[float]]:
        """A vector for each text that is stored."""

    async def aembed_query(self, text: str) -> Sequence[float]:
        """The vector of a text that is searched for."""


class IndexConfig(TypedDict, total=False):
    """What a store makes searchable.

    Attributes:
        dims: Length of the vectors.
        embed: A function, async or sync, from texts to vectors, or an object such as `Embeddings`.
        fields: Paths into values, see `get_text_at_path`; by default ``["$"]``, the whole value.
    """

    dims: int
    embed: Embeddings | EmbeddingsFunc | AEmbeddingsFunc
    fields: list[str] | None


class FunctionEmbeddings:
    """A function from texts to vectors, async or sync, as `Embeddings`; a sync one runs in a worker thread."""

    def __init__(self, function: Callable[[list[str]], Any]) -> None:
        self._function = function
        self._is_async = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
            getattr(function, "__call__", None)  # noqa: B004 - whether it is async, not whether it is callable
        )

    def embed_documents(self, texts: list[str]) -> Sequence[Sequence[float]]:
        if self._is_async:
            return run_blocking(lambda: self.aembed_documents(texts), "embed_documents")
        return cast(Sequence[Sequence[float]], self._function(texts))

    def embed_query(self, text: str) -> Sequence[float]:
        return self.embed_documents([text])[0]

    async def aembed_documents(self, texts: list[str]) -> Sequence[Sequence[float]]:
        if self._is_async:
            return cast(Sequence[Sequence[float]], await self._function(texts))
        return await asyncio.to_thread(self.embed_documents, texts)

    async def aembed_query(self, text: str) -> Sequence[float]:
        return (await self.aembed_documents([text]))[0]


def ensure_embeddings(embed: Any) -> Embeddings:
    """Take an embedding function, or an object that has the methods of `Embeddings`.

    Raises:
        TypeError: It is neither.
    """
    if isinstance(embed, Embeddings):
        return embed
    for name in ("aembed_documents", "embed_documents"):
        if callable(found := getattr(embed, name, None)):
            return FunctionEmbeddings(found)
    if not callable(embed):
        raise TypeError(
            f"the index needs embed=, a function from a list of texts to a list of vectors or an object with "
            f"embed_documents(), got {embed!r}"
        )
    return FunctionEmbeddings(embed)


@dataclass(frozen=True, slots=True)
class Vectors:
    """The vectors of a batch: of each stored text, and of each query."""

    documents: Mapping[str, bytes] = field(default_factory=dict)
    queries: Mapping[str, bytes] = field(default_factory=dict)


class VectorIndex:
    """The index of a store."""

    def __init__(self, config: IndexConfig) -> None:
        for key in config:
            if key not in IndexConfig.__annotations__:
                known = ", ".join(IndexConfig.__annotations__)
                raise ValueError(f"unknown key {key!r} in the index config; known are {known}")
        dims = config.get("dims")
        if not isinstance(dims, int) or dims < 1:
            raise ValueError(f"the index needs dims=, the length of its vectors, got {dims!r}")
        self.dims = dims
        self.embeddings = ensure_embeddings(config.get("embed"))
        self.fields = list(config.get("fields") or [WHOLE])

    def texts_of(self, op: PutOp) -> list[str]:
        """What of an item is made searchable."""
        if op.value is None or op.index is False:
            return []
        paths = self.fields if op.index is None else op.index
        return [text for path in paths for text in get_text_at_path(op.value, path)]

    def embed(self, ops: Sequence[Op]) -> Vectors:
        """Make the vectors that a batch needs."""
        texts, queries = self._texts(ops)
        made = self.embeddings.embed_documents(texts) if texts else []
        return self._vectors(texts, made, {query: self.embeddings.embed_query(query) for query in queries})

    async def aembed(self, ops: Sequence[Op]) -> Vectors:
        """Make the vectors that a batch needs."""
        texts, queries = self._texts(ops)
        made = await self.embeddings.aembed_documents(texts) if texts else []
        return self._vectors(texts, made, {query: await self.embeddings.aembed_query(query) for query in queries})

    def _texts(self, ops: Sequence[Op]) -> tuple[list[str], list[str]]:
        texts = [text for op in ops if isinstance(op, PutOp) for text in self.texts_of(op)]
        queries = [op.query for op in ops if isinstance(op, SearchOp) and op.query]
        return list(dict.fromkeys(texts)), list(dict.fromkeys(queries))

    def _vectors(
        self, texts: Sequence[str], made: Sequence[Sequence[float]], queries: Mapping[str, Sequence[float]]
    ) -> Vectors:
        if len(made) != len(texts):
            raise ValueError(f"the embedding function made {len(made)} vectors of {len(texts)} texts")
        documents = {text: self._packed(vector) for text, vector in zip(texts, made, strict=True)}
        return Vectors(documents, {query: self._packed(vector) for query, vector in queries.items()})

    def _packed(self, vector: Sequence[float]) -> bytes:
        if len(vector) != self.dims:
            raise ValueError(
                f"the embedding function made a vector of {len(vector)} numbers, but the index has dims={self.dims}"
            )
        return pack(vector)


def pack(vector: Sequence[float]) -> bytes:
    """A vector as it is kept: 32-bit floats, little-endian."""
    return struct.pack(f"<{len(vector)}f", *vector)


def unpack(data: bytes) -> tuple[float, ...]:
    """A vector that was packed."""
    return struct.unpack(f"<{len(data) // 4}f", data)


def similarities(query: bytes, vectors: Sequence[bytes]) -> list[float]:
    """The cosine of the angle between a query and each vector; 0 for a vector without length."""
    if not vectors:
        return []
    numpy = _numpy()
    return _by_numpy(numpy, query, vectors) if numpy else _by_python(query, vectors)


def _by_numpy(numpy: Any, query: bytes, vectors: Sequence[bytes]) -> list[float]:
    one = numpy.frombuffer(query, "<f4").astype("f8")
    many = numpy.frombuffer(b"".join(vectors), "<f4").reshape(len(vectors), -1).astype("f8")
    lengths = numpy.linalg.norm(many, axis=1) * numpy.linalg.norm(one)
    products = many @ one
    return cast(
        list[float], numpy.divide(products, lengths, out=numpy.zeros_like(products), where=lengths > 0).tolist()
    )


def _by_python(query: bytes, vectors: Sequence[bytes]) -> list[float]:
    one = unpack(query)
    length = math.hypot(*one)
    found = []
    for vector in map(unpack, vectors):
        both = length * math.hypot(*vector)
        found.append(sum(map(mul, one, vector)) / both if both else 0.0)
    return found


@cache
def _numpy() -> Any:
    """The module numpy, None where it is not installed."""
    try:
        import numpy  # optional, and as heavy as all the rest together
    except ImportError:
        return None
    return numpy

"""Our savers for LangGraph: a graph of LangGraph's keeps its threads in SQLite or Postgres through `SQLSaver`.

Needs the extra ``langgraph``. Values go through LangGraph's own serializer, so that they are what that program
expects; what is around them (one transaction a checkpoint, pages, pruning, migrations) is ours. Asynchronous methods
only: ``ainvoke``, ``astream``. Threads kept so are LangGraph's: `everstep import` makes Everstep's of them.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Self

from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple, get_checkpoint_metadata

from everstep_savers.base import MaintainedSaver
from everstep_savers.codec import Codec, Encoded
from everstep_savers.errors import CodecError

# What the tags of values made by LangGraph's serializer begin with.
TAG_PREFIX = "langgraph:"


class SerdeCodec(Codec):
    """A codec that leaves values to a serializer of the ecosystem, and still reads our own."""

    def __init__(self, serde: Any) -> None:
        super().__init__()
        self._serde = serde

    def encode(self, value: Any) -> Encoded:
        try:
            tag, data = self._serde.dumps_typed(value)
        except Exception as error:  # whatever a serializer says of what it cannot keep
            raise CodecError(f"{type(value).__name__} cannot be stored: {error}") from error
        return TAG_PREFIX + tag, bytes(data)

    def decode(self, tag: str, data: bytes) -> Any:
        if not tag.startswith(TAG_PREFIX):
            return super().decode(tag, data)
        return self._serde.loads_typed((tag.removeprefix(TAG_PREFIX), data))


class LangGraphSaver(BaseCheckpointSaver):  # type: ignore[misc]  # LangGraph need not be there for the type check
    """Gives one of our savers to LangGraph: ``graph.compile(checkpointer=LangGraphSaver(saver))``.

    Args:
        saver: Is LangGraph's alone from now on, since its codec is replaced.
        serde: LangGraph's serializer; by default the one its own savers use.
    """

    def __init__(self, saver: MaintainedSaver[Any], *, serde: Any = None) -> None:
        super().__init__(serde=serde)
        self.saver = saver
        saver.codec = SerdeCodec(self.serde)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.saver.aclose()

    def get_next_version(self, current: str | None, channel: None) -> str:
        """A version that is greater, and no other branch's."""
        number = int(current.split(".")[0]) if current else 0
        return f"{number + 1:032}.{random.random():.16f}"

    async def aget_tuple(self, config: Any) -> CheckpointTuple | None:
        found = await self.saver.aget_tuple(config)
        return CheckpointTuple(*found) if found else None

    async def alist(
        self,
        config: Any,
        *,
        filter: Mapping[str, Any] | None = None,
        before: Any = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        async for found in self.saver.alist(config, filter=filter, before=before, limit=limit):
            yield CheckpointTuple(*found)

    async def aput(self, config: Any, checkpoint: Any, metadata: Any, new_versions: Any) -> Any:
        return await self.saver.aput(config, checkpoint, get_checkpoint_metadata(config, metadata), new_versions)

    async def aput_writes(
        self, config: Any, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        await self.saver.aput_writes(config, writes, task_id, task_path)

    async def adelete_thread(self, thread_id: str) -> None:
        await self.saver.adelete_thread(thread_id)

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        await self.saver.acopy_thread(source_thread_id, target_thread_id)

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        await self.saver.adelete_for_runs(run_ids)

    async def aprune(self, thread_ids: Sequence[str], *, strategy: Any = "keep_latest") -> None:
        await self.saver.aprune(thread_ids, strategy=strategy)

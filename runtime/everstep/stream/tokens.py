"""What LangChain tells of chat models that run: their tokens and answers. Needs the extra `langchain`.

Handlers go along in a callback manager, as LangChain passes callbacks on, and tell one listener. They neither know
runs nor keep what they have told; what they note of a model's call ends with the call. This module loads
LangChain, and is imported where that is wanted.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol
from uuid import UUID

from langchain_core.callbacks import AsyncCallbackHandler, AsyncCallbackManager, BaseCallbackHandler, CallbackManager
from langchain_core.callbacks.base import BaseCallbackManager
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, LLMResult

from everstep.callbacks import GraphCallbackHandler

# A model with this tag is not heard.
TAG_NOSTREAM = "nostream"
# What a node's own config says of its place; readers get that under other keys.
_OWN = frozenset({"everstep_step", "everstep_node", "everstep_triggers", "everstep_path", "everstep_checkpoint_ns"})


class Listener(Protocol):
    """Who hears the models that a node calls."""

    @property
    def listens(self) -> bool:
        """Is a model that is called here and now one of the node's?"""

    @property
    def is_behind(self) -> bool:
        """Must a model on the running loop wait for readers?"""

    async def room(self) -> None:
        """Wait for readers, if the running loop is the run's."""

    def heard(self, message: Any, metadata: dict[str, Any], *, once: bool) -> None:
        """A model has said this: a token, or its whole answer, which is told `once` only, and not after its tokens."""


class ModelHandler(BaseCallbackHandler):
    """Tells a listener what chat models say, in the model's own flow.

    A model that is invoked streams if it finds one of its handlers to have the two `tap_` methods.
    """

    run_inline = True

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self._metadata: dict[UUID, dict[str, Any]] = {}

    def on_chat_model_start(
        self,
        serialized: dict[str, Any],
        messages: Any,
        *,
        run_id: UUID,
        tags: Sequence[str] | None = None,
        metadata: Mapping[str, Any] | None = None,
        **_: Any,
    ) -> None:
        """See `BaseCallbackHandler`."""
        if TAG_NOSTREAM not in (tags or ()) and self._listener.listens:
            self._metadata[run_id] = _shown(metadata or {}, tags or ())

    def on_llm_new_token(self, token: Any, *, run_id: UUID, chunk: Any = None, **_: Any) -> None:
        """See `BaseCallbackHandler`."""
        if run_id in self._metadata and isinstance(chunk, ChatGenerationChunk):
            self._listener.heard(chunk.message, {**self._metadata[run_id]}, once=False)

    def on_llm_end(self, response: LLMResult, *, run_id: UUID, **_: Any) -> None:
        """See `BaseCallbackHandler`."""
        metadata = self._metadata.pop(run_id, None)
        generations = response.generations[0] if response.generations else []
        if metadata is not None and generations and isinstance(generations[0], ChatGeneration):
            self._listener.heard(generations[0].message, metadata, once=True)

    def on_llm_error(self, error: BaseException, *, run_id: UUID, **_: Any) -> None:
        """See `BaseCallbackHandler`."""
        self._metadata.pop(run_id, None)

    def tap_output_iter(self, run_id: UUID, output: Iterator[Any]) -> Iterator[Any]:
        """What a chain streams goes on as it is."""
        return output

    def tap_output_aiter(self, run_id: UUID, output: AsyncIterator[Any]) -> AsyncIterator[Any]:
        """What a chain streams goes on as it is."""
        return output


class ModelPace(AsyncCallbackHandler):
    """Has a model on the run's loop wait after each token while readers are behind."""

    ignore_chat_model = True

    def __init__(self, listener: Listener) -> None:
        self._listener = listener

    @property
    def ignore_llm(self) -> bool:
        """Asked before each token: LangChain would run a coroutine for a sync model in a loop of its own."""
        return not self._listener.is_behind

    async def on_llm_new_token(self, token: Any, **_: Any) -> None:
        """See `BaseCallbackHandler`."""
        await self._listener.room()


def manager_of(
    callbacks: Any, tags: Sequence[str], metadata: Mapping[str, Any], listener: Listener | None, *, is_async: bool
) -> BaseCallbackManager:
    """The callbacks that what a node calls inherits.

    Args:
        callbacks: The run's: a handler, several, or a manager, whose handlers of other nodes are left out.
        tags: Of the run; `metadata` of run and node. Models get them even if they are called with some of their own.
        listener: Hears the node's models; None if nobody does.
        is_async: The node is.
    """
    manager: BaseCallbackManager
    if isinstance(callbacks, BaseCallbackManager):
        manager = callbacks.copy()
    else:
        kind = AsyncCallbackManager if is_async else CallbackManager
        given = getattr(callbacks, "handlers", callbacks)
        given = given if isinstance(given, Iterable) else (given,)
        manager = kind([], inheritable_handlers=[])
        for handler in given:
            if isinstance(handler, BaseCallbackHandler | GraphCallbackHandler):
                manager.add_handler(handler)  # type: ignore[arg-type]  # passed on for the subgraphs further down
    for handler in [*manager.handlers]:
        if isinstance(handler, ModelHandler | ModelPace):
            manager.remove_handler(handler)
    if listener is not None:
        manager.add_handler(ModelHandler(listener))
        manager.add_handler(ModelPace(listener))
    manager.add_tags([*tags])
    manager.add_metadata({**metadata})
    return manager


def _shown(metadata: Mapping[str, Any], tags: Sequence[str]) -> dict[str, Any]:
    """The metadata of a model's call as readers get it: without what is said twice."""
    shown = {key: value for key, value in metadata.items() if key not in _OWN}
    # Steps of a chain are tagged by LangChain itself.
    if kept := [tag for tag in tags if not tag.startswith("seq:step")]:
        shown["tags"] = kept
    return shown

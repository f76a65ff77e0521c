"""What LangChain's models, tools and chains inherit from the node that calls them: the run's config and callbacks.

LangChain looks for them in a context variable of its own, which is set in the node's context alone, so that nothing is
left of it after the attempt. Where nobody has loaded LangChain, or the run has nothing to pass on, nothing happens.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
from contextvars import Context
from typing import Any, Protocol

from everstep.config import RunConfig
from everstep.context import current_task
from everstep.tasks.current import Attempt, RunScope
from everstep.tasks.task import Task

# Seconds after which a loop that does not take its turn is taken to wait for the very thread that asks.
_BLOCKED = 0.05


class HearsModels(Protocol):
    """What a run does with what its nodes' models say."""

    @property
    def is_full(self) -> bool:
        """Has a reader fallen behind?"""

    async def room(self) -> None:
        """Wait for slow readers."""

    def wait_for_room(self) -> None:
        """Block a worker thread until slow readers have caught up."""

    def said(self, attempt: Attempt, message: Any, metadata: dict[str, Any], *, once: bool) -> None:
        """A model that the attempt's node called has said this; `once` as for `Listener.heard`."""

    def pushed(self, attempt: Attempt, message: Any) -> None:
        """The attempt's node has pushed a message."""


class Models:
    """What the models that the nodes of one run call inherit.

    Attributes:
        hears: Takes what they say; None if nobody reads it.
    """

    __slots__ = ("_config", "hears")

    def __init__(self, config: RunConfig, hears: HearsModels | None) -> None:
        self._config = config
        self.hears = hears

    def callbacks_of(self, attempt: Attempt) -> Any:
        """The callbacks in a node's config: a manager of LangChain's, where that is loaded."""
        given = self._config.callbacks
        if _run_config() is None or (given is None and self.hears is None):
            return given
        from everstep.stream.tokens import manager_of

        action = attempt.task.node.action
        listener = _Listener(attempt, self.hears) if self.hears is not None else None
        metadata = {**self._config.metadata, **place_of(attempt.run, attempt.task, attempt.number)}
        return manager_of(
            given,
            (*self._config.tags, *attempt.task.node.tags),
            metadata,
            listener,
            is_async=action is None or action.is_async,
        )

    def push(self, attempt: Attempt, message: Any) -> None:
        """Tell readers of a message that the attempt's node pushes."""
        if self.hears is not None:
            listener = _Listener(attempt, self.hears)
            listener.wait()
            if not attempt.closed:
                self.hears.pushed(attempt, message)

    def enter(self, attempt: Attempt, context: Context) -> None:
        """Have what is called in this context inherit the config of the attempt."""
        if (module := _run_config()) is not None:
            context.run(module.var_child_runnable_config.set, attempt.config)


def models_of(config: RunConfig, hears: HearsModels | None) -> Models | None:
    """What the models of a run inherit; None if there is nothing."""
    if hears is None and _run_config() is None:
        return None
    given = (config.callbacks, config.thread_id, config.tags, config.metadata, config.configurable)
    return Models(config, hears) if hears is not None or any(given) else None


def place_of(run: RunScope, task: Task, number: int) -> dict[str, Any]:
    """Where in a run an attempt of a task is, under the keys that readers know, beside what its node says."""
    place: dict[str, Any] = {
        **task.node.metadata,
        "langgraph_step": run.step,
        "langgraph_node": task.name,
        "langgraph_triggers": task.triggers,
        "langgraph_path": task.path,
        "langgraph_checkpoint_ns": task.ns,
    }
    attempts = (*run.attempts, number)
    if any(number > 1 for number in attempts):
        place["everstep_attempts"] = attempts
    if run.config.thread_id is not None:
        place["thread_id"] = run.config.thread_id
    return place


class _Listener:
    """Hears the models that one attempt's node calls."""

    __slots__ = ("_attempt", "_hears", "_is_blocking")

    def __init__(self, attempt: Attempt, hears: HearsModels) -> None:
        self._attempt = attempt
        self._hears = hears
        # The node blocks the loop until its models have ended: they must not wait for readers.
        self._is_blocking = False

    @property
    def listens(self) -> bool:
        """Not to other runs, subgraphs among them, which inherit LangChain's context."""
        inner = current_task.get(None)
        return not isinstance(inner, Attempt) or inner.run is self._attempt.run

    @property
    def is_behind(self) -> bool:
        return self._hears.is_full and _running_loop() is self._attempt.run.loop

    async def room(self) -> None:
        if _running_loop() is self._attempt.run.loop:
            await self._hears.room()

    def heard(self, message: Any, metadata: dict[str, Any], *, once: bool) -> None:
        self.wait()
        if not self._attempt.closed:
            self._hears.said(self._attempt, message, metadata, once=once)

    def wait(self) -> None:
        """Something happens in the node; in a worker thread it waits for readers first."""
        self._attempt.sign_of_life()
        if self._hears.is_full and self._may_wait():
            self._hears.wait_for_room()

    def _may_wait(self) -> bool:
        """Is this a worker thread for which nobody holds up the loop?"""
        loop = self._attempt.run.loop
        if self._attempt.in_thread or self._is_blocking or _running_loop() is loop:
            return self._attempt.in_thread
        turned = threading.Event()
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(turned.set)
        self._is_blocking = not turned.wait(_BLOCKED)
        return not self._is_blocking


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def _run_config() -> Any:
    """The module of LangChain that has the context variable, if it is loaded."""
    return sys.modules.get("langchain_core.runnables.config")

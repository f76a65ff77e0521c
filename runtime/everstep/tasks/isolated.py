"""Awaiting a coroutine in place, inside a context of its own.

A node that is awaited in the run's own task must not leak context variables into the next node or the
caller. The coroutine is driven step by step in a copied `contextvars.Context`: no task, no queue, no
hop. What it awaits, how it is cancelled and what it raises are as with a plain ``await``.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextvars import Context
from inspect import iscoroutine
from typing import Any, Protocol

_UNCOUNTED = sys.version_info < (3, 13)


class Room(Protocol):
    """Where what the coroutine makes goes, and may have to wait."""

    @property
    def is_full(self) -> bool:
        """Must the coroutine wait?"""

    async def room(self) -> None:
        """Wait until it need not."""


async def await_in(context: Context, awaitable: Awaitable[Any], room: Room | None = None) -> Any:
    """Await `awaitable` with `context` as its context; whenever it has waited, it waits for room too."""
    coroutine: Coroutine[Any, Any, Any] = awaitable if iscoroutine(awaitable) else _await(awaitable)
    try:
        # Most nodes of a hot loop never wait; they end here, without a generator.
        waited = context.run(coroutine.send, None)
    except StopIteration as stop:
        return stop.value
    return await _Rest(context, coroutine, waited, room)


async def _await(awaitable: Awaitable[Any]) -> Any:
    return await awaitable


def _settle_task_groups(coroutine: Any) -> None:
    """Take back the cancellation by which a task group woke its own task while it was waiting for its end.

    Before Python 3.13 the group forgets to, and the task would look cancelled from outside ever after.
    """
    while coroutine is not None:
        frame = getattr(coroutine, "cr_frame", None)
        group = frame.f_locals.get("self") if frame is not None else None
        if frame is not None and isinstance(group, asyncio.TaskGroup) and frame.f_code.co_name == "__aexit__":
            current = asyncio.current_task()
            if current is not None and getattr(group, "_parent_cancel_requested", False) and current.cancelling():
                current.uncancel()
            return
        coroutine = getattr(coroutine, "cr_await", None)


class _Rest:
    """The rest of a coroutine that has begun, from what it waits for now."""

    __slots__ = ("context", "coroutine", "room", "waited")

    def __init__(self, context: Context, coroutine: Coroutine[Any, Any, Any], waited: Any, room: Room | None) -> None:
        self.context, self.coroutine, self.waited, self.room = context, coroutine, waited, room

    def __await__(self) -> Generator[Any, Any, Any]:
        run, coroutine, waited, room = self.context.run, self.coroutine, self.waited, self.room
        while True:
            try:
                sent = yield waited
                if room is not None and room.is_full:
                    yield from room.room().__await__()
            except GeneratorExit:
                run(coroutine.close)
                raise
            except BaseException as error:
                if _UNCOUNTED and isinstance(error, asyncio.CancelledError):
                    _settle_task_groups(coroutine)
                resume: Callable[[Any], Any] = coroutine.throw
                argument: Any = error
            else:
                resume, argument = coroutine.send, sent
            try:
                waited = run(resume, argument)
            except StopIteration as stop:
                return stop.value

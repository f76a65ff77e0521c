"""Awaiting in place inside of another context: as a plain await, but for context variables."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from contextvars import ContextVar, copy_context
from typing import Any

import pytest

from everstep.tasks.isolated import await_in

variable: ContextVar[str] = ContextVar("variable", default="unset")


async def test_what_is_set_inside_holds_inside_and_not_outside() -> None:
    async def inside() -> list[str]:
        seen = [variable.get()]
        variable.set("inside")
        await asyncio.sleep(0)
        seen.append(variable.get())
        return seen

    context = copy_context()
    assert await await_in(context, inside()) == ["unset", "inside"]
    assert variable.get() == "unset"
    assert context[variable] == "inside"


async def test_a_coroutine_that_never_waits_is_isolated_too() -> None:
    async def inside() -> str:
        variable.set("inside")
        return variable.get()

    assert await await_in(copy_context(), inside()) == "inside"
    assert variable.get() == "unset"


async def test_errors_come_out_as_they_are() -> None:
    async def at_once() -> None:
        raise ValueError("at once")

    async def later() -> None:
        await asyncio.sleep(0)
        raise ValueError("later")

    for coroutine, message in ((at_once(), "at once"), (later(), "later")):
        with pytest.raises(ValueError, match=message):
            await await_in(copy_context(), coroutine)


async def test_a_cancellation_reaches_what_is_awaited() -> None:
    entered, seen = asyncio.Event(), []

    async def inside() -> None:
        entered.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            seen.append(variable.get())
            raise

    context = copy_context()
    context.run(variable.set, "inside")
    task = asyncio.create_task(await_in(context, inside()))
    await entered.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert seen == ["inside"]


async def test_a_cancellation_may_be_swallowed_inside() -> None:
    entered = asyncio.Event()

    async def inside() -> str:
        entered.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await asyncio.sleep(0)
        return "swallowed"

    task = asyncio.create_task(await_in(copy_context(), inside()))
    await entered.wait()
    task.cancel()
    assert await task == "swallowed"


async def test_an_awaitable_that_is_no_coroutine_is_awaited_too() -> None:
    class Awaitable:
        def __await__(self) -> Generator[Any, None, str]:
            yield from asyncio.sleep(0).__await__()
            return variable.get()

    context = copy_context()
    context.run(variable.set, "inside")
    assert await await_in(context, Awaitable()) == "inside"


async def test_closing_from_outside_closes_what_is_awaited() -> None:
    closed: list[str] = []

    async def inside() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            closed.append(variable.get())

    context = copy_context()
    context.run(variable.set, "inside")
    coroutine = await_in(context, inside())
    coroutine.send(None)
    coroutine.close()
    assert closed == ["inside"]


async def test_the_current_task_is_that_of_the_caller() -> None:
    async def inside() -> object:
        await asyncio.sleep(0)
        return asyncio.current_task()

    assert await await_in(copy_context(), inside()) is asyncio.current_task()

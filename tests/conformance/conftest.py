"""Stores and caches of each kind, with a clock that tests move."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest

from everstep_savers.cache import BaseCache, InMemoryCache
from everstep_savers.sql.cache import SQLCache
from everstep_savers.sql.store import SQLStore
from everstep_savers.store.base import BaseStore
from everstep_savers.store.memory import InMemoryStore

OpenStore = Callable[..., Awaitable[BaseStore]]


class Clock:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.now = 1_700_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    """The clock of the stores and caches of a test."""
    return Clock()


@pytest.fixture(params=["memory", "sqlite", "postgres"])
async def open_store(request: pytest.FixtureRequest, clock: Clock) -> AsyncIterator[OpenStore]:
    """Opens stores of each kind in turn, those of a database on the same one; closes them at the end."""
    async with AsyncExitStack() as stack:

        async def opened(**options: Any) -> BaseStore:
            if request.param == "memory":
                return InMemoryStore(clock=clock, **options)
            url = request.getfixturevalue(f"{request.param}_url")
            return await stack.enter_async_context(SQLStore.from_url(url, clock=clock, **options))

        yield opened


@pytest.fixture
async def store(open_store: OpenStore) -> BaseStore:
    """An open store of each kind in turn."""
    return await open_store()


@pytest.fixture(params=["memory", "sqlite", "postgres"])
async def cache(request: pytest.FixtureRequest, clock: Clock) -> AsyncIterator[BaseCache[Any]]:
    """An open cache of each kind in turn."""
    if request.param == "memory":
        yield InMemoryCache(clock=clock)
        return
    found: SQLCache[Any] = SQLCache.from_url(request.getfixturevalue(f"{request.param}_url"), clock=clock)
    async with found:
        yield found

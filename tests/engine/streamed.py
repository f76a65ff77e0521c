"""Reading streams in tests."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest


async def events_of(graph: Any, given: Any, config: Any = None, **options: Any) -> list[Any]:
    """All that a run yields."""
    return [event async for event in graph.astream(given, config, **options)]


async def events_before(
    error: type[Exception], graph: Any, given: Any, config: Any = None, **options: Any
) -> list[Any]:
    """What a run yields before it fails with this error."""
    found: list[Any] = []

    async def read() -> None:
        async for event in graph.astream(given, config, **options):
            found.append(event)  # noqa: PERF401  # what came before the error is wanted

    with pytest.raises(error):
        await read()
    return found


async def turns(number: int = 50) -> None:
    """Give everything else a good many turns of the loop."""
    for _ in range(number):
        await asyncio.sleep(0)

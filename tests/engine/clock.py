"""Event loops in which nobody waits for time to pass.

`quick_clock` skips to the next timer when nothing else is left to do: timers fire in their order and at their exact
times. For graphs that wait for nothing but timers and each other. `leaping_clock` runs as any clock and leaps when it
is told to: for graphs that wait for databases too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def quick_clock() -> Iterator[None]:
    """Let the running loop skip the time it would wait."""
    loop: Any = asyncio.get_running_loop()
    select = loop._selector.select
    now: float = loop.time()

    def time() -> float:
        return now

    def skip(timeout: float | None) -> Any:
        nonlocal now
        if timeout:
            now += timeout
        # Without a timer only something from outside can wake the loop: then it waits for that.
        return select(None if timeout is None else 0)

    loop.time, loop._selector.select = time, skip
    try:
        yield
    finally:
        del loop.time, loop._selector.select


@contextmanager
def leaping_clock() -> Iterator[Callable[[float], None]]:
    """Give a function that moves the running loop's time on by some seconds."""
    loop: Any = asyncio.get_running_loop()
    real, ahead = loop.time, 0.0

    def leap(seconds: float) -> None:
        nonlocal ahead
        ahead += seconds

    loop.time = lambda: real() + ahead
    try:
        yield leap
    finally:
        del loop.time

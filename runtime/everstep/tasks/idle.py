"""The timeouts of one attempt: from its start, and since its last sign of life.

The body is cancelled when its time is up. A body that swallows that has timed out all the same: what it returns late
does not count. Signs of life may come from any thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

from everstep.errors import NodeTimeoutError
from everstep.policies import TimeoutPolicy
from everstep.tasks.current import Attempt


async def within(policy: TimeoutPolicy, attempt: Attempt, body: Awaitable[Any]) -> Any:
    """Await the body of an attempt, for as long as its policy allows.

    Raises:
        NodeTimeoutError: The time was up.
    """
    loop = attempt.run.loop
    started = loop.time()
    timer = asyncio.timeout(_seconds(policy.run_timeout))
    idle = _seconds(policy.idle_timeout)
    watch = None if idle is None else IdleWatch(attempt, idle, timer)
    try:
        async with timer:
            result = await body
    except TimeoutError:
        if not timer.expired():
            raise  # the body's own
    finally:
        if watch is not None:
            watch.stop()
    if timer.expired():
        raise NodeTimeoutError(
            attempt.node,
            loop.time() - started,
            kind="idle" if watch is not None and watch.is_idle else "run",
            idle_timeout=idle,
            run_timeout=_seconds(policy.run_timeout),
        )
    return result


class IdleWatch:
    """Lets a timer expire when an attempt gives no sign of life for too long.

    A sign only notes the time; the clock is set again when it has run down, not at each sign.

    Attributes:
        is_idle: That has happened.
    """

    def __init__(self, attempt: Attempt, limit: float, timer: asyncio.Timeout) -> None:
        self.is_idle = False
        self._attempt, self._limit, self._timer = attempt, limit, timer
        self._loop = attempt.run.loop
        attempt.last_sign = self._loop.time()
        self._clock = self._loop.call_later(limit, self._check)

    def stop(self) -> None:
        """Watch no longer."""
        self._clock.cancel()

    def _check(self) -> None:
        due = self._attempt.last_sign + self._limit
        if due > self._loop.time():
            self._clock = self._loop.call_at(due, self._check)
        elif not self._timer.expired():
            self.is_idle = True
            self._timer.reschedule(self._loop.time())


def _seconds(limit: Any) -> float | None:
    """TimeoutPolicy keeps seconds, whatever it was given."""
    return None if limit is None else float(limit)

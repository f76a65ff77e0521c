"""Policies for the faults of a node: when to try again, how long to wait, what to keep.

Frozen records and pure functions on them; nothing here sleeps or calls a node.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

from everstep.errors import EverstepError, PersistenceError

# Programming errors: another attempt gives the same result.
_NOT_RETRIED: tuple[type[Exception], ...] = (
    ValueError,
    TypeError,
    ArithmeticError,
    ImportError,
    LookupError,
    NameError,
    SyntaxError,
    RuntimeError,
    ReferenceError,
    StopIteration,
    StopAsyncIteration,
    OSError,
)


def is_transient(error: Exception) -> bool:
    """The default of `RetryPolicy.retry_on`: is another attempt likely to go better?

    Connection failures, timeouts and server errors (5xx) of httpx and requests are transient; programming
    errors, other built-in errors and those of this package are not; anything else is taken to be transient.
    """
    if isinstance(error, ConnectionError | TimeoutError):
        return True
    if isinstance(error, EverstepError | PersistenceError):
        return False
    if isinstance(error, ExceptionGroup):
        return all(is_transient(each) for each in error.exceptions)
    for module, name in (("httpx", "HTTPStatusError"), ("requests", "HTTPError")):
        kind = getattr(sys.modules.get(module), name, None)
        if kind is not None and isinstance(error, kind):
            response = getattr(error, "response", None)
            return response is None or response.status_code >= 500
    return not isinstance(error, _NOT_RETRIED)


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How a failed attempt of a node is repeated.

    Attributes:
        initial_interval: Seconds before the second attempt.
        backoff_factor: Each further wait is that many times longer.
        max_interval: Longest wait, in seconds.
        max_attempts: Attempts in all, the first one included.
        jitter: Add up to one second at random, so that many failed tasks do not come back at once.
        retry_on: Exception types, or a predicate of the exception.
    """

    initial_interval: float = 0.5
    backoff_factor: float = 2.0
    max_interval: float = 128.0
    max_attempts: int = 3
    jitter: bool = True
    retry_on: type[Exception] | Sequence[type[Exception]] | Callable[[Exception], bool] = is_transient

    def __post_init__(self) -> None:
        if self.max_attempts < 1:
            raise ValueError(f"RetryPolicy.max_attempts counts the first attempt: got {self.max_attempts}, least is 1")

    def matches(self, error: Exception) -> bool:
        """Does this policy repeat an attempt that failed with `error`?"""
        rule = self.retry_on
        if isinstance(rule, type):
            return isinstance(error, rule)
        if callable(rule):
            return bool(rule(error))
        return isinstance(error, tuple(rule))

    def delay(self, attempt: int, jitter: float) -> float:
        """Seconds to wait after failed attempt number `attempt` (from 1); `jitter` is in [0, 1)."""
        # The power is bounded first: an unbounded one overflows a float after a thousand attempts.
        wait = self.initial_interval
        for _ in range(attempt - 1):
            if wait >= self.max_interval:
                break
            wait *= self.backoff_factor
        return min(wait, self.max_interval) + (jitter if self.jitter else 0.0)


@dataclass(frozen=True, slots=True)
class TimeoutPolicy:
    """How long one attempt of a node may take.

    Attributes:
        run_timeout: From the attempt's start, in seconds or as a timedelta.
        idle_timeout: Since the last sign of life.
        refresh_on: What counts as one: any write or stream event ("auto"), or `runtime.heartbeat()` alone.
    """

    run_timeout: float | timedelta | None = None
    idle_timeout: float | timedelta | None = None
    refresh_on: Literal["auto", "heartbeat"] = "auto"

    @classmethod
    def of(cls, value: float | timedelta | TimeoutPolicy | None) -> TimeoutPolicy | None:
        """A policy from what users give: seconds, a timedelta, a policy or None."""
        if value is None or isinstance(value, TimeoutPolicy):
            return value
        return cls(run_timeout=value)

    def __post_init__(self) -> None:
        for name in ("run_timeout", "idle_timeout"):
            value = getattr(self, name)
            if value is None:
                continue
            seconds = value.total_seconds() if isinstance(value, timedelta) else value
            if isinstance(seconds, bool) or not isinstance(seconds, int | float):
                raise TypeError(f"{name} is seconds or a timedelta, got {type(value).__name__} {value!r}")
            if not seconds > 0:
                raise ValueError(f"{name} must be greater than zero, got {value!r}")
            object.__setattr__(self, name, float(seconds))


@dataclass(frozen=True, slots=True)
class CachePolicy:
    """How the result of a node is kept for equal inputs.

    Attributes:
        key_func: Gives the cache key for the node's input, anything that can be stored; by default the input itself.
        ttl: Seconds a result stays valid; None for as long as the cache lives, 0 for not at all.
    """

    key_func: Callable[..., Hashable] | None = None
    ttl: int | None = None

    def __post_init__(self) -> None:
        if self.key_func is not None and not callable(self.key_func):
            raise TypeError(f"CachePolicy.key_func is a function of the node's input, got {self.key_func!r}")


def retry_policies(value: RetryPolicy | Sequence[RetryPolicy] | None) -> tuple[RetryPolicy, ...]:
    """One policy, several (the first that matches counts) or none, as a tuple."""
    if value is None:
        return ()
    policies = (value,) if isinstance(value, RetryPolicy) else tuple(value) if isinstance(value, Sequence) else (value,)
    for policy in policies:
        if not isinstance(policy, RetryPolicy):
            raise TypeError(
                f"retry_policy is a RetryPolicy or a list of them, got {type(policy).__name__} {policy!r:.100}"
            )
    return policies

"""Policies for the faults of a node: when to try again, how long to wait, what to keep.

Frozen records and pure functions on them; nothing here sleeps or calls a node.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal, get_args

from everstep.declared import check_flag, check_kind, check_number, refusal
from everstep.errors import EverstepError, GraphBuildError, PersistenceError

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
        check_number("RetryPolicy.max_attempts, which counts the first attempt,", self.max_attempts, 1, whole=True)
        check_number("RetryPolicy.initial_interval", self.initial_interval, 0)
        check_number("RetryPolicy.backoff_factor", self.backoff_factor, 0)
        check_number("RetryPolicy.max_interval", self.max_interval, 0)
        check_flag("RetryPolicy.jitter", self.jitter)
        rule: Any = self.retry_on
        kinds = rule if isinstance(rule, list | tuple) else (rule,)
        # A class that is no exception is a predicate only by accident: called, it makes an instance.
        if not all(_is_exception_type(kind) for kind in kinds) and (isinstance(rule, type) or not callable(rule)):
            raise refusal("RetryPolicy.retry_on is an exception type, a list of them or a function of the error", rule)

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


def _is_exception_type(kind: object) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseException)


RefreshOn = Literal["auto", "heartbeat"]


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
    refresh_on: RefreshOn = "auto"

    @classmethod
    def of(cls, value: float | timedelta | TimeoutPolicy | None) -> TimeoutPolicy | None:
        """A policy from what users give: seconds, a timedelta, a policy or None."""
        if value is None or isinstance(value, TimeoutPolicy):
            return value
        return cls(run_timeout=value)

    def __post_init__(self) -> None:
        if self.refresh_on not in get_args(RefreshOn):
            raise GraphBuildError(f"refresh_on is 'auto' or 'heartbeat', got {self.refresh_on!r:.100}")
        for name in ("run_timeout", "idle_timeout"):
            value = getattr(self, name)
            if value is None:
                continue
            seconds = value.total_seconds() if isinstance(value, timedelta) else value
            if isinstance(seconds, bool) or not isinstance(seconds, int | float):
                raise refusal(f"{name} is seconds or a timedelta", value)
            if not seconds > 0:
                raise GraphBuildError(f"{name} must be greater than zero, got {value!r}")
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
            raise refusal("CachePolicy.key_func is a function of the node's input", self.key_func)
        if self.ttl is not None and (isinstance(self.ttl, bool) or not isinstance(self.ttl, int | float)):
            raise refusal("CachePolicy.ttl is a number of seconds", self.ttl)


def retry_policies(value: RetryPolicy | Sequence[RetryPolicy] | None) -> tuple[RetryPolicy, ...]:
    """One policy, several (the first that matches counts) or none, as a tuple.

    Raises:
        GraphTypeError: It is something else.
    """
    if value is None:
        return ()
    given: Any = value
    policies = tuple(given) if isinstance(given, Sequence) and not isinstance(given, str) else (given,)
    for policy in policies:
        check_kind("retry_policy is a RetryPolicy or a list of them", policy, RetryPolicy)
    return policies


def cache_policy_of(value: CachePolicy | None) -> CachePolicy | None:
    """The policy, or None.

    Raises:
        GraphTypeError: It is something else.
    """
    check_kind("cache_policy is a CachePolicy", value, (CachePolicy, type(None)))
    return value

"""Policies: what is tried again, how long is waited, which values are refused."""

from __future__ import annotations

from datetime import timedelta
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everstep.errors import InvalidUpdateError, NodeTimeoutError
from everstep.policies import RetryPolicy, TimeoutPolicy, is_transient, retry_policies
from everstep_savers.errors import ThreadConflict


class OwnError(Exception):
    """Somebody's own error."""


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ConnectionError(), True),
        (ConnectionResetError(), True),
        (TimeoutError(), True),
        (NodeTimeoutError("n", 1.0, kind="run", run_timeout=1.0), True),
        (OwnError(), True),
        (ValueError(), False),
        (TypeError(), False),
        (KeyError(), False),
        (ZeroDivisionError(), False),
        (ImportError(), False),
        (RuntimeError(), False),
        (FileNotFoundError(), False),
        (StopAsyncIteration(), False),
        (InvalidUpdateError(), False),
        (ThreadConflict(), False),
    ],
    ids=lambda value: type(value).__name__,
)
def test_connection_failures_and_foreign_errors_are_transient_and_mistakes_are_not(
    error: Exception, expected: bool
) -> None:
    assert is_transient(error) is expected


@pytest.mark.parametrize(("module", "name"), [("httpx", "HTTPStatusError"), ("requests", "HTTPError")])
def test_server_errors_of_http_clients_are_transient_and_client_errors_are_not(
    module: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    error_type = type(name, (OSError,), {})
    client = ModuleType(module)
    setattr(client, name, error_type)
    monkeypatch.setitem(__import__("sys").modules, module, client)

    def answered(status: int | None) -> Any:
        error: Any = error_type()
        error.response = None if status is None else SimpleNamespace(status_code=status)
        return error

    assert [is_transient(answered(status)) for status in (500, 503, None, 404, 429)] == [True, True, True, False, False]


@pytest.mark.parametrize(
    ("retry_on", "error", "expected"),
    [
        (KeyError, KeyError(), True),
        (LookupError, KeyError(), True),
        (KeyError, IndexError(), False),
        ((KeyError, OSError), FileNotFoundError(), True),
        ([KeyError], OSError(), False),
        (lambda error: "again" in str(error), ValueError("again"), True),
        (lambda error: "again" in str(error), ValueError("no"), False),
    ],
)
def test_retry_on_takes_types_and_predicates(retry_on: Any, error: Exception, expected: bool) -> None:
    assert RetryPolicy(retry_on=retry_on).matches(error) is expected


def test_the_waits_grow_by_the_factor_up_to_the_longest() -> None:
    policy = RetryPolicy(initial_interval=0.5, backoff_factor=2.0, max_interval=3.0, jitter=False)
    assert [policy.delay(attempt, 0.9) for attempt in range(1, 6)] == [0.5, 1.0, 2.0, 3.0, 3.0]


def test_jitter_is_added_only_if_it_is_wanted() -> None:
    assert RetryPolicy(initial_interval=1.0, jitter=True).delay(1, 0.25) == 1.25
    assert RetryPolicy(initial_interval=1.0, jitter=False).delay(1, 0.25) == 1.0


@settings(deadline=None, max_examples=200, derandomize=True)
@given(
    initial=st.floats(0, 1e6),
    factor=st.floats(1, 1e6),
    longest=st.floats(0, 1e6),
    attempt=st.integers(1, 10**6),
    jitter=st.floats(0, 1, exclude_max=True),
)
def test_no_wait_is_negative_or_longer_than_the_longest_and_the_jitter(
    initial: float, factor: float, longest: float, attempt: int, jitter: float
) -> None:
    policy = RetryPolicy(initial, factor, longest)
    assert 0 <= policy.delay(attempt, jitter) <= longest + jitter
    assert policy.delay(attempt, jitter) <= policy.delay(attempt + 1, jitter)


def test_max_attempts_counts_the_first_one() -> None:
    with pytest.raises(ValueError) as caught:
        RetryPolicy(max_attempts=0)
    assert str(caught.value) == (
        "RetryPolicy.max_attempts, which counts the first attempt, is a whole number from 1, got 0"
    )


@pytest.mark.parametrize("given_", [1.5, timedelta(seconds=1.5), TimeoutPolicy(run_timeout=1.5)])
def test_timeouts_are_given_as_seconds_a_timedelta_or_a_policy(given_: Any) -> None:
    assert TimeoutPolicy.of(given_) == TimeoutPolicy(run_timeout=1.5)
    assert TimeoutPolicy.of(None) is None


@pytest.mark.parametrize("name", ["run_timeout", "idle_timeout"])
def test_a_timeout_that_is_no_time_is_refused(name: str) -> None:
    for wrong, kind, message in (
        (0, ValueError, f"{name} must be greater than zero, got 0"),
        (-1.0, ValueError, f"{name} must be greater than zero, got -1.0"),
        (float("nan"), ValueError, f"{name} must be greater than zero, got nan"),
        ("1", TypeError, f"{name} is seconds or a timedelta, got str '1'"),
        (True, TypeError, f"{name} is seconds or a timedelta, got bool True"),
    ):
        with pytest.raises(kind) as caught:
            TimeoutPolicy(**{name: wrong})  # type: ignore[arg-type]  # the mistake under test
        assert str(caught.value) == message


def test_one_policy_several_and_none_become_a_tuple() -> None:
    one, two = RetryPolicy(), RetryPolicy(max_attempts=5)
    assert (retry_policies(None), retry_policies(one), retry_policies([two, one])) == ((), (one,), (two, one))

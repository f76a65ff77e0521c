"""A database sorts out nothing that a filter would find, whatever values and filters are like."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from everstep_savers.sql.store import SQLStore
from everstep_savers.store import PutOp
from everstep_savers.store.matching import OPERATORS, matches

V = ("v",)
TEXTS = st.text(st.sampled_from('ab"é%\0\ud800\U0001f600'), max_size=2) | st.sampled_from(
    ["x" * 200, "x" * 201, "x" * 202]
)
SMALL = st.integers(-3, 3)
NUMBERS = (
    SMALL
    | st.integers(2**53 - 2, 2**53 + 2)
    | st.integers(2**63 - 2, 2**63 + 2)
    | SMALL.map(float)
    | SMALL.map(Decimal)
)
FLOATS = st.floats() | st.floats(0, 2).map(lambda number: math.nextafter(number, 9)) | st.sampled_from([0.1, 0.3, -0.0])
SCALARS = st.none() | st.booleans() | NUMBERS | FLOATS | TEXTS | st.binary(max_size=1)
MEMBERS = SCALARS | st.lists(SCALARS, max_size=2) | st.dictionaries(st.sampled_from("ab"), SCALARS, max_size=2)
KEYS = st.sampled_from(["a", "", "a.b", "$", "$[0]", '"', "é", "a\0"])


@pytest.fixture
def runner() -> Iterator[asyncio.Runner]:
    """One event loop for all examples."""
    with asyncio.Runner() as opened:
        yield opened


def filters(key: str, wanted: Any) -> Iterator[dict[str, Any]]:
    """Every kind of condition that can be made of a value."""
    for operator in OPERATORS:
        yield {key: {operator: wanted}}
        yield {key: {"a": {operator: wanted}}}
    if not isinstance(wanted, dict):
        yield {key: wanted}


def test_sql_finds_what_matches(runner: asyncio.Runner, saver_url: str) -> None:
    store = SQLStore.from_url(saver_url, synchronous="OFF")

    @settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True, database=None)
    @given(st.lists(MEMBERS, min_size=4, max_size=12), MEMBERS, KEYS)
    def compare(members: list[Any], other: Any, key: str) -> None:
        values = [{}, *({key: member} for member in members)]

        async def fill() -> None:
            old = [PutOp(V, item.key, None) for item in await store.asearch(V, limit=100)]
            await store.abatch([*old, *(PutOp(V, f"{n:02}", value) for n, value in enumerate(values))])

        runner.run(fill())
        for wanted in (*members[:3], other):
            for filter in filters(key, wanted):  # noqa: A001
                found = runner.run(store.asearch(V, filter=filter, limit=100))
                assert {item.key for item in found} == {
                    f"{n:02}" for n, value in enumerate(values) if matches(value, filter)
                }

    try:
        compare()
    finally:
        runner.run(store.aclose())

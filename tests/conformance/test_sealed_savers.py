"""The conformance suite on our own savers with a sealed codec."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from everstep_savers.base import MaintainedSaver
from everstep_savers.conformance import commits, listing, maintenance, pruning, reading, results
from everstep_savers.memory import InMemorySaver
from everstep_savers.sql.saver import SQLSaver
from tests.conformance.test_sealed import codec


@pytest.fixture(params=["memory", "sqlite", "postgres"])
async def saver(request: pytest.FixtureRequest) -> AsyncIterator[MaintainedSaver[Any]]:
    """A saver of each kind in turn, which compresses and encrypts."""
    if request.param == "memory":
        yield InMemorySaver(codec=codec())
        return
    async with SQLSaver.from_url(request.getfixturevalue(f"{request.param}_url"), codec=codec()) as opened:
        yield opened


written_by_others = maintenance.written_by_others
for part in (commits, listing, maintenance, pruning, reading, results):
    globals().update({name: test for name, test in vars(part).items() if name.startswith("test_")})

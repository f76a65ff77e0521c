"""A graph with a cached node, whose process may be killed while it computes; several processes share the cache.

Of processes whose plans meet, each waits in the node until all are in it, and may die then (``"met"``). What is
cached is large, so that a value that was written half would show.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, TypedDict

from everstep.constants import START
from everstep.graph.builder import StateGraph
from everstep.types import CachePolicy
from everstep_savers.sql.cache import SQLCache
from tests.recovery.killable import Life, Plan

SIZE = 5000


class Numbers(TypedDict, total=False):
    number: int
    squares: list[Any]


async def compute(plan: Plan) -> Any:
    """Run the graph; who has computed what it gives."""
    life = Life(plan)

    async def square(state: Numbers) -> Numbers:
        life.work("square")
        Path(f"{plan.ledger}.{plan.tag}").touch()
        while not all(Path(f"{plan.ledger}.{tag}").exists() for tag in plan.meet):  # noqa: ASYNC110 - see below
            await asyncio.sleep(0.001)  # no event reaches from one process to another
        life.pass_by("met")
        return {"squares": [plan.tag, *[state["number"] ** 2] * SIZE]}

    async with SQLCache[Any].from_url(plan.url) as cache:
        builder = StateGraph(Numbers).add_node("square", square, cache_policy=CachePolicy(ttl=3600))
        result = await builder.add_edge(START, "square").compile(cache=cache).ainvoke({"number": 7})
    computed_by, *squares = result["squares"]
    assert squares == [49] * SIZE
    return computed_by


async def hammer(plan: Plan) -> Any:
    """Set, get, sweep and clear the same entries as others, and check that every value is a whole one."""
    keys = [(("ns", str(number % 2)), f"k{number}") for number in range(20)]
    async with SQLCache[Any].from_url(plan.url) as cache:
        for turn in range(40):
            await cache.aset({full: ([plan.tag] * 500, 1 if turn % 4 else None) for full in keys[turn % 5 :]})
            for value in (await cache.aget(keys)).values():
                assert len(value) == 500
                assert len(set(value)) == 1
            if turn % 5 == 4:
                await cache.aclear([keys[turn % 2][0]])
                await cache.asweep()
    return "done"


CACHE_DEEDS = {"compute": compute, "hammer": hammer}

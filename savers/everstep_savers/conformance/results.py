"""`NewCheckpoint.results`: what led to a checkpoint is listed with the one before it."""

from __future__ import annotations

from typing import Any

import pytest

from everstep_savers.base import AtomicSaver
from everstep_savers.checkpoint import TaskWrites
from everstep_savers.conformance.records import claim, config, named, new, step

Saver = AtomicSaver[Any]


async def results_of_three_steps(saver: Saver) -> list[str]:
    """Three checkpoints; the second and the third hold the results of the step that led to them."""
    first = new({"n": 0}, 1)
    made = [first]
    token = await saver.acommit(saver.prepare(claim("t-1", first)))
    for number in (1, 2):
        parent = made[-1].checkpoint["id"]
        results = (
            TaskWrites("", parent, f"task-{number}", [("n", number), ("m", "x")], "path", "node"),
            TaskWrites("", parent, f"task-{number}b", [("n", None)]),
        )
        made.append(new({"n": number}, number + 1, parent=parent, results=results))
        await saver.acommit(saver.prepare(step(token, made[-1])))
    return [each.checkpoint["id"] for each in made]


RESULTS = {
    0: [("task-1", "n", 1), ("task-1", "m", "x"), ("task-1b", "n", None)],
    1: [("task-2", "n", 2), ("task-2", "m", "x"), ("task-2b", "n", None)],
    2: [],
}


async def test_results_are_listed_as_pending_writes_of_the_checkpoint_before(saver: Saver) -> None:
    made = await results_of_three_steps(saver)

    found = [each async for each in saver.alist(config())]

    assert [each.pending_writes for each in found] == [RESULTS[2], RESULTS[1], RESULTS[0]]
    assert [named(each) for each in found] == made[::-1]


@pytest.mark.parametrize("number", [0, 1, 2])
async def test_results_are_found_where_the_checkpoint_that_holds_them_is_not_listed(saver: Saver, number: int) -> None:
    made = await results_of_three_steps(saver)

    async def writes(**options: Any) -> Any:
        return [each.pending_writes async for each in saver.alist(**options)]

    assert await writes(config=config(checkpoint_id=made[number])) == [RESULTS[number]]
    assert await writes(config=config(), filter={"step": 0}, limit=1) == [RESULTS[2]]
    if number < 2:
        before = config(checkpoint_id=made[number + 1])
        assert await writes(config=config(), before=before, limit=1) == [RESULTS[number]]


async def test_a_checkpoint_read_alone_has_only_writes_stored_against_it(saver: Saver) -> None:
    made = await results_of_three_steps(saver)

    found = await saver.aget_tuple(config(checkpoint_id=made[0]))

    assert found is not None
    assert found.pending_writes == []

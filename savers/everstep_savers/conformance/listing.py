"""`alist`: newest first, in pages, filtered, and never in anybody's way."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from everstep_savers.base import BaseCheckpointSaver
from everstep_savers.checkpoint import empty_checkpoint
from everstep_savers.conformance.records import config, named, put_chain
from everstep_savers.errors import CodecError

Saver = BaseCheckpointSaver

# More than a page holds.
MANY = 120


async def ids(saver: Saver, *arguments: Any, **options: Any) -> list[str]:
    return [named(each) async for each in saver.alist(*arguments, **options)]


async def test_checkpoints_are_listed_newest_first_whole_and_over_pages(saver: Saver) -> None:
    made = await put_chain(saver, MANY)
    await saver.aput_writes(config(checkpoint_id=made[3]), [("a", 1)], "task-1")

    found = [each async for each in saver.alist(config())]

    assert [named(each) for each in found] == made[::-1]
    assert [each.checkpoint["channel_values"]["n"] for each in found] == list(range(MANY))[::-1]
    assert [each.metadata["step"] for each in found] == list(range(MANY))[::-1]
    assert [each.pending_writes for each in found if each.pending_writes] == [[("task-1", "a", 1)]]
    assert found[-1].parent_config is None
    assert found[0].parent_config == config("t-1", made[-2], "")


async def test_a_listed_checkpoint_is_the_one_read_by_its_config(saver: Saver) -> None:
    await put_chain(saver, 3)

    found = [each async for each in saver.alist(config())]

    assert [await saver.aget_tuple(each.config) for each in found] == found


@pytest.mark.parametrize("limit", [0, 1, 50, 51, MANY, MANY + 1])
async def test_a_limit_ends_the_listing(saver: Saver, limit: int) -> None:
    made = await put_chain(saver, MANY)

    assert await ids(saver, config(), limit=limit) == made[::-1][:limit]


async def test_before_lists_only_older_checkpoints(saver: Saver) -> None:
    made = await put_chain(saver, 5)

    assert await ids(saver, config(), before=config(checkpoint_id=made[3])) == [made[2], made[1], made[0]]
    assert await ids(saver, config(), before=config(checkpoint_id=made[3]), limit=1) == [made[2]]
    assert await ids(saver, config(), before=config()) == made[::-1]


async def test_a_checkpoint_id_lists_that_one(saver: Saver) -> None:
    made = await put_chain(saver, 3)

    assert await ids(saver, config(checkpoint_id=made[1])) == [made[1]]


async def test_without_a_namespace_all_of_the_thread_are_listed(saver: Saver) -> None:
    root = await put_chain(saver, 2)
    child = await put_chain(saver, 2, ns="child")
    await put_chain(saver, 1, thread_id="t-2")

    assert await ids(saver, config(ns=None)) == sorted(root + child, reverse=True)
    assert await ids(saver, config(ns="")) == root[::-1]
    assert await ids(saver, config(ns="child")) == child[::-1]


async def test_without_a_config_all_threads_are_listed(saver: Saver) -> None:
    made = [*await put_chain(saver, 30), *await put_chain(saver, 30, thread_id="t-2")]

    assert await ids(saver, None) == sorted(made, reverse=True)


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ({"source": "loop"}, [1, 2]),
        ({"source": "loop", "step": 2}, [2]),
        ({"step": -1}, [0]),
        ({"run_id": "r"}, [2]),
        ({"run_id": ""}, []),
        ({"parents": {}}, [0, 1]),
        ({"parents": {"": "c"}}, []),
        ({"source": "none"}, []),
        ({}, [0, 1, 2]),
        ({"user": {"b": [1], "a": "x"}}, [1]),
        ({"user": {"a": "x"}}, []),
        ({"score": 1.5}, [1]),
        ({"score": 1}, [2]),
        ({"score": 1.0}, []),
        ({"flag": True}, [1]),
        ({"flag": 1}, []),
        ({"flag": False}, [2]),
        ({"none": None}, [1]),
        ({"missing": None}, []),
        ({"list": [1, "two"]}, [2]),
        ({'a"b\\c.d': "v"}, [2]),
        ({"text": 'it\'s "é"\n%_'}, [1]),
        ({"text": "it"}, []),
        ({"' OR 1=1 --": "x"}, []),
    ],
    ids=str,
)
async def test_a_filter_selects_metadata_with_exactly_these_values(
    saver: Saver, wanted: dict[str, Any], expected: list[int]
) -> None:
    metadata: list[Any] = [
        {"source": "input", "step": -1, "parents": {}},
        {
            "source": "loop",
            "step": 1,
            "user": {"a": "x", "b": [1]},
            "score": 1.5,
            "flag": True,
            "none": None,
            "parents": {},
            "text": 'it\'s "é"\n%_',
        },
        {
            "source": "loop",
            "step": 2,
            "run_id": "r",
            "score": 1,
            "flag": False,
            "list": (1, "two"),
            'a"b\\c.d': "v",
        },
    ]
    made = []
    for each in metadata:
        checkpoint = empty_checkpoint()
        await saver.aput(config(), checkpoint, each, {})
        made.append(checkpoint["id"])

    assert await ids(saver, config(), filter=wanted) == [made[number] for number in expected[::-1]]


async def test_a_filter_reaches_over_pages(saver: Saver) -> None:
    made = await put_chain(saver, MANY)

    assert await ids(saver, config(), filter={"step": 1}) == [made[1]]
    assert await ids(saver, config(), filter={"source": "loop"}, limit=70) == made[::-1][:70]


async def test_a_filter_that_is_not_json_is_refused(saver: Saver) -> None:
    with pytest.raises(CodecError):
        await ids(saver, config(), filter={"user": object()})


async def test_a_paused_listing_holds_back_no_writer(saver: Saver) -> None:
    made = await put_chain(saver, MANY)
    listing = saver.alist(config())
    found = [await anext(listing)]

    async with asyncio.timeout(1):
        await saver.aput_writes(config(checkpoint_id=made[0]), [("a", 1)], "task-1")
        newer = await put_chain(saver, 1)

    found += [each async for each in listing]
    assert [named(each) for each in found] == made[::-1]
    assert found[-1].pending_writes == [("task-1", "a", 1)]
    assert await ids(saver, config(), limit=1) == newer


async def test_a_listing_ends_when_its_thread_is_deleted(saver: Saver) -> None:
    made = await put_chain(saver, MANY)
    listing = saver.alist(config())
    found = [await anext(listing)]

    async with asyncio.timeout(1):
        await saver.adelete_thread("t-1")

    found += [each async for each in listing]
    assert [named(each) for each in found] == made[::-1][: len(found)]
    assert len(found) < MANY


async def test_a_listing_may_be_left_early(saver: Saver) -> None:
    await put_chain(saver, 3)
    listing = saver.alist(config())
    await anext(listing)

    await listing.aclose()  # type: ignore[attr-defined]

    await put_chain(saver, 1, thread_id="t-2")

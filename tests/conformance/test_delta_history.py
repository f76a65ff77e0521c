"""What a channel got on the line that leads to a checkpoint, from savers of every kind and from the default walk."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from everstep_savers.base import AtomicSaver, BaseCheckpointSaver
from everstep_savers.blocking import run_blocking
from everstep_savers.checkpoint import DeltaChannelHistory, TaskWrites
from everstep_savers.delta import DeltaSeed
from everstep_savers.memory import InMemorySaver
from everstep_savers.sql.saver import SQLSaver
from tests.conformance.records import checkpoint, claim, config, record, step

Saver = AtomicSaver[Any]
Write = tuple[str, str, Any]


async def put(
    saver: Saver, parent: Any, values: dict[str, Any], version: int, writes: Sequence[Write] = (), path: str = ""
) -> Any:
    """A checkpoint in which these channels, and ``d``, are new; writes of tasks against it."""
    versions = {**dict.fromkeys(values, version), "d": version}
    configurable = parent["configurable"]
    made = checkpoint(values, versions, after=configurable.get("checkpoint_id"))
    at = await saver.aput(parent, made, {"step": version}, versions)
    for task_id, channel, value in writes:
        await saver.aput_writes(at, [(channel, value)], task_id, path)
    return at


async def both(saver: Saver, at: Any, *channels: str) -> dict[str, DeltaChannelHistory]:
    """The history by the saver itself, which is that of the default walk."""
    found = await saver.aget_delta_channel_history(config=at, channels=channels)
    assert await BaseCheckpointSaver.aget_delta_channel_history(saver, config=at, channels=channels) == found
    return found


async def test_writes_of_the_ancestors_come_oldest_first_without_those_of_the_checkpoint_itself(saver: Saver) -> None:
    at = config()
    for n in range(3):
        at = await put(saver, at, {}, n + 1, [(f"t{n}", "d", n), (f"t{n}", "other", -n)])

    assert await both(saver, at, "d") == {"d": {"writes": [("t0", "d", 0), ("t1", "d", 1)]}}
    assert await both(saver, config(), "d") == await both(saver, at, "d")


async def test_the_walk_ends_for_a_channel_at_the_nearest_stored_value(saver: Saver) -> None:
    one = await put(saver, config(), {"d": "one", "e": 1}, 1, [("t", "d", 1), ("t", "e", 1)])
    two = await put(saver, one, {"d": "two"}, 2, [("t", "d", 2), ("u", "e", 2)])
    three = await put(saver, two, {}, 3)

    assert await both(saver, three, "d", "e", "none") == {
        "d": {"writes": [("t", "d", 2)], "seed": "two"},
        "e": {"writes": [("u", "e", 2)], "seed": 1},
        "none": {"writes": []},
    }
    assert await both(saver, two, "d") == {"d": {"writes": [("t", "d", 1)], "seed": "one"}}
    assert await both(saver, one, "d", "e") == {"d": {"writes": []}, "e": {"writes": []}}


async def test_none_is_a_value_and_a_value_without_a_version_is_one_too(saver: Saver) -> None:
    made = checkpoint({"d": None, "x": "kept"}, {"d": 1})
    one = await saver.aput(config(), made, {}, {"d": 1})
    two = await put(saver, one, {}, 2)

    assert await both(saver, two, "d", "x") == {
        "d": {"writes": [], "seed": None},
        "x": {"writes": [], "seed": "kept"},
    }


async def test_only_the_line_of_the_checkpoint_counts(saver: Saver) -> None:
    root = await put(saver, config(), {}, 1, [("t", "d", "root")])
    left = await put(saver, root, {}, 2, [("t", "d", "left")])
    right = await put(saver, root, {}, 3, [("t", "d", "right")])

    for branch, name in ((left, "left"), (right, "right")):
        end = await put(saver, branch, {}, 4)
        assert await both(saver, end, "d") == {"d": {"writes": [("t", "d", "root"), ("t", "d", name)]}}


async def test_the_writes_of_one_step_come_in_the_order_in_which_they_are_applied(saver: Saver) -> None:
    one = await put(saver, config(), {}, 1, [("a", "d", 3)], "~2")
    await saver.aput_writes(one, [("d", 1), ("d", 2)], "b", "~1")
    await saver.aput_writes(one, [("d", 0)], "c")
    two = await put(saver, one, {}, 2)

    found = await saver.aget_delta_channel_history(config=two, channels=["d"])

    assert found == {"d": {"writes": [("c", "d", 0), ("b", "d", 1), ("b", "d", 2), ("a", "d", 3)]}}


async def test_results_kept_with_the_next_checkpoint_count_on_their_line(saver: Saver) -> None:
    one = checkpoint({"d": [0], "n": 0}, {"d": 1, "n": 1})
    first = record(one, {"d": 1, "n": 1})
    token = await saver.acommit(saver.prepare(claim("t-1", first, status="done")))
    children = []
    for version, item in ((2, "left"), (3, "right")):
        made = checkpoint({"n": item}, {"d": 1, "n": version}, after=one["id"])
        new = record(made, {"n": version}, parent=one["id"])
        results = [TaskWrites("", one["id"], f"task-{item}", [("n", item), ("d", [item])])]
        await saver.acommit(saver.prepare(step(token, replace(new, results=results))))
        children.append(config(checkpoint_id=made["id"]))

    for at, item in zip(children, ("left", "right"), strict=True):
        found = await saver.aget_delta_channel_history(config=at, channels=["d", "n"])
        assert found == {
            "d": {"writes": [(f"task-{item}", "d", [item])], "seed": [0]},
            "n": {"writes": [(f"task-{item}", "n", item)], "seed": 0},
        }


async def test_a_log_tells_its_own_history(saver: Saver) -> None:
    log = [DeltaSeed(["seed"]), [["a"], ["b"]], [["c"]]]
    one = await put(saver, config(), {"d": log}, 1, [("t", "d", ["pending"])])
    two = await put(saver, one, {}, 2)

    (own,) = (await both(saver, one, "d")).values()
    assert own["seed"] == ["seed"]
    assert [value for _, _, value in own["writes"]] == [["a"], ["b"], ["c"]]
    (later,) = (await both(saver, two, "d")).values()
    assert later["seed"] == ["seed"]
    assert [value for _, _, value in later["writes"]] == [["a"], ["b"], ["c"], ["pending"]]


@pytest.mark.parametrize("length", [49, 50, 51, 120])
async def test_a_long_line_is_walked_to_its_end(saver: Saver, length: int) -> None:
    at = await put(saver, config(), {"d": "seed"}, 1, [("t", "d", 0)])
    for n in range(1, length):
        at = await put(saver, at, {}, n + 1, [("t", "d", n)])
    at = await put(saver, at, {}, length + 1)

    found = await saver.aget_delta_channel_history(config=at, channels=["d"])

    assert found["d"]["seed"] == "seed"
    assert [value for _, _, value in found["d"]["writes"]] == list(range(length))


async def test_a_line_that_bites_its_own_tail_ends(saver: Saver) -> None:
    one, two = checkpoint({}, {}), checkpoint({}, {})
    for made, parent in ((one, two), (two, one)):
        at = await saver.aput(config(checkpoint_id=parent["id"]), made, {}, {})
        await saver.aput_writes(at, [("d", made["id"])], "t")

    found = await saver.aget_delta_channel_history(config=config(checkpoint_id=one["id"]), channels=["d"])

    assert {value for _, _, value in found["d"]["writes"]} <= {one["id"], two["id"]}


async def test_no_channels_and_no_checkpoint_have_no_history(saver: Saver) -> None:
    at = await put(saver, config(), {"d": 1}, 1)

    assert await both(saver, at) == {}
    assert await both(saver, config("nobody"), "d") == {"d": {"writes": []}}
    assert await both(saver, config(checkpoint_id="none"), "d") == {"d": {"writes": []}}


def test_a_plain_script_gets_the_history_too(saver_url: str) -> None:
    async def write(saver: Saver) -> Any:
        one = await put(saver, config(), {"d": "seed"}, 1, [("t", "d", 1)])
        return await put(saver, one, {}, 2)

    memory = InMemorySaver()
    at = asyncio.run(write(memory))
    expected = {"d": {"writes": [("t", "d", 1)], "seed": "seed"}}
    assert memory.get_delta_channel_history(config=at, channels=["d"]) == expected

    async def stored() -> Any:
        async with SQLSaver.from_url(saver_url) as saver:
            return await write(saver)

    at = asyncio.run(stored())
    saver = SQLSaver.from_url(saver_url)
    try:
        assert saver.get_delta_channel_history(config=at, channels=["d"]) == expected
        assert saver.get_delta_channel_history(config=at, channels=["d"]) == expected
    finally:
        run_blocking(saver.aclose, "aclose", saver._loop)


async def test_inside_a_loop_the_async_method_is_named(saver: Saver) -> None:
    with pytest.raises(RuntimeError) as caught:
        saver.get_delta_channel_history(config=config(), channels=["d"])

    assert str(caught.value) == (
        "get_delta_channel_history() would block the running event loop; use the async aget_delta_channel_history() "
        "here"
    )

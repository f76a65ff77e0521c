"""`BaseCheckpointSaver`: what is put is read again, as it was; a test per sentence of the contract."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

import pytest

from everstep_savers.base import BaseCheckpointSaver
from everstep_savers.checkpoint import ERROR, INTERRUPT, RESUME, WRITES_IDX_MAP, empty_checkpoint
from everstep_savers.conformance.records import checkpoint, config, named, put_chain
from everstep_savers.conformance.storage import Storage
from everstep_savers.errors import CheckpointNotFound, CodecError

Saver = BaseCheckpointSaver


async def test_a_checkpoint_comes_back_as_it_was_put(saver: Saver) -> None:
    made = checkpoint({"n": 1, "items": ["a"]}, {"n": 1, "items": 1, "gone": 2})

    at = await saver.aput(config(), made, {"source": "input", "step": -1, "parents": {}}, {"n": 1, "items": 1})

    found = await saver.aget_tuple(at)
    assert found is not None
    assert found.checkpoint == made
    assert found.metadata == {"source": "input", "step": -1, "parents": {}}
    assert found.parent_config is None
    assert found.pending_writes == []
    assert await saver.aget(at) == made


async def test_the_returned_config_names_the_checkpoint_by_all_three_keys(saver: Saver) -> None:
    made = empty_checkpoint()

    at = await saver.aput(config(ns=None), made, {}, {})

    found = await saver.aget_tuple(config(ns=None))
    assert found is not None
    assert at == found.config == config("t-1", made["id"], "")


async def test_the_parent_config_names_the_checkpoint_that_was_put_under(saver: Saver) -> None:
    first, second = await put_chain(saver, 2)

    found = await saver.aget_tuple(config(checkpoint_id=second))

    assert found is not None
    assert found.parent_config == config("t-1", first, "")


async def test_without_an_id_the_head_is_returned(saver: Saver) -> None:
    ids = await put_chain(saver, 3)

    assert named(await saver.aget_tuple(config())) == ids[-1]


async def test_an_older_checkpoint_put_late_does_not_become_the_head(saver: Saver) -> None:
    older = empty_checkpoint()
    (newer,) = await put_chain(saver, 1)

    await saver.aput(config(), older, {}, {})

    assert named(await saver.aget_tuple(config())) == newer


async def test_a_namespace_has_a_newest_checkpoint_of_its_own(saver: Saver) -> None:
    (root,) = await put_chain(saver, 1)
    child_ids = await put_chain(saver, 2, ns="child")

    assert named(await saver.aget_tuple(config(ns="child"))) == child_ids[-1]
    assert named(await saver.aget_tuple(config())) == root


@pytest.mark.parametrize("at", [config("nobody"), config(checkpoint_id="none"), config(ns="none")], ids=str)
async def test_what_was_never_put_is_none(saver: Saver, at: dict[str, Any]) -> None:
    await put_chain(saver, 1)

    assert await saver.aget_tuple(at) is None
    assert await saver.aget(at) is None


async def test_loading_a_checkpoint_that_the_thread_does_not_have_is_an_error(saver: Saver) -> None:
    await put_chain(saver, 1)

    with pytest.raises(CheckpointNotFound):
        await saver.aload(config(checkpoint_id="none"))


async def test_loading_an_unknown_thread_finds_nothing(saver: Saver) -> None:
    loaded = await saver.aload(config("nobody"))

    assert (loaded.saved, loaded.thread, loaded.newest_version) == (None, None, 0)


async def test_an_unchanged_channel_is_found_under_the_version_it_had(saver: Saver) -> None:
    first = checkpoint({"big": "x" * 1000, "n": 0}, {"big": 1, "n": 1})
    at = await saver.aput(config(), first, {}, {"big": 1, "n": 1})
    second = checkpoint({"big": "not stored", "n": 1}, {"big": 1, "n": 2}, after=first["id"])

    await saver.aput(at, second, {}, {"n": 2})

    found = await saver.aget(config())
    assert found is not None
    assert found["channel_values"] == {"big": "x" * 1000, "n": 1}


async def test_a_changed_channel_without_a_value_is_empty(saver: Saver) -> None:
    first = checkpoint({"n": 0}, {"n": 1})
    at = await saver.aput(config(), first, {}, {"n": 1})

    await saver.aput(at, checkpoint({}, {"n": 2}, after=first["id"]), {}, {"n": 2})

    found = await saver.aget(config())
    assert found is not None
    assert found["channel_values"] == {}
    assert found["channel_versions"] == {"n": 2}


async def test_putting_a_checkpoint_again_replaces_it(saver: Saver) -> None:
    made = checkpoint({"n": 1}, {"n": 1})
    await saver.aput(config(), made, {"step": 1}, {"n": 1})

    await saver.aput(config(), made, {"step": 2}, {"n": 1})

    found = [each async for each in saver.alist(config())]
    assert [each.metadata for each in found] == [{"step": 2}]


async def test_a_second_value_under_one_version_is_kept_by_its_checkpoint_alone(saver: Saver) -> None:
    first = checkpoint({"n": "first", "m": 1}, {"n": 1, "m": 1})
    at = await saver.aput(config(), first, {}, {"n": 1, "m": 1})
    other = checkpoint({"n": "other", "m": 1}, {"n": 1, "m": 1}, after=first["id"])

    later = await saver.aput(at, other, {}, {"n": 1})

    for where, value in ((at, "first"), (later, "other")):
        found = await saver.aget(where)
        assert found is not None
        assert found["channel_values"] == {"n": value, "m": 1}


@pytest.mark.parametrize("versions", [("1", "2"), (1, 2), (1.0, 1.5), ("00000000.5", "00000001.5")], ids=str)
async def test_versions_of_every_kind_come_back_as_they_were(saver: Saver, versions: tuple[Any, Any]) -> None:
    one, two = versions
    first = checkpoint({"a": "A", "b": "B"}, {"a": one, "b": one})
    at = await saver.aput(config(), first, {}, {"a": one, "b": one})
    second = checkpoint({"a": "A", "b": "C"}, {"a": one, "b": two}, after=first["id"])

    await saver.aput(at, second, {}, {"b": two})

    found = await saver.aget(config())
    assert found is not None
    assert found["channel_values"] == {"a": "A", "b": "C"}
    assert found["channel_versions"] == {"a": one, "b": two}
    assert [type(version) for version in found["channel_versions"].values()] == [type(one), type(two)]


async def test_a_timestamp_of_any_form_comes_back_as_it_was(saver: Saver) -> None:
    forms = [
        "2024-05-01T10:00:00+00:00",
        "2024-05-01T10:00:00.123456+00:00",
        "2024-05-01T10:00:00.000000+00:00",
        "2024-05-01 10:00:00.123456+00:00",
        "2024-05-01T10:00:00,123456+00:00",
        "2024-05-01T10:00:00.123456-01:00",
        "2024-05-01T10:00:00.12345a+00:00",
        "2024-05-01T12:00:00+02:00",
        "2024-05-01T12:00:00",
        "noon",
    ]

    for form in forms:
        made = empty_checkpoint()
        made["ts"] = form
        at = await saver.aput(config(), made, {}, {})
        found = await saver.aget(at)
        assert found is not None
        assert found["ts"] == form


async def test_writes_come_in_the_order_of_task_then_index(saver: Saver) -> None:
    (first,) = await put_chain(saver, 1)
    at = config(checkpoint_id=first)

    await saver.aput_writes(at, [("b", 2), ("a", 1)], "task-2")
    await saver.aput_writes(at, [("c", 3)], "task-1", "path")

    found = await saver.aget_tuple(at)
    assert found is not None
    assert found.pending_writes == [("task-1", "c", 3), ("task-2", "b", 2), ("task-2", "a", 1)]


async def test_ordinary_writes_are_kept_as_first_written(saver: Saver) -> None:
    (first,) = await put_chain(saver, 1)
    at = config(checkpoint_id=first)
    await saver.aput_writes(at, [("a", 1)], "task-1")

    await saver.aput_writes(at, [("a", 2), ("b", 3)], "task-1")

    found = await saver.aget_tuple(at)
    assert found is not None
    assert found.pending_writes == [("task-1", "a", 1), ("task-1", "b", 3)]


@pytest.mark.parametrize("channel", WRITES_IDX_MAP)
async def test_a_special_write_replaces_an_earlier_one_of_the_same_task_and_kind(saver: Saver, channel: str) -> None:
    (first,) = await put_chain(saver, 1)
    at = config(checkpoint_id=first)
    await saver.aput_writes(at, [(channel, "old"), ("a", 1)], "task-1")

    await saver.aput_writes(at, [(channel, "new")], "task-1")
    await saver.aput_writes(at, [(channel, "other task")], "task-2")

    found = await saver.aget_tuple(at)
    assert found is not None
    assert found.pending_writes == [
        ("task-1", channel, "new"),
        ("task-1", "a", 1),
        ("task-2", channel, "other task"),
    ]


async def test_special_writes_of_different_kinds_stand_side_by_side(saver: Saver) -> None:
    (first,) = await put_chain(saver, 1)
    at = config(checkpoint_id=first)

    await saver.aput_writes(at, [(INTERRUPT, "?"), (RESUME, "!"), (ERROR, ValueError("no"))], "task-1")

    found = await saver.aget_tuple(at)
    assert found is not None
    writes = {channel: value for _, channel, value in found.pending_writes or []}
    assert (writes[INTERRUPT], writes[RESUME]) == ("?", "!")
    assert (type(writes[ERROR]), str(writes[ERROR])) == (ValueError, "no")


async def test_writes_belong_to_their_checkpoint_only(saver: Saver) -> None:
    first, second = await put_chain(saver, 2)

    await saver.aput_writes(config(checkpoint_id=first), [("a", 1)], "task-1")

    found = await saver.aget_tuple(config(checkpoint_id=second))
    assert found is not None
    assert found.pending_writes == []


async def test_writes_need_a_checkpoint_id(saver: Saver) -> None:
    with pytest.raises(ValueError):
        await saver.aput_writes(config(), [("a", 1)], "task-1")


async def test_a_config_without_a_thread_is_refused(saver: Saver) -> None:
    with pytest.raises(ValueError):
        await saver.aget_tuple({"configurable": {}})


async def test_numbers_are_thread_ids_by_their_text(saver: Saver) -> None:
    await put_chain(saver, 1, thread_id="17")

    assert await saver.aget({"configurable": {"thread_id": 17}}) is not None


@pytest.mark.parametrize("name", ["a\0b", "a\ud800b"], ids=["NUL", "surrogate"])
async def test_names_that_no_database_key_holds_are_refused_and_nothing_is_stored(saver: Saver, name: str) -> None:
    made = checkpoint({name: 1}, {name: 1})
    (first,) = await put_chain(saver, 1)

    attempts: list[Awaitable[object]] = [
        saver.aput(config(), made, {}, {name: 1}),
        saver.aput(config(name), empty_checkpoint(), {}, {}),
        saver.aget_tuple(config(ns=name)),
        saver.aget_tuple(config(checkpoint_id=name)),
        saver.aput_writes(config(checkpoint_id=first), [("a", 1)], name),
    ]
    for attempt in attempts:
        with pytest.raises(ValueError):
            await attempt
    assert await saver.aget_tuple(config(checkpoint_id=made["id"])) is None


async def test_nul_and_surrogates_are_allowed_in_values(saver: Saver) -> None:
    made = checkpoint({"a": "x\0y", "b": "\ud800"}, {"a": 1, "b": 1})

    await saver.aput(config(), made, {}, {"a": 1, "b": 1})

    assert await saver.aget(config()) == made


@pytest.mark.parametrize(
    "value", [pytest.param(object(), id="object"), float("nan"), 2**63, {1: 2}, "a\0", [1, {2}]], ids=str
)
async def test_metadata_that_is_not_json_is_refused_and_nothing_is_stored(saver: Saver, value: Any) -> None:
    with pytest.raises(CodecError):
        await saver.aput(config(), empty_checkpoint(), {"user": {"x": value}}, {})  # type: ignore[typeddict-unknown-key]

    assert await saver.aget_tuple(config()) is None


async def test_metadata_keeps_what_json_keeps(saver: Saver) -> None:
    metadata: Any = {
        "source": "loop",
        "step": 3,
        "run_id": "run-1",
        "parents": {"": "id"},
        "user": {"b": [1, 1.0, 1e22, None, True, "ü"], "a": {}},
        'quoted"key': "v",
    }

    await saver.aput(config(), empty_checkpoint(), metadata, {})

    found = await saver.aget_tuple(config())
    assert found is not None
    assert found.metadata == metadata
    numbers = found.metadata["user"]["b"][:3]  # type: ignore[typeddict-item]
    assert [type(number) for number in numbers] == [int, float, float]


@pytest.mark.parametrize("run_id", [None, ""])
async def test_metadata_of_unusual_types_stays_as_it_was(saver: Saver, run_id: str | None) -> None:
    metadata: Any = {"source": ["a"], "step": "three", "run_id": run_id}

    await saver.aput(config(), empty_checkpoint(), metadata, {})

    found = await saver.aget_tuple(config())
    assert found is not None
    assert found.metadata == metadata


async def test_changing_a_value_after_putting_it_changes_nothing_stored(saver: Saver) -> None:
    items = ["a"]
    made = checkpoint({"items": items}, {"items": 1})
    await saver.aput(config(), made, {}, {"items": 1})

    items.append("b")
    made["channel_versions"]["items"] = 9

    found = await saver.aget(config())
    assert found is not None
    assert found["channel_values"] == {"items": ["a"]}
    assert found["channel_versions"] == {"items": 1}


async def test_changing_what_was_read_changes_nothing_stored(saver: Saver) -> None:
    await saver.aput(config(), checkpoint({"items": ["a"]}, {"items": 1}), {}, {"items": 1})
    found = await saver.aget(config())
    assert found is not None

    found["channel_values"]["items"].append("b")

    again = await saver.aget(config())
    assert again is not None
    assert again["channel_values"] == {"items": ["a"]}


async def test_a_deleted_thread_is_gone_with_all_its_namespaces(saver: Saver) -> None:
    (first,) = await put_chain(saver, 1)
    await put_chain(saver, 1, ns="child")
    await put_chain(saver, 1, thread_id="t-2")
    await saver.aput_writes(config(checkpoint_id=first), [("a", 1)], "task-1")

    await saver.adelete_thread("t-1")

    assert await saver.aget_tuple(config()) is None
    assert await saver.aget_tuple(config(ns="child")) is None
    assert [each async for each in saver.alist(config(ns=None))] == []
    assert await saver.aget_tuple(config("t-2")) is not None


async def test_a_deleted_thread_id_can_be_used_again(saver: Saver) -> None:
    await put_chain(saver, 2)
    await saver.adelete_thread("t-1")

    (again,) = await put_chain(saver, 1)

    assert [named(each) async for each in saver.alist(config())] == [again]


async def test_deleting_an_unknown_thread_does_nothing(saver: Saver) -> None:
    await saver.adelete_thread("nobody")

    assert await saver.aget_tuple(config("nobody")) is None


async def test_next_versions_count_up_from_one(saver: Saver) -> None:
    assert saver.get_next_version(None) == 1
    assert saver.get_next_version(saver.get_next_version(7, "channel")) == 9


async def test_a_saver_opens_again_after_it_was_closed(storage: Storage) -> None:
    async with storage.opened() as saver:
        (first,) = await put_chain(saver, 1)
        await saver.aclose()

        assert named(await saver.aget_tuple(config())) == first
        await saver.aclose()
        await saver.aclose()

"""Values as LangGraph stores them, read without LangGraph: what comes back, and that nothing unknown is called."""

from __future__ import annotations

import sys
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import ormsgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everstep.ops.langgraph_calls import NotImportableError, TheirCall, is_call, main_path
from everstep.ops.langgraph_rows import TheirCheckpoint, TheirThread
from everstep.ops.langgraph_threads import converted
from everstep.ops.langgraph_values import Items, StoredValues, failure_of
from everstep.tasks.replay import CallRecord, Journalled, Replay
from everstep.types import Send
from everstep_savers.checkpoint import Commit
from everstep_savers.codec import Codec, default_codec
from everstep_savers.encoding import encode_commit
from everstep_savers.errors import CodecError
from everstep_savers.values.failures import StoredError


@dataclass
class Order:
    number: int


def stored(code: int, *parts: Any) -> bytes:
    """An extended value as LangGraph packs it."""
    data: bytes = ormsgpack.packb(ormsgpack.Ext(code, ormsgpack.packb(parts)))
    return data


def read(data: bytes, *classes: type) -> Any:
    return StoredValues(classes).read("msgpack", data)


def test_a_class_comes_from_what_the_program_names() -> None:
    data = stored(2, __name__, "Order", {"number": 7})

    assert read(data, Order) == Order(7)
    with pytest.raises(CodecError) as caught:
        read(data)
    assert str(caught.value) == (
        f"the class {__name__}.Order is not known; name the graph whose state has it (--graph package.module:graph) or "
        f"the class itself (--type {__name__}:Order)"
    )


@pytest.mark.parametrize(
    ("module", "name", "arguments"),
    [
        ("os", "system", ["true"]),
        ("builtins", "eval", ["1"]),
        ("subprocess", "Popen", [["true"]]),
        ("this", "x", []),
    ],
)
@pytest.mark.parametrize("code", range(7))
def test_nothing_is_called_or_imported_because_the_data_says_so(
    code: int, module: str, name: str, arguments: list[Any]
) -> None:
    with pytest.raises(CodecError):
        read(stored(code, module, name, arguments))

    assert "this" not in sys.modules


@pytest.mark.parametrize(
    ("kind", "data", "complaint"),
    [
        (
            "pickle",
            b"",
            "it was stored by pickle, which is not read: reading it would run code that the data chooses",
        ),
        ("json", b"{}", "it was stored as 'json', which is not known"),
    ],
)
def test_bytes_of_another_kind_are_refused(kind: str, data: bytes, complaint: str) -> None:
    with pytest.raises(CodecError) as caught:
        StoredValues().read(kind, data)

    assert str(caught.value) == complaint


def test_plain_bytes_and_nothing() -> None:
    values = StoredValues()

    assert values.read("bytes", b"x") == b"x"
    assert values.read("bytearray", b"x") == bytearray(b"x")
    assert values.read("null", b"") is None
    assert read(stored(1, "langgraph.types", "Send", ["each", {"n": 1}])) == Send("each", {"n": 1})


@settings(max_examples=500, deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    with suppress(CodecError):
        read(data)


@settings(max_examples=500, deadline=None)
@given(st.integers(0, 9), st.binary(max_size=60), st.recursive(st.none() | st.text(max_size=5), st.lists, max_leaves=5))
def test_any_extended_value_is_read_or_refused(code: int, data: bytes, parts: Any) -> None:
    for content in (data, ormsgpack.packb(parts)):
        with suppress(CodecError):
            read(ormsgpack.packb(ormsgpack.Ext(code, content)), Order)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ValueError('broken', 7)", ValueError("broken", 7)),
        ("KeyError()", KeyError()),
        ("OwnError('x')", StoredError("OwnError", "'x'")),
        ("ValueError(<object>)", StoredError("ValueError", "<object>")),
        ("SystemExit(1)", StoredError("SystemExit", "1")),
        ("no repr", StoredError("Exception", "no repr")),
        (f"KeyError({'-' * 100_000}1)", StoredError("KeyError", "-" * 100_000 + "1")),
        (7, StoredError("Exception", "7")),
    ],
    ids=lambda part: str(part)[:20],
)
def test_a_failure_is_made_of_its_repr(text: Any, expected: Any) -> None:
    found = failure_of(text)

    assert repr(found) == repr(expected)
    assert type(found) is type(expected)


def test_a_value_that_is_nested_too_deep_is_refused() -> None:
    nested = ormsgpack.packb([])
    for _ in range(1000):
        nested = ormsgpack.packb(ormsgpack.Ext(0, b"\x93\xa8builtins\xa9frozenset" + nested))

    with pytest.raises(CodecError, match=r"^the stored bytes cannot be read: RecursionError: "):
        read(nested)


def test_equal_items_of_a_list_become_one_object() -> None:
    items = Items(Codec())
    first = items.shared("log", [[1], ("a",), "text" * 3, object])
    second = items.shared("log", [[1], ("a",), "".join(["text"] * 3), object, [2], 1, True, 1.0])

    assert [one is other for one, other in zip(first, second, strict=False)] == [True] * 4
    assert [type(item) for item in second[5:]] == [int, bool, float]
    assert items.shared("log", "no list") == "no list"


def grown(length: int) -> TheirThread:
    """A thread whose list grows by 100 bytes a step, stored as LangGraph stores it: anew in every step."""
    made = []
    for number in range(length):
        log = [f"{n:0100}" for n in range(number + 1)]
        parent = f"{number - 1:05}" if number else None
        ts = "2024-05-01T00:00:00+00:00"
        versions = {"log": f"{number + 1:032}.0.5"}
        metadata = {"step": number, "parents": {}, "source": "loop"}
        made.append(TheirCheckpoint("", f"{number:05}", parent, 4, ts, {"log": log}, versions, {}, None, metadata))
    items = Items(Codec())
    shared = [(each, items.shared("log", each.values["log"])) for each in made]
    return TheirThread("t", [_with_log(each, log) for each, log in shared], [])


def _with_log(each: TheirCheckpoint, log: list[Any]) -> TheirCheckpoint:
    return TheirCheckpoint(
        each.checkpoint_ns,
        each.checkpoint_id,
        each.parent_id,
        each.format,
        each.ts,
        {"log": log},
        each.versions,
        each.seen,
        each.updated,
        each.metadata,
    )


def test_a_list_that_grows_is_stored_as_what_was_added() -> None:
    sizes = []
    for length in (50, 200):
        thread = converted(grown(length), default_codec)
        commit = encode_commit(default_codec, Commit("t", checkpoints=thread.checkpoints))
        sizes.append(sum(len(row.data) for row in commit.values) / length)

    assert sizes[1] < 1.3 * sizes[0] < 400


def test_old_formats_are_refused() -> None:
    old = grown(1).checkpoints[0]
    thread = TheirThread("t", [TheirCheckpoint("", "1", None, 2, old.ts, {}, {}, {}, None, {})], [])

    with pytest.raises(NotImportableError) as caught:
        converted(thread, default_codec)

    assert str(caught.value) == ("checkpoint 1 has LangGraph's format 2; 4 is the oldest that can be imported")


def test_the_path_of_a_call_tells_its_caller_and_number() -> None:
    inner = "~__pregel_push, ~__pregel_push, ~__pregel_pull, flow, 0000000000, 0000000001, 0000000002, 0000000001"

    call = TheirCall.of("id", inner, [])

    assert (call.caller, call.number) == ("~__pregel_push, ~__pregel_pull, flow, 0000000000, 0000000001", 2)
    assert main_path(inner) == main_path("~__pregel_pull, flow") == "~__pregel_pull, flow"
    assert is_call(inner)
    assert not is_call("~__pregel_push, 0000000000, 0000000000")


def test_a_journalled_call_without_a_name_is_found_by_its_number() -> None:
    calls = [Journalled(CallRecord("caller", number, "", "a call", None), value=number) for number in range(2)]
    replay = Replay("node 'n'", calls)

    found = [replay.find(name, "digest", f"{name}()", aside=False) for name in ("first", "other", "third")]

    assert [call and call.value for call in found] == [0, 1, None]

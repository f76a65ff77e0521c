"""Stored bytes that are damaged or hostile give a `CodecError` that says what is wrong, and nothing else."""

from __future__ import annotations

import contextlib
import sys
import tracemalloc
from typing import Any

import numpy as np
import ormsgpack
import pytest
from ormsgpack import Ext

from everstep_savers.codec import Codec
from everstep_savers.errors import CodecError
from everstep_savers.values import arrays
from tests.unit.codec_samples import SAMPLES, make_codec

CODEC = make_codec()
TUPLE, SET, DICT, DEFAULTDICT = 64, 65, 67, 70
PATTERN, EXCEPTION, ARRAY = 80, 82, arrays._ARRAY
DATACLASS, ENUM, DERIVED = 96, 104, 105
ITEM = b"tests.unit.codec_samples:Item"


def marked(code: int, *items: Any, data: bytes = b"") -> bytes:
    return ormsgpack.packb([Ext(code, data), *items])


def reason(tag: str, data: bytes) -> str:
    with pytest.raises(CodecError) as caught:
        CODEC.decode(tag, data)
    return str(caught.value)


UNREADABLE = "the stored bytes cannot be read: "
DAMAGED = "the stored bytes are damaged: "
NOT_THAT_MANY = "does not have that many elements"
NOT_REGISTERED = "not registered: name it in a schema of the graph, or call codec.register(...) before loading"
NEWER = "a newer version may have written"

LEAVES: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "ValueError: unexpected end of file"),
    "cut": (b"\xa5ab", "ValueError: unexpected end of file"),
    "code": (ormsgpack.packb(Ext(63, b"")), f"the unknown extension 63; {NEWER} it"),
    "mark": (marked(TUPLE), f"the unknown extension 64; {NEWER} it"),
    "size": (ormsgpack.packb(Ext(9, b"ab")), "struct.error: unpack requires a buffer of 4 bytes"),
    "zone": (ormsgpack.packb(Ext(14, b"a.b/c")), "the stored time zone 'a.b/c' has no valid name"),
    "decimal": (
        ormsgpack.packb(Ext(16, b"x")),
        "decimal.InvalidOperation: [<class 'decimal.ConversionSyntax'>]",
    ),
}
MARKS: dict[str, tuple[bytes, str]] = {
    "code": (marked(127), f"the stored bytes have the unknown mark 127; {NEWER} them"),
    "alone": (ormsgpack.packb(Ext(TUPLE, b"")), f"{DAMAGED}a mark stands where none can be"),
    "as-value": (
        ormsgpack.packb({"a": [1, Ext(TUPLE, b"")]}),
        f"{DAMAGED}a mark stands where none can be (at ['a'][1])",
    ),
    "odd-pairs": (marked(DICT, 1), f"{UNREADABLE}ValueError: zip() argument 2 is shorter than argument 1"),
    "unhashable": (marked(SET, []), f"{UNREADABLE}TypeError: unhashable type: 'list'"),
    "factory": (marked(DEFAULTDICT, "eval"), f"{UNREADABLE}KeyError: 'eval'"),
    "exception-class": (
        marked(EXCEPTION, [], data=b"eval"),
        f"{DAMAGED}b'eval' is no built-in exception",
    ),
    "exception-of-another": (
        marked(EXCEPTION, [2, "x"], data=b"OSError"),
        "the stored OSError would come back as FileNotFoundError",
    ),
    "type": (
        marked(DATACLASS, None, data=b"os:system"),
        f"the stored type 'os:system' is {NOT_REGISTERED}",
    ),
    "kind": (
        marked(ENUM, "A", data=ITEM),
        f"the stored type {ITEM.decode()!r} was an enum and is now a dataclass",
    ),
    "array-object": (
        marked(ARRAY, "|O", [1], b"\0" * 8),
        "a numpy value of data type object cannot be stored",
    ),
    "array-type": (
        marked(ARRAY, "i4,O", [1], b"\0" * 8),
        "the stored numpy data type 'i4,O' is not valid",
    ),
    "array-long": (
        marked(ARRAY, "<i4", [2**40], b"\0" * 8),
        f"the stored numpy array of shape [1099511627776] {NOT_THAT_MANY}",
    ),
    "array-negative": (
        marked(ARRAY, "<i4", [-1, -2], b"\0" * 8),
        f"the stored numpy array of shape [-1, -2] {NOT_THAT_MANY}",
    ),
    "array-without-size": (
        marked(ARRAY, "|V0", [2**40], b""),
        f"the stored numpy array of shape [1099511627776] {NOT_THAT_MANY}",
    ),
}


def test_an_unknown_tag_is_named() -> None:
    assert reason("?", b"") == f"the stored bytes have the unknown tag '?'; {NEWER} them"


@pytest.mark.parametrize(("data", "message"), LEAVES.values(), ids=LEAVES)
def test_an_unreadable_leaf_is_told_with_its_reason(data: bytes, message: str) -> None:
    assert reason("m", data) == UNREADABLE + message


@pytest.mark.parametrize(("data", "message"), MARKS.values(), ids=MARKS)
def test_an_unreadable_mark_is_told_with_its_reason(data: bytes, message: str) -> None:
    assert reason("x", data) == message


def test_a_damaged_field_is_named() -> None:
    damaged = marked(DATACLASS, None, "name", "a", "size", [Ext(SET, b""), []], data=ITEM)
    assert reason("x", damaged).startswith("the stored bytes cannot be read: TypeError")
    wrong = marked(DATACLASS, None, "name", {"deep": [Ext(127, b"")]}, "size", 1, data=ITEM)
    assert reason("x", wrong) == (
        "the stored bytes have the unknown mark 127; a newer version may have written them (at .name['deep'])"
    )


def test_bytes_cut_anywhere_are_refused_or_shorter_text() -> None:
    stored = {name: CODEC.encode(value) for name, value in SAMPLES.items()}
    for tag, data in stored.values():
        for end in range(0, len(data), max(1, len(data) // 40)):
            try:
                CODEC.decode(tag, data[:end])
            except CodecError:
                continue
            assert tag == "n" or end > 0


@pytest.mark.parametrize("head", [b"\xdd", b"\xdf", b"\xc6", b"\xdb", b"\xc9"])
def test_a_length_alone_takes_no_memory(head: bytes) -> None:
    tracemalloc.start()
    try:
        reason("x", head + b"\xff\xff\xff\xff")
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("level", [b"\x91", b"\x81\xa1a", b"\x92\xc7\x00\x40"])
def test_deep_nesting_is_refused(level: bytes) -> None:
    assert "cannot be read" in reason("x", level * 100_000 + b"\xc0")
    assert "cannot be read" in reason("x", level * 1000 + b"\xc0")


class Watcher:
    """Sees each import of a module that is not loaded."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        self.asked.append(name)


def test_names_in_stored_data_are_not_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    watcher = Watcher()
    monkeypatch.setattr(sys, "meta_path", [watcher, *sys.meta_path])
    name = b"antigravity:fly"
    for code in range(64, 128):
        for content in ([], [name.decode()], [[name.decode()], "antigravity"], [None, "antigravity", 1]):
            with contextlib.suppress(CodecError):  # a tuple of such names can well be read
                CODEC.decode("x", marked(code, *content, data=name))
    for code in range(64):
        with contextlib.suppress(CodecError):
            CODEC.decode("m", ormsgpack.packb(Ext(code, b"antigravity")))
    assert [asked for asked in watcher.asked if "antigravity" in asked] == []


def test_a_stored_attribute_runs_no_property_and_changes_no_class() -> None:
    class Guarded(str):
        touched = False

        @property
        def door(self) -> None:
            """A way in."""

        @door.setter
        def door(self, value: Any) -> None:
            type(self).touched = True

    codec = Codec()
    codec.register(Guarded, name="test:Guarded")
    found = codec.decode("x", marked(DERIVED, ["door", 1, "__class__", "int"], "text", data=b"test:Guarded"))
    assert type(found) is Guarded
    assert not Guarded.touched


def test_patterns_come_back_without_the_flag_that_prints(capsys: pytest.CaptureFixture[str]) -> None:
    assert CODEC.decode("x", marked(PATTERN, "a", 128 + 2)).flags == 34
    assert capsys.readouterr().out == ""


def test_arrays_of_pointers_are_never_made() -> None:
    for described in ("|O", "O", ["fields", 8, ["a", "|O", 0]], ["array", "|O", [1]], "T"):
        assert "numpy" in reason("x", marked(ARRAY, described, [1], b"\1" * 8))
    assert np.__version__

"""Exceptions of tasks: built-in ones are kept as they were, others as a record; keeping one never fails."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from everstep_savers.codec import Codec, StoredError
from everstep_savers.errors import CodecError
from tests.unit.codec_samples import SAMPLES, assert_same, noted

HERE = __name__
CODEC = Codec()


class OwnError(Exception):
    pass


class MuteError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


class Text(str):
    pass


def kept(error: BaseException) -> Any:
    return CODEC.decode(*CODEC.encode_exception(error))


def _raised(raise_it: Any) -> BaseException:
    try:
        raise_it()
    except BaseException as error:
        return error
    raise AssertionError("nothing was raised")


def _chained() -> None:
    try:
        raise KeyError("first")
    except KeyError as error:
        raise ValueError("second") from error


@pytest.mark.parametrize("name", [name for name in SAMPLES if name.startswith("exception")])
def test_a_built_in_exception_is_kept_as_it_was(name: str) -> None:
    errors = SAMPLES[name] if isinstance(SAMPLES[name], list) else [SAMPLES[name]]
    for error in errors:
        assert_same(kept(error), error)


def test_traceback_cause_and_context_are_not_kept() -> None:
    found = kept(_raised(_chained))
    assert type(found) is ValueError
    assert found.args == ("second",)
    assert (found.__traceback__, found.__cause__, found.__context__) == (None, None, None)


def test_the_object_that_lacks_an_attribute_is_not_kept() -> None:
    found = kept(_raised(lambda: CODEC.nothing))  # type: ignore[attr-defined]
    assert (str(found), found.name, found.obj) == ("'Codec' object has no attribute 'nothing'", "nothing", None)


OTHERS: dict[str, tuple[BaseException, StoredError]] = {
    "own": (OwnError("a", 1), StoredError(f"{HERE}.OwnError", "('a', 1)")),
    "notes": (noted(OwnError("a"), "one", "\ud800"), StoredError(f"{HERE}.OwnError", "a", ("one", "\ud800"))),
    "cancelled": (asyncio.CancelledError(), StoredError("asyncio.exceptions.CancelledError", "")),
    "unkept-argument": (ValueError(memoryview(b"")), StoredError("ValueError", "<memory>")),
    "group": (
        ExceptionGroup("several", [ValueError(1), OwnError(2)]),
        StoredError("ExceptionGroup", "several (2 sub-exceptions)"),
    ),
    "mute": (MuteError(), StoredError(f"{HERE}.MuteError", "<its __str__ raised RuntimeError>")),
    "surrogate": (OwnError("\ud800"), StoredError(f"{HERE}.OwnError", "\ud800")),
    "text-subclass": (OwnError(Text("a")), StoredError(f"{HERE}.OwnError", "a")),
}


@pytest.mark.parametrize(("error", "record"), OTHERS.values(), ids=OTHERS)
def test_any_other_exception_is_kept_as_a_record(error: BaseException, record: StoredError) -> None:
    found = kept(error)
    if record.text == "<memory>":
        record = StoredError(record.type_name, str(error))
    assert_same((found.type_name, found.text, found.notes), (record.type_name, record.text, record.notes))
    assert type(found) is StoredError


def test_notes_that_are_not_notes_are_left_out() -> None:
    for notes in (7, ["a", 1, Text("b")]):
        error = OwnError("x")
        error.__notes__ = notes  # type: ignore[assignment]
        assert kept(error).notes == (("a", "b") if isinstance(notes, list) else ())


def test_an_exception_registered_as_a_record_comes_back_as_it_was() -> None:
    codec = Codec()
    codec.register_record(
        OwnError, name="test:OwnError", to_fields=lambda e: e.args, from_fields=lambda args: OwnError(*args)
    )
    found = codec.decode(*codec.encode_exception(OwnError("a", (1,))))
    assert type(found) is OwnError
    assert found.args == ("a", (1,))


def test_a_built_in_exception_with_an_argument_that_cannot_be_kept_is_refused_as_a_value() -> None:
    with pytest.raises(CodecError) as caught:
        CODEC.encode({"a": ValueError(OwnError())})
    assert caught.value.path == "['a'].args[0]"

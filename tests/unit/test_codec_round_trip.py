"""Every type that the codec keeps comes back equal and of the same type, also in another process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from everstep_savers.codec import Codec, default_codec
from tests.unit.codec_samples import SAMPLES, WITHOUT_EQUALITY, Item, Price, assert_same, make_codec, make_samples

CODEC = make_codec()

# Reads what this process wrote, in a process where only the samples' module has been imported.
READER = """
import json, sys
from tests.unit.codec_samples import SAMPLES, assert_same, make_codec, make_samples
codec = make_codec()
for name, (tag, data) in json.load(sys.stdin).items():
    assert_same(codec.decode(tag, bytes.fromhex(data)), SAMPLES[name], name)
    print(name)
"""


@pytest.mark.parametrize("name", SAMPLES)
def test_a_value_comes_back_as_it_was(name: str) -> None:
    found = CODEC.decode(*CODEC.encode(SAMPLES[name]))
    assert_same(found, SAMPLES[name])
    assert name in WITHOUT_EQUALITY or found == SAMPLES[name]


@pytest.mark.parametrize("value", SAMPLES.values(), ids=SAMPLES)
def test_a_value_within_others_comes_back_as_it_was(value: Any) -> None:
    whole = {"plain": 1, "it": [value, (value, {2: value})], "item": Item("a", (value,)), "\ud800": "\udfff"}
    assert_same(CODEC.decode(*CODEC.encode(whole)), whole)


@pytest.mark.parametrize("name", SAMPLES)
def test_storing_changes_nothing_in_the_value(name: str) -> None:
    value = make_samples()[name]
    CODEC.encode({"it": value})
    assert_same(value, make_samples()[name])


def test_values_come_back_in_another_process() -> None:
    stored = {name: CODEC.encode(value) for name, value in SAMPLES.items()}
    done = subprocess.run(
        [sys.executable, "-c", READER],
        input=json.dumps({name: (tag, data.hex()) for name, (tag, data) in stored.items()}),
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "PYTHONHASHSEED": "77"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""
    assert done.stdout.split() == list(SAMPLES)


def test_a_value_read_twice_is_two_values() -> None:
    stored = CODEC.encode({"a": [1]})
    first, second = CODEC.decode(*stored), CODEC.decode(*stored)
    first["a"].append(2)
    assert second == {"a": [1]}


def test_arrays_come_back_writable() -> None:
    array = CODEC.decode(*CODEC.encode(SAMPLES["numpy-array"]))[0]
    array[0, 0] = 7
    assert array[0, 0] == 7


def test_reading_runs_no_validator() -> None:
    price = Price.model_construct(amount="free", currency="usd")
    found = CODEC.decode(*CODEC.encode(price))
    assert (found.amount, found.currency) == ("free", "usd")


def test_a_shared_object_comes_back_as_two_equal_ones() -> None:
    inner = [1]
    first, second = CODEC.decode(*CODEC.encode([inner, inner]))
    assert first == second == [1]
    assert first is not second


@pytest.mark.parametrize(
    ("value", "stored"),
    [
        (None, ("n", b"")),
        (7, ("m", b"\x07")),
        ({"a": [1, "b"]}, ("m", b"\x81\xa1a\x92\x01\xa1b")),
        (2**64, ("m", b"\xc7\x09\x01\x01\0\0\0\0\0\0\0\0")),
        ((1,), ("x", b"\x92\xc7\x00\x40\x01")),
        ({1: 2}, ("x", b"\x93\xc7\x00\x43\x01\x02")),
    ],
)
def test_the_stored_form_stays_as_it_is(value: Any, stored: tuple[str, bytes]) -> None:
    assert default_codec.encode(value) == stored


def test_pickle_keeps_what_is_refused_only_by_choice() -> None:
    choosing = Codec(allow_pickle=True)
    tag, data = choosing.encode({"a": slice(1, 2)})
    assert tag == "p"
    assert choosing.decode(tag, data) == {"a": slice(1, 2)}
    assert choosing.encode((1,))[0] == "x"

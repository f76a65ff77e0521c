"""Seals on stored bytes: what they hide and shrink, when they are refused, and which keys they need."""

from __future__ import annotations

import os
from base64 import b64decode, b64encode
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everstep_savers import Codec, CodecError, Compression, Encryption, SealedCodec, encryption
from tests.unit.codec_samples import SAMPLES, Item, assert_same, make_codec

KEY, OTHER = b"k" * 32, b"o" * 32
TEXT = {"log": ["a long secret text"] * 200}


def reason(codec: Codec, *encoded: Any, place: str = "here") -> str:
    with pytest.raises(CodecError) as caught:
        codec.open(encoded, place)
    return str(caught.value)


def encrypted(**options: Any) -> SealedCodec:
    return SealedCodec(Encryption({"2026": KEY}, **options))


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample if isinstance(sample, str) else "")
def test_every_value_comes_back_as_it_was(sample: Any) -> None:
    value = SAMPLES[sample] if isinstance(SAMPLES, dict) else sample
    registry = make_codec()._registry
    codec = SealedCodec(Compression(over=8), Encryption({"2026": KEY}), registry=registry)

    assert_same(codec.decode(*codec.encode(value)), value)


def test_types_are_registered_with_all_codecs_of_the_registry() -> None:
    codec = encrypted()
    codec.plain.register(Item)

    assert type(codec.decode(*codec.encode(Item("a", (1,))))) is Item


def test_two_seals_of_a_kind_are_refused() -> None:
    complaint = "SealedCodec takes one seal of each kind; several keys go into one Encryption"
    with pytest.raises(ValueError, match=f"^{complaint}$"):
        SealedCodec(Encryption({"2025": OTHER}), Encryption({"2026": KEY}))


def test_the_tag_names_the_key_and_the_bytes_tell_nothing() -> None:
    codec = SealedCodec(Encryption({"2025": OTHER, "2026": KEY}))

    (tag, data), again = codec.encode(TEXT), codec.encode(TEXT)

    assert tag == "e:2026"
    assert b"secret" not in data
    assert data != again[1]
    assert len(data) == len(codec.plain.encode(TEXT)[1]) + 1 + 16 + 12 + 16


def test_none_is_hidden_too() -> None:
    codec = encrypted()

    assert codec.encode(None)[0] == "e:2026"
    assert codec.decode(*codec.encode(None)) is None


def test_the_current_key_is_the_last_or_the_named_one() -> None:
    keys = {"2025": OTHER, "2026": KEY}
    first = SealedCodec(Encryption({"2025": OTHER}))
    both, old = SealedCodec(Encryption(keys)), SealedCodec(Encryption(keys, current="2025"))

    assert both.encode(1)[0] == "e:2026"
    assert old.encode(1)[0] == "e:2025"
    assert both.decode(*first.encode(1)) == first.decode(*old.encode(1)) == 1


def test_a_key_that_is_not_there_is_named() -> None:
    sealed = SealedCodec(Encryption({"2025": OTHER})).close(("m", b"\x01"), "here")

    assert reason(encrypted(), *sealed) == "the value is encrypted under the key '2025', which is none of 2026"
    with pytest.raises(CodecError) as caught:
        Codec().decode(*sealed)
    assert str(caught.value) == (
        "the value is encrypted under the key '2025': read it with codec=SealedCodec(Encryption(keys))"
    )


REFUSED = (
    "the value cannot be decrypted: it was changed or put into another place, or the key '2026' is another one than it "
    "was encrypted under"
)


def test_what_was_changed_moved_or_is_under_another_key_is_refused() -> None:
    codec, other = encrypted(), SealedCodec(Encryption({"2026": OTHER}))
    tag, data = codec.close(("m", b"\x01"), "here")

    assert codec.open((tag, data), "here") == ("m", b"\x01")
    assert reason(codec, tag, data, place="there") == REFUSED
    assert reason(other, tag, data) == REFUSED
    for at in range(len(data)):
        changed = data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
        assert reason(codec, tag, changed) == REFUSED
    for length in range(len(data)):
        assert reason(codec, tag, data[:length]) == REFUSED


def test_what_is_not_encrypted_is_refused_unless_that_is_allowed() -> None:
    plain = Codec().encode(7)

    assert reason(encrypted(), *plain) == (
        "the value is stored without the seal Encryption, which this codec demands; whoever put it there had not the "
        "key, or the value is older than the seal: Encryption(..., is_required=False) reads both"
    )
    assert encrypted(is_required=False).decode(*plain) == 7


def test_a_process_uses_a_salt_of_its_own_and_a_new_one_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encryption, "_MESSAGES", 3)
    one, other = encrypted(), encrypted()

    salts = [one.encode(n)[1][:16] for n in range(7)]

    assert [len(set(salts[n : n + 3])) for n in (0, 3, 6)] == [1, 1, 1]
    assert len({*salts, other.encode(1)[1][:16]}) == 4
    assert [other.decode(*one.encode(n)) for n in range(7)] == list(range(7))


def test_a_key_is_bytes_or_base64_text() -> None:
    key = Encryption.new_key()

    codec = SealedCodec(Encryption({"k": key}))
    same = SealedCodec(Encryption({"k": b64decode(key)}))

    assert same.decode(*codec.encode(TEXT)) == TEXT
    assert key != Encryption.new_key()


@pytest.mark.parametrize(
    ("keys", "current", "complaint"),
    [
        ({}, None, "Encryption needs a key at least: Encryption({'2026': Encryption.new_key()})"),
        (
            {"2026": b"short"},
            None,
            "key '2026' must be 32 bytes or their base64 text; Encryption.new_key() makes one",
        ),
        (
            {"2026": "no base64"},
            None,
            "key '2026' must be 32 bytes or their base64 text; Encryption.new_key() makes one",
        ),
        ({"a:b": KEY}, None, "a key's name has 1 to 32 letters, digits or one of _.-, unlike 'a:b'"),
        ({"a": KEY, "b": KEY}, "c", "current='c' is none of the keys a, b"),
    ],
    ids=str,
)
def test_keys_that_cannot_be_are_refused_without_being_shown(keys: Any, current: Any, complaint: str) -> None:
    with pytest.raises(ValueError) as caught:
        Encryption(keys, current=current)

    assert str(caught.value) == complaint


def test_keys_are_not_shown() -> None:
    text = b64encode(KEY).decode()

    assert text not in repr(Encryption({"k": text}))
    assert "kkkk" not in repr(encrypted())


def test_large_values_are_compressed_and_small_or_random_ones_are_not() -> None:
    codec = SealedCodec(Compression(over=100))
    plain = codec.plain

    large, small, noise = codec.encode(TEXT), codec.encode(["text"] * 5), codec.encode(os.urandom(1000))

    assert large[0] == "z"
    assert len(large[1]) < len(plain.encode(TEXT)[1]) / 10
    assert (small[0], noise[0]) == ("m", "m")
    assert codec.decode(*large) == TEXT
    assert codec.decode(*plain.encode(TEXT)) == TEXT
    with pytest.raises(CodecError) as caught:
        plain.decode(*large)
    assert str(caught.value) == "the value is compressed: read it with codec=SealedCodec(Compression())"


def test_what_is_compressed_first_is_small_when_encrypted() -> None:
    codec = SealedCodec(Compression(over=100), Encryption({"2026": KEY}))

    tag, data = codec.encode(TEXT)

    assert tag == "e:2026"
    assert len(data) < 200
    assert codec.decode(tag, data) == TEXT


@pytest.mark.parametrize(
    "data",
    [b"", b"x", b"\x28\xb5\x2f\xfd", b"\x28\xb5\x2f\xfd\xe0" + b"\xff" * 7 + b"\x7f" + b"\0" * 20],
    ids=["empty", "text", "cut", "too large"],
)
def test_damaged_compressed_bytes_are_refused(data: bytes) -> None:
    codec = SealedCodec(Compression())

    with pytest.raises(CodecError, match=r"^the compressed bytes "):
        codec.decode("z", data)


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(["z", "e:2026", "e:", "e:x", "m", "x", "!", ""]), st.binary(max_size=100))
def test_any_bytes_are_read_or_refused(tag: str, data: bytes) -> None:
    codec = SealedCodec(Compression(), Encryption({"2026": KEY}, is_required=False))
    for encoded in ((tag, data), ("e:2026", codec.seals[1].close((tag or "m", data), "")[1])):
        with suppress(CodecError):
            codec.decode(*encoded)


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=60))
def test_compressed_bytes_of_any_values_are_read_or_refused(data: bytes) -> None:
    codec = SealedCodec(Compression(over=0))
    tag, compressed = codec.seals[0].close(("x", data * 20 or b"\0" * 100), "")
    with suppress(CodecError):
        codec.decode(tag, compressed)

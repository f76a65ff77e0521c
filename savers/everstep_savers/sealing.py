"""Seals: what is done to encoded bytes before they are stored, and undone when they are read.

A codec made of seals compresses or encrypts what another codec would have stored. It shares the registry of types with
that codec (`Codec.plain`), which savers go on using between the two, where bytes are compared and put together. Which
seals a value bears its tag tells, so that values of before a seal was introduced stay readable. What a saver needs to
find rows by stays as it is: names and ids, versions, times, metadata.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from base64 import b64decode, b64encode
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, TypeVar

from everstep_savers.codec import SEALED_BODY, UNOPENED, Codec, Encoded
from everstep_savers.errors import CodecError
from everstep_savers.parts import StoredValue
from everstep_savers.rows import CheckpointRow, EncodedClaim, EncodedCommit, ThreadRow, ValueRow, WriteRow
from everstep_savers.values.registry import Registry

RowT = TypeVar("RowT", StoredValue, ValueRow, WriteRow)

# Before the text of a run's error that is sealed.
_SEALED_TEXT = "sealed "


class Seal(ABC):
    """One thing done to encoded bytes."""

    # Must every value that is read bear this seal?
    is_required = False
    # Is it for secrecy? Then nothing of a value may stand beside it.
    is_secret = False

    @abstractmethod
    def close(self, encoded: Encoded, place: str) -> Encoded:
        """Seal tag and bytes; the new tag tells that they are.

        Args:
            encoded: What is stored otherwise.
            place: Where it is stored; a seal may hold only there.
        """

    @abstractmethod
    def is_on(self, tag: str) -> bool:
        """Whether the tag tells of this seal."""

    @abstractmethod
    def is_newest(self, tag: str) -> bool:
        """Whether what has this tag is sealed as `close` would do it now."""

    @abstractmethod
    def open(self, encoded: Encoded, place: str) -> Encoded:
        """Undo `close`.

        Raises:
            CodecError: The bytes are damaged, or belong to another place.
        """


class SealedCodec(Codec):
    """A codec whose bytes are sealed: ``SealedCodec(Compression(), Encryption({"2026": key}))``.

    Args:
        seals: In the order in which they are put on. What is encrypted cannot be compressed any more.
        allow_pickle: See `Codec`.
        registry: See `Codec`.

    Raises:
        ValueError: Two of the seals are of one kind: the tag of a value could not tell which of them it bears.
    """

    def __init__(self, *seals: Seal, allow_pickle: bool = False, registry: Registry | None = None) -> None:
        super().__init__(allow_pickle=allow_pickle, registry=registry)
        if len({type(seal) for seal in seals}) < len(seals):
            raise ValueError("SealedCodec takes one seal of each kind; several keys go into one Encryption")
        self.seals = seals
        self._plain = Codec(allow_pickle=allow_pickle, registry=self._registry)
        self._required = [seal for seal in seals if seal.is_required]

    @property
    def plain(self) -> Codec:
        return self._plain

    @property
    def is_secret(self) -> bool:
        return any(seal.is_secret for seal in self.seals)

    def renewed(self, encoded: Encoded, place: str = "", new_place: str | None = None) -> Encoded:
        """The same, sealed as it would be now, for a new place if there is one; itself if it is.

        Raises:
            CodecError: It cannot be opened.
        """
        new_place = place if new_place is None else new_place
        if not self.seals or (new_place == place and self.seals[-1].is_newest(encoded[0])):
            return encoded
        return self.close(self.open(encoded, place), new_place)

    def close(self, encoded: Encoded, place: str = "") -> Encoded:
        for seal in self.seals:
            encoded = seal.close(encoded, place)
        return encoded

    def open(self, encoded: Encoded, place: str = "") -> Encoded:
        missing = list(self._required)
        # Each seal makes the bytes another value's, so that none is on twice.
        for seal in reversed(self.seals):
            if seal.is_on(encoded[0]):
                encoded = seal.open(encoded, place)
                if seal in missing:
                    missing.remove(seal)
        if missing:
            name = type(missing[0]).__name__
            raise CodecError(
                f"the value is stored without the seal {name}, which this codec demands; whoever put it there had not "
                f"the key, or the value is older than the seal: {name}(..., is_required=False) reads both"
            )
        return encoded

    def encode(self, value: Any) -> Encoded:
        return self.close(self._plain.encode(value))

    def decode(self, tag: str, data: bytes) -> Any:
        return self._plain.decode(*self.open((tag, data)))


def closed_commit(codec: Codec, commit: EncodedCommit) -> EncodedCommit:
    """A commit with everything of a user's sealed."""
    if not codec.seals:
        return commit
    return commit._replace(
        claim=None if commit.claim is None else _closed_claim(codec, commit.claim, commit.thread_id),
        error=None if commit.error is None else _closed_text(codec, commit.error, commit.thread_id),
        checkpoints=[row._replace(body=_closed_body(codec, row)) for row in commit.checkpoints],
        values=[
            _closed(codec, row, value_place(row.thread_id, row.checkpoint_ns, row.channel, row))
            for row in commit.values
        ],
        writes=[_closed(codec, row, write_place(row)) for row in commit.writes],
    )


def opened_checkpoint(codec: Codec, row: CheckpointRow) -> CheckpointRow:
    """A checkpoint's row with its body opened; one that cannot be opened says why when it is unpacked."""
    try:
        return row._replace(body=codec.open(_taken_apart(row.body), _body_place(row))[1])
    except CodecError as error:
        return row._replace(body=SEALED_BODY + UNOPENED.encode() + error.reason.encode())


def renewed_body(codec: SealedCodec, row: CheckpointRow, thread_id: str) -> bytes:
    """A checkpoint's body, sealed as it would be now in this thread."""
    new_place = _body_place(row._replace(thread_id=thread_id))
    return _put_together(codec.renewed(_taken_apart(row.body), _body_place(row), new_place))


def renewed_text(codec: SealedCodec, text: str, place: str, new_place: str) -> str:
    """The text of a run's error, sealed as it would be now."""
    return _sealed_text(codec.renewed(_text_apart(text), place, new_place))


def opened_value(codec: Codec, thread_id: str, checkpoint_ns: str, channel: str, row: StoredValue) -> StoredValue:
    """A value opened; one that cannot be opened says why when it is decoded."""
    return _opened(codec, row, value_place(thread_id, checkpoint_ns, channel, row))


def opened_write(codec: Codec, row: WriteRow) -> WriteRow:
    """The same of a write."""
    return _opened(codec, row, write_place(row))


def opened_thread(codec: Codec, row: ThreadRow) -> ThreadRow:
    """A thread's row with its input and the text of its error opened."""
    if row.input_tag is not None:
        try:
            tag, data = codec.open((row.input_tag, row.input_data or b""), input_place(row.thread_id))
        except CodecError as error:
            tag, data = UNOPENED + error.reason, b""
        row = row._replace(input_tag=tag, input_data=data)
    if row.error is not None:
        row = row._replace(error=_opened_text(codec, row.error, row.thread_id))
    return row


def _closed(codec: Codec, row: RowT, place: str) -> RowT:
    tag, data = codec.close((row.tag, row.data), place)
    return row._replace(tag=tag, data=data)


def _opened(codec: Codec, row: RowT, place: str) -> RowT:
    try:
        tag, data = codec.open((row.tag, row.data), place)
    except CodecError as error:
        return row._replace(tag=UNOPENED + error.reason)
    return row._replace(tag=tag, data=data)


def _closed_claim(codec: Codec, claim: EncodedClaim, thread_id: str) -> EncodedClaim:
    if claim.input_tag is None:
        return claim
    tag, data = codec.close((claim.input_tag, claim.input_data or b""), input_place(thread_id))
    return replace(claim, input_tag=tag, input_data=data)


def _closed_body(codec: Codec, row: CheckpointRow) -> bytes:
    return _put_together(codec.close(("b", row.body), _body_place(row)))


def _put_together(encoded: Encoded) -> bytes:
    tag, data = encoded
    return data if tag == "b" else b"%b%b\0%b" % (SEALED_BODY, tag.encode(), data)


def _taken_apart(body: bytes) -> Encoded:
    if not body.startswith(SEALED_BODY):
        return "b", body
    tag, _, data = body[len(SEALED_BODY) :].partition(b"\0")
    return tag.decode("ascii", "replace"), data


def _closed_text(codec: Codec, text: str, thread_id: str) -> str:
    return _sealed_text(codec.close(("t", text.encode()), error_place(thread_id)))


def _sealed_text(encoded: Encoded) -> str:
    tag, data = encoded
    return data.decode() if tag == "t" else f"{_SEALED_TEXT}{tag} {b64encode(data).decode()}"


def _opened_text(codec: Codec, text: str, thread_id: str) -> str:
    """The text of a run's error; if it cannot be opened, why."""
    try:
        return codec.open(_text_apart(text), error_place(thread_id))[1].decode()
    except CodecError as error:
        return f"the text of the error cannot be read: {error.reason}"


def _text_apart(text: str) -> Encoded:
    if not text.startswith(_SEALED_TEXT):
        return "t", text.encode()
    tag, _, data = text.removeprefix(_SEALED_TEXT).partition(" ")
    try:
        return tag, b64decode(data)
    except ValueError:
        raise CodecError("the stored bytes cannot be read: they are no base64") from None


# Places begin with what is there and its thread: whoever copies a thread has to seal its rows anew.


def value_place(thread_id: str, checkpoint_ns: str, channel: str, row: ValueRow | StoredValue) -> str:
    return _place("value", thread_id, checkpoint_ns, channel, row.version, row.base or "")


def input_place(thread_id: str) -> str:
    return _place("input", thread_id)


def error_place(thread_id: str) -> str:
    return _place("error", thread_id)


def write_place(row: WriteRow) -> str:
    return _place("write", row.thread_id, row.checkpoint_ns, row.checkpoint_id, row.task_id, str(row.idx), row.channel)


def _body_place(row: CheckpointRow) -> str:
    return _place("body", row.thread_id, row.checkpoint_ns, row.checkpoint_id, row.parent_id or "", row.versions)


def _place(*names: str) -> str:
    return "\0".join(names)


def item_place(namespace: Iterable[str], key: str) -> str:
    """Where an item of a store or a cache is."""
    return _place("item", *namespace, key)

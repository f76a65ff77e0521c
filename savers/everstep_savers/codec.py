"""The codec: values to `(tag, bytes)` and back, equal and of the same type at every depth, or refused.

What cannot be kept exactly is refused when it is stored, with its type, its place and the way out.
Reading never imports a module, and never makes or calls a class, because stored data names it: types come
from fixed tables or from the registry. Not kept is what is no part of a value: an object that appears
twice in it comes back as two, and what `functools.cached_property` computed is computed anew.

ormsgpack checks the lengths that stored bytes claim from 1.13.1 on; earlier ones take the memory, or abort
the process.

Tags: ``n`` None, ``m`` msgpack without marks, ``x`` msgpack with marks (see `values.tree`), ``p`` pickle; ``z`` and
``e:`` with the name of a key are those of `compression` and `encryption`, which a plain codec does not read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from operator import itemgetter
from typing import Any, TypeVar

import ormsgpack
from ormsgpack import packb, unpackb

from everstep_savers.errors import CodecError
from everstep_savers.values import arrays, standard  # noqa: F401  these two fill the tables of `tree`
from everstep_savers.values.builtin import lower_big_int
from everstep_savers.values.derived import RecordShape
from everstep_savers.values.failures import StoredError
from everstep_savers.values.reachable import reachable_classes
from everstep_savers.values.registry import Registry, is_typed_dict, shape_of
from everstep_savers.values.tree import (
    LEAVES,
    LEAVES_BUT_STR,
    STR,
    TOO_DEEP,
    Lowering,
    RefusedError,
    has_lowerer,
    lift,
    read_leaf,
    read_leaf_or_mark,
    type_name,
)

__all__ = ["Codec", "Encoded", "StoredError", "default_codec"]

Encoded = tuple[str, bytes]
T = TypeVar("T")

# Without these, ormsgpack writes values of other types as str, map or number, and says nothing.
_OPTIONS = (
    ormsgpack.OPT_PASSTHROUGH_BIG_INT
    | ormsgpack.OPT_PASSTHROUGH_DATACLASS
    | ormsgpack.OPT_PASSTHROUGH_DATETIME
    | ormsgpack.OPT_PASSTHROUGH_ENUM
    | ormsgpack.OPT_PASSTHROUGH_SUBCLASS
    | ormsgpack.OPT_PASSTHROUGH_TUPLE
    | ormsgpack.OPT_PASSTHROUGH_UUID
)
# The tags of sealed values, and what sealed bodies of checkpoints begin with: no msgpack does.
COMPRESSED, ENCRYPTED = "z", "e:"
SEALED_BODY = b"\xc1"
# The tag of a value that was to be opened in vain; the reason follows.
UNOPENED = "!"
# What a stored None is.
_NONE: Encoded = ("n", b"")
_shared = Registry()


class Codec:
    """Encodes and decodes values, and holds the registry of the types that may be stored.

    Args:
        allow_pickle: Store by pickle what would be refused, and read what was so stored. Reading a pickle
            runs code which the data chooses: only for databases that nobody else can write.
        registry: Of registered types; by default a new one that also knows what `default_codec` knows.

    Attributes:
        seals: What is done to the bytes besides, see `everstep_savers.sealing`; nothing here.
    """

    seals: Sequence[Any] = ()

    def __init__(self, *, allow_pickle: bool = False, registry: Registry | None = None) -> None:
        # Loaded by choice alone; the module that nobody may reach otherwise.
        self._pickle = import_module("pickle") if allow_pickle else None
        self._registry = Registry(base=_shared) if registry is None else registry

    @property
    def plain(self) -> Codec:
        """The codec without seals, for the same types."""
        return self

    @property
    def is_secret(self) -> bool:
        """Whether a seal hides what is stored."""
        return False

    def close(self, encoded: Encoded, place: str = "") -> Encoded:
        """Seal what `plain` has encoded, for the place where it is stored."""
        return encoded

    def open(self, encoded: Encoded, place: str = "") -> Encoded:
        """Undo `close`.

        Raises:
            CodecError: The bytes are damaged, belong to another place, or have not the seals that they must have.
        """
        return encoded

    def encode(self, value: Any) -> Encoded:
        """Return tag and bytes of a value.

        Raises:
            CodecError: The value cannot be kept as it is. `reason` names the type and the way out, `path`
                the place inside the value, such as ``['items'][3].price``.
        """
        if value is None:
            return _NONE
        if _needs_no_walk(value):
            try:
                return "m", _pack(value)
            except TypeError:
                pass  # a lone surrogate
        try:
            return self._walk(value)
        except CodecError as refused:
            return self._encode_by_pickle(value, refused)

    def encode_exception(self, error: BaseException) -> Encoded:
        """Return tag and bytes of an exception, or of a `StoredError` about it if it cannot be kept.

        Built-in exceptions whose arguments can be kept come back as they were, without traceback, cause
        and context. Does not fail.
        """
        try:
            return self.encode(error)
        except CodecError:
            return self.encode(StoredError.of(error))

    def canonical(self, value: Any) -> bytes:
        """Return bytes that are the same for equal values of one type, in every process; not to be decoded.

        Unlike in `encode`, the order in which the items of a set or a dict come up makes no difference.

        Raises:
            CodecError: The value cannot be kept as it is, see `encode`; by pickle does not count.
        """
        if type(value) is list and _needs_no_walk(value):
            try:
                return _pack(value)
            except TypeError:
                pass  # a lone surrogate
        return self._walk(value, _Canonical)[1]

    def decode(self, tag: str, data: bytes) -> Any:
        """Return the value that was encoded.

        Raises:
            CodecError: The bytes are damaged, or hold a type that is not registered or has changed.
        """
        try:
            if tag == "m":
                return unpackb(data, ext_hook=read_leaf)
            if tag == "n":
                return None
            if tag == "x":
                return lift(unpackb(data, ext_hook=read_leaf_or_mark), self._registry)
            if tag == "p" and self._pickle:
                return self._pickle.loads(data)
        except RefusedError as refused:
            raise refused.as_codec_error() from None
        except Exception as error:  # whatever damaged bytes bring about
            raise CodecError(f"the stored bytes cannot be read: {_damage(tag, data, error)}") from error
        if tag == "p":
            raise CodecError(
                "the value was stored by pickle, which this codec does not read: use Codec(allow_pickle=True)"
            )
        raise CodecError(unread(tag))

    def dumps_typed(self, value: Any) -> Encoded:
        """`encode`, by the name of the neighbouring ecosystem: a codec serves its savers as ``serde``."""
        return self.encode(value)

    def loads_typed(self, typed: Encoded) -> Any:
        """`decode`, by the name of the neighbouring ecosystem."""
        return self.decode(*typed)

    def register(self, *types: type, name: str | None = None) -> None:
        """Allow classes, and the classes their fields are annotated with, to be stored.

        Args:
            types: Dataclasses, pydantic models, attrs classes, named tuples, enums, and subclasses of
                str, int, float, complex, bytes, tuple, frozenset, list, set and dict.
            name: Stored in place of module and qualified name, for one class that may move later on.

        Raises:
            TypeError: Instances of a class cannot be kept.
            ValueError: The name belongs to another class.
        """
        if name is not None and len(types) != 1:
            raise TypeError(f"codec.register(name={name!r}) takes one class, not {len(types)}")
        for cls in types:
            if not isinstance(cls, type):
                raise TypeError(f"codec.register takes classes, not {cls!r}: use codec.register_annotation")
            shape = shape_of(cls, name)
            if shape is not None and (name is not None or self._registry.of_type(cls) is None):
                self._registry.add(shape)
            elif shape is None and not has_lowerer(cls) and not is_typed_dict(cls):
                raise TypeError(self._registry.refusal(cls))
            self.register_annotation(cls)

    def register_record(
        self, cls: type[T], *, name: str, to_fields: Callable[[T], Any], from_fields: Callable[[Any], T]
    ) -> None:
        """Allow a class that is kept through two functions.

        Args:
            cls: Of exactly this type, not of subclasses, the values are taken.
            name: Stored name, such as ``"everstep:Send"``.
            to_fields: Gives what is stored of a value; anything the codec can store.
            from_fields: Makes the value of it again.

        Raises:
            ValueError: The name belongs to another class.
        """
        self._registry.add(RecordShape(cls, name, to_fields, from_fields))

    def register_annotation(self, annotation: Any) -> None:
        """Allow every class that values of this type may consist of, as far as annotations tell.

        Subclasses that exist by now are among them. What cannot be stored is passed over: it is refused
        when a value of it comes up.
        """
        for cls in reachable_classes(annotation):
            if self._registry.of_type(cls) is None and (shape := shape_of(cls)) is not None:
                self._registry.add(shape)

    def _walk(self, value: Any, kind: type[Lowering] = Lowering) -> Encoded:
        try:
            encoded = self._lower(value, kind(self._registry, LEAVES))
            encoded = encoded or self._lower(value, kind(self._registry, LEAVES_BUT_STR))
        except RefusedError as refused:
            raise refused.as_codec_error() from refused.__cause__
        except RecursionError:
            raise CodecError(TOO_DEEP) from None
        except Exception as error:  # properties and methods of users' classes may raise anything
            name = type_name(type(value))
            raise CodecError(f"{name} cannot be stored: {type_name(type(error))}: {error}") from error
        if encoded is None:
            raise CodecError(TOO_DEEP)
        return encoded

    def _lower(self, value: Any, walk: Lowering) -> Encoded | None:
        """Return tag and bytes, or None if ormsgpack refuses: a lone surrogate, or too many levels."""
        lowered = walk.lower(value)
        try:
            return "x" if walk.marked else "m", _pack(lowered)
        except TypeError:
            return None

    def _encode_by_pickle(self, value: Any, refused: CodecError) -> Encoded:
        if self._pickle is None:
            raise refused
        try:
            return "p", self._pickle.dumps(value)
        except Exception:
            raise refused from None


class _Canonical(Lowering):
    """Lowers what has no order of its own in one that follows from the items alone."""

    __slots__ = ()

    def lower(self, value: Any) -> Any:
        """Return the lowered form of a value."""
        lowered = super().lower(value)
        kind = type(value)
        if kind is set or kind is frozenset:
            return [lowered[0], *sorted(lowered[1:], key=_pack)]
        if kind is not dict:
            return lowered
        if type(lowered) is dict:
            return dict(sorted(lowered.items(), key=itemgetter(0)))
        pairs = sorted(zip(lowered[1::2], lowered[2::2], strict=True), key=lambda pair: _pack(pair[0]))
        return [lowered[0], *(item for pair in pairs for item in pair)]


def _pack(lowered: Any) -> bytes:
    return packb(lowered, lower_big_int, _OPTIONS)


def _needs_no_walk(value: Any) -> bool:
    """Whether a value is a leaf, or a list or dict of leaves, as most are."""
    kind = type(value)
    if kind is list:
        return LEAVES.issuperset(map(type, value))
    if kind is dict:
        return STR.issuperset(map(type, value)) and LEAVES.issuperset(map(type, value.values()))
    return kind in LEAVES


def unread(tag: str) -> str:
    """Why bytes of this tag are not read."""
    if tag.startswith(UNOPENED):
        return tag.removeprefix(UNOPENED)
    if tag.startswith(ENCRYPTED):
        name = tag.removeprefix(ENCRYPTED)
        return f"the value is encrypted under the key {name!r}: read it with codec=SealedCodec(Encryption(keys))"
    if tag == COMPRESSED:
        return "the value is compressed: read it with codec=SealedCodec(Compression())"
    return f"the stored bytes have the unknown tag {tag!r}; a newer version may have written them"


def _damage(tag: str, data: bytes, error: Exception) -> str:
    """What is wrong with unreadable bytes; ormsgpack does not pass on what its hook raised."""
    hook = read_leaf if tag == "m" else read_leaf_or_mark
    causes = [error]

    def read(code: int, content: bytes) -> Any:
        try:
            return hook(code, content)
        except Exception as cause:
            causes.append(cause)
            raise

    if tag in ("m", "x"):
        try:
            unpackb(data, ext_hook=read)
        except ValueError:
            error = causes[-1]
    return error.reason if isinstance(error, RefusedError) else f"{type_name(type(error))}: {error}"


default_codec = Codec(registry=_shared)
default_codec.register(StoredError, name="everstep:StoredError")

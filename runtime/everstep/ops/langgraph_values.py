"""Values as LangGraph's savers have stored them, read without LangGraph.

Stored data names classes; nothing is imported or called because it does. A class comes from a fixed table, or from
those that the caller knows of, and is found there by module and name. What LangGraph itself has lost when it stored a
value (that a list was a tuple, say) stays lost.
"""

from __future__ import annotations

import ast
import builtins
import collections
import datetime
import decimal
import ipaddress
import pathlib
import re
import uuid
import zoneinfo
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import ormsgpack

from everstep.policies import TimeoutPolicy
from everstep.types import MISSING, Command, Interrupt, Overwrite, Send
from everstep_savers.codec import Codec
from everstep_savers.errors import CodecError
from everstep_savers.values.failures import StoredError
from everstep_savers.values.wellknown import load_well_known

# How an extended value was taken apart, by its code.
_ONE, _ARGUMENTS, _KEYWORDS, _METHOD, _OLD_MODEL, _MODEL, _ARRAY, _DELTA = range(8)

# The head of a list of two, and what stands second in it, packed.
_PAIR, _MARK = b"\x92", b"end of the value"
_END = ormsgpack.packb(_MARK)

_PATHS = ("PosixPath", "WindowsPath", "PurePosixPath", "PureWindowsPath")
_ADDRESSES = ("IPv4Address", "IPv6Address", "IPv4Network", "IPv6Network", "IPv4Interface", "IPv6Interface")
_TIMES = ("datetime", "date", "time", "timedelta", "timezone")
_FAILURE = re.compile(r"(\w+)\((.*)\)", re.DOTALL)


class Extended(NamedTuple):
    """A value that is not plain, as it was stored."""

    code: int
    data: bytes


class Snapshot(NamedTuple):
    """The value of a delta channel, as it was at one checkpoint."""

    value: Any


def _command(graph: Any = None, update: Any = None, resume: Any = None, goto: Any = ()) -> Command[Any]:
    return Command(graph=graph, update=update, resume=MISSING if resume is None else resume, goto=goto)


def _overwrite(value: Any, **_: Any) -> Overwrite:
    return Overwrite(value)


def _send(node: str, arg: Any, timeout: Any = None) -> Send:
    return Send(node, arg, timeout=timeout)


_KNOWN: Mapping[tuple[str, str], Callable[..., Any]] = {
    ("builtins", "set"): set,
    ("builtins", "frozenset"): frozenset,
    ("collections", "deque"): collections.deque,
    ("decimal", "Decimal"): decimal.Decimal,
    ("re", "compile"): re.compile,
    ("uuid", "UUID"): uuid.UUID,
    ("zoneinfo", "ZoneInfo"): zoneinfo.ZoneInfo,
    **{("datetime", name): getattr(datetime, name) for name in _TIMES},
    **{("ipaddress", name): getattr(ipaddress, name) for name in _ADDRESSES},
    **{(f"pathlib{more}", name): getattr(pathlib, name) for name in _PATHS for more in ("", "._local")},
    ("langgraph.types", "Command"): _command,
    ("langgraph.types", "Interrupt"): Interrupt,
    ("langgraph.types", "Overwrite"): _overwrite,
    ("langgraph.types", "Send"): _send,
    ("langgraph.types", "TimeoutPolicy"): TimeoutPolicy,
}


class StoredValues:
    """Reads stored values.

    Args:
        classes: Of the program whose threads these are: its dataclasses, models, enums and named tuples.
    """

    def __init__(self, classes: Iterable[type] = ()) -> None:
        self._classes = {(cls.__module__, cls.__name__): cls for cls in classes}

    def read(self, kind: str, data: bytes) -> Any:
        """The value that was stored as this kind of bytes.

        Raises:
            CodecError: It is of a kind or a class that is not known, or damaged.
        """
        return self.lifted(unpacked(kind, data))

    def lifted(self, value: Any) -> Any:
        """A value in which nothing is left as it was stored.

        Raises:
            CodecError: Something in it is of a class that is not known, or damaged.
        """
        try:
            return self._lifted(value)
        except CodecError:
            raise
        except Exception as error:  # data of another shape than LangGraph's, or too deep
            raise CodecError(f"the stored bytes cannot be read: {type(error).__name__}: {error}") from error

    def _lifted(self, value: Any) -> Any:
        if isinstance(value, Extended):
            return self._made(value.code, _unpack(value.data))
        if type(value) is list:
            return [self._lifted(item) for item in value]
        if type(value) is dict:
            return {self._lifted(key): self._lifted(item) for key, item in value.items()}
        return value

    def _made(self, code: int, parts: Any) -> Any:
        if code == _DELTA:
            return Snapshot(self._lifted(parts))
        if code == _ARRAY:
            return _array(*parts)
        module, name, content, *more = parts
        cls, content = self._class(module, name), self._lifted(content)
        try:
            return self._called(code, cls, content, more)
        except Exception as error:  # whatever a class says of data that does not fit it
            raise CodecError(f"a stored {module}.{name} cannot be made again: {error}") from error

    def _class(self, module: str, name: str) -> Callable[..., Any]:
        found = self._classes.get((module, name)) or _KNOWN.get((module, name)) or load_well_known(f"{module}:{name}")
        if found is None:
            raise CodecError(
                f"the class {module}.{name} is not known; name the graph whose state has it "
                f"(--graph package.module:graph) or the class itself (--type {module}:{name})"
            )
        return found

    def _called(self, code: int, cls: Any, content: Any, more: list[Any]) -> Any:
        if code == _ONE:
            return cls(content)
        if code == _ARGUMENTS:
            return cls(*content)
        if code in (_KEYWORDS, _OLD_MODEL):
            return cls(**content)
        if code == _METHOD and more == ["fromisoformat"]:
            return cls.fromisoformat(content)
        if code == _MODEL:
            return cls.model_validate(content)
        raise CodecError(f"a value was stored in a way that is not known (code {code})")


class Items:
    """What a thread's lists are made of: equal items are one object, and so what two lists share shows."""

    def __init__(self, codec: Codec) -> None:
        self._codec = codec
        self._known: dict[Any, Any] = {}

    def shared(self, channel: str, value: Any) -> Any:
        """A channel's value; a list, with the items that other values of the channel have had."""
        if type(value) is not list:
            return value
        return [self._known.setdefault((channel, *self._key(item)), item) for item in value]

    def _key(self, item: Any) -> tuple[Any, ...]:
        if type(item) in (str, int):
            return type(item), item
        try:
            return self._codec.encode(item)
        except CodecError:  # whoever stores it says so, with all there is to say
            return (id(item), None)


def unpacked(kind: str, data: bytes) -> Any:
    """A stored value whose parts that are not plain are still as they were stored.

    Raises:
        CodecError: It is of a kind that is not known, or damaged.
    """
    if kind in ("null", "empty"):
        return None
    if kind == "bytes":
        return bytes(data)
    if kind == "bytearray":
        return bytearray(data)
    if kind == "msgpack":
        return _unpack(data)
    if kind == "pickle":
        raise CodecError("it was stored by pickle, which is not read: reading it would run code that the data chooses")
    raise CodecError(f"it was stored as {kind!r}, which is not known")


def failure_of(text: Any) -> Any:
    """An exception as LangGraph keeps it, which is its repr: the exception, or a record of it."""
    if not isinstance(text, str) or (found := _FAILURE.fullmatch(text)) is None:
        return StoredError("Exception", str(text))
    name, arguments = found.groups()
    cls = getattr(builtins, name, None)
    if isinstance(cls, type) and issubclass(cls, Exception):
        try:
            return cls(*ast.literal_eval(f"({arguments},)" if arguments else "()"))
        except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
            pass  # its arguments are not plain, or nested too deep to tell
    return StoredError(name, arguments)


def _unpack(data: bytes) -> Any:
    if not isinstance(data, bytes):
        raise CodecError(f"the stored bytes cannot be read: they are {type(data).__name__} {data!r:.100}")
    try:
        # The decoder reads one value and does not look at what comes after it: with a mark at the end, it does.
        value, end = ormsgpack.unpackb(_PAIR + data + _END, ext_hook=Extended, option=ormsgpack.OPT_NON_STR_KEYS)
    except ormsgpack.MsgpackDecodeError as error:
        raise CodecError(f"the stored bytes cannot be read: {error}") from error
    if end != _MARK:
        raise CodecError("the stored bytes cannot be read: they go on after the value")
    return value


def _array(dtype: str, shape: list[int], order: str, data: bytes) -> Any:
    import numpy  # optional: whoever has arrays in a state has it

    return numpy.frombuffer(data, dtype=numpy.dtype(dtype)).reshape(shape, order=order).copy(order="K")  # type: ignore[call-overload]

"""Leaves of the standard library: times, numbers, ids, paths, addresses, patterns.

A value of one of these types can only exist once its module is loaded, so the module is looked up, not
imported, when a value is stored; reading imports it, from the fixed tables below. Of `datetime` values
those are kept whose time zone can be: `datetime.timezone` and `zoneinfo.ZoneInfo`.
"""

from __future__ import annotations

import re
import struct
import sys
from collections.abc import Callable
from datetime import date, datetime, time, timedelta, timezone, tzinfo
from importlib import import_module
from typing import Any
from uuid import UUID, SafeUUID

from ormsgpack import Ext

from everstep_savers.values.tree import (
    FINDERS,
    LEAF_READERS,
    LIFTERS,
    LOWERERS,
    Lowering,
    RefusedError,
    type_name,
)

# Stored codes; never renumber.
_DATETIME, _DATE, _TIME, _TIMEDELTA, _TIMEZONE, _UUID, _ZONEINFO = range(8, 15)
_PATTERN, _FRACTION = 80, 81

# Types whose text is the whole value: code -> module and name.
_BY_TEXT = {
    16: ("decimal", "Decimal"),
    17: ("pathlib", "PosixPath"),
    18: ("pathlib", "WindowsPath"),
    19: ("pathlib", "PurePosixPath"),
    20: ("pathlib", "PureWindowsPath"),
    21: ("ipaddress", "IPv4Address"),
    22: ("ipaddress", "IPv6Address"),
    23: ("ipaddress", "IPv4Network"),
    24: ("ipaddress", "IPv6Network"),
    25: ("ipaddress", "IPv4Interface"),
    26: ("ipaddress", "IPv6Interface"),
}

_MICROSECOND = timedelta(microseconds=1)
_MOMENT = struct.Struct(">HBBBBBIB")
_DAY = struct.Struct(">HBB")
_CLOCK = struct.Struct(">BBBIB")
_SPAN = struct.Struct(">iii")
_OFFSET = struct.Struct(">q")

# The flags with which a pattern may come back; re.DEBUG would print while reading.
_PATTERN_FLAGS = int(re.I | re.L | re.M | re.S | re.U | re.X | re.A)


def _named(module: str, name: str) -> Any:
    return getattr(import_module(module), name)


def _zone_bytes(zone: tzinfo | None) -> bytes:
    if zone is None:
        return b""
    if type(zone) is timezone:
        return b"+" + _timezone_bytes(zone)
    zoneinfo = sys.modules.get("zoneinfo")
    if zoneinfo is not None and type(zone) is zoneinfo.ZoneInfo:
        return b"z" + _zoneinfo_bytes(zone)
    raise RefusedError(
        f"a time with the time zone type {type_name(type(zone))} cannot be stored: "
        "use datetime.timezone or zoneinfo.ZoneInfo"
    )


def _read_zone(data: bytes) -> tzinfo | None:
    if not data:
        return None
    if data[:1] == b"+":
        return _read_timezone(data[1:])
    return _read_zoneinfo(data[1:])


def _zoneinfo_bytes(zone: Any) -> bytes:
    if zone.key is None:
        raise RefusedError("a ZoneInfo without a key cannot be stored: use ZoneInfo('Region/City')")
    return bytes(zone.key, "ascii")


def _read_zoneinfo(data: bytes) -> tzinfo:
    key = data.decode()
    # ZoneInfo keeps keys inside its directories; this keeps them inside the tzdata package as well, whose
    # subpackages it would import by name.
    if not re.fullmatch(r"[\w+-]+(/[\w+-]+)*", key, re.ASCII):
        raise RefusedError(f"the stored time zone {key!r} has no valid name")
    zone: tzinfo = _named("zoneinfo", "ZoneInfo")(key)
    return zone


def _timezone_bytes(zone: timezone) -> bytes:
    # The public methods do not tell a given name from the one made of the offset.
    offset, *name = zone.__getinitargs__()  # type: ignore[attr-defined]
    packed = _OFFSET.pack(offset // _MICROSECOND)
    return packed + b"=" + name[0].encode("utf-8", "surrogatepass") if name else packed


def _read_timezone(data: bytes) -> timezone:
    offset = timedelta(microseconds=_OFFSET.unpack(data[: _OFFSET.size])[0])
    name = data[_OFFSET.size :]
    return timezone(offset, name[1:].decode("utf-8", "surrogatepass")) if name else timezone(offset)


def _datetime_bytes(value: datetime) -> bytes:
    fields = _MOMENT.pack(
        value.year, value.month, value.day,
        value.hour, value.minute, value.second, value.microsecond, value.fold,
    )  # fmt: skip
    return fields if value.tzinfo is None else fields + _zone_bytes(value.tzinfo)


def _read_datetime(data: bytes) -> datetime:
    year, month, day, hour, minute, second, microsecond, fold = _MOMENT.unpack(data[: _MOMENT.size])
    zone = _read_zone(data[_MOMENT.size :])
    return datetime(year, month, day, hour, minute, second, microsecond, zone, fold=fold)


def _time_bytes(value: time) -> bytes:
    fields = _CLOCK.pack(value.hour, value.minute, value.second, value.microsecond, value.fold)
    return fields + _zone_bytes(value.tzinfo)


def _read_time(data: bytes) -> time:
    hour, minute, second, microsecond, fold = _CLOCK.unpack(data[: _CLOCK.size])
    return time(hour, minute, second, microsecond, _read_zone(data[_CLOCK.size :]), fold=fold)


def _uuid_bytes(value: UUID) -> bytes:
    safety = value.is_safe.value
    return value.bytes if safety is None else value.bytes + struct.pack(">b", safety)


def _read_uuid(data: bytes) -> UUID:
    if len(data) == 16:
        return UUID(bytes=data)
    return UUID(bytes=data[:16], is_safe=SafeUUID(struct.unpack(">b", data[16:])[0]))


def _text_bytes(value: Any) -> bytes:
    return str(value).encode("utf-8", "surrogatepass")


def _text_reader(module: str, name: str) -> Callable[[bytes], Any]:
    return lambda data: _named(module, name)(data.decode("utf-8", "surrogatepass"))


def _lower_pattern(walk: Lowering, value: re.Pattern[Any]) -> list[Any]:
    if value.flags & ~_PATTERN_FLAGS:
        raise RefusedError(f"a pattern with {re.RegexFlag(value.flags)!r} cannot be stored")
    return walk.items((value.pattern, value.flags), walk.mark(_PATTERN))


def _lift_pattern(data: bytes, items: list[Any]) -> re.Pattern[Any]:
    pattern, flags = items
    return re.compile(pattern, flags & _PATTERN_FLAGS)


def _lower_fraction(walk: Lowering, value: Any) -> list[Any]:
    return walk.items((value.numerator, value.denominator), walk.mark(_FRACTION))


def _find_lazily(kind: type) -> Callable[[Lowering, Any], Any] | None:
    for code, (module, name) in _BY_TEXT.items():
        if getattr(sys.modules.get(module), name, None) is kind:
            return _leaf_lowerer(code, _text_bytes)
    if getattr(sys.modules.get("zoneinfo"), "ZoneInfo", None) is kind:
        return _leaf_lowerer(_ZONEINFO, _zoneinfo_bytes)
    if getattr(sys.modules.get("fractions"), "Fraction", None) is kind:
        return _lower_fraction
    return None


def _leaf_lowerer(code: int, to_bytes: Callable[[Any], bytes]) -> Callable[[Lowering, Any], Ext]:
    return lambda walk, value: Ext(code, to_bytes(value))


LOWERERS.update(
    {
        datetime: _leaf_lowerer(_DATETIME, _datetime_bytes),
        date: _leaf_lowerer(_DATE, lambda value: _DAY.pack(value.year, value.month, value.day)),
        time: _leaf_lowerer(_TIME, _time_bytes),
        timedelta: _leaf_lowerer(_TIMEDELTA, lambda value: _SPAN.pack(value.days, value.seconds, value.microseconds)),
        timezone: _leaf_lowerer(_TIMEZONE, _timezone_bytes),
        UUID: _leaf_lowerer(_UUID, _uuid_bytes),
        re.Pattern: _lower_pattern,
    }
)
LEAF_READERS.update(
    {
        _DATETIME: _read_datetime,
        _DATE: lambda data: date(*_DAY.unpack(data)),
        _TIME: _read_time,
        _TIMEDELTA: lambda data: timedelta(*_SPAN.unpack(data)),
        _TIMEZONE: _read_timezone,
        _UUID: _read_uuid,
        _ZONEINFO: _read_zoneinfo,
    }
)
LEAF_READERS.update({code: _text_reader(*where) for code, where in _BY_TEXT.items()})
LIFTERS.update(
    {
        _PATTERN: _lift_pattern,
        _FRACTION: lambda data, items: _named("fractions", "Fraction")(*items),
    }
)
FINDERS.append(_find_lazily)

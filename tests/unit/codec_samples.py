"""Classes and values that the codec is tried with, and what "equal and of the same type" means.

`assert_same` is stricter than ``==``: types at every depth, the bits of floats, the order of dicts, the
attributes of exceptions and models. A process that imports this module knows the classes, as one that
compiles the same graph does.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import ipaddress
import re
import struct
import uuid
import zoneinfo
from collections import Counter, OrderedDict, defaultdict, deque, namedtuple
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from pathlib import PosixPath, PurePosixPath, PureWindowsPath
from typing import Any, Generic, NamedTuple, TypeVar

import attrs
import numpy as np
import pydantic
from pydantic.dataclasses import dataclass as pydantic_dataclass

from everstep_savers.codec import Codec

T = TypeVar("T")


class Color(enum.Enum):
    RED = 1
    GREEN = (2, "two")


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 10


class Mood(enum.StrEnum):
    GOOD = "good"


class Old(str, enum.Enum):  # noqa: UP042  how it was done before StrEnum
    A = "a"


class Access(enum.Flag):
    READ = enum.auto()
    WRITE = enum.auto()


class Mask(enum.IntFlag):
    A = 1
    B = 2


class Outer:
    class Inner(enum.Enum):
        X = "x"

    @dataclasses.dataclass
    class Nested:
        at: tuple[int, int]


class Point(NamedTuple):
    x: float
    y: float = 0.0


Pair = namedtuple("Pair", "left right")  # noqa: PYI024  one made by the function


class Labelled(Pair):
    """A named tuple with attributes beside its fields."""


class Text(str):
    pass


class SlottedText(str):
    __slots__ = ("lang",)
    lang: str


class Number(int):
    pass


class Real(float):
    pass


class Blob(bytes):
    pass


class Stack(list[Any]):
    pass


class Table(dict[Any, Any]):
    pass


class Triple(tuple[Any, ...]):
    pass


class Bag(set[Any]):
    pass


class Frozen(frozenset[Any]):
    pass


@dataclasses.dataclass
class Item:
    name: str
    size: tuple[int, ...] = ()


@dataclasses.dataclass
class BigItem(Item):
    extra: dict[int, str] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, slots=True)
class Frosty:
    x: int
    parts: frozenset[str] = frozenset()


@dataclasses.dataclass
class Lazy:
    n: int
    derived: int = dataclasses.field(init=False)
    start: dataclasses.InitVar[int] = 3

    def __post_init__(self, start: int) -> None:
        self.derived = self.n * start

    @functools.cached_property
    def square(self) -> int:
        return self.n**2


@dataclasses.dataclass
class Cell(Generic[T]):
    value: T


class SlotBase:
    __slots__ = ("cache", "unset")


@dataclasses.dataclass
class OnSlots(SlotBase):
    x: int


@attrs.define
class Attr:
    x: int = attrs.field(converter=int)
    _hidden: list[int] = attrs.Factory(list)


@attrs.frozen(cache_hash=True)
class HashedAttr:
    name: str


@attrs.define(slots=False)
class DictAttr:
    x: int


class Price(pydantic.BaseModel):
    amount: Decimal
    currency: str = "EUR"
    _seen: int = pydantic.PrivateAttr(default=0)

    @pydantic.field_validator("currency")
    @classmethod
    def upper(cls, value: str) -> str:
        return value.upper()

    @functools.cached_property
    def text(self) -> str:
        return f"{self.amount} {self.currency}"


class TaxedPrice(Price):
    rate: float = 0.2


class Open(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="allow")
    id: int


class Holder(pydantic.BaseModel):
    price: Price
    tags: tuple[str, ...] = ()


class Box(pydantic.BaseModel, Generic[T]):
    content: T


class Names(pydantic.RootModel[list[str]]):
    pass


@pydantic_dataclass
class Checked:
    x: int


CLASSES: tuple[type, ...] = (
    Color, Level, Mood, Old, Access, Mask, Outer.Inner, Outer.Nested, Point, Pair, Labelled,
    Text, SlottedText, Number, Real, Blob, Stack, Table, Triple, Bag, Frozen,
    Item, Frosty, Lazy, Cell, OnSlots, Attr, HashedAttr, DictAttr,
    Price, Open, Holder, Box, Names, Checked,
)  # fmt: skip


def make_codec() -> Codec:
    """A codec that knows the classes of this module."""
    codec = Codec()
    codec.register(*CLASSES)
    return codec


def double(bits: str) -> float:
    """The float with these 64 bits, in hexadecimal digits."""
    value: float = struct.unpack(">d", bytes.fromhex(bits))[0]
    return value


def with_attributes(value: Any, **attributes: Any) -> Any:
    for name, item in attributes.items():
        setattr(value, name, item)
    return value


def noted(error: BaseException, *notes: str) -> BaseException:
    for note in notes:
        error.add_note(note)
    return error


def _used(value: Any, *names: str) -> Any:
    """A value whose cached properties have been computed."""
    for name in names:
        getattr(value, name)
    return value


STRUCTURED = np.dtype([("id", "<i4"), ("name", "U5"), ("at", "datetime64[s]"), ("grid", ">f8", (2, 2))])
PADDED = np.dtype({"names": ["a", "b"], "formats": ["u1", "<f4"], "offsets": [0, 8], "itemsize": 16})


def _structured() -> Any:
    array = np.zeros(2, STRUCTURED)
    array[0] = (7, "seven", np.datetime64("2024-02-29T12:00:00"), [[1, 2], [3, 4]])
    return array


BERLIN = zoneinfo.ZoneInfo("Europe/Berlin")
KOLKATA = timezone(timedelta(hours=5, minutes=30))


def make_samples() -> dict[str, Any]:
    """New values of every type that is kept, by name."""
    return {
        "none": None,
        "true": True,
        "false": False,
        "int": 42,
        "int-negative": -1,
        "int-64-bit": [2**63 - 1, -(2**63), 2**64 - 1],
        "int-beyond-64-bit": [2**64, -(2**63) - 1, 2**65, -(2**64), 3**5000, -(3**5000)],
        "float": [1.5, -2.5e300, 5e-324],
        "float-negative-zero": [0.0, -0.0],
        "float-inf": [float("inf"), float("-inf")],
        "float-nan-bits": [double("7ff8000000000000"), double("fff8000000000001"), double("7ff0000000000001")],
        "str": "Grüße, 世界 \U0001f600",
        "str-empty": "",
        "str-nul": "x\0y",
        "str-surrogate": "a\ud800b",
        "str-surrogate-key": {"\udfff": ["\ud800", {"k": "plain"}]},
        "str-surrogate-in-tuple": ("\ud800", "x", Item("\ud800")),
        "bytes": b"\0\xff",
        "bytearray": bytearray(b"\0\xff"),
        "list": [1, [2, [3, []]]],
        "tuple": (1, (2, (3, ()))),
        "tuple-in-list-in-tuple": ([(1,), [2]], ()),
        "set": {1, "a", (2, 3)},
        "frozenset": frozenset({1, frozenset({2})}),
        "dict": {"b": 1, "a": {"z": None}},
        "dict-int-and-str-keys": {1: "int", "1": "str"},
        "dict-tuple-keys": {(1, "a"): {(): 2}},
        "dict-odd-keys": {None: 1, 2.5: 2, b"b": 3, True: 4, "": 5, frozenset({1}): 6, Color.RED: 7, Point(1, 2): 8},
        "dict-str-subclass-key": {Text("a"): 1},
        "ordered-dict": OrderedDict([("b", 1), ("a", 2)]),
        "counter": Counter({"a": 2, 5: -1}),
        "defaultdict": defaultdict(list, {"a": [1]}),
        "defaultdict-none": defaultdict(None, {(1,): 2}),
        "defaultdict-counter": defaultdict(Counter, {"a": Counter("xx")}),
        "deque": deque([1, (2,)]),
        "deque-maxlen": deque([1, 2], maxlen=2),
        "deque-maxlen-0": deque(maxlen=0),
        "complex": [1 + 2j, complex(-0.0, float("inf")), complex(double("7ff8000000000009"), -0.0)],
        "range": [range(3), range(10, 0, -3), range(2**70, 2**70 + 5), range(True), range(0)],
        "datetime-naive": datetime(2024, 2, 29, 23, 59, 59, 999999),  # noqa: DTZ001
        "datetime-utc": datetime(2024, 2, 29, tzinfo=UTC),
        "datetime-offset": datetime(2024, 2, 29, 1, 2, 3, 4, tzinfo=KOLKATA),
        "datetime-zone": datetime(2024, 7, 1, tzinfo=BERLIN),
        "datetime-fold": [datetime(2024, 10, 27, 2, 30, fold=fold, tzinfo=BERLIN) for fold in (0, 1)],
        "datetime-limits": [datetime.min, datetime.max],  # noqa: DTZ901
        "date": [date.min, date(2024, 2, 29), date.max],
        "time": [time(), time(23, 59, 59, 999999, fold=1), time(1, tzinfo=KOLKATA)],
        "timedelta": [timedelta.min, timedelta(microseconds=-1), timedelta.max],
        "timezone": [UTC, KOLKATA, timezone(timedelta(0), "X"), timezone(timedelta(hours=-1), ""), timezone.max],
        "timezone-microseconds": timezone(timedelta(seconds=1, microseconds=7), "odd \ud800"),
        "zoneinfo": BERLIN,
        "decimal": [Decimal("1.50"), Decimal("-0"), Decimal("1E+999999"), Decimal("Infinity")],
        "decimal-nan": [Decimal("NaN"), Decimal("-NaN12"), Decimal("sNaN")],
        "fraction": [Fraction(1, 3), Fraction(-(2**80), 3)],
        "uuid": [uuid.UUID(int=7), uuid.UUID(int=7, is_safe=uuid.SafeUUID.safe), uuid.UUID(int=0, version=4)],
        "path": [PosixPath("/a/b"), PosixPath("."), PosixPath("a\udcff")],
        "pure-path": [PurePosixPath("//a/../b"), PureWindowsPath("C:\\a\\b")],
        "pattern": [re.compile("a+", re.I | re.M), re.compile("(?x) a # b"), re.compile("\ud800")],
        "pattern-bytes": re.compile(b"\\w", re.A),
        "ip": [
            ipaddress.ip_address("127.0.0.1"), ipaddress.ip_address("fe80::1%eth0"),
            ipaddress.ip_network("10.0.0.0/8"), ipaddress.ip_network("2001:db8::/32"),
            ipaddress.ip_interface("10.1.2.3/8"), ipaddress.ip_interface("2001:db8::1/32"),
        ],
        "enum": [Color.RED, Color.GREEN],
        "enum-nested-class": Outer.Inner.X,
        "enum-int": Level.HIGH,
        "enum-str": [Mood.GOOD, Old.A],
        "enum-flag": [Access.READ, Access.READ | Access.WRITE, Access(0), Mask.A | Mask.B, Mask(8)],
        "namedtuple": [Point(1.0), Pair((1,), [2])],
        "namedtuple-attributes": with_attributes(Labelled(1, 2), note="n"),
        "subclass-str": [Text("a"), Text("\ud800"), with_attributes(Text("a"), lang="de")],
        "subclass-slots": [SlottedText("a"), with_attributes(SlottedText("a"), lang="de")],
        "subclass-int": [Number(3), Number(2**70)],
        "subclass-float": [Real(0.5), Real(double("7ff8000000000001"))],
        "subclass-bytes": Blob(b"x"),
        "subclass-list": with_attributes(Stack([1, (2,)]), top=2),
        "subclass-dict": Table({"a": Table(), 1: (2,)}),
        "subclass-tuple": Triple((1, 2, [3])),
        "subclass-set": [Bag({1, 2}), Frozen({(1,)})],
        "dataclass": Item("a", (1, 2)),
        "dataclass-in-class": Outer.Nested((1, 2)),
        "dataclass-frozen-slots": Frosty(1, frozenset({"a"})),
        "dataclass-initvar": [Lazy(4), _used(Lazy(4), "square")],
        "dataclass-attributes": with_attributes(Item("a"), beside=(1,)),
        "dataclass-slots-of-base": [OnSlots(1), with_attributes(OnSlots(1), cache=(2,))],
        "dataclass-generic": [Cell((1,)), Cell[int](1)],
        "dataclass-subclass-in-base-field": Cell[Item](BigItem("b", extra={1: "x"})),
        "attrs": [Attr(1), Attr("2", [3])],
        "attrs-hash": [HashedAttr("a"), {HashedAttr("b"): 1}],
        "attrs-dict": with_attributes(DictAttr(1), beside=2),
        "pydantic": [Price(amount=Decimal("1.0")), Price(amount=Decimal("1.0"), currency="usd")],
        "pydantic-invalid": Price.model_construct(amount=(1, 2), currency="usd"),
        "pydantic-private": with_attributes(Price(amount=Decimal(1)), _seen=(3,)),
        "pydantic-cached": _used(Price(amount=Decimal(1)), "text"),
        "pydantic-extra": Open(id=1, more=(1, {2}), also=None),  # type: ignore[call-arg]
        "pydantic-subclass-in-base-field": Holder(price=TaxedPrice(amount=Decimal(1)), tags=("a",)),
        "pydantic-generic": [Box[int](content=1), Box[Item](content=Item("a")), Box(content=(1,))],
        "pydantic-root": Names(["a"]),
        "pydantic-dataclass": Checked(1),
        "exception": [ValueError("a", (1,)), KeyError("k"), ZeroDivisionError(), StopIteration(3), SystemExit(2)],
        "exception-os": [OSError(2, "gone", "f.txt"), FileNotFoundError(2, "gone", "a", None, "b"), OSError("x")],
        "exception-keywords": [ImportError("m", name="n", path="p"), NameError("x", name="x")],
        "exception-unicode": UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad"),
        "exception-syntax": SyntaxError("bad", ("f.py", 1, 2, "text", 1, 3)),
        "exception-notes": noted(ValueError("a"), "one", "two"),
        "exception-group": ExceptionGroup("several", [ValueError(1), ExceptionGroup("in", [KeyError(2)])]),
        "exception-attributes": with_attributes(RuntimeError("a"), code=(1,)),
        "numpy-scalar": [
            np.float64(1.5), np.float32(-0.0), np.float16("nan"), np.int8(-1), np.uint64(2**64 - 1), np.bool_(True),
            np.longlong(5), np.complex64(1 + 2j), np.longdouble("1.1"),
        ],
        "numpy-text": [np.str_("a\0"), np.bytes_(b"a\0"), np.str_("")],
        "numpy-datetime": [np.datetime64("2024-02-29"), np.datetime64("NaT", "ns"), np.timedelta64(3, "D")],
        "numpy-datetime-unit": np.datetime64(7, ("s", 25)),
        "numpy-void": [np.void(b"abc"), _structured()[0]],
        "numpy-array": [np.arange(6).reshape(2, 3), np.array([1.5, np.nan]), np.zeros((0, 3)), np.array([True])],
        "numpy-array-0d": np.array(5),
        "numpy-array-order": [np.asfortranarray(np.arange(6).reshape(2, 3)), np.arange(10)[::-2]],
        "numpy-array-byte-order": np.array([1, 2], dtype=">i4"),
        "numpy-array-text": [np.array(["a", "bcd"]), np.array([b"a"])],
        "numpy-array-datetime": np.array(["2024-02-29", "NaT"], dtype="datetime64[ms]"),
        "numpy-array-structured": [_structured(), np.zeros(2, PADDED)],
        "numpy-array-object-0d": np.array(Item("a"), dtype=object),
        "numpy-array-object": np.array([(1,), [2], None, Item("a")], dtype=object).reshape(2, 2),
    }  # fmt: skip


SAMPLES = make_samples()


def assert_same(found: Any, expected: Any, at: str = "value") -> None:
    """Fail unless both are equal and of the same type, at every depth."""
    assert type(found) is type(expected), f"{at}: {type(found)} is not {type(expected)}"
    kind = type(expected)
    if isinstance(expected, enum.Enum):
        assert found is expected, at
    elif isinstance(expected, np.ndarray | np.generic):
        _assert_same_array(found, expected, at)
    elif isinstance(expected, BaseException):
        _assert_same_exception(found, expected, at)
    elif isinstance(expected, float):
        assert struct.pack(">d", found) == struct.pack(">d", expected), at
    elif isinstance(expected, complex):
        assert_same([found.real, found.imag], [expected.real, expected.imag], at)
    elif kind is Decimal:
        assert found.as_tuple() == expected.as_tuple(), at
    elif kind is range:
        assert_same([found.start, found.stop, found.step], [expected.start, expected.stop, expected.step], at)
    elif isinstance(expected, datetime | time):
        assert (found.isoformat(), found.fold) == (expected.isoformat(), expected.fold), at
        assert_same(found.tzinfo, expected.tzinfo, f"{at}.tzinfo")
    elif isinstance(expected, dict):
        assert_same(list(dict.items(found)), list(dict.items(expected)), at)
    elif isinstance(expected, set | frozenset):
        assert len(found) == len(expected), at
        assert_same(sorted(found, key=_order), sorted(expected, key=_order), at)
    elif isinstance(expected, list | tuple | deque):
        assert len(found) == len(expected), at
        for index, (one, other) in enumerate(zip(found, expected, strict=True)):
            assert_same(one, other, f"{at}[{index}]")
    elif kind.__module__ != __name__ or isinstance(expected, str | int | bytes):
        assert found == expected, at
    _assert_same_state(found, expected, at)


# Values that are not ``==`` to what is the same: exceptions compare by identity, arrays by element.
WITHOUT_EQUALITY = {"float-nan-bits", "complex", "decimal-nan", "subclass-float"} | {
    name for name in SAMPLES if name.startswith(("exception", "numpy"))
}


def _order(value: Any) -> str:
    return f"{type(value)} {sorted(map(repr, value)) if isinstance(value, frozenset) else value!r}"


def _assert_same_state(found: Any, expected: Any, at: str) -> None:
    """Compare what the value holds beside its content."""
    for name in ("maxlen", "default_factory", "flags", "is_safe"):
        if type(expected).__module__ in ("collections", "re", "uuid"):
            assert getattr(found, name, None) == getattr(expected, name, None), f"{at}.{name}"
    if type(expected).__module__ == __name__ and not isinstance(expected, enum.Enum):
        _assert_same_attributes(found, expected, at)


def _assert_same_attributes(found: Any, expected: Any, at: str) -> None:
    for name in _attribute_names(expected):
        if name == "_attrs_cached_hash":
            continue
        assert hasattr(found, name) == hasattr(expected, name), f"{at}.{name}"
        if hasattr(expected, name):
            assert_same(getattr(found, name), getattr(expected, name), f"{at}.{name}")
    assert _attribute_names(found) == _attribute_names(expected), at


def _attribute_names(value: Any) -> set[str]:
    cached = {n for n in dir(type(value)) if isinstance(getattr(type(value), n, None), functools.cached_property)}
    slots = {
        name
        for base in type(value).__mro__
        for name in vars(base).get("__slots__", ())
        if base.__module__ != "builtins" and name not in ("__dict__", "__weakref__")
    }
    return (slots | set(getattr(value, "__dict__", {}))) - cached - {"__orig_class__"}


def _assert_same_array(found: Any, expected: Any, at: str) -> None:
    assert found.dtype == expected.dtype, at
    assert found.dtype.type is expected.dtype.type, at
    assert found.shape == expected.shape, at
    if expected.dtype.hasobject:
        assert_same(found.ravel().tolist(), expected.ravel().tolist(), at)
    elif isinstance(expected, np.str_ | np.bytes_):
        assert found == expected, at
    elif expected.dtype.names:
        assert_same(found.tolist(), expected.tolist(), at)  # padding is not compared
    elif expected.dtype.char in "gG":
        assert repr(found) == repr(expected), at  # neither is that of long doubles
    else:
        assert found.tobytes() == expected.tobytes(), at


def _assert_same_exception(found: BaseException, expected: BaseException, at: str) -> None:
    assert_same(found.args, expected.args, f"{at}.args")
    assert_same(vars(found), vars(expected), f"{at}.__dict__")
    public = [name for name in dir(expected) if not name.startswith("_") and hasattr(expected, name)]
    for name in public:
        if not callable(getattr(expected, name)):
            assert_same(getattr(found, name), getattr(expected, name), f"{at}.{name}")

"""What Python itself brings beside the leaves: containers, big numbers, text with lone surrogates.

Each type has the function that lowers it beside the one that makes it again. They act on exactly that
type: a subclass is another type, and has to be registered.
"""

from __future__ import annotations

import struct
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from typing import Any

from ormsgpack import Ext

from everstep_savers.values.tree import LEAF_READERS, LIFTERS, LOWERERS, Lowering, RefusedError

# Stored codes; never renumber.
_BIG_INT, _SURROGATES, _BYTEARRAY, _COMPLEX = 1, 2, 3, 4
_TUPLE, _SET, _FROZENSET, _DICT, _ORDERED_DICT, _COUNTER, _DEFAULTDICT, _DEQUE, _RANGE = range(64, 73)

_TWO_DOUBLES = struct.Struct(">dd")

# The default factories that can be kept, by the name under which they are stored.
_FACTORIES: dict[str, type] = {
    kind.__name__: kind
    for kind in (
        int, float, complex, bool, str, bytes, bytearray, list, tuple, dict, set, frozenset,
        Counter, OrderedDict, deque,
    )
}  # fmt: skip
_FACTORY_NAMES: dict[Any, str] = {kind: name for name, kind in _FACTORIES.items()}


def lower_big_int(value: Any) -> Ext:
    """Lower what ormsgpack hands back while packing: by then nothing but ints beyond 64 bits."""
    return Ext(_BIG_INT, value.to_bytes(value.bit_length() // 8 + 1, "big", signed=True))


def pair_up(items: list[Any]) -> dict[Any, Any]:
    """A dict from keys and values by turns."""
    turns = iter(items)
    return dict(zip(turns, turns, strict=True))


def _lower_str(walk: Lowering, value: str) -> Any:
    try:
        value.encode()
    except UnicodeEncodeError:
        return Ext(_SURROGATES, value.encode("utf-8", "surrogatepass"))
    return value


def _read_surrogates(data: bytes) -> str:
    return data.decode("utf-8", "surrogatepass")


def _lower_complex(walk: Lowering, value: complex) -> Ext:
    return Ext(_COMPLEX, _TWO_DOUBLES.pack(value.real, value.imag))


def _lower_list(walk: Lowering, value: list[Any]) -> list[Any]:
    return value if walk.is_plain(value) else walk.items(value, [])


def _lower_dict(walk: Lowering, value: dict[Any, Any]) -> Any:
    if not walk.is_plain_str(value):
        return walk.pairs(value.items(), walk.mark(_DICT))
    return value if walk.is_plain(value.values()) else walk.values_of(value)


def _lower_range(walk: Lowering, value: range) -> list[Any]:
    return walk.items((value.start, value.stop, value.step), walk.mark(_RANGE))


def _lower_deque(walk: Lowering, value: deque[Any]) -> list[Any]:
    return walk.items(value, [*walk.mark(_DEQUE), value.maxlen])


def _lift_deque(data: bytes, items: list[Any]) -> deque[Any]:
    return deque(items[1:], items[0])


def _lower_defaultdict(walk: Lowering, value: defaultdict[Any, Any]) -> list[Any]:
    factory = value.default_factory
    name = None if factory is None else _FACTORY_NAMES.get(factory)
    if name is None and factory is not None:
        raise RefusedError(
            f"a defaultdict whose default_factory is {factory!r} cannot be stored: "
            "use a built-in type such as int or list, or a plain dict"
        )
    return walk.pairs(value.items(), [*walk.mark(_DEFAULTDICT), name])


def _lift_defaultdict(data: bytes, items: list[Any]) -> defaultdict[Any, Any]:
    factory = None if items[0] is None else _FACTORIES[items[0]]
    return defaultdict(factory, pair_up(items[1:]))


def _lift_counter(data: bytes, items: list[Any]) -> Counter[Any]:
    counter: Counter[Any] = Counter()
    dict.update(counter, pair_up(items))
    return counter


def _members_lowerer(code: int) -> Callable[[Lowering, Any], list[Any]]:
    return lambda walk, value: walk.members(value, walk.mark(code))


def _pairs_lowerer(code: int) -> Callable[[Lowering, Any], list[Any]]:
    return lambda walk, value: walk.pairs(value.items(), walk.mark(code))


LOWERERS.update(
    {
        str: _lower_str,
        bytearray: lambda walk, value: Ext(_BYTEARRAY, bytes(value)),
        complex: _lower_complex,
        list: _lower_list,
        tuple: lambda walk, value: walk.items(value, walk.mark(_TUPLE)),
        dict: _lower_dict,
        set: _members_lowerer(_SET),
        frozenset: _members_lowerer(_FROZENSET),
        OrderedDict: _pairs_lowerer(_ORDERED_DICT),
        Counter: _pairs_lowerer(_COUNTER),
        defaultdict: _lower_defaultdict,
        deque: _lower_deque,
        range: _lower_range,
    }
)
LEAF_READERS.update(
    {
        _BIG_INT: lambda data: int.from_bytes(data, "big", signed=True),
        _SURROGATES: _read_surrogates,
        _BYTEARRAY: bytearray,
        _COMPLEX: lambda data: complex(*_TWO_DOUBLES.unpack(data)),
    }
)
LIFTERS.update(
    {
        _TUPLE: lambda data, items: tuple(items),
        _SET: lambda data, items: set(items),
        _FROZENSET: lambda data, items: frozenset(items),
        _DICT: lambda data, items: pair_up(items),
        _ORDERED_DICT: lambda data, items: OrderedDict(pair_up(items)),
        _COUNTER: _lift_counter,
        _DEFAULTDICT: _lift_defaultdict,
        _DEQUE: _lift_deque,
        _RANGE: lambda data, items: range(*items),
    }
)

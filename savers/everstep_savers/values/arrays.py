"""numpy arrays and scalars, without importing numpy unless one is read.

Kept are shape, data type (structured ones with their offsets) and every bit of the elements, not the
order in memory. Data types are described in words of our own and checked both ways: stored bytes never
become object pointers, nor an array larger than they are.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from importlib import import_module
from math import prod
from typing import Any

from everstep_savers.values.tree import FINDERS, LIFTERS, Lowering, RefusedError

_ARRAY, _OBJECT_ARRAY, _SCALAR, _TEXT_SCALAR = range(84, 88)  # stored codes; never renumber

# bool, numbers, bytes, text, raw bytes, datetime64, timedelta64: what is wholly in its own bytes.
_KINDS = frozenset("biufcSUVmM")
_TYPE_STRING = re.compile(r"[<>|=]?[A-Za-z?]\d{0,9}(\[\d*[A-Za-z]+\])?")


def _numpy() -> Any:
    return import_module("numpy")


def _find(kind: type) -> Callable[[Lowering, Any], Any] | None:
    numpy = sys.modules.get("numpy")
    if numpy is None:
        return None
    if kind is numpy.ndarray:
        return _lower_array
    if kind is numpy.str_ or kind is numpy.bytes_:
        return _lower_text_scalar
    if issubclass(kind, numpy.generic) and kind is numpy.dtype(kind).type and kind is not numpy.record:
        return _lower_scalar
    return None


def _lower_array(walk: Lowering, array: Any) -> list[Any]:
    shape = list(array.shape)
    if array.dtype.char == "O":
        return [*walk.mark(_OBJECT_ARRAY), shape, walk.items(array.ravel().tolist(), [])]
    return [*walk.mark(_ARRAY), _describe(array.dtype), shape, array.tobytes()]


def _lower_scalar(walk: Lowering, scalar: Any) -> list[Any]:
    return [*walk.mark(_SCALAR), _describe(scalar.dtype), scalar.tobytes()]


def _lower_text_scalar(walk: Lowering, scalar: Any) -> list[Any]:
    # As an array of one it would lose the NULs at its end.
    text = str.__str__(scalar) if isinstance(scalar, str) else bytes.__getitem__(scalar, slice(None))
    return walk.items((text,), walk.mark(_TEXT_SCALAR))


def _describe(dtype: Any) -> Any:
    """Describe a data type: a type string, or a list for structured and subarray types."""
    described: Any
    if dtype.subdtype is not None:
        base, shape = dtype.subdtype
        described = ["array", _describe(base), list(shape)]
    elif dtype.names is not None:
        described = [
            "fields",
            dtype.itemsize,
            *([name, *_describe_field(dtype, name)] for name in dtype.names),
        ]
    else:
        _require_kept(dtype)
        # C types of the same size share a type string and differ as Python types: long and long long.
        by_string = _numpy().dtype(dtype.str).type is dtype.type
        described = dtype.str if by_string else dtype.str[0] + dtype.char
    if (known := _read_dtype(described)) != dtype or known.type is not dtype.type:
        raise RefusedError(f"a numpy value of data type {dtype} cannot be stored")
    return described


def _describe_field(dtype: Any, name: str) -> tuple[Any, int]:
    field, offset, *title = dtype.fields[name]
    if title:
        raise RefusedError("a numpy value whose data type has titles cannot be stored: use field names alone")
    return _describe(field), offset


def _read_dtype(described: Any) -> Any:
    dtype = _build_dtype(described)
    _require_kept(dtype)
    return dtype


def _require_kept(dtype: Any) -> None:
    if dtype.hasobject or dtype.kind not in _KINDS:
        raise RefusedError(f"a numpy value of data type {dtype} cannot be stored")


def _build_dtype(described: Any) -> Any:
    if type(described) is str:
        if not _TYPE_STRING.fullmatch(described):
            raise RefusedError(f"the stored numpy data type {described!r} is not valid")
        return _numpy().dtype(described)
    word, *rest = described
    if word == "array":
        return _numpy().dtype((_read_dtype(rest[0]), tuple(rest[1])))
    itemsize, *fields = rest
    return _numpy().dtype(
        {
            "names": [name for name, _, _ in fields],
            "formats": [_read_dtype(field) for _, field, _ in fields],
            "offsets": [offset for _, _, offset in fields],
            "itemsize": itemsize,
        }
    )


def _array(described: Any, shape: list[int], data: bytes) -> Any:
    dtype = _read_dtype(described)
    # numpy itself takes negative lengths here, and buffers that are too long.
    if not dtype.itemsize or min(shape, default=0) < 0 or prod(shape) * dtype.itemsize != len(data):
        raise RefusedError(f"the stored numpy array of shape {shape} does not have that many elements")
    array = _numpy().empty(tuple(shape), dtype)
    if data:  # as bytes, so that padding is what it was, and no left-over memory
        array.reshape(-1).view("u1")[:] = _numpy().frombuffer(data, "u1")
    return array


def _lift_array(data: bytes, items: list[Any]) -> Any:
    described, shape, content = items
    return _array(described, shape, content)


def _lift_object_array(data: bytes, items: list[Any]) -> Any:
    shape, content = items
    flat = _numpy().empty(len(content), dtype=object)
    # One by one: numpy would spread an element that is a sequence.
    for index, item in enumerate(content):
        flat[index] = item
    return flat.reshape(shape)


def _lift_scalar(data: bytes, items: list[Any]) -> Any:
    described, content = items
    return _array(described, [], content)[()]


def _lift_text_scalar(data: bytes, items: list[Any]) -> Any:
    (text,) = items
    return _numpy().str_(text) if isinstance(text, str) else _numpy().bytes_(text)


FINDERS.append(_find)
LIFTERS.update(
    {
        _ARRAY: _lift_array,
        _OBJECT_ARRAY: _lift_object_array,
        _SCALAR: _lift_scalar,
        _TEXT_SCALAR: _lift_text_scalar,
    }
)

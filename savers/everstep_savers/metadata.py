"""Checkpoint metadata as three columns and a JSON text.

What JSON keeps comes back equal (a tuple as a list); everything else is refused by name when it is stored,
never turned into something else. The text is minified with sorted keys, so that equal objects are equal
texts and a database can compare them. Of what is left of most root checkpoints, ``{"parents": {}}``, the text is
`NO_ANCESTORS`: it stands in every row.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import orjson

from everstep_savers.checkpoint import CheckpointMetadata
from everstep_savers.errors import CodecError

# What is left of a root graph's own metadata; no other metadata is this JSON.
_ROOT_REST: dict[str, Any] = {"parents": {}}
NO_ANCESTORS = "null"
# Of a checkpoint whose parent was removed: the nearest ancestor that is left, and whether a branch parts there.
KEPT_ANCESTOR = "kept_ancestor"
# What comes of these sources parts from what the tasks of the parent did.
_PARTING = ("fork", "update")
_INT64 = range(-(2**63), 2**63)


class MetadataRow(NamedTuple):
    """Metadata as it is stored."""

    source: str | None
    step: int | None
    run_id: str | None
    rest: str


def encode_metadata(metadata: Mapping[str, Any]) -> MetadataRow:
    """Split metadata into columns and JSON.

    Raises:
        CodecError: A key or value is not JSON; names the place inside the metadata.
    """
    rest = dict(metadata)
    source = rest.pop("source") if type(rest.get("source")) is str else None
    step = rest.pop("step") if type(rest.get("step")) is int else None
    run_id = rest.pop("run_id") if rest.get("run_id") and type(rest["run_id"]) is str else None
    _check_text(source or "", "source")
    _check_text(run_id or "", "run_id")
    if step and step not in _INT64:
        _check(step, "step")
    return MetadataRow(source, step, run_id, _rest_text(rest))


def decode_metadata(row: MetadataRow) -> CheckpointMetadata:
    """Put columns and JSON together again."""
    metadata = read_rest(row.rest)
    if row.source is not None:
        metadata["source"] = row.source
    if row.step is not None:
        metadata["step"] = row.step
    if row.run_id is not None:
        metadata["run_id"] = row.run_id
    return metadata  # type: ignore[return-value]  # user keys stand beside the typed ones


def read_rest(text: str) -> dict[str, Any]:
    """The JSON of a row's metadata."""
    return {"parents": {}} if text == NO_ANCESTORS else orjson.loads(text)


class Descent(NamedTuple):
    """From which checkpoint another one comes.

    Attributes:
        ancestor: The parent; the nearest ancestor that is left, if the parent was removed. None for the first.
        parts: Does it begin a branch there? What the tasks of the ancestor did belongs to the old line then.
    """

    ancestor: str | None
    parts: bool


def descent(parent_id: str | None, metadata: Mapping[str, Any]) -> Descent:
    """From which checkpoint one with this metadata comes."""
    match metadata.get(KEPT_ANCESTOR):
        case [str() as ancestor, bool() as parts]:
            return Descent(ancestor, parts)
    return Descent(parent_id, metadata.get("source") in _PARTING)


def with_descent(text: str, found: Descent) -> str:
    """The JSON of a row's metadata with `KEPT_ANCESTOR`, or without one if no ancestor is left."""
    rest = read_rest(text)
    rest.pop(KEPT_ANCESTOR, None)
    if found.ancestor is not None:
        rest[KEPT_ANCESTOR] = list(found)
    return _rest_text(rest)


def _rest_text(rest: dict[str, Any]) -> str:
    return NO_ANCESTORS if rest == _ROOT_REST else canonical_json(rest)


def has_values(row: MetadataRow, wanted: MetadataRow) -> bool:
    """Whether metadata has every key of `wanted`, each with exactly that value."""
    if any(want is not None and want != have for want, have in zip(wanted[:3], row[:3], strict=True)):
        return False
    rest, values = read_rest(row.rest), read_rest(wanted.rest)
    return all(key in rest and canonical_json(rest[key]) == canonical_json(values[key]) for key in values)


def canonical_json(value: Any) -> str:
    """Minified JSON with sorted keys, after checking that it is JSON."""
    _check(value, "")
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()


def _check(value: Any, path: str) -> None:
    kind = type(value)
    if value is None or kind is bool:
        return
    if kind is str:
        _check_text(value, path)
    elif kind is int:
        if value not in _INT64:
            raise _refused(f"{value} does not fit into 64 bits", path)
    elif kind is float:
        if not math.isfinite(value):
            raise _refused(f"{value} is not JSON", path)
    elif kind is dict:
        _check_object(value, path)
    elif kind is list or kind is tuple:
        for position, item in enumerate(value):
            _check(item, f"{path}[{position}]")
    else:
        raise _refused(f"{kind.__module__}.{kind.__qualname__} is not JSON", path)


def _check_object(value: dict[Any, Any], path: str) -> None:
    for key, item in value.items():
        if type(key) is not str:
            raise _refused(f"key {key!r} is not a string", path)
        _check_text(key, path)
        _check(item, f"{path}.{key}" if path else key)


def _check_text(text: str, path: str) -> None:
    if "\0" in text:
        raise _refused(f"{text!r} contains a NUL character", path)
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise _refused(f"{text!r} contains a lone surrogate", path) from None


def _refused(reason: str, path: str) -> CodecError:
    return CodecError(f"metadata must be JSON: {reason}", path=path)

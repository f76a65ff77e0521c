"""Texts out of values, by paths: what of an item is made searchable.

A path is keys joined by periods; ``[0]``, ``[-1]`` and ``[*]`` pick from lists, ``*`` takes every member,
``{a,b.c}`` several paths. ``$``, or an empty path, is the whole value. Pure.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

WHOLE = "$"

_PART = re.compile(r"\[[^\]]*\]|\{[^}]*\}|[^.\[{]+|[\[{]")


def tokenize_path(path: str) -> list[str]:
    """A path in its parts: ``"a.b[*].{c,d}"`` gives ``["a", "b", "[*]", "{c,d}"]``."""
    return _PART.findall(path)


def get_text_at_path(obj: Any, path: str | list[str]) -> list[str]:
    """The texts at a path: scalars as they are, lists and mappings as JSON; nothing for None and what is not there."""
    parts = tokenize_path(path) if isinstance(path, str) else list(path)
    if not parts or parts == [WHOLE]:
        return [_json(obj)]
    return [text for found in _at(obj, parts) if (text := _text(found)) is not None]


def _at(obj: Any, parts: Sequence[str]) -> Iterator[Any]:
    if not parts:
        yield obj
        return
    for member in _members(obj, parts[0]):
        yield from _at(member, parts[1:])


def _members(obj: Any, part: str) -> Sequence[Any]:
    if part in ("*", "[*]"):
        if isinstance(obj, Mapping):
            return list(obj.values()) if part == "*" else []
        return obj if _is_list(obj) else []
    if part.startswith("["):
        return _element(obj, part[1:-1]) if _is_list(obj) else []
    if not isinstance(obj, Mapping):
        return []
    if part.startswith("{"):
        paths = [tokenize_path(path.strip()) for path in part[1:-1].split(",")]
        return [found for path in paths for found in _at(obj, path)]
    return [obj[part]] if part in obj else []


def _element(items: Sequence[Any], index: str) -> Sequence[Any]:
    try:
        return [items[int(index)]]
    except (ValueError, IndexError):
        return []


def _is_list(obj: Any) -> bool:
    return isinstance(obj, Sequence) and not isinstance(obj, str | bytes | bytearray)


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool | int | float):
        return str(value)
    return _json(value)


def _json(value: Any) -> str:
    try:
        return json.dumps(value, sort_keys=True, ensure_ascii=False, default=_jsonable)
    except (TypeError, ValueError):  # keys that JSON does not have, or cannot be sorted
        return str(value)


def _jsonable(value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) else str(value)

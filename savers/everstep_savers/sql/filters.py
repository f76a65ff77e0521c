"""What a database sorts out before values are looked at.

The column `fields` keeps of a value what most filters ask for: its top-level keys with short strings and ordinary
numbers (truth values as 1 and 0), ``{}`` in place of anything else, and nothing for None. From a filter come
conditions on that column which no matching item fails; whether an item matches is told by `store.matching` alone.
Keys and values are bound, in JSON too. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, NamedTuple

import orjson
from sqlalchemy import (
    Boolean,
    ColumnElement,
    Numeric,
    Select,
    Table,
    Text,
    bindparam,
    case,
    cast,
    collate,
    func,
    literal_column,
    not_,
    select,
)
from sqlalchemy.types import NullType

from everstep_savers.addresses import checked_key
from everstep_savers.store.matching import is_operators

# Longer strings are not kept in `fields`, and integers only as far as every float of their size is one.
LONGEST_TEXT = 200
_INTEGERS = range(-(2**53), 2**53 + 1)

_TEXT_OPERATORS = {"$eq": "=", "$ne": "=", "$gt": ">", "$gte": ">=", "$lt": "<", "$lte": "<="}
_MARGIN = 1e-12


_SQLITE_TYPES = {"text": ("text",), "number": ("integer", "real"), "integer": ("integer",)}
_FALSE: ColumnElement[bool] = literal_column("false", Boolean)


class Condition(NamedTuple):
    """What an entry of `fields` has to be; its key, and its value if it needs one, are bound.

    Attributes:
        kind: "text", "number" or "integer": compared by `operator`. "object": kept as ``{}``. "any".
        is_negated: No entry may be so.
    """

    kind: str
    operator: str = ""
    is_negated: bool = False


def fields_of(value: Mapping[Any, Any]) -> str:
    """The column `fields` of a value, as JSON text."""
    kept = {
        str.__str__(key): _kept(member)
        for key, member in value.items()
        if isinstance(key, str) and member is not None and _is_plain_text(str.__str__(key))
    }
    return orjson.dumps(kept).decode()


def _kept(value: Any) -> Any:
    if type(value) is bool:
        return int(value)
    return value if _kind_of(value) else {}


def _kind_of(value: Any) -> str | None:
    """How a value is kept, None for ``{}``."""
    kind = type(value)
    if kind is str:
        return "text" if len(value) <= LONGEST_TEXT and _is_plain_text(value) else None
    if kind is bool or (kind is int and value in _INTEGERS) or (kind is float and math.isfinite(value)):
        return "number"
    return None


def _is_plain_text(text: str) -> bool:
    try:
        checked_key("key", text)
    except ValueError:
        return False
    return True


def conditions_of(
    filter: Mapping[str, Any] | None, *, is_postgres: bool
) -> tuple[tuple[Condition, ...], dict[str, Any]]:
    """The conditions that follow from a filter, and their bound values by name."""
    found: list[Condition] = []
    bound: dict[str, Any] = {}
    for key, wanted in (filter or {}).items():
        if type(key) is not str or not _is_plain_text(key):
            continue
        for condition, value in _of_key(wanted):
            bound[f"key_{len(found)}"] = key
            if condition.operator:
                bound[f"value_{len(found)}"] = _bound_value(condition, value, is_postgres)
            found.append(condition)
    return tuple(found), bound


def _of_key(wanted: Any) -> list[tuple[Condition, Any]]:
    if is_operators(wanted):
        return [found for operator, value in wanted.items() for found in _of_operator(operator, value)]
    if isinstance(wanted, Mapping):
        return [(Condition("object"), None)]
    return _of_operator("$eq", wanted)


def _of_operator(operator: str, value: Any) -> list[tuple[Condition, Any]]:
    if value is None and operator in ("$eq", "$ne"):
        return [(Condition("any", is_negated=operator == "$eq"), None)]
    kind = _kind_of(value)
    if kind == "number":
        return _of_number(operator, value)
    return [(Condition(kind, _TEXT_OPERATORS[operator], operator == "$ne"), value)] if kind else []


def _of_number(operator: str, value: float) -> list[tuple[Condition, Any]]:
    """SQLite may read a number in JSON as its neighbour: only whole ones are compared exactly."""
    is_whole = value == int(value) and int(value) in _INTEGERS
    if operator == "$ne":
        return [(Condition("integer", "=", is_negated=True), int(value))] if is_whole else []
    if operator == "$eq" and is_whole:
        return [(Condition("number", "="), int(value))]
    margin = abs(value) * _MARGIN
    found: list[tuple[Condition, Any]] = []
    if operator in ("$eq", "$gt", "$gte"):
        found.append((Condition("number", ">="), value - margin))
    if operator in ("$eq", "$lt", "$lte"):
        found.append((Condition("number", "<="), value + margin))
    return found


def _bound_value(condition: Condition, value: Any, is_postgres: bool) -> Any:
    return Decimal(repr(value)) if is_postgres and condition.kind != "text" else value


def condition_on(table: Table, condition: Condition, number: int, *, is_postgres: bool) -> ColumnElement[bool]:
    """A condition as SQL; its key is bound as ``key_<number>``, its value as ``value_<number>``."""
    on = _on_postgres if is_postgres else _on_sqlite
    found = on(table, condition, bindparam(f"key_{number}", type_=Text()), f"value_{number}")
    return not_(found) if condition.is_negated else found


def _on_postgres(table: Table, condition: Condition, key: Any, value: str) -> ColumnElement[bool]:
    kind = func.json_typeof(table.c.fields.op("->")(key))
    if condition.kind == "any":
        return kind.is_not(None)
    is_object: ColumnElement[bool] = func.coalesce(kind == _text("object"), _FALSE)
    if condition.kind == "object":
        return is_object
    member = table.c.fields.op("->>", return_type=Text())(key)
    is_text = condition.kind == "text"
    operand = collate(member, "C") if is_text else cast(member, Numeric)
    compared = operand.op(condition.operator, is_comparison=True)(
        bindparam(value, type_=Text() if is_text else Numeric())
    )
    unknown = _FALSE if condition.is_negated else is_object
    # By CASE: a text must not be cast before it is known to be a number.
    return case((kind == _text("string" if is_text else "number"), compared), else_=unknown)


def _on_sqlite(table: Table, condition: Condition, key: Any, value: str) -> ColumnElement[bool]:
    # json_each takes the key as a value; in a JSON path a quote could not be escaped.
    entry = func.json_each(table.c.fields).table_valued("key", "value", "type", name="entry")
    found: Select[Any] = select(literal_column("1")).select_from(entry).where(entry.c.key == key)
    is_object = entry.c.type == _text("object")
    if condition.kind == "object":
        found = found.where(is_object)
    elif condition.kind != "any":
        compared = entry.c.value.op(condition.operator, is_comparison=True)(bindparam(value, type_=NullType()))
        fits = entry.c.type.in_([_text(kind) for kind in _SQLITE_TYPES[condition.kind]]) & compared
        found = found.where(fits if condition.is_negated else is_object | fits)
    return found.correlate(table).exists()


def _text(literal: str) -> ColumnElement[str]:
    return literal_column(f"'{literal}'", Text)

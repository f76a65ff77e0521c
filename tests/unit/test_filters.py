"""What a database sorts out: the column of filterable fields, and the conditions on it."""

from __future__ import annotations

import json
from decimal import Decimal
from enum import StrEnum
from typing import Any

import pytest

from everstep_savers.sql.filters import LONGEST_TEXT, Condition, condition_on, conditions_of, fields_of
from everstep_savers.sql.schema import store_items
from everstep_savers.sql.statements import compiled


class Name(StrEnum):
    A = "a"


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        ({"s": "a", "i": 1, "f": 1.5, "t": True, "n": None}, {"s": "a", "i": 1, "f": 1.5, "t": 1}),
        ({"l": [1], "d": {"a": 1}, "b": b"", "x": Decimal(1), "e": Name.A}, {key: {} for key in "ldbxe"}),
        ({"long": "x" * (LONGEST_TEXT + 1), "most": "x" * LONGEST_TEXT}, {"long": {}, "most": "x" * LONGEST_TEXT}),
        (
            {"big": 2**53 + 1, "most": 2**53, "inf": float("inf"), "nan": float("nan")},
            {"big": {}, "most": 2**53, "inf": {}, "nan": {}},
        ),
        ({"nul": "\0", "lone": "\ud800"}, {"nul": {}, "lone": {}}),
        ({1: "a", "nul\0": 1, "\ud800": 1, Name.A: 1}, {"a": 1}),
        ({}, {}),
    ],
    ids=["plain", "other types", "texts", "numbers", "odd texts", "keys", "empty"],
)
def test_what_is_kept_of_a_value(value: dict[Any, Any], kept: dict[str, Any]) -> None:
    assert json.loads(fields_of(value)) == kept


@pytest.mark.parametrize(
    ("filter", "conditions"),
    [
        (None, ()),
        ({"a": "x"}, (Condition("text", "="),)),
        ({"a": {"$ne": "x"}}, (Condition("text", "=", is_negated=True),)),
        ({"a": {"$gt": "x", "$lte": "y"}}, (Condition("text", ">"), Condition("text", "<="))),
        ({"a": 1}, (Condition("number", "="),)),
        ({"a": {"$ne": 1.0}}, (Condition("integer", "=", is_negated=True),)),
        ({"a": {"$ne": 0.1}}, ()),
        ({"a": 0.1}, (Condition("number", ">="), Condition("number", "<="))),
        ({"a": {"$lt": 1}}, (Condition("number", "<="),)),
        ({"a": None}, (Condition("any", is_negated=True),)),
        ({"a": {"$ne": None}}, (Condition("any"),)),
        ({"a": {"b": 1}}, (Condition("object"),)),
        ({"a": [1], "b": Decimal(1), "c": Name.A, "d": "x" * 999, "e\0": 1, "f": {"$gt": None}}, ()),
        ({1: "x"}, ()),
    ],
    ids=repr,
)
def test_which_conditions_follow_from_a_filter(filter: Any, conditions: tuple[Condition, ...]) -> None:
    assert conditions_of(filter, is_postgres=False)[0] == conditions
    assert conditions_of(filter, is_postgres=True)[0] == conditions


HOSTILE = "'\"); DROP TABLE store_items; --"


@pytest.mark.parametrize("is_postgres", [True, False])
def test_keys_and_values_are_bound(is_postgres: bool) -> None:
    wanted = {HOSTILE: HOSTILE, HOSTILE + "2": {"$gt": HOSTILE, "$ne": None}, "n": 1.5, "m": None, "d": {HOSTILE: 1}}
    conditions, values = conditions_of(wanted, is_postgres=is_postgres)

    for number, condition in enumerate(conditions):
        statement = compiled(
            condition_on(store_items, condition, number, is_postgres=is_postgres), is_postgres=is_postgres
        )
        assert "DROP" not in statement.text
        assert set(statement.names) <= set(values)
    assert HOSTILE in values.values()

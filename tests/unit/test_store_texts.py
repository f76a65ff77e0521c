"""Paths into values, and the texts they lead to."""

from __future__ import annotations

from collections import UserDict
from datetime import date
from typing import Any

import pytest

from everstep_savers.store import get_text_at_path, tokenize_path

VALUE: dict[str, Any] = {
    "name": "test",
    "info": {"age": 25, "tags": ["x", "y"], "naïve": "é"},
    "parts": [{"text": "one", "n": 1}, {"text": None, "n": 2}, {"text": "three", "more": [{"text": "deep"}]}],
    "none": None,
    "true": True,
    "price": 1.5,
}


@pytest.mark.parametrize(
    ("path", "parts"),
    [
        ("a", ["a"]),
        ("a.b", ["a", "b"]),
        ("a[0]", ["a", "[0]"]),
        ("a[*].b[-1].c", ["a", "[*]", "b", "[-1]", "c"]),
        ("a.{b,c.d}.e", ["a", "{b,c.d}", "e"]),
        ("*.a", ["*", "a"]),
        ("a..b", ["a", "b"]),
        ("", []),
        ("$", ["$"]),
    ],
)
def test_a_path_has_parts(path: str, parts: list[str]) -> None:
    assert tokenize_path(path) == parts


@pytest.mark.parametrize(
    ("path", "texts"),
    [
        ("name", ["test"]),
        ("info.age", ["25"]),
        ("info.naïve", ["é"]),
        ("true", ["True"]),
        ("price", ["1.5"]),
        ("none", []),
        ("missing", []),
        ("name.x", []),
        ("info", ['{"age": 25, "naïve": "é", "tags": ["x", "y"]}']),
        ("info.tags", ['["x", "y"]']),
        ("info.tags[*]", ["x", "y"]),
        ("info.tags[-1]", ["y"]),
        ("info.tags[7]", []),
        ("info.tags[x]", []),
        ("info[0]", []),
        ("info.tags.x", []),
        ("parts[*].text", ["one", "three"]),
        ("parts[0].n", ["1"]),
        ("parts[*].more[*].text", ["deep"]),
        ("{name,info.age}", ["test", "25"]),
        ("parts[*].{text,n}", ["one", "1", "2", "three"]),
        ("info.*", ["25", '["x", "y"]', "é"]),
        (["info", "age"], ["25"]),
    ],
    ids=repr,
)
def test_a_path_leads_to_texts(path: str | list[str], texts: list[str]) -> None:
    assert get_text_at_path(VALUE, path) == texts


@pytest.mark.parametrize("path", ["$", "", ["$"], []])
def test_the_whole_value_is_json_with_sorted_keys(path: Any) -> None:
    assert get_text_at_path({"b": 1, "a": [True, None]}, path) == ['{"a": [true, null], "b": 1}']


def test_what_json_does_not_have_is_told_in_words() -> None:
    assert get_text_at_path({"day": date(2024, 1, 2)}, "$") == ['{"day": "2024-01-02"}']
    assert get_text_at_path({(1, 2): "a"}, "$") == ["{(1, 2): 'a'}"]


def test_any_mapping_has_members() -> None:
    value = UserDict({"a": UserDict({"b": "x"})})

    assert get_text_at_path(value, "a.b") == ["x"]
    assert get_text_at_path(value, "a") == ['{"b": "x"}']

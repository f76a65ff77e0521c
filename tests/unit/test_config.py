"""A run's config: parsed once, merged by key, and strict about what would do nothing."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from everstep.config import (
    DEFAULT_RECURSION_LIMIT,
    RunConfig,
    default_recursion_limit,
    get_config,
    get_store,
    get_stream_writer,
    merge_configs,
    parse_config,
)
from everstep.errors import ConfigError, EverstepError


def test_every_key_has_its_place() -> None:
    parsed = parse_config(
        {
            "configurable": {"thread_id": "t", "checkpoint_ns": "n", "checkpoint_id": "c", "user": 7},
            "recursion_limit": 5,
            "max_concurrency": 2,
            "tags": ["a"],
            "metadata": {"k": 1},
            "run_id": UUID(int=1),
            "run_name": "name",
            "callbacks": [],
        }
    )
    assert parsed == RunConfig(
        thread_id="t",
        checkpoint_ns="n",
        checkpoint_id="c",
        configurable={"user": 7},
        recursion_limit=5,
        max_concurrency=2,
        tags=("a",),
        metadata={"k": 1},
        run_id=str(UUID(int=1)),
        run_name="name",
        callbacks=[],
    )


@pytest.mark.parametrize("config", [None, {}, {"configurable": None}, {"tags": None, "metadata": None}])
def test_nothing_given_is_all_defaults(config: Any) -> None:
    assert parse_config(config) == RunConfig()


def test_parsing_leaves_the_users_dictionaries_alone() -> None:
    config = {"configurable": {"thread_id": "t", "user": 1}, "metadata": {"k": 1}}
    parse_config(config)
    assert config == {"configurable": {"thread_id": "t", "user": 1}, "metadata": {"k": 1}}


@pytest.mark.parametrize(("given", "expected"), [("t", "t"), (7, "7"), (UUID(int=7), str(UUID(int=7)))])
def test_a_thread_id_is_text_or_what_is_usual_in_its_place(given: Any, expected: str) -> None:
    assert parse_config({"configurable": {"thread_id": given}}).thread_id == expected


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (
            {"recursion_limt": 3},
            (
                "unknown config key 'recursion_limt'. Did you mean 'recursion_limit'? Your own keys go under "
                "'configurable'."
            ),
        ),
        ({"zzz": 3}, "unknown config key 'zzz'. Your own keys go under 'configurable'."),
        (
            {"durability": "sync"},
            "config key 'durability' does nothing there; pass it to the call itself, or to compile()/add_node()",
        ),
        (
            {"checkpoint_id": "c"},
            "config key 'checkpoint_id' belongs under \"configurable\": {\"configurable\": {'checkpoint_id': ...}}",
        ),
        ({"configurable": {"thread_id": 1.5}}, "thread_id must be a string, got float 1.5"),
        ({"configurable": {"thread_id": True}}, "thread_id must be a string, got bool True"),
        ({"configurable": {"checkpoint_ns": b"a"}}, "checkpoint_ns must be a string, got bytes b'a'"),
        ({"run_id": ["r"]}, "run_id must be a string, got list ['r']"),
        ({"run_name": 3}, "run_name must be a string, got int 3"),
        (
            {"configurable": {"thread_id": ""}},
            (
                'thread_id is empty and names no thread; pass one, such as {"configurable": {"thread_id": "order-17"}},'
                " or leave it out where nothing is to be kept"
            ),
        ),
        (
            {"configurable": {"checkpoint_id": "\0"}},
            (
                r"checkpoint_id '\x00' contains a NUL character, which a database key cannot hold; nothing was run or "
                "written"
            ),
        ),
        (
            {"run_id": "\ud800"},
            r"run_id '\ud800' contains a lone surrogate, which a database key cannot hold; nothing was run or written",
        ),
        ({"recursion_limit": 0}, "recursion_limit must be a whole number from 1, got 0"),
        ({"recursion_limit": "3"}, "recursion_limit must be a whole number from 1, got '3'"),
        ({"max_concurrency": True}, "max_concurrency must be a whole number from 1, got True"),
    ],
)
def test_a_mistake_is_refused_with_the_way_out(config: Any, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_config(config)
    assert str(caught.value) == message


def test_later_configs_win_and_mappings_are_merged_by_key() -> None:
    base = {"configurable": {"a": 1, "b": 1}, "metadata": {"a": 1}, "tags": ["x"], "recursion_limit": 1}
    over = {"configurable": {"b": 2}, "metadata": {"b": 2}, "tags": ["y", "x"], "recursion_limit": None}
    assert merge_configs(base, None, over) == {
        "configurable": {"a": 1, "b": 2},
        "metadata": {"a": 1, "b": 2},
        "tags": ["x", "y"],
        "recursion_limit": 1,
    }
    assert base["configurable"] == {"a": 1, "b": 1}


def test_the_config_of_a_call_stands_over_the_one_bound_to_the_graph() -> None:
    parsed = parse_config({"configurable": {"thread_id": "call"}}, {"configurable": {"thread_id": "bound", "user": 1}})
    assert (parsed.thread_id, parsed.configurable) == ("call", {"user": 1})


def test_the_environment_sets_the_default_recursion_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("EVERSTEP_RECURSION_LIMIT", raising=False)
    assert default_recursion_limit() == parse_config(None).recursion_limit == DEFAULT_RECURSION_LIMIT == 10_007
    monkeypatch.setenv("EVERSTEP_RECURSION_LIMIT", "12")
    assert parse_config(None).recursion_limit == parse_config({"tags": []}).recursion_limit == 12
    assert parse_config({"recursion_limit": 3}).recursion_limit == 3
    for wrong in ("0", "-1", "many", ""):
        monkeypatch.setenv("EVERSTEP_RECURSION_LIMIT", wrong)
        with pytest.raises(ConfigError) as caught:
            default_recursion_limit()
        assert str(caught.value) == f"EVERSTEP_RECURSION_LIMIT must be a whole number from 1, got {wrong!r}"


def test_the_config_for_a_saver_names_thread_namespace_and_checkpoint() -> None:
    config = RunConfig(thread_id="t", checkpoint_ns="n")
    assert config.saved() == {"configurable": {"thread_id": "t", "checkpoint_ns": "n"}}
    assert config.saved("c", "") == {"configurable": {"thread_id": "t", "checkpoint_ns": "", "checkpoint_id": "c"}}


@pytest.mark.parametrize("function", [get_config, get_store, get_stream_writer])
def test_what_belongs_to_a_running_node_is_refused_elsewhere(function: Any) -> None:
    with pytest.raises(EverstepError) as caught:
        function()
    assert str(caught.value) == (
        f"{function.__name__}() was called outside of a node; call it in a node, or in a function that a node calls"
    )

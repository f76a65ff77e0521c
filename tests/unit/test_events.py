"""The forms in which readers get events."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from everstep.errors import ConfigError
from everstep.stream.events import Event
from everstep.stream.parts import View, as_model, as_part, as_text, view_of
from everstep.types import Interrupt

QUESTION = Interrupt("ok?", "0" * 32)


@dataclass
class Point:
    x: int
    y: int = 0


def make_point(values: dict[str, Any]) -> Point:
    return Point(**values)


@pytest.mark.parametrize(
    ("mode", "subgraphs", "item"),
    [
        ("updates", False, {"a": 1}),
        ("updates", True, (("sub:1",), {"a": 1})),
        (["updates"], False, ("updates", {"a": 1})),
        (["updates"], True, (("sub:1",), "updates", {"a": 1})),
    ],
)
def test_a_v1_item_holds_what_the_options_ask_for(mode: Any, subgraphs: bool, item: Any) -> None:
    view = view_of(mode, (), "v1", subgraphs=subgraphs)
    assert view.item(Event(("sub:1",), "updates", {"a": 1})) == item


@pytest.mark.parametrize("mode", ["updates", ["updates"]])
@pytest.mark.parametrize("subgraphs", [True, False])
def test_a_v2_item_is_a_part_whatever_the_options(mode: Any, subgraphs: bool) -> None:
    view = view_of(mode, (), "v2", subgraphs=subgraphs)
    part = {"type": "updates", "ns": ("sub:1",), "data": {"a": 1}}
    assert view.item(Event(("sub:1",), "updates", {"a": 1})) == part


def test_the_default_mode_is_updates() -> None:
    assert view_of(None, (), "v1", subgraphs=False) == View(("updates",))


def test_printed_modes_are_read_beside_those_that_are_yielded() -> None:
    view = view_of("values", ["custom", "updates"], "v1", subgraphs=False)
    assert view.read == {"values", "custom", "updates"}


def test_a_mode_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ConfigError) as caught:
        view_of("values", "custm", "v1", subgraphs=False)  # type: ignore[arg-type]
    assert str(caught.value) == (
        "print_mode 'custm' is not one of 'values', 'updates', 'custom', 'messages', 'tasks', 'checkpoints', "
        "'debug'. "
        "Did you mean 'custom'?"
    )


def test_a_version_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ConfigError) as caught:
        view_of("values", (), "v4", subgraphs=False)  # type: ignore[arg-type]
    assert str(caught.value) == "version is 'v1' or 'v2', got 'v4'"


def test_questions_stand_among_the_values_in_v1_and_beside_them_in_v2() -> None:
    event = Event((), "values", {"x": 1}, (QUESTION,))
    assert View(("values",)).item(event) == {"x": 1, "__interrupt__": (QUESTION,)}
    assert as_part(event) == {"type": "values", "ns": (), "data": {"x": 1}, "interrupts": (QUESTION,)}


def test_a_single_value_gives_way_to_questions_in_v1_only() -> None:
    event = Event((), "values", 3, (QUESTION,))
    assert View(("values",)).item(event) == {"__interrupt__": (QUESTION,)}
    assert as_part(event)["data"] == 3


def test_v2_values_are_instances_of_the_schema() -> None:
    assert as_part(Event((), "values", {"x": 1}, model=make_point))["data"] == Point(1)
    assert View(("values",)).item(Event((), "values", {"x": 1}, model=make_point)) == {"x": 1}


@pytest.mark.parametrize("values", [{}, {"y": 2}])
def test_values_that_make_no_instance_yet_stay_a_mapping(values: dict[str, Any]) -> None:
    assert as_model(make_point, values) == values


def test_v2_checkpoints_hold_instances_alone_and_in_debug() -> None:
    payload = {"values": {"x": 1}, "next": []}
    assert as_part(Event((), "checkpoints", payload, model=make_point))["data"] == {"values": Point(1), "next": []}
    debug = {"type": "checkpoint", "payload": payload}
    assert as_part(Event((), "debug", debug, model=make_point))["data"]["payload"]["values"] == Point(1)
    assert payload["values"] == {"x": 1}


@pytest.mark.parametrize(
    ("attempts", "shown"),
    [((), {}), ((1,), {}), ((1, 1), {}), ((2,), {"attempts": (2,)}), ((2, 1), {"attempts": (2, 1)})],
)
def test_attempts_show_where_one_is_repeated(attempts: tuple[int, ...], shown: dict[str, Any]) -> None:
    expected = {"type": "custom", "ns": (), "data": "x", **shown}
    assert as_part(Event((), "custom", "x", attempts=attempts)) == expected


def test_a_printed_event_names_its_mode_and_its_graph() -> None:
    assert as_text(Event((), "updates", {"a": 1}), with_style=False) == "[updates] {'a': 1}"
    assert as_text(Event(("sub:1",), "custom", "x"), with_style=False) == "[custom] [graph=('sub:1',)] 'x'"
    assert as_text(Event((), "custom", "x"), with_style=True) == "\x1b[1m[custom]\x1b[0m 'x'"
    questions = as_text(Event((), "values", {}, (QUESTION,)), with_style=False)
    assert questions == f"[values] {{'__interrupt__': ({QUESTION!r},)}}"

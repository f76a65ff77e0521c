"""The generator of graph programs, and what judges two libraries by them. LangGraph itself is not needed here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.differential.__main__ import compare_all
from tests.differential.differences import ON_PURPOSE, explanation, first_difference
from tests.differential.interpreter import Library, interpret
from tests.differential.programs import Node, Program, make_program
from tests.differential.shrinking import shrink
from tests.differential.sides import both_sides

ROOT = Path(__file__).resolve().parents[2]


def nodes_of(graph: Any) -> list[Node]:
    return [
        one for node in graph["nodes"] for one in (node, *(nodes_of(node["subgraph"]) if "subgraph" in node else ()))
    ]


def test_a_seed_makes_one_program_and_another_seed_another() -> None:
    programs = [json.dumps(make_program(seed)) for seed in range(50)]
    assert programs == [json.dumps(make_program(seed)) for seed in range(50)]
    assert len(set(programs)) == 50


def test_programs_have_everything_that_is_to_be_compared() -> None:
    found: Counter[str] = Counter()
    for seed in range(400):
        program = make_program(seed)
        found.update(key for key in ("edges", "joins", "routes") if program[key])
        found.update(f"{deed['do']} {deed['by']} {deed['durability']}" for deed in program["deeds"])
        found.update(f"stop {when}" for when, names in program["stops"].items() if names)
        found["sync"] += not program["is_async"]
        for node in nodes_of(program):
            found.update(key for key, value in node.items() if value)
            found[node["returns"]] += 1
    deeds = ("invoke", "continue", "answer", "command", "repair", "update", "replay", "fork")
    ways = [f"{do} {by} {way}" for do in deeds for by in ("invoke", "stream") for way in ("sync", "async", "exit")]
    features = "joins routes sends asks fails breaks handled defer overwrites subgraph keeps called sees goto sync"
    forms = ("update", "nothing", "command", "list", "parent", "stop before", "stop after")
    assert [name for name in (*features.split(), *ways, *forms) if found[name] < 2] == []


@pytest.mark.filterwarnings("ignore::everstep.graph.validate.GraphWarning")
@pytest.mark.parametrize("first", range(0, 60, 20))
async def test_programs_survive_json_and_run(first: int) -> None:
    library = Library("everstep")
    for seed in range(first, first + 20):
        program = json.loads(json.dumps(make_program(seed)))
        told = await interpret(library, program)
        assert len(told) == len(program["deeds"]), (seed, told)
        assert told[0]["history"], seed


def test_a_library_agrees_with_itself_in_another_process() -> None:
    with both_sides(sys.executable, sys.executable, package="everstep") as pair:
        assert compare_all(pair, range(25), most=1) == 0


def snapshot(**other: Any) -> Any:
    return {"values": {"log": []}, "next": [], "step": 0, "source": "loop", "tasks": [], **other}


def told(**other: Any) -> Any:
    return [{"value": {"log": []}, "history": [snapshot()], **other}]


def program(**first: Any) -> Program:
    made = make_program(0)
    made["deeds"] = [{"do": "invoke", "by": "invoke", "durability": "sync", **first}]  # type: ignore[typeddict-item]
    return made


@pytest.mark.parametrize(
    ("ours", "theirs", "name"),
    [
        (told(), told(), None),
        (told(), told(value={"log": [1]}), "invoke.value"),
        (told(), told(error="ValueError"), "invoke.error"),
        (told(), told(history=[snapshot(next=["a"])]), "invoke.history"),
        (told(), told(history=[]), "invoke.history"),
        (told(events=[[[], "updates", {"a": 1}]]), told(events=[]), "invoke.events"),
    ],
)
def test_a_disagreement_is_found_and_not_taken_for_one_on_purpose(ours: Any, theirs: Any, name: str | None) -> None:
    place = first_difference(program(), ours, theirs)
    assert (place and place.name) == name
    assert place is None or explanation(place) is None


def test_the_order_within_a_step_does_not_count() -> None:
    a, b = [[], "updates", {"a": 1}], [[], "updates", {"b": 1}]
    end: Any = [[], "values", {"log": []}]
    assert first_difference(program(), told(events=[a, b, end]), told(events=[b, a, end])) is None
    assert first_difference(program(), told(events=[a, end, b]), told(events=[b, end, a])) is not None


def test_a_difference_on_purpose_is_recognised() -> None:
    task = ["a", ["a?"], False, None]
    updated = [snapshot(source="update", tasks=[task])], [snapshot(source="update", tasks=[["a", [], False, None]])]
    place = first_difference(program(do="update"), told(history=updated[0]), told(history=updated[1]))
    assert place is not None
    known = explanation(place)
    assert known is not None
    assert known.name == "open"
    assert len({difference.name for difference in ON_PURPOSE}) == len(ON_PURPOSE)


def place_of(deeds: list[Any], ours: list[Any], theirs: list[Any], **node: Any) -> Any:
    """Where two libraries differ in a program of one node and these deeds; each told by what it was and its history."""
    made: Any = make_program(0)
    made |= {"nodes": [{"name": "n0", "is_async": True, "writes": ["log"], "returns": "update", **node}], "joins": []}
    made["deeds"] = [{"by": "invoke", "durability": "sync", **deed} for deed in deeds]
    return first_difference(made, ours, theirs)


def name_of(place: Any) -> str | None:
    known = explanation(place)
    return None if known is None else known.name


def test_what_has_finished_beside_an_open_question_is_kept_on_purpose_and_nothing_else() -> None:
    asks, done, bare = ["a", ["a 0 ()"], False, None], ["b", [], False, {"log": []}], ["b", [], False, None]
    theirs = told(history=[snapshot(source="update", tasks=[["a", [], False, None], bare])])
    kept = told(history=[snapshot(source="update", tasks=[asks, done])])
    unasked = told(history=[snapshot(source="update", tasks=[["a", [], False, None], done])])
    assert name_of(place_of([{"do": "update", "as_node": "n0"}], kept, theirs)) == "open"
    assert name_of(place_of([{"do": "fork", "as_node": "n0", "back": 0}], unasked, theirs)) == "old line"
    assert name_of(place_of([{"do": "continue"}], unasked, theirs)) is None


@pytest.mark.parametrize(("questions", "name"), [([], "deferred"), (["n0 0 ()"], None)])
def test_a_command_to_a_deferred_node_keeps_its_question(questions: list[str], name: str | None) -> None:
    head = told(history=[snapshot(next=["n0"], tasks=[["n0", questions, False, None]])])
    deeds = [{"do": "invoke", "input": {}}, {"do": "command", "update": {}, "goto": ["n0"]}]
    other = told(history=[snapshot(next=["n0"])])
    assert name_of(place_of(deeds, head + told(), head + other, defer=True)) == name
    assert name_of(place_of(deeds, head + told(value={"log": [1]}), head + told(), defer=True)) == "deferred"


def test_what_a_stateful_subgraph_had_asked_is_left_behind_by_an_update_and_a_new_input() -> None:
    asked = told(history=[snapshot(next=["n0"], tasks=[["n0", ["n0_0 0 ()"], False, None]])])
    update, invoke = {"do": "update", "as_node": "n0"}, {"do": "invoke", "input": {}}
    inner = {"subgraph": make_program(1), "keeps": True}
    ours, theirs = told(value={"log": [1]}), told(value={"log": [2]})
    assert name_of(place_of([invoke, update, invoke], asked + told() + ours, asked + told() + theirs, **inner)) == (
        "left behind"
    )
    assert name_of(place_of([update, invoke, invoke], told() + asked + ours, told() + asked + theirs, **inner)) is None


def test_a_question_that_is_left_out_of_a_result_is_another_matter_than_one_that_is_told_too_much() -> None:
    one, two = (
        told(value={"__interrupt__": [{"question": "a"}]}),
        told(value={"__interrupt__": [{"question": "a"}, {"question": "b"}]}),
    )
    answer = [{"do": "answer", "which": [0]}]
    assert name_of(place_of(answer, two, one)) == "asked once"
    assert name_of(place_of(answer, one, two)) is None


def test_a_program_is_shortened_to_what_shows_the_matter() -> None:
    def asks_twice(candidate: Program) -> bool:
        return any(node.get("asks") == 2 for node in nodes_of(candidate))

    first = next(made for made in map(make_program, range(200)) if len(made["nodes"]) > 3 and asks_twice(made))
    small = shrink(first, asks_twice, most=5000)
    assert len(small["deeds"]) == 1
    assert not small["joins"]
    assert not small["routes"]
    assert sum(node.get("asks", 0) for node in nodes_of(small)) == 2
    assert len(nodes_of(small)) <= 3


def test_without_an_environment_to_compare_with_it_says_what_to_set() -> None:
    environment = {key: value for key, value in os.environ.items() if key != "EVERSTEP_PEER_PYTHON"}
    command = [sys.executable, "-m", "tests.differential"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=50)
    assert done.returncode == 2
    assert done.stderr.endswith("set EVERSTEP_PEER_PYTHON to the python of an environment that has LangGraph\n")

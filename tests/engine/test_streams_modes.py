"""Stream modes "tasks", "checkpoints" and "debug", and the details of "updates"."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, TypedDict

import pytest

from everstep.constants import START
from everstep.context import interrupt
from everstep.graph.builder import StateGraph
from everstep.types import Command, Send
from tests.engine.graphs import AT_ONCE, Log, Update, chain, closing, history, says, side_by_side, thread
from tests.engine.streamed import events_before, events_of


class Secret(TypedDict):
    """State that only some nodes see."""

    secret: str


def asks(name: str) -> tuple[str, Any]:
    """A node that logs the answer to its question."""

    async def run(state: Log) -> Update:
        return {"log": [interrupt(f"{name}?")]}

    return name, run


def short(item: Any) -> Any:
    """A list item without what differs from run to run."""
    mode, data = item
    if mode == "tasks":
        kind = "ends" if "result" in data else "begins"
        return ("tasks", data["name"], kind)
    if mode == "checkpoints":
        return ("checkpoints", data["metadata"]["source"], data["metadata"]["step"], data["next"])
    return item


# Tasks ------------------------------------------------------------------------------------------------------


async def test_a_task_shows_when_it_begins_and_when_it_ends() -> None:
    first, second = await events_of(chain(says("a")), {"log": ["in"]}, stream_mode="tasks")
    task_id = first["id"]
    assert first == {"id": task_id, "name": "a", "input": {"log": ["in"]}, "triggers": ("branch:to:a",)}
    assert second == {"id": task_id, "name": "a", "error": None, "result": {"log": ["a"]}, "interrupts": []}


async def test_a_task_has_the_id_that_its_state_shows(saver: Any) -> None:
    graph = chain(says("a"), saver=saver)
    first, _ = await events_of(graph, {"log": []}, thread(), stream_mode="tasks")
    snapshots = await history(graph, thread())
    assert first["id"] in {task.id for snapshot in snapshots for task in snapshot.tasks}


async def test_a_task_tells_metadata_and_tags_of_the_run_and_the_node() -> None:
    graph = chain(says("a"), node={"metadata": {"owner": "ops"}})
    config = {"metadata": {"customer": 7}, "tags": ["nightly"]}
    first, _ = await events_of(graph, {"log": []}, config, stream_mode="tasks")
    assert first["metadata"] == {"customer": 7, "owner": "ops", "tags": ["nightly"]}


async def test_all_tasks_of_a_step_begin_before_the_first_ends() -> None:
    events = await events_of(side_by_side(says("a"), says("b")), {"log": []}, stream_mode=["tasks"])
    assert [short(event) for event in events] == [
        ("tasks", "a", "begins"),
        ("tasks", "b", "begins"),
        ("tasks", "a", "ends"),
        ("tasks", "b", "ends"),
    ]


async def test_what_a_node_does_to_its_input_does_not_change_what_was_told() -> None:
    async def work(state: Log) -> None:
        state["log"].append("mine")
        state["value"] = 1

    first, _ = await events_of(chain(work), {"log": ["in"]}, stream_mode="tasks")
    assert first["input"] == {"log": ["in"]}


async def test_a_task_is_shown_the_input_its_node_gets() -> None:
    @dataclass
    class State:
        value: int = 0

    async def work(state: State) -> Update:
        return {"value": state.value + 1}

    graph = StateGraph(State).add_node(work).add_edge(START, "work").compile()
    first, _ = await events_of(graph, {"value": 1}, stream_mode="tasks")
    assert first["input"] == State(1)


async def test_a_sent_task_shows_what_was_sent() -> None:
    async def work(state: Any) -> Update:
        return {"log": [state]}

    builder = StateGraph(Log).add_node(work)
    builder.add_conditional_edges(START, lambda state: [Send("work", 7)], ["work"])
    first, _ = await events_of(builder.compile(), {"log": []}, stream_mode="tasks")
    assert first["input"] == 7
    assert first["triggers"] == ("__pregel_push",)


async def test_a_failed_task_shows_its_error_before_the_run_raises_it(saver: Any) -> None:
    broken = ValueError("broken")

    async def fail(state: Log) -> None:
        raise broken

    graph = chain(fail, saver=saver)
    found = await events_before(ValueError, graph, {"log": []}, thread(), stream_mode="tasks")
    assert found[1] == {"id": found[0]["id"], "name": "fail", "error": broken, "result": {}, "interrupts": []}


async def test_each_attempt_shows_with_its_number() -> None:
    attempts = 0

    async def flaky(state: Log) -> Update:
        nonlocal attempts
        attempts += 1
        if attempts < 3:
            raise ConnectionError(attempts)
        return {"log": [attempts]}

    events = await events_of(chain(flaky, node={"retry_policy": AT_ONCE}), {"log": []}, stream_mode="tasks")
    told = [
        (event.get("attempt"), repr(event["error"]), event.get("retry_in"))
        if "error" in event
        else event.get("attempt")
        for event in events
    ]
    assert told == [
        None,
        (1, "ConnectionError(1)", 0.0),
        2,
        (2, "ConnectionError(2)", 0.0),
        3,
        (3, "None", None),
    ]
    assert len({event["id"] for event in events}) == 1


async def test_the_last_failed_attempt_is_not_followed_by_another() -> None:
    async def fail(state: Log) -> None:
        raise ConnectionError

    graph = chain(fail, node={"retry_policy": AT_ONCE})
    found = await events_before(ConnectionError, graph, {"log": []}, stream_mode="tasks")
    ends = [event for event in found if "error" in event]
    assert [(event["attempt"], "retry_in" in event) for event in ends] == [(1, True), (2, True), (3, False)]


# Questions --------------------------------------------------------------------------------------------------


async def test_each_question_shows_when_its_task_asks(saver: Any) -> None:
    graph = side_by_side(asks("a"), says("b"), asks("c"), saver=saver)
    events = await events_of(graph, {"log": []}, thread(), stream_mode=["updates", "values", "tasks"])
    state = await graph.aget_state(thread())
    a, c = state.interrupts
    assert [short(event) for event in events] == [
        ("values", {"log": []}),
        ("tasks", "a", "begins"),
        ("tasks", "b", "begins"),
        ("tasks", "c", "begins"),
        ("updates", {"__interrupt__": (a,)}),
        ("values", {"log": [], "__interrupt__": (a,)}),
        ("tasks", "a", "ends"),
        ("updates", {"b": {"log": ["b"]}}),
        ("tasks", "b", "ends"),
        ("updates", {"__interrupt__": (c,)}),
        ("values", {"log": [], "__interrupt__": (c,)}),
        ("tasks", "c", "ends"),
        ("values", {"log": ["b"]}),
    ]
    assert events[6][1]["interrupts"] == [{"value": "a?", "id": a.id, "response_schema": None}]


async def test_answering_one_question_shows_the_answered_task_and_what_is_still_open(saver: Any) -> None:
    graph = side_by_side(asks("a"), says("b"), asks("c"), saver=saver)
    await graph.ainvoke({"log": []}, thread())
    a, c = (await graph.aget_state(thread())).interrupts
    answer = Command[Any](resume={a.id: "yes"})
    events = await events_of(graph, answer, thread(), stream_mode=["updates", "tasks"])
    assert [short(event) for event in events] == [
        ("tasks", "a", "begins"),
        ("updates", {"b": {"log": ["b"]}, "__metadata__": {"cached": True}}),
        ("updates", {"a": {"log": ["yes"]}}),
        ("tasks", "a", "ends"),
        ("updates", {"__interrupt__": (c,)}),
    ]


async def test_a_stop_at_a_breakpoint_shows_after_its_checkpoint(saver: Any) -> None:
    graph = chain(says("a"), says("b"), saver=saver, interrupt_before=["b"])
    events = await events_of(graph, {"log": []}, thread(), stream_mode=["updates", "checkpoints"])
    assert [short(event) for event in events] == [
        ("checkpoints", "input", -1, ["__start__"]),
        ("checkpoints", "loop", 0, ["a"]),
        ("updates", {"a": {"log": ["a"]}}),
        ("checkpoints", "loop", 1, ["b"]),
        ("updates", {"__interrupt__": ()}),
    ]


# Checkpoints ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("durability", ["sync", "async"])
async def test_checkpoints_are_what_the_history_shows(saver: Any, durability: Any) -> None:
    graph = chain(says("a"), says("b"), saver=saver)
    config = {**thread("t", tenant="acme"), "metadata": {"customer": 7}}
    told = await events_of(graph, {"log": ["in"]}, config, stream_mode="checkpoints", durability=durability)
    snapshots = [snapshot async for snapshot in graph.aget_state_history(thread())]
    assert len(told) == len(snapshots) == 4
    for event, snapshot in zip(told, reversed(snapshots), strict=True):
        assert event["config"]["configurable"] == {"tenant": "acme", **snapshot.config["configurable"]}
        parent = snapshot.parent_config
        assert (event["parent_config"] is None) == (parent is None)
        if parent is not None:
            assert event["parent_config"]["configurable"] == {"tenant": "acme", **parent["configurable"]}
        assert event["values"] == snapshot.values
        assert event["metadata"] == snapshot.metadata
        assert event["next"] == list(snapshot.next)
        assert [(task["id"], task["name"]) for task in event["tasks"]] == [(t.id, t.name) for t in snapshot.tasks]


async def test_checkpoints_that_are_held_back_until_the_run_leaves_name_the_stored_parent(saver: Any) -> None:
    graph = chain(says("a"), says("b"), saver=saver)
    await graph.ainvoke({"log": []}, thread())
    head = (await graph.aget_state(thread())).config["configurable"]["checkpoint_id"]
    told = await events_of(graph, {"log": []}, thread(), stream_mode="checkpoints", durability="exit")
    assert {event["parent_config"]["configurable"]["checkpoint_id"] for event in told} == {head}
    last = await graph.aget_state(thread())
    assert last.config == told[-1]["config"]
    assert last.parent_config == told[-1]["parent_config"]


async def test_a_resumed_run_shows_the_checkpoint_it_goes_on_from(saver: Any) -> None:
    async def fail(state: Log) -> Update:
        if not is_up:
            await asyncio.sleep(0)
            raise ConnectionError("down")
        return {"log": ["up"]}

    is_up = False
    graph = side_by_side(fail, says("b"), asks("c"), saver=saver)
    with pytest.raises(ConnectionError):
        await graph.ainvoke({"log": []}, thread())
    before = await graph.aget_state(thread())
    is_up = True
    first = (await events_of(graph, None, thread(), stream_mode="checkpoints"))[0]
    assert first["config"] == before.config
    tasks = {task["name"]: task for task in first["tasks"]}
    assert tasks["fail"] == {
        "id": tasks["fail"]["id"],
        "name": "fail",
        "error": "ConnectionError('down')",
        "state": None,
    }
    assert tasks["b"]["result"] == {"log": ["b"]}
    question = before.interrupts[0]
    assert tasks["c"]["interrupts"] == ({"value": "c?", "id": question.id, "response_schema": None},)


async def test_a_fork_shows_its_checkpoint(saver: Any) -> None:
    graph = chain(says("a"), says("b"), saver=saver)
    await graph.ainvoke({"log": []}, thread())
    past = next(snapshot for snapshot in await history(graph, thread()) if snapshot.next == ("b",))
    events = await events_of(graph, None, past.config, stream_mode=["checkpoints"])
    assert [short(event) for event in events] == [("checkpoints", "fork", 2, ["b"]), ("checkpoints", "loop", 3, [])]
    assert events[0][1]["parent_config"] == past.config


async def test_a_graph_without_a_saver_has_no_checkpoints_to_show() -> None:
    assert await events_of(chain(says("a")), {"log": []}, stream_mode="checkpoints") == []


async def test_debug_tells_tasks_and_checkpoints_with_their_steps(saver: Any) -> None:
    graph = chain(says("a"), saver=saver)
    events = await events_of(graph, {"log": []}, thread(), stream_mode=["tasks", "checkpoints", "debug"])
    debug = [data for mode, data in events if mode == "debug"]
    assert [(data["type"], data["step"]) for data in debug] == [
        ("checkpoint", -1),
        ("checkpoint", 0),
        ("task", 1),
        ("task_result", 1),
        ("checkpoint", 1),
    ]
    assert [data["payload"] for data in debug] == [data for mode, data in events if mode != "debug"]
    alone = await events_of(graph, {"log": []}, thread("u"), stream_mode="debug")
    assert [data["type"] for data in alone] == [data["type"] for data in debug]


# Updates ----------------------------------------------------------------------------------------------------


async def test_updates_show_keys_that_only_some_nodes_see() -> None:
    async def hide(state: Log) -> Secret:
        return {"secret": "s"}

    async def reveal(state: Secret) -> Update:
        return {"log": [state["secret"]]}

    graph = chain(hide, reveal)
    assert await events_of(graph, {"log": []}) == [{"hide": {"secret": "s"}}, {"reveal": {"log": ["s"]}}]
    assert await events_of(graph, {"log": []}, output_keys=["log"]) == [{"hide": None}, {"reveal": {"log": ["s"]}}]


async def test_several_updates_of_one_key_show_one_by_one(saver: Any) -> None:
    async def twice(state: Log) -> Any:
        return [Command(update={"log": [1], "value": 1}), {"log": [2]}]

    graph = chain(twice, saver=saver)
    events = await events_of(graph, {"log": []}, thread(), stream_mode=["updates", "tasks"])
    assert events[1] == ("updates", {"twice": [{"log": [1]}, {"value": 1}, {"log": [2]}]})
    result = {"log": {"$writes": [[1], [2]]}, "value": 1}
    assert events[2][1]["result"] == result
    results = [task.result for snapshot in await history(graph, thread()) for task in snapshot.tasks]
    assert result in results


async def test_several_updates_of_the_one_output_key_show_as_a_list() -> None:
    async def twice(state: Log) -> Any:
        return [Command(update={"log": [1], "value": 1}), {"log": [2]}]

    assert await events_of(chain(twice), {"log": []}, output_keys="log") == [{"twice": [[1], [2]]}]
    assert await events_of(chain(twice), {"log": []}, output_keys="value") == [{"twice": 1}]


async def test_a_command_shows_its_update_alone() -> None:
    async def go(state: Log) -> Command[Any]:
        return Command(update={"log": ["go"]}, goto="end")

    async def end(state: Log) -> Command[Any]:
        return Command(goto=())

    graph = StateGraph(Log).add_node("go", go, destinations=("end",)).add_node(end).add_edge(START, "go").compile()
    assert await events_of(graph, {"log": []}) == [{"go": {"log": ["go"]}}, {"end": None}]


async def test_results_show_all_keys_whatever_the_output_keys() -> None:
    async def work(state: Log) -> Update:
        return {"log": ["x"], "value": 1}

    _, end = await events_of(chain(work), {"log": []}, stream_mode="tasks", output_keys=["value"])
    assert end["result"] == {"log": ["x"], "value": 1}


# Where events go --------------------------------------------------------------------------------------------


async def test_ainvoke_returns_the_events_of_several_modes() -> None:
    found = await chain(says("a")).ainvoke({"log": []}, stream_mode=["values", "updates"])
    assert found == [("values", {"log": []}), ("updates", {"a": {"log": ["a"]}}), ("values", {"log": ["a"]})]


async def test_printed_modes_go_to_the_terminal(capsys: Any) -> None:
    graph = chain(says("a"))
    assert await graph.ainvoke({"log": []}, print_mode=["updates", "values"]) == {"log": ["a"]}
    printed = "[values] {'log': []}\n[updates] {'a': {'log': ['a']}}\n[values] {'log': ['a']}\n"
    assert capsys.readouterr().out == printed
    assert await events_of(graph, {"log": []}, stream_mode="values", print_mode="updates") == [
        {"log": []},
        {"log": ["a"]},
    ]
    assert capsys.readouterr().out == "[updates] {'a': {'log': ['a']}}\n"


async def test_a_graph_compiled_for_debugging_prints_what_happens(capsys: Any) -> None:
    graph = chain(says("a"), debug=True)
    assert await graph.ainvoke({"log": []}) == {"log": ["a"]}
    assert capsys.readouterr().out == "[values] {'log': []}\n[updates] {'a': {'log': ['a']}}\n[values] {'log': ['a']}\n"


def test_the_sync_twin_takes_all_options(capsys: Any) -> None:
    options: Any = {"stream_mode": ["tasks"], "version": "v2", "subgraphs": True, "print_mode": "updates"}
    parts = list(chain(says("a")).stream({"log": []}, **options))
    assert [(part["type"], part["ns"], part["data"]["name"]) for part in parts] == [("tasks", (), "a")] * 2
    assert capsys.readouterr().out == "[updates] {'a': {'log': ['a']}}\n"


async def test_leaving_between_two_events_of_one_step_ends_the_run(saver: Any) -> None:
    graph = side_by_side(says("a"), says("b"), saver=saver)
    async with closing(graph.astream({"log": []}, thread(), stream_mode="tasks")) as events:
        await anext(events)
    record = await saver.aget_thread("t")
    assert record.status in ("cancelled", "done")

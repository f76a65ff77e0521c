"""Subgraphs: their place in the thread, their questions, their commands, and what becomes of them on a branch."""

from __future__ import annotations

import asyncio
import operator
import pickle
from typing import Annotated, Any, TypedDict

import pytest

from everstep import START, Command, StateGraph, interrupt
from everstep.errors import ConfigError, InvalidUpdateError, ParentCommand
from everstep_savers.base import AtomicSaver
from everstep_savers.memory import InMemorySaver
from tests.engine.graphs import AT_ONCE
from tests.engine.watched import StoreBroke, WatchedSaver, failing_from

Saver = AtomicSaver[Any]
CONFIG = {"configurable": {"thread_id": "t"}}


class Log(TypedDict):
    log: Annotated[list[str], operator.add]


def step(name: str, ran: list[str] | None = None) -> Any:
    async def node(state: Log) -> dict[str, list[str]]:
        if ran is not None:
            ran.append(name)
        return {"log": [name]}

    node.__name__ = name
    return node


def chain(*nodes: Any, **compiled: Any) -> Any:
    builder = StateGraph(Log)
    builder.add_sequence([(node.name, node) if hasattr(node, "ainvoke") else node for node in nodes])
    first = nodes[0]
    builder.add_edge(START, first.name if hasattr(first, "ainvoke") else first.__name__)
    return builder.compile(**compiled)


def asking(question: str, ran: list[str] | None = None) -> Any:
    async def review(state: Log) -> dict[str, list[str]]:
        if ran is not None:
            ran.append("review")
        return {"log": [f"review:{interrupt(question)}"]}

    return review


async def test_replay_from_inside_a_subgraph_runs_only_what_comes_after(saver: Saver) -> None:
    ran: list[str] = []
    inner = chain(step("a", ran), step("b", ran), step("c", ran), asking("ok?", ran), name="inner")
    graph = chain(inner, step("after", ran), checkpointer=saver)
    await graph.ainvoke({"log": []}, CONFIG)
    old_line = [state.config async for state in graph.aget_state_history(CONFIG)]
    inner_config = (await graph.aget_state(CONFIG)).tasks[0].state
    before_c = next([s async for s in graph.aget_state_history(inner_config) if s.next == ("c",)].__iter__())
    ran.clear()

    replayed = await graph.ainvoke(None, before_c.config)

    assert ran == ["c", "review"]
    assert [question.value for question in replayed["__interrupt__"]] == ["ok?"]
    finished = await graph.ainvoke(Command(resume="yes"), CONFIG)
    assert finished == {"log": ["a", "b", "c", "review:yes", "after"]}
    assert ran == ["c", "review", "review", "after"]
    history = [state.config async for state in graph.aget_state_history(CONFIG)]
    assert all(config in history for config in old_line)


async def test_a_past_question_is_answered_anew_on_a_branch(saver: Saver) -> None:
    inner = chain(step("a"), asking("ok?"), step("z"), name="inner")
    graph = chain(step("before"), inner, step("after"), checkpointer=saver)
    await graph.ainvoke({"log": []}, CONFIG)
    asked_at = (await graph.aget_state(CONFIG)).config
    first = await graph.ainvoke(Command(resume="no"), CONFIG)

    second = await graph.ainvoke(Command(resume="yes"), asked_at)

    assert first["log"][-3:] == ["review:no", "z", "after"]
    assert second["log"][-3:] == ["review:yes", "z", "after"]
    assert (await graph.aget_state(CONFIG)).values == second


async def test_replay_from_a_past_checkpoint_begins_the_subgraph_anew(saver: Saver) -> None:
    ran: list[str] = []
    graph = chain(step("before"), chain(step("a", ran), asking("ok?", ran), name="inner"), checkpointer=saver)
    await graph.ainvoke({"log": []}, CONFIG)
    asked_at = (await graph.aget_state(CONFIG)).config
    await graph.ainvoke(Command(resume="no"), CONFIG)
    ran.clear()

    replayed = await graph.ainvoke(None, asked_at)

    assert ran == ["a", "review"]
    assert len(replayed["__interrupt__"]) == 1


async def test_questions_of_subgraphs_in_parallel_are_answered_by_id_and_in_part(saver: Saver) -> None:
    ran: list[str] = []

    def inner(name: str) -> Any:
        async def ask(state: Log) -> dict[str, list[str]]:
            ran.append(name)
            return {"log": [f"{name}:{interrupt(name)}"]}

        return chain(ask, name=name)

    builder = StateGraph(Log)
    for name in ("left", "right"):
        builder.add_node(name, inner(name))
        builder.add_edge(START, name)
    graph = builder.compile(checkpointer=saver)
    asked = (await graph.ainvoke({"log": []}, CONFIG))["__interrupt__"]
    ran.clear()

    partly = await graph.ainvoke(Command(resume={asked[1].id: "R"}), CONFIG)

    assert ran == ["right"]
    assert partly["__interrupt__"] == [asked[0]]
    assert await graph.ainvoke(Command(resume="L"), CONFIG) == {"log": ["left:L", "right:R"]}


async def test_a_question_two_levels_down_is_answered_and_nothing_above_runs_twice(saver: Saver) -> None:
    ran: list[str] = []
    deepest = chain(step("deep", ran), asking("age?", ran), name="deepest")
    middle = chain(step("mid", ran), deepest, name="middle")
    graph = chain(step("top", ran), middle, step("end", ran), checkpointer=saver)
    await graph.ainvoke({"log": []}, CONFIG)

    await graph.ainvoke(Command(resume=5), CONFIG)

    assert ran == ["top", "mid", "deep", "review", "review", "end"]


@pytest.mark.parametrize("depth", [1, 2, 3])
async def test_of_questions_in_one_subgraph_the_answered_one_goes_on_at_once_and_alone(
    depth: int, saver: Saver
) -> None:
    ran: list[str] = []

    def asks(name: str) -> Any:
        async def ask(state: Log) -> dict[str, list[str]]:
            ran.append(name)
            answer = interrupt(f"{name}?")
            ran.append(f"{name} done")
            return {"log": [answer]}

        return ask

    builder = StateGraph(Log).add_node("p", asks("p")).add_node("q", asks("q"))
    inner = builder.add_edge(START, "p").add_edge(START, "q").compile(name="level 0")
    for level in range(1, depth + 1):
        inner = chain(inner, name=f"level {level}", checkpointer=saver if level == depth else None)
    result = await inner.ainvoke({"log": []}, CONFIG)
    assert sorted(ran) == ["p", "q"]
    ids = {question.value: question.id for question in result["__interrupt__"]}
    result = await inner.ainvoke(Command(resume={ids["q?"]: "Q"}), CONFIG)
    assert ran[2:] == ["q", "q done"]
    assert [question.value for question in result["__interrupt__"]] == ["p?"]
    assert [question.value for question in (await inner.aget_state(CONFIG)).interrupts] == ["p?"]
    assert await inner.ainvoke(Command(resume="P"), CONFIG) == {"log": ["P", "Q"]}
    assert ran[4:] == ["p", "p done"]


async def test_an_inner_failure_is_resumed_where_it_happened(saver: Saver) -> None:
    ran: list[str] = []
    broken = True

    async def flaky(state: Log) -> dict[str, list[str]]:
        ran.append("flaky")
        if broken:
            raise ConnectionError("down")
        return {"log": ["flaky"]}

    graph = chain(step("before", ran), chain(step("a", ran), flaky, name="inner"), checkpointer=saver)
    with pytest.raises(ConnectionError):
        await graph.ainvoke({"log": []}, CONFIG)
    broken = False

    await graph.ainvoke(None, CONFIG)

    assert ran == ["before", "a", "flaky", "flaky"]


async def test_parent_commands_of_parallel_tasks_all_arrive_in_path_order(saver: Saver) -> None:
    gate = asyncio.Event()

    async def first(state: Log) -> Command[Any]:
        await gate.wait()
        return Command(graph=Command.PARENT, update={"log": ["first"]}, goto="end")

    async def second(state: Log) -> Command[Any]:
        gate.set()
        return Command(graph=Command.PARENT, update={"log": ["second"]})

    inner = StateGraph(Log).add_node(first).add_node(second).add_edge(START, "first").add_edge(START, "second")
    builder = StateGraph(Log).add_node("inner", inner.compile()).add_node(step("end")).add_edge(START, "inner")
    graph = builder.compile(checkpointer=saver)

    assert await graph.ainvoke({"log": []}, CONFIG) == {"log": ["first", "second", "end"]}


@pytest.mark.parametrize("durability", ["sync", "async"])
async def test_a_command_on_its_way_to_the_parent_is_not_lost_when_the_store_breaks(
    durability: str, saver: Saver
) -> None:
    async def leave(state: Log) -> Command[str]:
        return Command(graph=Command.PARENT, update={"log": ["from inside"]})

    def graph_on(store: Any) -> Any:
        return chain(step("a"), chain(step("b"), leave, name="inner"), step("c"), checkpointer=store)

    counted = WatchedSaver(InMemorySaver())
    expected = await graph_on(counted).ainvoke({"log": []}, CONFIG, durability=durability)
    assert expected == {"log": ["a", "from inside", "c"]}
    for number in range(2, counted.commits + 1):
        config = {"configurable": {"thread_id": f"t{number}"}}
        broken = WatchedSaver(saver, before=failing_from(number))
        with pytest.raises(StoreBroke):
            await graph_on(broken).ainvoke({"log": []}, config, durability=durability)
        assert await graph_on(saver).ainvoke(None, config) == expected, number


@pytest.mark.parametrize("beside", ["asks", "fails"])
async def test_a_parent_command_waits_for_an_unfinished_sibling_and_still_arrives(beside: str, saver: Saver) -> None:
    ran: list[str] = []
    gone = asyncio.Event()

    async def up(state: Log) -> Command[Any]:
        ran.append("up")
        gone.set()
        return Command(graph=Command.PARENT, update={"log": ["up"]}, goto="end")

    async def asks(state: Log) -> dict[str, list[str]]:
        return {"log": [interrupt("q")]}

    async def fails(state: Log) -> None:
        await gone.wait()
        ran.append("fails")
        if ran.count("fails") == 1:
            raise ValueError("broken")

    inner = StateGraph(Log).add_node(up).add_node("other", asks if beside == "asks" else fails)
    inner.add_edge(START, "up").add_edge(START, "other")
    builder = StateGraph(Log).add_node("inner", inner.compile()).add_node(step("end")).add_edge(START, "inner")
    graph = builder.compile(checkpointer=saver)
    if beside == "asks":
        await graph.ainvoke({"log": []}, CONFIG)
    else:
        with pytest.raises(ValueError, match="broken"):
            await graph.ainvoke({"log": []}, CONFIG)

    result = await graph.ainvoke(Command(resume="A") if beside == "asks" else None, CONFIG)

    assert result == {"log": ["up", "end"]}
    assert ran.count("up") == 1


async def test_a_node_runs_again_once_it_sends_no_command_up_from_the_root(saver: Saver) -> None:
    ran: list[str] = []

    async def up(state: Log) -> Command[Any]:
        ran.append("up")
        return Command(graph=Command.PARENT if len(ran) == 1 else None, update={"log": ["up"]})

    graph = chain(up, checkpointer=saver)
    with pytest.raises(InvalidUpdateError, match="has no parent here"):
        await graph.ainvoke({"log": []}, CONFIG)

    assert await graph.ainvoke(None, CONFIG) == {"log": ["up"]}


async def test_a_parent_command_at_the_root_is_refused() -> None:
    async def up(state: Log) -> Command[Any]:
        return Command(graph=Command.PARENT, goto="x")

    with pytest.raises(InvalidUpdateError) as caught:
        await chain(up, name="root").ainvoke({"log": []})
    assert str(caught.value) == (
        "node 'up' returned a Command with graph=Command.PARENT, but graph 'root' has no parent here; leave out "
        "graph=, or run this graph as a node of another"
    )
    # Whoever runs the graph where it has no parent may hand the commands on.
    assert isinstance(caught.value, ParentCommand)
    assert [command.goto for command in pickle.loads(pickle.dumps(caught.value)).commands] == ["x"]
    assert caught.value.args[0].goto == "x"


async def test_a_stateful_subgraph_keeps_its_history_from_run_to_run(saver: Saver) -> None:
    graph = chain(chain(step("a"), name="inner", checkpointer=True), checkpointer=saver)
    await graph.ainvoke({"log": []}, CONFIG)
    await graph.ainvoke({"log": []}, CONFIG)

    inner = {"configurable": {"thread_id": "t", "checkpoint_ns": "inner"}}
    assert (await graph.aget_state(inner)).values["log"].count("a") == 3


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
async def test_a_stateful_subgraph_that_runs_twice_in_one_run_goes_on_from_the_first_time(
    durability: str, saver: Saver
) -> None:
    inner = chain(step("a"), name="inner", checkpointer=True)

    async def call(state: Log) -> Command[str]:
        result = await inner.ainvoke({"log": []})
        return Command(update={"log": [f"{len(result['log'])}"]}, goto="call" if len(state["log"]) < 2 else ())

    graph = chain(call, checkpointer=saver)
    assert await graph.ainvoke({"log": []}, CONFIG, durability=durability) == {"log": ["1", "2", "3"]}
    assert await graph.ainvoke({"log": []}, CONFIG, durability=durability) == {"log": ["1", "2", "3", "4"]}


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
async def test_another_attempt_goes_on_in_the_subgraph_where_it_failed(durability: str, saver: Saver) -> None:
    ran: list[str] = []

    async def fail_once(state: Log) -> None:
        ran.append("fail_once")
        if ran.count("fail_once") == 1:
            raise ConnectionError("no answer")

    inner = chain(step("a", ran), fail_once, name="inner")
    builder = StateGraph(Log).add_node("inner", inner, retry_policy=AT_ONCE).add_edge(START, "inner")
    graph = builder.compile(saver)
    assert await graph.ainvoke({"log": []}, CONFIG, durability=durability) == {"log": ["a"]}
    assert ran == ["a", "fail_once", "fail_once"]


async def test_a_subgraph_without_a_saver_stores_nothing_and_may_ask(saver: Saver) -> None:
    graph = chain(chain(step("a"), asking("ok?"), name="inner", checkpointer=False), checkpointer=saver)
    await graph.ainvoke({"log": []}, CONFIG)

    assert await graph.ainvoke(Command(resume="yes"), CONFIG) == {"log": ["a", "review:yes"]}
    namespaces = {saved.config["configurable"]["checkpoint_ns"] async for saved in saver.alist(CONFIG)}
    assert namespaces == {""}


async def test_several_calls_in_one_node_have_stable_places(saver: Saver) -> None:
    inner = chain(step("a"), asking("ok?"), name="inner")

    async def twice(state: Log) -> dict[str, list[str]]:
        first = await inner.ainvoke({"log": []})
        second = await inner.ainvoke({"log": []})
        return {"log": [*first["log"], *second["log"]]}

    graph = chain(twice, checkpointer=saver)
    await graph.ainvoke({"log": []}, CONFIG)
    await graph.ainvoke(Command(resume=1), CONFIG)

    assert await graph.ainvoke(Command(resume=2), CONFIG) == {"log": ["a", "review:1", "a", "review:2"]}


async def test_a_stateful_root_is_refused() -> None:
    with pytest.raises(ConfigError, match="checkpointer=True is for subgraphs"):
        await chain(step("a"), checkpointer=True).ainvoke({"log": []})


async def test_state_shows_subgraphs(saver: Saver) -> None:
    graph = chain(step("before"), chain(step("a"), asking("ok?"), name="inner"), checkpointer=saver)
    await graph.ainvoke({"log": []}, CONFIG)

    shallow = (await graph.aget_state(CONFIG)).tasks[0]
    deep = (await graph.aget_state(CONFIG, subgraphs=True)).tasks[0]

    assert shallow.state == {"configurable": {"thread_id": "t", "checkpoint_ns": f"inner:{shallow.id}"}}
    assert deep.state.values == {"log": ["before", "a"]}
    assert deep.state.next == ("review",)
    assert deep.state.interrupts == shallow.interrupts


async def test_an_update_of_a_subgraphs_state_counts_when_it_goes_on(saver: Saver) -> None:
    graph = chain(chain(step("a"), asking("ok?"), name="inner"), checkpointer=saver)
    await graph.ainvoke({"log": []}, CONFIG)
    inner = (await graph.aget_state(CONFIG)).tasks[0].state
    await graph.aupdate_state(inner, {"log": ["edited"]})

    assert await graph.ainvoke(Command(resume="yes"), CONFIG) == {"log": ["a", "edited", "review:yes"]}


async def test_slots_are_free_while_a_node_waits_for_its_subgraph() -> None:
    graph = chain(chain(chain(step("a"), name="deep"), name="inner"))

    assert await graph.ainvoke({"log": []}, {"max_concurrency": 1}) == {"log": ["a"]}


async def test_static_breakpoints_inside_a_subgraph_stop_the_thread(saver: Saver) -> None:
    inner = chain(step("a"), step("b"), name="inner", interrupt_before=["b"])
    graph = chain(inner, step("after"), checkpointer=saver)

    stopped = await graph.ainvoke({"log": []}, CONFIG)

    assert (stopped, (await graph.aget_state(CONFIG)).next) == ({"log": []}, ("inner",))
    assert await graph.ainvoke(None, CONFIG) == {"log": ["a", "b", "after"]}


async def test_a_stateful_subgraph_goes_on_from_its_state_on_the_branch(saver: Saver) -> None:
    graph = chain(chain(step("a"), name="inner", checkpointer=True), checkpointer=saver)
    inner = {"configurable": {"thread_id": "t", "checkpoint_ns": "inner"}}
    await graph.ainvoke({"log": ["1"]}, CONFIG)
    first = (await graph.aget_state(CONFIG)).config
    await graph.ainvoke({"log": ["2"]}, CONFIG)
    old_line = (await graph.aget_state(inner)).values["log"]

    await graph.ainvoke({"log": ["other"]}, first)

    assert "2" in old_line
    branch = (await graph.aget_state(inner)).values["log"]
    assert branch[:2] == ["1", "a"]
    assert "2" not in branch


@pytest.mark.parametrize("durability", ["sync", "exit"])
async def test_a_stateful_subgraph_on_a_branch_does_not_know_what_came_after_it_branched_off(
    durability: str, saver: Saver
) -> None:
    inner = chain(step("x"), name="inner", checkpointer=True)

    async def call(state: Log) -> dict[str, list[str]]:
        return {"log": [" ".join((await inner.ainvoke({"log": ["in"]}))["log"])]}

    graph = chain(step("a"), call, step("z"), checkpointer=saver)

    async def before_call() -> Any:
        return [s.config async for s in graph.aget_state_history(CONFIG) if s.next == ("call",)]

    assert (await graph.ainvoke({"log": []}, CONFIG))["log"] == ["a", "in x", "z"]
    assert (await graph.ainvoke({"log": []}, CONFIG))["log"][3:] == ["a", "in x in x", "z"]
    second, first = await before_call()
    assert (await graph.ainvoke(None, first, durability=durability))["log"] == ["a", "in x", "z"]
    assert (await graph.ainvoke(None, second, durability=durability))["log"][3:] == ["a", "in x in x", "z"]
    fork = await graph.aupdate_state(first, {"log": ["by hand"]})
    assert (await graph.ainvoke(None, fork, durability=durability))["log"][2:] == ["in x", "z"]
    result = await graph.ainvoke({"log": []}, CONFIG, durability=durability)
    assert result["log"][4:] == ["a", "in x in x", "z"]


async def test_a_stateful_subgraph_two_levels_down_is_on_the_branch_of_the_root(saver: Saver) -> None:
    innermost = chain(step("x"), name="innermost", checkpointer=True)

    async def call(state: Log) -> dict[str, list[str]]:
        return {"log": [" ".join((await innermost.ainvoke({"log": ["in"]}))["log"])]}

    graph = chain(step("a"), chain(call, name="middle"), checkpointer=saver)
    await graph.ainvoke({"log": []}, CONFIG)
    assert (await graph.ainvoke({"log": []}, CONFIG))["log"][-1] == "in x in x"
    states = [snapshot async for snapshot in graph.aget_state_history(CONFIG)]
    before_a = [snapshot.config for snapshot in states if snapshot.next == ("a",)]
    assert (await graph.ainvoke(None, before_a[1]))["log"][-1] == "in x"
    assert (await graph.ainvoke(None, before_a[0]))["log"][-1] == "in x in x"

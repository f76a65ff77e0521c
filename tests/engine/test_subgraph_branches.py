"""Subgraphs on branches of the graph that runs them, and subgraphs whose steps are stored when the run leaves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from everstep.constants import START
from everstep.context import interrupt
from everstep.graph.builder import StateGraph
from everstep.graph.functional import task
from everstep.pregel import checkpoints
from everstep.types import Command
from everstep_savers.ids import new_checkpoint_id
from tests.engine.graphs import AT_ONCE, Log, Update, chain, history, says, side_by_side, thread
from tests.engine.watched import WatchedSaver


def logs(name: str, ran: list[str]) -> Any:
    async def node(state: Log) -> Update:
        ran.append(name)
        return {"log": [name]}

    return name, node


def asks(name: str, ran: list[str], *questions: str) -> Any:
    """A node that asks one question after the other, and logs the answers."""

    async def node(state: Log) -> Update:
        ran.append(name)
        return {"log": [f"{name}:{','.join([interrupt(question) for question in questions])}"]}

    return name, node


def inside(*nodes: Any, name: str = "inner", **options: Any) -> Any:
    """A subgraph as a node that logs what it has logged."""
    graph: Any = chain(*nodes, **options)

    async def node(state: Log) -> Update:
        return {"log": (await graph.ainvoke({"log": []}))["log"]}

    return name, node


def as_node(*nodes: Any, name: str = "inner", **options: Any) -> Any:
    """A subgraph as a node, which the graph knows as such."""
    return name, chain(*nodes, **options)


async def whole_history(graph: Any, saver: Any) -> dict[str, Any]:
    """Every checkpoint of the thread with everything that is stored of it, by id."""
    return {saved.checkpoint["id"]: saved async for saved in saver.alist(thread())}


async def answer_two(graph: Any, **options: Any) -> tuple[str, Any]:
    """Answer two questions, one after the other.

    Returns:
        The id of the first, and the config of the checkpoint at which it was answered and the second one open.
    """
    (first,) = (await graph.ainvoke({"log": []}, thread(), **options))["__interrupt__"]
    await graph.ainvoke(Command(resume="1"), thread(), **options)
    point = (await graph.aget_state(thread())).config
    await graph.ainvoke(Command(resume="2"), thread(), **options)
    return first.id, point


async def two_that_ask(saver: Any, ran: list[str]) -> tuple[Any, dict[str, str], Any]:
    """Two subgraphs side by side, of which each has asked its question, "l" and "r".

    Returns:
        The graph, the ids of the questions and the config of the checkpoint at which both are open.
    """
    left = inside(logs("a", ran), asks("left", ran, "l"), name="one")
    right = inside(logs("b", ran), asks("right", ran, "r"), name="two")
    graph = side_by_side(left, right, saver=saver)
    asked = {q.value: q.id for q in (await graph.ainvoke({"log": []}, thread()))["__interrupt__"]}
    point = (await graph.aget_state(thread())).config
    ran.clear()
    return graph, asked, point


# Answering anew ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrapped", [inside, as_node])
async def test_the_first_of_several_questions_of_a_subgraph_is_answered_anew(
    saver: Any, wrapped: Callable[..., Any]
) -> None:
    ran: list[str] = []
    graph = chain(wrapped(logs("a", ran), asks("form", ran, "q1", "q2"), logs("c", ran)), saver=saver)
    first, point = await answer_two(graph)
    assert (await graph.aget_state(thread())).values["log"] == ["a", "form:1,2", "c"]
    old = await whole_history(graph, saver)
    ran.clear()

    (second,) = (await graph.ainvoke(Command(resume={first: "one"}), point))["__interrupt__"]
    assert (second.value, ran) == ("q2", ["form"])
    done = await graph.ainvoke(Command(resume="two"), thread())

    assert done["log"] == ["a", "form:one,two", "c"]
    assert ran == ["form", "form", "c"]
    new = await whole_history(graph, saver)
    assert {key: new[key] for key in old} == old


async def test_a_question_two_levels_down_is_answered_anew_and_nothing_above_runs_again(saver: Any) -> None:
    ran: list[str] = []
    deep = as_node(logs("b", ran), asks("form", ran, "q1", "q2"), name="deep")
    graph = chain(as_node(logs("a", ran), deep, logs("c", ran)), saver=saver)
    first, point = await answer_two(graph)
    old = await whole_history(graph, saver)
    ran.clear()

    await graph.ainvoke(Command(resume={first: "one"}), point)
    await graph.ainvoke(Command(resume="two"), thread())

    assert ran == ["form", "form", "c"]
    assert (await graph.aget_state(thread())).values["log"][-2:] == ["form:one,two", "c"]
    new = await whole_history(graph, saver)
    assert {key: new[key] for key in old} == old


async def test_tasks_that_were_called_before_a_question_are_not_run_again_on_its_branch(saver: Any) -> None:
    charged: list[int] = []

    @task
    async def charge(amount: int) -> int:
        charged.append(amount)
        return amount

    async def form(state: Log) -> Update:
        return {"log": [await charge(1), interrupt("q1"), await charge(2), interrupt("q2")]}

    graph = chain(as_node(("form", form)), saver=saver)
    first, point = await answer_two(graph)
    assert charged == [1, 2]

    await graph.ainvoke(Command(resume={first: "one"}), point)
    done = await graph.ainvoke(Command(resume="two"), thread())

    assert done["log"] == [1, "one", 2, "two"]
    assert charged == [1, 2, 2]


@pytest.mark.parametrize("durability", ["async", "exit"])
async def test_a_sibling_in_the_subgraph_that_had_finished_is_not_run_again_on_the_branch(
    saver: Any, durability: Any
) -> None:
    ran: list[str] = []
    inner: Any = side_by_side(asks("form", ran, "q1", "q2"), logs("beside", ran))
    graph = chain(("inner", inner), saver=saver)
    first, point = await answer_two(graph, durability=durability)
    ran.clear()

    await graph.ainvoke(Command(resume={first: "one"}), point, durability=durability)
    done = await graph.ainvoke(Command(resume="two"), thread(), durability=durability)

    assert sorted(done["log"]) == ["beside", "form:one,two"]
    assert ran == ["form", "form"]


async def test_a_subgraph_that_is_answered_later_on_a_branch_goes_on_where_it_stood(saver: Any) -> None:
    ran: list[str] = []
    graph, asked, point = await two_that_ask(saver, ran)
    await graph.ainvoke({"log": []}, thread())  # supersedes both, so that the point is in the past
    ran.clear()

    await graph.ainvoke(Command(resume={asked["l"]: "left"}), point)
    assert ran == ["left"]
    done = await graph.ainvoke(Command(resume={asked["r"]: "right"}), thread())

    assert sorted(done["log"]) == ["a", "b", "left:left", "right:right"]
    assert ran == ["left", "right"]


async def test_a_subgraph_that_was_answered_too_keeps_its_answer_on_a_branch(saver: Any) -> None:
    ran: list[str] = []
    graph, asked, point = await two_that_ask(saver, ran)
    await graph.ainvoke(Command(resume={asked["l"]: "L", asked["r"]: "R"}), thread())
    ran.clear()

    done = await graph.ainvoke(Command(resume={asked["l"]: "left"}), point)

    assert sorted(done["log"]) == ["a", "b", "left:left", "right:R"]
    assert ran == ["left"]


async def test_a_branch_of_a_branch_goes_on_where_the_subgraph_stood(saver: Any) -> None:
    ran: list[str] = []
    graph, asked, point = await two_that_ask(saver, ran)
    await graph.ainvoke(Command(resume={asked["l"]: "L"}), point)
    branch = (await graph.aget_state(thread())).config
    await graph.ainvoke(Command(resume={asked["r"]: "R"}), thread())
    ran.clear()

    done = await graph.ainvoke(Command(resume={asked["r"]: "other"}), branch)

    assert sorted(done["log"]) == ["a", "b", "left:L", "right:other"]
    assert ran == ["right"]


async def test_a_branch_that_broke_off_before_its_subgraph_began_goes_on_where_the_subgraph_stood(
    saver: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[str] = []
    graph = chain(inside(logs("a", ran), asks("form", ran, "q1", "q2")), saver=saver)
    first, point = await answer_two(graph)
    ran.clear()

    await break_off(saver, monkeypatch, lambda: graph.ainvoke(Command(resume={first: "one"}), point))
    (second,) = (await graph.ainvoke(None, thread()))["__interrupt__"]

    assert (second.value, ran) == ("q2", ["form"])
    assert (await graph.ainvoke(Command(resume="two"), thread()))["log"] == ["a", "form:one,two"]


async def test_a_branch_of_a_branch_that_broke_off_knows_what_was_answered_there(
    saver: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[str] = []
    graph, asked, point = await two_that_ask(saver, ran)
    await graph.ainvoke(Command(resume={asked["l"]: "L", asked["r"]: "R"}), thread())
    await break_off(saver, monkeypatch, lambda: graph.ainvoke(Command(resume={asked["l"]: "left"}), point))
    branch = (await graph.aget_state(thread())).config
    await graph.ainvoke({"log": []}, thread())
    ran.clear()

    done = await graph.ainvoke(Command(resume={asked["r"]: "right"}), branch)

    assert sorted(done["log"]) == ["a", "b", "left:left", "right:right"]
    assert sorted(ran) == ["left", "right"]


async def break_off(saver: Any, monkeypatch: pytest.MonkeyPatch, call: Callable[[], Any]) -> None:
    """Call a graph whose subgraphs cannot store a checkpoint."""
    prepare = saver.prepare

    def broken(commit: Any) -> Any:
        if any(new.checkpoint_ns for new in commit.checkpoints):
            raise OSError("the disk is full")
        return prepare(commit)

    with monkeypatch.context() as patched:
        patched.setattr(saver, "prepare", broken)
        with pytest.raises(OSError, match="the disk is full"):
            await call()


async def test_a_subgraph_that_asked_before_the_question_is_not_run_again_when_that_is_answered_anew(
    saver: Any,
) -> None:
    ran: list[str] = []
    inner: Any = chain(logs("a", ran), asks("ask", ran, "inner?"))

    async def node(state: Log) -> Update:
        done = (await inner.ainvoke({"log": []}))["log"]
        return {"log": [*done, interrupt("outer?")]}

    graph = chain(("node", node), saver=saver)
    await graph.ainvoke({"log": []}, thread())
    (outer,) = (await graph.ainvoke(Command(resume="1"), thread()))["__interrupt__"]
    point = (await graph.aget_state(thread())).config
    await graph.ainvoke(Command(resume="2"), thread())
    ran.clear()

    done = await graph.ainvoke(Command(resume={outer.id: "two"}), point)

    assert done["log"] == ["a", "ask:1", "two"]
    assert ran == []


async def test_a_subgraph_called_after_the_question_begins_anew_when_that_is_answered_anew(saver: Any) -> None:
    ran: list[str] = []
    inner: Any = chain(logs("a", ran), asks("ask", ran, "inner?"))

    async def node(state: Log) -> Update:
        answer = interrupt("outer?")
        return {"log": [answer, *(await inner.ainvoke({"log": []}))["log"]]}

    graph = chain(("node", node), saver=saver)
    (outer,) = (await graph.ainvoke({"log": []}, thread()))["__interrupt__"]
    await graph.ainvoke(Command(resume="1"), thread())
    point = (await graph.aget_state(thread())).config
    await graph.ainvoke(Command(resume="2"), thread())
    ran.clear()

    await graph.ainvoke(Command(resume={outer.id: "one"}), point)
    done = await graph.ainvoke(Command(resume="two"), thread())

    assert done["log"] == ["one", "a", "ask:two"]
    assert ran == ["a", "ask", "ask"]


# Answering anew beside others -------------------------------------------------------------------------------------

ORDERS = pytest.mark.parametrize("order", ["ab", "a b", "b a"], ids=["at once", "first", "last"])


async def answer_in(order: str, graph: Any, **options: Any) -> tuple[str, Any]:
    """Answer the questions "a" and "b" at once, or one after the other.

    Returns:
        The id of "a", and the config of the checkpoint at which both are open.
    """
    asked = (await graph.ainvoke({"log": []}, thread(), **options))["__interrupt__"]
    ids = {question.value: question.id for question in asked}
    point = (await graph.aget_state(thread())).config
    for some in order.split():
        done = await graph.ainvoke(Command(resume={ids[each]: each.upper() for each in some}), thread(), **options)
    assert sorted(done["log"]) == ["a:A", "b:B"]
    return ids["a"], point


def both(ran: list[str]) -> tuple[Any, Any]:
    return asks("a", ran, "a"), asks("b", ran, "b")


@ORDERS
@pytest.mark.parametrize("durability", ["sync", "async"])
async def test_a_node_that_has_finished_beside_a_question_is_not_run_again_when_that_is_answered_anew(
    saver: Any, order: str, durability: Any
) -> None:
    ran: list[str] = []
    graph = side_by_side(*both(ran), saver=saver)
    question, point = await answer_in(order, graph, durability=durability)
    old = await whole_history(graph, saver)
    ran.clear()

    done = await graph.ainvoke(Command(resume={question: "new"}), point, durability=durability)

    assert sorted(done["log"]) == ["a:new", "b:B"]
    assert ran == ["a"]
    new = await whole_history(graph, saver)
    assert {key: new[key] for key in old} == old


@ORDERS
async def test_likewise_within_a_subgraph(saver: Any, order: str) -> None:
    ran: list[str] = []
    inner: Any = side_by_side(*both(ran))
    graph = chain(("inner", inner), saver=saver)
    question, point = await answer_in(order, graph)
    ran.clear()

    done = await graph.ainvoke(Command(resume={question: "new"}), point)

    assert sorted(done["log"]) == ["a:new", "b:B"]
    assert ran == ["a"]


@ORDERS
async def test_a_subgraph_that_asks_beside_a_question_within_a_subgraph_is_not_run_again(
    saver: Any, order: str
) -> None:
    ran: list[str] = []
    first, second = both(ran)
    outer: Any = side_by_side(first, as_node(second))
    graph = chain(("outer", outer), saver=saver)
    question, point = await answer_in(order, graph)
    ran.clear()

    done = await graph.ainvoke(Command(resume={question: "new"}), point)

    assert sorted(done["log"]) == ["a:new", "b:B"]
    assert ran == ["a"]


@pytest.mark.parametrize("is_nested", [False, True])
async def test_a_subgraph_that_had_stopped_beside_a_question_goes_on_when_that_is_answered_anew(
    saver: Any, is_nested: bool
) -> None:
    ran: list[str] = []
    stopped = as_node(logs("s1", ran), logs("s2", ran), name="stopped", interrupt_before=["s2"])
    beside: Any = side_by_side(asks("a", ran, "a"), stopped, saver=None if is_nested else saver)
    graph = chain(("outer", beside), saver=saver) if is_nested else beside
    (question,) = (await graph.ainvoke({"log": []}, thread()))["__interrupt__"]
    point = (await graph.aget_state(thread())).config
    await graph.ainvoke({"log": []}, thread())  # supersedes the question, so that the point is in the past
    ran.clear()

    done = await graph.ainvoke(Command(resume={question.id: "new"}), point)

    assert sorted(done["log"]) == ["a:new", "s1", "s2"]
    assert sorted(ran) == ["a", "s2"]


@ORDERS
async def test_in_exit_durability_a_node_that_ended_the_step_runs_again_with_its_answer(saver: Any, order: str) -> None:
    """What is done between two steps of one run is not stored there, its results included."""
    ran: list[str] = []
    builder: Any = StateGraph(Log)
    for name, node in both(ran):
        builder.add_node(name, node).add_edge(START, name)
    builder.add_node(*says("after")).add_edge(["a", "b"], "after")
    graph = builder.compile(saver)
    asked = (await graph.ainvoke({"log": []}, thread(), durability="exit"))["__interrupt__"]
    ids = {question.value: question.id for question in asked}
    point = (await graph.aget_state(thread())).config
    for some in order.split():
        answers = {ids[each]: each.upper() for each in some}
        await graph.ainvoke(Command(resume=answers), thread(), durability="exit")
    ran.clear()

    done = await graph.ainvoke(Command(resume={ids["a"]: "new"}), point, durability="exit")

    assert sorted(done["log"]) == ["a:new", "after", "b:B"]
    assert ran == (["a"] if order == "b a" else ["a", "b"])


async def test_a_question_that_came_after_another_node_of_the_subgraph_is_asked_again_when_that_is_answered_anew(
    saver: Any,
) -> None:
    ran: list[str] = []
    graph = chain(as_node(*both(ran)), saver=saver)
    first, point = await answer_two(graph)
    ran.clear()

    (second,) = (await graph.ainvoke(Command(resume={first: "new"}), point))["__interrupt__"]

    assert (second.value, ran) == ("b", ["a", "b"])
    assert (await graph.ainvoke(Command(resume="B"), thread()))["log"] == ["a:new", "b:B"]


async def test_calls_that_asked_at_once_keep_their_answers_but_the_one_that_is_answered_anew(saver: Any) -> None:
    ran: list[str] = []

    @task
    async def ask(name: str) -> str:
        ran.append(name)
        return f"{name}:{interrupt(name)}"

    async def node(state: Log) -> Update:
        return {"log": list(await asyncio.gather(ask("a"), ask("b")))}

    graph = chain(("node", node), saver=saver)
    question, point = await answer_in("ab", graph)
    ran.clear()

    assert (await graph.ainvoke(Command(resume={question: "new"}), point))["log"] == ["a:new", "b:B"]
    assert ran == ["a", "b"]  # the other call may be there because of the answer: its result is not taken


# Stateful subgraphs -----------------------------------------------------------------------------------------------


def stateful(saver: Any, seen: list[Any]) -> Any:
    async def first(state: Log) -> Update:
        seen.append(list(state["log"]))
        return {"log": [interrupt("q")]}

    inner = StateGraph(Log).add_node("first", first).add_edge(START, "first").compile(checkpointer=True)
    builder = StateGraph(Log).add_node(*says("before"))

    async def call(state: Log) -> Update:
        return {"value": (await inner.ainvoke({"log": []}))["log"]}

    builder.add_node("inner", call).add_edge(START, "before").add_edge("before", "inner")
    return builder.compile(saver)


async def run(graph: Any, answer: str) -> None:
    await graph.ainvoke({"log": []}, thread(), durability="sync")
    await graph.ainvoke(Command(resume=answer), thread(), durability="sync")


async def before_inner(graph: Any) -> Any:
    return next(found for found in await history(graph, thread()) if found.next == ("inner",))


async def test_a_replay_finds_a_stateful_subgraph_as_it_was_before(saver: Any) -> None:
    seen: list[Any] = []
    graph = stateful(saver, seen)
    await run(graph, "1")
    await run(graph, "2")
    seen.clear()

    await graph.ainvoke(None, (await before_inner(graph)).config)
    assert seen == [["1"]]
    assert (await graph.ainvoke(Command(resume="other"), thread()))["value"] == ["1", "other"]
    await run(graph, "3")
    assert seen[-1] == ["1", "other"]


async def test_a_run_after_an_update_of_the_past_finds_a_stateful_subgraph_as_it_was_before(saver: Any) -> None:
    seen: list[Any] = []
    graph = stateful(saver, seen)
    await run(graph, "1")
    await run(graph, "2")
    seen.clear()

    config = await graph.aupdate_state((await before_inner(graph)).config, {"log": ["by hand"]}, as_node="before")
    await graph.ainvoke(None, config)

    assert seen == [["1"]]


async def test_a_stateful_subgraph_with_a_long_history_is_found_without_reading_it(
    saver: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []
    graph = stateful(saver, seen)
    listed: list[str] = []
    alist = saver.alist

    async def counting(*args: Any, **options: Any) -> Any:
        async for saved in alist(*args, **options):
            listed.append(saved.checkpoint["id"])
            yield saved

    monkeypatch.setattr(saver, "alist", counting)
    counts = []
    for number in range(6):
        listed.clear()
        await run(graph, str(number))
        counts.append(len(listed))

    assert seen[-1] == list("01234")
    assert counts[1:] == [counts[1]] * 5


async def test_checkpoints_of_a_subgraph_come_after_that_of_its_caller_whatever_the_clock_says(
    saver: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = chain(as_node(says("a")), saver=saver)
    monkeypatch.setattr(checkpoints, "new_checkpoint_id", lambda after=None: new_checkpoint_id(after, now_ns=lambda: 0))
    await graph.ainvoke({"log": []}, thread())
    inner = [saved async for saved in saver.alist(thread()) if saved.config["configurable"]["checkpoint_ns"]]
    assert [saved.checkpoint["id"] > saved.metadata["parents"][""] for saved in inner] == [True] * 3


# Durability "exit" ------------------------------------------------------------------------------------------------


async def namespaces(saver: Any) -> list[str]:
    return [saved.config["configurable"]["checkpoint_ns"].split(":")[0] async for saved in saver.alist(thread())]


async def test_a_stateful_subgraph_that_is_called_again_in_one_run_goes_on_from_what_it_did(saver: Any) -> None:
    seen: list[Any] = []

    async def remember(state: Log) -> Update:
        seen.append(list(state["log"]))
        return {"log": [len(state["log"])]}

    stateful = StateGraph(Log).add_node("remember", remember).add_edge(START, "remember").compile(checkpointer=True)

    async def call(state: Log) -> Update:
        return {"value": (await stateful.ainvoke({"log": []}))["log"]}

    builder = StateGraph(Log).add_node("call", call).add_edge(START, "call")
    builder.add_conditional_edges("call", lambda state: "call" if len(state["value"]) % 3 else "__end__")
    graph = builder.compile(saver)

    assert (await graph.ainvoke({"log": []}, thread(), durability="exit"))["value"] == [0, 1, 2]
    assert (await graph.ainvoke({"log": []}, thread(), durability="exit"))["value"] == [0, 1, 2, 3, 4, 5]
    assert seen == [[], [0], [0, 1], [0, 1, 2], [0, 1, 2, 3], [0, 1, 2, 3, 4]]
    state = await graph.aget_state(thread(checkpoint_ns="call"))
    assert state.values["log"] == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("durability", ["sync", "exit"])
async def test_a_stateful_subgraph_that_has_finished_is_not_run_again_by_the_next_attempt(
    saver: Any, durability: Any
) -> None:
    ran: list[str] = []
    inner: Any = StateGraph(Log).add_node(*logs("a", ran)).add_edge(START, "a").compile(checkpointer=True)

    async def node(state: Log) -> Update:
        done = (await inner.ainvoke({"log": []}))["log"]
        ran.append("node")
        if ran.count("node") == 1:
            raise ConnectionError
        return {"log": done}

    graph = chain(("node", node), saver=saver, node={"retry_policy": AT_ONCE})

    assert await graph.ainvoke({"log": []}, thread(), durability=durability) == {"log": ["a"]}
    assert ran == ["a", "node", "node"]


@pytest.mark.parametrize("is_stateful", [True, False])
async def test_another_attempt_goes_on_in_a_subgraph_of_which_nothing_is_stored_yet(
    saver: Any, is_stateful: bool
) -> None:
    ran: list[str] = []

    async def fail_once(state: Log) -> Update:
        ran.append("fail_once")
        if ran.count("fail_once") == 1:
            raise ConnectionError
        return {"log": ["mended"]}

    builder = StateGraph(Log).add_node(*logs("a", ran)).add_node(*logs("b", ran)).add_node(fail_once)
    builder.add_edge(START, "a").add_edge("a", "b").add_edge("a", "fail_once")
    inner: Any = builder.compile(checkpointer=is_stateful or None)

    async def node(state: Log) -> Update:
        return {"log": (await inner.ainvoke({"log": []}))["log"]}

    watched = WatchedSaver(saver)
    graph = chain(("node", node), saver=watched, node={"retry_policy": AT_ONCE})

    assert await graph.ainvoke({"log": []}, thread(), durability="exit") == {"log": ["a", "b", "mended"]}
    assert ran == ["a", "b", "fail_once", "fail_once"]
    assert watched.commits == 2


@pytest.mark.parametrize("durability", ["sync", "exit"])
async def test_each_of_several_tasks_goes_on_in_its_own_run_of_a_stateful_subgraph(saver: Any, durability: Any) -> None:
    ran: list[str] = []

    async def fail_once(state: Log) -> Update:
        ran.append("fail_once")
        if ran.count("fail_once") == 1:
            raise ConnectionError
        return {"log": ["mended"]}

    builder = StateGraph(Log).add_node(*logs("a", ran)).add_node(fail_once).add_edge(START, "a")
    inner: Any = builder.add_edge("a", "fail_once").compile(checkpointer=True)

    failed, done = asyncio.Event(), asyncio.Event()

    @task(retry_policy=AT_ONCE)
    async def call(number: int) -> int:
        if number == 2:
            await failed.wait()
        elif failed.is_set():
            await done.wait()
        try:
            return len((await inner.ainvoke({"log": [number]}))["log"])
        finally:
            (failed if number == 1 else done).set()

    async def node(state: Log) -> Update:
        first, second = call(1), call(2)
        return {"log": [await first, await second]}

    graph = chain(("node", node), saver=saver)
    assert await graph.ainvoke({"log": []}, thread(), durability=durability) == {"log": [3, 5]}
    assert ran == ["a", "fail_once", "a", "fail_once", "fail_once"]


async def test_nothing_is_stored_of_a_subgraph_whose_result_is_taken(saver: Any) -> None:
    graph = chain(as_node(says("a"), says("b")), says("after"), saver=saver)
    await graph.ainvoke({"log": []}, thread(), durability="exit")
    assert await namespaces(saver) == [""]


async def test_a_subgraph_that_has_finished_before_its_node_asks_is_not_run_again(saver: Any) -> None:
    ran: list[str] = []
    inner: Any = chain(logs("a", ran))

    async def node(state: Log) -> Update:
        done = (await inner.ainvoke({"log": []}))["log"]
        return {"log": [*done, interrupt("q")]}

    graph = chain(("node", node), says("after"), saver=saver)
    await graph.ainvoke({"log": []}, thread(), durability="exit")
    assert await namespaces(saver) == ["node", ""]
    done = await graph.ainvoke(Command(resume="A"), thread(), durability="exit")

    assert done["log"] == ["a", "A", "after"]
    assert ran == ["a"]


async def test_a_question_of_a_subgraph_is_answered_anew_on_a_branch_that_is_stored_at_its_end(saver: Any) -> None:
    ran: list[str] = []
    graph = chain(inside(logs("a", ran), asks("form", ran, "q1", "q2")), saver=saver)
    first, point = await answer_two(graph, durability="exit")
    ran.clear()

    await graph.ainvoke(Command(resume={first: "one"}), point, durability="exit")
    done = await graph.ainvoke(Command(resume="two"), thread(), durability="exit")

    assert done["log"] == ["a", "form:one,two"]
    assert ran == ["form", "form"]

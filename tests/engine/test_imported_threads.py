"""Threads that LangGraph has left in the middle of something, imported and continued by the same graphs on Everstep."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import asyncpg
import pytest

from everstep import END, START, Command, Send, StateGraph, interrupt
from everstep.channels import DeltaChannel
from everstep.func import entrypoint, task
from everstep.ops.importing import Import, Imported, import_langgraph
from everstep_savers.base import AtomicSaver
from everstep_savers.errors import DatabaseUnavailable
from everstep_savers.memory import InMemorySaver
from everstep_savers.sql.database import parse_url, shown
from everstep_savers.sql.saver import SQLSaver
from tests.data.langgraph import graphs
from tests.data.langgraph.graphs import BROKEN, GRAPHS, RAN, TASKS, VALUES
from tests.engine.graphs import history, thread

DATA = Path(__file__).parent.parent / "data" / "langgraph"
SAID = json.loads((DATA / "threads.json").read_text())
EVERSTEP = SimpleNamespace(
    StateGraph=StateGraph,
    START=START,
    END=END,
    Send=Send,
    interrupt=interrupt,
    Command=Command,
    DeltaChannel=DeltaChannel,
    entrypoint=entrypoint,
    task=task,
)
SQLITE = f"sqlite:///{DATA / 'threads.sqlite'}"

Saver = AtomicSaver[Any]


@pytest.fixture(params=["sqlite to memory", "sqlite to sqlite", "postgres to postgres"])
def way(request: pytest.FixtureRequest) -> str:
    """From which kind of database threads are brought to which."""
    return str(request.param)


@pytest.fixture
async def source(way: str, request: pytest.FixtureRequest) -> str:
    """A database that LangGraph's own saver has written."""
    if way.startswith("sqlite"):
        return SQLITE
    url: str = request.getfixturevalue("empty_postgres_url")
    connection = await asyncpg.connect(url)
    await connection.execute((DATA / "threads.sql").read_text())
    await connection.close()
    return url


@pytest.fixture
async def saver(way: str, request: pytest.FixtureRequest) -> AsyncIterator[Saver]:
    """Where threads are brought to."""
    kind = way.split()[-1]
    if kind == "memory":
        yield InMemorySaver()
        return
    async with SQLSaver.from_url(request.getfixturevalue(f"{kind}_url")) as opened:
        yield opened


@pytest.fixture(autouse=True)
def repaired() -> Iterator[None]:
    """What made nodes fail is repaired, and nothing has run here yet."""
    BROKEN["is"] = False
    RAN.clear()
    yield
    RAN.clear()


async def brought(source: str, saver: Saver, *names: str, **more: Any) -> Imported:
    what = Import(source, annotations=[graphs.State], thread_ids=names or None, tasks=TASKS, **more)
    return await import_langgraph(what, saver)


async def continued(source: str, saver: Saver, name: str) -> Any:
    """The thread, imported, as the same graph on Everstep has it."""
    imported = await brought(source, saver, name)
    assert imported.refused == {}
    return GRAPHS[name](EVERSTEP, saver)


def log_of(values: Any) -> list[Any]:
    log: list[Any] = (values or {}).get("log", [])
    return log


async def test_all_threads_are_brought_over(source: str, saver: Saver) -> None:
    imported = await brought(source, saver)

    assert imported.refused == {}
    assert sorted(each.thread_id for each in imported.threads) == sorted(GRAPHS)


# LangGraph shows one question of several in calls, and one that was answered before its node failed.
QUESTIONS: Mapping[str, list[str]] = {
    "calls-beside": ["left?", "right?"],
    "failed-later": [],
    "handler-asks": ["really?"],
}
# It counts a node as next whose failure a handler has taken over, and does not show what that handler has logged.
HANDLED: Mapping[str, tuple[list[Any], list[str]]] = {
    "handled": (["in", "handled"], ["review"]),
    "handler-asks": (["in"], ["__default_error_handler__"]),
}


@pytest.mark.parametrize("name", GRAPHS)
async def test_a_thread_stands_as_it_stood(source: str, name: str) -> None:
    graph = await continued(source, InMemorySaver(), name)

    state = await graph.aget_state(thread(name))

    assert (log_of(state.values), list(state.next)) == HANDLED.get(name, (SAID[name]["log"], SAID[name]["next"]))
    assert [question.value for question in state.interrupts] == QUESTIONS.get(name, SAID[name]["questions"])
    states = await history(graph, thread(name))
    found = [[log_of(each.values), list(each.next), (each.metadata or {})["step"]] for each in states]
    assert found == SAID[name]["history"]
    assert RAN == []


async def test_metadata_comes_along(source: str) -> None:
    graph = await continued(source, InMemorySaver(), "asked")

    assert {(state.metadata or {})["customer"] for state in await history(graph, thread("asked"))} == {"c-1"}


INSIDE = ["in", "outer", "in", "outer", "inner", "in", "outer", "inner", "deep", "ask:yes", "last"]
ANSWERED: Mapping[str, tuple[list[Any], list[Any], list[str]]] = {
    # thread: answers, the log in the end, what ran
    "asked": (["yes"], ["in", "first", "ask:yes", "sibling", "last"], ["last"]),
    "sends": (["yes"], ["in", 0, 1, 2], ["each1"]),
    "second": (["two"], ["in", "ask:first", "ask:two"], []),
    "handled": (["yes"], ["in", "handled", "review:yes"], []),
    "handler-asks": (["two"], ["in", "handler:first", "handler:two"], []),
    "edited": (["yes"], ["in", "one", "edited", "again", "ask:yes"], []),
    "inside": (["yes"], INSIDE, ["last"]),
    "deferred": (["yes"], ["in", "one", "ask:yes", "late"], ["late"]),
    "partly": (["no"], ["in", "left:yes", "right:no"], []),
    "typed": (["yes"], ["in", "ask:yes"], []),
    "calls": (["yes"], ["in", 2, 4, "yes", 8], ["double 4"]),
    "calls-asking": (["a", "b"], ["in", 2, "a", "b", 4], ["ask one?", "double 2"]),
    "calls-answered": (["b"], ["in", 2, "yes", "b", 4], ["ask one?", "double 2"]),
    "calls-within": (["yes"], ["in", 0, 2, "yes", 4], ["outer", "ask sure?", "double 2"]),
    "calls-in-node": (["yes"], ["in", 2, "yes", "sibling"], []),
}


@pytest.mark.parametrize("name", ANSWERED)
async def test_a_thread_is_answered_and_nothing_finished_runs_again(source: str, saver: Saver, name: str) -> None:
    answers, log, ran = ANSWERED[name]
    graph = await continued(source, saver, name)

    for answer in answers:
        result = await graph.ainvoke(Command(resume=answer), thread(name))

    assert result["log"] == log
    assert ran == RAN
    assert (await graph.aget_state(thread(name))).next == ()


async def test_questions_of_calls_at_the_same_time_are_answered_by_their_new_ids(source: str, saver: Saver) -> None:
    imported = await brought(source, saver, "calls-beside")
    graph = GRAPHS["calls-beside"](EVERSTEP, saver)
    state = await graph.aget_state(thread("calls-beside"))
    assert {question.id for question in state.interrupts} == set(imported.threads[0].questions.values())
    left, right = state.interrupts

    half = await graph.ainvoke(Command(resume={left.id: "L"}), thread("calls-beside"))
    whole = await graph.ainvoke(Command(resume={right.id: "R"}), thread("calls-beside"))

    assert [question.value for question in half["__interrupt__"]] == ["right?"]
    assert whole["log"] == ["in", 2, ["L"], 4, ["R"]]
    assert RAN == ["ask left?", "ask right?"]


CONTINUED: Mapping[str, tuple[list[Any], list[str]]] = {
    # thread: the log when it goes on without an answer, what ran
    "failed": (["in", "repaired", "sibling"], []),
    "failed-later": (["in", "ask:yes"], []),
    "stopped": (["in", "one", "two"], ["two"]),
    "calls-failed": (["in", 2, 5], []),
}


@pytest.mark.parametrize("name", CONTINUED)
async def test_a_thread_goes_on_where_it_failed_or_stopped(source: str, saver: Saver, name: str) -> None:
    log, ran = CONTINUED[name]
    graph = await continued(source, saver, name)

    result = await graph.ainvoke(None, thread(name))

    assert result["log"] == log
    assert ran == RAN


NEXT: Mapping[str, list[Any]] = {
    # thread that is done: the log after another input
    "done": ["in", "first", "ask:yes", "sibling", "last", "more", "first", "sibling"],
    "stateful": ["in", "in", "inner", "more", "in", "inner", "in", "in", "inner", "more", "inner"],
    "previous": ["more", 6],
    "delta": ["in", 1, 2, 3, 4, 5, "more", 7, 8, 9, 10, 11],
}


@pytest.mark.parametrize("name", NEXT)
async def test_a_thread_that_is_done_takes_new_input(source: str, saver: Saver, name: str) -> None:
    graph = await continued(source, saver, name)

    result = await graph.ainvoke({"log": ["more"]}, thread(name))

    assert result["log"] == NEXT[name]
    assert log_of((await graph.aget_state(thread(name))).values) == NEXT[name]


async def test_both_branches_of_a_thread_can_be_answered(source: str, saver: Saver) -> None:
    graph = await continued(source, saver, "forked")
    states = await history(graph, thread("forked"))
    asking = [state for state in states if state.interrupts]
    assert [state.values["log"] for state in asking] == [["in", "edited"], ["in", "one"]]

    result = await graph.ainvoke(Command(resume="new"), thread("forked"))
    other = await graph.ainvoke(Command(resume="old"), asking[1].config)

    assert result["log"] == ["in", "edited", "ask:new"]
    assert other["log"] == ["in", "one", "ask:old"]


async def test_a_thread_can_be_branched_off_and_updated(source: str, saver: Saver) -> None:
    graph = await continued(source, saver, "asked")
    past = (await history(graph, thread("asked")))[1]

    config = await graph.aupdate_state(past.config, {"log": ["edited"]}, as_node="first")
    result = await graph.ainvoke(None, config)

    assert [question.value for question in result["__interrupt__"]] == ["sure?"]
    assert result["log"] == ["in", "edited", "sibling"]
    assert RAN == ["sibling"]


async def test_the_state_of_a_subgraph_comes_along(source: str, saver: Saver) -> None:
    graph = await continued(source, saver, "inside")

    state = await graph.aget_state(thread("inside"), subgraphs=True)

    middle = state.tasks[0].state
    deepest = middle.tasks[0].state
    assert middle.values["log"] == ["in", "outer", "inner"]
    assert deepest.values["log"] == ["in", "outer", "inner", "deep"]
    assert deepest.next == ("ask",)


async def test_values_come_back_equal_and_of_the_same_type(source: str, saver: Saver) -> None:
    graph = await continued(source, saver, "typed")

    values = (await graph.aget_state(thread("typed"))).values["values"]

    assert values == VALUES
    assert [type(value) for value in values.values()] == [type(value) for value in VALUES.values()]


async def test_without_the_names_of_tasks_a_question_in_a_call_is_asked_anew(source: str, saver: Saver) -> None:
    what = Import(source, thread_ids=["calls-asking"])
    imported = await import_langgraph(what, saver)
    graph = GRAPHS["calls-asking"](EVERSTEP, saver)
    assert [len(each.asked_again) for each in imported.threads] == [1]
    assert imported.threads[0].questions == {}
    assert (await graph.aget_state(thread("calls-asking"))).interrupts == ()

    asked = await graph.ainvoke(None, thread("calls-asking"))
    assert [question.value for question in asked["__interrupt__"]] == ["one?"]
    await graph.ainvoke(Command(resume="a"), thread("calls-asking"))
    result = await graph.ainvoke(Command(resume="b"), thread("calls-asking"))

    assert result["log"] == ["in", 2, "a", "b", 4]
    assert RAN == ["ask one?", "double 2"]


@pytest.mark.parametrize("name", ["calls-answered", "calls-within"])
async def test_without_the_names_of_tasks_nothing_that_a_call_has_got_is_lost(source: str, name: str) -> None:
    saver = InMemorySaver()

    imported = await import_langgraph(Import(source, thread_ids=[name]), saver)

    assert imported.refused == {
        name: "it waits in a @task that has called others, or was answered; which @task that is, the stored data does "
        "not tell: name the graph (--graph package.module:graph) and, unless they are in its module, the tasks "
        "(--task NAME)"
    }
    assert await saver.aget_thread(name) is None


async def test_a_dry_run_stores_nothing(source: str, saver: Saver) -> None:
    imported = await brought(source, saver, is_dry=True)

    assert len(imported.threads) == len(GRAPHS)
    assert [each async for each in saver.alist_threads()] == []


async def test_threads_that_are_there_are_left_alone(source: str, saver: Saver) -> None:
    await brought(source, saver, "asked")
    graph = GRAPHS["asked"](EVERSTEP, saver)
    await graph.ainvoke(Command(resume="yes"), thread("asked"))
    done = []

    imported = await import_langgraph(
        Import(source, annotations=[graphs.State], thread_ids=["asked", "done"]), saver, lambda *told: done.append(told)
    )

    assert imported.present == ["asked"]
    assert [each.thread_id for each in imported.threads] == ["done"]
    assert done == [(1, 2), (2, 2)]
    assert (await graph.aget_state(thread("asked"))).next == ()


async def test_a_thread_that_is_not_in_the_source_is_refused(source: str, saver: Saver) -> None:
    imported = await brought(source, saver, "nobody")

    assert imported.refused == {"nobody": "it has no checkpoint of the graph itself"}


async def test_a_class_that_is_not_known_is_named(source: str, saver: Saver) -> None:
    imported = await import_langgraph(Import(source, thread_ids=["typed", "done"]), saver)

    assert [each.thread_id for each in imported.threads] == ["done"]
    refused = imported.refused["typed"]
    assert "the class tests.data.langgraph.graphs.Order is not known; name the graph whose state has it" in refused
    assert "(--graph package.module:graph) or the class itself (--type tests.data.langgraph.graphs:Order)" in refused
    assert "state key 'values'" in refused
    assert await saver.aget_thread("typed") is None


async def test_a_database_that_is_not_langgraphs_is_refused(saver_url: str, tmp_path: Path) -> None:
    place = shown(parse_url(saver_url))
    missing = f"sqlite:///{tmp_path / 'nothing.db'}"
    async with SQLSaver.from_url(saver_url) as saver:
        for url, complaint in {
            saver_url: f"database {place} was not written by LangGraph's savers: it has no such checkpoints",
            missing: f"cannot use database {missing}: there is no such file",
        }.items():
            with pytest.raises(DatabaseUnavailable) as caught:
                await import_langgraph(Import(url), saver)
            assert str(caught.value) == complaint

    assert not (tmp_path / "nothing.db").exists()

"""Errors that tell what is wrong, where, and what to do, before anything is stored."""

from __future__ import annotations

import asyncio
import operator
from pathlib import Path
from typing import Annotated, Any, Literal, TypedDict

import pytest
from pydantic import BaseModel, Field
from sqlalchemy import text
from sqlalchemy.ext.asyncio import create_async_engine

from everstep.constants import END, START
from everstep.context import interrupt
from everstep.errors import (
    CodecError,
    ConfigError,
    DatabaseUnavailable,
    EmptyInputError,
    GraphBuildError,
    InvalidUpdateError,
    SchemaOutOfDate,
)
from everstep.graph.builder import StateGraph
from everstep.graph.validate import GraphWarning
from everstep.types import Command, Send, StateUpdate
from everstep_savers.sql.database import parse_url, shown
from everstep_savers.sql.saver import SQLSaver
from everstep_savers.sql.schema import SCHEMA_REVISION, VERSION_TABLE
from tests.engine.graphs import Log, Update, chain, history, says, side_by_side, thread
from tests.engine.watched import WatchedSaver


class Result(TypedDict, total=False):
    result: int
    other: int
    log: Annotated[list[Any], operator.add]


async def message_of(kind: type[Exception], graph: Any, given: Any, saver: Any) -> str:
    """Run to an error of a node; check that its step was not stored, and return the message."""
    with pytest.raises(kind) as caught:
        await graph.ainvoke(given, thread(), durability="sync")
    record = await saver.aget_thread("t")
    message = str(caught.value)
    assert (record.status, record.error) == ("failed", f"{kind.__name__}: {message}")
    state = await graph.aget_state(thread())
    assert state.next
    assert state.values.get("log", []) == given.get("log", [])
    assert next(s.config for s in await history(graph, thread())) == state.config
    return message


def result_graph(saver: Any, **nodes: Any) -> Any:
    builder = StateGraph(Result)
    for name, action in nodes.items():
        builder.add_node(name, action).add_edge(START, name)
    return builder.compile(saver)


# Results of nodes -----------------------------------------------------------------------------------------------


async def test_a_mistyped_key_names_the_node_and_the_near_match(saver: Any) -> None:
    async def work(state: Result) -> Update:
        return {"reslt": 3}

    assert await message_of(InvalidUpdateError, result_graph(saver, work=work), {"log": ["in"]}, saver) == (
        "the update of node 'work' has key 'reslt', which is in no schema of this graph. Did you mean 'result'? Its "
        "keys are 'log', 'other', 'result'; compile(unknown_keys='ignore') drops other keys."
    )


@pytest.mark.parametrize(("value", "told"), [(3, "int 3"), ("text", "str 'text'"), ([1], "list [1]")])
async def test_a_result_that_is_no_update_names_the_node_and_the_value(value: Any, told: str, saver: Any) -> None:
    async def work(state: Result) -> Any:
        return value

    assert await message_of(InvalidUpdateError, result_graph(saver, work=work), {"log": ["in"]}, saver) == (
        f"the update of node 'work' is {told}; expected a dict of state keys, an instance of a state schema, a "
        f"Command, a Send, a list with Commands or Sends in it, or None"
    )


async def test_a_goto_to_an_unknown_node_names_node_target_and_near_match(saver: Any) -> None:
    async def work(state: Result) -> Command[Any]:
        return Command(update={"log": ["lost"]}, goto="revew")

    async def review(state: Result) -> None:
        raise AssertionError("never reached")

    builder = StateGraph(Result).add_node(work).add_node(review).add_edge(START, "work").add_edge("work", "review")
    assert await message_of(InvalidUpdateError, builder.compile(saver), {"log": ["in"]}, saver) == (
        "Command.goto of node 'work' goes to 'revew', which is not a node of this graph. Did you mean 'review'?"
    )


async def test_a_send_to_an_unknown_node_names_node_target_and_near_match(saver: Any) -> None:
    async def work(state: Result) -> Command[Any]:
        return Command(goto=[Send("wrok", {})])

    assert await message_of(InvalidUpdateError, result_graph(saver, work=work), {"log": ["in"]}, saver) == (
        "a Send by Command.goto of node 'work' goes to 'wrok', which is not a node of this graph. Did you mean 'work'?"
    )


async def test_a_route_that_returns_a_typo_names_node_target_and_near_match(saver: Any) -> None:
    async def work(state: Result) -> Update:
        return {"log": ["lost"]}

    async def review(state: Result) -> None:
        raise AssertionError("never reached")

    def choose(state: Result) -> str:
        return "revew"

    def build(path_map: Any) -> Any:
        builder = StateGraph(Result).add_node(work).add_node(review).add_edge(START, "work")
        return builder.add_conditional_edges("work", choose, path_map).compile(saver)

    assert await message_of(InvalidUpdateError, build(None), {"log": ["in"]}, saver) == (
        "route 'choose' of node 'work' goes to 'revew', which is not a node of this graph. Did you mean 'review'?"
    )
    await saver.adelete_thread("t")
    assert await message_of(InvalidUpdateError, build(["review", END]), {"log": ["in"]}, saver) == (
        "route 'choose' of node 'work' returned str 'revew', which is not among its targets 'review', '__end__'. "
        "Did you mean 'review'?"
    )


async def test_two_writes_of_a_single_value_in_one_step_name_the_key_and_the_nodes(saver: Any) -> None:
    repaired = False
    runs: list[str] = []

    async def one(state: Result) -> Update:
        runs.append("one")
        return {"result": 1}

    async def two(state: Result) -> Update:
        runs.append("two")
        return {"other": 2} if repaired else {"result": 2}

    graph = result_graph(saver, one=one, two=two)
    assert await message_of(InvalidUpdateError, graph, {"log": ["in"]}, saver) == (
        "key 'result' keeps one value and got 2 in one step; write it from one node, or annotate it with a reducer: "
        "Annotated[..., reducer] (written by nodes 'one', 'two')"
    )
    assert (await graph.aget_state(thread())).next == ("one", "two")
    repaired = True
    assert await graph.ainvoke(None, thread()) == {"result": 1, "other": 2, "log": ["in"]}


@pytest.mark.parametrize("durability", ["sync", "async"])
async def test_a_refused_result_that_was_stored_while_a_sibling_ran_is_taken_back(durability: str, saver: Any) -> None:
    stored, ran = asyncio.Event(), []
    is_mended = False

    async def notice(number: int, commit: Any) -> None:
        if number == 3:  # after the claim and the input: the result of `quick`
            stored.set()

    async def quick(state: Log) -> Update:
        ran.append("quick")
        return {"log": ["quick"]} if is_mended else {"value": 1}

    async def slow(state: Log) -> Update:
        ran.append("slow")
        if not is_mended:
            await stored.wait()
        return {"value": 2}

    graph = side_by_side(quick, slow, says("beside"), saver=WatchedSaver(saver, after=notice))
    with pytest.raises(InvalidUpdateError, match="quick"):
        await graph.ainvoke({"log": []}, thread(), durability=durability)
    is_mended = True
    assert await graph.ainvoke(None, thread(), durability=durability) == {"log": ["beside", "quick"], "value": 2}
    assert sorted(ran) == ["quick", "quick", "slow", "slow"]


class Amount(BaseModel):
    amount: float = 0.0
    log: Annotated[list[Any], operator.add] = []


async def test_a_value_that_does_not_fit_its_pydantic_field_names_node_and_key(saver: Any) -> None:
    async def last(state: Amount) -> Update:
        return {"amount": "foo"}

    graph = StateGraph(Amount).add_node(last).add_edge(START, "last").compile(saver)
    assert await message_of(InvalidUpdateError, graph, {"log": ["in"]}, saver) == (
        "node 'last' wrote str 'foo' to key 'amount', which does not fit: Input should be a valid number, unable to "
        "parse string as a number"
    )


class Counted(BaseModel):
    counts: Annotated[list[int], operator.add] = []
    total: Annotated[int, operator.add] = Field(default=0, le=3)


async def test_what_a_reducer_makes_of_writes_is_checked_at_the_barrier(saver: Any) -> None:
    async def good(state: Counted) -> Update:
        return {"counts": [1], "total": 2}

    async def bad(state: Counted) -> Update:
        return {"counts": ["foo"]}

    graph = side_by_side_of(Counted, good, bad).compile(saver)
    with pytest.raises(InvalidUpdateError) as caught:
        await graph.ainvoke({"counts": [0]}, thread())
    assert str(caught.value) == (
        "key 'counts' was reduced to list [0, 'foo', 1], which does not fit: at 1: Input should be a valid integer, "
        "unable to parse string as an integer (written by nodes 'bad', 'good')"
    )
    assert (await graph.aget_state(thread())).values["counts"] == [0]


async def test_what_nodes_write_together_may_not_fit_though_each_write_does(saver: Any) -> None:
    async def two(state: Counted) -> Update:
        return {"total": 2}

    async def also_two(state: Counted) -> Update:
        return {"total": 2}

    graph = side_by_side_of(Counted, two, also_two).compile(saver)
    with pytest.raises(InvalidUpdateError) as caught:
        await graph.ainvoke({"counts": []}, thread())
    assert str(caught.value) == (
        "key 'total' was reduced to int 4, which does not fit: Input should be less than or equal to 3 (written by "
        "nodes 'also_two', 'two')"
    )


async def test_an_update_from_outside_is_checked_as_a_step_is(saver: Any) -> None:
    async def nothing(state: Counted) -> None:
        return None

    graph = side_by_side_of(Counted, nothing).compile(saver)
    await graph.ainvoke({"counts": [1]}, thread())
    with pytest.raises(InvalidUpdateError, match=r"key 'counts' was reduced to list \[1, 'x'\], which does not fit"):
        await graph.aupdate_state(thread(), {"counts": ["x"]}, as_node="nothing")
    assert (await graph.aget_state(thread())).values["counts"] == [1]


@pytest.mark.parametrize(
    ("supersteps", "kind", "message"),
    [
        (
            [[StateUpdate({"log": ["x"]}, END)]],
            InvalidUpdateError,
            (
                "an update as '__end__' drops what waits and writes nothing, got values; write them with an update of "
                "their own, as a node"
            ),
        ),
        (
            [[StateUpdate({"log": ["x"]}, 3)]],  # type: ignore[arg-type]
            InvalidUpdateError,
            "the update comes as node 3, which does not exist.",
        ),
        (3, ConfigError, "supersteps are lists of StateUpdates, such as [[StateUpdate(...)]], got 3"),
        ([[3]], ConfigError, "supersteps are lists of StateUpdates, such as [[StateUpdate(...)]], got [[3]]"),
    ],
    ids=["end", "node", "no-list", "no-updates"],
)
async def test_an_update_from_outside_that_makes_no_sense_writes_nothing(
    supersteps: Any, kind: type[Exception], message: str, saver: Any
) -> None:
    graph = chain(says("a"), saver=saver)
    await graph.ainvoke({"log": []}, thread())
    before = await graph.aget_state(thread())
    with pytest.raises(kind) as caught:
        await graph.abulk_update_state(thread(), supersteps)
    assert str(caught.value) == message
    assert await graph.aget_state(thread()) == before


async def test_the_first_update_of_a_thread_is_step_0(saver: Any) -> None:
    graph = chain(says("a"), says("b"), saver=saver)
    await graph.abulk_update_state(thread(), [[({"log": ["x"]}, "a")]])  # type: ignore[list-item]
    state = await graph.aget_state(thread())
    assert state.metadata is not None
    assert (state.values, state.next, state.metadata["step"]) == ({"log": ["x"]}, ("b",), 0)


def side_by_side_of(schema: Any, *nodes: Any) -> Any:
    """Nodes that run in one superstep over this schema."""
    builder: Any = StateGraph(schema)
    for node in nodes:
        builder.add_node(node).add_edge(START, node.__name__)
    return builder


def test_a_node_that_can_never_be_reached_is_warned_about() -> None:
    builder = StateGraph(Log).add_node(*says("a")).add_node(*says("lost")).add_edge(START, "a")
    with pytest.warns(GraphWarning) as warned:
        builder.compile()
    assert [str(each.message) for each in warned] == [
        (
            "node 'lost' can never run: no edge, route or declared destination leads to it from START. A node that "
            "goes there by Command says so by its return type, Command[Literal['lost']], or by "
            "add_node(..., destinations=('lost',))"
        )
    ]


# Building a graph ------------------------------------------------------------------------------------------------


def test_an_edge_to_an_unknown_node_names_the_edge_and_the_near_match() -> None:
    builder = StateGraph(Log).add_node(*says("fetch")).add_edge(START, "fetch").add_edge("fetch", "summarise")
    with pytest.raises(GraphBuildError) as caught:
        builder.compile()
    assert str(caught.value) == "edge 'fetch' -> 'summarise' ends at 'summarise', which is not a node of this graph."
    builder.add_node(*says("summarize"))
    with pytest.raises(GraphBuildError) as caught:
        builder.compile()
    assert str(caught.value) == (
        "edge 'fetch' -> 'summarise' ends at 'summarise', which is not a node of this graph. Did you mean 'summarize'?"
    )


def test_a_literal_route_to_an_unknown_node_is_found_when_the_graph_is_built() -> None:
    def choose(state: Log) -> Literal["revew", "__end__"]:
        return "revew"

    builder = StateGraph(Log).add_node(*says("review")).add_edge(START, "review")
    builder.add_conditional_edges("review", choose)
    with pytest.raises(GraphBuildError) as caught:
        builder.compile()
    assert str(caught.value) == (
        "route 'choose' of node 'review' may go to 'revew', which is not a node of this graph. Did you mean 'review'?"
    )


def test_something_that_is_no_saver_is_refused_when_the_graph_is_built() -> None:
    with pytest.raises(TypeError) as caught:
        chain(says("a"), saver=SQLSaver)
    assert str(caught.value) == (
        "checkpointer must be a saver such as InMemorySaver() or SQLSaver.from_url(...), got the class SQLSaver"
    )


# Input and config -------------------------------------------------------------------------------------------------


async def refused(kind: type[Exception], graph: Any, given: Any, config: Any, saver: Any) -> str:
    """Start a run that is refused before anything is stored; the message."""
    with pytest.raises(kind) as caught:
        await graph.ainvoke(given, config)
    assert [record async for record in saver.alist_threads()] == []
    return str(caught.value)


async def test_a_run_with_a_saver_and_no_thread_id_is_refused(saver: Any) -> None:
    graph = chain(says("a"), saver=saver)
    expected = (
        'a graph with a saver needs a thread_id: pass {"configurable": {"thread_id": "..."}} as the config, or compile '
        "the graph without a checkpointer"
    )
    configs: list[Any] = [None, {}, {"configurable": {}}]
    for config in configs:
        assert await refused(ConfigError, graph, {"log": []}, config, saver) == expected


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"lgo": []},
            (
                "the input of graph 'graph' has key 'lgo', which is in no schema of this graph. Did you mean 'log'? "
                "Its keys are 'items', 'log', 'value'; compile(unknown_keys='ignore') drops other keys."
            ),
        ),
        (3, "the input of graph 'graph' is int 3; expected a dict of state keys or an instance of Log"),
    ],
)
async def test_an_input_that_does_not_fit_is_refused(given: Any, message: str, saver: Any) -> None:
    assert await refused(InvalidUpdateError, chain(says("a"), saver=saver), given, thread(), saver) == message


async def test_a_run_without_input_and_without_anything_to_continue_is_refused(saver: Any) -> None:
    assert await refused(EmptyInputError, chain(says("a"), saver=saver), None, thread(), saver) == (
        "thread 't' has no checkpoint: there is nothing to continue; give the run an input"
    )
    with pytest.raises(EmptyInputError) as caught:
        await chain(says("a")).ainvoke(None)
    assert str(caught.value) == "the run got no input; only a graph with a saver can continue, by its thread_id"


async def test_a_command_input_to_an_unknown_node_is_refused(saver: Any) -> None:
    graph = chain(says("first"), saver=saver)
    assert await refused(InvalidUpdateError, graph, Command(goto="frist"), thread(), saver) == (
        "Command.goto of the input goes to 'frist', which is not a node of this graph. Did you mean 'first'?"
    )


async def test_a_config_key_in_the_wrong_place_is_refused(saver: Any) -> None:
    graph = chain(says("a"), saver=saver)
    assert await refused(ConfigError, graph, {"log": []}, {"thread_id": "t"}, saver) == (
        "config key 'thread_id' belongs under \"configurable\": {\"configurable\": {'thread_id': ...}}"
    )
    assert await refused(ConfigError, graph, {"log": []}, {**thread(), "durability": "sync"}, saver) == (
        "config key 'durability' does nothing there; pass it to the call itself, or to compile()/add_node()"
    )


async def test_an_unknown_option_of_a_call_is_refused(saver: Any) -> None:
    graph = chain(says("a"), saver=saver)
    with pytest.raises(TypeError) as caught:
        await graph.ainvoke({"log": []}, thread(), durabilty="sync")
    assert str(caught.value) == "unknown option 'durabilty' of a call. Did you mean 'durability'?"
    assert await saver.aget_thread("t") is None


@pytest.mark.parametrize("name", ["nul\0", "lone \ud800"])
async def test_a_thread_id_that_no_database_can_hold_is_refused(name: str, saver: Any) -> None:
    message = await refused(ValueError, chain(says("a"), saver=saver), {"log": []}, thread(name), saver)
    assert message.startswith(f"thread_id {name!r} contains a ")


# Values that cannot be stored -------------------------------------------------------------------------------------


class Opaque:
    """A class that nobody made known."""


async def test_an_unstorable_result_names_key_node_thread_and_type(saver: Any) -> None:
    async def work(state: Result) -> Update:
        return {"other": {"deep": [1, Opaque()]}}

    assert await message_of(CodecError, result_graph(saver, work=work), {"log": ["in"]}, saver) == (
        "tests.engine.test_loud_errors.Opaque cannot be stored: make it a dataclass and call codec.register(Opaque), "
        "or keep plain data instead (at ['deep'][1], state key 'other', node 'work', thread 't')"
    )


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
async def test_an_unstorable_result_fails_the_run_in_every_durability(durability: str, saver: Any) -> None:
    async def work(state: Log) -> Update:
        return {"value": Opaque()}

    graph = chain(says("a"), work, says("c"), saver=saver)
    with pytest.raises(CodecError, match=r"Opaque cannot be stored.*state key 'value'.*thread 't'"):
        await graph.ainvoke({"log": []}, thread(), durability=durability)
    assert (await saver.aget_thread("t")).status == "failed"
    assert (await graph.aget_state(thread())).values == ({} if durability == "exit" else {"log": ["a"]})


async def test_what_finished_beside_an_unstorable_result_is_kept(saver: Any) -> None:
    runs: list[str] = []

    async def good(state: Log) -> Update:
        runs.append("good")
        return {"log": ["good"]}

    async def bad(state: Log) -> Update:
        runs.append("bad")
        return {"value": Opaque() if runs.count("bad") == 1 else "plain"}

    graph = side_by_side(bad, good, saver=saver)
    with pytest.raises(CodecError):
        await graph.ainvoke({"log": []}, thread())
    assert await graph.ainvoke(None, thread()) == {"log": ["good"], "value": "plain"}
    assert sorted(runs) == ["bad", "bad", "good"]


async def test_an_unstorable_input_is_refused_before_anything_is_stored(saver: Any) -> None:
    message = await refused(CodecError, chain(says("a"), saver=saver), {"value": [Opaque()]}, thread(), saver)
    assert message.startswith("tests.engine.test_loud_errors.Opaque cannot be stored: ")
    assert message.endswith("(at ['value'][0], state key '__start__', thread 't')")


async def test_an_unstorable_question_fails_the_run_and_names_its_node(saver: Any) -> None:
    questions: list[Any] = [Opaque(), "plain"]

    async def ask(state: Log) -> Update:
        return {"log": [interrupt(questions.pop(0))]}

    graph = chain(ask, saver=saver)
    with pytest.raises(CodecError, match=r"Opaque cannot be stored.*question, node 'ask', thread 't'"):
        await graph.ainvoke({"log": []}, thread())
    assert (await saver.aget_thread("t")).status == "failed"
    result = await graph.ainvoke(None, thread())
    assert [question.value for question in result["__interrupt__"]] == ["plain"]


async def test_an_unstorable_answer_is_refused_and_the_question_stays_open(saver: Any) -> None:
    async def ask(state: Log) -> Update:
        return {"log": [interrupt("q")]}

    graph = chain(ask, saver=saver)
    await graph.ainvoke({"log": []}, thread())
    before = await graph.aget_state(thread()), await saver.aget_thread("t")
    with pytest.raises(CodecError, match=r"Opaque cannot be stored.*answer, node 'ask', thread 't'"):
        await graph.ainvoke(Command(resume=Opaque()), thread())
    assert (await graph.aget_state(thread()), await saver.aget_thread("t")) == before


async def test_unstorable_metadata_is_refused_before_anything_is_stored(saver: Any) -> None:
    config = {**thread(), "metadata": {"who": Opaque()}}
    message = await refused(CodecError, chain(says("a"), saver=saver), {"log": []}, config, saver)
    assert message.startswith("metadata must be JSON: tests.engine.test_loud_errors.Opaque is not JSON (at who")


# Databases --------------------------------------------------------------------------------------------------------


async def database_error(kind: type[Exception], url: str) -> str:
    graph = chain(says("a"), saver=SQLSaver.from_url(url))
    with pytest.raises(kind) as caught:
        await graph.ainvoke({"log": []}, thread())
    return str(caught.value)


async def test_an_unreachable_postgres_is_told_without_its_password() -> None:
    message = await database_error(DatabaseUnavailable, "postgresql://user:secret@127.0.0.1:1/threads")
    assert message.startswith("cannot use database postgresql://user:***@127.0.0.1:1/threads: ")
    assert "secret" not in message


async def test_a_sqlite_file_that_cannot_be_opened_is_told(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}"
    assert (await database_error(DatabaseUnavailable, url)).startswith(f"cannot use database {url}: ")


async def test_a_database_that_was_not_migrated_is_told_with_the_command_to_run(empty_url: str) -> None:
    url = shown(parse_url(empty_url))
    assert await database_error(SchemaOutOfDate, empty_url) == (
        f"database {url} has no Everstep tables yet; create them: everstep db upgrade --url {url}"
    )


async def test_a_database_that_is_too_new_is_told_with_the_way_out(saver_url: str) -> None:
    await write_revision(saver_url, "9999")
    url = shown(parse_url(saver_url))
    assert await database_error(SchemaOutOfDate, saver_url) == (
        f"database {url} has schema 9999, this version of everstep knows only up to {SCHEMA_REVISION}; install the "
        f"newer everstep, or with that one take the schema back: everstep db downgrade --revision {SCHEMA_REVISION} "
        f"--url {url}"
    )


async def write_revision(url: str, revision: str) -> None:
    """Say that a database has this schema."""
    engine = create_async_engine(parse_url(url))
    async with engine.begin() as connection:
        await connection.execute(text(f"UPDATE {VERSION_TABLE} SET version_num = '{revision}'"))
    await engine.dispose()

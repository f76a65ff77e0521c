"""LangGraph's savers, and one that others made for it, given to our graphs: taken by their shape."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import lmdb
import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph_checkpoint_lmdb import AsyncLMDBSaver

from everstep import Command, interrupt
from everstep.types import Durability
from tests.engine.graphs import Log, Update, chain, history, says, side_by_side, thread


@pytest.fixture(params=["memory", "sqlite", "lmdb"])
async def theirs(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Any]:
    if request.param == "memory":
        yield InMemorySaver()
    elif request.param == "sqlite":
        async with AsyncSqliteSaver.from_conn_string(str(tmp_path / "threads.db")) as saver:
            yield saver
    else:
        with lmdb.open(str(tmp_path / "threads"), max_dbs=8) as environment:
            yield AsyncLMDBSaver(environment)


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
async def test_a_graph_asks_is_answered_and_shows_its_history(theirs: Any, durability: Durability) -> None:
    ran: list[str] = []

    def sibling(state: Log) -> Update:
        ran.append("sibling")
        return {"log": ["sibling"], "value": (1, 2)}

    def asks(state: Log) -> Update:
        return {"log": [interrupt("sure?")]}

    graph = side_by_side(sibling, asks, saver=theirs)
    asked = await graph.ainvoke({"log": []}, thread(), durability=durability)
    finished = await graph.ainvoke(Command(resume="yes"), thread(), durability=durability)

    assert [question.value for question in asked["__interrupt__"]] == ["sure?"]
    assert finished == {"log": ["yes", "sibling"], "value": (1, 2)}
    assert ran == ["sibling"]
    assert (await graph.aget_state(thread())).values == finished


async def test_a_past_checkpoint_is_replayed_on_a_branch(theirs: Any) -> None:
    graph = chain(says("a"), says("b"), saver=theirs)
    await graph.ainvoke({"log": []}, thread())
    past = next(state for state in await history(graph, thread()) if state.next == ("b",))

    updated = await graph.aupdate_state(past.config, {"log": ["edited"]})
    finished = await graph.ainvoke(None, updated)

    assert finished["log"] == ["a", "edited", "b"]
    assert past.config in [state.config for state in await history(graph, thread())]

"""The store of a graph: nodes reach it by injection, by their runtime and by `get_store`, in subgraphs too."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from everstep.config import get_store
from everstep.context import Runtime
from everstep.errors import ConfigError
from everstep_savers.memory import InMemorySaver
from everstep_savers.sql.saver import SQLSaver
from everstep_savers.sql.store import SQLStore
from everstep_savers.store import BaseStore, InMemoryStore
from tests.engine.graphs import Log, Update, chain, says, side_by_side, thread

X = ("x",)


@pytest.fixture(params=["memory", "sqlite", "postgres"])
async def store(request: pytest.FixtureRequest) -> AsyncIterator[BaseStore]:
    """An open store of each kind in turn."""
    if request.param == "memory":
        yield InMemoryStore()
        return
    async with SQLStore.from_url(request.getfixturevalue(f"{request.param}_url")) as opened:
        yield opened


async def by_name(state: Log, store: BaseStore) -> Update:
    await store.aput(X, "by_name", {"n": state["value"]})
    return {"log": ["by_name"]}


async def by_runtime(state: Log, runtime: Runtime[Any]) -> Update:
    await runtime.store.aput(X, "by_runtime", {"n": state["value"]})
    return {"log": ["by_runtime"]}


async def by_function(state: Log) -> Update:
    await get_store().aput(X, "by_function", {"n": state["value"]})
    return {"log": ["by_function"]}


def in_a_thread(state: Log, store: BaseStore) -> Update:
    store.put(X, "in_a_thread", {"n": state["value"]})
    found = get_store().get(X, "in_a_thread")
    return {"log": [found.value["n"]]}


async def test_every_kind_of_node_reaches_the_store(store: BaseStore) -> None:
    graph = side_by_side(by_name, by_runtime, by_function, in_a_thread, store=store)

    output = await graph.ainvoke({"value": 7})

    assert sorted(map(str, output["log"])) == ["7", "by_function", "by_name", "by_runtime"]
    found = {item.key: item.value for item in await store.asearch(X)}
    assert found == {key: {"n": 7} for key in ("by_name", "by_runtime", "by_function", "in_a_thread")}
    assert graph.store is store


async def test_a_subgraph_uses_the_store_of_the_graph_that_runs_it(store: BaseStore) -> None:
    inner: Any = chain(by_name, in_a_thread)
    deep: Any = chain(("inner", inner))

    async def called(state: Log) -> Update:
        await inner.ainvoke({"value": state["value"] + 1})
        return {"log": ["called"]}

    await chain(("deep", deep), store=store).ainvoke({"value": 1})
    assert {item.value["n"] for item in await store.asearch(X)} == {1}
    await chain(called, store=store).ainvoke({"value": 1})
    assert {item.value["n"] for item in await store.asearch(X)} == {2}


async def test_a_subgraph_with_a_store_of_its_own_keeps_to_it() -> None:
    own, outer = InMemoryStore(), InMemoryStore()
    inner: Any = chain(by_name, store=own)

    await chain(("inner", inner), by_function, store=outer).ainvoke({"value": 1})

    assert [item.key for item in await own.asearch(X)] == ["by_name"]
    assert [item.key for item in await outer.asearch(X)] == ["by_function"]


async def test_a_graph_without_a_store_has_none() -> None:
    async def look(state: Log, store: Any) -> Update:
        return {"log": [store, get_store()]}

    assert (await chain(look).ainvoke({}))["log"] == [None, None]


async def test_a_store_outlives_threads_and_is_not_part_of_their_state() -> None:
    store = InMemoryStore()

    async def count(state: Log, store: BaseStore) -> Update:
        found = await store.aget(X, "runs")
        runs = found.value["n"] + 1 if found else 1
        await store.aput(X, "runs", {"n": runs})
        return {"log": [runs]}

    graph = chain(count, saver=InMemorySaver(), store=store)

    assert [(await graph.ainvoke({}, thread(name)))["log"] for name in ("a", "b")] == [[1], [2]]


def test_a_script_and_its_graph_share_a_store(saver_url: str) -> None:
    store = SQLStore.from_url(saver_url)
    saver = SQLSaver.from_url(saver_url)
    graph = chain(by_name, in_a_thread, saver=saver, store=store)
    store.put(X, "by_script", {"n": 0})

    graph.invoke({"value": 3}, thread())

    assert [item.key for item in store.search(X)] == ["by_script", "by_name", "in_a_thread"]
    _close(saver.aclose, store.aclose)


def test_a_store_first_used_by_a_sync_node_belongs_to_the_loop_of_its_run(sqlite_url: str) -> None:
    store = SQLStore.from_url(sqlite_url)

    async def main() -> list[Any]:
        output = await chain(in_a_thread, by_name, store=store).ainvoke({"value": 5})
        await store.aclose()
        return list(output["log"])

    assert asyncio.run(main()) == [5, "by_name"]


def _close(*closes: Callable[[], Any]) -> None:
    from everstep_savers.blocking import run_blocking

    for close in closes:
        run_blocking(close, "close")


async def test_many_inputs_run_at_the_same_time() -> None:
    store = InMemoryStore()
    graph = chain(by_name, saver=InMemorySaver(), store=store)

    outputs = await graph.abatch([{"value": n} for n in range(3)], [thread(str(n)) for n in range(3)])

    assert [output["value"] for output in outputs] == [0, 1, 2]
    assert await graph.abatch([]) == []


async def test_a_run_of_many_that_fails_cuts_no_other_short() -> None:
    done = []

    async def picky(state: Log) -> Update:
        if state["value"] == 0:
            raise LookupError("no zero")
        await asyncio.sleep(0)
        done.append(state["value"])
        return {"log": ["ok"]}

    graph = chain(picky)
    inputs = [{"value": n} for n in range(3)]

    with pytest.raises(LookupError, match="no zero"):
        await graph.abatch(inputs)
    assert done == [1, 2]
    outcomes = await graph.abatch(inputs, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [LookupError, dict, dict]


async def test_as_many_configs_as_inputs_are_needed() -> None:
    with pytest.raises(ConfigError) as caught:
        await chain(says("a")).abatch([{}, {}], [thread()])

    assert str(caught.value) == "2 inputs need as many configs, or one for all, got 1"


def test_many_inputs_run_in_a_script() -> None:
    assert [output["log"] for output in chain(says("a")).batch([{}, {}])] == [["a"], ["a"]]

"""Faults inside of `@task` calls: signs of life, idempotency keys, draining, handlers of nodes that call tasks."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from everstep.context import Runtime, interrupt
from everstep.errors import GraphDrained, NodeError, NodeTimeoutError
from everstep.func import entrypoint, task
from everstep.runtime import get_runtime
from everstep.types import Command, TimeoutPolicy
from tests.engine.clock import quick_clock
from tests.engine.graphs import AT_ONCE, Log, Update, chain, says, thread

DURABILITIES = ["sync", "async", "exit"]


@task
async def wait(seconds: float) -> float:
    """Take this long."""
    await asyncio.sleep(seconds)
    return seconds


async def test_calls_that_begin_and_end_are_signs_of_life_of_their_caller() -> None:
    async def call(state: Log) -> Update:
        for _ in range(5):
            await wait(1)
        await wait(3)
        return {"log": ["called"]}

    with quick_clock():
        with pytest.raises(NodeTimeoutError) as caught:
            await chain(call, node={"timeout": TimeoutPolicy(idle_timeout=2)}).ainvoke({"log": []})
        assert caught.value.kind == "idle"
        assert caught.value.elapsed == pytest.approx(7)
        graph = chain(call, node={"timeout": TimeoutPolicy(idle_timeout=4)})
        assert await graph.ainvoke({"log": []}) == {"log": ["called"]}


async def test_a_heartbeat_in_a_call_is_one_of_its_caller() -> None:
    @task
    async def beat() -> str:
        for _ in range(5):
            await asyncio.sleep(1)
            get_runtime().heartbeat()
        return "beaten"

    async def call(state: Log) -> Update:
        return {"log": [await beat()]}

    policy = TimeoutPolicy(idle_timeout=2, refresh_on="heartbeat")
    with quick_clock():
        assert await chain(call, node={"timeout": policy}).ainvoke({"log": []}) == {"log": ["beaten"]}


async def test_a_call_may_have_an_idle_timeout_of_its_own() -> None:
    @task(timeout=TimeoutPolicy(idle_timeout=2))
    async def hang() -> None:
        await asyncio.Event().wait()

    @entrypoint()
    async def run(value: Any) -> None:
        await hang()

    with quick_clock(), pytest.raises(NodeTimeoutError) as caught:
        await run.ainvoke(1)
    assert (caught.value.node, caught.value.kind) == ("hang", "idle")


@pytest.mark.parametrize("durability", DURABILITIES)
async def test_every_call_has_a_key_that_it_keeps_when_it_is_run_again(durability: str, saver: Any) -> None:
    keys: dict[str, list[str]] = {}
    failing = {"second"}

    @task
    async def pay(name: str) -> str:
        keys.setdefault(name, []).append(get_runtime().idempotency_key)
        if name in failing:
            raise ConnectionError(name)
        return name

    @task
    async def outer(name: str) -> str:
        found: str = await pay(name)
        return found

    @entrypoint(checkpointer=saver)
    async def run(value: Any) -> list[str]:
        return [await pay("first"), await outer("inner"), await pay("second"), await pay("third")]

    with pytest.raises(ConnectionError):
        await run.ainvoke(1, thread(), durability=durability)
    failing.clear()
    assert await run.ainvoke(None, thread(), durability=durability) == ["first", "inner", "second", "third"]
    assert {name: len(found) for name, found in keys.items()} == {"first": 1, "inner": 1, "second": 2, "third": 1}
    assert len({key for found in keys.values() for key in found}) == 4
    await run.ainvoke(2, thread(), durability=durability)
    assert len({key for found in keys.values() for key in found}) == 8


async def test_the_same_calls_of_two_nodes_in_one_step_have_keys_of_their_own(saver: Any) -> None:
    keys: list[str] = []

    @task
    async def pay() -> None:
        keys.append(get_runtime().idempotency_key)

    async def call(state: Log, runtime: Runtime[Any]) -> None:
        keys.append(runtime.idempotency_key)
        await pay()

    graph = chain(("a", call), ("b", call), saver=saver)
    await graph.ainvoke({"log": []}, thread())
    assert len(set(keys)) == 4


@pytest.mark.parametrize("durability", DURABILITIES)
@pytest.mark.parametrize("is_swallowed", [False, True])
async def test_a_subgraph_in_a_call_that_is_drained_drains_the_run(
    is_swallowed: bool, durability: str, saver: Any
) -> None:
    ran: list[str] = []

    async def ask_to_stop(state: Log, runtime: Runtime[Any]) -> None:
        ran.append("inner")
        assert runtime.control is not None
        runtime.control.request_drain("deploy")

    inner = chain(ask_to_stop, says("b"))

    @task
    async def before() -> str:
        ran.append("before")
        return "before"

    @task
    async def call() -> list[str]:
        try:
            found: Update = await inner.ainvoke({"log": []})
        except Exception:
            if not is_swallowed:
                raise
            return ["swallowed"]
        return list(found["log"])

    @entrypoint(checkpointer=saver)
    async def run(value: Any) -> list[str]:
        return [await before(), *await call()]

    with pytest.raises(GraphDrained, match="deploy"):
        await run.ainvoke(1, thread(), durability=durability)
    assert (await saver.aget_thread("t")).status == "drained"
    assert await run.ainvoke(None, thread(), durability=durability) == ["before", "b"]
    assert ran == ["before", "inner"]


async def test_a_handler_takes_over_from_a_node_whose_call_has_failed_for_good(saver: Any) -> None:
    ran: list[str] = []

    @task
    async def works() -> str:
        ran.append("works")
        return "worked"

    @task(retry_policy=AT_ONCE)
    async def fails() -> None:
        ran.append("fails")
        raise ConnectionError("no")

    @task
    async def mends() -> str:
        ran.append("mends")
        return "mended"

    async def call(state: Log) -> None:
        await works()
        await fails()

    async def handle(state: Log, error: NodeError) -> Update:
        answer = interrupt(f"{error.node}: {error.error}?")
        return {"log": [await mends(), answer]}

    graph = chain(call, saver=saver, node={"error_handler": handle})
    asked = await graph.ainvoke({"log": []}, thread())
    assert [question.value for question in asked["__interrupt__"]] == ["call: no?"]
    assert await graph.ainvoke(Command(resume="yes"), thread()) == {"log": ["mended", "yes"]}
    assert ran == ["works", *["fails"] * AT_ONCE.max_attempts, "mends"]


async def test_changes_in_place_to_what_a_call_is_given_are_its_callers_business() -> None:
    @task
    async def change(value: dict[str, Any]) -> int:
        value["inner"].append(2)
        return len(value["inner"])

    async def call(state: Log) -> Update:
        return {"log": [await change({"inner": [1]})]}

    builder = chain(call).builder
    assert builder is not None
    assert await builder.compile(debug=True).ainvoke({"log": []}) == {"log": [2]}

"""Retries: which attempts are repeated, what the next one sees, and what of the failed ones is left."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import Any

import pytest

from everstep.constants import START
from everstep.context import Runtime
from everstep.graph.builder import StateGraph
from everstep.policies import RetryPolicy
from everstep.types import Command, Send
from tests.engine.graphs import AT_ONCE, Log, Update, chain, notes_of, says, side_by_side, thread


class Flaky:
    """A node that fails a number of times, then logs its attempt."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.attempts = 0

    async def __call__(self, state: Log) -> Update:
        self.attempts += 1
        if self.errors:
            raise self.errors.pop(0)
        return {"log": [self.attempts]}


def policy(**changed: Any) -> RetryPolicy:
    """A policy that does not wait."""
    return RetryPolicy(**{"initial_interval": 0, "jitter": False, **changed})


@pytest.mark.parametrize("siblings", [0, 1])
async def test_a_node_is_tried_again_until_it_succeeds(siblings: int) -> None:
    node = Flaky(ConnectionError("1"), ConnectionError("2"))
    others = [says("other") for _ in range(siblings)]
    result = await side_by_side(("flaky", node), *others, node={"retry_policy": policy()}).ainvoke({"log": []})
    assert result["log"] == [3, *("other" for _ in range(siblings))]


async def test_max_attempts_counts_the_first_one_and_the_last_error_is_raised() -> None:
    node = Flaky(*(ConnectionError(str(number)) for number in range(1, 9)))
    with pytest.raises(ConnectionError) as caught:
        await chain(("flaky", node), node={"retry_policy": policy(max_attempts=4)}).ainvoke({"log": []}, thread())
    assert str(caught.value) == "4"
    assert notes_of(caught.value) == ["in node 'flaky' (attempt 4, step 1, thread 't')"]
    assert node.attempts == 4


async def test_a_node_without_a_policy_is_not_tried_again() -> None:
    node = Flaky(ConnectionError("once"))
    with pytest.raises(ConnectionError) as caught:
        await chain(("flaky", node)).ainvoke({"log": []})
    assert (node.attempts, notes_of(caught.value)) == (1, ["in node 'flaky' (attempt 1, step 1)"])


async def test_programming_errors_are_not_tried_again_by_default() -> None:
    for error in (ValueError(), TypeError(), KeyError(), RuntimeError(), ZeroDivisionError(), FileNotFoundError()):
        node = Flaky(error)
        with pytest.raises(type(error)):
            await chain(("flaky", node), node={"retry_policy": policy()}).ainvoke({"log": []})
        assert node.attempts == 1


async def test_the_first_policy_that_matches_counts() -> None:
    policies = [
        policy(retry_on=KeyError, max_attempts=2),
        policy(retry_on=LookupError, max_attempts=5),
        policy(retry_on=lambda error: True, max_attempts=3),
    ]
    for error, attempts in ((KeyError, 2), (IndexError, 5), (OSError, 3)):
        node = Flaky(*(error() for _ in range(9)))
        with pytest.raises(error):
            await chain(("flaky", node), node={"retry_policy": policies}).ainvoke({"log": []})
        assert node.attempts == attempts


async def test_the_waits_between_attempts_grow(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    waits: list[float] = []
    real_sleep = asyncio.sleep

    async def sleep(seconds: float) -> None:
        waits.append(seconds)
        await real_sleep(0)

    monkeypatch.setattr("everstep.tasks.runner.asyncio.sleep", sleep)
    caplog.set_level(logging.INFO, logger="everstep")
    node = Flaky(*(ConnectionError("down") for _ in range(4)))
    growing = policy(initial_interval=1.0, backoff_factor=3.0, max_interval=10.0, max_attempts=5)
    await chain(("flaky", node), node={"retry_policy": growing}).ainvoke({"log": []})
    assert [wait for wait in waits if wait] == [1.0, 3.0, 9.0, 10.0]
    assert next(record.message for record in caplog.records if record.name == "everstep") == (
        "node 'flaky' failed with ConnectionError: down; attempt 2 of 5 follows in 1.000 s (step 1)"
    )


async def test_nothing_of_a_failed_attempt_is_written(saver: Any) -> None:
    attempts = 0

    def route(state: Log) -> str:
        nonlocal attempts
        attempts += 1
        if attempts == 1:
            raise ConnectionError("the route fails after the node's update was made")
        return "b"

    builder = StateGraph(Log).add_node(*says("a"), retry_policy=policy()).add_node(*says("b")).add_edge(START, "a")
    builder.add_conditional_edges("a", route, ["b"])
    graph = builder.compile(saver)
    result = await graph.ainvoke({"log": []}, thread())
    assert result == (await graph.aget_state(thread())).values == {"log": ["a", "b"]}


async def test_an_attempt_does_not_see_what_an_earlier_one_did_to_its_input() -> None:
    seen: list[Any] = []

    async def spoil(state: Log) -> None:
        state["items"].append("spoilt")
        state["value"] = "spoilt"
        seen.append((list(state["items"]), dict(state)))
        if len(seen) < 3:
            raise ConnectionError

    await chain(spoil, node={"retry_policy": policy()}).ainvoke({"items": ["in"], "value": 1})
    assert [items for items, _ in seen] == [["in", "spoilt"]] * 3


async def test_an_attempt_of_a_sent_task_does_not_see_what_an_earlier_one_did_to_its_input() -> None:
    seen: list[Any] = []

    async def spoil(state: Log) -> None:
        state["items"].append("spoilt")
        seen.append(list(state["items"]))
        if len(seen) < 2:
            raise ConnectionError

    builder = StateGraph(Log).add_node(spoil, retry_policy=policy())
    builder.add_conditional_edges(START, lambda state: Send("spoil", {"items": ["sent"]}), ["spoil"])
    await builder.compile().ainvoke({"log": []})
    assert seen == [["sent", "spoilt"]] * 2


@dataclass
class Basket:
    items: list[str]


async def test_an_attempt_gets_a_fresh_instance_of_its_input_schema() -> None:
    seen: list[Any] = []

    async def spoil(state: Basket) -> None:
        state.items.append("spoilt")
        seen.append(list(state.items))
        if len(seen) < 2:
            raise ConnectionError

    builder = StateGraph(Basket).add_node(spoil, retry_policy=policy()).add_edge(START, "spoil")
    assert await builder.compile().ainvoke(Basket(["in"])) == {"items": ["in"]}
    assert seen == [["in", "spoilt"]] * 2


async def test_a_node_can_see_which_attempt_it_is_in() -> None:
    seen: list[Any] = []

    async def look(state: Log, runtime: Runtime[Any]) -> None:
        info = runtime.execution_info
        seen.append((info.node_attempt, info.node_first_attempt_time))
        if len(seen) < 3:
            raise ConnectionError

    await chain(look, node={"retry_policy": policy()}).ainvoke({"log": []})
    numbers, times = zip(*seen, strict=True)
    assert numbers == (1, 2, 3)
    assert len(set(times)) == 1


async def test_retries_of_one_task_leave_its_siblings_alone() -> None:
    entered = 0

    async def steady(state: Log) -> Update:
        nonlocal entered
        entered += 1
        return {"log": ["steady"]}

    node = Flaky(ConnectionError(), ConnectionError())
    await side_by_side(("flaky", node), steady, node={"retry_policy": policy()}).ainvoke({"log": []})
    assert (node.attempts, entered) == (3, 1)


async def test_a_resumed_node_has_all_its_attempts_again(saver: Any) -> None:
    node = Flaky(*(ConnectionError() for _ in range(3)))
    graph = chain(("flaky", node), saver=saver, node={"retry_policy": policy(max_attempts=2)})
    with pytest.raises(ConnectionError):
        await graph.ainvoke({"log": []}, thread())
    assert await graph.ainvoke(None, thread()) == {"log": [4]}


async def test_cancelling_while_a_retry_is_waited_for_ends_the_run(saver: Any) -> None:
    failed = asyncio.Event()

    async def fail(state: Log) -> None:
        failed.set()
        raise ConnectionError

    slow = policy(initial_interval=3600.0, max_interval=3600.0)
    run = asyncio.create_task(chain(fail, saver=saver, node={"retry_policy": slow}).ainvoke({"log": []}, thread()))
    await failed.wait()
    await asyncio.sleep(0)
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert (await saver.aget_thread("t")).status == "cancelled"


async def test_a_fault_of_a_nodes_command_is_retried_like_any(saver: Any) -> None:
    node_calls = 0

    async def go(state: Log) -> Command[Any]:
        nonlocal node_calls
        node_calls += 1
        if node_calls == 1:
            raise OSError("full")
        return Command(update={"log": ["go"]}, goto="b")

    builder = StateGraph(Log).add_node(go, retry_policy=AT_ONCE).add_node(*says("b")).add_edge(START, "go")
    assert await builder.compile(saver).ainvoke({"log": []}, thread()) == {"log": ["go", "b"]}


async def test_defaults_are_the_policies_of_nodes_without_their_own() -> None:
    patient, own = Flaky(*(ConnectionError() for _ in range(4))), Flaky(*(ConnectionError() for _ in range(4)))
    builder = StateGraph(Log).add_node("patient", patient).add_node("own", own, retry_policy=policy(max_attempts=2))
    builder.set_node_defaults(retry_policy=[policy(retry_on=KeyError), policy(max_attempts=5)])
    graph = builder.add_edge(START, "patient").add_edge(START, "own").compile(on_error="drain")
    with pytest.raises(ConnectionError) as caught:
        await graph.ainvoke({"log": []})
    assert notes_of(caught.value) == ["in node 'own' (attempt 2, step 1)"]
    assert (patient.attempts, own.attempts) == (5, 2)

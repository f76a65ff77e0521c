"""The runner: every task ends in one outcome, and nothing is left running."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from everstep.config import RunConfig
from everstep.constants import PULL
from everstep.policies import RetryPolicy
from everstep.tasks.callable import action_of
from everstep.tasks.current import RunScope
from everstep.tasks.node import Node
from everstep.tasks.outcome import Failed, Outcome, Returned
from everstep.tasks.runner import run_task, run_tasks
from everstep.tasks.task import Task, TaskIds
from tests.unit.blueprints import blueprint, live, node


class Result:
    """A writer that writes what the node returned."""

    waits = False

    def __call__(self, output: Any, scope: Any) -> list[tuple[str, Any]]:
        return [("result", output)]


def scope(**config: Any) -> RunScope:
    return RunScope(RunConfig(**config), live(blueprint(node("a"))), "graph")


def task(name: str, function: Callable[..., Any], value: Any = None, **options: Any) -> Task:
    made = Node(name, (), "x", action_of(function), (Result(),), **options)
    return Task(TaskIds("c", ""), made, (PULL, name), (), value)


class Outcomes(dict[str, Outcome]):
    """What became of each task."""

    def __call__(self, task: Task, outcome: Outcome) -> None:
        assert task.name not in self
        self[task.name] = outcome


async def double(value: int) -> int:
    await asyncio.sleep(0)
    return value * 2


async def fail(value: Any) -> None:
    raise ValueError("broken")


@pytest.mark.parametrize("number", [1, 2, 50])
async def test_every_task_has_an_outcome(number: int) -> None:
    outcomes = Outcomes()
    await run_tasks(scope(), [task(str(n), double, n) for n in range(number)], outcomes)
    assert outcomes == {str(n): Returned([("result", n * 2)]) for n in range(number)}


async def test_one_task_runs_in_the_task_of_its_caller_and_several_in_their_own() -> None:
    found: dict[str, Any] = {}

    def look(name: str) -> Callable[..., Any]:
        async def run(value: Any) -> None:
            found[name] = asyncio.current_task()

        return run

    await run_tasks(scope(), [task("alone", look("alone"))], Outcomes())
    await run_tasks(scope(), [task("a", look("a")), task("b", look("b"))], Outcomes())
    own = asyncio.current_task()
    assert found["alone"] is own
    assert len({own, found["a"], found["b"]}) == 3


async def test_a_failure_cancels_the_others_and_waits_until_they_have_ended() -> None:
    entered, ended = asyncio.Event(), []

    async def wait(value: Any) -> None:
        entered.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ended.append("wait")

    async def fail_later(value: Any) -> None:
        await entered.wait()
        raise ValueError("broken")

    outcomes = Outcomes()
    await run_tasks(scope(), [task("wait", wait), task("fail", fail_later)], outcomes)
    assert ended == ["wait"]
    assert set(outcomes) == {"fail"}
    assert isinstance(outcomes["fail"], Failed)
    assert len(asyncio.all_tasks()) == 1


async def test_cancelling_the_caller_ends_all_tasks_even_if_it_is_cancelled_again() -> None:
    entered, ended = asyncio.Barrier(3), []

    async def slow_to_end(value: Any) -> None:
        await entered.wait()
        try:
            await asyncio.Event().wait()
        finally:
            for _ in range(10):
                await asyncio.sleep(0)
            ended.append(value)

    running = asyncio.create_task(run_tasks(scope(), [task(n, slow_to_end, n) for n in "ab"], Outcomes()))
    await entered.wait()
    running.cancel()
    await asyncio.sleep(0)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert sorted(ended) == ["a", "b"]
    assert len(asyncio.all_tasks()) == 1


async def test_an_error_of_the_listener_is_not_swallowed() -> None:
    def broken(task: Task, outcome: Outcome) -> None:
        raise RuntimeError("the engine's own")

    for tasks in ([task("a", double, 1)], [task("a", double, 1), task("b", double, 1)]):
        with pytest.raises(RuntimeError, match="the engine's own"):
            await run_tasks(scope(), tasks, broken)


async def test_the_final_failure_is_noted_with_node_attempt_step_and_thread() -> None:
    at_once = RetryPolicy(initial_interval=0, jitter=False, max_attempts=2, retry_on=ValueError)
    run = scope(thread_id="t")
    run.step = 4
    outcome = await run_task(run, task("a", fail, retry=(at_once,)))
    assert isinstance(outcome, Failed)
    assert outcome.error.__notes__ == ["in node 'a' (attempt 2, step 4, thread 't')"]


async def test_slots_bound_the_bodies_that_run_at_once() -> None:
    running, most = 0, 0

    async def work(value: Any) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        for _ in range(3):
            await asyncio.sleep(0)
        running -= 1

    await run_tasks(scope(max_concurrency=2), [task(str(n), work) for n in range(7)], Outcomes())
    assert most == 2


async def test_a_slot_is_free_while_a_retry_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    waiting, go_on = asyncio.Event(), asyncio.Event()
    real_sleep = asyncio.sleep

    async def sleep(seconds: float) -> None:
        if seconds == 60.0:
            waiting.set()
            await go_on.wait()
        else:
            await real_sleep(seconds)

    monkeypatch.setattr("everstep.tasks.runner.asyncio.sleep", sleep)
    attempts = 0

    async def flaky(value: Any) -> int:
        nonlocal attempts
        attempts += 1
        if attempts == 1:
            raise ConnectionError
        return attempts

    async def let_go(value: Any) -> None:
        await waiting.wait()
        go_on.set()

    policy = RetryPolicy(initial_interval=60.0, jitter=False)
    outcomes = Outcomes()
    tasks = [task("flaky", flaky, retry=(policy,)), task("let_go", let_go)]
    await asyncio.wait_for(run_tasks(scope(max_concurrency=1), tasks, outcomes), 5)
    assert outcomes["flaky"] == Returned([("result", 2)])


async def test_a_task_tells_which_attempt_it_is_in() -> None:
    seen: list[int] = []

    async def look(value: Any) -> None:
        seen.append(looking.attempt)
        if len(seen) < 3:
            raise ConnectionError

    looking = task("look", look, retry=(RetryPolicy(initial_interval=0, jitter=False),))
    await run_task(scope(), looking)
    assert (seen, looking.attempt) == ([1, 2, 3], 3)


@pytest.mark.parametrize("siblings", [0, 1])
async def test_a_task_may_be_taken_over_by_another(siblings: int) -> None:
    outcomes = Outcomes()

    def take_over(failed: Task, outcome: Outcome) -> Any:
        outcomes(failed, outcome)
        return asyncio.sleep(0, task("handler", double, 4)) if failed.name == "fail" else None

    others = [task(str(n), double, n) for n in range(siblings)]
    await run_tasks(scope(), [task("fail", fail), *others], take_over)
    assert type(outcomes.pop("fail")) is Failed
    assert outcomes.pop("handler") == Returned([("result", 8)])
    assert [type(outcome) for outcome in outcomes.values()] == [Returned] * siblings


async def test_siblings_of_a_failing_task_finish_where_they_may() -> None:
    outcomes, drains = Outcomes(), scope()
    drains.drains = True
    await run_tasks(drains, [task("a", fail), task("b", fail), task("c", double, 1)], outcomes)
    assert {name: type(outcome) for name, outcome in outcomes.items()} == {"a": Failed, "b": Failed, "c": Returned}

"""Tasks that fail, are cancelled, time out or run in threads; stores that fail while tasks run; cached results."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import threading
from collections import Counter
from concurrent.futures import CancelledError as ThreadCancelledError
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from everstep.config import get_stream_writer
from everstep.constants import START
from everstep.context import interrupt
from everstep.errors import CodecError, EverstepError, NodeTimeoutError
from everstep.func import entrypoint, task
from everstep.graph.builder import StateGraph
from everstep.types import CachePolicy, Command
from everstep_savers.cache import InMemoryCache
from everstep_savers.memory import InMemorySaver
from tests.engine.graphs import AT_ONCE, Log, Update, chain, notes_of, side_by_side, thread
from tests.engine.watched import Gate, StoreBroke, WatchedSaver, failing, failing_from

DURABILITIES = ["sync", "async", "exit"]


class Waiting:
    """A task that waits until it is let go."""

    def __init__(self) -> None:
        self.entered, self.go, self.left = asyncio.Event(), asyncio.Event(), asyncio.Event()

        @task
        async def wait(result: Any = "waited") -> Any:
            self.entered.set()
            try:
                await self.go.wait()
            finally:
                self.left.set()
            return result

        self.wait = wait


@task
async def fail(text: str = "broken") -> None:
    raise KeyError(text)


@task
async def give(value: Any) -> Any:
    return value


# Failures -------------------------------------------------------------------------------------------------------


async def test_a_failure_reaches_whoever_awaits_the_call_with_notes_of_both_places(saver: Any) -> None:
    @entrypoint(saver)
    async def flow(value: Any) -> Any:
        return await fail()

    with pytest.raises(KeyError, match="broken") as failed:
        await flow.ainvoke(1, thread())
    assert notes_of(failed.value) == [
        "in task 'fail' (attempt 1, step 0, thread 't')",
        "in node 'flow' (attempt 1, step 0, thread 't')",
    ]


async def test_a_failure_can_be_caught_and_the_caller_goes_on(saver: Any) -> None:
    @entrypoint(saver)
    async def flow(value: Any) -> Any:
        try:
            await fail()
        except KeyError as error:
            return await give(str(error))

    assert await flow.ainvoke(1, thread()) == "'broken'"


async def test_a_failure_that_nobody_asks_for_fails_the_caller(caplog: Any) -> None:
    @entrypoint()
    async def flow(value: Any) -> str:
        fail("unseen")
        return "went on"

    with pytest.raises(KeyError, match="unseen"):
        await flow.ainvoke(1)
    assert caplog.records == []


async def test_gathered_failures_are_seen(saver: Any) -> None:
    @entrypoint(saver)
    async def flow(value: Any) -> Any:
        found = await asyncio.gather(fail("a"), give(1), fail("b"), return_exceptions=True)
        return [str(each) for each in found]

    assert await flow.ainvoke(1, thread()) == ["'a'", "1", "'b'"]


async def test_other_calls_of_a_failed_caller_are_cancelled_and_the_finished_ones_kept(saver: Any) -> None:
    waiting, runs = Waiting(), Counter[str]()

    @task
    async def count(name: str) -> str:
        runs[name] += 1
        return name

    @entrypoint(saver)
    async def flow(value: Any) -> Any:
        waited = waiting.wait()
        found = await count("a")
        if not waiting.go.is_set():
            await waiting.entered.wait()
            raise ConnectionError("down")
        return found, await waited

    with pytest.raises(ConnectionError, match="down"):
        await flow.ainvoke(1, thread())
    assert waiting.left.is_set()
    waiting.go.set()
    assert await flow.ainvoke(None, thread()) == ("a", "waited")
    assert runs == {"a": 1}


async def test_calls_that_nobody_awaits_are_waited_for_when_their_caller_ends() -> None:
    waiting = Waiting()

    @task
    async def let_go() -> None:
        waiting.go.set()

    @entrypoint()
    async def flow(value: Any) -> str:
        waiting.wait()
        let_go()
        return "early"

    assert [event async for event in flow.astream(1)] == [{"let_go": None}, {"wait": "waited"}, {"flow": "early"}]


async def test_a_task_that_asks_may_be_called_by_a_node_with_an_error_beside_it(saver: Any) -> None:
    @task
    async def ask() -> Any:
        return interrupt("?")

    asked = asyncio.Event()

    async def asks(state: Log) -> Update:
        try:
            return {"log": [await ask()]}
        finally:
            asked.set()

    async def fails(state: Log) -> Update:
        await asked.wait()
        raise ConnectionError("down")

    graph = side_by_side(asks, fails, saver=saver)
    with pytest.raises(ConnectionError):
        await graph.ainvoke({"log": []}, thread())
    assert [question.value for question in (await graph.aget_state(thread())).interrupts] == ["?"]


async def test_a_result_that_cannot_be_stored_is_an_error_of_its_call(saver: Any) -> None:
    runs = 0

    @task
    async def connect() -> object:
        nonlocal runs
        runs += 1
        return object()

    @entrypoint(saver)
    async def flow(value: Any) -> Any:
        good = give("good")
        try:
            await connect()
        except CodecError as error:
            return await good, str(error)

    good, text = await flow.ainvoke(1, thread())
    assert good == "good"
    assert text.startswith("object cannot be stored")
    assert "result, node 'connect', thread 't'" in text
    assert runs == 1


# Retries and timeouts -------------------------------------------------------------------------------------------


async def test_a_task_is_retried_by_its_own_policy_with_its_arguments_as_they_were(caplog: Any) -> None:
    attempts: list[list[int]] = []

    @task(retry_policy=AT_ONCE)
    async def pop(numbers: list[int]) -> int:
        attempts.append(list(numbers))
        number = numbers.pop()
        if len(attempts) < 3:
            raise ConnectionError("again")
        return number

    @entrypoint()
    async def flow(numbers: list[int]) -> Any:
        return await pop(numbers), numbers

    with caplog.at_level(logging.INFO, "everstep"):
        assert await flow.ainvoke([1, 2]) == (2, [1, 2])
    assert attempts == [[1, 2]] * 3
    assert [record.getMessage().partition(";")[0] for record in caplog.records] == [
        "task 'pop' failed with ConnectionError: again"
    ] * 2


async def test_a_task_times_out_by_its_own_policy() -> None:
    waiting = Waiting()
    slow = task(name="slow", timeout=0.01)(waiting.wait.func)

    @entrypoint()
    async def flow(value: Any) -> Any:
        return await slow()

    with pytest.raises(NodeTimeoutError, match="'slow'"):
        await flow.ainvoke(1)
    assert waiting.left.is_set()


async def test_a_caller_that_times_out_takes_its_calls_along(saver: Any) -> None:
    waiting = Waiting()

    @entrypoint(saver, timeout=0.01)
    async def flow(value: Any) -> Any:
        return await asyncio.gather(waiting.wait(), waiting.wait())

    with pytest.raises(NodeTimeoutError, match="'flow'"):
        await flow.ainvoke(1, thread())
    assert waiting.left.is_set()


async def test_giving_up_waiting_calls_the_call_off_and_it_is_run_again_on_resume(saver: Any) -> None:
    waiting = Waiting()

    @entrypoint(saver)
    async def flow(value: Any) -> Any:
        try:
            found = await asyncio.wait_for(waiting.wait(), 0.01)
        except TimeoutError:
            found = await give("too late")
        return found, interrupt("?")

    await flow.ainvoke(1, thread())
    assert waiting.left.is_set()
    waiting.go.set()
    assert await flow.ainvoke(Command(resume=1), thread()) == ("waited", 1)


async def test_a_cancelled_call_is_told_so(saver: Any) -> None:
    waiting = Waiting()

    @entrypoint(saver)
    async def flow(value: Any) -> Any:
        call = waiting.wait()
        await waiting.entered.wait()
        assert call.cancel()
        try:
            await call
        except asyncio.CancelledError:
            return call.cancelled(), waiting.left.is_set()

    assert await flow.ainvoke(1, thread()) == (True, True)


# Cancellation ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("durability", DURABILITIES)
async def test_a_cancelled_run_ends_its_tasks_and_keeps_the_finished_ones(durability: str, saver: Any) -> None:
    waiting, runs = Waiting(), Counter[str]()

    @task
    async def count(name: str) -> str:
        runs[name] += 1
        return name

    @entrypoint(saver)
    async def flow(value: Any) -> Any:
        return [await count("a"), await waiting.wait(), await count("b")]

    before = asyncio.all_tasks()
    run = asyncio.create_task(flow.ainvoke(1, thread(), durability=durability))
    await waiting.entered.wait()
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert waiting.left.is_set()
    assert asyncio.all_tasks() == before
    assert (await saver.aget_thread("t")).status == "cancelled"
    waiting.go.set()
    assert await flow.ainvoke(None, thread(), durability=durability) == ["a", "waited", "b"]
    assert runs == {"a": 1, "b": 1}


async def test_a_cancellation_while_calls_are_waited_for_ends_them_too(saver: Any) -> None:
    waiting = Waiting()

    @entrypoint(saver)
    async def flow(value: Any) -> str:
        waiting.wait()
        return "done"

    run = asyncio.create_task(flow.ainvoke(1, thread()))
    await waiting.entered.wait()
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert waiting.left.is_set()


async def test_a_failed_sibling_cancels_the_tasks_of_a_node() -> None:
    waiting = Waiting()

    async def waits(state: Log) -> Update:
        return {"log": [await waiting.wait()]}

    async def fails(state: Log) -> Update:
        await waiting.entered.wait()
        raise ConnectionError("down")

    with pytest.raises(ConnectionError):
        await side_by_side(waits, fails).ainvoke({"log": []})
    assert waiting.left.is_set()


# Context, threads and concurrency -------------------------------------------------------------------------------


variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable")


@task
async def read_and_set() -> str:
    found = variable.get()
    variable.set("by the task")
    return found


@task
def read_in_thread() -> tuple[str, int]:
    return variable.get(), threading.get_ident()


async def test_a_task_sees_the_context_of_its_caller_and_does_not_change_it() -> None:
    @entrypoint()
    async def flow(value: Any) -> Any:
        variable.set("by the flow")
        first = read_and_set()
        variable.set("later")
        found, ident = await read_in_thread()
        return await first, found, variable.get(), ident != threading.get_ident()

    variable.set("outside")
    assert await flow.ainvoke(1) == ("by the flow", "later", "later", True)
    assert variable.get() == "outside"


async def test_a_sync_caller_runs_async_and_sync_tasks_at_the_same_time() -> None:
    both = threading.Barrier(2, timeout=10)

    @task
    def meet(name: str) -> str:
        both.wait()
        return f"{name} {variable.get()}"

    @task
    async def double(number: int) -> int:
        return number * 2

    @entrypoint()
    def flow(number: int) -> Any:
        variable.set("seen")
        meeting = [meet("a"), meet("b")]
        return double(number).result(), *(each.result() for each in meeting)

    assert await flow.ainvoke(2) == (4, "a seen", "b seen")


async def test_sync_callers_never_keep_their_tasks_from_a_thread() -> None:
    @task
    def leaf(number: int) -> int:
        return number

    @task
    def branch(number: int) -> int:
        return leaf(number).result()

    @entrypoint()
    def flow(value: Any) -> int:
        calls = [branch(number) for number in range(100)]
        return sum(call.result() for call in calls)

    assert await asyncio.gather(*(flow.ainvoke(1) for _ in range(3))) == [4950] * 3


async def test_a_node_may_call_tasks_from_an_event_loop_of_its_own() -> None:
    @entrypoint()
    def flow(value: Any) -> Any:
        async def inner() -> Any:
            return await asyncio.gather(give(1), give(2))

        return asyncio.run(inner())

    assert await flow.ainvoke(1) == [1, 2]


async def test_a_failure_of_a_task_is_raised_in_the_thread_of_its_caller() -> None:
    @entrypoint()
    def flow(value: Any) -> Any:
        call = fail("in a thread")
        with pytest.raises(KeyError, match="in a thread"):
            call.result()
        return type(call.exception())

    assert await flow.ainvoke(1) is KeyError


async def test_a_cancelled_run_frees_the_thread_that_waits_for_a_task() -> None:
    waiting, ended = Waiting(), threading.Event()

    @entrypoint()
    def flow(value: Any) -> Any:
        try:
            waiting.wait().result()
        except ThreadCancelledError:
            ended.set()
            raise

    run = asyncio.create_task(flow.ainvoke(1))
    await waiting.entered.wait()
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert await asyncio.to_thread(ended.wait, 10)


async def test_a_late_thread_cannot_start_a_task_any_more() -> None:
    loop = asyncio.get_running_loop()
    entered, late, told = asyncio.Event(), threading.Event(), threading.Event()
    errors: list[BaseException] = []

    @entrypoint()
    def flow(value: Any) -> None:
        loop.call_soon_threadsafe(entered.set)
        late.wait(10)
        try:
            give(1)
        except EverstepError as error:
            errors.append(error)
        told.set()

    run = asyncio.create_task(flow.ainvoke(1))
    await entered.wait()
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    late.set()
    assert await asyncio.to_thread(told.wait, 10)
    assert [str(error) for error in errors] == ["task 'give' was called by node 'flow' after its attempt had ended"]


async def test_a_thread_pool_of_the_nodes_own_may_call_tasks_in_its_context(saver: Any) -> None:
    runs = Counter[int]()

    @task
    def count(number: int) -> int:
        runs[number] += 1
        return number

    @entrypoint(saver)
    def flow(value: Any) -> Any:
        with ThreadPoolExecutor(4) as pool:
            calls = [
                pool.submit(contextvars.copy_context().run, lambda each=number: count(each).result())
                for number in range(8)
            ]
            found = [call.result() for call in calls]
        return found, interrupt("?")

    await flow.ainvoke(1, thread())
    assert await flow.ainvoke(Command(resume=1), thread()) == (list(range(8)), 1)
    assert set(runs.values()) == {1}


@pytest.mark.parametrize("limit", [1, 2, 3])
async def test_max_concurrency_bounds_tasks_and_a_caller_that_waits_holds_no_place(limit: int, saver: Any) -> None:
    running, most = 0, 0

    @task
    async def work(number: int) -> int:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1
        return number

    @task
    async def outer(number: int) -> int:
        return sum(await asyncio.gather(work(number), work(number)))

    @entrypoint(saver)
    async def flow(value: Any) -> Any:
        return await asyncio.gather(*map(outer, range(4)))

    assert await flow.ainvoke(1, {**thread(), "max_concurrency": limit}) == [0, 2, 4, 6]
    assert most == limit


@pytest.mark.parametrize("limit", [1, 2])
async def test_max_concurrency_holds_for_sync_callers_and_parallel_subgraphs(limit: int) -> None:
    async def node(state: Log) -> Update:
        return {"log": ["node"]}

    inner = chain(node, ("again", node))

    @task
    def delegate(name: str) -> list[Any]:
        result: list[Any] = inner.invoke({"log": [name]})["log"]
        return result

    async def direct(state: Log) -> Update:
        found = await asyncio.gather(inner.ainvoke({"log": []}), inner.ainvoke({"log": []}))
        return {"log": [len(each["log"]) for each in found]}

    @entrypoint()
    def flow(value: Any) -> Any:
        calls = [delegate(name) for name in "ab"]
        return [call.result() for call in calls]

    config = {"max_concurrency": limit}
    assert await flow.ainvoke(1, config) == [["a", "node", "node"], ["b", "node", "node"]]
    assert await chain(direct).ainvoke({"log": []}, config) == {"log": [2, 2]}


async def test_many_tasks_at_once(saver: Any) -> None:
    @entrypoint(saver)
    async def flow(count: int) -> Any:
        return sum(await asyncio.gather(*map(give, range(count)))), interrupt("?")

    await flow.ainvoke(500, thread())
    assert await flow.ainvoke(Command(resume=1), thread()) == (124750, 1)


# Stores ---------------------------------------------------------------------------------------------------------


def steps(saver: Any, ledger: Counter[str]) -> Any:
    """An entrypoint of three tasks one after the other."""

    @task
    async def act(name: str) -> str:
        ledger[name] += 1
        return name

    @entrypoint(saver)
    async def flow(value: Any) -> list[str]:
        return [await act(name) for name in "abc"]

    return flow


async def test_in_sync_durability_a_result_is_stored_before_its_caller_is_told(saver: Any) -> None:
    gate = Gate(2)
    watched = WatchedSaver(saver, before=gate)
    ledger = Counter[str]()
    run = asyncio.create_task(steps(watched, ledger).ainvoke(1, thread(), durability="sync"))
    await gate.reached.wait()
    for _ in range(50):
        await asyncio.sleep(0)
    assert ledger == {"a": 1}
    gate.opened.set()
    assert await run == ["a", "b", "c"]


async def test_in_async_durability_no_more_than_two_results_are_under_way(saver: Any) -> None:
    gate = Gate(2)
    watched = WatchedSaver(saver, before=gate)
    ledger = Counter[str]()
    run = asyncio.create_task(steps(watched, ledger).ainvoke(1, thread(), durability="async"))
    await gate.reached.wait()
    for _ in range(50):
        await asyncio.sleep(0)
    assert ledger == {"a": 1, "b": 1, "c": 1}
    assert not run.done()
    gate.opened.set()
    assert await run == ["a", "b", "c"]


async def test_results_that_come_while_the_store_is_busy_are_stored_together(saver: Any) -> None:
    gate = Gate(2)
    watched = WatchedSaver(saver, before=gate)

    @entrypoint(watched)
    async def flow(value: Any) -> int:
        found = asyncio.gather(*map(give, range(50)))
        await give("later")
        return sum(await found)

    run = asyncio.create_task(flow.ainvoke(1, thread()))
    await gate.reached.wait()
    gate.opened.set()
    assert await run == 1225
    assert watched.commits < 8


@pytest.mark.parametrize("durability", ["sync", "async"])
@pytest.mark.parametrize("number", range(2, 6))
async def test_a_run_whose_store_fails_at_any_commit_ends_and_runs_no_stored_task_again(
    number: int, durability: str, saver: Any
) -> None:
    ledger = Counter[str]()
    broken = WatchedSaver(saver, before=failing_from(number))
    with pytest.raises(StoreBroke):
        await steps(broken, ledger).ainvoke(1, thread(), durability=durability)
    stored = {
        value for _, channel, value in (await saver.aget_tuple(thread())).pending_writes if channel == "__return__"
    }
    assert stored == set("abc"[: number - 2])
    assert await steps(saver, ledger).ainvoke(None, thread()) == ["a", "b", "c"]
    assert all(ledger[name] == 1 for name in stored)


async def test_a_store_that_fails_once_fails_the_call_in_sync_durability(saver: Any) -> None:
    ledger = Counter[str]()
    broken = WatchedSaver(saver, before=failing(3))
    with pytest.raises(StoreBroke, match="commit 3 failed"):
        await steps(broken, ledger).ainvoke(1, thread(), durability="sync")
    assert await steps(saver, ledger).ainvoke(None, thread()) == ["a", "b", "c"]
    assert ledger == {"a": 1, "b": 2, "c": 1}


@pytest.mark.parametrize("durability", DURABILITIES)
async def test_what_a_caller_does_to_a_result_does_not_change_what_is_stored(durability: str, saver: Any) -> None:
    @task
    async def items() -> list[Any]:
        return [1, [2]]

    @entrypoint(saver)
    async def flow(value: Any) -> Any:
        found = await items()
        found.append(3)
        found[1].append("deep")
        return found, interrupt("?")

    await flow.ainvoke(1, thread(), durability=durability)
    result = await flow.ainvoke(Command(resume=1), thread(), durability=durability)
    assert result == ([1, [2, "deep"], 3], 1)


async def test_what_a_caller_does_to_an_argument_does_not_change_the_call(saver: Any) -> None:
    @entrypoint(saver)
    async def flow(value: Any) -> Any:
        items = [1]
        call = give(items)
        items.append(2)
        return await call, items

    assert await flow.ainvoke(1, thread()) == ([1], [1, 2])


async def test_in_exit_durability_nothing_is_stored_until_the_run_leaves() -> None:
    saver = InMemorySaver()
    watched = WatchedSaver(saver)
    ledger = Counter[str]()
    assert await steps(watched, ledger).ainvoke(1, thread(), durability="exit") == ["a", "b", "c"]
    assert watched.commits == 2


async def test_a_graph_that_moves_on_leaves_the_journal_of_its_nodes_behind(saver: Any) -> None:
    runs = Counter[str]()

    @task
    async def act(name: str) -> str:
        runs[name] += 1
        return name

    async def node(state: Log) -> Command[Any]:
        number = len(state["log"])
        found = await act(f"act {number}")
        return Command(update={"log": [found]}, goto="node" if number < 2 else ())

    async def asks(state: Log) -> Update:
        return {"log": [await act("last"), interrupt("?")]}

    builder = StateGraph(Log).add_node("node", node, destinations=("node", "asks")).add_edge(START, "node")
    builder.add_node("asks", asks).add_conditional_edges("node", lambda state: "asks" if len(state["log"]) > 2 else [])
    graph = builder.compile(saver)
    await graph.ainvoke({"log": []}, thread())
    assert await graph.ainvoke(Command(resume="yes"), thread()) == {"log": ["act 0", "act 1", "act 2", "last", "yes"]}
    assert set(runs.values()) == {1}


async def test_a_custom_event_of_a_task_in_a_thread_is_streamed() -> None:
    @task
    def tell(text: str) -> None:
        get_stream_writer()(text)

    @entrypoint()
    def flow(value: Any) -> None:
        tell("one").result()
        tell("two").result()

    assert [event async for event in flow.astream(1, stream_mode="custom")] == ["one", "two"]


# Caches ---------------------------------------------------------------------------------------------------------


async def test_a_task_with_a_cache_policy_takes_what_was_kept_for_equal_arguments(saver: Any) -> None:
    runs = Counter[Any]()

    @task(cache_policy=CachePolicy())
    async def work(number: int, *, names: set[str]) -> int:
        runs[number] += 1
        return number

    @task(cache_policy=CachePolicy(key_func=lambda number: number % 2))
    async def parity(number: int) -> int:
        runs["parity"] += 1
        return number % 2

    @entrypoint(saver, cache=InMemoryCache())
    async def flow(value: int) -> Any:
        return await work(value, names={"a", "b"}), await parity(value)

    assert [await flow.ainvoke(value, thread(f"{value}")) for value in (1, 3, 1)] == [(1, 1), (3, 1), (1, 1)]
    assert runs == {1: 1, 3: 1, "parity": 1}


async def test_tasks_of_one_name_and_other_functions_share_no_cache() -> None:
    def task_of(result: str) -> Any:
        async def work(value: int) -> str:
            return result

        work.__qualname__ = result
        return task(name="work", cache_policy=CachePolicy())(work)

    one, other = task_of("one"), task_of("other")

    @entrypoint(cache=InMemoryCache())
    async def flow(value: int) -> Any:
        return await one(value), await other(value)

    assert await flow.ainvoke(1) == ("one", "other")


async def test_an_entrypoint_with_a_cache_policy_runs_once_for_equal_inputs() -> None:
    runs = Counter[int]()

    @entrypoint(cache=InMemoryCache(), cache_policy=CachePolicy())
    async def flow(value: int) -> int:
        runs[value] += 1
        return value

    assert [await flow.ainvoke(value) for value in (1, 2, 1)] == [1, 2, 1]
    assert runs == {1: 1, 2: 1}


async def test_a_result_that_rests_on_an_answer_is_not_kept(saver: Any) -> None:
    @task(cache_policy=CachePolicy())
    async def ask() -> Any:
        return interrupt("?")

    @entrypoint(saver, cache=InMemoryCache())
    async def flow(value: int) -> Any:
        return await ask()

    for name in ("ada", "bob"):
        await flow.ainvoke(1, thread(name))
        assert await flow.ainvoke(Command(resume=name), thread(name)) == name

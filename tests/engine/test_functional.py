"""Entrypoints: a function as a graph, what it saves for its next run, and what is refused when it is declared."""

from __future__ import annotations

import asyncio
import operator
import threading
from dataclasses import dataclass
from typing import Annotated, Any, TypedDict

import pytest

from everstep.config import get_config, get_stream_writer
from everstep.constants import START
from everstep.context import Runtime, interrupt
from everstep.errors import EmptyInputError, EverstepError, GraphBuildError
from everstep.func import entrypoint, task
from everstep.graph.builder import StateGraph
from everstep.policies import RetryPolicy
from everstep.types import Command
from everstep_savers.memory import InMemorySaver
from everstep_savers.sql.saver import SQLSaver
from everstep_savers.store import InMemoryStore
from tests.engine.graphs import AT_ONCE, Log, Update, chain, history, thread


async def streamed(graph: Any, value: Any, *modes: str) -> list[Any]:
    """What a run yields in these modes."""
    return [event async for event in graph.astream(value, thread(), stream_mode=list(modes))]


# An entrypoint --------------------------------------------------------------------------------------------------


async def test_the_result_of_the_function_is_the_result_of_the_graph() -> None:
    @entrypoint()
    async def add(numbers: list[int]) -> int:
        return sum(numbers)

    assert await add.ainvoke([1, 2, 3]) == 6
    assert add.name == "add"
    assert list(add.nodes) == ["add"]


async def test_a_sync_function_runs_in_a_worker_thread() -> None:
    @entrypoint()
    def where(value: Any) -> int:
        return threading.get_ident()

    assert await where.ainvoke(1) != threading.get_ident()


def test_an_entrypoint_runs_from_a_plain_script() -> None:
    @task
    def double(number: int) -> int:
        return number * 2

    @entrypoint(InMemorySaver())
    def flow(number: int) -> int:
        return double(number).result() + double(number + 1).result()

    assert flow.invoke(1, thread()) == 6
    assert list(flow.stream(2, thread())) == [{"double": 4}, {"double": 6}, {"flow": 10}]


async def test_the_last_saved_value_comes_back_as_previous(saver: Any) -> None:
    @entrypoint(saver)
    async def count(value: int, *, previous: int | None = None) -> int:
        return (previous or 0) + value

    assert [await count.ainvoke(value, thread()) for value in (1, 2, 3)] == [1, 3, 6]
    assert await count.ainvoke(1, thread("other")) == 1


async def test_final_splits_the_result_from_what_is_saved(saver: Any) -> None:
    @entrypoint(saver)
    async def count(value: int, *, previous: int | None = None) -> entrypoint.final[str, int]:
        saved = (previous or 0) + value
        return entrypoint.final(value=f"had {previous}", save=saved)

    assert [await count.ainvoke(value, thread()) for value in (1, 2, 3)] == ["had None", "had 1", "had 3"]
    assert (await count.aget_state(thread())).values == "had 3"


async def test_without_a_saver_nothing_is_saved() -> None:
    @entrypoint()
    async def count(value: int, *, previous: int | None = None) -> int | None:
        return previous

    assert [await count.ainvoke(1), await count.ainvoke(2)] == [None, None]


async def test_previous_belongs_to_the_branch(saver: Any) -> None:
    @entrypoint(saver)
    async def collect(value: str, *, previous: list[str] | None = None) -> list[str]:
        return [*(previous or ()), value]

    for value in "ab":
        await collect.ainvoke(value, thread())
    first = (await history(collect, thread()))[-2]
    await collect.aupdate_state(thread(), ["x"])
    assert await collect.ainvoke("c", thread()) == ["x", "c"]
    await collect.aupdate_state(first.config, ["y"])
    assert await collect.ainvoke("d", thread()) == ["y", "d"]


async def test_changing_previous_in_place_changes_nothing_stored(saver: Any) -> None:
    @entrypoint(saver)
    async def collect(value: str, *, previous: list[str] | None = None) -> entrypoint.final[Any, list[str]]:
        kept = list(previous or [])
        if previous is not None:
            previous.append("in place")
        return entrypoint.final(value=None, save=[*kept, value])

    for value in "abc":
        await collect.ainvoke(value, thread())
    assert (await saver.aget_tuple(thread())).checkpoint["channel_values"]["__previous__"] == ["a", "b", "c"]


async def test_what_a_thread_looks_like_while_it_asks_and_when_it_is_done(saver: Any) -> None:
    @task
    async def double(number: int) -> int:
        return number * 2

    @entrypoint(saver)
    async def flow(number: int) -> int:
        return await double(number) + int(interrupt("how many more?"))

    asked = await flow.ainvoke(1, thread())
    (question,) = asked["__interrupt__"]
    state = await flow.aget_state(thread())
    assert (state.values, state.next, state.interrupts) == (None, ("flow",), (question,))
    assert [(each.name, each.path) for each in state.tasks] == [("flow", ("__pregel_pull", "flow"))]
    assert await flow.ainvoke(Command(resume=5), thread()) == 7
    done, asking = await history(flow, thread())
    assert (done.values, done.next, done.tasks) == (7, (), ())
    assert (asking.values, asking.next) == (None, ("flow",))
    assert [(each.name, each.result) for each in asking.tasks] == [("flow", 7)]


async def test_stored_channels_have_the_names_of_the_ecosystem(saver: Any) -> None:
    @task(name="named")
    async def double(number: int) -> int:
        return number * 2

    @entrypoint(saver)
    async def flow(number: int) -> entrypoint.final[int, str]:
        interrupt("?")
        return entrypoint.final(value=await double(number), save="kept")

    await flow.ainvoke(1, thread())
    await flow.ainvoke(Command(resume=None), thread())
    head = await saver.aget_tuple(thread())
    assert head.checkpoint["channel_values"] == {"__end__": 2, "__previous__": "kept"}
    first = [saved async for saved in saver.alist(thread())][-1]
    assert first.checkpoint["channel_values"] == {"__start__": 1}
    assert {(channel, value) for _, channel, value in first.pending_writes if channel in ("__return__", "__end__")} == {
        ("__return__", 2),
        ("__end__", 2),
    }


async def test_injected_parameters_are_filled_and_context_and_config_reach_the_function() -> None:
    @entrypoint(context_schema=dict)
    async def flow(value: Any, runtime: Runtime[Any], config: dict[str, Any], *, writer: Any) -> Any:
        writer("written")
        return runtime.context, config["configurable"]["user"], get_config()["tags"]

    config = {"configurable": {"user": "ada"}, "tags": ["one"]}
    events = [event async for event in flow.astream(1, config, context={"k": 1}, stream_mode=["custom", "values"])]
    assert events == [("custom", "written"), ("values", ({"k": 1}, "ada", ["one"]))]


async def test_the_first_parameter_takes_the_input_whatever_its_name() -> None:
    @entrypoint()
    async def flow(previous: int) -> int:
        return previous

    assert await flow.ainvoke(3) == 3


async def test_an_entrypoint_is_retried_as_a_whole_and_its_finished_tasks_are_not_run_again(saver: Any) -> None:
    runs: list[str] = []

    @task
    async def charge() -> str:
        runs.append("charge")
        return "charged"

    @entrypoint(saver, retry_policy=AT_ONCE)
    async def flow(value: Any, runtime: Runtime[Any]) -> Any:
        charged = await charge()
        runs.append("flow")
        if runtime.execution_info.node_attempt < 3:
            raise ConnectionError("again")
        return charged

    assert await flow.ainvoke(1, thread()) == "charged"
    assert runs == ["charge", "flow", "flow", "flow"]


async def test_without_a_saver_another_attempt_begins_from_nothing() -> None:
    runs = 0

    @task
    async def work() -> int:
        nonlocal runs
        runs += 1
        return runs

    @entrypoint(retry_policy=AT_ONCE)
    async def flow(value: Any) -> int:
        result = await work()
        if result == 1:
            raise ConnectionError("again")
        return result

    assert await flow.ainvoke(1) == 2


async def test_nothing_to_begin_with_is_refused() -> None:
    @entrypoint()
    async def flow(value: Any) -> Any:
        return value

    with pytest.raises(EmptyInputError):
        await flow.ainvoke(None)


# An entrypoint inside a graph -----------------------------------------------------------------------------------


async def test_an_entrypoint_is_a_node_of_a_graph(saver: Any) -> None:
    @entrypoint()
    async def inner(state: Log) -> Update:
        return {"log": [interrupt("?")]}

    builder = StateGraph(Log).add_node("inner", inner).add_edge(START, "inner")
    graph = builder.compile(saver)
    await graph.ainvoke({"log": []}, thread())
    state = await graph.aget_state(thread(), subgraphs=True)
    assert state.tasks[0].state.next == ("inner",)
    assert await graph.ainvoke(Command(resume="yes"), thread()) == {"log": ["yes"]}


async def test_an_entrypoint_with_a_history_of_its_own_keeps_previous_from_run_to_run(saver: Any) -> None:
    @entrypoint(True)
    async def account(value: int, *, previous: int | None = None) -> int:
        return (previous or 0) + value

    @entrypoint(saver)
    async def outer(value: int) -> int:
        result: int = await account.ainvoke(value)
        return result

    assert [await outer.ainvoke(value, thread()) for value in (1, 2, 3)] == [1, 3, 6]


# What tasks show in streams -------------------------------------------------------------------------------------


async def test_updates_show_tasks_as_they_finish_and_before_their_caller_goes_on(saver: Any) -> None:
    @task
    async def one() -> None:
        get_stream_writer()("in one")

    @task
    async def two(value: int) -> list[int]:
        return [value]

    @entrypoint(saver)
    async def flow(value: int) -> Any:
        await one()
        get_stream_writer()("between")
        return await two(value)

    assert await streamed(flow, 3, "updates", "custom", "values") == [
        ("custom", "in one"),
        ("updates", {"one": None}),
        ("custom", "between"),
        ("updates", {"two": [3]}),
        ("updates", {"flow": [3]}),
        ("values", [3]),
    ]


async def test_tasks_of_graph_nodes_show_beside_their_node(saver: Any) -> None:
    @task
    async def double(number: int) -> int:
        return number * 2

    async def node(state: Log) -> Update:
        return {"log": [await double(2)]}

    graph = chain(node, saver=saver)
    assert await streamed(graph, {"log": []}, "updates", "values") == [
        ("values", {"log": []}),
        ("updates", {"double": 4}),
        ("updates", {"node": {"log": [4]}}),
        ("values", {"log": [4]}),
    ]


async def test_what_a_caller_does_to_a_result_does_not_change_what_was_streamed() -> None:
    @task
    async def items() -> list[int]:
        return [1]

    @entrypoint()
    async def flow(value: Any) -> list[int]:
        found = await items()
        found.append(2)
        return found

    assert await streamed(flow, 1, "updates") == [("updates", {"items": [1]}), ("updates", {"flow": [1, 2]})]


async def test_events_of_a_task_wait_for_a_slow_reader() -> None:
    started = 0

    @task
    async def work(number: int) -> int:
        nonlocal started
        started += 1
        return number

    @entrypoint()
    async def flow(value: int) -> None:
        for number in range(value):
            await work(number)

    stream = flow.astream(1000)
    await anext(stream)
    for _ in range(100):
        await asyncio.sleep(0)
    assert started < 200
    await stream.aclose()


# Types ----------------------------------------------------------------------------------------------------------


@dataclass
class Receipt:
    amount: int
    lines: tuple[str, ...]


async def test_types_of_annotations_are_stored_and_come_back(saver: Any) -> None:
    @task
    async def bill(amount: int) -> Receipt:
        return Receipt(amount, ("a", "b"))

    @entrypoint(saver)
    async def flow(amount: int) -> Receipt:
        receipt = await bill(amount)
        interrupt("pay?")
        return receipt

    await flow.ainvoke(3, thread())
    assert await flow.ainvoke(Command(resume=True), thread()) == Receipt(3, ("a", "b"))
    assert (await flow.aget_state(thread())).values == Receipt(3, ("a", "b"))


def test_an_entrypoint_describes_its_input_and_its_result_to_clients() -> None:
    @entrypoint()
    async def flow(amounts: list[int]) -> entrypoint.final[str, int]:
        return entrypoint.final(value="", save=0)

    assert flow.get_input_jsonschema() == {"type": "array", "items": {"type": "integer"}, "title": "LangGraphInput"}
    assert flow.get_output_jsonschema() == {"type": "string", "title": "LangGraphOutput"}


# Declarations that are refused ----------------------------------------------------------------------------------


def test_a_function_without_input_is_refused() -> None:
    def flow() -> None: ...

    message = r"^entrypoint 'flow' takes no input; give it a parameter for it: def flow\(input\)$"
    with pytest.raises(GraphBuildError, match=message):
        entrypoint()(flow)


async def _stream(value: Any) -> Any:
    yield value


def _items(value: Any) -> Any:
    yield value


@pytest.mark.parametrize("function", [_stream, _items])
def test_generators_are_refused(function: Any) -> None:
    advice = "return one value, and send what comes before it to the stream writer: get_stream_writer()(value)"
    name = function.__name__
    with pytest.raises(GraphBuildError) as refused:
        entrypoint()(function)
    assert str(refused.value) == f"entrypoint {name!r} is a generator; {advice}"
    with pytest.raises(GraphBuildError) as refused:
        task(function)
    assert str(refused.value) == f"task {name!r} is a generator; {advice}"


def test_a_name_that_cannot_stand_in_a_namespace_is_refused() -> None:
    with pytest.raises(GraphBuildError, match=r"^node name 'a\|b' contains '\|'"):
        task(name="a|b")(lambda: None)


def test_what_cannot_be_called_is_refused() -> None:
    made: Any = task
    with pytest.raises(TypeError, match="expected a function"):
        made(3)


# Callables ------------------------------------------------------------------------------------------------------


class Shop:
    """Has a task for a method."""

    def __init__(self, price: int) -> None:
        self.price = price

    @task
    async def total(self, count: int, *, discount: int = 0) -> int:
        """Add up."""
        return self.price * count - discount


async def test_a_method_may_be_a_task() -> None:
    @entrypoint()
    async def flow(count: int) -> int:
        return await Shop(5).total(count, discount=1)

    assert await flow.ainvoke(3) == 14


def test_a_task_keeps_the_name_and_the_words_of_its_function() -> None:
    assert Shop.total.__name__ == "total"
    assert Shop.total.__doc__ == "Add up."
    assert task(name="other")(len).name == "other"


async def test_arguments_go_before_what_is_injected() -> None:
    @task
    async def show(store: Any, config: Any = None, *, previous: Any = None, writer: Any = None) -> Any:
        return store if store == "mine" else type(store).__name__, config is not None, previous, callable(writer)

    @entrypoint(store=InMemoryStore())
    async def flow(value: Any) -> Any:
        return [
            await show(),
            await show("mine"),
            await show(store="mine", previous=1),
            await show("mine", None, writer=None),
        ]

    assert await flow.ainvoke(1) == [
        ("InMemoryStore", True, None, True),
        ("mine", True, None, True),
        ("mine", True, 1, True),
        ("mine", False, None, False),
    ]


async def test_wrong_arguments_are_an_error_of_the_call() -> None:
    @task
    async def one(a: int) -> int:
        return a

    calling: Any = one

    @entrypoint()
    async def flow(value: Any) -> str:
        with pytest.raises(TypeError, match="missing 1 required positional argument: 'a'"):
            await calling()
        return "went on"

    assert await flow.ainvoke(1) == "went on"


async def test_a_task_outside_of_a_run_is_a_clear_error() -> None:
    @task
    async def work() -> None: ...

    message = (
        r"^task 'work' was called outside of a run; call it in an entrypoint, in a node of a graph, or in a function "
        r"that one of these calls$"
    )
    with pytest.raises(EverstepError, match=message):
        work()


# The examples ---------------------------------------------------------------------------------------------------


async def test_retry_with_two_connection_errors_then_success() -> None:
    attempts: list[int] = []

    @task(retry_policy=RetryPolicy(initial_interval=0, jitter=False, max_attempts=3))
    async def fetch(runtime: Any = None) -> str:
        attempts.append(runtime.execution_info.node_attempt)
        if len(attempts) < 3:
            raise ConnectionError("no answer")
        return "fetched"

    @entrypoint()
    async def flow(value: Any) -> Any:
        return await fetch()

    assert await flow.ainvoke(1) == "fetched"
    assert attempts == [1, 2, 3]


async def test_an_order_whose_submit_fails_once_goes_on_without_preparing_again(saver: Any) -> None:
    runs: list[str] = []
    is_down = True

    @task
    async def prepare(order: str) -> str:
        runs.append("prepare")
        return f"{order} prepared"

    @task
    async def submit(order: str) -> str:
        runs.append("submit")
        if is_down:
            raise ConnectionError("the shop is closed")
        return f"{order}, submitted"

    @task
    async def finalize(order: str) -> str:
        runs.append("finalize")
        return f"{order}, done"

    @entrypoint(saver)
    async def handle(order: str) -> str:
        return await finalize(await submit(await prepare(order)))

    with pytest.raises(ConnectionError, match="the shop is closed"):
        await handle.ainvoke("tea", thread())
    is_down = False
    assert await handle.ainvoke(None, thread()) == "tea prepared, submitted, done"
    assert runs == ["prepare", "submit", "submit", "finalize"]


async def test_of_two_parallel_fetches_of_which_one_fails_the_others_result_is_reused(saver: Any) -> None:
    runs: list[str] = []
    fetched = asyncio.Event()
    is_down = True

    @task
    async def fetch(name: str) -> str:
        runs.append(name)
        if name == "bad" and is_down:
            await fetched.wait()
            raise ConnectionError("no answer")
        return name

    async def stored(event: Any) -> None:
        async for part in event:
            if part == {"fetch": "good"}:
                fetched.set()

    @entrypoint(saver)
    async def both(value: Any) -> Any:
        return await asyncio.gather(fetch("good"), fetch("bad"))

    with pytest.raises(ConnectionError, match="no answer"):
        await stored(both.astream(1, thread()))
    is_down = False
    assert await both.ainvoke(None, thread()) == ["good", "bad"]
    assert runs == ["good", "bad", "bad"]


class Jokes(TypedDict):
    jokes: Annotated[list[str], operator.add]


async def test_a_workflow_of_tasks_and_a_graph(saver: Any) -> None:
    async def write(state: Jokes) -> Update:
        return {"jokes": ["why?"]}

    graph = StateGraph(Jokes).add_node(write).add_edge(START, "write").compile()

    @task
    async def rate(joke: str) -> int:
        return len(joke)

    @entrypoint(saver)
    async def flow(topic: str, *, previous: list[int] | None = None) -> entrypoint.final[int, list[int]]:
        jokes = (await graph.ainvoke({"jokes": [topic]}))["jokes"]
        ratings = await asyncio.gather(*(rate(joke) for joke in jokes))
        return entrypoint.final(value=sum(ratings), save=[*(previous or []), *ratings])

    assert await flow.ainvoke("cats", thread()) == 8
    assert await flow.ainvoke("a", thread()) == 5
    assert (await saver.aget_tuple(thread())).checkpoint["channel_values"]["__previous__"] == [4, 4, 1, 4]


def test_a_thread_outlives_its_process(sqlite_url: str) -> None:
    # The sync twins here, on the file alone: a saver of each process's own.
    runs: list[int] = []

    @task
    def charge(amount: int) -> int:
        runs.append(amount)
        return amount

    def flow(amount: int) -> int:
        charged = charge(amount).result()
        return charged + int(interrupt("tip?"))

    def run(value: Any) -> Any:
        return entrypoint(SQLSaver.from_url(sqlite_url))(flow).invoke(value, thread())

    run(3)
    assert run(Command(resume=1)) == 4
    assert runs == [3]

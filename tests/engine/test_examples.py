"""What people do first with a runtime of this kind, each example whole, with the async and with the sync calls.

Each runs on every saver. The documentation tells the same examples; here is what must hold for them to be true.
"""

from __future__ import annotations

import asyncio
import operator
from collections.abc import Iterator
from typing import Annotated, Any, Protocol, TypedDict

import pytest

from everstep.constants import END, START
from everstep.func import entrypoint, task
from everstep.graph.builder import StateGraph
from everstep.policies import RetryPolicy
from everstep.types import Command, Send, interrupt
from everstep_savers.memory import InMemorySaver
from everstep_savers.sql.saver import SQLSaver
from tests.engine.graphs import Log, Update, chain, side_by_side, thread


class Calls(Protocol):
    """How a program calls a graph."""

    def invoke(self, graph: Any, value: Any, config: Any = None, **options: Any) -> Any: ...
    def state(self, graph: Any, config: Any) -> Any: ...
    def history(self, graph: Any, config: Any) -> list[Any]: ...
    def update(self, graph: Any, config: Any, values: Any, as_node: str | None = None) -> Any: ...
    def close(self, saver: SQLSaver) -> None: ...


class Script:
    """A program without an event loop."""

    def invoke(self, graph: Any, value: Any, config: Any = None, **options: Any) -> Any:
        return graph.invoke(value, config, **options)

    def state(self, graph: Any, config: Any) -> Any:
        return graph.get_state(config)

    def history(self, graph: Any, config: Any) -> list[Any]:
        return list(graph.get_state_history(config))

    def update(self, graph: Any, config: Any, values: Any, as_node: str | None = None) -> Any:
        return graph.update_state(config, values, as_node)

    def close(self, saver: SQLSaver) -> None:
        async def close(state: Log) -> None:
            await saver.aclose()

        chain(close).invoke({"log": []})  # on the loop that opened it


class Service:
    """A program that has an event loop."""

    def __init__(self, runner: asyncio.Runner) -> None:
        self.runner = runner

    def invoke(self, graph: Any, value: Any, config: Any = None, **options: Any) -> Any:
        return self.runner.run(graph.ainvoke(value, config, **options))

    def state(self, graph: Any, config: Any) -> Any:
        return self.runner.run(graph.aget_state(config))

    def history(self, graph: Any, config: Any) -> list[Any]:
        async def read() -> list[Any]:
            return [snapshot async for snapshot in graph.aget_state_history(config)]

        return self.runner.run(read())

    def update(self, graph: Any, config: Any, values: Any, as_node: str | None = None) -> Any:
        return self.runner.run(graph.aupdate_state(config, values, as_node))

    def close(self, saver: SQLSaver) -> None:
        self.runner.run(saver.aclose())


@pytest.fixture(params=["async", "sync"])
def calls(request: pytest.FixtureRequest) -> Iterator[Calls]:
    """The async calls of a service, and the sync ones of a script."""
    if request.param == "sync":
        yield Script()
        return
    with asyncio.Runner() as runner:
        yield Service(runner)


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def saver(request: pytest.FixtureRequest, calls: Calls) -> Iterator[Any]:
    """A saver of each kind in turn, opened by the program that uses it."""
    if request.param == "memory":
        yield InMemorySaver()
        return
    opened = SQLSaver.from_url(request.getfixturevalue(f"{request.param}_url"))
    yield opened
    calls.close(opened)


def asked(result: Any) -> list[Any]:
    """What a run that stopped asks."""
    return [question.value for question in result["__interrupt__"]]


# Questions --------------------------------------------------------------------------------------------------------


class Refund(TypedDict, total=False):
    amount: int
    status: str


@pytest.mark.parametrize(("answer", "status"), [(True, "paid"), (False, "refused")])
def test_an_approval_decides_where_the_run_goes(answer: bool, status: str, calls: Calls, saver: Any) -> None:
    def approve(refund: Refund) -> Command[str]:
        return Command(goto="pay" if interrupt({"approve": refund["amount"]}) else "refuse")

    def pay(refund: Refund) -> Refund:
        return {"status": "paid"}

    def refuse(refund: Refund) -> Refund:
        return {"status": "refused"}

    builder = StateGraph(Refund).add_node("approve", approve, destinations=("pay", "refuse"))
    builder.add_node(pay).add_node(refuse).add_edge(START, "approve")
    graph = builder.compile(saver)
    result = calls.invoke(graph, {"amount": 90}, thread())
    assert asked(result) == [{"approve": 90}]
    assert calls.state(graph, thread()).next == ("approve",)
    assert calls.invoke(graph, Command(resume=answer), thread()) == {"amount": 90, "status": status}


def test_information_is_gathered_until_it_is_complete(calls: Calls, saver: Any) -> None:
    def collect(state: Log) -> Command[str]:
        missing = [name for name in ("name", "city") if name not in dict(state["log"])]
        if not missing:
            return Command(goto=END)
        return Command(update={"log": [(missing[0], interrupt(f"Your {missing[0]}?"))]}, goto="collect")

    graph = StateGraph(Log).add_node("collect", collect).add_edge(START, "collect").compile(saver)
    assert asked(calls.invoke(graph, {"log": []}, thread())) == ["Your name?"]
    assert asked(calls.invoke(graph, Command(resume="Ada"), thread())) == ["Your city?"]
    result = calls.invoke(graph, Command(resume="London"), thread())
    assert result == {"log": [("name", "Ada"), ("city", "London")]}


def test_a_form_of_three_questions_in_one_node(calls: Calls, saver: Any) -> None:
    entered = 0

    def form(state: Log) -> Update:
        nonlocal entered
        entered += 1
        return {"log": [interrupt("name?"), interrupt("age?"), interrupt("city?")]}

    graph = chain(form, saver=saver)
    result, ids = calls.invoke(graph, {"log": []}, thread()), []
    for answer in ("Ada", 36, "London"):
        ids.append(result["__interrupt__"][0].id)
        result = calls.invoke(graph, Command(resume=answer), thread())
    assert result == {"log": ["Ada", 36, "London"]}
    assert len(set(ids)) == 3
    assert entered == 4


def test_parallel_questions_are_answered_by_id_and_in_part(calls: Calls, saver: Any) -> None:
    entered: list[str] = []

    def asks(name: str) -> tuple[str, Any]:
        def ask(state: Log) -> Update:
            entered.append(name)
            return {"log": [(name, interrupt(f"{name}?"))]}

        return name, ask

    graph = side_by_side(asks("legal"), asks("price"), asks("stock"), saver=saver)
    result = calls.invoke(graph, {"log": []}, thread())
    ids = {question.value: question.id for question in result["__interrupt__"]}
    assert list(ids) == ["legal?", "price?", "stock?"]
    result = calls.invoke(graph, Command(resume={ids["price?"]: 2}), thread())
    assert asked(result) == ["legal?", "stock?"]
    result = calls.invoke(graph, Command(resume={ids["stock?"]: 3, ids["legal?"]: 1}), thread())
    assert result == {"log": [("legal", 1), ("price", 2), ("stock", 3)]}
    assert sorted(entered) == ["legal", "legal", "price", "price", "stock", "stock"]


def step(name: str) -> tuple[str, Any]:
    """A sync node that logs its name."""

    def run(state: Log) -> Update:
        return {"log": [name]}

    return name, run


def test_static_breakpoints_stop_before_and_after_nodes(calls: Calls, saver: Any) -> None:
    stops: dict[str, Any] = {"interrupt_before": ["b"], "interrupt_after": ["b"]}
    graph = chain(step("a"), step("b"), step("c"), saver=saver, **stops)
    assert calls.invoke(graph, {"log": []}, thread())["log"] == ["a"]
    assert calls.state(graph, thread()).next == ("b",)
    calls.update(graph, thread(), {"log": ["checked"]})
    assert calls.invoke(graph, None, thread())["log"] == ["a", "checked", "b"]
    assert calls.state(graph, thread()).next == ("c",)
    assert calls.invoke(graph, None, thread()) == {"log": ["a", "checked", "b", "c"]}


# Failures ---------------------------------------------------------------------------------------------------------


def test_two_connection_errors_and_then_success(calls: Calls, saver: Any) -> None:
    attempts: list[int] = []

    def fetch(state: Log, runtime: Any) -> Update:
        attempts.append(runtime.execution_info.node_attempt)
        if len(attempts) < 3:
            raise ConnectionError("no answer")
        return {"log": [f"attempt={attempts[-1]}"]}

    policy = RetryPolicy(initial_interval=0.001, max_attempts=3)
    graph = chain(fetch, saver=saver, node={"retry_policy": policy})
    assert calls.invoke(graph, {"log": []}, thread()) == {"log": ["attempt=3"]}
    assert attempts == [1, 2, 3]


def test_an_order_whose_submit_fails_once_goes_on_without_preparing_again(calls: Calls, saver: Any) -> None:
    ran: list[str] = []

    def does(name: str) -> tuple[str, Any]:
        def run(state: Log) -> Update:
            ran.append(name)
            if ran == ["prepare", "submit"]:
                raise ConnectionError("the shop is closed")
            return {"log": [name]}

        return name, run

    graph = chain(does("prepare"), does("submit"), does("finalize"), saver=saver)
    with pytest.raises(ConnectionError, match="the shop is closed"):
        calls.invoke(graph, {"log": []}, thread())
    state = calls.state(graph, thread())
    assert (state.values, state.next) == ({"log": ["prepare"]}, ("submit",))
    assert calls.invoke(graph, None, thread()) == {"log": ["prepare", "submit", "finalize"]}
    assert ran == ["prepare", "submit", "submit", "finalize"]


def test_of_two_parallel_fetches_of_which_one_fails_the_other_is_reused(calls: Calls, saver: Any) -> None:
    ran: list[str] = []
    fetched = asyncio.Event()

    async def weather(state: Log) -> Update:
        ran.append("weather")
        fetched.set()
        return {"log": ["sunny"]}

    async def news(state: Log) -> Update:
        ran.append("news")
        await fetched.wait()
        if ran.count("news") == 1:
            raise ConnectionError("no answer")
        return {"log": ["quiet"]}

    graph = side_by_side(weather, news, saver=saver)
    with pytest.raises(ConnectionError, match="no answer"):
        calls.invoke(graph, {"log": []}, thread())
    assert calls.invoke(graph, None, thread()) == {"log": ["quiet", "sunny"]}
    assert sorted(ran) == ["news", "news", "weather"]


# Time travel ------------------------------------------------------------------------------------------------------


def test_replay_from_the_checkpoint_before_finalize_runs_finalize_alone(calls: Calls, saver: Any) -> None:
    ran: list[str] = []

    def does(name: str) -> tuple[str, Any]:
        def run(state: Log) -> Update:
            ran.append(name)
            return {"log": [f"{name} {len(ran)}"]}

        return name, run

    graph = chain(does("prepare"), does("submit"), does("finalize"), saver=saver)
    calls.invoke(graph, {"log": []}, thread())
    (before,) = [snapshot for snapshot in calls.history(graph, thread()) if snapshot.next == ("finalize",)]
    assert calls.invoke(graph, None, before.config) == {"log": ["prepare 1", "submit 2", "finalize 4"]}
    assert ran == ["prepare", "submit", "finalize", "finalize"]
    finals = [snapshot.values["log"][-1] for snapshot in calls.history(graph, thread()) if not snapshot.next]
    assert finals == ["finalize 4", "finalize 3"]


def test_a_fork_with_another_state_leaves_the_old_line_as_it_was(calls: Calls, saver: Any) -> None:
    class Trip(TypedDict, total=False):
        city: str
        plan: str

    def choose(trip: Trip) -> Trip:
        return {"city": "Oslo"}

    def plan(trip: Trip) -> Trip:
        return {"plan": f"a day in {trip['city']}"}

    builder = StateGraph(Trip).add_sequence([choose, plan]).add_edge(START, "choose")
    graph = builder.compile(saver)
    first = calls.invoke(graph, {}, thread())
    assert first == {"city": "Oslo", "plan": "a day in Oslo"}
    (before,) = [snapshot for snapshot in calls.history(graph, thread()) if snapshot.next == ("plan",)]
    fork = calls.update(graph, before.config, {"city": "Rome"})
    assert calls.invoke(graph, None, fork) == {"city": "Rome", "plan": "a day in Rome"}
    assert calls.state(graph, thread()).values == {"city": "Rome", "plan": "a day in Rome"}
    assert first in [snapshot.values for snapshot in calls.history(graph, thread())]


# Map and reduce, and functions --------------------------------------------------------------------------------------


class Jokes(TypedDict, total=False):
    subjects: list[str]
    jokes: Annotated[list[str], operator.add]
    best: str


class Subject(TypedDict):
    subject: str


def test_jokes_are_made_in_parallel_and_the_best_is_chosen(calls: Calls, saver: Any) -> None:
    def list_subjects(state: Jokes) -> Jokes:
        return {"subjects": ["lions", "elephants", "penguins"]}

    def to_jokes(state: Jokes) -> list[Send]:
        return [Send("make_joke", {"subject": subject}) for subject in state["subjects"]]

    def make_joke(state: Subject) -> Jokes:
        return {"jokes": [f"a joke about {state['subject']}"]}

    def choose(state: Jokes) -> Jokes:
        return {"best": max(state["jokes"], key=len)}

    builder = StateGraph(Jokes).add_node(list_subjects).add_node(make_joke).add_node(choose)
    builder.add_edge(START, "list_subjects").add_conditional_edges("list_subjects", to_jokes, ["make_joke"])
    builder.add_edge("make_joke", "choose").add_edge("choose", END)
    result = calls.invoke(builder.compile(saver), {}, thread())
    assert result["jokes"] == ["a joke about lions", "a joke about elephants", "a joke about penguins"]
    assert result["best"] == "a joke about elephants"


def test_a_function_remembers_what_it_saved_and_returns_something_else(calls: Calls, saver: Any) -> None:
    @task
    def double(number: int) -> int:
        return 2 * number

    @entrypoint(saver)
    def add_up(number: int, *, previous: int | None = None) -> entrypoint.final[int, int]:
        total = (previous or 0) + double(number).result()
        return entrypoint.final(value=previous or 0, save=total)

    assert [calls.invoke(add_up, number, thread()) for number in (1, 2, 3)] == [0, 2, 6]
    assert calls.invoke(add_up, 1, thread("other")) == 0

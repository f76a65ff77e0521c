"""Questions: what suspends a task, what is asked, what runs again when it is answered."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from everstep.constants import START
from everstep.context import interrupt
from everstep.errors import ConfigError, EverstepError, GraphInterrupt, InterruptMismatchError
from everstep.graph.builder import StateGraph
from everstep.types import Command, Interrupt, Send
from tests.engine.graphs import AT_ONCE, Log, Update, chain, says, side_by_side, thread


def questions_of(result: Any) -> list[Interrupt]:
    """The open questions of a run's result."""
    found: list[Interrupt] = result["__interrupt__"]
    return found


def by_value(result: Any) -> dict[Any, str]:
    """The ids of the open questions, by what is asked."""
    return {question.value: question.id for question in questions_of(result)}


async def test_a_question_suspends_its_task_and_the_answer_is_what_it_returns(saver: Any) -> None:
    entered = 0

    async def ask(state: Log) -> Update:
        nonlocal entered
        entered += 1
        return {"log": [interrupt({"ok?": 1})]}

    graph = chain(says("a"), ask, says("b"), saver=saver)
    first = await graph.ainvoke({"log": []}, thread())
    assert first["log"] == ["a"]
    assert [question.value for question in questions_of(first)] == [{"ok?": 1}]
    assert await graph.ainvoke(Command(resume="yes"), thread()) == {"log": ["a", "yes", "b"]}
    assert entered == 2
    assert (await saver.aget_thread("t")).status == "done"


async def test_a_suspended_thread_shows_its_question_and_the_node_that_asks(saver: Any) -> None:
    async def ask(state: Log) -> Update:
        return {"log": [interrupt("q")]}

    graph = side_by_side(ask, says("other"), saver=saver)
    result = await graph.ainvoke({"log": []}, thread())
    state = await graph.aget_state(thread())
    assert state.next == ("ask",)
    assert state.values == {"log": ["other"]}
    assert list(state.interrupts) == questions_of(result)
    assert {task.name: (task.interrupts, task.result) for task in state.tasks} == {
        "ask": (state.interrupts, None),
        "other": ((), {"log": ["other"]}),
    }
    assert (await saver.aget_thread("t")).status == "interrupted"


async def test_several_questions_of_one_node_are_asked_and_answered_in_order(saver: Any) -> None:
    async def form(state: Log) -> Update:
        name = interrupt("name?")
        age = interrupt(f"age of {name}?")
        return {"log": [name, age, interrupt("sure?")]}

    graph = chain(form, saver=saver)
    asked, ids = [], []
    result = await graph.ainvoke({"log": []}, thread())
    for answer in ("Ada", 36, True):
        (question,) = questions_of(result)
        asked.append(question.value)
        ids.append(question.id)
        result = await graph.ainvoke(Command(resume=answer), thread())
    assert asked == ["name?", "age of Ada?", "sure?"]
    assert len(set(ids)) == 3
    assert result == {"log": ["Ada", 36, True]}


async def test_a_node_may_ask_until_the_answer_is_valid(saver: Any) -> None:
    async def ask(state: Log) -> Update:
        text = "age?"
        while not isinstance(answer := interrupt(text), int):
            text = f"{answer!r} is no age. age?"
        return {"log": [answer]}

    graph = chain(ask, saver=saver)
    result = await graph.ainvoke({"log": []}, thread())
    asked = []
    for answer in ("a", "b", 5):
        asked.append(questions_of(result)[0].value)
        result = await graph.ainvoke(Command(resume=answer), thread())
    assert asked == ["age?", "'a' is no age. age?", "'b' is no age. age?"]
    assert result == {"log": [5]}


async def test_question_ids_are_the_same_whenever_the_same_checkpoint_asks(saver: Any) -> None:
    async def ask(state: Log) -> Update:
        return {"log": [interrupt("q")]}

    graph = chain(ask, saver=saver)
    first = questions_of(await graph.ainvoke({"log": []}, thread()))
    again = questions_of(await graph.ainvoke(None, thread()))
    assert first == again
    assert len(first[0].id) == 32
    assert int(first[0].id, 16) >= 0


# Several tasks ------------------------------------------------------------------------------------------------


class Asking:
    """Nodes that ask for their own name, beside one that does not ask, and a count of what was entered."""

    def __init__(self) -> None:
        self.entered: list[str] = []

    def asks(self, name: str) -> tuple[str, Callable[..., Any]]:
        async def run(state: Log) -> Update:
            self.entered.append(name)
            return {"log": [(name, interrupt(name))]}

        return name, run

    def works(self, name: str) -> tuple[str, Callable[..., Any]]:
        async def run(state: Log) -> Update:
            self.entered.append(name)
            return {"log": [name]}

        return name, run


async def test_questions_of_several_tasks_are_asked_at_once_and_answered_by_id(saver: Any) -> None:
    nodes = Asking()
    graph = side_by_side(nodes.asks("a"), nodes.asks("b"), nodes.works("c"), saver=saver)
    ids = by_value(await graph.ainvoke({"log": []}, thread()))
    result = await graph.ainvoke(Command(resume={ids["b"]: "B", ids["a"]: "A"}), thread())
    assert result == {"log": [("a", "A"), ("b", "B"), "c"]}
    assert sorted(nodes.entered) == ["a", "a", "b", "b", "c"]


async def test_a_command_to_a_deferred_node_that_asks_keeps_its_question(saver: Any) -> None:
    async def last(state: Log) -> Update:
        return {"log": [interrupt("q")]}

    builder = StateGraph(Log).add_node(*says("a")).add_node(last, defer=True)
    graph = builder.add_edge(START, "a").add_edge("a", "last").compile(saver)
    [question] = (await graph.ainvoke({"log": []}, thread()))["__interrupt__"]
    result = await graph.ainvoke(Command(goto="last"), thread())
    assert [one.id for one in result["__interrupt__"]] == [question.id]
    assert (await graph.aget_state(thread())).next == ("last",)
    assert await graph.ainvoke(Command(resume="A"), thread()) == {"log": ["a", "A"]}


async def test_answering_one_task_does_not_enter_the_body_of_another(saver: Any) -> None:
    nodes = Asking()
    graph = side_by_side(nodes.asks("a"), nodes.asks("b"), nodes.works("c"), saver=saver)
    ids = by_value(await graph.ainvoke({"log": []}, thread()))
    nodes.entered.clear()
    result = await graph.ainvoke(Command(resume={ids["a"]: "A"}), thread())
    assert nodes.entered == ["a"]
    assert by_value(result) == {"b": ids["b"]}
    state = await graph.aget_state(thread())
    assert [question.id for question in state.interrupts] == [ids["b"]]
    assert state.next == ("b",)
    nodes.entered.clear()
    result = await graph.ainvoke(Command(resume="B"), thread())
    assert (result, nodes.entered) == ({"log": [("a", "A"), ("b", "B"), "c"]}, ["b"])


async def test_sent_tasks_of_one_node_ask_each_for_itself(saver: Any) -> None:
    async def ask(state: Log) -> Update:
        return {"log": [interrupt(state["value"])]}

    builder = StateGraph(Log).add_node(ask)
    builder.add_conditional_edges(START, lambda state: [Send("ask", {"value": n}) for n in range(3)], ["ask"])
    graph = builder.compile(saver)
    ids = by_value(await graph.ainvoke({"log": []}, thread()))
    assert len(set(ids.values())) == 3
    answers = {ids[number]: number * 10 for number in (2, 0, 1)}
    assert await graph.ainvoke(Command(resume=answers), thread()) == {"log": [0, 10, 20]}


async def test_one_task_may_hold_several_open_questions(saver: Any) -> None:
    async def ask(question: str) -> Any:
        return interrupt(question)

    async def both(state: Log) -> Update:
        return {"log": list(await asyncio.gather(ask("a"), ask("b")))}

    graph = chain(both, saver=saver)
    ids = by_value(await graph.ainvoke({"log": []}, thread()))
    assert len(set(ids.values())) == 2
    result = await graph.ainvoke(Command(resume={ids["b"]: "B"}), thread())
    assert by_value(result) == {"a": ids["a"]}
    assert await graph.ainvoke(Command(resume={ids["a"]: "A"}), thread()) == {"log": ["A", "B"]}


# What user code does with the signal ---------------------------------------------------------------------------


async def with_except_exception() -> None:
    try:
        interrupt("q")
    except Exception:
        return


async def with_bare_except() -> None:
    try:
        interrupt("q")
    except:  # noqa: E722 - what users write
        return


async def with_another_error() -> None:
    try:
        interrupt("q")
    except BaseException:
        raise ValueError("masks the signal") from None


async def with_gather_that_returns_exceptions() -> None:
    async def ask() -> None:
        interrupt("q")

    await asyncio.gather(ask(), return_exceptions=True)


async def with_gather() -> None:
    async def ask() -> None:
        interrupt("q")

    await asyncio.gather(ask(), asyncio.sleep(0))


async def with_task_group() -> None:
    async def ask() -> None:
        interrupt("q")

    async with asyncio.TaskGroup() as group:
        group.create_task(ask())
        group.create_task(asyncio.sleep(60))


async def with_thread() -> None:
    await asyncio.to_thread(interrupt, "q")


SWALLOWING = [
    with_except_exception,
    with_bare_except,
    with_another_error,
    with_gather_that_returns_exceptions,
    with_gather,
    with_task_group,
    with_thread,
]


@pytest.mark.parametrize("siblings", [0, 1])
@pytest.mark.parametrize("swallow", SWALLOWING, ids=lambda swallow: swallow.__name__)
async def test_a_question_suspends_whatever_becomes_of_its_signal(
    swallow: Callable[[], Awaitable[None]], siblings: int, saver: Any
) -> None:
    async def ask(state: Log) -> Update:
        await swallow()
        return {"log": ["went on"]}

    others = [says(f"other {number}") for number in range(siblings)]
    graph = side_by_side(ask, *others, saver=saver)
    result = await graph.ainvoke({"log": []}, thread())
    assert [question.value for question in questions_of(result)] == ["q"]
    assert result["log"] == [name for name, _ in others]


async def test_a_sync_node_may_ask_and_swallow_too(saver: Any) -> None:
    def plain(state: Log) -> Update:
        return {"log": [interrupt("plain")]}

    def swallows(state: Log) -> Update:
        with contextlib.suppress(BaseException):
            interrupt("swallows")
        return {"log": ["went on"]}

    graph = side_by_side(plain, swallows, saver=saver)
    result = await graph.ainvoke({"log": []}, thread())
    assert set(by_value(result)) == {"plain", "swallows"}


async def test_a_question_is_not_retried(saver: Any) -> None:
    entered = 0

    async def ask(state: Log) -> Update:
        nonlocal entered
        entered += 1
        try:
            return {"log": [interrupt("q")]}
        except GraphInterrupt:
            raise ConnectionError("retryable") from None

    graph = chain(ask, saver=saver, node={"retry_policy": AT_ONCE})
    assert [question.value for question in questions_of(await graph.ainvoke({"log": []}, thread()))] == ["q"]
    assert entered == 1


async def test_answers_given_before_a_failure_hold_in_the_next_attempt(saver: Any) -> None:
    attempts = 0

    async def ask(state: Log) -> Update:
        nonlocal attempts
        answer = interrupt("q")
        attempts += 1
        if attempts == 1:
            raise ConnectionError
        return {"log": [answer]}

    graph = chain(ask, saver=saver, node={"retry_policy": AT_ONCE})
    await graph.ainvoke({"log": []}, thread())
    assert await graph.ainvoke(Command(resume="A"), thread()) == {"log": ["A"]}


async def test_asking_something_else_where_an_answer_is_stored_is_an_error(saver: Any) -> None:
    questions = ["first", "other"]

    async def ask(state: Log) -> Update:
        return {"log": [interrupt(questions.pop(0))]}

    graph = chain(ask, saver=saver)
    (question,) = questions_of(await graph.ainvoke({"log": []}, thread()))
    with pytest.raises(InterruptMismatchError) as caught:
        await graph.ainvoke(Command(resume="A"), thread())
    assert str(caught.value) == (
        f"node 'ask' now asks 'other' where it had asked 'first', which was answered with 'A' "
        f"(question {question.id}); make what a node asks depend on its state and earlier answers only"
    )


async def test_a_question_without_a_saver_is_an_error_at_the_call() -> None:
    async def ask(state: Log) -> Update:
        return {"log": [interrupt("q")]}

    with pytest.raises(ConfigError) as caught:
        await chain(ask).ainvoke({"log": []})
    assert str(caught.value) == (
        "node 'ask' called interrupt(), but the graph has no saver to keep the suspended thread; compile it with one: "
        "compile(checkpointer=InMemorySaver()) or SQLSaver.from_url(...)"
    )


async def test_a_question_outside_of_a_node_is_an_error() -> None:
    with pytest.raises(EverstepError) as caught:
        interrupt("q")
    assert str(caught.value) == (
        "interrupt() was called outside of a node; call it in a node, or in a function that a node calls"
    )


async def test_a_failing_sibling_keeps_the_question_that_was_asked(saver: Any) -> None:
    asked = asyncio.Event()
    broken = True

    async def ask(state: Log) -> Update:
        asked.set()
        return {"log": [interrupt("q")]}

    async def fail(state: Log) -> Update:
        await asked.wait()
        await asyncio.sleep(0)
        if broken:
            raise ValueError("broken")
        return {"log": ["repaired"]}

    graph = side_by_side(ask, fail, saver=saver)
    with pytest.raises(ValueError, match="broken"):
        await graph.ainvoke({"log": []}, thread())
    assert [question.value for question in (await graph.aget_state(thread())).interrupts] == ["q"]
    broken = False
    assert await graph.ainvoke(Command(resume="A"), thread()) == {"log": ["A", "repaired"]}


async def test_values_and_updates_tell_of_the_question(saver: Any) -> None:
    async def ask(state: Log) -> Update:
        return {"log": [interrupt("q")]}

    graph = side_by_side(ask, says("other"), saver=saver)
    events = [e async for e in graph.astream({"log": []}, thread(), stream_mode=["updates", "values"])]
    (question,) = (await graph.aget_state(thread())).interrupts
    assert ("updates", {"__interrupt__": (question,)}) in events
    assert events[-1] == ("values", {"log": ["other"]})
    assert ("values", {"log": [], "__interrupt__": (question,)}) in events

"""Tools that ask: all questions at once, each call's work done once."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from everstep.context import interrupt
from everstep.graph.functional import task
from everstep.prebuilt.chat_agent_executor import create_react_agent
from everstep.types import Command
from tests.engine.graphs import thread
from tests.prebuilt.chats import asking, calling, results, scripted, tools_graph

CALLS = (("pay", {"what": "rent"}), ("pay", {"what": "food"}), ("note", {"text": "hi"}))


class Shop:
    """Tools that count what they do."""

    def __init__(self, is_async: bool) -> None:
        self.done: Counter[str] = Counter()
        self.entered: Counter[str] = Counter()

        @task
        async def reserve(what: str) -> str:
            self.done[what] += 1
            return f"reserved {what}"

        async def apay(what: str) -> str:
            """Pay for something."""
            self.entered[what] += 1
            reserved = await reserve(what)
            return f"{reserved}: {interrupt(f'pay for {what}?')}"

        def pay(what: str) -> str:
            """Pay for something."""
            self.entered[what] += 1
            reserved: Any = reserve(what)
            return f"{reserved.result()}: {interrupt(f'pay for {what}?')}"

        def note(text: str) -> str:
            """Take a note."""
            self.done[text] += 1
            return text

        apay.__name__ = "pay"
        self.tools = [apay if is_async else pay, note]

    def graph(self, kind: str, saver: Any) -> Any:
        if kind == "node":
            return tools_graph(*self.tools, saver=saver)
        model = scripted(calling(*CALLS), "done")
        return create_react_agent(model, self.tools, checkpointer=saver, version="v1" if kind == "v1" else "v2")


EVERY = pytest.mark.parametrize(("kind", "is_async"), [("node", True), ("node", False), ("v1", True), ("v2", False)])
START = {"node": asking(*CALLS), "v1": {"messages": "hi"}, "v2": {"messages": "hi"}}


@EVERY
async def test_both_questions_come_at_once_and_each_call_gets_its_answer(kind: str, is_async: bool, saver: Any) -> None:
    shop = Shop(is_async)
    asked = await shop.graph(kind, saver).ainvoke(START[kind], thread())
    questions = asked["__interrupt__"]
    assert [question.value for question in questions] == ["pay for rent?", "pay for food?"]
    first, second = (question.id for question in questions)
    assert first != second
    state = await shop.graph(kind, saver).aget_state(thread())
    assert [question.id for question in state.interrupts] == [first, second]

    graph = shop.graph(kind, saver)
    if kind != "node":  # the model goes on with what it has not said yet
        graph = create_react_agent(scripted("done"), shop.tools, checkpointer=saver, version=kind)  # type: ignore[arg-type]
    result = await graph.ainvoke(Command(resume={second: "no", first: "yes"}), thread())
    assert results(result) == [
        ("c0", "success", "reserved rent: yes"),
        ("c1", "success", "reserved food: no"),
        ("c2", "success", "hi"),
    ]
    assert shop.done == {"rent": 1, "food": 1, "hi": 1}


@EVERY
async def test_answering_one_enters_no_other_call(kind: str, is_async: bool, saver: Any) -> None:
    shop = Shop(is_async)
    graph = shop.graph(kind, saver)
    first, second = (await graph.ainvoke(START[kind], thread()))["__interrupt__"]
    result = await graph.ainvoke(Command(resume={second.id: "no"}), thread())
    assert result["__interrupt__"] == [first]
    assert shop.entered == {"rent": 1, "food": 2}
    result = await graph.ainvoke(Command(resume="yes"), thread())
    assert [text for _, _, text in results(result)] == ["reserved rent: yes", "reserved food: no", "hi"]
    assert shop.entered == {"rent": 2, "food": 2}
    assert shop.done == {"rent": 1, "food": 1, "hi": 1}


async def test_a_call_that_has_finished_is_not_run_again_when_another_fails(saver: Any) -> None:
    ran: Counter[str] = Counter()
    is_kept = asyncio.Event()

    async def first() -> str:
        """Work."""
        ran["first"] += 1
        return "first"

    async def second() -> str:
        """Fail the first time, once the other's result is kept."""
        ran["second"] += 1
        if ran["second"] == 1:
            await is_kept.wait()
            raise ValueError("no")
        return "second"

    graph = tools_graph(first, second, saver=saver, handle_tool_errors=False)
    original = saver.acommit

    async def acommit(prepared: Any) -> Any:
        token = await original(prepared)
        if ran["first"]:
            is_kept.set()
        return token

    saver.acommit = acommit
    with pytest.raises(ValueError, match="no"):
        await graph.ainvoke(asking("first", "second"), thread())
    result = await graph.ainvoke(None, thread())
    assert [text for _, _, text in results(result)] == ["first", "second"]
    assert ran == {"first": 1, "second": 2}


@pytest.mark.parametrize("handle", [True, False, "handled", Exception])
async def test_a_question_never_becomes_a_result(handle: Any, saver: Any) -> None:
    def ask() -> str:
        """Ask."""
        return f"{interrupt('what?')}"

    graph = tools_graph(ask, saver=saver, handle_tool_errors=handle)
    asked = await graph.ainvoke(asking("ask"), thread())
    assert [question.value for question in asked["__interrupt__"]] == ["what?"]
    assert results(asked) == []
    result = await graph.ainvoke(Command(resume="that"), thread())
    assert results(result) == [("c0", "success", "that")]


@pytest.mark.parametrize("is_async", [True, False])
async def test_a_wrapper_may_ask_before_a_tool_is_run(is_async: bool, saver: Any) -> None:
    def work(what: str) -> str:
        """Work."""
        return what

    def wrap(request: Any, run: Any) -> Any:
        answer = interrupt(f"run {request.tool_call['args']['what']}?")
        return run(request.override(tool_call={**request.tool_call, "args": {"what": answer}}))

    async def awrap(request: Any, run: Any) -> Any:
        return await wrap(request, run)

    wrapper: Any = {"awrap_tool_call": awrap} if is_async else {"wrap_tool_call": wrap}
    graph = tools_graph(work, saver=saver, **wrapper)
    asked = await graph.ainvoke(asking(("work", {"what": "a"}), ("work", {"what": "b"})), thread())
    one, two = asked["__interrupt__"]
    assert (one.value, two.value) == ("run a?", "run b?")
    result = await graph.ainvoke(Command(resume={one.id: "A", two.id: "B"}), thread())
    assert [text for _, _, text in results(result)] == ["A", "B"]

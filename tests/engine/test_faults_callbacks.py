"""Lifecycle callbacks: what they are told, in which order, and that they change nothing."""

from __future__ import annotations

import asyncio
import importlib
import logging
import sys
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from everstep.callbacks import (
    GraphCallbackHandler,
    GraphInterruptEvent,
    GraphResumeEvent,
    GraphRunEndEvent,
    GraphRunStartEvent,
)
from everstep.constants import START
from everstep.context import Runtime, interrupt
from everstep.errors import GraphDrained, GraphRecursionError
from everstep.graph.builder import StateGraph
from everstep.types import Command
from tests.engine.graphs import Log, Update, chain, says, thread

RUN = UUID("12345678-1234-5678-1234-567812345678")


class Watching(GraphCallbackHandler):
    """Notes all events."""

    def __init__(self) -> None:
        self.events: list[Any] = []

    def on_run_start(self, event: GraphRunStartEvent) -> None:
        self.events.append(event)

    def on_resume(self, event: GraphResumeEvent) -> None:
        self.events.append(event)

    def on_interrupt(self, event: GraphInterruptEvent) -> None:
        self.events.append(event)

    def on_run_end(self, event: GraphRunEndEvent) -> None:
        self.events.append(event)

    def take(self) -> list[Any]:
        """The events since the last call."""
        events, self.events = self.events, []
        return events


class WatchingSlowly(Watching):
    """The same with async methods."""

    async def on_run_start(self, event: GraphRunStartEvent) -> None:  # type: ignore[override]
        await asyncio.sleep(0)
        self.events.append(event)

    async def on_interrupt(self, event: GraphInterruptEvent) -> None:  # type: ignore[override]
        await asyncio.sleep(0)
        self.events.append(event)


def watched(*handlers: Any) -> dict[str, Any]:
    return {**thread(), "callbacks": list(handlers), "run_id": RUN}


async def ask(state: Log) -> Update:
    return {"log": [interrupt("q")]}


@pytest.mark.parametrize("kind", [Watching, WatchingSlowly])
async def test_handlers_are_told_of_start_question_resume_and_end(kind: type[Watching], saver: Any) -> None:
    handler = kind()
    graph = chain(ask, saver=saver, name="shop")
    await graph.ainvoke({"log": []}, watched(handler))
    head = (await graph.aget_state(thread())).config["configurable"]["checkpoint_id"]
    (question,) = (await graph.aget_state(thread())).interrupts
    start, stop, end = handler.take()
    assert start == GraphRunStartEvent(RUN, "shop", start.checkpoint_id, (), is_resumed=False)
    assert stop == GraphInterruptEvent(RUN, "pending", head, (), (question,))
    assert end == GraphRunEndEvent(RUN, "shop", "interrupted", head, ())
    await graph.ainvoke(Command(resume="A"), watched(handler))
    start, resume, end = handler.take()
    assert start == GraphRunStartEvent(RUN, "shop", head, (), is_resumed=True)
    assert resume == GraphResumeEvent(RUN, "pending", head, ())
    head = (await graph.aget_state(thread())).config["configurable"]["checkpoint_id"]
    assert end == GraphRunEndEvent(RUN, "shop", "done", head, ())


async def test_the_question_is_stored_when_a_handler_hears_of_it(saver: Any) -> None:
    seen: list[Any] = []
    graph = chain(ask, saver=saver)

    class Reading(GraphCallbackHandler):
        async def on_interrupt(self, event: GraphInterruptEvent) -> None:
            seen.append((await graph.aget_state(thread())).interrupts == event.interrupts)

    await graph.ainvoke({"log": []}, {**thread(), "callbacks": [Reading()]})
    assert seen == [True]


@pytest.mark.parametrize("kind", ["interrupt_before", "interrupt_after"])
async def test_breakpoints_are_told_by_their_kind(kind: str, saver: Any) -> None:
    handler = Watching()
    options: dict[str, Any] = {kind: ["b" if kind == "interrupt_before" else "a"]}
    graph = chain(says("a"), says("b"), saver=saver, **options)
    await graph.ainvoke({"log": []}, watched(handler))
    head = (await graph.aget_state(thread())).config["configurable"]["checkpoint_id"]
    assert handler.take()[1] == GraphInterruptEvent(RUN, kind, head, (), ())  # type: ignore[arg-type]


async def test_a_breakpoint_before_the_first_node_is_told(saver: Any) -> None:
    handler = Watching()
    graph = chain(says("a"), saver=saver)
    await graph.ainvoke({"log": []}, watched(handler), interrupt_before=[START])
    assert [type(event) for event in handler.take()] == [GraphRunStartEvent, GraphInterruptEvent, GraphRunEndEvent]


async def test_subgraphs_are_told_with_their_namespace_and_their_questions_by_the_root(saver: Any) -> None:
    handler = Watching()
    builder = StateGraph(Log).add_node("inner", chain(ask, name="inner graph")).add_edge(START, "inner")
    graph = builder.compile(saver)
    await graph.ainvoke({"log": []}, watched(handler))
    level = f"inner:{(await graph.aget_state(thread())).tasks[0].id}"
    told = [(type(event), event.checkpoint_ns) for event in handler.take()]
    assert told == [
        (GraphRunStartEvent, ()),
        (GraphRunStartEvent, (level,)),
        (GraphRunEndEvent, (level,)),
        (GraphInterruptEvent, ()),
        (GraphRunEndEvent, ()),
    ]
    await graph.ainvoke(Command(resume="A"), watched(handler))
    told = [(type(event), event.checkpoint_ns) for event in handler.take()]
    assert told == [
        (GraphRunStartEvent, ()),
        (GraphResumeEvent, ()),
        (GraphRunStartEvent, (level,)),
        (GraphResumeEvent, (level,)),
        (GraphRunEndEvent, (level,)),
        (GraphRunEndEvent, ()),
    ]


async def drained(state: Log, runtime: Runtime[Any]) -> None:
    assert runtime.control is not None
    runtime.control.request_drain()


async def loop_on(state: Log) -> Command[Any]:
    return Command(goto="loop_on")


async def fail(state: Log) -> None:
    raise ValueError("bad")


@pytest.mark.parametrize(
    ("nodes", "status", "error"),
    [
        ([fail], "failed", ValueError),
        ([drained, says("after")], "drained", GraphDrained),
        ([loop_on], "out_of_steps", GraphRecursionError),
    ],
)
async def test_every_ending_is_told_once_it_is_stored(
    nodes: list[Any], status: str, error: type[Exception], saver: Any
) -> None:
    stored: list[Any] = []

    class Reading(Watching):
        async def on_run_end(self, event: GraphRunEndEvent) -> None:  # type: ignore[override]
            stored.append((await saver.aget_thread("t")).status)
            super().on_run_end(event)

    handler = Reading()
    with pytest.raises(error) as caught:
        await chain(*nodes, saver=saver).ainvoke({"log": []}, {**watched(handler), "recursion_limit": 3})
    end = handler.take()[-1]
    assert (end.status, end.error, stored) == (status, caught.value, [status])


async def test_a_cancelled_run_is_told(saver: Any) -> None:
    handler, entered = Watching(), asyncio.Event()

    async def wait(state: Log) -> None:
        entered.set()
        await asyncio.Event().wait()

    run = asyncio.create_task(chain(wait, saver=saver).ainvoke({"log": []}, watched(handler)))
    await entered.wait()
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    end = handler.take()[-1]
    assert (end.status, type(end.error)) == ("cancelled", asyncio.CancelledError)


async def test_runs_without_a_saver_are_told() -> None:
    handler = Watching()
    await chain(says("a")).ainvoke({"log": []}, {"callbacks": handler, "run_id": "batch 7"})
    assert handler.take() == [
        GraphRunStartEvent("batch 7", "graph", None, (), is_resumed=False),
        GraphRunEndEvent("batch 7", "graph", "done", None, ()),
    ]


async def test_what_a_handler_raises_is_logged_and_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(GraphCallbackHandler):
        def on_run_start(self, event: GraphRunStartEvent) -> None:
            raise ValueError("handler is broken")

    after = Watching()
    caplog.set_level(logging.WARNING, logger="everstep")
    result = await chain(says("a")).ainvoke({"log": []}, {"callbacks": [Broken(), after]})
    assert result == {"log": ["a"]}
    assert len(after.events) == 2
    (record,) = caplog.records
    assert record.message == "callback Broken.on_run_start failed"
    assert record.exc_info is not None
    assert str(record.exc_info[1]) == "handler is broken"


async def test_handlers_are_found_in_a_list_a_manager_or_alone_and_others_are_left_alone() -> None:
    graph = chain(says("a"))
    for wrap in (lambda each: [object(), each], lambda each: SimpleNamespace(handlers=[each]), lambda each: each):
        handler = Watching()
        await graph.ainvoke({"log": []}, {"callbacks": wrap(handler)})
        assert len(handler.events) == 2
    for others in ([object()], SimpleNamespace(), ()):
        assert await graph.ainvoke({"log": []}, {"callbacks": others}) == {"log": ["a"]}


@pytest.mark.parametrize("wrap", [lambda each: [each], lambda each: SimpleNamespace(handlers=[object(), each])])
async def test_nodes_get_the_callbacks_of_their_run_in_their_config(wrap: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    handler, seen = Watching(), []

    async def look(state: Log, config: Any) -> None:
        seen.append(config["callbacks"])

    given = wrap(handler)
    importlib.import_module("langchain_core.runnables.config")
    await chain(look).ainvoke({"log": []}, {"callbacks": given})
    monkeypatch.delitem(sys.modules, "langchain_core.runnables.config")
    await chain(look).ainvoke({"log": []}, {"callbacks": given})
    # A manager where LangChain is loaded, which knows what to do with one.
    assert (seen[0].handlers, seen[1]) == ([handler], given)


async def test_a_base_handler_does_nothing() -> None:
    assert await chain(says("a")).ainvoke({"log": []}, {"callbacks": [GraphCallbackHandler()]}) == {"log": ["a"]}

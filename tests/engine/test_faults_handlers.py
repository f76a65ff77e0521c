"""Error handlers: who takes over when a node has failed, what it is given, and that it runs once for one failure."""

from __future__ import annotations

import asyncio
from typing import Any, Literal, TypedDict

import pytest

from everstep.constants import START
from everstep.context import Runtime, interrupt
from everstep.errors import (
    EverstepError,
    GraphBuildError,
    InvalidUpdateError,
    NodeCancelledError,
    NodeError,
    NodeTimeoutError,
    RestoredError,
    UnsatisfiedJoinError,
)
from everstep.graph.builder import StateGraph
from everstep.policies import RetryPolicy
from everstep.types import Command, Overwrite, Send
from tests.engine.graphs import AT_ONCE, Log, Update, history, notes_of, says, thread
from tests.engine.watched import Gate, WatchedSaver

DURABILITIES = ["sync", "async", "exit"]


class OwnError(Exception):
    """An exception whose class is not kept with a thread."""


class Failing:
    """A node that fails a number of times, then logs its attempt."""

    def __init__(self, *errors: BaseException) -> None:
        self.errors = list(errors)
        self.attempts = 0

    async def __call__(self, state: Log) -> Update:
        self.attempts += 1
        if self.errors:
            raise self.errors.pop(0)
        return {"log": [self.attempts]}


class Handler:
    """A handler that logs what it handles, unless it fails; counts its runs."""

    def __init__(self, *errors: Exception, returns: Any = None) -> None:
        self.errors = list(errors)
        self.returns = returns
        self.seen: list[NodeError] = []

    async def __call__(self, state: Log, error: NodeError) -> Any:
        self.seen.append(error)
        if self.errors:
            raise self.errors.pop(0)
        return {"log": ["handled"]} if self.returns is None else self.returns


def always(error: type[BaseException] = ValueError) -> Failing:
    """A node that always fails."""
    return Failing(*(error(number) for number in range(9)))


def failing(
    handler: Any, node: Any = None, *, saver: Any = None, also: tuple[str, Any] | None = None, **options: Any
) -> Any:
    """A graph START -> bad -> after, whose node "bad" has a handler; `also` is a node beside "bad"."""
    builder = StateGraph(Log).add_node("bad", node or always(), error_handler=handler, **options)
    builder.add_node(*says("after")).add_edge(START, "bad").add_edge("bad", "after")
    if also is not None:
        builder.add_node(*also).add_edge(START, also[0])
    return builder.compile(saver)


# What a handler is given, and what becomes of what it returns ------------------------------------------------------


async def test_a_handler_stands_for_the_node_and_its_edges_are_not_followed(saver: Any) -> None:
    handler = Handler()
    assert await failing(handler, saver=saver).ainvoke({"log": []}, thread()) == {"log": ["handled"]}
    (error,) = handler.seen
    assert (error.node, type(error.error), error.error.args) == ("bad", ValueError, (0,))
    assert notes_of(error.error) == ["in node 'bad' (attempt 1, step 1, thread 't')"]
    assert (await saver.aget_thread("t")).status == "done"


async def test_a_handler_goes_elsewhere_by_command(saver: Any) -> None:
    handler = Handler(returns=Command(update={"log": ["handled"]}, goto="after"))
    assert await failing(handler, saver=saver).ainvoke({"log": []}, thread()) == {"log": ["handled", "after"]}


async def test_a_handler_that_returns_nothing_has_handled_it() -> None:
    handled = []

    def handle(state: Log) -> None:
        handled.append(state)

    assert await failing(handle).ainvoke({"log": ["in"]}) == {"log": ["in"]}
    assert handled == [{"log": ["in"]}]


async def test_handlers_are_called_as_nodes_are_with_the_error_besides() -> None:
    seen: list[Any] = []

    async def by_name(state: Log, error: Any) -> None:
        seen.append(error.node)

    def by_annotation(state: Log, told: NodeError | None, runtime: Runtime[Any], config: Any) -> None:
        assert told is not None
        seen.append((told.node, config["metadata"]["everstep_node"], runtime.execution_info.node_attempt))

    async def alone(error: NodeError) -> None:
        seen.append(error.node)

    class AsObject:
        async def ainvoke(self, state: Log, config: Any) -> None:
            seen.append(sorted(state))

    for handler in (by_name, by_annotation, alone, AsObject()):
        await failing(handler).ainvoke({"log": []})
    assert seen == ["bad", ("bad", "__error_handler__bad", 1), "bad", ["log"]]


class Part(TypedDict):
    value: str


async def test_a_handler_is_given_what_the_node_was_given_and_not_what_the_node_made_of_it() -> None:
    seen: list[Any] = []

    async def spoil(state: Part) -> None:
        state["value"] = "spoilt"
        raise ValueError

    async def handle(state: Part) -> None:
        seen.append(state)

    builder = StateGraph(Log).add_node("bad", spoil, error_handler=handle).add_edge(START, "bad")
    await builder.compile().ainvoke({"log": [], "value": "v"})

    async def spoil_sent(state: Log) -> None:
        state["items"].append("spoilt")
        raise ValueError

    builder = StateGraph(Log).add_node("bad", spoil_sent, error_handler=handle)
    builder.add_conditional_edges(START, lambda state: [Send("bad", {"items": [n]}) for n in (1, 2)], ["bad"])
    await builder.compile().ainvoke({"log": []})
    assert seen == [{"value": "v"}, {"items": [1]}, {"items": [2]}]


async def test_a_handler_runs_when_the_retries_are_spent_and_not_before() -> None:
    handler = Handler()
    node = always(ConnectionError)
    policy = RetryPolicy(initial_interval=0, jitter=False, max_attempts=3)
    assert await failing(handler, node, retry_policy=policy).ainvoke({"log": []}) == {"log": ["handled"]}
    assert (node.attempts, [error.error.args for error in handler.seen]) == (3, [(2,)])
    recovers = Failing(ConnectionError())
    assert await failing(handler, recovers, retry_policy=policy).ainvoke({"log": []}) == {"log": [2, "after"]}
    assert len(handler.seen) == 1


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (lambda: Failing(asyncio.CancelledError()), NodeCancelledError),
        (lambda: Handler(returns={"lgo": []}), InvalidUpdateError),
        (lambda: Handler(returns=Command(goto="nowhere")), InvalidUpdateError),
    ],
)
async def test_every_error_of_a_node_is_handled(make: Any, kind: type[Exception]) -> None:
    handler = Handler()
    node = make()

    async def run(state: Log) -> Any:
        return await (node(state) if isinstance(node, Failing) else node(state, None))

    assert await failing(handler, run).ainvoke({"log": []}) == {"log": ["handled"]}
    assert [type(error.error) for error in handler.seen] == [kind]


async def test_a_timeout_is_handled() -> None:
    async def hang(state: Log) -> None:
        await asyncio.Event().wait()

    handler = Handler()
    assert await failing(handler, hang, timeout=0.01).ainvoke({"log": []}) == {"log": ["handled"]}
    assert [type(error.error) for error in handler.seen] == [NodeTimeoutError]


async def test_nothing_of_a_failed_node_is_written_when_its_route_fails() -> None:
    def route(state: Log) -> str:
        raise KeyError("route")

    builder = StateGraph(Log).add_node(*says("bad"), error_handler=Handler()).add_edge(START, "bad")
    builder.add_conditional_edges("bad", route, ["bad"])
    assert await builder.compile().ainvoke({"log": []}) == {"log": ["handled"]}


async def test_a_question_is_no_failure(saver: Any) -> None:
    async def ask(state: Log) -> Update:
        return {"log": [interrupt("q")]}

    handler = Handler()
    graph = failing(handler, ask, saver=saver)
    assert "__interrupt__" in await graph.ainvoke({"log": []}, thread())
    assert await graph.ainvoke(Command(resume="A"), thread()) == {"log": ["A", "after"]}
    assert handler.seen == []


async def test_a_cancelled_run_is_no_failure(saver: Any) -> None:
    entered = asyncio.Event()

    async def wait(state: Log) -> None:
        entered.set()
        await asyncio.Event().wait()

    handler = Handler()
    run = asyncio.create_task(failing(handler, wait, saver=saver).ainvoke({"log": []}, thread()))
    await entered.wait()
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert handler.seen == []


async def test_a_failure_with_a_handler_leaves_the_siblings_alone(saver: Any) -> None:
    handled = asyncio.Event()

    async def handle(state: Log) -> Update:
        handled.set()
        return {"log": ["handled"]}

    async def wait(state: Log) -> Update:
        await handled.wait()
        return {"log": ["sibling"]}

    graph = failing(handle, saver=saver, also=("sibling", wait))
    assert await graph.ainvoke({"log": []}, thread()) == {"log": ["handled", "sibling"]}


async def test_sent_tasks_are_handled_one_by_one_in_their_order() -> None:
    async def bad(state: Log) -> Update:
        if state["value"] % 2:
            raise ValueError(state["value"])
        return {"log": [state["value"]]}

    async def handle(state: Log, error: NodeError) -> Update:
        return {"log": [f"handled {error.error}"]}

    builder = StateGraph(Log).add_node(bad, error_handler=handle)
    builder.add_conditional_edges(START, lambda state: [Send("bad", {"value": n}) for n in range(4)], ["bad"])
    assert await builder.compile().ainvoke({"log": []}) == {"log": [0, "handled 1", 2, "handled 3"]}


async def test_a_handler_writes_to_the_containing_graph() -> None:
    handler = Handler(returns=Command(graph=Command.PARENT, update={"log": ["up"]}, goto="after"))
    inner = StateGraph(Log).add_node("bad", always(), error_handler=handler).add_edge(START, "bad").compile()
    builder = StateGraph(Log).add_node("inner", inner).add_node(*says("after")).add_edge(START, "inner")
    assert await builder.compile().ainvoke({"log": []}) == {"log": ["up", "after"]}


async def test_a_failing_subgraph_is_handled_by_its_nodes_handler(saver: Any) -> None:
    handler = Handler()
    inner = StateGraph(Log).add_node("bad", always()).add_edge(START, "bad").compile()
    builder = StateGraph(Log).add_node("inner", inner, error_handler=handler).add_edge(START, "inner")
    assert await builder.compile(saver).ainvoke({"log": ["in"]}, thread()) == {"log": ["in", "handled"]}
    assert [error.node for error in handler.seen] == ["inner"]


class Repair(TypedDict):
    value: str
    cost: int


async def test_a_compiled_graph_may_be_a_handler_with_a_state_of_its_own(saver: Any) -> None:
    asked = 0

    async def repair(state: Repair) -> dict[str, Any]:
        nonlocal asked
        asked += 1
        return {"value": f"{state['value']} {interrupt('how?')}", "cost": 3}

    inner = StateGraph(Repair).add_node(repair).add_edge(START, "repair").compile()
    node = always()
    graph = failing(inner, node, saver=saver)
    await graph.ainvoke({"log": [], "value": "repaired"}, thread())
    state = await graph.aget_state(thread(), subgraphs=True)
    handler = state.tasks[1]
    assert (handler.name, handler.state.values, handler.state.next) == (
        "__error_handler__bad",
        {"value": "repaired"},
        ("repair",),
    )
    assert (await graph.aget_state(handler.state.config)).next == ("repair",)
    result = await graph.ainvoke(Command(resume="well"), thread())
    assert result == {"log": [], "value": "repaired well"}
    assert (node.attempts, asked) == (1, 2)


async def late(state: Log) -> Update:
    return {"log": ["late"]}


@pytest.mark.parametrize("options", [{}, {"defer": True}], ids=str)
@pytest.mark.parametrize("is_late", [False, True])
async def test_a_join_does_not_wait_for_a_node_whose_failure_was_handled(
    is_late: bool, options: dict[str, Any], saver: Any
) -> None:
    builder = StateGraph(Log).add_node("bad", always(), error_handler=Handler()).add_node(*says("good"))
    builder.add_node(*says("after"), **options).add_edge(START, "bad").add_edge(START, "good")
    if is_late:
        builder.add_node(late).add_edge("good", "late")
    graph = builder.add_edge(["bad", "late" if is_late else "good"], "after").compile(saver)
    expected = ["handled", "good", *(["late"] if is_late else [])]
    for _ in range(2):
        assert await graph.ainvoke({"log": Overwrite([])}, thread()) == {"log": expected}
    assert (await saver.aget_thread("t")).status == "done"


async def test_a_handler_may_go_to_what_its_node_would_have_joined() -> None:
    handler = Handler(returns=Command(update={"log": ["handled"]}, goto="after"))
    builder = StateGraph(Log).add_node("bad", always(), error_handler=handler).add_node(*says("good"))
    builder.add_node(*says("after")).add_edge(START, "bad").add_edge(START, "good").add_edge(["bad", "good"], "after")
    assert await builder.compile().ainvoke({"log": []}) == {"log": ["handled", "good", "after"]}


async def test_a_join_is_complete_when_the_failed_node_comes_after_all() -> None:
    node = Failing(ValueError("once"))
    handler = Handler(returns=Command(goto="bad"))
    builder = StateGraph(Log).add_node("bad", node, error_handler=handler).add_node(*says("good")).add_node(late)
    builder.add_node(*says("after")).add_edge(START, "bad").add_edge(START, "good").add_edge("good", "late")
    graph = builder.add_edge(["bad", "late"], "after").compile()
    assert await graph.ainvoke({"log": []}) == {"log": ["good", 2, "late", "after"]}


async def test_a_join_that_waits_for_somebody_else_is_told() -> None:
    builder = StateGraph(Log).add_node("bad", always(), error_handler=Handler()).add_node(*says("good"))
    builder.add_node(*says("never")).add_node(*says("after")).add_edge(START, "bad").add_edge(START, "good")
    builder.add_conditional_edges("good", lambda state: "__end__", ["never", "__end__"])
    graph = builder.add_edge(["bad", "good", "never"], "after").compile()
    with pytest.raises(UnsatisfiedJoinError, match=r"waits for 'never', and nothing .* \('good' has come\)"):
        await graph.ainvoke({"log": []})


# Handlers that fail -----------------------------------------------------------------------------------------------


async def test_a_handler_that_fails_fails_the_run_and_is_tried_again_by_a_resume(saver: Any) -> None:
    node, handler = always(), Handler(KeyError("broken"))
    graph = failing(handler, node, saver=saver)
    with pytest.raises(KeyError, match="broken") as caught:
        await graph.ainvoke({"log": []}, thread())
    assert notes_of(caught.value) == ["in node '__error_handler__bad' (attempt 1, step 1, thread 't')"]
    state = await graph.aget_state(thread())
    assert state.next == ("__error_handler__bad",)
    assert [(task.name, task.error) for task in state.tasks] == [
        ("bad", "ValueError(0)"),
        ("__error_handler__bad", "KeyError('broken')"),
    ]
    assert await graph.ainvoke(None, thread()) == {"log": ["handled"]}
    assert (node.attempts, len(handler.seen)) == (1, 2)


async def test_a_handler_does_not_handle_itself() -> None:
    handler = Handler(KeyError("broken"))
    builder = StateGraph(Log).set_node_defaults(error_handler=handler).add_node("bad", always()).add_edge(START, "bad")
    with pytest.raises(KeyError, match="broken"):
        await builder.compile().ainvoke({"log": []})
    assert len(handler.seen) == 1


async def test_defaults_reach_handlers_and_a_node_goes_before_its_defaults() -> None:
    shared, own = Handler(ConnectionError(), ConnectionError()), Handler()
    builder = StateGraph(Log).set_node_defaults(error_handler=shared, retry_policy=AT_ONCE)
    builder.add_node("a", always()).add_node("b", always(), error_handler=own)
    builder.add_edge(START, "a").add_edge(START, "b")
    assert await builder.compile().ainvoke({"log": []}) == {"log": ["handled", "handled"]}
    assert [error.node for error in shared.seen] == ["a", "a", "a"]
    assert [error.node for error in own.seen] == ["b"]

    async def hang(state: Log) -> None:
        await asyncio.Event().wait()

    builder = StateGraph(Log).set_node_defaults(error_handler=hang, timeout=0.01)
    builder.add_node("a", always()).add_edge(START, "a")
    with pytest.raises(NodeTimeoutError) as caught:
        await builder.compile().ainvoke({"log": []})
    assert caught.value.node == "__default_error_handler__"


# Once for one failure (C03, C12) -----------------------------------------------------------------------------------


@pytest.mark.parametrize("durability", DURABILITIES)
async def test_a_handled_failure_is_not_handled_again_when_a_sibling_fails(durability: str, saver: Any) -> None:
    handler, node, handled = Handler(), always(), asyncio.Event()
    sibling = Failing(KeyError("b"))

    async def handle(state: Log, error: NodeError) -> Any:
        handled.set()
        return await handler(state, error)

    async def run_sibling(state: Log) -> Update:
        await handled.wait()
        await sibling(state)
        return {"log": ["b"]}

    graph = failing(handle, node, saver=saver, also=("b", run_sibling))
    with pytest.raises(KeyError, match="b"):
        await graph.ainvoke({"log": []}, thread(), durability=durability)
    state = await graph.aget_state(thread())
    assert (state.values, state.next) == ({"log": ["handled"]}, ("b",))
    assert await graph.ainvoke(None, thread(), durability=durability) == {"log": ["b", "handled"]}
    assert (len(handler.seen), node.attempts) == (1, 1)


@pytest.mark.parametrize("durability", DURABILITIES)
async def test_a_cancelled_handler_goes_on_without_its_node(durability: str, saver: Any) -> None:
    entered, node, is_up = asyncio.Event(), always(OwnError), False

    async def handle(state: Log, error: NodeError) -> Update:
        entered.set()
        if not is_up:
            await asyncio.Event().wait()
        return {"log": [type(error.error).__name__, str(error.error), notes_of(error.error)]}

    graph = failing(handle, node, saver=saver)
    run = asyncio.create_task(graph.ainvoke({"log": []}, thread(), durability=durability))
    await entered.wait()
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert (await graph.aget_state(thread())).next == ("__error_handler__bad",)
    is_up = True
    handled = await graph.ainvoke(None, thread(), durability=durability)
    assert handled == {
        "log": [
            "RestoredError",
            f"{__name__}.OwnError: 0",
            ["in node 'bad' (attempt 1, step 1, thread 't')"],
        ]
    }
    assert node.attempts == 1


async def test_a_handler_starts_when_the_failure_is_stored(saver: Any) -> None:
    for durability in ("sync", "async"):
        gate = Gate(3)
        handler = Handler()
        graph = failing(handler, saver=WatchedSaver(saver, before=gate))
        run = asyncio.create_task(graph.ainvoke({"log": []}, thread(durability), durability=durability))
        await gate.reached.wait()
        for _ in range(10):
            await asyncio.sleep(0)
        assert handler.seen == []
        gate.opened.set()
        assert await run == {"log": ["handled"]}


async def test_a_failure_that_cannot_be_stored_is_not_handled(saver: Any) -> None:
    async def refuse(number: int, commit: Any) -> None:
        if number >= 3:
            raise OSError("disk full")

    handler = Handler()
    with pytest.raises(OSError, match="disk full"):
        await failing(handler, saver=WatchedSaver(saver, before=refuse)).ainvoke({"log": []}, thread())
    assert handler.seen == []


def alone(handler: Any, saver: Any) -> Any:
    return StateGraph(Log).add_node("bad", always(), error_handler=handler).add_edge(START, "bad").compile(saver)


def beside_a_sibling(handler: Any, saver: Any) -> Any:
    builder = StateGraph(Log).add_node("bad", always(), error_handler=handler).add_node(*says("good"))
    return builder.add_edge(START, "bad").add_edge(START, "good").compile(saver)


def inside_a_subgraph(handler: Any, saver: Any) -> Any:
    builder = StateGraph(Log).add_node("inner", alone(handler, None)).add_node(*says("good"))
    return builder.add_edge(START, "inner").add_edge("inner", "good").compile(saver)


@pytest.mark.parametrize(
    "mode",
    ["ainvoke", "values", "updates", "custom", "tasks", "checkpoints", "debug", ["values", "updates", "tasks"]],
    ids=str,
)
@pytest.mark.parametrize("make", [alone, beside_a_sibling, inside_a_subgraph])
async def test_a_handled_error_stays_handled(make: Any, mode: Any, saver: Any) -> None:
    handler = Handler()
    graph = make(handler, saver)
    if mode == "ainvoke":
        await graph.ainvoke({"log": []}, thread())
    else:
        async for _ in graph.astream({"log": []}, thread(), stream_mode=mode):
            pass
    expected = ["handled"] if make is alone else ["good", "handled"]
    assert sorted((await graph.aget_state(thread())).values["log"]) == expected
    assert len(handler.seen) == 1
    assert (await saver.aget_thread("t")).status == "done"


async def test_streams_show_the_handler_in_the_place_of_the_node(saver: Any) -> None:
    graph = failing(Handler(), saver=saver)
    events = [event async for event in graph.astream({"log": []}, thread(), stream_mode=["updates", "values"])]
    assert events == [
        ("values", {"log": []}),
        ("updates", {"__error_handler__bad": {"log": ["handled"]}}),
        ("values", {"log": ["handled"]}),
    ]
    builder = StateGraph(Log).set_node_defaults(error_handler=Handler()).add_node("bad", always())
    graph = builder.add_edge(START, "bad").compile()
    events = [event async for event in graph.astream({"log": []})]
    assert events == [{"__default_error_handler__": {"log": ["handled"]}}]


async def test_the_failure_and_the_handler_are_tasks_in_streams_of_tasks(saver: Any) -> None:
    graph = failing(Handler(), saver=saver)
    events = [event async for event in graph.astream({"log": []}, thread(), stream_mode="tasks")]
    seen = [(event["name"], "input" in event, repr(event.get("error")), event.get("result")) for event in events]
    assert seen == [
        ("bad", True, "None", None),
        ("bad", False, "ValueError(0)", {}),
        ("__error_handler__bad", True, "None", None),
        ("__error_handler__bad", False, "None", {"log": ["handled"]}),
    ]
    assert [event["triggers"] for event in events if "input" in event] == [("branch:to:bad",), ()]


async def test_history_shows_the_failure_and_what_the_handler_did(saver: Any) -> None:
    graph = failing(Handler(), saver=saver)
    await graph.ainvoke({"log": []}, thread())
    before = (await history(graph, thread()))[1]
    assert before.next == ("bad",)
    (bad, handler) = before.tasks
    assert (bad.name, bad.error, bad.result) == ("bad", "ValueError(0)", None)
    assert (handler.name, handler.error, handler.result) == ("__error_handler__bad", None, {"log": ["handled"]})


# Questions of handlers, and branches ------------------------------------------------------------------------------


def asking(node: Any, saver: Any) -> Any:
    async def ask(state: Log, error: NodeError) -> Update:
        return {"log": [interrupt("what now?")]}

    return failing(ask, node, saver=saver)


async def test_a_handler_may_ask(saver: Any) -> None:
    node = always()
    graph = asking(node, saver)
    result = await graph.ainvoke({"log": []}, thread())
    assert [question.value for question in result["__interrupt__"]] == ["what now?"]
    state = await graph.aget_state(thread())
    assert state.next == ("__error_handler__bad",)
    assert [question.value for question in state.interrupts] == ["what now?"]
    assert await graph.ainvoke(Command(resume="A"), thread()) == {"log": ["A"]}
    assert node.attempts == 1


async def test_a_handlers_question_is_answered_anew_on_a_branch(saver: Any) -> None:
    node = always()
    graph = asking(node, saver)
    await graph.ainvoke({"log": []}, thread())
    asked = (await graph.aget_state(thread())).config
    await graph.ainvoke(Command(resume="A"), thread())
    assert await graph.ainvoke(Command(resume="B"), asked) == {"log": ["B"]}
    assert node.attempts == 1


async def test_a_handlers_question_stays_open_through_an_update_of_the_state(saver: Any) -> None:
    node = always()
    graph = asking(node, saver)
    await graph.ainvoke({"log": []}, thread())
    await graph.aupdate_state(thread(), {"log": ["update"]}, as_node=START)
    assert [question.value for question in (await graph.aget_state(thread())).interrupts] == ["what now?"]
    assert await graph.ainvoke(Command(resume="A"), thread()) == {"log": ["update", "A"]}
    assert node.attempts == 1


async def test_a_node_that_is_answered_anew_runs_again_though_its_failure_was_handled(saver: Any) -> None:
    async def ask_then_fail(state: Log) -> Update:
        if (answer := interrupt("q")) == "fail":
            raise ValueError(answer)
        return {"log": [answer]}

    handler = Handler()
    graph = failing(handler, ask_then_fail, saver=saver)
    await graph.ainvoke({"log": []}, thread())
    asked = (await graph.aget_state(thread())).config
    assert await graph.ainvoke(Command(resume="fail"), thread()) == {"log": ["handled"]}
    assert await graph.ainvoke(Command(resume="fine"), asked) == {"log": ["fine", "after"]}
    assert len(handler.seen) == 1


async def test_a_replay_runs_the_node_again(saver: Any) -> None:
    node, handler = Failing(ValueError("once")), Handler()
    graph = failing(handler, node, saver=saver)
    await graph.ainvoke({"log": []}, thread())
    before = (await history(graph, thread()))[1].config
    assert await graph.ainvoke(None, before) == {"log": [2, "after"]}
    assert (node.attempts, len(handler.seen)) == (2, 1)


async def test_a_node_whose_handler_is_gone_runs_again(saver: Any) -> None:
    node = Failing(ValueError("once"))
    with pytest.raises(KeyError):
        await failing(Handler(KeyError("broken")), node, saver=saver).ainvoke({"log": []}, thread())
    assert await failing(None, node, saver=saver).ainvoke(None, thread()) == {"log": [2, "after"]}


# Declaring ---------------------------------------------------------------------------------------------------------


def test_a_handler_that_cannot_be_called_is_refused() -> None:
    with pytest.raises(TypeError) as caught:
        StateGraph(Log).add_node(*says("a"), error_handler="mend")
    assert str(caught.value) == (
        "error handler of node 'a': expected a function, a callable object or an object with ainvoke(), got str 'mend'"
    )
    with pytest.raises(TypeError, match=r"^default error handler: expected a function"):
        StateGraph(Log).set_node_defaults(error_handler=3)


def test_where_a_handler_goes_is_checked_and_counts_as_a_way_there() -> None:
    async def mend(state: Log) -> Command[Literal["spare"]]:
        return Command(goto="spare")

    builder = StateGraph(Log).add_node(*says("bad"), error_handler=mend).add_edge(START, "bad")
    with pytest.raises(GraphBuildError, match="the error handler of node 'bad' declares the destination 'spare'"):
        builder.compile()
    builder.add_node(*says("spare")).compile()  # no warning that it can never run


async def test_error_is_no_special_name_in_other_nodes() -> None:
    async def takes_input_as(error: Any) -> Update:
        return {"log": [sorted(error)]}

    builder = StateGraph(Log).add_node("a", takes_input_as).add_edge(START, "a")
    assert await builder.compile().ainvoke({"log": []}) == {"log": [["log"]]}


def test_a_restored_error_is_one_of_ours() -> None:
    error = RestoredError("shop.Declined", "no funds")
    assert isinstance(error, EverstepError)
    assert (str(error), error.type_name, error.text) == ("shop.Declined: no funds", "shop.Declined", "no funds")

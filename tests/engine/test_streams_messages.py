"""Stream mode "messages": what models say in nodes, and messages that nodes return or push."""

from __future__ import annotations

import asyncio
import operator
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.language_models.fake_chat_models import FakeMessagesListChatModel, GenericFakeChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, RemoveMessage, ToolMessage
from langchain_core.runnables import RunnableConfig, RunnableLambda
from langchain_core.runnables.config import var_child_runnable_config
from langchain_core.tools import tool

from everstep.callbacks import GraphCallbackHandler
from everstep.constants import START
from everstep.errors import EverstepError, InvalidUpdateError
from everstep.graph.builder import StateGraph
from everstep.graph.compiled import CompiledStateGraph
from everstep.graph.functional import entrypoint, task
from everstep.graph.message import MessagesState, add_messages, push_message
from everstep.policies import CachePolicy
from everstep.stream.buffer import DEFAULT_SIZE
from everstep.types import Command, Send
from everstep_savers.cache import InMemoryCache
from tests.engine.graphs import AT_ONCE, Update, closing, thread
from tests.engine.streamed import events_before, events_of, turns

HI = {"messages": [HumanMessage("hi", id="h")]}


def streaming(text: str = "a b", name: str = "m") -> GenericFakeChatModel:
    """A model that says this word by word; the messages of its calls have the ids name-0, name-1, ..."""
    return GenericFakeChatModel(messages=iter([AIMessage(text, id=f"{name}-{number}") for number in range(9)]))


def whole(text: str = "a b") -> FakeMessagesListChatModel:
    """A model that cannot stream."""
    return FakeMessagesListChatModel(responses=[AIMessage(text, id="w")])


def asking(model: Any) -> Callable[[MessagesState], Awaitable[Update]]:
    """A node that asks a model, without passing it a config."""

    async def ask(state: MessagesState) -> Update:
        return {"messages": await model.ainvoke(state["messages"])}

    return ask


def graph_of(*nodes: Any, state: Any = MessagesState, saver: Any = None, cache: Any = None, **node: Any) -> Any:
    """Nodes one after the other, over messages."""
    builder = StateGraph(state).add_sequence(
        [("ask" if index == 0 else f"n{index}", n) for index, n in enumerate(nodes)]
    )
    builder.add_edge(START, "ask")
    for name in node:
        assert name in ("retry_policy", "cache_policy")
    if node:
        builder = StateGraph(state).add_node("ask", nodes[0], **node).add_edge(START, "ask")
    return builder.compile(saver, cache=cache)


def side_by_side(**nodes: Any) -> CompiledStateGraph:
    """Nodes in one superstep, over messages."""
    builder = StateGraph(MessagesState)
    for name, node in nodes.items():
        builder.add_node(name, node).add_edge(START, name)
    return builder.compile()


async def said(graph: Any, given: Any = None, config: Any = None, **options: Any) -> list[str]:
    """What each event says, in order."""
    events = await events_of(graph, HI if given is None else given, config, stream_mode="messages", **options)
    return [message.content for message, _ in events]


# Tokens --------------------------------------------------------------------------------------------------------------


def sync_node(model: Any) -> Callable[[MessagesState], Update]:
    def ask(state: MessagesState) -> Update:
        return {"messages": model.invoke(state["messages"])}

    return ask


@pytest.mark.parametrize("node", [asking, sync_node])
async def test_a_model_in_a_node_streams_its_tokens_though_nobody_gives_it_a_config(node: Any) -> None:
    assert await said(graph_of(node(streaming()))) == ["a", " ", "b"]


def test_stream_yields_what_astream_does() -> None:
    events = graph_of(asking(streaming())).stream(HI, stream_mode="messages")
    assert [message.content for message, _ in events] == ["a", " ", "b"]


async def test_a_model_that_is_given_the_nodes_config_streams_once() -> None:
    model = streaming()

    async def ask(state: MessagesState, config: RunnableConfig) -> Update:
        return {"messages": await model.ainvoke(state["messages"], config)}

    assert await said(graph_of(ask)) == ["a", " ", "b"]


async def test_a_model_in_a_chain_or_a_tool_of_a_node_is_heard_too() -> None:
    model, helper = streaming(), streaming("c", "t")

    @tool
    async def consult(question: str) -> str:
        """Ask somebody."""
        return str((await helper.ainvoke(question)).content)

    @tool
    def consult_in_thread(question: str) -> str:
        """Ask somebody, and block."""
        return str(helper.invoke(question).content)

    async def tools(state: MessagesState) -> None:
        await consult.ainvoke({"question": "?"})
        await consult_in_thread.ainvoke({"question": "?"})

    node = (
        RunnableLambda(lambda state: state["messages"]) | model | RunnableLambda(lambda answer: {"messages": [answer]})
    )
    assert await said(graph_of(node, tools)) == ["a", " ", "b", "c", "c"]


async def test_a_model_that_cannot_stream_is_heard_once_it_has_answered() -> None:
    assert await said(graph_of(asking(whole()))) == ["a b"]


async def test_a_model_whose_answer_no_node_returns_is_heard_too() -> None:
    model = whole()

    async def ask(state: MessagesState) -> None:
        await model.ainvoke("?")

    assert await said(graph_of(ask)) == ["a b"]


async def test_a_model_with_the_tag_nostream_is_not_heard_and_its_answer_told_when_the_node_returns_it() -> None:
    model = streaming().with_config(tags=["nostream"])
    answer = await said(graph_of(asking(model)))

    async def ask(state: MessagesState) -> None:
        await model.ainvoke("?")

    assert (answer, await said(graph_of(ask))) == (["a b"], [])


async def test_a_run_on_a_thread_of_its_own_that_a_node_starts_is_not_heard(saver: Any) -> None:
    other = graph_of(asking(streaming()), saver=saver)

    async def ask(state: MessagesState) -> None:
        await other.ainvoke(state, thread("other"))

    assert await said(graph_of(ask), config=thread()) == []


async def test_models_that_are_called_at_the_same_time_keep_their_own_order() -> None:
    graph = side_by_side(a=asking(streaming("a1 a2", "a")), b=asking(streaming("b1 b2", "b")))
    events = await events_of(graph, HI, stream_mode="messages")
    for name in ("a", "b"):
        told = [message.content for message, metadata in events if metadata["langgraph_node"] == name]
        assert told == [f"{name}1", " ", f"{name}2"]


async def test_tokens_come_before_what_the_node_returns_and_before_the_state() -> None:
    async def ask(state: MessagesState) -> Update:
        return {"messages": [await streaming().ainvoke("?"), AIMessage("c", id="c")]}

    events = await events_of(graph_of(ask), HI, stream_mode=["values", "updates", "messages"])
    assert [mode for mode, _ in events] == ["values", *["messages"] * 4, "updates", "values"]


# Metadata ------------------------------------------------------------------------------------------------------------


async def test_metadata_tell_where_a_token_comes_from(saver: Any) -> None:
    model = streaming("a").with_config(tags=["of model"], metadata={"model": 1})
    config = {**thread(), "tags": ["of run"], "metadata": {"run": 2}, "run_name": "name", "run_id": "7"}

    async def ask(state: MessagesState, config: RunnableConfig) -> Update:
        checkpoint_ns = config["configurable"]["checkpoint_ns"]
        assert not {"run_id", "run_name"} & set(config)
        answer = await model.ainvoke("?", {"tags": ["of call"], "metadata": {"call": 3}})
        return {"messages": [answer, AIMessage(checkpoint_ns, id="ns")]}

    (_, of_token), (ns, of_whole) = await events_of(graph_of(ask, saver=saver), HI, config, stream_mode="messages")
    place = {
        "langgraph_step": 1,
        "langgraph_node": "ask",
        "langgraph_triggers": ("branch:to:ask",),
        "langgraph_path": ("__pregel_pull", "ask"),
        "langgraph_checkpoint_ns": ns.content,
        "thread_id": "t",
    }
    assert of_whole == {**place, "run": 2, "ls_integration": "langgraph"}
    # What begins with "lc_" and "ls_" is LangChain's own.
    told = {key: value for key, value in of_token.items() if not key.startswith(("lc_", "ls_"))}
    asked = {"run": 2, "model": 1, "call": 3, "checkpoint_ns": ns.content, "tags": ["of run", "of call", "of model"]}
    assert told == {**place, **asked}


async def test_metadata_of_a_node_are_those_of_its_models_and_messages_too() -> None:
    async def ask(state: MessagesState, config: RunnableConfig) -> Update:
        answer = await streaming("a").ainvoke("?")
        return {"messages": [answer, AIMessage(str(config["metadata"]["by"]), id="m")]}

    builder = StateGraph(MessagesState).add_node(ask, metadata={"by": "node"}).add_edge(START, "ask")
    events = await events_of(builder.compile(), HI, {"metadata": {"by": "run"}}, stream_mode="messages")
    assert [(message.content, metadata["by"]) for message, metadata in events] == [("a", "node"), ("node", "node")]


async def test_metadata_of_one_event_are_its_readers_to_change() -> None:
    events = await events_of(graph_of(asking(streaming())), HI, stream_mode="messages")
    assert [metadata.pop("langgraph_node") for _, metadata in events] == ["ask"] * 3


async def test_what_a_failed_attempt_has_said_can_be_told_apart_and_is_told_again() -> None:
    model, attempts = streaming("a"), 0

    async def ask(state: MessagesState) -> Update:
        nonlocal attempts
        attempts += 1
        answers = [await model.ainvoke("?"), await whole().ainvoke("?")]
        if attempts == 1:
            raise ConnectionError
        return {"messages": [*answers, AIMessage("made", id="made")]}

    graph = graph_of(ask, retry_policy=AT_ONCE)
    events = await events_of(graph, HI, stream_mode="messages", version="v2")
    told = [
        (part["data"][0].content, part["data"][1].get("everstep_attempts"), part.get("attempts")) for part in events
    ]
    second = [(text, (2,), (2,)) for text in ("a", "a b", "made")]
    assert told == [("a", None, None), ("a b", None, None), *second]


async def test_in_a_subgraph_the_attempts_of_the_node_above_tell_too() -> None:
    inner, attempts = graph_of(asking(streaming("a"))), 0

    async def call(state: MessagesState) -> None:
        nonlocal attempts
        attempts += 1
        await inner.ainvoke(state)
        if attempts == 1:
            raise ConnectionError

    graph = graph_of(call, retry_policy=AT_ONCE)
    events = await events_of(graph, HI, stream_mode="messages", subgraphs=True)
    assert [metadata.get("everstep_attempts") for _, (_, metadata) in events] == [None, (2, 1)]


async def test_what_a_model_said_before_its_node_failed_is_yielded_before_the_error() -> None:
    async def ask(state: MessagesState) -> None:
        await streaming().ainvoke("?")
        raise LookupError

    events = await events_before(LookupError, graph_of(ask), HI, stream_mode="messages")
    assert [message.content for message, _ in events] == ["a", " ", "b"]


# Whole messages ------------------------------------------------------------------------------------------------------


class Mixed(TypedDict, total=False):
    """Messages under several keys."""

    messages: Annotated[list[Any], add_messages]
    one: Any
    several: Annotated[list[Any], operator.add]
    nested: Any


async def test_messages_that_a_node_returns_are_told_once_whatever_their_key() -> None:
    async def make(state: Mixed) -> Update:
        answer = AIMessage("a", id="a")
        return {
            "messages": [answer, ToolMessage("tool", tool_call_id="1", id="t"), ("ai", "no message yet"), answer],
            "one": AIMessage("one", id="1"),
            "several": [AIMessage("in a list", id="l"), answer, "text"],
            "nested": {"deep": AIMessage("in a dict", id="d")},
        }

    async def repeat(state: Mixed) -> Update:
        return {"messages": [*state["messages"], AIMessage("changed", id="a"), AIMessage("new", id="n")]}

    assert await said(graph_of(make, repeat, state=Mixed)) == ["a", "tool", "one", "in a list", "new"]


async def test_messages_of_commands_and_of_nodes_that_were_sent_something_are_told() -> None:
    async def route(state: MessagesState) -> Command[Any]:
        sends = [Send("work", {"messages": [HumanMessage(text, id=text)]}) for text in ("x", "y")]
        return Command(update={"messages": [AIMessage("routed", id="r")]}, goto=sends)

    async def work(state: MessagesState) -> Update:
        (sent,) = state["messages"]
        return {"messages": [sent, AIMessage(f"did {sent.content}", id=f"did {sent.id}")]}

    builder = StateGraph(MessagesState).add_node(route, destinations=("work",)).add_node(work)
    assert await said(builder.add_edge(START, "route").compile()) == ["routed", "did x", "did y"]


async def test_a_message_without_an_id_is_stored_with_the_id_under_which_it_was_told(saver: Any) -> None:
    async def make(state: MessagesState) -> Update:
        return {"messages": [AIMessage("a")]}

    graph = graph_of(make, saver=saver)
    ((message, _),) = await events_of(graph, HI, thread(), stream_mode="messages")
    stored = (await graph.aget_state(thread())).values["messages"]
    assert message.id is not None
    assert [each.id for each in stored] == ["h", message.id]


async def test_what_was_in_the_state_of_the_thread_before_is_not_told(saver: Any) -> None:
    async def repeat(state: MessagesState) -> Update:
        return {"messages": [*state["messages"], AIMessage("new", id=f"n{len(state['messages'])}")]}

    graph = graph_of(repeat, saver=saver)
    assert await said(graph, HI, thread()) == ["new"]
    assert await said(graph, {"messages": [HumanMessage("again", id="h2")]}, thread()) == ["new"]


async def test_a_message_that_removes_one_of_the_input_is_not_told() -> None:
    async def remove(state: MessagesState) -> Update:
        return {"messages": [RemoveMessage(id="h")]}

    assert await said(graph_of(remove)) == []


async def test_the_result_of_a_cached_node_is_told_when_the_node_runs() -> None:
    async def make(state: MessagesState) -> Update:
        return {"messages": [AIMessage("a", id="a")]}

    graph = graph_of(make, cache_policy=CachePolicy(), cache=InMemoryCache())
    assert [await said(graph), await said(graph)] == [["a"], []]


async def test_messages_of_an_entrypoint_and_its_tasks_are_told_with_their_places() -> None:
    model = streaming("a")

    @task
    async def ask(text: str) -> BaseMessage:
        return await model.ainvoke(text)

    @task
    def make(text: str) -> list[BaseMessage]:
        return [AIMessage(text, id="made")]

    @entrypoint()
    async def flow(text: str) -> Any:
        return {"asked": await ask(text), "made": await make("b"), "last": AIMessage("c", id="c")}

    events = await events_of(flow, "?", stream_mode="messages")
    told = [(message.content, metadata["langgraph_node"], metadata["langgraph_step"]) for message, metadata in events]
    assert told == [("a", "ask", 0), ("b", "make", 0), ("c", "flow", 0)]


# Subgraphs -----------------------------------------------------------------------------------------------------------


def outer(*, called: bool) -> tuple[CompiledStateGraph, list[Any]]:
    """A graph whose node is a subgraph, or calls one with its config; and the configs that the node had."""

    async def make(state: MessagesState) -> Update:
        return {"messages": [AIMessage("made", id="made")]}

    inner, configs = graph_of(asking(streaming()), make), []

    async def call(state: MessagesState, config: RunnableConfig) -> Any:
        configs.append(config)
        return await (inner.ainvoke(state, config) if len(configs) > 1 else inner.ainvoke(state))

    return graph_of(call if called else inner), configs


@pytest.mark.parametrize("called", [False, True])
async def test_with_subgraphs_their_messages_come_with_their_namespace_and_are_not_told_again(called: bool) -> None:
    graph, _ = outer(called=called)
    for _ in range(2):  # called without the node's config, and with it
        events = await events_of(graph, HI, stream_mode="messages", subgraphs=True)
        assert [message.content for _, (message, _) in events] == ["a", " ", "b", "made"]
        for ns, (_, metadata) in events:
            assert [level.split(":")[0] for level in ns] == ["ask"]
            assert metadata["langgraph_checkpoint_ns"].split("|")[0] == ns[0]


@pytest.mark.parametrize("called", [False, True])
async def test_without_subgraphs_their_messages_are_told_whole_when_the_node_returns_them(called: bool) -> None:
    graph, _ = outer(called=called)
    for _ in range(2):
        events = await events_of(graph, HI, stream_mode="messages")
        assert [message.content for message, _ in events] == ["a b", "made"]
        assert [metadata["langgraph_node"] for _, metadata in events] == ["ask"] * 2


async def test_whoever_listens_to_a_node_is_not_passed_on_to_a_subgraph_with_its_config() -> None:
    handlers: list[Any] = []

    async def look(state: MessagesState, config: Any) -> None:
        handlers.append(config["callbacks"].handlers)

    inner = graph_of(look)

    async def call(state: MessagesState, config: RunnableConfig) -> None:
        await inner.ainvoke(state, config)

    recorder = Recorder()
    await events_of(graph_of(call), HI, {"callbacks": [recorder]}, stream_mode="messages")
    assert handlers == [[recorder]]


@pytest.mark.parametrize("subgraphs", [False, True])
async def test_a_node_reads_the_messages_of_its_subgraph(subgraphs: bool) -> None:
    inner = graph_of(asking(streaming()))

    async def call(state: MessagesState, config: RunnableConfig) -> Update:
        read = [message.content async for message, _ in inner.astream(state, config, stream_mode="messages")]
        return {"messages": [AIMessage("|".join(read), id="read")]}

    events = await events_of(graph_of(call), HI, stream_mode="messages", version="v2", subgraphs=subgraphs)
    inside = [part["data"][0].content for part in events if part["ns"]]
    assert inside == (["a", " ", "b"] if subgraphs else [])
    assert [part["data"][0].content for part in events if not part["ns"]] == ["a| |b"]


# Pushed messages -----------------------------------------------------------------------------------------------------


async def test_a_pushed_message_is_told_at_once_and_written_before_what_the_node_returns(saver: Any) -> None:
    async def push(state: MessagesState) -> Update:
        first = push_message(AIMessage("first", id="p"))
        push_message({"role": "ai", "content": "shown only", "id": "s"}, state_key=None)
        return {"messages": [AIMessage("returned", id="r"), first]}

    graph = graph_of(push, saver=saver)
    assert await said(graph, HI, thread()) == ["first", "shown only", "returned"]
    stored = (await graph.aget_state(thread())).values["messages"]
    assert [message.content for message in stored] == ["hi", "first", "returned"]


def test_a_sync_node_pushes_too_and_whoever_reads_nothing_gets_the_state() -> None:
    def push(state: MessagesState) -> None:
        push_message(AIMessage("a", id="p"))
        push_message(AIMessage("b", id="p"))

    assert [message.content for message in graph_of(push).invoke(HI)["messages"]] == ["hi", "b"]


async def test_what_a_failed_attempt_has_pushed_is_not_written() -> None:
    attempts = 0

    async def push(state: MessagesState) -> None:
        nonlocal attempts
        attempts += 1
        push_message(AIMessage(f"try {attempts}", id=f"p{attempts}"))
        if attempts == 1:
            raise ConnectionError

    result = await graph_of(push, retry_policy=AT_ONCE).ainvoke(HI)
    assert [message.content for message in result["messages"]] == ["hi", "try 2"]


async def test_a_node_that_pushes_is_not_cached() -> None:
    async def push(state: MessagesState) -> None:
        push_message(AIMessage("a", id="p"))

    graph = graph_of(push, cache_policy=CachePolicy(), cache=InMemoryCache())
    assert [await said(graph), await said(graph)] == [["a"], ["a"]]


PUSHED = AIMessage("a", id="p")


@pytest.mark.parametrize(
    ("message", "key", "error", "text"),
    [
        (
            ("ai", "a"),
            "messages",
            ValueError,
            "Message ID is required: push_message got ('ai', 'a'), which has none; pass id=",
        ),
        (
            PUSHED,
            "mesages",
            InvalidUpdateError,
            (
                "node 'ask' pushed a message to key 'mesages', which is in no schema of this graph. Did you mean "
                "'messages'? state_key= names another one; with None the message is streamed alone."
            ),
        ),
    ],
)
async def test_what_cannot_be_pushed_fails_the_node(message: Any, key: str, error: Any, text: str) -> None:
    async def push(state: MessagesState) -> None:
        push_message(message, state_key=key)

    with pytest.raises(error) as raised:
        await graph_of(push).ainvoke(HI)
    assert str(raised.value) == text


async def test_a_task_call_pushes_to_readers_alone() -> None:
    @task
    async def push(key: str | None) -> None:
        push_message(PUSHED, state_key=key)

    @entrypoint()
    async def flow(key: str) -> None:
        await push(key or None)

    assert await said(flow, "") == ["a"]
    with pytest.raises(EverstepError) as raised:
        await flow.ainvoke("messages")
    assert str(raised.value) == (
        "task 'push' pushed a message to key 'messages'; a call that is not run again would not push it again: push it "
        "in the node, or return it, or pass state_key=None to stream it alone"
    )


def test_nothing_can_be_pushed_outside_of_a_node() -> None:
    with pytest.raises(EverstepError) as raised:
        push_message(PUSHED)
    assert str(raised.value) == (
        "push_message() was called outside of a node; call it in a node, or in a function that a node calls"
    )


# Callbacks and context -----------------------------------------------------------------------------------------------


class Recorder(BaseCallbackHandler):
    """Notes what models tell."""

    def __init__(self) -> None:
        self.told: list[Any] = []

    def on_chat_model_start(
        self, serialized: Any, messages: Any, *, tags: Any = None, metadata: Any = None, **_: Any
    ) -> None:
        self.told.append((metadata["langgraph_node"], metadata["langgraph_step"], tags))

    def on_llm_end(self, response: Any, **_: Any) -> None:
        self.told.append(response.generations[0][0].text)


class Lifecycle(GraphCallbackHandler):
    """Notes which runs end."""

    def __init__(self) -> None:
        self.ended: list[int] = []

    def on_run_end(self, event: Any) -> None:
        self.ended.append(len(event.checkpoint_ns))


@pytest.mark.parametrize("called", [False, True])
@pytest.mark.parametrize("mode", ["values", "messages"])
async def test_callbacks_of_the_call_reach_models_in_nodes_tasks_and_subgraphs(called: bool, mode: str) -> None:
    inner, _ = outer(called=called)
    model, recorder, lifecycle = streaming("t"), Recorder(), Lifecycle()

    @task
    def ask(text: str) -> str:
        return str(model.invoke(text).content)

    def call(state: MessagesState) -> None:
        ask("?").result()

    graph = graph_of(inner, call)
    config = {"callbacks": [recorder, lifecycle], "tags": ["x"]}
    for _ in range(2):
        await events_of(graph, HI, config, stream_mode=mode)
    assert recorder.told == [("ask", 1, ["x"]), "a b", ("ask", 2, ["x"]), "t"] * 2
    assert lifecycle.ended == [2, 1, 0] * 2


async def test_a_tool_in_a_node_finds_the_config_of_the_run(saver: Any) -> None:
    @tool
    async def where(text: str, config: RunnableConfig) -> str:
        """Tell where this is."""
        return f"{config['configurable']['thread_id']} {config['configurable']['user']}"

    async def call(state: MessagesState) -> Update:
        return {"messages": [AIMessage(await where.ainvoke({"text": "?"}), id="a")]}

    result = await graph_of(call, saver=saver).ainvoke(HI, thread(user="u"))
    assert result["messages"][-1].content == "t u"


@pytest.mark.parametrize("fails", [False, True])
async def test_nothing_of_a_run_is_left_in_the_context_of_its_caller(fails: bool) -> None:
    async def ask(state: MessagesState) -> None:
        assert var_child_runnable_config.get() is not None
        if fails:
            raise LookupError

    try:
        await events_of(graph_of(ask), HI, {"tags": ["x"]}, stream_mode="messages")
    except LookupError:
        assert fails
    assert var_child_runnable_config.get() is None


async def test_a_run_with_nothing_to_pass_on_makes_no_config() -> None:
    async def ask(state: MessagesState) -> None:
        assert var_child_runnable_config.get() is None

    await events_of(graph_of(ask), HI, stream_mode="updates")


def test_a_run_that_nobody_reads_messages_of_does_not_load_langchain() -> None:
    program = """
        import sys
        from typing import TypedDict
        from everstep import START, StateGraph
        from everstep_savers import InMemorySaver

        class State(TypedDict):
            n: int

        graph = StateGraph(State).add_node("add", lambda s: {"n": 2}).add_edge(START, "add").compile(InMemorySaver())
        config = {"configurable": {"thread_id": "t", "user": "u"}, "tags": ["x"], "callbacks": [], "metadata": {"a": 1}}
        modes = ["values", "updates", "custom", "tasks", "checkpoints", "debug"]
        assert {mode for mode, _ in graph.stream({"n": 1}, config, stream_mode=modes)} == {*modes} - {"custom"}
        assert not [name for name in sys.modules if name.startswith("langchain")]
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(program)], check=True)


# Slow readers, and readers that leave ---------------------------------------------------------------------------------


class Talker(GenericFakeChatModel):
    """Says one word again and again, and counts."""

    count: list[int]
    total: int = 2_000

    def _stream(self, *args: Any, **kwargs: Any) -> Any:
        for chunk in super()._stream(*args, **kwargs):
            for _ in range(self.total):
                self.count[0] += 1
                yield chunk.model_copy(deep=True)

    async def _astream(self, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        for chunk in self._stream(*args, **kwargs):
            yield chunk


def talker(total: int = 2_000) -> Talker:
    return Talker(messages=iter([AIMessage("x", id="m")] * 9), count=[0], total=total)


async def gathered(model: Any, state: Any) -> None:
    """Awaits the model in a task of its own: the node itself is not asked to wait."""
    await asyncio.gather(model.ainvoke("?"))


async def in_place(model: Any, state: Any) -> None:
    await model.ainvoke("?")


async def in_tool(model: Any, state: Any) -> None:
    @tool
    def ask(text: str) -> None:
        """Ask, in a thread of LangChain's."""
        model.invoke(text)

    await ask.ainvoke({"text": "?"})


def in_thread(model: Any, state: Any) -> None:
    model.invoke("?")


@pytest.mark.parametrize("way", [in_place, gathered, in_tool, in_thread])
async def test_a_model_never_gets_further_ahead_of_its_reader_than_the_buffer_holds(way: Any) -> None:
    model, read, most = talker(), 0, 0

    async def ask(state: MessagesState) -> None:
        await way(model, state)

    def ask_in_thread(state: MessagesState) -> None:
        way(model, state)

    async for _ in graph_of(ask_in_thread if way is in_thread else ask).astream(HI, stream_mode="messages"):
        read += 1
        most = max(most, model.count[0] - read)
        await turns(3)  # slower than the model
    assert (model.count[0], read) == (2_000, 2_000)
    assert most <= DEFAULT_SIZE + 1


async def test_an_async_node_that_blocks_the_loop_with_models_in_threads_is_not_stuck() -> None:
    model = talker(3 * DEFAULT_SIZE)

    async def ask(state: MessagesState) -> None:
        model.batch(["?", "?"])  # the loop stands still until they have ended
        model.invoke("?")

    assert len(await said(graph_of(ask))) == 9 * DEFAULT_SIZE


async def test_leaving_the_stream_ends_the_model_and_leaves_nothing_behind() -> None:
    model = talker(10**9)
    before = asyncio.all_tasks()
    async with closing(graph_of(asking(model)).astream(HI, stream_mode="messages")) as events:
        await anext(events)
    assert asyncio.all_tasks() == before
    assert model.count[0] <= DEFAULT_SIZE + 2


async def test_a_model_that_is_called_with_the_config_of_a_node_that_has_ended_is_not_heard() -> None:
    configs: list[Any] = []

    async def end(state: MessagesState, config: RunnableConfig) -> None:
        configs.append(config)

    async def go_on(state: MessagesState) -> None:
        await streaming("in time").ainvoke("?")
        await is_read.wait()

    events, is_read = [], asyncio.Event()
    async with closing(graph_of(end, go_on).astream(HI, stream_mode="messages")) as stream:
        events.append(await anext(stream))
        await streaming("late", "x").ainvoke("?", configs[0])
        is_read.set()
        events += [event async for event in stream]
    assert [message.content for message, _ in events] == ["in", " ", "time"]


# Forms ---------------------------------------------------------------------------------------------------------------


async def test_v2_yields_typed_parts() -> None:
    parts = await events_of(graph_of(asking(streaming("a"))), HI, stream_mode="messages", version="v2")
    assert [(part["type"], part["ns"], part["data"][0].content, len(part)) for part in parts] == [
        ("messages", (), "a", 3)
    ]


async def test_print_mode_prints_messages(capsys: pytest.CaptureFixture[str]) -> None:
    graph = graph_of(asking(streaming("a")))
    events = await events_of(graph, HI, stream_mode="updates", print_mode="messages")
    assert [list(event) for event in events] == [["ask"]]
    assert capsys.readouterr().out.startswith("[messages] (AIMessageChunk(content='a', ")
    await graph.ainvoke(HI, print_mode="messages")
    assert capsys.readouterr().out.startswith("[messages] (AIMessageChunk(content='a', ")


@pytest.mark.parametrize("options", [{"stream_mode": ["updates", "messages"]}, {"print_mode": "messages"}])
async def test_without_langchain_the_mode_says_what_to_install(options: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "langchain_core", None)
    monkeypatch.setitem(sys.modules, "langchain_core.callbacks", None)
    with pytest.raises(ImportError) as raised:
        await events_of(graph_of(asking(None)), {}, **options)
    assert str(raised.value) == "stream mode 'messages' needs langchain-core: pip install 'everstep[langchain]'"

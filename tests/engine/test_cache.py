"""Cache policies: which tasks take a result that is there, which wait for one, and what is kept."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypedDict

import pytest

from everstep.constants import END, START
from everstep.context import interrupt
from everstep.errors import CodecError, ConfigError, InvalidUpdateError
from everstep.graph.builder import StateGraph
from everstep.policies import CachePolicy, RetryPolicy
from everstep.types import Command, Send
from everstep_savers.cache import BaseCache, FullKey, InMemoryCache
from everstep_savers.codec import Codec
from everstep_savers.memory import InMemorySaver
from everstep_savers.sql.cache import SQLCache
from tests.engine.graphs import AT_ONCE, Log, Update, chain, notes_of, side_by_side, thread

CACHED = {"cache_policy": CachePolicy()}


class Body:
    """An async node that logs its value, counts its calls and can be held up."""

    def __init__(self, name: str = "body") -> None:
        self.__name__ = name
        self.calls = 0
        self.entered = asyncio.Event()
        self.held: asyncio.Event | None = None
        self.failures: list[Exception] = []

    async def __call__(self, state: Log) -> Update:
        self.calls += 1
        self.entered.set()
        if self.held is not None:
            await self.held.wait()
        if self.failures:
            raise self.failures.pop(0)
        return {"log": [state.get("value")]}

    def let_go(self) -> None:
        """Hold it up no longer."""
        assert self.held is not None
        self.held.set()


@dataclass
class Note:
    """A class that no codec knows by itself."""

    text: str


class Noted(TypedDict):
    """A state with such a class in it."""

    note: Note


def cached(body: Any, **options: Any) -> Any:
    """A graph of one node whose results are kept in memory."""
    return chain(body, node=CACHED, cache=InMemoryCache(), **options)


async def entered_and_held() -> tuple[Body, Any, asyncio.Task[Any]]:
    """A node that is held up in its body, its graph, and the run in which it is."""
    body = Body()
    body.held = asyncio.Event()
    graph = cached(body)
    first = asyncio.create_task(graph.ainvoke({"value": 1}))
    await body.entered.wait()
    return body, graph, first


async def waits_for(graph: Any) -> asyncio.Task[Any]:
    """A run that waits for an equal task of another run."""
    second = asyncio.create_task(graph.ainvoke({"value": 1}))
    await asyncio.sleep(0)
    return second


async def who(state: Log) -> Update:
    return {"log": [interrupt("who?")]}


def as_node(graph: Any) -> tuple[str, Any]:
    """A graph as a node."""
    return "inner", graph


@pytest.fixture(params=["memory", "sqlite", "postgres"])
async def cache(request: pytest.FixtureRequest) -> AsyncIterator[BaseCache[Any]]:
    """An open cache of each kind in turn."""
    if request.param == "memory":
        yield InMemoryCache()
        return
    found: SQLCache[Any] = SQLCache.from_url(request.getfixturevalue(f"{request.param}_url"))
    async with found:
        yield found


async def updates(graph: Any, value: Any, **options: Any) -> list[Any]:
    """The events of stream mode "updates"."""
    return [event async for event in graph.astream(value, stream_mode="updates", **options)]


async def test_an_equal_input_takes_the_kept_result(cache: BaseCache[Any]) -> None:
    body = Body()
    graph = chain(body, node=CACHED, cache=cache)

    assert await updates(graph, {"value": 1}) == [{"body": {"log": [1]}}]
    assert await updates(graph, {"value": 1}) == [{"body": {"log": [1]}, "__metadata__": {"cached": True}}]
    assert await graph.ainvoke({"value": 1}) == {"log": [1], "value": 1}
    assert body.calls == 1
    assert await graph.ainvoke({"value": 2}) == {"log": [2], "value": 2}
    assert body.calls == 2


async def test_mode_tasks_shows_that_a_task_began_and_no_end_of_what_did_not_run() -> None:
    graph = cached(Body())

    first, second = [[event async for event in graph.astream({"value": 1}, stream_mode="tasks")] for _ in range(2)]

    assert [set(event) - {"id", "name"} for event in first] == [
        {"input", "triggers"},
        {"error", "result", "interrupts"},
    ]
    assert [(event["name"], event["input"]) for event in second] == [("body", {"value": 1, "log": []})]


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        ({"a": 1, "b": {2, 3}}, {"b": {3, 2}, "a": 1}, True),
        ([1, {"x": (1, 2)}], [1, {"x": (1, 2)}], True),
        (1, True, False),
        (1, 1.0, False),
        ([1, 2], (1, 2), False),
        ({1, 2}, frozenset({1, 2}), False),
        ([], {}, False),
        (["a", "b"], ["ab"], False),
        ([["a"], "b"], ["a", ["b"]], False),
        ("1", 1, False),
        (None, "", False),
        (b"a", "a", False),
    ],
)
async def test_which_inputs_are_equal(one: Any, other: Any, is_same: bool) -> None:
    body = Body()
    graph = cached(body)

    await graph.ainvoke({"value": one})
    await graph.ainvoke({"value": other})

    assert body.calls == (1 if is_same else 2)


async def test_a_key_function_says_what_counts() -> None:
    body = Body()
    policy = CachePolicy(key_func=lambda state: state["value"] % 2)
    graph = chain(body, node={"cache_policy": policy}, cache=InMemoryCache())

    assert [(await graph.ainvoke({"value": n}))["log"] for n in range(4)] == [[0], [1], [0], [1]]


async def test_a_key_function_is_given_what_the_node_is_given() -> None:
    @dataclass
    class State:
        value: int = 0
        result: int = 0

    seen = []

    async def double(state: State) -> Update:
        return {"result": state.value * 2}

    def key_of(state: State) -> int:
        seen.append(type(state))
        return state.value

    builder = StateGraph(State).add_node(double, cache_policy=CachePolicy(key_func=key_of))
    graph = builder.add_edge(START, "double").compile(cache=InMemoryCache())

    await graph.ainvoke({"value": 1})
    assert (await graph.ainvoke({"value": 1}))["result"] == 2
    assert seen == [State, State]


async def test_a_result_is_kept_for_its_time() -> None:
    class Clock:
        now = 1_000.0

        def __call__(self) -> float:
            return self.now

    clock, body = Clock(), Body()
    graph = chain(body, node={"cache_policy": CachePolicy(ttl=10)}, cache=InMemoryCache(clock=clock))
    for moved, calls in ((0, 1), (9, 1), (1, 2), (9, 2)):
        clock.now += moved
        await graph.ainvoke({"value": 1})
        assert body.calls == calls


@pytest.mark.parametrize("ttl", [0, -1])
async def test_a_time_of_nothing_keeps_nothing(ttl: int) -> None:
    body = Body()
    graph = chain(body, node={"cache_policy": CachePolicy(ttl=ttl)}, cache=InMemoryCache())

    await asyncio.gather(graph.ainvoke({"value": 1}), graph.ainvoke({"value": 1}))

    assert body.calls == 2


async def test_without_a_cache_or_a_policy_nothing_is_kept() -> None:
    body = Body()
    for graph in (chain(body, node=CACHED), chain(body, cache=InMemoryCache())):
        await graph.ainvoke({"value": 1})
        await graph.ainvoke({"value": 1})

    assert body.calls == 4


async def test_the_defaults_of_a_graph_reach_nodes_without_a_policy() -> None:
    one, other = Body("one"), Body("other")
    builder = StateGraph(Log).add_node("one", one).add_node("other", other, cache_policy=CachePolicy(ttl=0))
    builder.add_edge(START, "one").add_edge(START, "other").set_node_defaults(cache_policy=CachePolicy())
    graph = builder.compile(cache=InMemoryCache())

    await graph.ainvoke({"value": 1})
    await graph.ainvoke({"value": 1})

    assert (one.calls, other.calls) == (1, 2)


async def test_nodes_do_not_take_each_others_results() -> None:
    one, other = Body("one"), Body("other")
    cache: InMemoryCache[Any] = InMemoryCache()
    for graph in (
        side_by_side(("one", one), ("other", other), node=CACHED, cache=cache),
        side_by_side(("one", other), node=CACHED, cache=cache, name="another graph"),
    ):
        await graph.ainvoke({"value": 1})

    assert (one.calls, other.calls) == (1, 2)


async def test_a_sync_node_is_kept_as_well() -> None:
    calls = []

    def body(state: Log) -> Update:
        calls.append(1)
        return {"log": ["sync"]}

    graph = cached(body)
    await graph.ainvoke({"value": 1})

    assert (await graph.ainvoke({"value": 1}))["log"] == ["sync"]
    assert len(calls) == 1


def test_a_script_caches_and_clears() -> None:
    calls = []

    def body(state: Log) -> Update:
        calls.append(1)
        return {"log": ["sync"]}

    graph = cached(body)
    graph.invoke({"value": 1})
    graph.invoke({"value": 1})
    graph.clear_cache()
    graph.invoke({"value": 1})

    assert len(calls) == 2


async def test_nodes_are_cleared_one_by_one_or_all_together(cache: BaseCache[Any]) -> None:
    one, other = Body("one"), Body("other")
    graph = chain(one, other, node=CACHED, cache=cache)
    for cleared, calls in ((["one"], (2, 1)), (None, (3, 2)), ([], (3, 2))):
        await graph.ainvoke({"value": 1})
        await graph.aclear_cache(cleared)
        await graph.ainvoke({"value": 1})
        # The input of the second node is the state, with what the first one logged: it is the same again.
        assert (one.calls, other.calls) == calls


async def test_clearing_what_is_not_there_is_an_error() -> None:
    with pytest.raises(ConfigError) as caught:
        await chain(Body("body")).aclear_cache()
    assert str(caught.value) == "the graph has no cache to clear; compile it with cache="

    with pytest.raises(ConfigError) as caught:
        await chain(Body("body"), cache=InMemoryCache()).aclear_cache(["bodi"])
    assert str(caught.value) == "'bodi' is not a node of graph 'graph'. Did you mean 'body'?"


async def test_equal_tasks_of_one_step_run_once(cache: BaseCache[Any]) -> None:
    body = Body()
    builder = StateGraph(Log).add_node("body", body, cache_policy=CachePolicy())
    builder.add_conditional_edges(START, lambda state: [Send("body", {"value": n % 3}) for n in range(30)])
    graph = builder.compile(cache=cache)

    shown = await updates(graph, {"value": 0})

    assert body.calls == 3
    assert [event["body"]["log"] for event in shown].count([0]) == 10
    assert sum("__metadata__" in event for event in shown) == 27
    assert (await graph.ainvoke({"value": 0}))["log"] == [n % 3 for n in range(30)]


async def test_equal_tasks_of_several_runs_run_once(cache: BaseCache[Any]) -> None:
    body = Body()
    graph = chain(body, node=CACHED, cache=cache)

    outputs = await asyncio.gather(*(graph.ainvoke({"value": 1}) for _ in range(20)))

    assert outputs == [{"log": [1], "value": 1}] * 20
    assert body.calls == 1


async def test_a_shared_result_belongs_to_each_that_takes_it() -> None:
    async def make(state: Log) -> Update:
        await asyncio.sleep(0)
        return {"items": [[]]}

    async def change(state: Log) -> Update:
        state["items"][0].append(state["value"])
        return {"log": [state["items"]]}

    builder = StateGraph(Log).add_node(make, cache_policy=CachePolicy(key_func=lambda state: 0)).add_node(change)
    graph = builder.add_edge(START, "make").add_edge("make", "change").compile(cache=InMemoryCache())

    outputs = await asyncio.gather(*(graph.ainvoke({"value": n}) for n in range(4)))

    assert [output["log"] for output in outputs] == [[[[n]]] for n in range(4)]
    assert (await graph.ainvoke({"value": 9}))["log"] == [[[9]]]


async def test_who_waited_for_a_task_that_fails_runs_itself() -> None:
    body = Body()
    body.held, body.failures = asyncio.Event(), [ConnectionError("down")]
    graph = cached(body)

    runs = [asyncio.create_task(graph.ainvoke({"value": 1})) for _ in range(3)]
    await body.entered.wait()
    await asyncio.sleep(0)
    body.let_go()
    outcomes = await asyncio.gather(*runs, return_exceptions=True)

    assert [type(outcome) for outcome in outcomes] == [ConnectionError, dict, dict]
    assert body.calls == 2  # the third finds what the second has kept


async def test_who_waited_for_a_run_that_is_cancelled_runs_itself() -> None:
    body, graph, first = await entered_and_held()
    second = await waits_for(graph)

    first.cancel()
    body.let_go()

    assert await second == {"log": [1], "value": 1}
    assert first.cancelled() or isinstance(first.exception(), asyncio.CancelledError)
    assert body.calls == 2


async def test_one_that_waits_can_be_cancelled_and_takes_nobody_along() -> None:
    body, graph, first = await entered_and_held()
    second = await waits_for(graph)

    second.cancel()
    with pytest.raises(asyncio.CancelledError):
        await second
    body.let_go()

    assert await first == {"log": [1], "value": 1}
    assert body.calls == 1


async def test_a_task_that_waits_holds_no_slot() -> None:
    body, graph, first = await entered_and_held()

    async def other(state: Log) -> Update:
        body.let_go()
        return {"log": ["other"]}

    both = StateGraph(Log).add_node("body", body, cache_policy=CachePolicy()).add_node(other)
    both.add_edge(START, "body").add_edge(START, "other")
    cache = graph.cache

    output = await both.compile(cache=cache).ainvoke({"value": 1}, {"max_concurrency": 1})

    assert output["log"] == [1, "other"]
    assert body.calls == 1
    await first


async def test_a_node_that_runs_itself_with_an_equal_input_does_not_wait_for_itself() -> None:
    depth = 0
    inner: Any = None

    async def node(state: Log) -> Update:
        nonlocal depth
        depth += 1
        if depth < 3:
            await inner.ainvoke({"value": state["value"]})
        return {"log": [depth]}

    inner = cached(node)

    await asyncio.wait_for(inner.ainvoke({"value": 1}), 10)

    assert depth == 3


async def test_a_failed_task_is_not_kept() -> None:
    body = Body()
    body.failures = [ConnectionError("down")]
    graph = cached(body)

    with pytest.raises(ConnectionError):
        await graph.ainvoke({"value": 1})

    assert await graph.ainvoke({"value": 1}) == {"log": [1], "value": 1}
    assert body.calls == 2


async def test_retries_come_before_anything_is_kept() -> None:
    body = Body()
    body.failures = [ConnectionError("down"), ConnectionError("down")]
    graph = chain(body, node={**CACHED, "retry_policy": AT_ONCE}, cache=InMemoryCache())

    await graph.ainvoke({"value": 1})
    await graph.ainvoke({"value": 1})

    assert body.calls == 3


async def test_a_kept_result_that_fits_no_more_fails_like_the_nodes_own() -> None:
    cache: InMemoryCache[Any] = InMemoryCache()

    def build(unknown_keys: Literal["error", "ignore"]) -> Any:
        async def node(state: Log) -> Update:
            return {"lag": 1}

        return chain(
            node, node={**CACHED, "retry_policy": RetryPolicy(max_attempts=1)}, cache=cache, unknown_keys=unknown_keys
        )

    await build("ignore").ainvoke({"value": 1})

    with pytest.raises(InvalidUpdateError, match="lag"):
        await build("error").ainvoke({"value": 1})


async def test_routes_are_chosen_anew_for_a_kept_result() -> None:
    body = Body()

    async def left(state: Log) -> Update:
        return {"log": ["left"]}

    async def right(state: Log) -> Update:
        return {"log": ["right"]}

    def route(state: Log) -> Literal["left", "right"]:
        return "left" if state["items"] == ["left"] else "right"

    builder = StateGraph(Log).add_node("body", body, cache_policy=CachePolicy(key_func=lambda state: state["value"]))
    builder.add_node(left).add_node(right).add_edge(START, "body").add_conditional_edges("body", route)
    graph = builder.compile(cache=InMemoryCache())

    assert (await graph.ainvoke({"value": 1, "items": ["left"]}))["log"] == [1, "left"]
    assert (await graph.ainvoke({"value": 1, "items": ["right"]}))["log"] == [1, "right"]
    assert body.calls == 1


async def test_edges_of_a_changed_graph_count_for_a_kept_result() -> None:
    body, cache = Body(), InMemoryCache[Any]()

    async def old(state: Log) -> Update:
        return {"log": ["old"]}

    async def new(state: Log) -> Update:
        return {"log": ["new"]}

    assert (await chain(("body", body), old, node=CACHED, cache=cache).ainvoke({"value": 1}))["log"] == [1, "old"]
    assert (await chain(("body", body), new, node=CACHED, cache=cache).ainvoke({"value": 1}))["log"] == [1, "new"]
    assert body.calls == 1


async def test_commands_and_sends_are_kept(cache: BaseCache[Any]) -> None:
    calls = []

    async def boss(state: Log) -> Command[Literal["work"]]:
        calls.append(1)
        return Command(update={"log": ["boss"]}, goto=[Send("work", {"value": n}) for n in range(2)])

    async def work(state: Log) -> Update:
        return {"log": [state["value"]]}

    builder = StateGraph(Log).add_node(boss, cache_policy=CachePolicy()).add_node(work).add_edge(START, "boss")
    graph = builder.compile(cache=cache)

    for _ in range(2):
        assert (await graph.ainvoke({"value": 1}))["log"] == ["boss", 0, 1]
    assert len(calls) == 1


async def test_a_command_for_the_parent_is_not_kept() -> None:
    calls = []

    async def up(state: Log) -> Command[Any]:
        calls.append(1)
        return Command(graph=Command.PARENT, update={"log": ["up"]})

    inner = cached(up)
    graph = chain(as_node(inner))

    for _ in range(2):
        assert (await graph.ainvoke({"value": 1}))["log"] == ["up"]
    assert len(calls) == 2


async def test_a_subgraph_as_a_node_is_kept_and_its_nodes_use_the_cache_of_the_graph() -> None:
    body, cache = Body(), InMemoryCache[Any]()
    inner = chain(body, node=CACHED)

    whole = chain(as_node(inner), node=CACHED, cache=cache)
    for _ in range(2):
        assert (await whole.ainvoke({"value": 1}))["log"] == [1]
    assert body.calls == 1

    parts = chain(as_node(inner), cache=InMemoryCache())
    for _ in range(2):
        assert (await parts.ainvoke({"value": 1}))["log"] == [1]
    assert body.calls == 2


async def test_an_answer_is_never_given_to_another_thread() -> None:
    graph = cached(who, saver=InMemorySaver())

    for name in ("a", "b"):
        asked = await graph.ainvoke({"value": 1}, thread(name))
        assert [question.value for question in asked["__interrupt__"]] == ["who?"]
        assert (await graph.ainvoke(Command(resume=name), thread(name)))["log"] == [name]


async def test_an_answer_given_within_a_subgraph_is_never_given_to_another_thread() -> None:
    graph = chain(as_node(chain(who)), node=CACHED, cache=InMemoryCache(), saver=InMemorySaver())

    for name in ("a", "b"):
        assert "__interrupt__" in await graph.ainvoke({"value": 1}, thread(name))
        assert (await graph.ainvoke(Command(resume=name), thread(name)))["log"] == [name]


async def test_an_answer_that_was_sent_is_used_though_a_result_is_kept() -> None:
    needs_answer = True

    async def ask(state: Log) -> Update:
        return {"log": [interrupt("who?") if needs_answer else "nobody"]}

    graph = cached(ask, saver=InMemorySaver())
    await graph.ainvoke({"value": 1}, thread("a"))
    needs_answer = False
    await graph.ainvoke({"value": 1}, thread("b"))
    needs_answer = True

    assert (await graph.ainvoke(Command(resume="ada"), thread("a")))["log"] == ["ada"]
    assert (await graph.ainvoke({"value": 1}, thread("c")))["log"] == ["nobody"]


async def test_a_kept_result_is_stored_and_shown_like_any_other() -> None:
    body = Body()
    graph = cached(body, saver=InMemorySaver())
    for name in ("a", "b"):
        await graph.ainvoke({"value": 1}, thread(name))

    snapshots = [[snapshot async for snapshot in graph.aget_state_history(thread(name))] for name in ("a", "b")]

    assert body.calls == 1
    shown = [[(each.next, each.values, [task.result for task in each.tasks]) for each in line] for line in snapshots]
    assert shown[0] == shown[1]


async def test_a_result_that_cannot_be_kept_fails_the_node() -> None:
    async def node(state: Log) -> Update:
        return {"log": [object()]}

    graph = cached(node)

    with pytest.raises(CodecError) as caught:
        await graph.ainvoke({"value": 1})

    assert str(caught.value) == (
        "object cannot be stored: make it a dataclass and call codec.register(object), or keep plain data instead "
        f"(at ['log'][0], cache 'everstep/graph/node/{node.__module__}.{node.__qualname__}', node 'node')"
    )
    assert notes_of(caught.value) == ["in the cache of node 'node' (step 1)"]


async def test_an_input_that_makes_no_key_fails_the_node_and_names_it() -> None:
    graph = cached(Body("body"))

    with pytest.raises(CodecError) as caught:
        await graph.ainvoke({"value": object()})

    assert str(caught.value) == (
        "object cannot be stored: make it a dataclass and call codec.register(object), or keep plain data instead "
        "(node 'body')"
    )


async def test_a_key_function_that_fails_fails_the_node() -> None:
    def broken(state: Log) -> str:
        raise LookupError("no key")

    graph = chain(Body("body"), node={"cache_policy": CachePolicy(key_func=broken)}, cache=InMemoryCache())

    with pytest.raises(LookupError, match="no key") as caught:
        await graph.ainvoke({"value": 1})

    assert notes_of(caught.value) == ["in the cache of node 'body' (step 1)"]


class Broken(InMemoryCache[Any]):
    """A cache that cannot be read, or not written."""

    def __init__(self, method: str) -> None:
        super().__init__()
        self.method = method

    async def aget(self, keys: Sequence[FullKey]) -> dict[FullKey, Any]:
        if self.method == "aget":
            raise ConnectionError("no cache")
        return await super().aget(keys)

    async def aset(self, pairs: Mapping[FullKey, tuple[Any, int | None]]) -> None:
        if self.method == "aset":
            raise ConnectionError("no cache")
        await super().aset(pairs)


@pytest.mark.parametrize("method", ["aget", "aset"])
async def test_a_cache_that_fails_fails_the_node(method: str) -> None:
    graph = chain(Body("body"), node=CACHED, cache=Broken(method))

    with pytest.raises(ConnectionError, match="no cache"):
        await graph.ainvoke({"value": 1})


async def test_nothing_is_left_of_tasks_that_waited() -> None:
    from everstep.tasks import caching

    body = Body()
    graph = cached(body)
    await asyncio.gather(*(graph.ainvoke({"value": n % 2}) for n in range(10)))

    assert not caching._flights[asyncio.get_running_loop()]
    assert len(asyncio.all_tasks()) == 1


@pytest.mark.parametrize(
    ("cache", "what"), [(InMemoryCache, "the class InMemoryCache"), ({}, "dict {}"), (True, "bool True")]
)
def test_what_is_no_cache_is_refused_at_compile_time(cache: Any, what: str) -> None:
    with pytest.raises(TypeError) as caught:
        chain(Body("body"), cache=cache)

    assert str(caught.value) == (f"cache must be a cache such as InMemoryCache() or SQLCache.from_url(...), got {what}")


async def test_types_of_the_state_can_be_kept() -> None:
    calls = []

    async def node(state: Noted) -> dict[str, Note]:
        calls.append(1)
        return {"note": Note(state["note"].text + "!")}

    builder = StateGraph(Noted).add_node(node, cache_policy=CachePolicy()).add_edge(START, "node")
    graph = builder.compile(cache=InMemoryCache(codec=Codec()))

    for _ in range(2):
        assert await graph.ainvoke({"note": Note("a")}) == {"note": Note("a!")}
    assert len(calls) == 1


async def test_a_cache_of_another_ecosystem_is_taken_by_its_shape() -> None:
    class Foreign:
        """Keeps what it is given as it is, under the keys it is given."""

        def __init__(self) -> None:
            self.kept: dict[Any, Any] = {}

        async def aget(self, keys: Sequence[FullKey]) -> dict[FullKey, Any]:
            return {key: self.kept[key] for key in keys if key in self.kept}

        async def aset(self, pairs: Mapping[FullKey, tuple[Any, int | None]]) -> None:
            self.kept |= {key: value for key, (value, _) in pairs.items()}

        async def aclear(self, namespaces: Sequence[tuple[str, ...]] | None = None) -> None:
            self.kept = {key: value for key, value in self.kept.items() if namespaces and key[0] not in namespaces}

    body = Body()
    graph = chain(body, node=CACHED, cache=Foreign())

    for calls in (1, 1):
        assert await graph.ainvoke({"value": 1}) == {"log": [1], "value": 1}
        assert body.calls == calls
    await graph.aclear_cache()
    await graph.ainvoke({"value": 1})
    assert body.calls == 2


def test_a_policy_needs_a_function_as_key_function() -> None:
    nonsense: Any = "value"
    with pytest.raises(TypeError) as caught:
        CachePolicy(key_func=nonsense)

    assert str(caught.value) == "CachePolicy.key_func is a function of the node's input, got str 'value'"


async def test_a_graph_ends_where_a_kept_command_sends_it() -> None:
    async def stop(state: Log) -> Command[Literal["__end__"]]:
        return Command(update={"log": ["stop"]}, goto=END)

    graph = cached(stop)

    for _ in range(2):
        assert (await graph.ainvoke({"value": 1}))["log"] == ["stop"]

"""A saver of somebody else, which shares no class with ours and keeps JSON: taken by its shape."""

from __future__ import annotations

import asyncio
import base64
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from types import SimpleNamespace
from typing import Any, cast

import pytest

from everstep import START, Command, Send, StateGraph, interrupt
from everstep.errors import UnknownInterruptError
from everstep.types import Durability
from everstep_savers.errors import CheckpointNotFound, CodecError
from everstep_savers.shape import ShapeSaver, as_atomic
from tests.engine.graphs import Log, Update, chain, history, says, side_by_side, thread


def to_json(value: Any) -> str:
    return json.dumps(value, default=lambda each: {"bytes": base64.b64encode(each).decode()})


def from_json(text: str) -> Any:
    def lift(found: dict[str, Any]) -> Any:
        return base64.b64decode(found["bytes"]) if found.keys() == {"bytes"} else found

    return json.loads(text, object_hook=lift)


class JsonSaver:
    """Keeps whole checkpoints as JSON, and takes its time before it looks at what it is given."""

    def __init__(self, order: Callable[[], Any] = lambda: asyncio.sleep(0)) -> None:
        self.checkpoints: dict[tuple[str, str], dict[str, tuple[str, str, str | None]]] = {}
        self.writes: dict[tuple[str, str, str], dict[tuple[str, int], tuple[str, str]]] = {}
        self._wait = order

    def get_next_version(self, current: str | None, _: None) -> str:
        return f"{int((current or '0').split('.')[0]) + 1:08}.json"

    async def aput(self, config: Any, checkpoint: Any, metadata: Any, new_versions: Any) -> Any:
        await self._wait()
        at = config["configurable"]
        kept = self.checkpoints.setdefault((at["thread_id"], at["checkpoint_ns"]), {})
        kept[checkpoint["id"]] = to_json(checkpoint), to_json(metadata), at.get("checkpoint_id")
        return {"configurable": {**at, "checkpoint_id": checkpoint["id"]}}

    async def aput_writes(self, config: Any, writes: Any, task_id: str, task_path: str = "") -> None:
        await self._wait()
        at = config["configurable"]
        kept = self.writes.setdefault((at["thread_id"], at["checkpoint_ns"], at["checkpoint_id"]), {})
        special = {"__error__": -1, "__scheduled__": -2, "__interrupt__": -3, "__resume__": -4}
        for number, (channel, value) in enumerate(writes):
            kept[task_id, special.get(channel, number)] = channel, to_json(value)

    async def aget_tuple(self, config: Any) -> Any:
        async for found in self.alist(config, limit=1):
            return found
        return None

    async def alist(self, config: Any, *, filter: Any = None, before: Any = None, limit: Any = None) -> Any:
        at = config["configurable"]
        place = (at["thread_id"], at.get("checkpoint_ns", ""))
        ids = sorted(self.checkpoints.get(place, {}), reverse=True)
        for checkpoint_id in [each for each in ids if at.get("checkpoint_id") in (None, each)][:limit]:
            yield self._tuple(place, checkpoint_id)

    def _tuple(self, place: tuple[str, str], checkpoint_id: str) -> Any:
        def named(name: str) -> Any:
            names = {"thread_id": place[0], "checkpoint_ns": place[1], "checkpoint_id": name}
            return {"configurable": names}

        checkpoint, metadata, parent = self.checkpoints[place][checkpoint_id]
        writes = self.writes.get((*place, checkpoint_id), {})

        return SimpleNamespace(
            config=named(checkpoint_id),
            checkpoint=from_json(checkpoint),
            metadata=from_json(metadata),
            parent_config=named(parent) if parent else None,
            pending_writes=[(task, channel, from_json(text)) for (task, _), (channel, text) in writes.items()],
        )


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
async def test_a_question_is_answered_by_another_process(durability: Durability) -> None:
    saver, ran = JsonSaver(), []

    def sibling(state: Log) -> Update:
        ran.append("sibling")
        return {"log": ["sibling"]}

    def asks(state: Log) -> Update:
        return {"log": [interrupt({"sure": ("yes", "no")})]}

    first = side_by_side(sibling, asks, saver=saver)
    asked = await first.ainvoke({"log": []}, thread(), durability=durability)
    second = side_by_side(sibling, asks, saver=saver)
    state = await second.aget_state(thread())
    finished = await second.ainvoke(Command(resume=("yes", 1)), thread(), durability=durability)

    assert asked["__interrupt__"][0].value == {"sure": ("yes", "no")}
    assert state.interrupts == tuple(asked["__interrupt__"])
    assert finished["log"] == [("yes", 1), "sibling"]
    assert ran == ["sibling"]


async def test_values_come_back_of_the_same_type_whatever_the_saver_does_to_them() -> None:
    values = [(1, (2,)), {1: "a"}, Counter("aab"), "\ud800", 2**70, {"__everstep__": "m"}, [{"plain": [1, "é", b"x"]}]]

    async def one(state: Log) -> Update:
        return {"items": values}

    async def fails(state: Log) -> Update:
        raise ValueError("no")

    saver = JsonSaver()
    graph = chain(one, fails, saver=saver)
    with pytest.raises(ValueError):
        await graph.ainvoke({"log": []}, thread())

    state = await graph.aget_state(thread())
    assert state.values["items"] == values
    assert [type(each) for each in state.values["items"]] == [type(each) for each in values]
    saved = await as_atomic(saver).aget_tuple(thread())
    assert saved is not None
    (error,) = [value for _, channel, value in saved.pending_writes or () if channel == "__error__"]
    assert (type(error), str(error)) == (ValueError, "no")


async def test_plain_values_are_plain_in_the_saver() -> None:
    async def one(state: Log) -> Update:
        return {"log": [1, "a"], "value": {"n": 1.5}}

    saver = JsonSaver()
    await chain(one, saver=saver).ainvoke({"log": []}, thread())

    newest = await saver.aget_tuple(thread())
    assert newest.checkpoint["channel_values"]["log"] == [1, "a"]
    assert newest.checkpoint["channel_values"]["value"] == {"n": 1.5}


async def test_each_checkpoint_is_stored_as_it_was_at_its_barrier() -> None:
    """The saver is slower than the run, and looks at what it was given when more steps have been taken."""

    async def wait() -> None:
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    async def grows(state: Log) -> Update:
        state["items"] = [*state.get("items", []), len(state["log"])]
        return {"log": ["x"], "items": state["items"]}

    builder = StateGraph(Log)
    builder.add_node("grows", grows)
    builder.add_edge(START, "grows")
    builder.add_conditional_edges("grows", lambda state: "grows" if len(state["log"]) < 6 else "__end__")
    graph = builder.compile(cast(Any, JsonSaver(wait)))

    await graph.ainvoke({"log": []}, thread())

    seen = await history(graph, thread())
    assert [len(state.values.get("log", ())) for state in seen] == [6, 5, 4, 3, 2, 1, 0, 0]
    assert [state.next for state in seen] == [(), *[("grows",)] * 6, ("__start__",)]


async def test_sends_wait_and_are_replayed() -> None:
    async def each(state: Any) -> Update:
        return {"log": [state["n"]]}

    builder = StateGraph(Log)
    builder.add_node("each", each)
    builder.add_conditional_edges(START, lambda _: [Send("each", {"n": (n,)}) for n in range(3)], ["each"])
    graph = builder.compile(cast(Any, JsonSaver()))
    await graph.ainvoke({"log": []}, thread())
    waiting = next(state for state in await history(graph, thread()) if len(state.next) == 3)

    assert (await graph.ainvoke(None, waiting.config))["log"] == [(0,), (1,), (2,)]


async def test_a_value_that_cannot_be_kept_is_refused_by_name() -> None:
    async def one(state: Log) -> Update:
        return {"value": [{"lock": asyncio.Lock()}]}

    with pytest.raises(CodecError) as caught:
        await chain(one, saver=JsonSaver()).ainvoke({"log": []}, thread())

    assert caught.value.path == "[0]['lock']"
    assert "state key 'value'" in caught.value.place
    assert "thread 't'" in caught.value.place


async def test_a_checkpoint_that_is_not_there_is_an_error() -> None:
    saver = as_atomic(JsonSaver())

    with pytest.raises(CheckpointNotFound):
        await saver.aload({"configurable": {"thread_id": "t", "checkpoint_ns": "", "checkpoint_id": "none"}})
    assert isinstance(saver, ShapeSaver)


async def test_what_is_no_saver_is_refused() -> None:
    class Half:
        async def aget_tuple(self, config: Any) -> None: ...

        async def alist(self, config: Any) -> AsyncIterator[None]:
            yield None

        def __repr__(self) -> str:
            return "a half"

    with pytest.raises(TypeError) as caught:
        as_atomic(Half())
    assert str(caught.value) == (
        "checkpointer must be a saver such as InMemorySaver() or SQLSaver.from_url(...), got Half a half, which has no "
        "aput, aput_writes, get_next_version"
    )
    with pytest.raises(TypeError, match=r"SQLSaver\.from_url\(\.\.\.\), got int 5$"):
        as_atomic(5)


# Savers with faults -----------------------------------------------------------------------------------------------


def odd(**methods: Any) -> Any:
    """A saver with some methods of its own."""
    return type("OddSaver", (JsonSaver,), methods)()


async def not_there(self: Any, *arguments: Any) -> None:
    raise NotImplementedError("use the other saver")


NOT_ASYNC = (
    "OddSaver.{} is not async, and graphs await their saver; compile with the async saver of its kind, such as "
    "AsyncSqliteSaver in place of SqliteSaver"
)


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
@pytest.mark.parametrize("how", ["sync", "not implemented"])
@pytest.mark.parametrize("method", ["aput", "aput_writes", "aget_tuple"])
async def test_a_saver_that_is_not_async_is_told(method: str, how: str, durability: Durability) -> None:
    graph = chain(
        ("ask", lambda state: {"log": [interrupt("sure?")]}),
        saver=odd(**{method: not_there if how == "not implemented" else lambda self, *arguments: None}),
    )

    with pytest.raises(TypeError) as caught:
        await graph.ainvoke({"log": []}, thread(), durability=durability)

    assert str(caught.value) == NOT_ASYNC.format(method)


class Never:
    """A listing that is not implemented."""

    def __aiter__(self) -> Never:
        return self

    async def __anext__(self) -> None:
        raise NotImplementedError


async def no_listing(self: Any, config: Any, **how: Any) -> list[Any]:
    return []


LISTINGS: dict[str, tuple[Any, str]] = {
    "a list": (lambda self, config, **how: [], "OddSaver.alist gave list, which is no async iterator"),
    "a coroutine": (no_listing, "OddSaver.alist gave coroutine, which is no async iterator"),
    "not implemented": (lambda self, config, **how: Never(), NOT_ASYNC.format("alist")),
}


@pytest.mark.parametrize("given", LISTINGS)
async def test_a_listing_that_is_none_is_told(given: str) -> None:
    listing, complaint = LISTINGS[given]

    with pytest.raises(TypeError) as caught:
        await history(chain(says("a"), saver=odd(alist=listing)), thread())

    assert str(caught.value) == complaint


def found(**changes: Any) -> Any:
    """A checkpoint tuple as a saver may give it, with something of it changed."""
    checkpoint = {"v": 1, "id": "1", "ts": "", "channel_values": {}, "channel_versions": {}, "versions_seen": {}}
    whole: dict[str, Any] = {
        "config": {},
        "checkpoint": checkpoint,
        "metadata": {},
        "parent_config": None,
        "pending_writes": [],
    }
    return SimpleNamespace(**{**whole, **changes})


FOUND: dict[str, tuple[Any, str]] = {
    "a dict": (
        {"checkpoint": {}},
        "which is no checkpoint tuple: it has no config, checkpoint, metadata, parent_config, pending_writes",
    ),
    "an empty checkpoint": (
        found(checkpoint={"id": "1"}),
        "whose checkpoint has no v, ts, channel_values, channel_versions, versions_seen",
    ),
    "a checkpoint in bytes": (found(checkpoint=b"x"), "whose checkpoint or metadata is no mapping"),
    "no metadata": (found(metadata=None), "whose checkpoint or metadata is no mapping"),
    "writes in pairs": (
        found(pending_writes=[("log", 1)]),
        "whose pending writes are not task id, channel and value each",
    ),
}


@pytest.mark.parametrize("given", FOUND)
async def test_something_else_than_a_checkpoint_is_told(given: str) -> None:
    answer, complaint = FOUND[given]

    async def aget_tuple(self: Any, config: Any) -> Any:
        return answer

    with pytest.raises(TypeError) as caught:
        await chain(says("a"), saver=odd(aget_tuple=aget_tuple)).ainvoke({"log": []}, thread())

    assert str(caught.value) == f"OddSaver.aget_tuple gave {type(answer).__name__} {answer!r:.100}, {complaint}"


async def test_another_checkpoint_than_was_asked_for_is_told() -> None:
    async def aget_tuple(self: Any, config: Any) -> Any:
        return found()

    async def alist(self: Any, config: Any, **how: Any) -> AsyncIterator[Any]:
        yield found()

    graph = chain(says("a"), saver=odd(aget_tuple=aget_tuple, alist=alist))
    for method, asking in {
        "aget_tuple": graph.ainvoke(None, thread(checkpoint_id="2")),
        "alist": graph.aget_state(thread(checkpoint_id="2")),
    }.items():
        with pytest.raises(ValueError) as caught:
            await asking
        assert str(caught.value) == f"OddSaver.{method} gave checkpoint '1', and was asked for '2'"


@pytest.mark.parametrize(("version", "before"), [(None, None), ("1", "1")])
async def test_a_version_that_is_not_greater_than_the_last_is_told(version: Any, before: Any) -> None:
    builder = StateGraph(Log).add_node("loop", lambda state: {"log": ["x"]}).add_edge(START, "loop")
    builder.add_conditional_edges("loop", lambda state: "loop" if len(state["log"]) < 3 else "__end__")
    graph = builder.compile(odd(get_next_version=lambda self, current, channel: version))

    with pytest.raises(ValueError) as caught:
        await graph.ainvoke({"log": []}, thread())

    assert str(caught.value) == (
        f"OddSaver.get_next_version gave {version!r} after {before!r}; a version has to be greater than the one "
        "before, or nodes that should run do not"
    )


class Failing(JsonSaver):
    """Fails once, at one of its calls, before or after it has taken effect."""

    def __init__(self, number: int, when: str) -> None:
        super().__init__()
        self.number, self.when, self.calls = number, when, 0

    async def aput(self, *arguments: Any) -> Any:
        return await self._passed(super().aput(*arguments))

    async def aput_writes(self, *arguments: Any) -> None:
        await self._passed(super().aput_writes(*arguments))

    async def _passed(self, call: Any) -> Any:
        self.calls += 1
        fails = self.calls == self.number
        if fails and self.when == "before":
            call.close()
            raise ConnectionError("the store is down")
        result = await call
        if fails:
            raise ConnectionError("the reply was lost")
        return result


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
async def test_whichever_call_fails_the_run_fails_and_its_thread_can_be_finished(
    durability: Durability, when: str
) -> None:
    def asks(state: Log) -> Update:
        return {"log": [interrupt("sure?")]}

    def graph(saver: JsonSaver) -> Any:
        return side_by_side(says("sibling"), ("asks", asks), saver=saver)

    undisturbed = Failing(0, when)
    await graph(undisturbed).ainvoke({"log": []}, thread(), durability=durability)
    assert undisturbed.calls >= 3
    for number in range(1, undisturbed.calls + 1):
        saver = Failing(number, when)
        with pytest.raises(ConnectionError):
            await graph(saver).ainvoke({"log": []}, thread(), durability=durability)
        again: Any = {"log": []} if await saver.aget_tuple(thread()) is None else None
        await graph(saver).ainvoke(again, thread(), durability=durability)
        state = await graph(saver).aget_state(thread())
        finished = await graph(saver).ainvoke(Command(resume="yes"), thread(), durability=durability)

        assert [question.value for question in state.interrupts] == ["sure?"]
        assert finished["log"] == ["yes", "sibling"]


class ListingSaver(JsonSaver):
    """Counts its listings that are not closed."""

    open = 0

    async def alist(self, config: Any, **how: Any) -> Any:
        self.open += 1
        try:
            async for found in super().alist(config, **how):
                yield found
        finally:
            self.open -= 1

    async def aget_tuple(self, config: Any) -> Any:
        found = [each async for each in super().alist(config, limit=1)]
        return found[0] if found else None


async def test_listings_that_are_left_before_their_end_are_closed() -> None:
    saver = ListingSaver()

    def ask(state: Log) -> Update:
        return {"log": [str(interrupt("?"))]}

    inner = StateGraph(Log).add_node("ask", ask).add_edge(START, "ask").compile(checkpointer=True)
    graph = StateGraph(Log).add_node("inner", inner).add_edge(START, "inner").compile(saver)
    for answer in "abc":
        await graph.ainvoke({"log": []}, thread())
        state = await graph.aget_state(thread(), subgraphs=True)
        assert state.tasks[0].state is not None
        assert saver.open == 0
        await graph.ainvoke(Command(resume=answer), thread())
        assert saver.open == 0
    with pytest.raises(UnknownInterruptError):
        await graph.ainvoke(Command(resume={"0" * 32: "d"}), thread())
    assert saver.open == 0
    past = [state async for state in graph.aget_state_history(thread())][3]
    await graph.aget_state(past.config)
    async with aclosing(graph.aget_state_history(thread())) as states:
        assert await anext(states)
    assert saver.open == 0

"""A saver of somebody else, which shares no class with ours and keeps JSON: taken by its shape."""

from __future__ import annotations

import asyncio
import base64
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from everstep import START, Command, Send, StateGraph, interrupt
from everstep.types import Durability
from everstep_savers.errors import CheckpointNotFound, CodecError
from everstep_savers.shape import ShapeSaver, as_atomic
from tests.engine.graphs import Log, Update, chain, history, side_by_side, thread


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

    with pytest.raises(TypeError, match=r"^checkpointer must be a saver such as InMemorySaver\(\) or SQLSaver"):
        as_atomic(Half())

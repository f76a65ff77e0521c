"""Keys with a batch reducer: their writes are kept, and replayed on the branch they belong to."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Annotated, Any, TypedDict

import pytest

from everstep.channels import DeltaChannel
from everstep.constants import START
from everstep.context import interrupt
from everstep.graph.builder import StateGraph
from everstep.types import Command, Overwrite, Send, StateUpdate
from everstep_savers.base import AtomicSaver, BaseCheckpointSaver
from everstep_savers.delta import is_log
from everstep_savers.memory import InMemorySaver
from tests.engine.graphs import Update, history, thread
from tests.engine.watched import StoreBroke, WatchedSaver, failing_from

DURABILITIES = ["sync", "async", "exit"]


def extend(value: list[Any], writes: Sequence[list[Any]]) -> list[Any]:
    return [*value, *(item for write in writes for item in write)]


def merge(value: dict[str, Any], writes: Sequence[dict[str, Any]]) -> dict[str, Any]:
    merged = {key: item for each in (value, *writes) for key, item in each.items()}
    return {key: item for key, item in merged.items() if item is not None}


class Delta(TypedDict, total=False):
    log: Annotated[list[Any], DeltaChannel(extend, snapshot_frequency=4)]
    files: Annotated[dict[str, Any], DeltaChannel(merge)]
    plain: Annotated[list[Any], operator.add]


class Plain(TypedDict, total=False):
    log: Annotated[list[Any], operator.add]
    files: dict[str, Any]
    plain: Annotated[list[Any], operator.add]


def both(item: Any) -> Update:
    """The same for a delta channel and for a plain one beside it."""
    return {"log": [item], "plain": [item]}


def linear(saver: Any, *names: str, state: Any = Delta) -> Any:
    """Nodes one after the other that write their name and how much they have read."""
    builder = StateGraph(state)
    for before, name in zip((START, *names), names, strict=False):
        builder.add_node(name, _writer(name)).add_edge(before, name)
    return builder.compile(saver)


def _writer(name: str) -> Any:
    async def write(state: Any) -> Update:
        return both(f"{name}{len(state['log'])}")

    return write


async def pairs(graph: Any) -> list[tuple[Any, Any]]:
    """What each checkpoint shows of the delta channel and of the plain one, newest first."""
    return [(s.values.get("log", []), s.values.get("plain", [])) for s in await history(graph, thread())]


@pytest.mark.parametrize("durability", DURABILITIES)
async def test_every_checkpoint_shows_what_a_plain_reducer_shows(durability: str, saver: AtomicSaver[Any]) -> None:
    graph = linear(saver, "a", "b", "c")

    for n in range(4):
        result = await graph.ainvoke(both(f"in{n}"), thread(), durability=durability)
        assert result["log"] == result["plain"]

    shown = await pairs(graph)
    assert len(shown) == (4 if durability == "exit" else 20)
    assert all(log == plain for log, plain in shown)
    assert shown[0][0][:6] == ["in0", "a1", "b2", "c3", "in1", "a5"]


async def test_writes_are_kept_and_the_value_now_and_then(saver: AtomicSaver[Any]) -> None:
    graph = linear(saver, "a", "b")

    for n in range(2):
        await graph.ainvoke(both(f"in{n}"), thread())

    logs = []
    async for each in saver.alist(thread()):
        log = each.checkpoint["channel_values"].get("log")
        logs.append(log and (log[0].value, log[1:]))
    assert logs == [
        (["in0", "a1", "b2", "in1"], [[["a4"]], [["b5"]]]),
        (["in0", "a1", "b2", "in1"], [[["a4"]]]),
        (["in0", "a1", "b2", "in1"], []),
        ([], [[["in0"]], [["a1"]], [["b2"]]]),
        ([], [[["in0"]], [["a1"]], [["b2"]]]),
        ([], [[["in0"]], [["a1"]]]),
        ([], [[["in0"]]]),
        None,
    ]


async def test_the_writes_of_one_step_are_kept_in_the_order_in_which_they_count(saver: AtomicSaver[Any]) -> None:
    """Tasks that finish in another order than that of their paths."""

    async def spread(state: Delta) -> Command[Any]:
        return Command(goto=[Send("write", n) for n in range(12)])

    async def write(number: int) -> Update:
        return both(number)

    builder = StateGraph(Delta).add_node("spread", spread).add_node("write", write)
    builder.add_node("b", _writer("b")).add_edge(START, "spread").add_edge(START, "b")
    graph = builder.compile(saver)

    result = await graph.ainvoke({}, thread())

    assert result["log"] == result["plain"] == ["b0", *range(12)]
    assert (await graph.aget_state(thread())).values == result


@pytest.mark.parametrize("durability", DURABILITIES)
async def test_a_question_and_its_answer_replay_each_write_once(durability: str, saver: AtomicSaver[Any]) -> None:
    async def ask(state: Delta) -> Update:
        return both(interrupt("go on?"))

    builder = (
        StateGraph(Delta).add_node("ask", ask).add_node("beside", _writer("beside")).add_node("end", _writer("end"))
    )
    builder.add_edge(START, "ask").add_edge(START, "beside").add_edge(["ask", "beside"], "end")
    graph = builder.compile(saver)

    await graph.ainvoke(both("in"), thread(), durability=durability)
    result = await graph.ainvoke(Command(resume="yes", update=both("sent")), thread(), durability=durability)

    assert result["log"] == result["plain"] == ["in", "sent", "yes", "beside1", "end4"]
    assert (await graph.aget_state(thread())).values == result
    assert all(log == plain for log, plain in await pairs(graph))


async def test_branches_do_not_see_each_others_writes(saver: AtomicSaver[Any]) -> None:
    graph = linear(saver, "a", "b")
    for n in range(3):
        await graph.ainvoke(both(f"in{n}"), thread())
    before = await history(graph, thread())

    edited = await graph.aupdate_state(before[3].config, both("edit"), as_node="a")
    await graph.ainvoke(None, edited)
    await graph.ainvoke(both("on"), thread())
    await graph.ainvoke(None, before[-2].config)

    now = {s.config["configurable"]["checkpoint_id"]: s.values for s in await history(graph, thread())}
    assert all(values.get("log", []) == values.get("plain", []) for values in now.values())
    for snapshot in before:
        assert now[snapshot.config["configurable"]["checkpoint_id"]] == snapshot.values
    assert (await graph.aget_state(thread())).values["log"] == ["in0", "a1", "b2"]


async def test_updates_from_outside_are_writes_like_others(saver: AtomicSaver[Any]) -> None:
    graph = linear(saver, "a")
    await graph.aupdate_state(thread(), both("first"), as_node="a")
    await graph.ainvoke(both("in"), thread())

    await graph.abulk_update_state(thread(), [[StateUpdate(both("x"), "a"), StateUpdate(both("y"), "a")]])
    await graph.aupdate_state(thread(), {"log": Overwrite(["new"]), "plain": Overwrite(["new"])}, as_node="a")
    await graph.aupdate_state(thread(), both("z"), as_node="a")

    shown = await pairs(graph)
    assert all(log == plain for log, plain in shown)
    assert [log for log, _ in shown[:3]] == [["new", "z"], ["new"], ["first", "in", "a2", "x", "y"]]


async def test_a_dictionary_may_be_kept_as_its_changes(saver: AtomicSaver[Any]) -> None:
    async def write(state: Delta) -> Update:
        return {"files": {f"{len(state['files'])}.txt": "x" * 100}}

    graph = StateGraph(Delta).add_node("write", write).add_edge(START, "write").compile(saver)

    for n in range(5):
        await graph.ainvoke({"files": {"0.txt": None} if n == 4 else {}}, thread())

    files = (await graph.aget_state(thread())).values["files"]
    assert sorted(files) == ["1.txt", "2.txt", "3.txt"]
    loaded = await saver.aload(thread())
    assert len(loaded.chains["files"]) == 10


@pytest.mark.parametrize("durability", DURABILITIES)
async def test_what_could_not_be_stored_is_not_replayed(durability: str, saver: AtomicSaver[Any]) -> None:
    watched = WatchedSaver(saver)
    graph = linear(watched, "a", "b", "c")
    await graph.ainvoke(both("one"), thread())
    watched.before = failing_from(watched.commits + 2)
    with pytest.raises(StoreBroke):
        await graph.ainvoke(both("lost"), thread(), durability=durability)
    watched.before = failing_from(10**6)

    result = await graph.ainvoke(None, thread(), durability=durability)

    assert result["log"] == result["plain"]
    assert result["log"] == ["one", "a1", "b2", "c3", "lost", "a5", "b6", "c7"]
    assert (await graph.aget_state(thread())).values == result


# Threads that outlive a change of the reducer -------------------------------------------------------------------


async def test_a_thread_of_a_plain_reducer_goes_on_with_a_delta_channel_and_back(saver: AtomicSaver[Any]) -> None:
    plain, delta = linear(saver, "a", "b", state=Plain), linear(saver, "a", "b")
    written: list[Any] = []

    for n, graph in enumerate((plain, plain, delta, delta, plain, delta, plain)):
        result = await graph.ainvoke(both(f"in{n}"), thread())
        written += [f"in{n}", f"a{len(written) + 1}", f"b{len(written) + 2}"]
        assert result["log"] == result["plain"] == written
        for reader in (plain, delta):
            assert (await reader.aget_state(thread())).values["log"] == written
            assert all(log == other for log, other in await pairs(reader))


async def test_a_branch_may_start_before_the_change(saver: AtomicSaver[Any]) -> None:
    plain, delta = linear(saver, "a", state=Plain), linear(saver, "a")
    await plain.ainvoke(both("one"), thread())
    old = (await history(plain, thread()))[1]
    await delta.ainvoke(both("two"), thread())

    result = await delta.ainvoke(None, old.config)

    assert result["log"] == result["plain"] == ["one", "a1"]
    assert all(log == other for log, other in await pairs(delta))


# Savers ---------------------------------------------------------------------------------------------------------


class PlainSaver(BaseCheckpointSaver):
    """A saver of the ecosystem: the four methods, and nothing of ours."""

    def __init__(self) -> None:
        super().__init__()
        inner = InMemorySaver()
        self.aget_tuple = inner.aget_tuple  # type: ignore[method-assign]
        self.alist = inner.alist  # type: ignore[method-assign, assignment]
        self.aput = inner.aput  # type: ignore[method-assign]
        self.aput_writes = inner.aput_writes  # type: ignore[method-assign]
        self.adelete_thread = inner.adelete_thread  # type: ignore[method-assign]

    async def aget_tuple(self, config: Any) -> Any: ...
    def alist(self, config: Any, **options: Any) -> Any: ...
    async def aput(self, *arguments: Any) -> Any: ...
    async def aput_writes(self, *arguments: Any, **options: Any) -> Any: ...
    async def adelete_thread(self, thread_id: str) -> None: ...


async def test_a_saver_of_the_ecosystem_gets_the_value_and_no_log() -> None:
    saver = PlainSaver()
    graph = linear(saver, "a", "b")

    for n in range(3):
        result = await graph.ainvoke(both(f"in{n}"), thread())

    assert result["log"] == result["plain"]
    assert (await graph.aget_state(thread())).values == result
    assert all(log == plain for log, plain in await pairs(graph))
    async for each in saver.alist(thread()):
        assert not is_log(each.checkpoint["channel_values"].get("log"))


async def test_the_history_of_a_channel_leads_to_its_value(saver: AtomicSaver[Any]) -> None:
    graph = linear(saver, "a", "b")
    for n in range(3):
        await graph.ainvoke(both(f"in{n}"), thread())

    for snapshot in await history(graph, thread()):
        found = await saver.aget_delta_channel_history(config=snapshot.config, channels=["log"])
        writes = [value for _, _, value in found["log"]["writes"]]
        assert extend(found["log"].get("seed", []), writes) == snapshot.values.get("log", [])


async def test_removing_a_run_keeps_the_writes_that_later_ones_need(saver: Any) -> None:
    graph = linear(saver, "a", "b")
    for n in range(3):
        await graph.ainvoke(both(f"in{n}"), {**thread(), "run_id": f"run-{n}"})
    result = (await graph.aget_state(thread())).values

    await saver.adelete_for_runs(["run-0", "run-1"])

    assert (await graph.aget_state(thread())).values == result
    assert len(await pairs(graph)) == 4
    again = await graph.ainvoke(both("on"), thread())
    assert again["log"] == again["plain"]

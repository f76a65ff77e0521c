"""A thread from outside: its state and history, updates by hand, replay and forks."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

import pytest

from everstep.constants import START
from everstep.context import interrupt
from everstep.errors import CheckpointNotFound, ConfigError, InvalidUpdateError, ThreadDeleted, UnknownInterruptError
from everstep.graph.builder import StateGraph
from everstep.types import Command, Send, StateSnapshot, StateUpdate
from tests.engine.graphs import Log, Update, chain, history, says, side_by_side, thread


def at(snapshots: list[StateSnapshot], *following: str) -> StateSnapshot:
    """The newest snapshot from which these nodes run next."""
    return next(snapshot for snapshot in snapshots if snapshot.next == following)


@pytest.mark.parametrize("key", ["thread_id", "checkpoint_ns", "checkpoint_id"])
async def test_a_name_that_no_key_can_hold_is_a_fault_of_the_config(saver: Any, key: str) -> None:
    graph = chain(says("a"), saver=saver)
    names: list[Any] = ["a\0b", "\ud800", True, 1.5, b"t", ["t"]]
    for name in names:
        config = {"configurable": {"thread_id": "t", key: name}}
        uses: list[Callable[[], Awaitable[Any]]] = [
            partial(graph.ainvoke, {"log": []}, config),
            partial(graph.aget_state, config),
            partial(graph.aupdate_state, config, {"log": ["x"]}),
            partial(history, graph, config),
        ]
        for use in uses:
            with pytest.raises(ConfigError, match=f"^{key} "):
                await use()
    assert [found async for found in saver.alist_threads()] == []


async def test_an_empty_thread_id_names_no_thread(saver: Any) -> None:
    with pytest.raises(ConfigError, match=r"^thread_id is empty and names no thread; "):
        await chain(says("a"), saver=saver).ainvoke({"log": []}, thread(""))
    assert [found async for found in saver.alist_threads()] == []


# State and history ------------------------------------------------------------------------------------------


async def test_history_tells_every_step_newest_first(saver: Any) -> None:
    graph = chain(says("a"), says("b"), saver=saver)
    await graph.ainvoke({"log": ["in"]}, thread())
    found = await history(graph, thread())
    assert [(s.next, s.values, s.metadata and (s.metadata["source"], s.metadata["step"])) for s in found] == [
        ((), {"log": ["in", "a", "b"]}, ("loop", 2)),
        (("b",), {"log": ["in", "a"]}, ("loop", 1)),
        (("a",), {"log": ["in"]}, ("loop", 0)),
        (("__start__",), {"log": []}, ("input", -1)),
    ]
    assert [s.parent_config for s in found] == [*(s.config for s in found[1:]), None]
    assert [[(task.name, task.result) for task in s.tasks] for s in found] == [
        [],
        [("b", {"log": ["b"]})],
        [("a", {"log": ["a"]})],
        [("__start__", {"log": ["in"]})],
    ]
    assert [s.created_at for s in found] == sorted((s.created_at or "" for s in found), reverse=True)


async def test_the_head_is_the_newest_of_the_history(saver: Any) -> None:
    graph = chain(says("a"), says("b"), saver=saver)
    await graph.ainvoke({"log": []}, thread())
    await graph.ainvoke({"log": []}, thread())
    assert await graph.aget_state(thread()) == (await history(graph, thread()))[0]


async def test_a_named_checkpoint_shows_what_the_history_shows(saver: Any) -> None:
    async def slow(state: Log) -> Update:
        await asyncio.sleep(0.01)  # its sibling's result is stored before it
        return {"log": ["slow"]}

    graph = side_by_side(slow, says("quick"), saver=saver)
    await graph.ainvoke({"log": []}, thread())
    await graph.ainvoke({"log": []}, thread())
    for snapshot in await history(graph, thread()):
        assert await graph.aget_state(snapshot.config) == snapshot


async def test_history_can_be_filtered_bounded_and_limited(saver: Any) -> None:
    graph = chain(says("a"), says("b"), saver=saver)
    await graph.ainvoke({"log": []}, {**thread(), "metadata": {"tag": "x"}})
    found = await history(graph, thread())

    async def selected(**options: Any) -> list[Any]:
        return [s.config async for s in graph.aget_state_history(thread(), **options)]

    assert await selected(limit=2) == [s.config for s in found[:2]]
    assert await selected(before=found[1].config) == [s.config for s in found[2:]]
    assert await selected(filter={"source": "input"}) == [found[-1].config]
    assert await selected(filter={"tag": "x", "step": 1}) == [found[1].config]
    assert await selected(filter={"tag": "y"}) == []


async def test_a_thread_that_is_not_there_has_an_empty_state(saver: Any) -> None:
    graph = chain(says("a"), saver=saver)
    state = await graph.aget_state(thread())
    assert (state.values, state.next, state.tasks, state.metadata) == ({}, (), (), None)
    assert await history(graph, thread()) == []


async def test_what_a_run_returns_is_what_the_thread_holds(saver: Any) -> None:
    graph = side_by_side(says("a"), says("b"), saver=saver)
    result = await graph.ainvoke({"log": [], "value": {"deep": [1, (2, 3)]}}, thread())
    assert (await graph.aget_state(thread())).values == result


async def test_a_second_input_goes_on_from_the_state_of_the_first(saver: Any) -> None:
    graph = chain(says("a"), saver=saver)
    await graph.ainvoke({"log": ["1"], "value": 1}, thread())
    assert await graph.ainvoke({"log": ["2"]}, thread()) == {"log": ["1", "a", "2", "a"], "value": 1}
    assert await graph.ainvoke({"log": ["other"]}, thread("other")) == {"log": ["other", "a"]}


async def test_a_finished_thread_continued_with_none_returns_its_state(saver: Any) -> None:
    graph = chain(says("a"), saver=saver)
    done = await graph.ainvoke({"log": []}, thread())
    record = await saver.aget_thread("t")
    assert await graph.ainvoke(None, thread()) == done
    assert await saver.aget_thread("t") == record


@pytest.mark.parametrize("call", ["aget_state", "aupdate_state", "aget_state_history"])
async def test_reading_and_updating_need_a_thread_and_a_saver(call: str, saver: Any) -> None:
    async def use(graph: Any, config: Mapping[str, Any]) -> None:
        if call == "aget_state_history":
            [snapshot async for snapshot in graph.aget_state_history(config)]
        else:
            await getattr(graph, call)(config, *([{}] if call == "aupdate_state" else []))

    with pytest.raises(ConfigError) as caught:
        await use(chain(says("a"), saver=saver), {})
    assert str(caught.value) == 'which thread? Pass {"configurable": {"thread_id": "..."}} as the config'
    with pytest.raises(ConfigError) as caught:
        await use(chain(says("a")), thread())
    assert str(caught.value) == (
        "the graph has no saver, so there is no thread to read or update; compile it with checkpointer="
    )


async def test_a_paused_reader_of_the_history_holds_back_no_writer(saver: Any) -> None:
    graph = chain(says("a"), says("b"), saver=saver)
    for _ in range(20):
        await graph.ainvoke({"log": []}, thread())
    reader = graph.aget_state_history(thread())
    first = await anext(reader)
    async with asyncio.timeout(1):
        await graph.ainvoke({"log": []}, thread())
        await graph.aupdate_state(thread(), {"log": ["by hand"]})
    rest = [snapshot async for snapshot in reader]
    assert len(rest) == 79
    assert [first, *rest] == sorted(
        [first, *rest], key=lambda s: s.config["configurable"]["checkpoint_id"], reverse=True
    )


async def test_deleting_a_thread_under_a_paused_reader_ends_it_cleanly(saver: Any) -> None:
    graph = chain(says("a"), saver=saver)
    for _ in range(40):
        await graph.ainvoke({"log": []}, thread())
    reader = graph.aget_state_history(thread())
    await anext(reader)
    async with asyncio.timeout(1):
        await saver.adelete_thread("t")
    assert len([snapshot async for snapshot in reader]) < 120
    assert await history(graph, thread()) == []


async def test_a_run_whose_thread_is_deleted_cannot_bring_it_back(saver: Any) -> None:
    entered, go = asyncio.Event(), asyncio.Event()

    async def wait(state: Log) -> Update:
        entered.set()
        await go.wait()
        return {"log": ["wait"]}

    graph = chain(wait, saver=saver)
    run = asyncio.create_task(graph.ainvoke({"log": []}, thread()))
    await entered.wait()
    await saver.adelete_thread("t")
    go.set()
    with pytest.raises(ThreadDeleted):
        await run
    assert await saver.aget_thread("t") is None
    assert (await graph.aget_state(thread())).values == {}


# Updates by hand --------------------------------------------------------------------------------------------


async def test_an_update_counts_as_the_node_it_is_made_as(saver: Any) -> None:
    graph = chain(says("a"), says("b"), says("c"), saver=saver, interrupt_before=["b"])
    await graph.ainvoke({"log": []}, thread())
    config = await graph.aupdate_state(thread(), {"log": ["b by hand"]}, as_node="b")
    state = await graph.aget_state(thread())
    assert (state.config, state.next, state.values) == (config, ("c",), {"log": ["a", "b by hand"]})
    assert state.metadata is not None
    assert (state.metadata["source"], state.metadata["step"]) == ("update", 2)
    assert await graph.ainvoke(None, thread()) == {"log": ["a", "b by hand", "c"]}


async def test_without_a_node_the_update_counts_as_the_one_that_ran_last(saver: Any) -> None:
    graph = chain(says("a"), says("b"), says("c"), saver=saver, interrupt_after=["b"])
    await graph.ainvoke({"log": []}, thread())
    await graph.aupdate_state(thread(), {"log": ["by hand"]})
    assert (await graph.aget_state(thread())).next == ("c",)
    assert await graph.ainvoke(None, thread()) == {"log": ["a", "b", "by hand", "c"]}


async def test_an_update_of_a_new_thread_counts_as_its_input(saver: Any) -> None:
    graph = chain(says("a"), saver=saver)
    await graph.aupdate_state(thread(), {"log": ["by hand"]})
    state = await graph.aget_state(thread())
    assert (state.values, state.next) == ({"log": ["by hand"]}, ("a",))
    assert await graph.ainvoke(None, thread()) == {"log": ["by hand", "a"]}


async def test_an_update_follows_the_routes_of_its_node(saver: Any) -> None:
    builder = StateGraph(Log).add_node(*says("a")).add_node(*says("left")).add_node(*says("right"))
    builder.add_edge(START, "a").add_conditional_edges("a", lambda state: state["value"], ["left", "right"])
    graph = builder.compile(saver)
    await graph.aupdate_state(thread(), {"value": "right"}, as_node="a")
    assert (await graph.aget_state(thread())).next == ("right",)


async def test_an_update_that_could_come_from_several_nodes_must_say_which(saver: Any) -> None:
    graph = side_by_side(says("a"), says("b"), saver=saver)
    await graph.ainvoke({"log": []}, thread())
    with pytest.raises(InvalidUpdateError) as caught:
        await graph.aupdate_state(thread(), {"log": ["?"]})
    assert str(caught.value) == (
        "it is not clear as which node the update comes: ['a', 'b'] are possible; pass as_node"
    )
    await graph.aupdate_state(thread(), {"log": ["b by hand"]}, as_node="b")
    assert (await graph.aget_state(thread())).values == {"log": ["a", "b", "b by hand"]}


@pytest.mark.parametrize(
    ("values", "as_node", "message"),
    [
        ({"log": []}, "frist", "the update comes as node 'frist', which does not exist. Did you mean 'first'?"),
        (
            {"lgo": []},
            "first",
            (
                "the update of node 'first' has key 'lgo', which is in no schema of this graph. Did you mean 'log'? "
                "Its keys are 'items', 'log', 'value'; compile(unknown_keys='ignore') drops other keys."
            ),
        ),
        (
            7,
            "first",
            (
                "the update of node 'first' is int 7; expected a dict of state keys, an instance of a state schema, a "
                "Command, a Send, a list with Commands or Sends in it, or None"
            ),
        ),
    ],
)
async def test_an_update_that_does_not_fit_is_refused_and_stores_nothing(
    values: Any, as_node: str, message: str, saver: Any
) -> None:
    graph = chain(says("first"), saver=saver)
    await graph.ainvoke({"log": []}, thread())
    before = await history(graph, thread()), await saver.aget_thread("t")
    with pytest.raises(InvalidUpdateError) as caught:
        await graph.abulk_update_state(
            thread(), [[StateUpdate({"log": ["good"]}, "first")], [StateUpdate(values, as_node)]]
        )
    assert str(caught.value) == message
    assert (await history(graph, thread()), await saver.aget_thread("t")) == before


async def test_several_updates_have_a_checkpoint_each(saver: Any) -> None:
    graph = chain(says("a"), says("b"), saver=saver)
    config = await graph.abulk_update_state(
        thread(), [[StateUpdate({"log": ["in"]})], [StateUpdate({"log": [1]}, "a")], [StateUpdate({"log": [2]}, "b")]]
    )
    found = await history(graph, thread())
    assert [(s.values["log"], s.next) for s in found] == [(["in", 1, 2], ()), (["in", 1], ("b",)), (["in"], ("a",))]
    assert found[0].config == config
    with pytest.raises(ConfigError, match="No supersteps provided: pass at least one list of StateUpdates"):
        await graph.abulk_update_state(thread(), [])
    with pytest.raises(ConfigError, match="No updates provided: pass at least one StateUpdate for each superstep"):
        await graph.abulk_update_state(thread(), [[StateUpdate(None)], []])


async def test_an_update_in_the_name_of_the_asking_node_answers_in_its_place(saver: Any) -> None:
    async def ask(state: Log) -> Update:
        return {"log": [interrupt("q")]}

    graph = chain(says("a"), ask, says("b"), saver=saver)
    (question,) = (await graph.ainvoke({"log": []}, thread()))["__interrupt__"]
    await graph.aupdate_state(thread(), {"log": ["by hand"]}, as_node="ask")
    state = await graph.aget_state(thread())
    assert (state.next, state.interrupts) == (("b",), ())
    late: list[Any] = ["A", {question.id: "A"}]
    for answer in late:
        with pytest.raises(UnknownInterruptError):
            await graph.ainvoke(Command(resume=answer), thread())
    assert await graph.ainvoke(None, thread()) == {"log": ["a", "by hand", "b"]}


async def test_an_update_keeps_the_threads_status(saver: Any) -> None:
    graph = chain(says("a"), says("b"), saver=saver, interrupt_before=["b"])
    await graph.ainvoke({"log": []}, thread())
    await graph.aupdate_state(thread(), {"log": ["x"]})
    assert (await saver.aget_thread("t")).status == "interrupted"


# Replay and forks -------------------------------------------------------------------------------------------


async def test_replay_runs_what_came_after_the_checkpoint_on_a_branch(saver: Any) -> None:
    runs: list[str] = []

    def node(name: str) -> Any:
        async def run(state: Log) -> Update:
            runs.append(name)
            return {"log": [f"{name}{runs.count(name)}"]}

        return name, run

    graph = chain(node("a"), node("b"), node("c"), saver=saver)
    await graph.ainvoke({"log": []}, thread())
    old = await history(graph, thread())
    runs.clear()
    result = await graph.ainvoke(None, at(old, "b").config)
    assert (runs, result) == (["b", "c"], {"log": ["a1", "b1", "c1"]})
    now = await history(graph, thread())
    assert now[-len(old) :] == old
    fork = now[-len(old) - 1]
    assert fork.metadata is not None
    assert (fork.metadata["source"], fork.parent_config, fork.next) == ("fork", at(old, "b").config, ("b",))
    assert await graph.aget_state(thread()) == now[0]


async def test_a_replayed_question_is_asked_again_and_answered_anew(saver: Any) -> None:
    async def ask(state: Log) -> Update:
        return {"log": [interrupt("q")]}

    graph = chain(says("a"), ask, says("b"), saver=saver)
    await graph.ainvoke({"log": []}, thread())
    await graph.ainvoke(Command(resume="first"), thread())
    old = await history(graph, thread())
    result = await graph.ainvoke(None, at(old, "ask").config)
    assert [question.value for question in result["__interrupt__"]] == ["q"]
    assert await graph.ainvoke(Command(resume="second"), thread()) == {"log": ["a", "second", "b"]}
    assert old[0].values == (await graph.aget_state(old[0].config)).values == {"log": ["a", "first", "b"]}


async def test_a_past_question_is_answered_anew_on_a_branch_of_its_own(saver: Any) -> None:
    runs = 0

    async def ask(state: Log) -> Update:
        return {"log": [interrupt("q")]}

    async def beside(state: Log) -> Update:
        nonlocal runs
        runs += 1
        return {"log": ["beside"]}

    graph = side_by_side(ask, beside, saver=saver)
    await graph.ainvoke({"log": []}, thread())
    asked = (await graph.aget_state(thread())).config
    assert await graph.ainvoke(Command(resume="first"), thread()) == {"log": ["first", "beside"]}
    old = await history(graph, thread())
    assert await graph.ainvoke(Command(resume="second"), asked) == {"log": ["second", "beside"]}
    assert runs == 1
    assert (await history(graph, thread()))[-len(old) :] == old
    assert (await graph.aget_state(old[0].config)).values == {"log": ["first", "beside"]}


async def test_a_fork_by_update_goes_its_own_way_and_leaves_the_old_line_alone(saver: Any) -> None:
    graph = chain(says("a"), says("b"), says("c"), saver=saver)
    await graph.ainvoke({"log": ["in"]}, thread())
    old = await history(graph, thread())
    fork = await graph.aupdate_state(at(old, "b").config, {"log": ["forked"]}, as_node="b")
    assert (await graph.aget_state(fork)).next == ("c",)
    assert await graph.ainvoke(None, fork) == {"log": ["in", "a", "forked", "c"]}
    assert (await history(graph, thread()))[-len(old) :] == old


async def test_branches_of_branches_keep_their_values_apart(saver: Any) -> None:
    graph = chain(says("a"), says("b"), saver=saver)
    await graph.ainvoke({"log": ["0"], "value": 0}, thread())
    root = at(await history(graph, thread()), "a").config

    async def branch(parent: Any, number: int) -> tuple[Any, Any]:
        """The checkpoints after an input by hand, and at the end of its run."""
        fork = await graph.aupdate_state(parent, {"log": [str(number)], "value": number}, as_node=START)
        await graph.ainvoke(None, fork)
        return fork, (await graph.aget_state(thread())).config

    _, one = await branch(root, 1)
    fork, two = await branch(root, 2)
    _, three = await branch(fork, 3)
    for end, line, number in ((one, "01ab", 1), (two, "02ab", 2), (three, "023ab", 3)):
        assert (await graph.aget_state(end)).values == {"log": list(line), "value": number}


async def test_new_input_at_an_old_checkpoint_branches_off_there(saver: Any) -> None:
    graph = chain(says("a"), saver=saver)
    await graph.ainvoke({"log": ["1"]}, thread())
    first = (await graph.aget_state(thread())).config
    await graph.ainvoke({"log": ["2"]}, thread())
    assert await graph.ainvoke({"log": ["3"]}, first) == {"log": ["1", "a", "3", "a"]}


async def test_a_replay_of_sent_tasks_runs_them_all_again(saver: Any) -> None:
    runs: list[int] = []

    async def work(state: Log) -> Update:
        runs.append(state["value"])
        return {"log": [state["value"]]}

    builder = StateGraph(Log).add_node(work)
    builder.add_conditional_edges(START, lambda state: [Send("work", {"value": n}) for n in range(3)], ["work"])
    graph = builder.compile(saver)
    await graph.ainvoke({"log": []}, thread())
    found = await history(graph, thread())
    assert await graph.ainvoke(None, at(found, "work", "work", "work").config) == {"log": [0, 1, 2]}
    assert runs == [0, 1, 2, 0, 1, 2]


async def test_an_unknown_checkpoint_is_refused(saver: Any) -> None:
    graph = chain(says("a"), saver=saver)
    await graph.ainvoke({"log": []}, thread())
    unknown = "1f000000-0000-6000-8000-000000000000"
    with pytest.raises(CheckpointNotFound) as caught:
        await graph.ainvoke(None, thread(checkpoint_id=unknown))
    assert str(caught.value) == f"thread 't' has no checkpoint {unknown!r}; alist shows those it has."

"""The shape of snapshots: what tasks of a thread show of their questions, their place and their subgraphs."""

from __future__ import annotations

from typing import Any

import pytest

from everstep.config import get_config
from everstep.constants import START
from everstep.context import interrupt
from everstep.errors import ConfigError
from everstep.graph.builder import StateGraph
from everstep.types import Command, Interrupt, PregelTask, Send
from tests.engine.graphs import Log, Update, chain, history, says, side_by_side, thread


def asks(question: str, returns: Any) -> Any:
    async def node(state: Log) -> Any:
        interrupt(question)
        return returns

    return question, node


def questions(tasks: tuple[PregelTask, ...]) -> dict[str, list[Any]]:
    return {task.name: [question.value for question in task.interrupts] for task in tasks}


def by_value(questions: tuple[Interrupt, ...]) -> dict[Any, str]:
    return {question.value: question.id for question in questions}


@pytest.mark.parametrize("returned", [None, {}, {"value": 0}])
async def test_a_task_that_has_finished_asks_nothing_any_more(saver: Any, returned: Any) -> None:
    graph = side_by_side(asks("a", returned), asks("b", None), saver=saver)
    await graph.ainvoke({"log": []}, thread())
    opened = await graph.aget_state(thread())
    await graph.ainvoke(Command(resume={by_value(opened.interrupts)["a"]: True}), thread())

    head = await graph.aget_state(thread())

    assert (head.next, questions(head.tasks)) == (("b",), {"a": [], "b": ["b"]})
    assert list(by_value(head.interrupts)) == ["b"]
    # History tells what was asked.
    past = (await history(graph, thread()))[0]
    assert (past.next, questions(past.tasks)) == (("a", "b"), {"a": ["a"], "b": ["b"]})


async def test_a_send_shows_its_number(saver: Any) -> None:
    builder = StateGraph(Log).add_node(*says("a")).add_node(*says("b"))
    builder.add_edge(START, "a").add_conditional_edges("a", lambda state: [Send("b", {}), Send("b", {})])
    graph = builder.compile(saver, interrupt_before=["b"])
    await graph.ainvoke({"log": []}, thread())

    tasks = (await graph.aget_state(thread())).tasks

    assert [task.path for task in tasks] == [("__pregel_push", 0, False), ("__pregel_push", 1, False)]


async def test_metadata_of_the_user_is_stored_but_for_the_keys_that_mean_something_to_the_engine(saver: Any) -> None:
    asked = asks("q", {"value": 1})
    graph = chain(asked, ("again", asked[1]), saver=saver)
    own = {"origin": "x", "continues": "x", "caller": "x", "superseded": "x", "parents": "x", "source": "x", "step": 9}
    config = {**thread(), "metadata": {**own, "mine": "x"}}
    await graph.ainvoke({"log": []}, config)
    ids = [question.id for question in (await graph.aget_state(thread())).interrupts]
    await graph.ainvoke(Command(resume=1), config)
    ids += [question.id for question in (await graph.aget_state(thread())).interrupts]
    await graph.ainvoke(Command(resume=2), config)
    await graph.aupdate_state(config, {"value": 2})

    found = [snapshot.metadata for snapshot in await history(graph, thread())]

    assert len(set(ids)) == 2
    assert [metadata and (metadata["source"], metadata["step"], metadata["mine"]) for metadata in found] == [
        ("update", 3, "x"),
        ("loop", 2, "x"),
        ("loop", 1, "x"),
        ("loop", 0, "x"),
        ("input", -1, "x"),
    ]
    assert all(metadata and set(metadata) == {"source", "step", "parents", "mine"} for metadata in found)


# Subgraphs ------------------------------------------------------------------------------------------------------


def nested(saver: Any, node: Any) -> Any:
    inner: Any = chain(says("a"), node)
    return chain(("inner", inner), saver=saver)


async def test_configs_of_a_subgraphs_checkpoints_name_those_of_the_graphs_around_it(saver: Any) -> None:
    graph = nested(saver, asks("q", None))
    taken = [
        (part["config"], part["parent_config"])
        async for ns, part in graph.astream({"log": []}, thread(), stream_mode="checkpoints", subgraphs=True)
        if ns
    ]
    root = await graph.aget_state(thread(), subgraphs=True)
    outer = root.config["configurable"]["checkpoint_id"]
    assert "checkpoint_map" not in root.config["configurable"]

    inner = root.tasks[0].state
    ns = inner.config["configurable"]["checkpoint_ns"]
    found = await history(graph, thread(checkpoint_ns=ns))

    assert found[0].config == inner.config
    ids = [snapshot.config["configurable"]["checkpoint_id"] for snapshot in found]
    maps = [snapshot.config["configurable"]["checkpoint_map"] for snapshot in found]
    assert maps == [{"": outer, ns: checkpoint_id} for checkpoint_id in ids]
    assert [snapshot.parent_config for snapshot in found] == [*(snapshot.config for snapshot in found[1:]), None]
    assert [(one.config, one.parent_config) for one in reversed(found)] == taken


async def test_a_node_does_not_see_the_map_of_a_config_that_its_run_was_given(saver: Any) -> None:
    seen: list[Any] = []

    async def node(state: Log) -> Update:
        seen.append(get_config()["configurable"])
        return {"value": interrupt("q")}

    graph = nested(saver, ("node", node))
    await graph.ainvoke({"log": []}, thread())
    inner = (await graph.aget_state(thread(), subgraphs=True)).tasks[0].state

    await graph.ainvoke(None, inner.config)

    assert len(seen) == 2
    assert not any("checkpoint_map" in configurable for configurable in seen)


async def test_an_update_of_a_subgraph_that_is_not_there_names_the_way_to_it(saver: Any) -> None:
    graph = nested(saver, says("b"))
    with pytest.raises(ConfigError) as refused:
        await graph.aupdate_state(thread(checkpoint_ns="inner:1|b:2"), {"log": ["x"]})
    assert str(refused.value) == (
        "Subgraph inner|b not found: checkpoint_ns 'inner:1|b:2' leads to it and graph 'graph' does not know that its "
        "nodes run it; add it as a node, or name it in a node's code"
    )


async def test_a_failed_task_shows_what_its_node_raised_whatever_the_class(saver: Any) -> None:
    class OutOfPaperError(Exception):
        pass

    async def own(state: Log) -> None:
        raise OutOfPaperError("tray 2")

    async def known(state: Log) -> None:
        raise ConnectionError("no answer")

    graph = side_by_side(known, own, saver=saver, on_error="drain")
    with pytest.raises(ExceptionGroup):
        await graph.ainvoke({"log": []}, thread())
    tasks = (await graph.aget_state(thread())).tasks
    assert [task.error for task in tasks] == ["ConnectionError('no answer')", "OutOfPaperError('tray 2')"]

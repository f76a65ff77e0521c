"""What users do by mistake: each ends in a clear error, at once, and the thread can go on."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from everstep.errors import ConfigError, InvalidUpdateError, UnknownInterruptError
from everstep.func import task
from everstep.types import Command, interrupt
from everstep_savers.sql.saver import SQLSaver
from tests.engine.graphs import Log, Update, chain, says, side_by_side, thread
from tests.engine.watched import WatchedSaver


class NoTextError(Exception):
    def __str__(self) -> str:
        raise ZeroDivisionError


async def test_an_error_without_a_text_fails_the_run_as_itself(saver: Any) -> None:
    async def fail(state: Log) -> Update:
        raise NoTextError

    with pytest.raises(NoTextError):
        await chain(("fail", fail), saver=saver).ainvoke({"log": []}, thread())
    record = await saver.aget_thread("t")
    assert (record.status, record.error) == ("failed", "NoTextError (its text raised ZeroDivisionError)")


@pytest.mark.parametrize("kind", [GeneratorExit, StopIteration])
async def test_a_sync_node_that_raises_a_signal_of_the_language_fails_the_run(saver: Any, kind: Any) -> None:
    def fail(state: Log) -> Update:
        raise kind

    with pytest.raises((kind, RuntimeError)):
        await chain(("fail", fail), saver=saver).ainvoke({"log": []}, thread())
    assert (await saver.aget_thread("t")).status == "failed"


async def test_a_reducer_that_fails_is_told_with_key_and_node_and_its_node_runs_again_once_mended(saver: Any) -> None:
    runs: list[str] = []

    async def bad(state: Log) -> Any:
        runs.append("bad")
        return {"log": None if len(runs) == 1 else ["mended"]}

    graph = chain(("bad", bad), saver=saver)
    with pytest.raises(TypeError) as caught:
        await graph.ainvoke({"log": []}, thread())
    assert caught.value.__notes__ == ["while reducing key 'log', written by node 'bad'"]

    assert await graph.ainvoke(None, thread()) == {"log": ["mended"]}
    assert runs == ["bad", "bad"]


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ("t", 'a config is a mapping such as {"configurable": {"thread_id": "..."}}, got \'t\''),
        ({"configurable": "t"}, "config key 'configurable' is a mapping, got str 't'"),
        ({"metadata": ["x"]}, "config key 'metadata' is a mapping, got list ['x']"),
        ({"tags": "x"}, "config key 'tags' is a list of strings, got str 'x'"),
    ],
)
async def test_a_config_of_the_wrong_shape_is_refused(config: Any, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        await chain(says("a")).ainvoke({"log": []}, config)
    assert str(caught.value) == message


def test_a_retry_policy_of_the_wrong_kind_is_refused() -> None:
    with pytest.raises(TypeError, match="retry_policy is a RetryPolicy or a list of them, got int 3"):
        chain(says("a"), node={"retry_policy": 3})


@pytest.mark.parametrize("spoil", [str.upper, lambda key: key[:-1], lambda key: key + " "])
async def test_a_mistyped_question_id_is_refused_and_not_taken_as_the_answer(saver: Any, spoil: Any) -> None:
    async def ask(state: Log) -> Update:
        return {"log": [interrupt("q?")]}

    graph = chain(("ask", ask), saver=saver)
    [question] = (await graph.ainvoke({"log": []}, thread()))["__interrupt__"]
    for value in ({spoil(question.id): "yes"}, {question.id: "yes", "nope": 1}):
        if value != {question.id: "yes"}:
            with pytest.raises(UnknownInterruptError, match="looks like a map by question id"):
                await graph.ainvoke(Command(resume=value), thread())

    assert await graph.ainvoke(Command(resume={"a": "yes"}), thread()) == {"log": [{"a": "yes"}]}


async def test_an_option_of_the_sqlite_url_is_honoured(tmp_path: Path) -> None:
    async with asyncio.timeout(30):
        async with SQLSaver.from_url(f"sqlite:///{tmp_path}/a.db?timeout=5", auto_migrate=True) as saver:
            assert await saver.aget_thread("t") is None


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
async def test_a_step_that_its_reducer_refuses_is_taken_again_in_every_durability(saver: Any, durability: str) -> None:
    runs: list[str] = []

    async def bad(state: Log) -> Any:
        runs.append("bad")
        return {"value": "new", "log": None if runs.count("bad") == 1 else ["mended"]}

    async def after(state: Log) -> Any:
        runs.append("after")
        return {"log": [state["value"]]}

    graph = chain(("bad", bad), ("after", after), saver=saver)
    with pytest.raises(TypeError):
        await graph.ainvoke({"log": []}, thread(), durability=durability)
    assert (await graph.aget_state(thread())).next == ("bad",)

    result = await graph.ainvoke(None, thread(), durability=durability)

    assert result == {"value": "new", "log": ["mended", "new"]}
    assert runs == ["bad", "bad", "after"]


@pytest.mark.parametrize("is_nested", [False, True], ids=["root", "nested"])
@pytest.mark.parametrize("refused", [{"log": None}, {"value": 2}], ids=["reducer", "two-writers"])
async def test_a_refused_result_that_is_stored_already_is_taken_back(
    refused: Update, is_nested: bool, saver: Any
) -> None:
    runs: list[str] = []
    stored = asyncio.Event()

    async def note(number: int, commit: Any) -> None:
        if "quick" in runs:
            stored.set()

    @task
    async def once() -> None:
        runs.append("once")

    async def quick(state: Log) -> Update:
        answer = interrupt("q")
        await once()
        runs.append("quick")
        return refused if runs.count("quick") == 1 else {"log": [answer]}

    async def slow(state: Log) -> Update:
        value = interrupt("value")
        await stored.wait()
        return {"value": value}

    async def fine(state: Log) -> Update:
        runs.append("fine")
        return {"items": ["fine"]}

    watched = WatchedSaver(saver, after=note)
    graph: Any = side_by_side(fine, quick, slow, saver=None if is_nested else watched)
    if is_nested:
        graph = chain(("inner", graph), saver=watched)
    asked = await graph.ainvoke({"log": ["in"]}, thread())
    answers = {question.id: "A" if question.value == "q" else 1 for question in asked["__interrupt__"]}
    with pytest.raises((TypeError, InvalidUpdateError)):
        await graph.ainvoke(Command(resume=answers), thread())
    state = await graph.aget_state(thread())
    assert (state.next != (), state.interrupts) == (True, ())

    result = await graph.ainvoke(None, thread())

    prefix = ["in", "in"] if is_nested else ["in"]
    assert result == {"log": [*prefix, "A"], "value": 1, "items": ["fine"]}
    assert runs.count("once") == runs.count("fine") == 1
    assert runs.count("quick") == 2


INTERRUPTED = """
import os, signal, sys, threading
from everstep.constants import START
from everstep.graph.builder import StateGraph
import asyncio
import subprocess
import sys

async def stop(state):
    {body}

async def fine(state):
    return None

graph = StateGraph(dict).add_node(stop).add_edge(START, "stop").compile()
try:
    graph.invoke({{}})
except BaseException as error:
    print(type(error).__name__)
print(StateGraph(dict).add_node(fine).add_edge(START, "fine").compile().invoke({{"a": 1}}))
"""


@pytest.mark.parametrize(
    ("body", "raised"),
    [
        ("sys.exit(3)", "SystemExit"),
        ("raise KeyboardInterrupt", "KeyboardInterrupt"),
        ("os.kill(os.getpid(), signal.SIGINT); await asyncio.sleep(60)", "KeyboardInterrupt"),
    ],
)
def test_what_ends_a_program_ends_the_call_and_not_the_bridge(body: str, raised: str) -> None:
    program = INTERRUPTED.format(body=body)
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=50, check=False)
    assert (ran.stdout, ran.stderr, ran.returncode) == (f"{raised}\n{{'a': 1}}\n", "", 0)


# From 3.12 on Python itself warns of a fork beside threads, whatever these do.
FORKED = """
import os
import warnings
from everstep.constants import START
from everstep.graph.builder import StateGraph

async def fine(state):
    return None

graph = StateGraph(dict).add_node(fine).add_edge(START, "fine").compile()
graph.invoke({})
warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)
if child := os.fork():
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
else:
    print(graph.invoke({"in": "child"}), flush=True)
"""

LEFT_OPEN = """
import asyncio
from everstep.constants import START
from everstep.graph.builder import StateGraph

async def fine(state):
    return None

async def wait(state):
    await asyncio.sleep(60)

graph = StateGraph(dict).add_sequence([fine, wait]).add_edge(START, "fine").compile()
events = graph.stream({})
print(next(events))
"""


@pytest.mark.parametrize(
    ("program", "told"),
    [
        pytest.param(FORKED, "{'in': 'child'}\n0\n", id="forked"),
        pytest.param(LEFT_OPEN, "{'fine': None}\n", id="left-open"),
    ],
)
def test_a_program_that_forks_or_leaves_a_stream_open_ends_without_a_word(program: str, told: str) -> None:
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=50, check=False)
    assert (ran.stdout, ran.stderr, ran.returncode) == (told, "", 0)

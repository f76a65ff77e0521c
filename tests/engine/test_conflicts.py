"""Two runs of one thread: one of them may win, both may never seem to have won."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from everstep.context import interrupt
from everstep.errors import LeaseLost, PersistenceError, ThreadConflict
from everstep.types import Command
from tests.engine.graphs import Log, Update, chain, says, thread
from tests.engine.watched import Gate, WatchedSaver

DURABILITIES = ["sync", "async", "exit"]


class Meeting:
    """Two steps that log who they work for; the first waits until everybody has begun."""

    def __init__(self, expected: int) -> None:
        self.expected = expected
        self.begun = 0
        self.one_has_begun = asyncio.Event()
        self.all_begun = asyncio.Event()

    def _begin(self) -> None:
        self.begun += 1
        self.one_has_begun.set()
        if self.begun >= self.expected:
            self.all_begun.set()

    async def first(self, state: Log) -> Update:
        self._begin()
        await self.all_begun.wait()
        return {"log": [f"{state['value']}1"]}

    async def second(self, state: Log) -> Update:
        await asyncio.sleep(0)
        return {"log": [f"{state['value']}2"]}

    def graph(self, saver: Any) -> Any:
        return chain(("first", self.first), ("second", self.second), saver=saver)


async def race(graph: Any, inputs: list[Any], durability: str) -> tuple[list[Any], list[BaseException]]:
    """Run all inputs at once on one thread; the results, and the errors."""
    runs = (graph.ainvoke(given, thread(), durability=durability) for given in inputs)
    results = await asyncio.gather(*runs, return_exceptions=True)
    failed = [result for result in results if isinstance(result, BaseException)]
    return [result for result in results if not isinstance(result, BaseException)], failed


@pytest.mark.parametrize("durability", DURABILITIES)
async def test_of_two_runs_started_together_exactly_one_succeeds(durability: str, saver: Any) -> None:
    await Meeting(1).graph(saver).ainvoke({"log": [], "value": "0"}, thread())
    watched = WatchedSaver(saver)
    watched.on_load = asyncio.Barrier(2).wait  # both have read the thread before one of them claims it
    graph = Meeting(1).graph(watched)
    results, errors = await race(graph, [{"value": "A"}, {"value": "B"}], durability)
    assert [type(error) for error in errors] == [ThreadConflict]
    winner = results[0]["value"]
    assert results[0]["log"] == ["01", "02", f"{winner}1", f"{winner}2"]
    assert (await graph.aget_state(thread())).values == results[0]
    assert (await saver.aget_thread("t")).status == "done"


@pytest.mark.parametrize("durability", DURABILITIES)
async def test_the_run_that_began_first_fails_when_a_second_takes_its_thread_over(durability: str, saver: Any) -> None:
    await Meeting(1).graph(saver).ainvoke({"log": [], "value": "0"}, thread())
    meeting, settled = Meeting(2), asyncio.Event()

    async def settle(number: int, commit: Any) -> None:
        if number == (1 if durability == "exit" else 2):
            settled.set()

    graph = meeting.graph(WatchedSaver(saver, after=settle))
    first = asyncio.create_task(graph.ainvoke({"value": "A"}, thread(), durability=durability))
    await meeting.one_has_begun.wait()
    await settled.wait()
    result = await graph.ainvoke({"value": "B"}, thread(), durability=durability)
    with pytest.raises(LeaseLost) as caught:
        await first
    assert str(caught.value) == (
        "thread 't' has been claimed by a later run (token 3, this run holds 2); nothing was written and this run "
        "stores nothing more."
    )
    assert (await graph.aget_state(thread())).values == result
    assert result["log"] == ["01", "02", "B1", "B2"]
    assert (await saver.aget_thread("t")).status == "done"


async def test_a_run_that_read_the_thread_before_another_claimed_it_is_refused_before_it_runs(saver: Any) -> None:
    await Meeting(1).graph(saver).ainvoke({"log": [], "value": "0"}, thread())
    before = await saver.aget_thread("t")
    late, meeting = Gate(1), Meeting(1)
    slow = asyncio.create_task(meeting.graph(WatchedSaver(saver, before=late)).ainvoke({"value": "A"}, thread()))
    await late.reached.wait()
    result = await Meeting(1).graph(saver).ainvoke({"value": "B"}, thread())
    now = await saver.aget_thread("t")
    late.opened.set()
    with pytest.raises(ThreadConflict) as caught:
        await slow
    assert str(caught.value) == (
        f"thread 't' was moved by another run since it was read: seen token 1 at head {before.head!r}, found token 2 "
        f"at head {now.head!r}; nothing was written. Read the thread again before another attempt."
    )
    assert meeting.begun == 0
    assert await saver.aget_thread("t") == now
    assert result["log"] == ["01", "02", "B1", "B2"]


async def test_two_first_runs_of_a_new_thread_do_not_both_succeed(saver: Any) -> None:
    late = Gate(1)
    slow = asyncio.create_task(
        Meeting(1).graph(WatchedSaver(saver, before=late)).ainvoke({"log": [], "value": "A"}, thread())
    )
    await late.reached.wait()
    result = await Meeting(1).graph(saver).ainvoke({"log": [], "value": "B"}, thread())
    late.opened.set()
    with pytest.raises(ThreadConflict) as caught:
        await slow
    assert "seen no row" in str(caught.value)
    assert (await Meeting(1).graph(saver).aget_state(thread())).values == result


@pytest.mark.parametrize("durability", DURABILITIES)
async def test_of_many_runs_each_success_is_in_the_threads_history(durability: str, saver: Any) -> None:
    await Meeting(1).graph(saver).ainvoke({"log": [], "value": "0"}, thread())
    graph = Meeting(1).graph(saver)
    results, errors = await race(graph, [{"value": name} for name in "ABCDEF"], durability)
    assert results
    assert all(isinstance(error, PersistenceError) for error in errors)
    final = (await graph.aget_state(thread())).values["log"]
    for result in results:
        assert final[: len(result["log"])] == result["log"]


async def test_an_update_by_hand_takes_the_thread_from_a_running_run(saver: Any) -> None:
    meeting = Meeting(2)
    graph = meeting.graph(saver)
    run = asyncio.create_task(graph.ainvoke({"log": [], "value": "A"}, thread(), durability="sync"))
    await meeting.one_has_begun.wait()
    await graph.aupdate_state(thread(), {"log": ["by hand"]})
    meeting.all_begun.set()
    with pytest.raises(LeaseLost):
        await run
    assert "by hand" in (await graph.aget_state(thread())).values["log"]


async def test_an_update_by_hand_that_came_too_late_is_refused(saver: Any) -> None:
    graph = chain(says("a"), saver=saver)
    await graph.ainvoke({"log": []}, thread())
    late = Gate(1)
    slow = asyncio.create_task(
        chain(says("a"), saver=WatchedSaver(saver, before=late)).aupdate_state(thread(), {"log": ["late"]})
    )
    await late.reached.wait()
    await graph.ainvoke({"log": []}, thread())
    late.opened.set()
    with pytest.raises(ThreadConflict):
        await slow
    assert (await graph.aget_state(thread())).values == {"log": ["a", "a"]}


async def test_runs_of_different_threads_do_not_disturb_each_other(saver: Any) -> None:
    async def ask(state: Log) -> Update:
        return {"log": [interrupt(state["value"])]}

    graph = chain(says("a"), ask, says("b"), saver=saver)
    names = [str(number) for number in range(12)]
    await asyncio.gather(*(graph.ainvoke({"log": [], "value": name}, thread(name)) for name in names))
    results = await asyncio.gather(*(graph.ainvoke(Command(resume=name), thread(name)) for name in names))
    assert [result["log"] for result in results] == [["a", name, "b"] for name in names]

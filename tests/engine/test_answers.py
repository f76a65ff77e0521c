"""Answers: each belongs to the question that was open when it was sent, is used once, and is never lost."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from everstep.context import interrupt
from everstep.errors import EmptyInputError, PersistenceError, UnknownInterruptError
from everstep.types import Command, StateUpdate
from tests.engine.graphs import Log, Update, chain, says, side_by_side, thread
from tests.engine.watched import WatchedSaver

UNKNOWN = "0123456789abcdef" * 2


async def ask(state: Log) -> Update:
    return {"log": [interrupt("q")]}


async def refused(graph: Any, value: Any, saver: Any) -> str:
    """Send an answer that must be refused, and check that nothing has changed; the message."""
    before = repr((await graph.aget_state(thread()), await saver.aget_thread("t")))
    with pytest.raises(UnknownInterruptError) as caught:
        await graph.ainvoke(Command(resume=value), thread())
    assert repr((await graph.aget_state(thread()), await saver.aget_thread("t"))) == before
    return str(caught.value)


async def test_an_unknown_id_is_refused_with_the_open_one_and_nothing_runs(saver: Any) -> None:
    graph = chain(ask, saver=saver)
    await graph.ainvoke({"log": []}, thread())
    (question,) = (await graph.aget_state(thread())).interrupts
    assert await refused(graph, {UNKNOWN: "yes"}, saver) == (
        f"no question with id {UNKNOWN} is open on this thread. Open: {question.id} (node 'ask' asks 'q')."
    )


async def test_a_map_with_one_unknown_id_is_refused_as_a_whole(saver: Any) -> None:
    graph = chain(ask, saver=saver)
    await graph.ainvoke({"log": []}, thread())
    (question,) = (await graph.aget_state(thread())).interrupts
    await refused(graph, {question.id: "yes", UNKNOWN: "no"}, saver)


@pytest.mark.parametrize("answer", [None, {"a": "yes"}, {}, [], 0, False, "", {UNKNOWN.upper(): 1}, {UNKNOWN[1:]: 1}])
async def test_any_value_is_an_answer_and_arrives_intact(answer: Any, saver: Any) -> None:
    graph = chain(ask, saver=saver)
    await graph.ainvoke({"log": []}, thread())
    assert await graph.ainvoke(Command(resume=answer), thread()) == {"log": [answer]}


async def test_a_plain_answer_to_several_questions_is_refused_with_their_ids(saver: Any) -> None:
    graph = side_by_side(("a", ask), ("b", ask), saver=saver)
    await graph.ainvoke({"log": []}, thread())
    ids = {task.name: task.interrupts[0].id for task in (await graph.aget_state(thread())).tasks}
    assert await refused(graph, "yes", saver) == (
        f"2 questions are open and the answer names none; answer by id: Command(resume={{id: answer, ...}}). "
        f"Open: {ids['a']} (node 'a' asks 'q'), {ids['b']} (node 'b' asks 'q')."
    )


async def test_an_answer_to_a_thread_that_asks_nothing_is_refused(saver: Any) -> None:
    graph = chain(says("a"), saver=saver)
    await graph.ainvoke({"log": []}, thread())
    assert await refused(graph, "yes", saver) == (
        "the answer 'yes' has no question: none is open on this thread. Continue it with input None, or start anew "
        "with an input"
    )
    assert await refused(graph, {UNKNOWN: 1}, saver) == (
        f"no question with id {UNKNOWN} is open on this thread. No question is open."
    )


async def test_an_answer_to_a_thread_that_is_not_there_is_refused(saver: Any) -> None:
    with pytest.raises(EmptyInputError) as caught:
        await chain(ask, saver=saver).ainvoke(Command(resume="yes"), thread())
    assert str(caught.value) == "thread 't' has no checkpoint: there is nothing to answer; give the run an input"


async def test_an_answer_is_used_once_and_by_its_own_question(saver: Any) -> None:
    is_up = False
    got: list[Any] = []

    async def work(state: Log) -> Update:
        got.append(interrupt("q1"))
        if not is_up:
            raise ConnectionError("outside is down")
        return {"log": [got[-1], interrupt("q2")]}

    graph = chain(work, saver=saver)
    await graph.ainvoke({"log": []}, thread())
    with pytest.raises(ConnectionError):
        await graph.ainvoke(Command(resume="A"), thread())
    is_up = True
    result = await graph.ainvoke(None, thread())
    assert (got, [question.value for question in result["__interrupt__"]]) == (["A", "A"], ["q2"])
    assert await graph.ainvoke(Command(resume="B"), thread()) == {"log": ["A", "B"]}


async def test_repeating_an_accepted_answer_runs_nothing_and_returns_the_state(saver: Any) -> None:
    entered = 0

    async def count(state: Log) -> Update:
        nonlocal entered
        entered += 1
        return {"log": [interrupt("q")]}

    graph = chain(count, says("b"), saver=saver)
    (question,) = (await graph.ainvoke({"log": []}, thread()))["__interrupt__"]
    done = await graph.ainvoke(Command(resume="A"), thread())
    record = await saver.aget_thread("t")
    for again in ("A", {question.id: "A"}):
        assert await graph.ainvoke(Command(resume=again), thread()) == done
    assert entered == 2
    assert await saver.aget_thread("t") == record


async def test_another_answer_to_an_answered_question_is_refused(saver: Any) -> None:
    graph = chain(ask, says("b"), saver=saver)
    (question,) = (await graph.ainvoke({"log": []}, thread()))["__interrupt__"]
    await graph.ainvoke(Command(resume="A"), thread())
    for again in ("B", {question.id: "B"}):
        assert await refused(graph, again, saver) == (
            f"question {question.id} ('q') was answered with 'A'; the different answer 'B' is refused. "
            f"No question is open."
        )


async def test_another_answer_is_refused_while_the_answered_node_has_not_finished(saver: Any) -> None:
    async def fails(state: Log) -> Update:
        interrupt("q")
        raise ConnectionError("down")

    graph = chain(fails, saver=saver)
    (question,) = (await graph.ainvoke({"log": []}, thread()))["__interrupt__"]
    with pytest.raises(ConnectionError):
        await graph.ainvoke(Command(resume="A"), thread())
    assert await refused(graph, "B", saver) == (
        f"question {question.id} ('q') was answered with 'A'; the different answer 'B' is refused. No question is open."
    )


async def test_another_answer_to_an_answered_question_is_refused_while_another_is_open(saver: Any) -> None:
    async def two(state: Log) -> Update:
        return {"log": [interrupt("q1"), interrupt("q2")]}

    graph = chain(two, saver=saver)
    (first,) = (await graph.ainvoke({"log": []}, thread()))["__interrupt__"]
    (second,) = (await graph.ainvoke(Command(resume="A"), thread()))["__interrupt__"]
    assert await refused(graph, {first.id: "B"}, saver) == (
        f"question {first.id} ('q1') was answered with 'A'; the different answer 'B' is refused. "
        f"Open: {second.id} (node 'two' asks 'q2')."
    )


async def test_an_answer_survives_a_state_update_made_while_it_was_open(saver: Any) -> None:
    got: list[Any] = []

    async def asks(state: Log) -> Update:
        got.append(interrupt("q"))
        return {"log": [got[-1]]}

    graph = chain(says("a"), asks, saver=saver)
    await graph.ainvoke({"log": []}, thread())
    await graph.aupdate_state(thread(), {"log": ["edited"]})
    assert await graph.ainvoke(Command(resume="A"), thread()) == {"log": ["a", "edited", "A"]}
    assert got == ["A"]


async def test_updates_while_a_question_is_open_keep_it_and_what_finished_beside_it(saver: Any) -> None:
    runs: list[str] = []

    async def quick(state: Log) -> Update:
        runs.append("quick")
        return {"log": ["quick"]}

    async def asks(state: Log) -> Update:
        runs.append("asks")
        return {"log": [interrupt("q")]}

    graph = side_by_side(quick, asks, saver=saver)
    asked = await graph.ainvoke({"log": []}, thread())
    await graph.abulk_update_state(thread(), [[StateUpdate({"log": ["one"]})], [StateUpdate({"log": ["two"]})]])

    state = await graph.aget_state(thread())
    assert (state.values["log"], state.next) == (["one", "two", "quick"], ("asks",))
    assert state.interrupts == tuple(asked["__interrupt__"])
    assert await graph.ainvoke(Command(resume="A"), thread()) == {"log": ["one", "two", "A", "quick"]}
    assert runs.count("quick") == 1


async def test_new_input_supersedes_an_open_question(saver: Any) -> None:
    graph = chain(ask, saver=saver)
    (old,) = (await graph.ainvoke({"log": ["1"]}, thread()))["__interrupt__"]
    (new,) = (await graph.ainvoke({"log": ["2"]}, thread()))["__interrupt__"]
    assert old.id != new.id
    assert f"{new.id} (node 'ask' asks 'q')" in await refused(graph, {old.id: "late"}, saver)
    assert await graph.ainvoke(Command(resume={new.id: "A"}), thread()) == {"log": ["1", "2", "A"]}


async def test_updates_sent_with_answers_are_all_kept(saver: Any) -> None:
    async def three(state: Log) -> Update:
        return {"log": [interrupt("q1"), interrupt("q2"), interrupt("q3")]}

    graph = chain(three, saver=saver)
    await graph.ainvoke({"log": []}, thread())
    for number in (1, 2, 3):
        await graph.ainvoke(Command(resume=number, update={"log": [f"u{number}"]}), thread())
    assert (await graph.aget_state(thread())).values == {"log": ["u1", "u2", "u3", 1, 2, 3]}


async def test_updates_sent_to_a_node_that_fails_are_all_kept(saver: Any) -> None:
    broken = True

    async def work(state: Log) -> Update:
        if broken:
            raise ValueError("broken")
        return {"log": ["done"]}

    graph = chain(work, saver=saver)
    inputs: list[Any] = [{"log": ["in"]}, Command(update={"log": ["u1"]}), Command(update={"log": ["u2"]})]
    for given in inputs:
        with pytest.raises(ValueError, match="broken"):
            await graph.ainvoke(given, thread())
    broken = False
    assert await graph.ainvoke(None, thread()) == {"log": ["in", "u1", "u2", "done"]}


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
async def test_of_two_racing_answers_one_wins_and_the_other_hears_of_it(durability: str, saver: Any) -> None:
    graph = chain(ask, saver=saver)
    await graph.ainvoke({"log": []}, thread())
    results = await asyncio.gather(
        *(graph.ainvoke(Command(resume=name), thread(), durability=durability) for name in ("A", "B")),
        return_exceptions=True,
    )
    won = [result for result in results if not isinstance(result, BaseException)]
    lost = [result for result in results if isinstance(result, PersistenceError | UnknownInterruptError)]
    assert (len(won), len(lost)) == (1, 1)
    assert (await graph.aget_state(thread())).values == won[0]


async def test_a_refused_answer_writes_nothing(saver: Any) -> None:
    watched = WatchedSaver(saver)
    graph = chain(ask, saver=watched)
    await graph.ainvoke({"log": []}, thread())
    commits = watched.commits
    with pytest.raises(UnknownInterruptError):
        await graph.ainvoke(Command(resume={UNKNOWN: 1}), thread())
    assert watched.commits == commits

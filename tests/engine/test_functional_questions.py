"""Tasks and questions: what is journalled is not run again, answers reach who asked, and the journal is kept to."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from everstep.constants import START
from everstep.context import interrupt
from everstep.errors import ConfigError, DeterminismError, GraphInterrupt, UnknownInterruptError
from everstep.func import entrypoint, task
from everstep.graph.builder import StateGraph
from everstep.types import Command, Interrupt, Send
from tests.engine.graphs import AT_ONCE, Log, Update, chain, closing, history, notes_of, side_by_side, thread

DURABILITIES = ["sync", "async", "exit"]


class Ledger(Counter[str]):
    """How often what was entered."""

    def __init__(self) -> None:
        super().__init__()

        @task
        async def act(name: str) -> str:
            self[name] += 1
            return f"{name} done"

        @task
        async def ask(name: str) -> Any:
            self[name] += 1
            return interrupt(f"{name}?")

        self.act, self.ask = act, ask


def questions_of(result: Any) -> dict[Any, str]:
    """The ids of a result's questions, by what they ask."""
    return {question.value: question.id for question in result["__interrupt__"]}


# Work before, between and beside questions ----------------------------------------------------------------------


@pytest.mark.parametrize("durability", DURABILITIES)
async def test_a_loop_that_asks_until_the_answer_is_valid_charges_once(durability: str, saver: Any) -> None:
    done = Ledger()

    async def node(state: Log) -> Update:
        await done.act("charge")
        said: list[Any] = []
        while not said or not isinstance(said[-1], int):
            said.append(interrupt(f"age? {said[-1]!r} is none" if said else "age?"))
        return {"value": said[-1]}

    graph = chain(node, saver=saver)
    asked = []
    result = await graph.ainvoke({"log": []}, thread(), durability=durability)
    for answer in ("a", "b", 5):
        asked += [question.value for question in result["__interrupt__"]]
        result = await graph.ainvoke(Command(resume=answer), thread(), durability=durability)
    assert result == {"log": [], "value": 5}
    assert asked == ["age?", "age? 'a' is none", "age? 'b' is none"]
    assert done == {"charge": 1}


async def test_the_same_holds_two_subgraphs_deep(saver: Any) -> None:
    done = Ledger()

    async def node(state: Log) -> Update:
        await done.act("charge")
        said: list[Any] = []
        while not said or not isinstance(said[-1], int):
            said.append(interrupt(f"age? {said}"))
        return {"value": said[-1]}

    inner: Any = chain(node)
    for name in ("middle", "outer"):
        builder = StateGraph(Log).add_node(name, inner).add_edge(START, name)
        inner = builder.compile(saver if name == "outer" else None)
    asked = []
    result = await inner.ainvoke({"log": []}, thread())
    for answer in ("a", "b", 5):
        asked += [question.value for question in result["__interrupt__"]]
        result = await inner.ainvoke(Command(resume=answer), thread())
    assert result["value"] == 5
    assert asked == ["age? []", "age? ['a']", "age? ['a', 'b']"]
    assert done == {"charge": 1}


@pytest.mark.parametrize("durability", DURABILITIES)
async def test_two_tasks_that_ask_at_once_surface_both_questions_and_each_gets_its_answer(
    durability: str, saver: Any
) -> None:
    done = Ledger()

    @entrypoint(saver)
    async def flow(value: Any) -> Any:
        await done.act("before")
        return await asyncio.gather(done.ask("one"), done.ask("two"), done.act("beside"))

    asked = await flow.ainvoke(1, thread(), durability=durability)
    ids = questions_of(asked)
    assert list(ids) == ["one?", "two?"]
    assert (await flow.aget_state(thread())).interrupts == tuple(asked["__interrupt__"])
    answers = {ids["two?"]: "b", ids["one?"]: "a"}
    assert await flow.ainvoke(Command(resume=answers), thread(), durability=durability) == ["a", "b", "beside done"]
    assert done == {"before": 1, "one": 2, "two": 2, "beside": 1}


@pytest.mark.parametrize("durability", DURABILITIES)
@pytest.mark.parametrize("first", ["one?", "two?"])
async def test_answering_one_of_two_does_not_enter_the_other(first: str, durability: str, saver: Any) -> None:
    done = Ledger()

    @entrypoint(saver)
    async def flow(value: Any) -> Any:
        return await asyncio.gather(done.ask("one"), done.ask("two"))

    ids = questions_of(await flow.ainvoke(1, thread(), durability=durability))
    second = "two?" if first == "one?" else "one?"
    half = await flow.ainvoke(Command(resume={ids[first]: first}), thread(), durability=durability)
    assert half["__interrupt__"] == [Interrupt(second, ids[second])]
    assert done == {first[:-1]: 2, second[:-1]: 1}
    assert await flow.ainvoke(Command(resume=second), thread(), durability=durability) == ["one?", "two?"]
    assert done == {"one": 2, "two": 2}


async def test_questions_of_tasks_in_graph_nodes_and_of_their_node_are_told_apart(saver: Any) -> None:
    done = Ledger()

    async def tools(state: Log) -> Update:
        return {"log": await asyncio.gather(done.ask("one"), done.ask("two"))}

    async def human(state: Log) -> Update:
        return {"log": [interrupt("human?")]}

    graph = side_by_side(tools, human, saver=saver)
    ids = questions_of(await graph.ainvoke({"log": []}, thread()))
    answers = {question_id: question for question, question_id in ids.items()}
    assert await graph.ainvoke(Command(resume=answers), thread()) == {"log": ["human?", "one?", "two?"]}


async def test_tasks_of_sent_nodes_have_identities_of_their_own(saver: Any) -> None:
    done = Ledger()

    async def worker(item: str) -> Update:
        return {"log": [await done.act(item), await done.ask("same")]}

    def fan_out(state: Log) -> list[Send]:
        return [Send("worker", name) for name in "ab"]

    builder = StateGraph(Log).add_node("worker", worker).add_conditional_edges(START, fan_out, ["worker"])
    graph = builder.compile(saver)
    asked = (await graph.ainvoke({"log": []}, thread()))["__interrupt__"]
    assert len({question.id for question in asked}) == 2
    answers = {question.id: number for number, question in enumerate(asked)}
    result = await graph.ainvoke(Command(resume=answers), thread())
    assert result == {"log": ["a done", 0, "b done", 1]}
    assert done == {"a": 1, "b": 1, "same": 4}


async def test_several_questions_in_one_task_are_answered_in_order(saver: Any) -> None:
    @task
    async def form() -> list[Any]:
        return [interrupt("name?"), interrupt("age?")]

    @entrypoint(saver)
    async def flow(value: Any) -> Any:
        return await form()

    first = questions_of(await flow.ainvoke(1, thread()))
    second = questions_of(await flow.ainvoke(Command(resume="ada"), thread()))
    assert [*first, *second] == ["name?", "age?"]
    assert first["name?"] != second["age?"]
    assert await flow.ainvoke(Command(resume=36), thread()) == ["ada", 36]


async def test_a_task_in_a_task_asks_through_its_caller(saver: Any) -> None:
    done = Ledger()

    @task
    async def outer(name: str) -> list[Any]:
        done["outer"] += 1
        return [await done.act(name), await done.ask(name)]

    @entrypoint(saver)
    async def flow(value: Any) -> Any:
        return await asyncio.gather(outer("a"), outer("b"))

    ids = questions_of(await flow.ainvoke(1, thread()))
    assert await flow.ainvoke(Command(resume={ids["b?"]: "B"}), thread())
    assert await flow.ainvoke(Command(resume={ids["a?"]: "A"}), thread()) == [["a done", "A"], ["b done", "B"]]
    # Each acts once and asks twice, under the same name; the callers are entered once more for each answer.
    assert done == {"a": 3, "b": 3, "outer": 4}


async def test_a_sync_entrypoint_asks_through_its_tasks(saver: Any) -> None:
    done = Counter[str]()

    @task
    def act(name: str) -> str:
        done[name] += 1
        return f"{name} done"

    @task
    def ask(name: str) -> Any:
        done[name] += 1
        return interrupt(name)

    @entrypoint(saver)
    def flow(value: Any) -> Any:
        asked = [ask("one"), ask("two")]
        return [act("act").result(), *(one.result() for one in asked)]

    ids = questions_of(await flow.ainvoke(1, thread()))
    assert set(ids) == {"one", "two"}
    await flow.ainvoke(Command(resume={ids["one"]: 1}), thread())
    assert await flow.ainvoke(Command(resume={ids["two"]: 2}), thread()) == ["act done", 1, 2]
    assert done == {"act": 1, "one": 2, "two": 2}


async def test_a_task_group_does_not_keep_its_members_from_asking(saver: Any) -> None:
    done = Ledger()

    async def one(name: str) -> Any:
        return await done.ask(name)

    @entrypoint(saver)
    async def flow(value: Any) -> Any:
        async with asyncio.TaskGroup() as group:
            members = [group.create_task(one(name)) for name in "ab"]
        return [member.result() for member in members]

    ids = questions_of(await flow.ainvoke(1, thread()))
    assert list(ids) == ["a?", "b?"]
    assert await flow.ainvoke(Command(resume={ids["b?"]: "B", ids["a?"]: "A"}), thread()) == ["A", "B"]


async def test_code_that_swallows_the_signal_is_suspended_all_the_same(saver: Any) -> None:
    done = Ledger()

    @entrypoint(saver)
    async def flow(value: Any) -> Any:
        try:
            return await done.ask("one")
        except BaseException:
            return "swallowed"

    assert list(questions_of(await flow.ainvoke(1, thread()))) == ["one?"]
    assert await flow.ainvoke(Command(resume="yes"), thread()) == "yes"


async def test_a_task_that_nobody_awaits_may_ask(saver: Any) -> None:
    done = Ledger()

    @entrypoint(saver)
    async def flow(value: Any) -> str:
        done.ask("one")
        return "done"

    assert list(questions_of(await flow.ainvoke(1, thread()))) == ["one?"]
    assert await flow.ainvoke(Command(resume="yes"), thread()) == "done"


async def test_continuing_without_an_answer_lets_tasks_ask_again(saver: Any) -> None:
    done = Ledger()

    @entrypoint(saver)
    async def flow(value: Any) -> Any:
        return await asyncio.gather(done.act("act"), done.ask("one"))

    first = await flow.ainvoke(1, thread())
    assert await flow.ainvoke(None, thread()) == first
    assert done == {"act": 1, "one": 2}


async def test_an_unknown_id_runs_nothing(saver: Any) -> None:
    done = Ledger()

    @entrypoint(saver)
    async def flow(value: Any) -> Any:
        return await done.ask("one")

    await flow.ainvoke(1, thread())
    with pytest.raises(UnknownInterruptError):
        await flow.ainvoke(Command(resume={"0" * 32: 1}), thread())
    assert done == {"one": 1}


async def test_an_answer_that_does_not_fit_its_schema_can_be_given_again(saver: Any) -> None:
    done = Ledger()

    @task
    async def ask_age() -> Any:
        done["ask"] += 1
        return interrupt("age?", response_schema=int)

    @entrypoint(saver)
    async def flow(value: Any) -> Any:
        return await done.act("act"), await ask_age()

    await flow.ainvoke(1, thread())
    with pytest.raises(ValueError, match="valid integer"):
        await flow.ainvoke(Command(resume="young"), thread())
    assert [question.value for question in (await flow.aget_state(thread())).interrupts] == ["age?"]
    assert await flow.ainvoke(Command(resume=36), thread()) == ("act done", 36)
    assert done == {"act": 1, "ask": 3}


async def test_asking_in_a_task_without_a_saver_is_an_error() -> None:
    @entrypoint()
    async def flow(value: Any) -> Any:
        return await Ledger().ask("one")

    with pytest.raises(ConfigError, match=r"called interrupt\(\), but the graph has no saver"):
        await flow.ainvoke(1)


async def test_an_answer_is_used_once_when_a_later_task_fails(saver: Any) -> None:
    done = Ledger()
    is_down = True

    @task
    async def outside() -> str:
        if is_down:
            raise ConnectionError("down")
        return "up"

    @entrypoint(saver)
    async def flow(value: Any) -> Any:
        return [await done.ask("one"), await outside(), await done.ask("two")]

    await flow.ainvoke(1, thread())
    with pytest.raises(ConnectionError):
        await flow.ainvoke(Command(resume="A"), thread())
    is_down = False
    assert list(questions_of(await flow.ainvoke(None, thread()))) == ["two?"]
    assert await flow.ainvoke(Command(resume="B"), thread()) == ["A", "up", "B"]


async def test_the_signal_does_not_look_like_an_error_to_the_caller(saver: Any) -> None:
    caught: list[BaseException] = []

    @entrypoint(saver)
    async def flow(value: Any) -> Any:
        try:
            return await Ledger().ask("one")
        except Exception as error:
            caught.append(error)
        except BaseException as signal:
            caught.append(signal)
            raise

    await flow.ainvoke(1, thread())
    assert [type(one) for one in caught] == [GraphInterrupt]


# The journal is kept to -----------------------------------------------------------------------------------------


async def test_a_replay_with_other_arguments_is_refused_and_names_both_calls(saver: Any) -> None:
    done = Counter[int]()
    argument = 1

    @task
    async def u(number: int) -> int:
        done[number] += 1
        return number

    @entrypoint(saver)
    async def flow(value: Any) -> Any:
        return await u(argument), interrupt("?")

    await flow.ainvoke(1, thread())
    argument = 7
    with pytest.raises(DeterminismError) as refused:
        await flow.ainvoke(Command(resume=1), thread())
    assert str(refused.value) == (
        "node 'flow' now calls u(7) where it had called u(1) (call 0); code that runs again must make the same calls "
        "in the same order: let them depend on its input, earlier results and answers alone"
    )
    assert notes_of(refused.value) == ["in node 'flow' (attempt 1, step 0, thread 't')"]
    assert done == {1: 1}
    argument = 1
    assert await flow.ainvoke(None, thread()) == (1, 1)
    assert done == {1: 1}


async def test_a_replay_that_calls_another_task_is_refused(saver: Any) -> None:
    done = Ledger()
    calls = done.act

    @task
    async def other(name: str) -> str:
        return name

    async def node(state: Log) -> Update:
        return {"log": [await calls("a"), interrupt("?")]}

    graph = chain(node, saver=saver)
    await graph.ainvoke({"log": []}, thread())
    calls = other
    with pytest.raises(DeterminismError, match=r"^node 'node' now calls other\('a'\) where it had called act\('a'\)"):
        await graph.ainvoke(Command(resume=1), thread())


async def test_a_task_that_calls_another_task_than_before_is_named(saver: Any) -> None:
    done = Ledger()
    names = iter("ab")

    @task
    async def outer() -> Any:
        return await done.act(next(names)), interrupt("?")

    @entrypoint(saver)
    async def flow(value: Any) -> Any:
        return await outer()

    await flow.ainvoke(1, thread())
    with pytest.raises(DeterminismError, match=r"^task 'outer' now calls act\('b'\) where it had called act\('a'\)"):
        await flow.ainvoke(Command(resume=1), thread())


async def test_a_question_of_a_call_is_kept_to_as_well(saver: Any) -> None:
    done = Ledger()
    name = "one"

    @entrypoint(saver)
    async def flow(value: Any) -> Any:
        return await done.ask(name)

    await flow.ainvoke(1, thread())
    name = "two"
    with pytest.raises(DeterminismError, match=r"now calls ask\('two'\) where it had called ask\('one'\)"):
        await flow.ainvoke(Command(resume=1), thread())


async def test_another_attempt_in_the_same_run_keeps_to_the_journal_too(saver: Any) -> None:
    done = Ledger()
    attempts = iter("abbb")

    @entrypoint(saver, retry_policy=AT_ONCE)
    async def flow(value: Any) -> Any:
        await done.act(next(attempts))
        raise ConnectionError("again")

    with pytest.raises(DeterminismError):
        await flow.ainvoke(1, thread())
    assert done == {"a": 1}


async def test_calls_made_beside_the_flow_may_come_in_another_order(saver: Any) -> None:
    done = Ledger()
    first = asyncio.Event()

    async def pipeline(name: str) -> str:
        if name == "a" and not done["b second"]:
            await done.act("a first")
            await first.wait()
        else:
            await done.act(f"{name} first")
        result = await done.act(f"{name} second")
        first.set()
        return result

    @entrypoint(saver)
    async def flow(value: Any) -> Any:
        return await asyncio.gather(*map(pipeline, "ab")), interrupt("?")

    # At first b comes before a, when it runs again a before b.
    await flow.ainvoke(1, thread())
    assert await flow.ainvoke(Command(resume=1), thread()) == (["a second done", "b second done"], 1)
    assert set(done.values()) == {1}


async def test_arguments_that_cannot_be_stored_are_compared_by_name_alone(saver: Any) -> None:
    runs = 0

    @task
    async def work(client: object) -> str:
        nonlocal runs
        runs += 1
        return "worked"

    @entrypoint(saver)
    async def flow(value: Any) -> Any:
        return await work(object()), interrupt("?")

    await flow.ainvoke(1, thread())
    assert await flow.ainvoke(Command(resume=1), thread()) == ("worked", 1)
    assert runs == 1


async def test_a_call_that_failed_and_was_caught_is_run_again_and_may_lead_elsewhere(saver: Any) -> None:
    done = Ledger()
    is_down = True

    @task
    async def flaky() -> str:
        done["flaky"] += 1
        if is_down:
            raise ConnectionError("down")
        return "up"

    @entrypoint(saver)
    async def flow(value: Any) -> Any:
        try:
            first = await flaky()
        except ConnectionError:
            first = await done.act("instead")
        return first, await done.act("after"), interrupt("first?"), interrupt("second?")

    assert list(questions_of(await flow.ainvoke(1, thread()))) == ["first?"]
    is_down = False
    assert list(questions_of(await flow.ainvoke(Command(resume=1), thread()))) == ["second?"]
    assert await flow.ainvoke(Command(resume=2), thread()) == ("up", "after done", 1, 2)
    assert done == {"flaky": 2, "instead": 1, "after": 1}


# Branches -------------------------------------------------------------------------------------------------------


async def test_answering_anew_keeps_the_work_before_the_question_and_repeats_the_work_after(saver: Any) -> None:
    done = Ledger()

    @entrypoint(saver)
    async def flow(value: Any) -> Any:
        before = await done.act("before")
        answer = await done.ask("what")
        return before, await done.act(f"after {answer}")

    await flow.ainvoke(1, thread())
    assert await flow.ainvoke(Command(resume="A"), thread()) == ("before done", "after A done")
    asking = (await history(flow, thread()))[-1]
    assert await flow.ainvoke(Command(resume="B"), asking.config) == ("before done", "after B done")
    assert done == {"before": 1, "what": 3, "after A": 1, "after B": 1}
    assert (await flow.aget_state(thread())).values == ("before done", "after B done")


async def test_a_branch_that_asks_again_goes_on_from_its_own_journal(saver: Any) -> None:
    done = Ledger()

    @entrypoint(saver)
    async def flow(value: Any) -> Any:
        first = interrupt("first?")
        return await done.act(first), interrupt("second?"), await done.act("last")

    ids = questions_of(await flow.ainvoke(1, thread()))
    await flow.ainvoke(Command(resume="A"), thread())
    assert await flow.ainvoke(Command(resume="x"), thread()) == ("A done", "x", "last done")
    asking = (await history(flow, thread()))[-1]
    await flow.ainvoke(Command(resume={ids["first?"]: "B"}), asking.config)
    assert await flow.ainvoke(Command(resume="y"), thread()) == ("B done", "y", "last done")
    assert done == {"A": 1, "B": 1, "last": 2}


async def test_replaying_without_an_answer_runs_tasks_again(saver: Any) -> None:
    done = Ledger()

    @entrypoint(saver)
    async def flow(value: Any) -> Any:
        return await done.act("act")

    await flow.ainvoke(1, thread())
    first = (await history(flow, thread()))[-1]
    assert await flow.ainvoke(None, first.config) == "act done"
    assert done == {"act": 2}


async def test_an_update_from_outside_keeps_what_tasks_have_asked_and_done(saver: Any) -> None:
    done = Ledger()

    async def waiting(state: Log) -> Update:
        return {"log": [await done.act("act"), await done.ask("one")]}

    graph = chain(waiting, saver=saver)
    asked = (await graph.ainvoke({"log": []}, thread()))["__interrupt__"]
    await graph.aupdate_state(thread(), None)
    assert (await graph.aget_state(thread())).interrupts == tuple(asked)
    assert await graph.ainvoke(Command(resume="yes"), thread()) == {"log": ["act done", "yes"]}
    assert done == {"act": 1, "one": 2}


async def test_a_new_input_begins_with_an_empty_journal(saver: Any) -> None:
    done = Ledger()

    @entrypoint(saver)
    async def flow(value: str) -> Any:
        return await done.act(value), await done.ask("one")

    await flow.ainvoke("a", thread())
    await flow.ainvoke("b", thread())
    assert await flow.ainvoke(Command(resume=1), thread()) == ("b done", 1)
    assert done == {"a": 1, "b": 1, "one": 3}


# Subgraphs in tasks ---------------------------------------------------------------------------------------------


async def test_a_subgraph_in_a_task_goes_on_where_it_asked(saver: Any) -> None:
    done = Ledger()

    async def work(state: Log) -> Update:
        done["work"] += 1
        return {"log": ["worked"]}

    async def review(state: Log) -> Update:
        return {"log": [interrupt("good?")]}

    inner = chain(work, review)

    @task
    async def delegate(name: str) -> list[Any]:
        result: list[Any] = (await inner.ainvoke({"log": [name]}))["log"]
        return result

    @entrypoint(saver)
    async def flow(value: Any) -> Any:
        return await asyncio.gather(delegate("a"), delegate("b"))

    asked = (await flow.ainvoke(1, thread()))["__interrupt__"]
    assert len({question.id for question in asked}) == 2
    answers = {question.id: number for number, question in enumerate(asked)}
    assert await flow.ainvoke(Command(resume=answers), thread()) == [["a", "worked", 0], ["b", "worked", 1]]
    assert done == {"work": 2}


async def test_calls_share_the_history_of_a_stateful_subgraph_one_after_the_other(saver: Any) -> None:
    async def count(state: Log) -> Update:
        return {"log": [len(state["log"])]}

    counter = chain(count, saver=True)

    @task
    async def turn(number: int) -> list[int]:
        result: list[int] = (await counter.ainvoke({"log": []}))["log"]
        return result

    @entrypoint(saver)
    async def flow(value: Any) -> Any:
        return await turn(1), await turn(2)

    assert await flow.ainvoke(1, thread()) == ([0], [0, 1])
    assert await flow.ainvoke(1, thread()) == ([0, 1, 2], [0, 1, 2, 3])


async def test_a_subgraph_in_a_call_that_is_tried_again_with_its_caller_goes_on(saver: Any) -> None:
    done = Ledger()

    async def first(state: Log) -> Update:
        done["first"] += 1
        return {"log": ["first"]}

    async def second(state: Log) -> Update:
        done["second"] += 1
        if done["second"] == 1:
            raise ConnectionError("down")
        return {"log": ["second"]}

    inner = chain(first, second)

    @task
    async def delegate() -> list[Any]:
        result: list[Any] = (await inner.ainvoke({"log": []}))["log"]
        return result

    @entrypoint(saver, retry_policy=AT_ONCE)
    async def flow(value: Any) -> Any:
        return await delegate()

    assert await flow.ainvoke(1, thread()) == ["first", "second"]
    assert done == {"first": 1, "second": 2}


async def test_a_reader_that_leaves_while_a_task_runs_leaves_nothing_behind(saver: Any) -> None:
    entered, left = asyncio.Event(), asyncio.Event()

    @task
    async def waits() -> None:
        entered.set()
        try:
            await asyncio.Event().wait()
        finally:
            left.set()

    @task
    async def quick() -> str:
        return "quick"

    @entrypoint(saver)
    async def flow(value: Any) -> None:
        waiting = waits()
        await quick()
        await waiting

    before = asyncio.all_tasks()
    async with closing(flow.astream(1, thread())) as events:
        assert await anext(events) == {"quick": "quick"}
        await entered.wait()
    assert left.is_set()
    assert asyncio.all_tasks() == before


async def test_an_answer_that_does_not_fit_fails_the_run_also_while_another_task_waits(saver: Any) -> None:
    @task
    async def ask(what: str) -> Any:
        return interrupt(what, response_schema=int)

    @entrypoint(saver)
    async def both(_: int) -> list[Any]:
        return list(await asyncio.gather(ask("a"), ask("b")))

    first, second = (await both.ainvoke(1, thread()))["__interrupt__"]
    with pytest.raises(ValueError, match="valid integer"):
        await both.ainvoke(Command(resume={first.id: "many"}), thread())
    assert (await both.aget_state(thread())).interrupts == (first, second)
    assert (await both.ainvoke(Command(resume={second.id: 2}), thread()))["__interrupt__"] == [first]
    assert await both.ainvoke(Command(resume={first.id: 1}), thread()) == [1, 2]

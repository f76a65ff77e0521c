"""Random programs of tasks and questions: however often they are stopped, answered in part, crashed and continued,
they end as if undisturbed, and no task that has returned runs again."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from everstep.context import interrupt
from everstep.func import entrypoint, task
from everstep.types import Command
from everstep_savers.memory import InMemorySaver

CONFIG = {"configurable": {"thread_id": "t"}}


@dataclass(frozen=True)
class Act:
    """A task that does something once."""

    name: int


@dataclass(frozen=True)
class Ask:
    """A task that asks (or, `bare`, a question of the caller's own)."""

    name: int
    bare: bool


@dataclass(frozen=True)
class Group:
    """Programs at the same time: as tasks that run them, or as coroutines of the caller's own."""

    programs: tuple[Any, ...]
    as_tasks: bool


Program = tuple[Any, ...]


def programs() -> st.SearchStrategy[Program]:
    """Programs whose statements all have names of their own."""
    leaves = st.one_of(st.just(Act(0)), st.builds(Ask, st.just(0), st.booleans()))
    statements = st.recursive(
        leaves,
        lambda inner: st.builds(
            Group,
            st.lists(st.lists(inner, min_size=1, max_size=3).map(tuple), min_size=1, max_size=3).map(tuple),
            st.booleans(),
        ),
        max_leaves=10,
    )
    return st.lists(statements, min_size=1, max_size=4).map(lambda found: named(tuple(found), Counter(), top=True))


def named(program: Program, names: Counter[str], *, top: bool) -> Program:
    """The program with a number for each statement; a bare question stands only in the flow of a task."""
    return tuple(_named(statement, names, top=top) for statement in program)


def _named(statement: Any, names: Counter[str], *, top: bool) -> Any:
    if isinstance(statement, Group):
        inner = tuple(named(one, names, top=statement.as_tasks) for one in statement.programs)
        return Group(inner, statement.as_tasks)
    names["next"] += 1
    if isinstance(statement, Ask):
        return Ask(names["next"], statement.bare and top)
    return Act(names["next"])


def expected(program: Program) -> list[Any]:
    """What the program gives."""
    return [_expected(statement) for statement in program]


def _expected(statement: Any) -> Any:
    if isinstance(statement, Group):
        return [expected(one) for one in statement.programs]
    return ("did" if isinstance(statement, Act) else "heard", statement.name)


class Machine:
    """Runs a program as an entrypoint, and counts what its tasks did."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.done: Counter[int] = Counter()
        self.fails_at: int | None = None
        self.saver = InMemorySaver()

        @task
        async def act(name: int) -> Any:
            if self.fails_at == name:
                raise ConnectionError(str(name))
            self.done[name] += 1
            return "did", name

        @task
        async def ask(name: int) -> Any:
            return "heard", interrupt(name)

        @task
        async def run(path: tuple[int, ...]) -> Any:
            return await self.run_all(path)

        self.act, self.ask, self.run = act, ask, run

        @entrypoint(self.saver)
        async def flow(value: Any) -> Any:
            return await self.run_all(())

        self.flow = flow

    def at(self, path: tuple[int, ...]) -> Any:
        found: Any = self.program
        for index, part in enumerate(path):
            found = found[part] if index % 2 == 0 else found.programs[part]
        return found

    async def run_all(self, path: tuple[int, ...]) -> list[Any]:
        return [await self.run_one((*path, index)) for index in range(len(self.at(path)))]

    async def run_one(self, path: tuple[int, ...]) -> Any:
        statement = self.at(path)
        if isinstance(statement, Act):
            return await self.act(statement.name)
        if isinstance(statement, Ask):
            return ("heard", interrupt(statement.name)) if statement.bare else await self.ask(statement.name)
        inner = [(*path, index) for index in range(len(statement.programs))]
        return await asyncio.gather(*map(self.run if statement.as_tasks else self.run_all, inner))

    async def go(self, value: Any, durability: str) -> Any:
        return await self.flow.ainvoke(value, CONFIG, durability=durability)


async def play(program: Program, data: Any) -> None:
    machine = Machine(program)
    durability = data.draw(st.sampled_from(["sync", "async", "exit"]))
    acts = [statement.name for statement in leaves_of(program) if isinstance(statement, Act)]
    value: Any = "begin"
    for _ in range(50):
        machine.fails_at = data.draw(st.sampled_from([None, None, *acts]))
        try:
            result = await machine.go(value, durability)
        except ConnectionError:
            value = None
            continue
        if not isinstance(result, dict):
            break
        questions = result["__interrupt__"]
        answered = data.draw(st.lists(st.sampled_from(questions), min_size=1, unique_by=lambda one: one.id))
        value = Command(resume={question.id: question.value for question in answered})
    else:
        machine.fails_at = None
        while isinstance(result := await machine.go(None if value == "begin" else value, durability), dict):
            value = Command(resume={question.id: question.value for question in result["__interrupt__"]})
    assert result == expected(program)
    assert machine.done == Counter(acts)


def leaves_of(program: Program) -> list[Any]:
    found: list[Any] = []
    for statement in program:
        if isinstance(statement, Group):
            for one in statement.programs:
                found += leaves_of(one)
        else:
            found.append(statement)
    return found


@settings(max_examples=60, deadline=None)
@given(programs(), st.data())
def test_a_program_ends_as_if_undisturbed_and_does_everything_once(program: Program, data: Any) -> None:
    asyncio.run(play(program, data))

"""Runs graph programs on one of two libraries, and tells what a user of it would have seen.

A script for a process of its own: ``python interpreter.py everstep|langgraph`` reads a program a line (JSON, see
`programs`) and writes what happened a line. It uses names that both libraries have and imports nothing else of this
project, so that it runs in an environment that has only the other library. What differs between the two on purpose
is taken out elsewhere (`differences`); here is only how to call them.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import logging
import operator
import sys
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, TypedDict, cast

Json = Any


def larger(left: int, right: int) -> int:
    """A reducer that is no addition."""
    return max(left, right)


# The reducers of keys by name; `last` has none.
KINDS: dict[str, Any] = {
    "last": Any,
    "list": Annotated[list[Any], operator.add],
    "sum": Annotated[int, operator.add],
    "most": Annotated[int, larger],
}
# How many checkpoints of a history are told.
MOST_CHECKPOINTS = 60
# Seconds that a node waits before it fails, so that its siblings have finished, and the shorter if it succeeds or is
# handled in the end: who has finished beside a failure is a matter of time in both libraries, and no subject here.
FAILS_AFTER = 0.05


class Library:
    """The names of one library."""

    def __init__(self, package: str) -> None:
        self.is_ours = package == "everstep"
        names = {name: importlib.import_module(f"{package}.{name}") for name in ("graph", "types", "runtime", "errors")}
        self.graph, self.types, self.errors = names["graph"], names["types"], names["errors"]
        self.get_runtime = names["runtime"].get_runtime
        saver = "everstep_savers" if self.is_ours else "langgraph.checkpoint.memory"
        self.new_saver: Callable[[], Any] = importlib.import_module(saver).InMemorySaver
        # A join that can no longer be completed is an error here and silence there.
        self.options: dict[str, Any] = {"unsatisfied_joins": "ignore"} if self.is_ours else {}


class World:
    """What is outside of the graph: whether nodes that may be broken are."""

    def __init__(self) -> None:
        self.is_broken = True


# Graphs -------------------------------------------------------------------------------------------------------------


def build(library: Library, program: Json, world: World) -> Any:
    """The builder of a program's graph."""
    builder = library.graph.StateGraph(schema("State", program["keys"]))
    for node in program["nodes"]:
        options: dict[str, Any] = {"defer": node.get("defer", False)}
        if targets := [*node.get("goto", ()), *(name for name, _ in node.get("sends", ()))]:
            options["destinations"] = tuple(targets)
        if node.get("fails"):
            options["retry_policy"] = library.types.RetryPolicy(
                initial_interval=0.0001, jitter=False, max_attempts=node["attempts"]
            )
        if node.get("handled"):
            options["error_handler"] = handler(library, node)
        if keys := node.get("sees"):
            options["input_schema"] = schema("Seen", {key: program["keys"][key] for key in keys})
        builder.add_node(node["name"], action(library, node, program, world), **options)
    for source, target in program["edges"]:
        builder.add_edge(source, target)
    for sources, target in program["joins"]:
        builder.add_edge(sources, target)
    for each in program["routes"]:
        targets = [*each["targets"], *(name for name, _ in each["sends"])]
        builder.add_conditional_edges(each["source"], route(library, each), sorted(set(targets)))
    return builder


def schema(name: str, keys: Mapping[str, str]) -> Any:
    """A class of states that have these keys."""
    return cast("Any", TypedDict)(name, {key: KINDS[kind] for key, kind in keys.items()}, total=False)


def handler(library: Library, node: Json) -> Any:
    """What runs when a node has failed."""

    def handle(state: Any, error: Any) -> Any:
        return {"log": [[f"{error.node} handled", len(state.get("log", ())), type(error.error).__name__]]}

    async def ahandle(state: Any, error: Any) -> Any:
        return handle(state, error)

    found = ahandle if node["is_async"] else handle
    found.__annotations__ = {"error": library.errors.NodeError}
    return found


def action(library: Library, node: Json, program: Json, world: World) -> Any:
    """What a node of the program does: a function, or a subgraph."""
    if (inner := node.get("subgraph")) is None:
        return function(library, node, program, world)
    builder = build(library, inner, world)
    graph = builder.compile(checkpointer=True if node.get("keeps") else None, **library.options)
    return call_of(node, graph) if node.get("called") else graph


def call_of(node: Json, graph: Any) -> Any:
    """A node that calls a subgraph with an input of its own, and logs what comes back."""

    def logged(result: Any) -> Any:
        return {"log": [[node["name"], result]]}

    async def arun(state: Any) -> Any:
        return logged(await graph.ainvoke({"log": [], "total": len(state.get("log", ()))}))

    def run(state: Any) -> Any:
        return logged(graph.invoke({"log": [], "total": len(state.get("log", ()))}))

    return arun if node["is_async"] else run


def function(library: Library, node: Json, program: Json, world: World) -> Any:
    """A node whose result depends on what it sees, on its answers, and on nothing else."""

    is_final = node.get("breaks") or node.get("fails", 0) >= node.get("attempts", 1)
    delay = 3 * FAILS_AFTER if is_final and not node.get("handled") else FAILS_AFTER

    def failure() -> Exception | None:
        if node.get("breaks") and world.is_broken:
            return ConnectionError(f"{node['name']} is broken")
        if node.get("fails") and library.get_runtime().execution_info.node_attempt <= node["fails"]:
            return ConnectionError(f"{node['name']} got no answer")
        return None

    def work(state: Any) -> Any:
        seen = (len(state.get("log", ())), state.get("item"))
        asked = [f"{node['name']} {number} {seen}" for number in range(node.get("asks", 0))]
        answers = [library.types.interrupt(question) for question in asked]
        return result(library, node, written(node, program, seen, answers), seen)

    def run(state: Any) -> Any:
        if error := failure():
            time.sleep(delay)
            raise error
        return work(state)

    async def arun(state: Any) -> Any:
        if error := failure():
            await asyncio.sleep(delay)
            raise error
        return work(state)

    return arun if node["is_async"] else run


def written(node: Json, program: Json, seen: tuple[int, Any], answers: list[Any]) -> dict[str, Any]:
    """The update that a node returns."""
    name, number = node["name"], seen[0] + (seen[1] or 0)
    values = {"list": [[name, *seen, *answers]], "sum": 1 + number, "most": number, "last": f"{name} {number}"}
    update: dict[str, Any] = {key: values[program["keys"][key]] for key in node["writes"]}
    if (key := node.get("overwrites")) is not None:
        update[key] = {"overwrite": update[key]}
    return update


def result(library: Library, node: Json, update: dict[str, Any], seen: tuple[int, Any]) -> Any:
    """The update in the form that the node returns it: bare, a command, a list of both, nothing."""
    types, shape = library.types, node["returns"]
    update = {
        key: types.Overwrite(value["overwrite"]) if isinstance(value, dict) else value for key, value in update.items()
    }
    if shape == "nothing":
        return None
    if shape == "update":
        return update
    sends = [types.Send(name, {"item": seen[0] + n}) for name, count in node.get("sends", ()) for n in range(count)]
    goto = [*node.get("goto", ()), *sends]
    if shape == "parent":
        return types.Command(graph=types.Command.PARENT, update=update, goto=goto)
    if shape == "list":
        return [update, types.Command(goto=goto)]
    return types.Command(update=update, goto=goto)


def route(library: Library, each: Json) -> Any:
    """A path function that decides by what it sees."""

    def choose(state: Any) -> Any:
        number = len(state.get("log", ()))
        sends = [library.types.Send(name, {"item": number + n}) for name, count in each["sends"] for n in range(count)]
        if not each["targets"]:
            return sends
        if each["several"]:
            return [*(name for n, name in enumerate(each["targets"]) if (number + n) % 2 == 0), *sends]
        target = each["targets"][number % len(each["targets"])]
        return [target, *sends] if sends else target

    return choose


# Deeds --------------------------------------------------------------------------------------------------------------


class Run:
    """One thread of a program's graph, and what its user does with it."""

    def __init__(self, library: Library, program: Json, thread: str = "t") -> None:
        self.library, self.program, self.world = library, program, World()
        self.thread: dict[str, Any] = {"configurable": {"thread_id": thread}}
        stops = {f"interrupt_{when}": program["stops"][when] or None for when in ("before", "after")}
        builder = build(library, program, self.world)
        self.graph = builder.compile(checkpointer=library.new_saver(), **stops, **library.options)

    async def do(self, deed: Json) -> Json:
        """Do one thing with the thread; what it gave, and how the thread looks afterwards."""
        try:
            told = await getattr(self, f"_{deed['do']}")(deed)
        except Exception as error:
            told = {"error": error_name(error)}
        return {**told, "history": await self._history()}

    async def _invoke(self, deed: Json) -> Json:
        return await self._run(deed, deed["input"], self.thread)

    async def _continue(self, deed: Json) -> Json:
        return await self._run(deed, None, self.thread)

    async def _command(self, deed: Json) -> Json:
        return await self._run(deed, self.library.types.Command(update=deed["update"], goto=deed["goto"]), self.thread)

    async def _answer(self, deed: Json) -> Json:
        questions = sorted((await self._head()).interrupts, key=lambda question: str(question.value))
        if not questions:
            return {"open": 0}
        answers = {
            questions[number % len(questions)].id: f"answer to {questions[number % len(questions)].value}"
            for number in deed["which"]
        }
        answer: Any = answers if len(questions) > 1 or not deed["plain"] else next(iter(answers.values()))
        return await self._run(deed, self.library.types.Command(resume=answer), self.thread)

    async def _repair(self, deed: Json) -> Json:
        self.world.is_broken = False
        return {}

    async def _update(self, deed: Json) -> Json:
        await self._update_at(self.thread, deed)
        return {}

    async def _replay(self, deed: Json) -> Json:
        return await self._run(deed, None, await self._past(deed))

    async def _fork(self, deed: Json) -> Json:
        config = await self._update_at(await self._past(deed), deed)
        return await self._run(deed, None, config)

    async def _past(self, deed: Json) -> Any:
        snapshots = await self._snapshots()
        older = snapshots[1:] or snapshots
        return older[deed["back"] % len(older)].config

    # Both APIs; the sync one is called in a thread, where no event loop runs.

    async def _run(self, deed: Json, given: Any, config: Any) -> Json:
        config = {**config, "recursion_limit": self.program["limit"]}
        options = {"durability": deed["durability"]}
        if deed["by"] == "invoke":
            if self.program["is_async"]:
                return {"value": await self.graph.ainvoke(given, config, **options)}
            return {"value": await asyncio.to_thread(self.graph.invoke, given, config, **options)}
        options |= {"stream_mode": ["updates", "values"], "subgraphs": True}
        events: list[Any] = []
        try:
            if self.program["is_async"]:
                async for event in self.graph.astream(given, config, **options):
                    events.append(event)  # noqa: PERF401 - those that came before an error count too
            else:
                await asyncio.to_thread(lambda: events.extend(self.graph.stream(given, config, **options)))
        except Exception as error:
            return {"events": [event_of(*event) for event in events], "error": error_name(error)}
        return {"events": [event_of(*event) for event in events]}

    async def _head(self) -> Any:
        if self.program["is_async"]:
            return await self.graph.aget_state(self.thread)
        return await asyncio.to_thread(self.graph.get_state, self.thread)

    async def _snapshots(self) -> list[Any]:
        if self.program["is_async"]:
            return [snapshot async for snapshot in self.graph.aget_state_history(self.thread)]
        return await asyncio.to_thread(lambda: list(self.graph.get_state_history(self.thread)))

    async def _update_at(self, config: Any, deed: Json) -> Any:
        if self.program["is_async"]:
            return await self.graph.aupdate_state(config, deed["values"], deed["as_node"])
        return await asyncio.to_thread(self.graph.update_state, config, deed["values"], deed["as_node"])

    async def _history(self) -> list[Json]:
        return [snapshot_of(snapshot) for snapshot in (await self._snapshots())[:MOST_CHECKPOINTS]]


def error_name(error: Exception) -> str:
    """The kind of an error; messages differ, and may."""
    return type(error).__name__


def event_of(namespace: Sequence[str], mode: str, data: Any) -> Json:
    """An event, with the nodes that lead to its graph in place of the ids of their tasks."""
    return [[level.split(":")[0] for level in namespace], mode, data]


def snapshot_of(snapshot: Any) -> Json:
    """What a snapshot tells, ids and times aside."""
    return {
        "values": snapshot.values,
        "next": sorted(snapshot.next),
        "step": snapshot.metadata["step"],
        "source": snapshot.metadata["source"],
        "tasks": sorted(map(task_of, snapshot.tasks), key=lambda task: json.dumps(task[:3])),
    }


def task_of(task: Any) -> Json:
    """What a snapshot tells of a task: name, questions, whether it failed, result."""
    questions = sorted(str(question.value) for question in task.interrupts)
    return [task.name, questions, bool(task.error), plain(task.result)]


def plain(value: Any) -> Json:
    """A value as JSON has it."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [plain(item) for item in value]
    if hasattr(value, "response_schema") or type(value).__name__ == "Interrupt":
        return {"question": value.value}
    if type(value).__name__ == "Overwrite":
        return {"overwrite": plain(value.value)}
    return value if value is None or isinstance(value, int | float | str) else repr(value)


async def interpret(library: Library, program: Json, thread: str = "t") -> Json:
    """Do all deeds of a program; what each gave."""
    try:
        run = Run(library, program, thread)
    except Exception as error:
        return {"build": f"{error_name(error)}: {error}"}
    return plain([await run.do(deed) for deed in program["deeds"]])


def main() -> None:
    """Serve until the input ends."""
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    library = Library(sys.argv[1])
    with asyncio.Runner() as runner:
        for line in sys.stdin:
            sys.stdout.write(json.dumps(runner.run(interpret(library, json.loads(line)))) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()

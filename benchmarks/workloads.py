"""The kernels, written once for both packages; a process runs one of them and prints its numbers.

    python benchmarks/workloads.py everstep loop_sqlite_sync --database threads.db

The packages differ in where names are found and how a saver is opened; `Package` holds those
differences, the rest is the same code. Only the standard library and the package under test are
imported, so the file also runs where the other one is not installed. What a kernel yields is one
number per repetition, in the unit `KERNELS` gives; who compares them is not decided here.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import importlib
import json
import operator
import os
import resource
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, TypedDict

Storage = Literal["none", "memory", "sqlite", "postgres"]
Numbers = list[float]


class Counter(TypedDict):
    """State of the loops."""

    n: int


class Gathered(TypedDict):
    """State of the fan-out."""

    done: Annotated[list[int], operator.add]


class Asked(TypedDict):
    """State of the approval."""

    answer: str


@dataclass(frozen=True, slots=True)
class Package:
    """What differs between the two packages.

    `import_statement` is what a program writes before it can declare a graph.
    """

    name: str
    graph: Any
    types: Any
    errors: Any
    import_statement: str

    @contextlib.asynccontextmanager
    async def saver(self, storage: Storage, database: str) -> AsyncIterator[Any]:
        """Open a saver, with its tables made; None for no saver."""
        if storage == "none":
            yield None
        elif storage == "memory":
            yield self._memory_saver()
        elif self.name == "everstep":
            savers = importlib.import_module("everstep_savers")
            url = f"sqlite:///{database}" if storage == "sqlite" else database
            async with savers.SQLSaver.from_url(url, auto_migrate=True) as saver:
                yield saver
        else:
            async with self._langgraph_saver(storage, database) as saver:
                yield saver

    def _memory_saver(self) -> Any:
        home = "everstep_savers" if self.name == "everstep" else "langgraph.checkpoint.memory"
        return importlib.import_module(home).InMemorySaver()

    @contextlib.asynccontextmanager
    async def _langgraph_saver(self, storage: Storage, database: str) -> AsyncIterator[Any]:
        if storage == "postgres":
            postgres = importlib.import_module("langgraph.checkpoint.postgres.aio")
            async with postgres.AsyncPostgresSaver.from_conn_string(database) as saver:
                await saver.setup()
                yield saver
            return
        sqlite = importlib.import_module("langgraph.checkpoint.sqlite.aio")
        async with sqlite.AsyncSqliteSaver.from_conn_string(database) as saver:
            await saver.setup()
            # Both sides must wait for the disk at every commit, or the comparison means nothing.
            await saver.conn.execute("PRAGMA synchronous=FULL")
            yield saver


PACKAGES = {
    "everstep": (
        "everstep.graph",
        "everstep.types",
        "everstep.errors",
        "from everstep import StateGraph, START, END, Send, Command, interrupt",
    ),
    "langgraph": (
        "langgraph.graph",
        "langgraph.types",
        "langgraph.errors",
        "from langgraph.graph import StateGraph, START, END; import langgraph.types",
    ),
}


def load_package(name: str) -> Package:
    """Import the package under test."""
    graph, types, errors, statement = PACKAGES[name]
    load = importlib.import_module
    return Package(name, load(graph), load(types), load(errors), statement)


@dataclass(frozen=True, slots=True)
class Setting:
    """How one kernel is to run: where it stores, how durably, how much of it."""

    storage: Storage = "none"
    durability: str | None = None
    size: int = 1000
    repeats: int = 5


def thread(name: str, limit: int) -> dict[str, Any]:
    """Config of a run on a thread of its own."""
    return {"configurable": {"thread_id": name}, "recursion_limit": limit}


def options(setting: Setting) -> dict[str, Any]:
    """Keyword arguments of `ainvoke` for this setting."""
    return {"durability": setting.durability} if setting.durability else {}


async def advance(state: Counter) -> Counter:
    """The smallest node that does something."""
    return {"n": state["n"] + 1}


def looping_graph(package: Package, saver: Any) -> Any:
    """One node with an edge to itself; the recursion limit ends it."""
    builder = package.graph.StateGraph(Counter)
    builder.add_node("advance", advance)
    builder.add_edge(package.graph.START, "advance")
    builder.add_edge("advance", "advance")
    return builder.compile(checkpointer=saver)


def routed_graph(package: Package, steps: int) -> Any:
    """One node that a plain function sends back to itself."""

    def route(state: Counter) -> str:
        return "advance" if state["n"] < steps else str(package.graph.END)

    builder = package.graph.StateGraph(Counter)
    builder.add_node("advance", advance)
    builder.add_edge(package.graph.START, "advance")
    builder.add_conditional_edges("advance", route, ["advance", package.graph.END])
    return builder.compile()


def commanded_graph(package: Package, steps: int) -> Any:
    """One node that sends itself on by `Command`."""

    async def command(state: Counter) -> Any:
        n = state["n"] + 1
        return package.types.Command(update={"n": n}, goto="command" if n < steps else package.graph.END)

    builder = package.graph.StateGraph(Counter)
    builder.add_node("command", command, destinations=("command", package.graph.END))
    builder.add_edge(package.graph.START, "command")
    return builder.compile()


async def clocked(work: Awaitable[Any], parts: int) -> float:
    """Microseconds per part of some awaited work."""
    start = time.perf_counter()
    await work
    return (time.perf_counter() - start) / parts * 1e6


async def until_limit(package: Package, run: Awaitable[Any]) -> None:
    """Await a run that ends at its recursion limit.

    Raises:
        AssertionError: It ended otherwise, so it did not do the steps that are counted.
    """
    try:
        await run
    except package.errors.GraphRecursionError:
        return
    raise AssertionError("the run was to end at its recursion limit")


async def measure_loop(package: Package, setting: Setting, database: str) -> Numbers:
    """Microseconds per superstep of one async node."""
    async with package.saver(setting.storage, database) as saver:
        graph = looping_graph(package, saver)

        async def run(name: str, steps: int) -> None:
            await until_limit(package, graph.ainvoke({"n": 0}, thread(name, steps), **options(setting)))

        await run("warm", 20)
        return [await clocked(run(f"t{i}", setting.size), setting.size) for i in range(setting.repeats)]


async def measure_routes(
    package: Package, setting: Setting, database: str, build: Callable[[Package, int], Any]
) -> Numbers:
    """Microseconds per superstep of one node that chooses where to go."""
    graph = build(package, setting.size)
    numbers = []
    for _ in range(setting.repeats + 1):
        config = {"recursion_limit": setting.size + 10}
        numbers.append(await clocked(graph.ainvoke({"n": 0}, config), setting.size))
    return numbers[1:]  # the first warmed up


async def measure_routed(package: Package, setting: Setting, database: str) -> Numbers:
    """See `routed_graph`."""
    return await measure_routes(package, setting, database, routed_graph)


async def measure_commanded(package: Package, setting: Setting, database: str) -> Numbers:
    """See `commanded_graph`."""
    return await measure_routes(package, setting, database, commanded_graph)


async def measure_fan_out(package: Package, setting: Setting, database: str) -> Numbers:
    """Microseconds per task of a fan-out by `Send` with a node that runs after all."""

    async def work(item: dict[str, int]) -> Gathered:
        return {"done": [item["i"]]}

    async def join(state: Gathered) -> Gathered:
        assert len(state["done"]) == setting.size
        return {"done": []}

    def spread(state: Gathered) -> list[Any]:
        return [package.types.Send("work", {"i": i}) for i in range(setting.size)]

    builder = package.graph.StateGraph(Gathered)
    builder.add_node("work", work)
    builder.add_node("join", join)
    builder.add_conditional_edges(package.graph.START, spread, ["work"])
    builder.add_edge("work", "join")
    graph = builder.compile()
    await graph.ainvoke({"done": []})
    return [await clocked(graph.ainvoke({"done": []}), setting.size) for _ in range(setting.repeats)]


async def measure_threads(package: Package, setting: Setting, database: str) -> Numbers:
    """Microseconds per superstep of many threads at once, ten steps each."""
    steps = 10
    async with package.saver(setting.storage, database) as saver:
        graph = looping_graph(package, saver)

        async def run_all(name: str, count: int) -> None:
            runs = (
                until_limit(package, graph.ainvoke({"n": 0}, thread(f"{name}-{i}", steps), **options(setting)))
                for i in range(count)
            )
            await asyncio.gather(*runs)

        await run_all("warm", 2)
        return [await clocked(run_all(f"t{i}", setting.size), setting.size * steps) for i in range(setting.repeats)]


async def measure_interrupt(package: Package, setting: Setting, database: str) -> Numbers:
    """Microseconds from a new thread through a question to the answered end."""

    async def ask(state: Asked) -> Asked:
        return {"answer": package.types.interrupt("proceed?")}

    async with package.saver(setting.storage, database) as saver:
        builder = package.graph.StateGraph(Asked)
        builder.add_node("ask", ask)
        builder.add_edge(package.graph.START, "ask")
        graph = builder.compile(checkpointer=saver)

        async def round_trips(name: str, count: int) -> None:
            for i in range(count):
                config = thread(f"{name}-{i}", 25)
                await graph.ainvoke({"answer": ""}, config, **options(setting))
                answer = package.types.Command(resume="yes")
                result = await graph.ainvoke(answer, config, **options(setting))
                assert result["answer"] == "yes"

        await round_trips("warm", 5)
        return [await clocked(round_trips(f"t{i}", setting.size), setting.size) for i in range(setting.repeats)]


async def measure_bytes(package: Package, setting: Setting, database: str) -> Numbers:
    """Bytes of a closed SQLite file per superstep; what the empty tables take is left out."""
    async with package.saver("sqlite", database) as saver:
        graph = looping_graph(package, saver)
        await until_limit(package, graph.ainvoke({"n": 0}, thread("warm", 2), durability="sync"))
    before = Path(database).stat().st_size
    async with package.saver("sqlite", database) as saver:
        graph = looping_graph(package, saver)
        run = graph.ainvoke({"n": 0}, thread("t", setting.size), durability="sync")
        await until_limit(package, run)
    return [(Path(database).stat().st_size - before) / setting.size]


IMPORT_PROBE = """
import time
start = time.perf_counter()
{statement}
print((time.perf_counter() - start) * 1e3)
with open("/proc/self/status") as status:
    print(next(int(line.split()[1]) / 1024 for line in status if line.startswith("VmRSS")))
"""


def probe_import(package: Package) -> tuple[float, float]:
    """Milliseconds that the import takes in a new process, and the megabytes it then holds."""
    program = IMPORT_PROBE.format(statement=package.import_statement)
    # As after an installation: bytecode is there, and a machine's wish not to write any does not count.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    milliseconds, megabytes = map(float, done.stdout.split())
    return milliseconds, megabytes


async def measure_import_time(package: Package, setting: Setting, database: str) -> Numbers:
    """Milliseconds; see `probe_import`."""
    probe_import(package)
    return [probe_import(package)[0] for _ in range(setting.repeats)]


async def measure_import_memory(package: Package, setting: Setting, database: str) -> Numbers:
    """Megabytes; see `probe_import`."""
    probe_import(package)
    return [probe_import(package)[1] for _ in range(setting.repeats)]


async def measure_peak_memory(package: Package, setting: Setting, database: str) -> Numbers:
    """Megabytes at the peak of a long loop without a saver."""
    run = looping_graph(package, None).ainvoke({"n": 0}, {"recursion_limit": setting.size})
    await until_limit(package, run)
    return [resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024]


@dataclass(frozen=True, slots=True)
class Kernel:
    """One line of the table."""

    title: str
    measure: Callable[[Package, Setting, str], Coroutine[Any, Any, Numbers]]
    setting: Setting
    unit: str = "µs"


STORED: dict[Storage, str] = {"sqlite": "SQLite", "postgres": "Postgres"}

KERNELS: dict[str, Kernel] = {
    "loop": Kernel("superstep, one async node, no saver", measure_loop, Setting()),
    "loop_routed": Kernel("superstep, routed by a plain function", measure_routed, Setting(size=500)),
    "loop_command": Kernel("superstep, routed by Command", measure_commanded, Setting(size=500)),
    "loop_memory": Kernel("superstep, in-memory saver", measure_loop, Setting("memory", size=500)),
}
for _durability in ("sync", "async", "exit"):
    for _storage, _name in STORED.items():
        KERNELS[f"loop_{_storage}_{_durability}"] = Kernel(
            f"superstep, {_name}, {_durability}", measure_loop, Setting(_storage, _durability, 200, 3)
        )
for _size, _repeats in ((100, 10), (1000, 5), (5000, 3)):
    KERNELS[f"fan_out_{_size}"] = Kernel(
        f"Send fan-out and join of {_size}, per task",
        measure_fan_out,
        Setting(size=_size, repeats=_repeats),
    )
KERNELS["threads_none"] = Kernel(
    "1000 threads x 10 steps, no saver, per step", measure_threads, Setting(size=1000, repeats=3)
)
for _storage, _name in STORED.items():
    KERNELS[f"threads_{_storage}"] = Kernel(
        f"100 threads x 10 steps, {_name}, per step",
        measure_threads,
        Setting(_storage, size=100, repeats=3),
    )
for _storage, _name in {"memory": "in memory", **STORED}.items():
    KERNELS[f"interrupt_{_storage}"] = Kernel(
        f"interrupt and resume, {_name}", measure_interrupt, Setting(_storage, size=50, repeats=3)
    )
KERNELS |= {
    "import_time": Kernel("import", measure_import_time, Setting(), "ms"),
    "import_memory": Kernel("memory after import", measure_import_memory, Setting(repeats=1), "MB"),
    "peak_memory": Kernel("peak memory of 20,000 supersteps", measure_peak_memory, Setting(size=20_000), "MB"),
    "bytes_sqlite": Kernel("bytes on disk per superstep, SQLite", measure_bytes, Setting(size=1000), "B"),
}


def main() -> None:
    """Run one kernel and print its numbers as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("package", choices=PACKAGES)
    parser.add_argument("kernel", choices=KERNELS)
    parser.add_argument("--database", default="", help="file of SQLite, or URL of Postgres")
    arguments = parser.parse_args()
    kernel = KERNELS[arguments.kernel]
    package = load_package(arguments.package)
    numbers = asyncio.run(kernel.measure(package, kernel.setting, arguments.database))
    print(json.dumps(numbers))


if __name__ == "__main__":
    main()

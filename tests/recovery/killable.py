"""Graphs whose process may be killed at any of their store calls, and the ledger that tells what they did.

A ledger is a file that outlives the processes that append to it: a line ``ran <node>`` for each side effect and a
line ``kept <node>`` once the store has acknowledged the node's result. Nothing here knows who kills whom, or why.
"""

from __future__ import annotations

import asyncio
import operator
import os
import signal
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal, TypedDict

from langchain_core.messages import AIMessage, ToolCall

from everstep.constants import RETURN, SCHEDULED, START
from everstep.context import Runtime, interrupt
from everstep.graph.builder import StateGraph
from everstep.graph.compiled import CompiledStateGraph
from everstep.graph.functional import task
from everstep.prebuilt.tool_node import ToolNode
from everstep.types import Command
from everstep_savers.base import Config
from everstep_savers.checkpoint import Commit, Loaded
from everstep_savers.sql.saver import SQLSaver


class Entries(TypedDict, total=False):
    entries: Annotated[list[Any], operator.add]
    tag: str


@dataclass(frozen=True)
class Ledger:
    """What happened, in order, in all processes."""

    path: Path

    def add(self, line: str) -> None:
        # One write to a file opened for appending: lines of several processes do not mix.
        descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        try:
            os.write(descriptor, f"{line}\n".encode())
        finally:
            os.close(descriptor)

    def lines(self) -> list[str]:
        return self.path.read_text().splitlines() if self.path.exists() else []


@dataclass(frozen=True)
class Plan:
    """What a process is to do, and where it dies.

    Attributes:
        point: ``"before 3"``, ``"after 3"``: at the third commit; ``"in s2"``: in that node, between its side effect
            and its result; ``""``: nowhere.
        slow_results: Seconds by which commits of results alone are delayed.
        slow_steps: Seconds by which commits of checkpoints are delayed, but for the claim.
        joins: Commits that wait together are stored as one; else each is stored by itself, so that they can be counted.
        meet: One-letter tags of the runs that must all have read the thread before one of them claims it.
        pipe: A named pipe; in node s1 the process writes its id there and stops until it is continued.
    """

    url: str
    ledger: str
    graph: str = "chain"
    thread: str = "t"
    tag: str = ""
    point: str = ""
    durability: str = "async"
    slow_results: float = 0.0
    slow_steps: float = 0.0
    joins: bool = False
    meet: str = ""
    pipe: str = ""

    def config(self) -> dict[str, Any]:
        """The config of the plan's thread."""
        return {"configurable": {"thread_id": self.thread}}

    def survived(self) -> Plan:
        """The same plan for a process that does not die."""
        return replace(self, point="", pipe="")


class Life:
    """One process at work: what its nodes do, and what its store has kept."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.ledger = Ledger(Path(plan.ledger))
        self.commits = 0
        self.quick_ran = False
        self.is_watched = False  # a `MortalSaver` tells when results are handed over
        # A result is on its way to the store ("slow_results"), or there, while a sibling still runs.
        self.result_handed_over = asyncio.Event()

        @task
        async def act(name: str) -> str:
            self.work(name)
            return name

        self.act = act

    def pass_by(self, point: str) -> None:
        """Die as by kill -9, if this is where the plan says so."""
        if point == self.plan.point:
            os.kill(os.getpid(), signal.SIGKILL)

    def work(self, name: str) -> None:
        """The side effect of a node."""
        self.ledger.add(f"ran {name}")
        self.pass_by(f"in {name}")
        if self.plan.pipe and name == "s1":
            Path(self.plan.pipe).write_text(str(os.getpid()))
            os.kill(os.getpid(), signal.SIGSTOP)

    def node(self, name: str) -> tuple[str, Callable[..., Any]]:
        async def run(state: Entries) -> dict[str, Any]:
            self.work(name)
            return {"entries": [self.plan.tag + name]}

        return name, run

    async def quick(self, state: Entries) -> dict[str, Any]:
        self.quick_ran = True
        self.work("quick")
        return {"entries": ["quick"]}

    async def slow(self, state: Entries) -> dict[str, Any]:
        """A node that ends after its quick sibling's result was handed over to be stored."""
        self.work("slow")
        if self.quick_ran and self.is_watched:
            await self.result_handed_over.wait()
        return {"entries": ["slow"]}

    async def tasks(self, state: Entries) -> dict[str, Any]:
        """A node whose work is two journalled tasks."""
        return {"entries": [await self.act("t1"), await self.act("t2")]}

    async def call(self, state: Entries) -> dict[str, Any]:
        """A node that runs two tools at once; the second ends after the first one's result was kept."""

        async def t1() -> str:
            """Work."""
            self.quick_ran = True
            self.work("t1")
            return "t1"

        async def t2() -> str:
            """Work."""
            self.work("t2")
            if self.quick_ran and self.is_watched:
                await self.result_handed_over.wait()
            return "t2"

        calls = [ToolCall(name=name, args={}, id=name) for name in ("t1", "t2")]
        results = await ToolNode([t1, t2]).ainvoke([AIMessage("", tool_calls=calls)])
        return {"entries": [message.content for message in results]}

    async def pay(self, state: Entries, runtime: Runtime[Any]) -> dict[str, Any]:
        """A node that tells the ledger its idempotency key."""
        self.ledger.add(f"key {runtime.idempotency_key}")
        self.work("pay")
        return {"entries": ["paid"]}

    async def bad(self, state: Entries) -> None:
        self.work("bad")
        raise ValueError("bad")

    async def mend(self, state: Entries) -> Command[Literal["s3"]]:
        """The error handler of `bad`."""
        self.work("mend")
        return Command(update={"entries": ["mended"]}, goto="s3")

    async def ask(self, state: Entries) -> dict[str, Any]:
        answer = interrupt("what?")
        self.work("ask")
        return {"entries": [answer]}

    def graph(self, saver: Any) -> CompiledStateGraph:
        """The plan's graph."""
        builder = StateGraph(Entries).add_node(*self.node("s1")).add_node(*self.node("s3")).add_edge(START, "s1")
        if self.plan.graph == "chain":
            builder.add_node(*self.node("s2")).add_edge("s1", "s2").add_edge("s2", "s3")
        elif self.plan.graph == "asking":
            builder.add_node(self.ask).add_edge("s1", "ask").add_edge("ask", "s3")
        elif self.plan.graph == "tasks":
            builder.add_node(self.tasks).add_edge("s1", "tasks").add_edge("tasks", "s3")
        elif self.plan.graph == "tools":
            builder.add_node(self.call).add_edge("s1", "call").add_edge("call", "s3")
        elif self.plan.graph == "paying":
            builder.add_node(self.pay).add_edge("s1", "pay").add_edge("pay", "s3")
        elif self.plan.graph == "handled":
            builder.add_node(self.bad, error_handler=self.mend).add_edge("s1", "bad")
        else:
            builder.add_node(self.quick).add_node(self.slow).add_edge("s1", "quick").add_edge("s1", "slow")
            builder.add_edge(["quick", "slow"], "s3")
        return builder.compile(saver)


class MortalSaver(SQLSaver):
    """Delays commits and dies at one of them, as its plan says, and tells the ledger what was stored."""

    life: Life

    def prepare(self, commit: Commit) -> Any:
        results = [*commit.writes, *(writes for new in commit.checkpoints for writes in new.results)]
        done = [writes for writes in results if any(is_result(*write) for write in writes.writes)]
        names = [called(writes.writes[0][1]) if writes.writes[0][0] == RETURN else writes.node for writes in done]
        return super().prepare(commit), names, bool(commit.checkpoints)

    def join(self, first: Any, second: Any) -> Any:
        both = super().join(first[0], second[0]) if self.life.plan.joins else None
        return None if both is None else (both, [*first[1], *second[1]], first[2] or second[2])

    async def acommit(self, prepared: Any) -> int:
        life, (encoded, done, is_step) = self.life, prepared
        life.commits += 1
        number = life.commits
        if done and not is_step and life.plan.slow_results:
            life.result_handed_over.set()
        if number > 1:
            await asyncio.sleep(life.plan.slow_steps if is_step else life.plan.slow_results)
        life.pass_by(f"before {number}")
        token = await super().acommit(encoded)
        for node in done:
            life.ledger.add(f"kept {node}")
        life.pass_by(f"after {number}")
        if done and not is_step:
            life.result_handed_over.set()
        return token

    async def aload(self, config: Config) -> Loaded:
        loaded = await super().aload(config)
        plan = self.life.plan
        Path(f"{plan.ledger}.{plan.tag}").touch()
        while not all(Path(f"{plan.ledger}.{tag}").exists() for tag in plan.meet):  # noqa: ASYNC110 - see below
            await asyncio.sleep(0.001)  # no event reaches from one process to another
        return loaded


def called(result: Any) -> str:
    """The name of a `@task` or a tool, which is what it has returned."""
    return result if isinstance(result, str) else result[0].content


def is_result(channel: str, value: Any) -> bool:
    """Does such a write mean that its task does not run again? (Of a `@task` call, SCHEDULED is a record.)"""
    return channel == RETURN or (channel == SCHEDULED and isinstance(value, str)) or not channel.startswith("__")


async def live(plan: Plan, use: Callable[[CompiledStateGraph], Awaitable[Any]]) -> Any:
    """Open the plan's database, make its graph, and use it."""
    async with MortalSaver.from_url(plan.url) as saver:
        saver.life = Life(plan)
        saver.life.is_watched = True
        return await use(saver.life.graph(saver))


async def start(plan: Plan) -> Any:
    """Begin a run."""
    given = {"entries": [], "tag": plan.tag}
    return await live(plan, lambda graph: graph.ainvoke(given, plan.config(), durability=plan.durability))


async def resume(plan: Plan) -> Any:
    """Continue a thread."""
    return await live(plan, lambda graph: graph.ainvoke(None, plan.config(), durability=plan.durability))


async def answer(plan: Plan) -> Any:
    """Answer the open question of a thread."""
    command: Command[Any] = Command(resume="answer")
    return await live(plan, lambda graph: graph.ainvoke(command, plan.config(), durability=plan.durability))


DEEDS: dict[str, Callable[[Plan], Coroutine[Any, Any, Any]]] = {"start": start, "resume": resume, "answer": answer}

"""What is left behind by a batch, gathered from three places that know nothing of one another.

The threads in the database, the effects log, and the payment service's ledger. Gathering reads only;
`checks` judges and `report` shows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from everstep_savers import SQLSaver
from examples.orders.effects import Effect
from examples.orders.payments import Charge
from examples.orders.records import Order
from examples.orders.worker import Batch
from examples.orders.workflow import Decision, OrderState, Outcome


@dataclass(frozen=True, slots=True)
class Kill:
    """A worker that was killed on purpose."""

    pid: int
    settled: int
    """Orders that were finished, or waiting for a human, at that moment."""
    in_flight: int
    """Orders that were neither, though begun."""


@dataclass(frozen=True, slots=True)
class Step:
    """One checkpoint of a thread."""

    number: int
    source: str
    stored_at: float
    """Seconds since the epoch; taken just before it was stored."""
    next: tuple[str, ...]
    """Nodes that run from here; their results are in the following checkpoint."""
    changed: tuple[str, ...]
    """Keys of the state whose value is new here."""


@dataclass(frozen=True, slots=True)
class Ending:
    """One order, as its thread tells it."""

    line: int
    thread: str
    status: str
    """Of the thread: `done`, or what went wrong."""
    state: OrderState
    questions: int
    """How many are still open."""
    steps: tuple[Step, ...]
    """Oldest first."""

    @property
    def outcome(self) -> Outcome | None:
        return self.state.get("outcome")

    @property
    def order(self) -> Order | None:
        return self.state.get("order")

    @property
    def decision(self) -> Decision | None:
        return self.state.get("decision")


@dataclass(frozen=True, slots=True)
class Evidence:
    """All there is to judge a batch by."""

    endings: Sequence[Ending]
    effects: Sequence[Effect]
    charges: Sequence[Charge]
    requests: dict[str, int]
    """Requests to the payment service, by what became of them."""
    kills: Sequence[Kill]
    seconds: float = 0.0


async def read_endings(saver: SQLSaver, graph: Any, batch: Batch) -> list[Ending]:
    """Read every thread of a batch."""
    return [await _read_ending(saver, graph, row.line, batch.thread(row)) for row in batch.rows]


async def _read_ending(saver: SQLSaver, graph: Any, line: int, thread: str) -> Ending:
    config = {"configurable": {"thread_id": thread}}
    record = await saver.aget_thread(thread)
    if record is None:
        return Ending(line, thread, "never begun", {}, 0, ())
    snapshots = [snapshot async for snapshot in graph.aget_state_history(config)]
    status = f"{record.status}: {record.error}" if record.error else record.status
    head = next(iter(snapshots), None)
    state: OrderState = head.values if head else {}
    questions = len(head.interrupts) if head else 0
    return Ending(line, thread, status, state, questions, _steps(snapshots[::-1]))


def _steps(snapshots: Sequence[Any]) -> tuple[Step, ...]:
    """Turn snapshots, oldest first, into steps."""
    steps = []
    before: dict[str, Any] = {}
    for snapshot in snapshots:
        values = snapshot.values
        changed = tuple(key for key in values if key not in before or before[key] != values[key])
        stored_at = datetime.fromisoformat(snapshot.created_at).timestamp()
        number, source = snapshot.metadata["step"], snapshot.metadata["source"]
        steps.append(Step(number, source, stored_at, tuple(snapshot.next), changed))
        before = values
    return tuple(steps)

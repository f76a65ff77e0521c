"""A process that brings every order of a file to its end, wherever an earlier process left it.

What is to be done with an order is read from its thread: not begun -> start it; waiting for a human ->
answer, if this worker may; done -> nothing; anything else -> its process was killed, stopped or gave up, so
go on from what is stored. So the process can be killed at any moment, and starting it again is all there is
to recovery. One worker at a time: sharing a file out among several is not done here.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from everstep import Command
from everstep_savers import SQLSaver
from everstep_savers.errors import PersistenceError
from examples.orders.approvals import decide
from examples.orders.effects import EffectsLog
from examples.orders.payment_client import PaymentClient
from examples.orders.records import Row, read_rows
from examples.orders.workflow import Services, build_orders

ORDERS_FILE = Path(__file__).with_name("orders.csv")
log = logging.getLogger("orders.worker")


@dataclass(frozen=True, slots=True)
class Batch:
    """Which orders, and under which thread ids."""

    rows: Sequence[Row]
    prefix: str = ""
    """Keeps the threads of several runs in one database apart."""

    @classmethod
    def load(cls, path: Path, limit: int | None, prefix: str) -> Batch:
        return cls(read_rows(path)[:limit], prefix)

    def thread(self, row: Row) -> str:
        return f"{self.prefix}order-{row.line}"


class Worker:
    """Runs the orders of a batch, some at a time."""

    def __init__(self, saver: SQLSaver, services: Services, *, answers: bool = False, at_once: int = 20) -> None:
        self.saver = saver
        self.graph = build_orders().compile(checkpointer=saver, name="orders")
        self.services = services
        self.answers = answers
        self.slots = asyncio.Semaphore(at_once)

    async def run(self, batch: Batch) -> None:
        """Return when every order has been brought as far as this worker can bring it."""
        async with asyncio.TaskGroup() as group:
            for row in batch.rows:
                group.create_task(self.advance(row, batch.thread(row)))

    async def advance(self, row: Row, thread_id: str) -> None:
        """Run one order; a failure is logged and stored with its thread, and is no matter of the others."""
        async with self.slots:
            try:
                await self.take_up(row, thread_id)
            except Exception:
                log.exception("%s failed", thread_id)

    async def take_up(self, row: Row, thread_id: str) -> None:
        config = {"configurable": {"thread_id": thread_id}}
        record = await self.saver.aget_thread(thread_id)
        match record and record.status:
            case None:
                start: Any = {"row": row}
            case "done":
                return
            case "interrupted" if not self.answers:
                return
            case "interrupted":
                snapshot = await self.graph.aget_state(config)
                start = Command(resume={asked.id: decide(asked.value) for asked in snapshot.interrupts})
            case _:
                start = None
        await self.graph.ainvoke(start, config, context=self.services, durability="sync")


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--database-url", required=True)
    parser.add_argument("--payments-url", required=True)
    parser.add_argument("--effects", type=Path, required=True, help="file in which nodes leave their traces")
    parser.add_argument("--file", type=Path, default=ORDERS_FILE)
    parser.add_argument("--orders", type=int, help="only the first so many records")
    parser.add_argument("--prefix", default="", help="of the thread ids")
    parser.add_argument("--at-once", type=int, default=20)
    parser.add_argument("--answer", action="store_true", help="answer open questions by the rule of the demo")
    return parser.parse_args()


async def main() -> None:
    options = parse_options()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(process)d %(name)s %(message)s")
    logging.getLogger("alembic").setLevel(logging.WARNING)
    services = Services(PaymentClient(options.payments_url), EffectsLog(options.effects))
    async with SQLSaver.from_url(options.database_url, auto_migrate=True) as saver:
        worker = Worker(saver, services, answers=options.answer, at_once=options.at_once)
        await worker.run(Batch.load(options.file, options.orders, options.prefix))


if __name__ == "__main__":
    try:
        asyncio.run(main())
    except PersistenceError as error:
        sys.exit(f"worker: {error}")

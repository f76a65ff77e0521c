"""The demo: a batch of orders whose worker is killed with SIGKILL again and again, and nothing is lost.

    python -m examples.orders.demo [--database-url URL] [--orders N] [--seed N] [--json]

It starts the payment service and a worker, kills the worker at points drawn from the seed, starts the
next, lets a worker answer the questions for a human (and kills that one, too), and judges what is left
behind. The exit status is 0 only if every check holds. It looks at the workers from outside, as an
operator does: through the effects log, the database and the payment service's ledger.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from everstep_savers import SQLSaver
from examples.orders import report
from examples.orders.checks import judge
from examples.orders.effects import EffectsReader
from examples.orders.evidence import Evidence, Kill, read_endings
from examples.orders.payments import Ledger
from examples.orders.worker import ORDERS_FILE, Batch
from examples.orders.workflow import ASKED, build_orders

ROOT = Path(__file__).parents[2]
KILLS = 3
# Fewer questions than this are answered before a kill could fall between them.
QUESTIONS_FOR_A_KILL = 4
FEWEST_ORDERS = 40
DEADLINE = 300.0


@dataclass(frozen=True, slots=True)
class Setting:
    """Where everything of one demo is."""

    folder: Path
    database_url: str
    batch: Batch
    seed: int

    @property
    def effects(self) -> Path:
        return self.folder / "effects.jsonl"

    @property
    def ledger(self) -> Path:
        return self.folder / "payments.db"

    @property
    def log(self) -> Path:
        return self.folder / "worker.log"

    def log_end(self) -> str:
        """The last words of the workers, for whoever looks for the reason of a failure."""
        return "\n".join(self.log.read_text().splitlines()[-15:])


class Operator:
    """Starts workers, watches them, kills them."""

    def __init__(self, setting: Setting, payments_url: str, progress: Progress) -> None:
        self.setting = setting
        self.payments_url = payments_url
        self.progress = progress
        self.task = progress.add_task("orders", total=len(setting.batch.rows))
        self.effects = EffectsReader(setting.effects)
        self.kills: list[Kill] = []

    async def bring_to_end(
        self, kill_points: Sequence[int], *final_nodes: str, work: int, answer: bool = False
    ) -> None:
        """Run worker after worker until one comes to its end.

        Args:
            kill_points: Counts of settled orders; at each, the worker of that moment is killed.
            final_nodes: An order is settled when one of these nodes has run.
            work: How many orders there are to settle.
            answer: Whether the workers answer questions.
        """
        for kill_point in (*kill_points, None):
            worker = await self.start_worker(at_once(work), answer)
            try:
                kill = await self.watch(worker, kill_point, frozenset(final_nodes))
            finally:
                if worker.returncode is None:
                    worker.kill()
                await worker.wait()
            if kill is None or worker.returncode != -signal.SIGKILL:
                return
            self.kills.append(kill)
            self.say(f"killed {kill.pid} with SIGKILL: {kill.settled} settled, {kill.in_flight} in its hands")

    async def start_worker(self, orders_at_once: int, answer: bool) -> asyncio.subprocess.Process:
        setting = self.setting
        arguments = [
            *("--database-url", setting.database_url, "--payments-url", self.payments_url),
            *("--effects", str(setting.effects), "--orders", str(len(setting.batch.rows))),
            *("--prefix", setting.batch.prefix, "--at-once", str(orders_at_once)),
            *(["--answer"] if answer else []),
        ]
        with setting.log.open("ab") as log:
            command = [sys.executable, "-m", "examples.orders.worker", *arguments]
            worker = await asyncio.create_subprocess_exec(*command, cwd=ROOT, stdout=log, stderr=log)
        self.say(f"worker {worker.pid} started{' to answer the questions' if answer else ''}")
        return worker

    async def watch(
        self, worker: asyncio.subprocess.Process, kill_point: int | None, final_nodes: frozenset[str]
    ) -> Kill | None:
        """Return when the worker has ended by itself (None), or must be killed now."""
        while worker.returncode is None:
            seen = self.effects.refresh()
            settled = {effect.thread for effect in seen if effect.node in final_nodes}
            in_hand = {effect.thread for effect in seen if effect.pid == worker.pid} - settled
            self.progress.update(self.task, completed=len(self.threads("finalize")))
            if kill_point is not None and len(settled) >= kill_point and in_hand:
                worker.kill()
                return Kill(worker.pid, len(settled), len(in_hand))
            await asyncio.sleep(0.01)
        if worker.returncode:
            raise SystemExit(f"worker {worker.pid} failed; the end of {self.setting.log}:\n{self.setting.log_end()}")
        return None

    def threads(self, node: str) -> set[str]:
        """Return the threads in which a node has run."""
        return {effect.thread for effect in self.effects.refresh() if effect.node == node}

    def say(self, text: str) -> None:
        self.progress.console.print(text, markup=False, highlight=False, soft_wrap=True)


def at_once(work: int) -> int:
    """How many orders a worker has in hand; few enough that some remain to be killed."""
    return min(20, max(3, work // 6))


def draw_kill_points(rng: random.Random, begin: int, end: int, kills: int) -> list[int]:
    """Spread the kills over the counts from `begin` to `end`, none of them at an exact place."""
    part = (end - begin) / (kills + 1)
    return [begin + max(1, round(part * (nth + rng.uniform(0.6, 1.3)))) for nth in range(kills)]


@contextmanager
def payment_service(setting: Setting) -> Iterator[str]:
    """Run the payment service; yields its URL. It ends when its standard input closes."""
    options = ["--ledger", str(setting.ledger), "--seed", str(setting.seed)]
    command = [sys.executable, "-m", "examples.orders.payments", *options]
    pipe = subprocess.PIPE
    # In a session of its own: Ctrl-C is for the demo, whose end closes the pipe.
    with subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, text=True, start_new_session=True) as service:
        assert service.stdout
        if not (url := service.stdout.readline().strip()):
            raise SystemExit("the payment service did not start; its own message stands above")
        yield url


async def run_demo(setting: Setting, progress: Progress) -> Evidence:
    """Run the batch under fire, and return what is left behind."""
    begin = time.monotonic()
    total = len(setting.batch.rows)
    rng = random.Random(setting.seed)
    with payment_service(setting) as url, progress:
        operator = Operator(setting, url, progress)
        operator.say(f"payment service at {url}; {total} records in {ORDERS_FILE.name}; files in {setting.folder}")
        await operator.bring_to_end(draw_kill_points(rng, 0, total, KILLS), "finalize", ASKED, work=total)
        finished, asked = operator.threads("finalize"), operator.threads(ASKED)
        operator.say(f"{len(finished)} orders finished, {len(asked)} wait for a human")
        again = 1 if len(asked) >= QUESTIONS_FOR_A_KILL else 0
        points = draw_kill_points(rng, len(finished), total, again)
        await operator.bring_to_end(points, "finalize", work=len(asked), answer=True)
    async with SQLSaver.from_url(setting.database_url) as saver:
        graph = build_orders().compile(checkpointer=saver, name="orders")
        endings = await read_endings(saver, graph, setting.batch)
    with closing(Ledger(setting.ledger)) as ledger:
        charges, requests = ledger.charges(), ledger.answers()
    seconds = time.monotonic() - begin
    return Evidence(endings, operator.effects.refresh(), charges, requests, operator.kills, seconds)


def prepare(options: argparse.Namespace) -> Setting:
    """Remove an earlier demo's files, and find the database: the given one, or a file in the folder."""
    folder = options.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    for pattern in ("orders.db*", "payments.db*", "effects.jsonl", "worker.log"):
        for old in folder.glob(pattern):
            old.unlink()
    prefix = f"demo-{secrets.token_hex(3)}-" if options.database_url else ""
    batch = Batch.load(ORDERS_FILE, options.orders, prefix)
    return Setting(folder, options.database_url or f"sqlite:///{folder / 'orders.db'}", batch, options.seed)


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--database-url", help="default: an SQLite file in the folder")
    parser.add_argument("--orders", type=int, help="only the first so many records")
    parser.add_argument("--seed", type=int, default=7, help="of the payment service's faults and of the kills")
    parser.add_argument("--folder", type=Path, default=ROOT / ".demo", help="for the demo's files")
    parser.add_argument("--json", action="store_true", help="print the report as one JSON object")
    options = parser.parse_args()
    if options.orders is not None and options.orders < FEWEST_ORDERS:
        parser.error(f"--orders {options.orders}: at least {FEWEST_ORDERS}, so that every kill finds work")
    return options


async def main() -> int:
    options = parse_options()
    setting = prepare(options)
    console = Console(stderr=options.json)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    async with asyncio.timeout(DEADLINE):
        evidence = await run_demo(setting, Progress(*columns, console=console, disable=not console.is_terminal))
    checks = judge(evidence, kills_wanted=KILLS)
    mermaid = build_orders().compile(name="orders").get_graph().draw_mermaid()
    if options.json:
        print(json.dumps(report.as_json(evidence, checks, mermaid)))
    else:
        report.show(console, evidence, checks, mermaid)
    if all(check.ok for check in checks):
        return 0
    print(f"\nThe end of {setting.log}:\n{setting.log_end()}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    try:
        sys.exit(asyncio.run(main()))
    except KeyboardInterrupt:
        sys.exit("demo: stopped")

"""The report on a batch: tables for people, one JSON object for scripts, both from the same evidence."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

from rich.console import Console
from rich.table import Table

from examples.orders.checks import Check, continued_elsewhere, repeated
from examples.orders.evidence import Ending, Evidence
from examples.orders.workflow import ASKED, Outcome

NODES = ("validate", "check_stock", "check_fraud", "assess", ASKED, "approve", "pay", "ship", "finalize")


def as_json(evidence: Evidence, checks: Sequence[Check], mermaid: str) -> dict[str, Any]:
    """Return everything as plain JSON values."""
    told = interesting(evidence)
    return {
        "ok": all(check.ok for check in checks),
        "orders": len(evidence.endings),
        "seconds": round(evidence.seconds, 1),
        "outcomes": dict(outcomes(evidence)),
        "kills": [{"pid": kill.pid, "settled": kill.settled, "in_flight": kill.in_flight} for kill in evidence.kills],
        "processes": {pid: dict(nodes) for pid, nodes in runs_by_process(evidence).items()},
        "continued_elsewhere": sorted(continued_elsewhere(evidence)),
        "ran_in_two_processes": repeated(evidence),
        "bad_records": bad_records(evidence),
        "payments": {"charges": len(evidence.charges), "requests": evidence.requests},
        "checks": [{"name": check.name, "ok": check.ok, "faults": check.faults} for check in checks],
        "history": {"thread": told.thread, "steps": history_rows(evidence, told)} if told else None,
        "mermaid": mermaid,
    }


def show(console: Console, evidence: Evidence, checks: Sequence[Check], mermaid: str) -> None:
    """Print the report."""
    console.rule("Outcomes")
    console.print(_table(("outcome", "orders"), outcomes(evidence).most_common()))
    console.rule("Records that are no orders")
    for problem in bad_records(evidence):
        console.print(problem, markup=False, highlight=False, soft_wrap=True)
    console.rule("Which node ran in which process")
    _show_processes(console, evidence)
    console.rule("Payments, by the service's own ledger")
    _show_payments(console, evidence)
    if told := interesting(evidence):
        console.rule(f"History of thread {told.thread}")
        console.print(told.state.get("summary", ""), markup=False, highlight=False, soft_wrap=True)
        columns = ("step", "source", "stored at", "new in the state", "next", "ran in process")
        console.print(_table(columns, history_rows(evidence, told)))
    console.rule("The graph (Mermaid)")
    console.print(mermaid, markup=False, highlight=False, soft_wrap=True)
    console.rule("Checks")
    for check in checks:
        console.print(f"{'ok  ' if check.ok else 'FAIL'}  {check.name}", style="green" if check.ok else "bold red")
        for fault in check.faults[:20]:
            console.print(f"        {fault}", markup=False, highlight=False, soft_wrap=True)


def outcomes(evidence: Evidence) -> Counter[str]:
    """Count the orders by outcome; those without one by their thread's status."""
    return Counter(ending.outcome or ending.status for ending in evidence.endings)


def bad_records(evidence: Evidence) -> list[str]:
    """Return why records were not understood: line, field, value, reason."""
    invalid = (ending for ending in evidence.endings if ending.outcome is Outcome.INVALID)
    return [problem for ending in invalid for problem in ending.state["reasons"]]


def runs_by_process(evidence: Evidence) -> dict[int, Counter[str]]:
    """Count by process how often each node's body was run, in the order in which the processes lived."""
    runs: dict[int, Counter[str]] = defaultdict(Counter)
    for effect in evidence.effects:
        runs[effect.pid][effect.node] += 1
    return dict(runs)


def interesting(evidence: Evidence) -> Ending | None:
    """Pick the thread worth telling: a human was asked, it was shipped, and most processes had it in hand."""
    pids = defaultdict(set)
    for effect in evidence.effects:
        pids[effect.thread].add(effect.pid)
    told = [ending for ending in evidence.endings if ending.decision and ending.outcome is Outcome.SHIPPED]
    return max(told, key=lambda ending: len(pids[ending.thread]), default=None)


def history_rows(evidence: Evidence, ending: Ending) -> list[tuple[str, ...]]:
    """Return one row per checkpoint: step, source, time, new keys, next nodes, and where those ran."""
    pids = defaultdict(list)
    for effect in evidence.effects:
        if effect.thread == ending.thread:
            pids[effect.node].append(effect.pid)
            if effect.node == ASKED:
                pids["approve"].append(effect.pid)
    return [
        (
            str(step.number),
            step.source,
            f"{datetime.fromtimestamp(step.stored_at, UTC).astimezone():%H:%M:%S.%f}"[:-3],
            ", ".join(step.changed),
            ", ".join(step.next),
            ", ".join(str(pid) for pid in dict.fromkeys(pid for node in step.next for pid in pids[node])),
        )
        for step in ending.steps
    ]


def _show_processes(console: Console, evidence: Evidence) -> None:
    runs = runs_by_process(evidence)
    killed = {kill.pid for kill in evidence.kills}
    columns = ("node", *(f"{pid}{' killed' if pid in killed else ''}" for pid in runs))
    console.print(_table(columns, [(node, *(counts[node] for counts in runs.values())) for node in NODES]))
    console.print(
        f"{len(continued_elsewhere(evidence))} orders were continued by another process than the one that"
        f" began them; in {len(repeated(evidence))} places a kill fell between the start of a node and the"
        " storing of its result, so that the node ran again."
    )


def _show_payments(console: Console, evidence: Evidence) -> None:
    paid = sum(1 for ending in evidence.endings if "receipt" in ending.state)
    console.print(f"{paid} paid orders, {len(evidence.charges)} charges, {sum(evidence.requests.values())} requests:")
    console.print(_table(("what became of the request", "requests"), evidence.requests.items()))


def _table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> Table:
    table = Table()
    for number, column in enumerate(columns):
        table.add_column(column, no_wrap=number == 0)
    for row in rows:
        table.add_row(*(str(cell) for cell in row))
    return table

"""What must be true after a batch, however often its workers were killed.

Each check takes the evidence and returns a verdict; nothing here reads, writes or prints.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from examples.orders.approvals import SMALL_ENOUGH
from examples.orders.evidence import Ending, Evidence
from examples.orders.workflow import ASKED, payment_key


@dataclass(frozen=True, slots=True)
class Check:
    """A verdict; `faults` is empty if all is well."""

    name: str
    faults: tuple[str, ...]

    @property
    def ok(self) -> bool:
        return not self.faults


def judge(evidence: Evidence, *, kills_wanted: int) -> list[Check]:
    """Return the verdicts on a batch."""
    return [
        Check(
            f"workers were killed at work, at least {kills_wanted} times",
            tuple(_kills(evidence, kills_wanted)),
        ),
        Check("every order has an outcome", tuple(_unfinished(evidence))),
        Check("every paid order was charged once, nothing else was charged", tuple(_wrong_charges(evidence))),
        Check("no node ran again once its result was stored", tuple(_ran_again(evidence))),
        Check("every question got the answer of the rule", tuple(_wrong_answers(evidence))),
    ]


def _kills(evidence: Evidence, wanted: int) -> Iterator[str]:
    if len(evidence.kills) < wanted:
        yield f"only {len(evidence.kills)} kills"
    for kill in evidence.kills:
        if not kill.in_flight:
            yield f"process {kill.pid} had nothing in hand when it was killed"


def _unfinished(evidence: Evidence) -> Iterator[str]:
    for ending in evidence.endings:
        if ending.status != "done" or not ending.outcome or ending.questions:
            yield f"{ending.thread}: {ending.status}, {ending.questions} open questions"


def _wrong_charges(evidence: Evidence) -> Iterator[str]:
    """Compare the orders with a receipt, and what they paid, to the ledger; both ways, amounts included."""
    paid = Counter(
        (payment_key(ending.order), receipt.number, receipt.amount, receipt.currency)
        for ending in evidence.endings
        if ending.order and (receipt := ending.state.get("receipt"))
    )
    charged = Counter((charge.key, charge.receipt, charge.amount, charge.currency) for charge in evidence.charges)
    for (key, number, amount, currency), times in (charged - paid).items():
        yield f"{key}: {number} over {amount} {currency} charged {times} times more than the orders say"
    for (key, number, amount, currency), times in (paid - charged).items():
        yield f"{key}: {number} over {amount} {currency} is not in the ledger ({times} times)"


def _ran_again(evidence: Evidence) -> Iterator[str]:
    """Find bodies that began after the checkpoint with their result was stored.

    A node that ran twice is no fault in itself: a kill may fall between its body and the storing of its
    result. That is why an outside call needs its idempotency key.
    """
    began = defaultdict(list)
    for effect in evidence.effects:
        began[effect.thread, effect.node].append(effect)
    for ending in evidence.endings:
        for node, stored_at in _results(ending):
            for effect in began[ending.thread, node]:
                if effect.time > stored_at:
                    late = f"{effect.time - stored_at:.3f} s after its result was stored"
                    yield f"{ending.thread}: {node} ran in process {effect.pid} {late}"


def _results(ending: Ending) -> Iterator[tuple[str, float]]:
    """Pair each node with the moment at which its result was stored."""
    for before, after in zip(ending.steps, ending.steps[1:], strict=False):
        for node in before.next:
            yield node, after.stored_at


def _wrong_answers(evidence: Evidence) -> Iterator[str]:
    asked = {effect.thread for effect in evidence.effects if effect.node == ASKED}
    for ending in evidence.endings:
        decision, order = ending.decision, ending.order
        if (decision is not None) != (ending.thread in asked):
            yield f"{ending.thread}: asked {ending.thread in asked}, decision {decision}"
        if decision and order and decision.approved != (order.total <= SMALL_ENOUGH):
            yield f"{ending.thread}: {order.total} {order.currency}, decision {decision}"


def continued_elsewhere(evidence: Evidence) -> set[str]:
    """Return the threads whose nodes ran in more than one process."""
    pids = defaultdict(set)
    for effect in evidence.effects:
        pids[effect.thread].add(effect.pid)
    return {thread for thread, seen in pids.items() if len(seen) > 1}


def repeated(evidence: Evidence) -> list[tuple[str, str]]:
    """Return (thread, node) of bodies that ran in more than one process, asking apart."""
    pids = defaultdict(set)
    for effect in evidence.effects:
        if effect.node != ASKED:
            pids[effect.thread, effect.node].add(effect.pid)
    return [place for place, seen in pids.items() if len(seen) > 1]

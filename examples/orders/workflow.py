"""The way of one order, as a graph.

    validate ─┬─> check_stock ─┬─> assess ──> approve ──> pay ──> ship ──> finalize
              └─> check_fraud ─┘
    and from validate, assess, approve and pay straight to finalize, once the outcome is known

The state holds all that is known of the order, so that any process can go on at any node. A node may run
again if its process dies before its result is stored; therefore the one call that must not happen twice,
the payment, carries a key that depends on the order alone.
"""

from __future__ import annotations

import asyncio
import enum
import operator
from dataclasses import dataclass
from typing import Annotated, Any, TypedDict

from everstep import END, START, StateGraph, interrupt
from everstep.errors import NodeTimeoutError
from everstep.runtime import Runtime
from everstep.types import RetryPolicy
from examples.orders.catalogue import APPROVAL_ABOVE, PRODUCTS
from examples.orders.effects import EffectsLog
from examples.orders.payment_client import PaymentClient, PaymentDeclined, PaymentUnavailable, Receipt
from examples.orders.records import BadRecord, Order, Row, parse_order

# The service answers in a few milliseconds or, on a bad day, after the customer has left.
PAYMENT_TIMEOUT = 1.0
RISK_LIMIT = 70
# Noted before the question is put, so once more when the node runs again with the answer.
ASKED = "approve (asked)"


class Outcome(enum.StrEnum):
    """How an order ends."""

    SHIPPED = "shipped"
    INVALID = "invalid"
    OUT_OF_STOCK = "out of stock"
    DECLINED = "declined as fraud"
    DENIED = "denied by a human"
    UNPAID = "payment declined"


@dataclass(frozen=True, slots=True)
class Finding:
    """What a check found; `blocks` says how the order ends if it may not go on."""

    check: str
    text: str
    risk: int = 0
    blocks: Outcome | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    """A human's answer."""

    approved: bool
    by: str
    reason: str


class OrderState(TypedDict, total=False):
    """What is known of one order."""

    row: Row
    order: Order
    findings: Annotated[list[Finding], operator.add]
    decision: Decision
    receipt: Receipt
    tracking: str
    outcome: Outcome
    reasons: tuple[str, ...]
    summary: str


@dataclass(frozen=True, slots=True)
class Services:
    """What nodes use of the outside world; given to each run as its context, never stored."""

    payments: PaymentClient
    effects: EffectsLog


def validate(state: OrderState, runtime: Runtime[Services]) -> OrderState:
    """Turn the row into an order, or end with every reason why it is none."""
    _note(runtime, "validate")
    try:
        return {"order": parse_order(state["row"])}
    except BadRecord as error:
        return {"outcome": Outcome.INVALID, "reasons": error.problems}


async def check_stock(state: OrderState, runtime: Runtime[Services]) -> OrderState:
    """Ask the warehouse."""
    _note(runtime, "check_stock")
    await asyncio.sleep(0.010)  # the way to the warehouse and back
    order = state["order"]
    stock = PRODUCTS[order.sku].stock
    text = f"{order.quantity} of {order.sku} wanted, {stock} there"
    blocks = Outcome.OUT_OF_STOCK if order.quantity > stock else None
    return {"findings": [Finding("stock", text, blocks=blocks)]}


async def check_fraud(state: OrderState, runtime: Runtime[Services]) -> OrderState:
    """Ask the bureau; it counts bad signs."""
    _note(runtime, "check_fraud")
    await asyncio.sleep(0.015)
    order = state["order"]
    signs = {
        "a throw-away address": 45 * order.email.endswith("@tempmail.example"),
        "a dozen or more of an article": 30 * (order.quantity >= 12),
        "a total above the limit": 30 * (order.total > APPROVAL_ABOVE[order.currency]),
    }
    risk = sum(signs.values())
    text = f"risk {risk}: " + (", ".join(sign for sign, weight in signs.items() if weight) or "no bad sign")
    return {"findings": [Finding("fraud", text, risk, Outcome.DECLINED if risk > RISK_LIMIT else None)]}


def assess(state: OrderState, runtime: Runtime[Services]) -> OrderState:
    """Weigh the findings of the checks, which ran side by side."""
    _note(runtime, "assess")
    ends = {finding.blocks: finding.text for finding in state["findings"] if finding.blocks}
    if not ends:
        return {}
    return {"outcome": next(iter(ends)), "reasons": tuple(ends.values())}


def approve(state: OrderState, runtime: Runtime[Services]) -> OrderState:
    """Ask a human; the process may end here, and another one go on when the answer comes."""
    order = state["order"]
    _note(runtime, ASKED)  # runs again with the answer; what must not, stands below the question
    answer = interrupt(
        {
            "question": f"Ship {order.quantity} x {order.sku} to {order.customer}?",
            "order_id": order.order_id,
            "total": order.total,
            "currency": order.currency,
            "findings": [finding.text for finding in state["findings"]],
        }
    )
    _note(runtime, "approve")
    decision = Decision(answer["approved"], answer["by"], answer["reason"])
    if decision.approved:
        return {"decision": decision}
    return {
        "decision": decision,
        "outcome": Outcome.DENIED,
        "reasons": (f"{decision.by}: {decision.reason}",),
    }


async def pay(state: OrderState, runtime: Runtime[Services]) -> OrderState:
    """Take the money, once, however often this runs."""
    _note(runtime, "pay")
    order = state["order"]
    try:
        receipt = await runtime.context.payments.charge(payment_key(order), order.order_id, order.total, order.currency)
    except PaymentDeclined as error:
        return {"outcome": Outcome.UNPAID, "reasons": (str(error),)}
    return {"receipt": receipt}


def payment_key(order: Order) -> str:
    """The idempotency key: the same for the same payment, in every process and attempt."""
    return f"{order.order_id}/payment"


def ship(state: OrderState, runtime: Runtime[Services]) -> OrderState:
    """Hand the parcel over."""
    _note(runtime, "ship")
    return {"tracking": f"EV{state['row'].line:06d}DE", "outcome": Outcome.SHIPPED}


def finalize(state: OrderState, runtime: Runtime[Services]) -> OrderState:
    """Say in one sentence how it ended."""
    _note(runtime, "finalize")
    if state["outcome"] is Outcome.SHIPPED:
        receipt = state["receipt"]
        paid = f"{receipt.amount} {receipt.currency} paid ({receipt.number})"
        return {"summary": f"{state['order'].order_id}: shipped as {state['tracking']}, {paid}"}
    name = state["order"].order_id if "order" in state else f"line {state['row'].line}"
    return {"summary": f"{name}: {state['outcome']}: {'; '.join(state['reasons'])}"}


def _note(runtime: Runtime[Services], node: str) -> None:
    info = runtime.execution_info
    runtime.context.effects.note(info.thread_id or "", node, info.node_attempt)


def after_validate(state: OrderState) -> list[str]:
    return ["finalize"] if "outcome" in state else ["check_stock", "check_fraud"]


def after_assess(state: OrderState) -> str:
    if "outcome" in state:
        return "finalize"
    order = state["order"]
    return "approve" if order.total > APPROVAL_ABOVE[order.currency] else "pay"


def after_approve(state: OrderState) -> str:
    return "finalize" if "outcome" in state else "pay"


def after_pay(state: OrderState) -> str:
    return "finalize" if "outcome" in state else "ship"


def build_orders() -> Any:
    """Return the builder; compile it with a saver to run it."""
    patient = RetryPolicy(
        max_attempts=6,
        initial_interval=0.05,
        max_interval=0.5,
        retry_on=(PaymentUnavailable, NodeTimeoutError),
    )
    builder = StateGraph(OrderState, context_schema=Services)
    for node in (validate, check_stock, check_fraud, assess, approve, ship, finalize):
        builder.add_node(node.__name__, node)
    builder.add_node("pay", pay, retry_policy=patient, timeout=PAYMENT_TIMEOUT)
    builder.add_edge(START, "validate")
    builder.add_conditional_edges("validate", after_validate, ["check_stock", "check_fraud", "finalize"])
    builder.add_edge(["check_stock", "check_fraud"], "assess")
    builder.add_conditional_edges("assess", after_assess, ["approve", "pay", "finalize"])
    builder.add_conditional_edges("approve", after_approve, ["pay", "finalize"])
    builder.add_conditional_edges("pay", after_pay, ["ship", "finalize"])
    builder.add_edge("ship", "finalize")
    builder.add_edge("finalize", END)
    return builder

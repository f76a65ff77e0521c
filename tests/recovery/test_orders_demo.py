"""The orders example: its parser, its payment service, and the demo as a person runs it, workers killed."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import date
from decimal import Decimal
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from examples.orders import fields, make_orders
from examples.orders.checks import continued_elsewhere, judge, repeated
from examples.orders.effects import Effect
from examples.orders.evidence import Ending, Evidence, Kill, Step
from examples.orders.payment_client import (
    PaymentClient,
    PaymentDeclined,
    PaymentError,
    PaymentUnavailable,
    Receipt,
)
from examples.orders.payments import CALM_AFTER, Charge, Fault, Ledger, PaymentServer, draw_fault, is_declined
from examples.orders.records import COLUMNS, BadRecord, Order, Row, parse_order, read_rows, split_rows
from examples.orders.workflow import ASKED, Decision, OrderState, Outcome, payment_key

ROOT = Path(__file__).parents[2]
ORDERS = ROOT / "examples" / "orders" / "orders.csv"
SEED = 7
GOOD = {
    "order_id": "ORD-1",
    "date": "2025-03-14",
    "customer": "Anna Müller",
    "email": "anna@example.com",
    "sku": "CUP-07",
    "quantity": "2",
    "unit_price": "9.50",
    "currency": "EUR",
    "note": "",
}


def file_of(*records: str) -> str:
    return "\n".join((",".join(COLUMNS), *records)) + "\n"


def parse(**changed: str) -> Order:
    """Parse the good record with some fields changed, as it would stand on line 2."""
    row = split_rows(file_of(",".join(f'"{value}"' for value in (GOOD | changed).values())))[0]
    return parse_order(row)


def problems(text: str) -> list[str]:
    """What is wrong with the records of a file."""
    return [problem for row in split_rows(text) for problem in problems_of(row)]


def problems_of(row: Row) -> tuple[str, ...]:
    try:
        parse_order(row)
    except BadRecord as error:
        return error.problems
    return ()


# Parser ---------------------------------------------------------------------------------------------


def test_a_good_record_becomes_a_typed_order() -> None:
    order = parse()
    day = date(2025, 3, 14)
    assert order == Order(2, "ORD-1", day, "Anna Müller", "anna@example.com", "CUP-07", 2, Decimal("9.50"), "EUR", "")
    assert order.total == Decimal("19.00")


def test_spaces_case_and_spreadsheet_numbers_are_tidied() -> None:
    order = parse(customer="  Zoe\u0308\xa0", email="A@Example.COM", sku="cup-07 ", quantity=" 3.0")
    assert (order.customer, order.email) == ("Zoë", "a@example.com")
    assert (order.sku, order.quantity) == ("CUP-07", 3)


@pytest.mark.parametrize(
    "text", ["2025-03-14", "2025/03/14", "20250314", "14.03.2025", "14 Mar 2025", "14/03/2025", "03/14/2025"]
)
def test_dates_are_read_in_every_layout(text: str) -> None:
    assert parse(date=text).date == date(2025, 3, 14)


def test_a_slashed_date_that_reads_the_same_both_ways_is_not_ambiguous() -> None:
    assert parse(date="04/04/2025").date == date(2025, 4, 4)


@pytest.mark.parametrize(
    ("price", "currency", "amount", "code"),
    [
        ("19,90", "EUR", "19.90", "EUR"),
        ("1.299,00", "EUR", "1299.00", "EUR"),
        ("1,299.00", "usd", "1299.00", "USD"),
        ("1 299,5", "EUR", "1299.5", "EUR"),
        ("1'299", "EUR", "1299", "EUR"),
        ("1.000,5 EUR", "", "1000.5", "EUR"),
        ("19", "€", "19", "EUR"),
        ("€ 19.90", "", "19.90", "EUR"),
        ("£19.90", "GBP", "19.90", "GBP"),
        ("19.90 USD", "$", "19.90", "USD"),
    ],
)
def test_amounts_are_read_as_people_write_them(price: str, currency: str, amount: str, code: str) -> None:
    order = parse(unit_price=price, currency=currency, quantity="1")
    assert (order.unit_price, order.currency) == (Decimal(amount), code)


def test_repeated_thousands_are_not_ambiguous() -> None:
    assert fields.read_price("1.000.000") == (Decimal(1_000_000), None)


@pytest.mark.parametrize(
    ("field", "value", "problem"),
    [
        ("order_id", "", "line 2: order_id '' is missing"),
        ("date", "", "line 2: date '' is missing"),
        ("date", "31.02.2025", "line 2: date '31.02.2025' is not a date"),
        ("date", "03/04/2025", "line 2: date '03/04/2025' is ambiguous: 2025-03-04 or 2025-04-03"),
        ("customer", "   ", "line 2: customer '' is missing"),
        ("customer", "J\udcfcrgen", r"line 2: customer 'J\udcfcrgen' is not UTF-8"),
        ("email", "", "line 2: email '' is missing"),
        ("email", "anna(at)example.com", "line 2: email 'anna(at)example.com' is not an e-mail address"),
        ("sku", "CUP-O7", "line 2: sku 'CUP-O7' is not in the catalogue"),
        ("quantity", "-3", "line 2: quantity '-3' is below 1"),
        ("quantity", "0", "line 2: quantity '0' is below 1"),
        ("quantity", "2,5", "line 2: quantity '2,5' is not a whole number"),
        ("quantity", "٣", "line 2: quantity '٣' is not a whole number"),
        ("unit_price", "n/a", "line 2: unit_price 'n/a' is not an amount"),
        ("unit_price", "1.299.00", "line 2: unit_price '1.299.00' is not an amount"),
        ("unit_price", "1.299", "line 2: unit_price '1.299' is ambiguous: 1299 or 1.299"),
        ("unit_price", "-9.50", "line 2: unit_price '-9.50' is not above zero"),
        ("unit_price", "$ 9.50", "line 2: currency 'EUR' contradicts the price, which is in USD"),
        ("unit_price", "99999999.99", "line 2: total '199999999.98' is above 250000"),
        ("currency", "", "line 2: currency '' is missing, and no symbol stands beside the price"),
        ("currency", "XBT", "line 2: currency 'XBT' is not a currency this shop takes"),
    ],
)
def test_a_bad_field_is_reported_with_line_field_and_value(field: str, value: str, problem: str) -> None:
    with pytest.raises(BadRecord) as caught:
        parse(**{field: value})
    assert caught.value.problems == (problem,)


def test_all_problems_of_a_record_are_reported_together() -> None:
    with pytest.raises(BadRecord) as caught:
        parse(email="", quantity="two")
    assert str(caught.value) == "line 2: email '' is missing; line 2: quantity 'two' is not a whole number"


def test_lines_are_counted_through_empty_lines_and_quoted_newlines() -> None:
    text = file_of(
        'ORD-1,2025-03-14,"O\'Neil, Pat",a@b.example,CUP-07,1,9.50,EUR,"ring,\ntwice"',
        "",
        ",,,,,,,,",
        "ORD-2,2025-03-14,Tom,a@b.example,CUP-07,0,9.50,EUR,",
        "ORD-1,2025-03-14,Tom,a@b.example,CUP-07,1,9.50,EUR,",
    )
    assert problems(text) == [
        "line 6: quantity '0' is below 1",
        "line 7: order_id 'ORD-1' was already used on line 2",
    ]
    assert parse_order(split_rows(text)[0]).customer == "O'Neil, Pat"


def test_a_record_cut_short_or_with_too_many_fields_is_reported() -> None:
    long, short = problems(file_of("ORD-1,2025-03-14,Tom,a@b.c,CUP-07,1,9,50,EUR,", 'ORD-2,2025-03-14,"Gr'))
    values = "('ORD-1', '2025-03-14', 'Tom', 'a@b.c', 'CUP-07', '1', '9', '50', 'EUR', '')"
    assert long == f"line 2: record has 10 fields, expected 9: {values}"
    assert short == r"line 3: record ends after 3 of 9 fields, at customer 'Gr\n'"


def test_a_file_with_another_header_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.csv"
    path.write_text("id;date\n1;2\n")
    with pytest.raises(ValueError) as caught:
        read_rows(path)
    assert str(caught.value) == f"other.csv: the header is 'id;date', expected '{','.join(COLUMNS)}'"


def test_the_shipped_file_is_what_the_generator_writes() -> None:
    assert ORDERS.read_bytes() == make_orders.make_orders()


def test_the_shipped_file_has_good_and_bad_records() -> None:
    rows = read_rows(ORDERS)
    bad = [problem for row in rows for problem in problems_of(row)]
    assert len(rows) == 320
    assert bad[-1] == "line 377: record ends after 3 of 9 fields, at customer 'Gr'"
    reasons = {text.split("' ")[-1] for text in bad}
    assert len(bad) >= 40
    assert len(reasons) >= 20


# Payment service ------------------------------------------------------------------------------------


class WatchedLedger(Ledger):
    """A ledger that says when it has charged."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.charged = threading.Event()

    def charge(self, wanted: Charge, answer: str) -> tuple[Charge, bool]:
        done = super().charge(wanted, answer)
        self.charged.set()
        return done


@pytest.fixture
def service(tmp_path: Path) -> Iterator[PaymentServer]:
    with (
        closing(WatchedLedger(tmp_path / "ledger.db")) as ledger,
        PaymentServer(ledger, seed=SEED, late_seconds=60) as server,
    ):
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.closing.set()
        server.shutdown()
        thread.join()


def key_with(*fates: Fault, declined: bool = False) -> str:
    """Find a key whose first requests meet these faults."""

    def fits(key: str) -> bool:
        drawn = tuple(draw_fault(SEED, key, nth + 1) for nth in range(len(fates)))
        return drawn == fates and is_declined(SEED, key) is declined

    return next(key for key in map("key-{}".format, count()) if fits(key))


async def charge(service: PaymentServer, key: str, amount: str = "12.50") -> str:
    receipt = await PaymentClient(service.url).charge(key, "ORD-1", Decimal(amount), "EUR")
    return receipt.number


async def test_the_same_key_charges_once(service: PaymentServer) -> None:
    key = key_with(Fault.NONE, Fault.NONE)
    assert await charge(service, key) == await charge(service, key) == "R-10001"
    assert service.ledger.charges() == [Charge(key, "ORD-1", Decimal("12.50"), "EUR", "R-10001")]
    assert service.ledger.answers() == {"answered": 2}


async def test_a_key_cannot_be_used_for_another_amount(service: PaymentServer) -> None:
    key = key_with(Fault.NONE, Fault.NONE)
    await charge(service, key)
    with pytest.raises(PaymentError) as caught:
        await charge(service, key, "13.00")
    assert type(caught.value) is PaymentError
    assert str(caught.value) == "ORD-1: the key was used for 12.50 EUR (409)"


async def test_a_refused_request_charges_nothing_and_may_be_repeated(service: PaymentServer) -> None:
    key = key_with(Fault.REFUSED, Fault.NONE)
    with pytest.raises(PaymentUnavailable) as caught:
        await charge(service, key)
    assert str(caught.value) == "ORD-1: busy, come again (503)"
    assert service.ledger.charges() == []
    assert await charge(service, key) == "R-10001"


async def test_a_dropped_answer_is_found_again_under_the_same_key(service: PaymentServer) -> None:
    key = key_with(Fault.DROPPED, Fault.NONE)
    with pytest.raises(PaymentUnavailable) as caught:
        await charge(service, key)
    assert str(caught.value) == "no answer for ORD-1: EOFError('connection closed without an answer')"
    assert await charge(service, key) == "R-10001"
    assert len(service.ledger.charges()) == 1


async def test_a_client_that_gave_up_on_a_late_answer_is_not_charged_again(service: PaymentServer) -> None:
    key = key_with(Fault.LATE, Fault.NONE)
    assert isinstance(service.ledger, WatchedLedger)
    waiting = asyncio.create_task(charge(service, key))
    await asyncio.to_thread(service.ledger.charged.wait)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert await charge(service, key) == "R-10001"
    assert len(service.ledger.charges()) == 1
    assert service.ledger.answers() == {"answered": 1, "late": 1}


async def test_a_declined_charge_stays_declined(service: PaymentServer) -> None:
    key = key_with(Fault.NONE, Fault.NONE, declined=True)
    for _ in range(2):
        with pytest.raises(PaymentDeclined) as caught:
            await charge(service, key)
        assert str(caught.value) == "ORD-1: the bank declined the charge (402)"
    assert service.ledger.charges() == []


async def test_an_unreachable_service_is_unavailable() -> None:
    with pytest.raises(PaymentUnavailable, match=r"^no answer for ORD-1: ConnectionRefusedError\("):
        await PaymentClient("http://127.0.0.1:1").charge("key", "ORD-1", Decimal(1), "EUR")


@pytest.mark.parametrize("seed", range(20))
def test_a_patient_client_gets_an_answer_whatever_the_seed(seed: int) -> None:
    assert draw_fault(seed, "ORD-1/payment", CALM_AFTER + 1) is Fault.NONE


# What the demo checks -------------------------------------------------------------------------------

ORDER = parse_order(split_rows(file_of("ORD-1,2025-03-14,Tom,tom@b.example,CUP-07,1,9.50,EUR,"))[0])
RECEIPT = Receipt("R-10001", Decimal("9.50"), "EUR")
CHARGE = Charge(payment_key(ORDER), "ORD-1", Decimal("9.50"), "EUR", "R-10001")
STEPS = (Step(4, "loop", 10.0, ("pay",), ()), Step(5, "loop", 11.0, (), ("receipt",)))
SHIPPED: OrderState = {"order": ORDER, "receipt": RECEIPT, "outcome": Outcome.SHIPPED}
ENDING = Ending(2, "order-2", "done", SHIPPED, 0, STEPS)
EVIDENCE = Evidence(
    endings=[ENDING],
    effects=[Effect("order-2", "pay", 1, 100, 10.2), Effect("order-2", "pay", 1, 101, 10.8)],
    charges=[CHARGE],
    requests={"answered": 1},
    kills=[Kill(100, settled=1, in_flight=1)],
)


def faults_of(**changed: Any) -> list[str]:
    """What the checks complain about when a piece of good evidence is exchanged."""
    checks = judge(replace(EVIDENCE, **changed), kills_wanted=1)
    return [fault for check in checks for fault in check.faults]


def test_a_batch_that_went_well_has_no_faults_though_a_node_ran_twice_before_it_was_stored() -> None:
    assert faults_of() == []
    assert repeated(EVIDENCE) == [("order-2", "pay")]
    assert continued_elsewhere(EVIDENCE) == {"order-2"}


def test_a_second_charge_is_a_fault() -> None:
    again = replace(CHARGE, key="another", receipt="R-10002")
    assert faults_of(charges=[CHARGE, again]) == [
        "another: R-10002 over 9.50 EUR charged 1 times more than the orders say"
    ]


def test_a_receipt_without_a_charge_is_a_fault() -> None:
    assert faults_of(charges=[]) == ["ORD-1/payment: R-10001 over 9.50 EUR is not in the ledger (1 times)"]


def test_a_node_that_ran_after_its_result_was_stored_is_a_fault() -> None:
    late = Effect("order-2", "pay", 1, 102, 11.5)
    assert faults_of(effects=[late]) == ["order-2: pay ran in process 102 0.500 s after its result was stored"]


def test_an_order_without_an_end_is_a_fault() -> None:
    stuck = replace(ENDING, status="interrupted", questions=1)
    assert faults_of(endings=[stuck]) == ["order-2: interrupted, 1 open questions"]


def test_a_kill_that_hit_nothing_and_too_few_kills_are_faults() -> None:
    assert faults_of(kills=[]) == ["only 0 kills"]
    assert faults_of(kills=[Kill(100, 1, 0)]) == ["process 100 had nothing in hand when it was killed"]


def test_an_answer_against_the_rule_is_a_fault() -> None:
    asked = [*EVIDENCE.effects, Effect("order-2", ASKED, 1, 100, 9.0)]
    denied = replace(ENDING, state={**SHIPPED, "decision": Decision(False, "Dana", "no")})
    assert faults_of(effects=asked) == ["order-2: asked True, decision None"]
    assert faults_of(effects=asked, endings=[denied]) == [
        "order-2: 9.50 EUR, decision Decision(approved=False, by='Dana', reason='no')"
    ]


# The demo -------------------------------------------------------------------------------------------

DEMO_ORDERS = 60


@pytest.fixture
def demo(tmp_path: Path, saver_url: str) -> dict[str, Any]:
    """Run the demo as a person does, on a few orders; returns its report."""
    options = ["--json", "--orders", str(DEMO_ORDERS), "--folder", str(tmp_path), "--database-url", saver_url]
    command = [sys.executable, "-m", "examples.orders.demo", *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def test_the_demo_finishes_every_order_though_its_workers_are_killed(demo: dict[str, Any]) -> None:
    assert [check for check in demo["checks"] if not check["ok"]] == []
    assert demo["ok"]
    assert sum(demo["outcomes"].values()) == demo["orders"] == DEMO_ORDERS
    assert set(demo["outcomes"]) >= {"shipped", "invalid", "out of stock", "denied by a human"}
    # Workers were really killed at work, each time another one, and another one went on.
    pids = [kill["pid"] for kill in demo["kills"]]
    assert len(set(pids)) == len(pids) >= 3
    assert all(kill["in_flight"] for kill in demo["kills"])
    assert set(map(str, pids)) < set(demo["processes"])
    assert demo["continued_elsewhere"]
    # The service was asked more often than it charged, and charged each paid order once.
    payments = demo["payments"]
    assert sum(payments["requests"].values()) > payments["charges"] == demo["outcomes"]["shipped"]
    rows = read_rows(ORDERS)[:DEMO_ORDERS]
    assert demo["bad_records"] == [problem for row in rows for problem in problems_of(row)]
    assert demo["history"]["steps"][-1][4] == ""
    assert "check_fraud" in demo["mermaid"]

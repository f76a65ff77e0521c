"""The payment service: an HTTP server in a process of its own, with its own ledger, that has bad days.

It keeps the promise real payment services make: requests with the same `Idempotency-Key` charge once and
get the same receipt. And it fails as they do, drawn from a seed: it answers 503, charges but answers too
late, or charges and drops the connection. It knows nothing of workflows.

    POST /charges   Idempotency-Key: <key>   {"order_id", "amount", "currency"}
      201 charged, 200 charged before, 402 declined, 409 the key belongs to another charge, 503 come again
"""

from __future__ import annotations

import argparse
import enum
import json
import random
import sqlite3
import sys
import threading
from contextlib import closing
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

LATE_SECONDS = 1.5
# From this request on a key meets no more faults, so that a client of finite patience gets its answer.
CALM_AFTER = 4

_SCHEMA = """
PRAGMA journal_mode = WAL;
CREATE TABLE IF NOT EXISTS charges (
    key TEXT PRIMARY KEY, order_id TEXT NOT NULL, amount TEXT NOT NULL, currency TEXT NOT NULL,
    receipt TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS requests (key TEXT NOT NULL, answer TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS requests_by_key ON requests (key);
"""


class Fault(enum.StrEnum):
    """What goes wrong with one request."""

    NONE = "none"
    REFUSED = "refused"  # 503 before anything was charged
    LATE = "late"  # charged, answered after the client has given up
    DROPPED = "dropped"  # charged, never answered


def draw_fault(seed: int, key: str, nth: int) -> Fault:
    """Return the fate of the `nth` request (from 1) with a key; the same for the same arguments."""
    if nth > CALM_AFTER:
        return Fault.NONE
    weights = {Fault.NONE: 80, Fault.REFUSED: 12, Fault.LATE: 3, Fault.DROPPED: 5}
    return random.Random(f"{seed}/{key}/{nth}").choices(list(weights), list(weights.values()))[0]


def is_declined(seed: int, key: str) -> bool:
    """Tell whether the bank behind the service says no to this charge, and always will."""
    return random.Random(f"{seed}/{key}/bank").random() < 0.03


@dataclass(frozen=True, slots=True)
class Charge:
    """One line of the ledger: money that was taken."""

    key: str
    order_id: str
    amount: Decimal
    currency: str
    receipt: str = ""


class Ledger:
    """The service's own book, an SQLite file; safe to share between threads."""

    def __init__(self, path: Path) -> None:
        self._lock = threading.Lock()
        self._connection = sqlite3.connect(path, check_same_thread=False)
        self._connection.executescript(_SCHEMA)

    def close(self) -> None:
        self._connection.close()

    def count_request(self, key: str, answer: str) -> None:
        """Note that a request came, and what became of it."""
        with self._lock, self._connection as transaction:
            transaction.execute("INSERT INTO requests VALUES (?, ?)", (key, answer))

    def charge(self, wanted: Charge, answer: str) -> tuple[Charge, bool]:
        """Take the money unless this key has taken it; return the charge, and whether it is new."""
        columns = (wanted.key, wanted.order_id, str(wanted.amount), wanted.currency)
        with self._lock, self._connection as transaction:
            transaction.execute("INSERT INTO requests VALUES (?, ?)", (wanted.key, answer))
            new = transaction.execute(
                "INSERT INTO charges SELECT ?, ?, ?, ?, 'R-' || (SELECT 10001 + count(*) FROM charges)"
                " WHERE true ON CONFLICT DO NOTHING",
                columns,
            ).rowcount
            return _charges(transaction, "WHERE key = ?", wanted.key)[0], bool(new)

    def seen(self, key: str) -> int:
        """Count the requests that came with a key."""
        with self._lock:
            found = self._connection.execute("SELECT count(*) FROM requests WHERE key = ?", (key,))
            return int(found.fetchone()[0])

    def charges(self) -> list[Charge]:
        with self._lock:
            return _charges(self._connection)

    def answers(self) -> dict[str, int]:
        """Count the requests by what became of them."""
        with self._lock:
            return dict(self._connection.execute("SELECT answer, count(*) FROM requests GROUP BY 1 ORDER BY 1"))


def _charges(connection: sqlite3.Connection, where: str = "ORDER BY receipt", *values: str) -> list[Charge]:
    rows = connection.execute(f"SELECT key, order_id, amount, currency, receipt FROM charges {where}", values)
    return [Charge(key, order, Decimal(amount), currency, receipt) for key, order, amount, currency, receipt in rows]


class PaymentServer(ThreadingHTTPServer):
    """The service on a loopback port (0: any that is free)."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, ledger: Ledger, *, seed: int, port: int = 0, late_seconds: float = LATE_SECONDS) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.ledger = ledger
        self.seed = seed
        self.late_seconds = late_seconds
        self.closing = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of clients that went away: workers get killed here."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    server: PaymentServer

    def do_POST(self) -> None:
        try:
            wanted = self.read_charge()
        except (ValueError, KeyError, TypeError, InvalidOperation) as error:
            return self.answer(400, {"error": f"not a charge: {error!r}"})
        ledger, seed = self.server.ledger, self.server.seed
        fault = draw_fault(seed, wanted.key, ledger.seen(wanted.key) + 1)
        if fault is Fault.REFUSED:
            ledger.count_request(wanted.key, fault)
            return self.answer(503, {"error": "busy, come again"})
        if is_declined(seed, wanted.key):
            ledger.count_request(wanted.key, "declined")
            return self.answer(402, {"error": "the bank declined the charge"})
        charge, new = ledger.charge(wanted, "answered" if fault is Fault.NONE else fault)
        if fault is Fault.DROPPED:
            return None
        if fault is Fault.LATE:
            self.server.closing.wait(self.server.late_seconds)
        if (charge.amount, charge.currency) != (wanted.amount, wanted.currency):
            return self.answer(409, {"error": f"the key was used for {charge.amount} {charge.currency}"})
        return self.answer(201 if new else 200, {"receipt": charge.receipt})

    def read_charge(self) -> Charge:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        key = self.headers["Idempotency-Key"]
        if self.path != "/charges" or not key:
            raise ValueError("POST /charges with an Idempotency-Key")
        return Charge(key, str(body["order_id"]), Decimal(body["amount"]), str(body["currency"]))

    def answer(self, status: int, body: dict[str, str]) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        """Keep quiet; the ledger tells what happened."""


def main() -> None:
    """Serve until standard input closes, so that the service never outlives the process that wanted it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ledger", type=Path, required=True)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--seed", type=int, default=7)
    options = parser.parse_args()
    with (
        closing(Ledger(options.ledger)) as ledger,
        PaymentServer(ledger, seed=options.seed, port=options.port) as server,
    ):
        threading.Thread(target=server.serve_forever, daemon=True).start()
        print(server.url, flush=True)
        sys.stdin.read()
        server.closing.set()
        server.shutdown()


if __name__ == "__main__":
    main()

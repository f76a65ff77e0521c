"""The client of the payment service: one awaitable call, every way it can end as a type.

It neither retries nor limits its time: the node that calls it has a retry policy and a timeout for that.
A charge whose answer was lost is asked for again under the same key, so the key must be the same for the
same payment, whichever process asks.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from decimal import Decimal
from typing import Any
from urllib.parse import urlsplit


@dataclass(frozen=True, slots=True)
class Receipt:
    """Proof that the money was taken."""

    number: str
    amount: Decimal
    currency: str


class PaymentError(Exception):
    """The service answered in a way that no retry can mend."""


class PaymentDeclined(PaymentError):
    """The bank said no, and will again."""


class PaymentUnavailable(PaymentError):
    """Busy, unreachable, or gone before it answered; ask again with the same key."""


@dataclass(frozen=True, slots=True)
class PaymentClient:
    """Calls the service at `url`."""

    url: str

    async def charge(self, key: str, order_id: str, amount: Decimal, currency: str) -> Receipt:
        """Take money once per key.

        Raises:
            PaymentDeclined: Nothing was taken.
            PaymentUnavailable: It is not known whether anything was taken.
        """
        body = {"order_id": order_id, "amount": str(amount), "currency": currency}
        try:
            status, answer = await _post_json(f"{self.url}/charges", {"Idempotency-Key": key}, body)
        except (OSError, EOFError) as error:
            raise PaymentUnavailable(f"no answer for {order_id}: {error!r}") from error
        if status in {200, 201}:
            return Receipt(answer["receipt"], amount, currency)
        kind = {402: PaymentDeclined, 503: PaymentUnavailable}.get(status, PaymentError)
        raise kind(f"{order_id}: {answer['error']} ({status})")


async def _post_json(url: str, headers: dict[str, str], body: dict[str, str]) -> tuple[int, dict[str, Any]]:
    """Post over a connection of its own; closed at once when the caller is cancelled."""
    target, data = urlsplit(url), json.dumps(body).encode()
    lines = {"Host": target.netloc, "Content-Length": str(len(data)), "Connection": "close", **headers}
    head = f"POST {target.path} HTTP/1.1\r\n" + "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    reader, writer = await asyncio.open_connection(target.hostname, target.port)
    try:
        writer.write(head.encode() + b"\r\n" + data)
        await writer.drain()
        answer = await reader.read()
    finally:
        writer.close()
    status_line, _, rest = answer.partition(b"\r\n")
    if not rest:
        raise EOFError("connection closed without an answer")
    return int(status_line.split()[1]), json.loads(rest.partition(b"\r\n\r\n")[2])

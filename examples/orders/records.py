"""Orders as typed records, read from a CSV file as shops really get them.

Reading never stops at a bad record: `read_rows` cuts the file into rows, whatever is in them, and
`parse_order` turns one row into an `Order` or raises `BadRecord` with every problem it found, each
naming line, field and value. Both are pure but for the reading of the file.
"""

from __future__ import annotations

import csv
import io
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import TypeVar

from examples.orders import fields
from examples.orders.catalogue import LARGEST_TOTAL, PRODUCTS, SYMBOLS

COLUMNS = ("order_id", "date", "customer", "email", "sku", "quantity", "unit_price", "currency", "note")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Row:
    """One record of the file as it stands there."""

    line: int
    """Where it starts; a record may span lines. Counted from 1, header and empty lines included."""
    values: tuple[str, ...]
    first_seen: int | None = None
    """The line of an earlier record with the same order id."""


@dataclass(frozen=True, slots=True)
class Order:
    """A record that was understood."""

    line: int
    order_id: str
    date: date
    customer: str
    email: str
    sku: str
    quantity: int
    unit_price: Decimal
    currency: str
    note: str

    @property
    def total(self) -> Decimal:
        """What the customer pays, in `currency`."""
        return self.unit_price * self.quantity


class BadRecord(Exception):
    """A record that cannot become an order; `problems` has one line of text for each reason."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = tuple(problems)


def read_rows(path: Path) -> list[Row]:
    """Read all records of a file, in order.

    A byte that is not UTF-8 spoils its own field only: it is kept as a lone surrogate, which
    `parse_order` then reports.

    Raises:
        ValueError: The header is not the expected one, so that no record could be trusted.
    """
    return split_rows(path.read_text(encoding="utf-8-sig", errors="surrogateescape"), path.name)


def split_rows(text: str, name: str = "orders") -> list[Row]:
    """Cut CSV text into rows; `name` is used in errors."""
    reader = csv.reader(io.StringIO(text, newline=""))
    header = tuple(column.strip().lower() for column in next(reader, []))
    if header != COLUMNS:
        raise ValueError(f"{name}: the header is {','.join(header)!r}, expected {','.join(COLUMNS)!r}")
    rows: list[Row] = []
    first_lines: dict[str, int] = {}
    start = reader.line_num + 1
    for values in reader:
        if any(value.strip() for value in values):
            order_id = _clean(values[0])
            rows.append(Row(start, tuple(values), first_lines.get(order_id)))
            if order_id:
                first_lines.setdefault(order_id, start)
        start = reader.line_num + 1
    return rows


def parse_order(row: Row) -> Order:
    """Understand one row.

    Raises:
        BadRecord: With all problems of the row, in the order of its columns.
    """
    found, expected = len(row.values), len(COLUMNS)
    if found < expected:
        last = f"{COLUMNS[found - 1]} {row.values[-1]!r}"
        raise BadRecord([f"line {row.line}: record ends after {found} of {expected} fields, at {last}"])
    if found > expected:
        raise BadRecord([f"line {row.line}: record has {found} fields, expected {expected}: {row.values!r}"])
    return _RowParser(row).parse()


class _RowParser:
    """Reads the fields of one row and collects what is wrong with them."""

    def __init__(self, row: Row) -> None:
        self.row = row
        self.raw = dict(zip(COLUMNS, map(_clean, row.values), strict=True))
        self.problems: list[str] = []

    def parse(self) -> Order:
        order_id = self.take("order_id", self.read_order_id)
        day = self.take("date", fields.read_date)
        customer = self.take("customer", fields.read_text)
        email = self.take("email", fields.read_email)
        sku = self.take("sku", _read_sku)
        quantity = self.take("quantity", fields.read_quantity)
        price = self.take("unit_price", fields.read_price)
        currency = self.take("currency", lambda text: self.read_currency(text, price and price[1]))
        note = self.take("note", lambda text: text)
        if quantity and price and quantity * price[0] > LARGEST_TOTAL:
            self.complain("total", str(quantity * price[0]), f"is above {LARGEST_TOTAL}")
        if self.problems or not (order_id and day and customer and email and sku and quantity and price and currency):
            raise BadRecord(self.problems)
        line = self.row.line
        return Order(line, order_id, day, customer, email, sku, quantity, price[0], currency, note or "")

    def take(self, column: str, read: Callable[[str], T]) -> T | None:
        """Read one field; None, and a problem noted, if it cannot be read."""
        text = self.raw[column]
        try:
            text.encode()
            return read(text)
        except UnicodeEncodeError:
            self.complain(column, text, "is not UTF-8")
        except ValueError as error:
            self.complain(column, text, str(error))
        return None

    def complain(self, column: str, text: str, reason: str) -> None:
        self.problems.append(f"line {self.row.line}: {column} {text!r} {reason}")

    def read_order_id(self, text: str) -> str:
        if self.row.first_seen:
            raise ValueError(f"was already used on line {self.row.first_seen}")
        return fields.read_text(text)

    def read_currency(self, text: str, beside_price: str | None) -> str:
        """Take the column, or what stands beside the price; the two must not contradict."""
        currency = SYMBOLS.get(text, text.upper()) or beside_price
        if not currency:
            raise ValueError("is missing, and no symbol stands beside the price")
        if currency not in SYMBOLS.values():
            raise ValueError("is not a currency this shop takes")
        if beside_price and currency != beside_price:
            raise ValueError(f"contradicts the price, which is in {beside_price}")
        return currency


def _read_sku(text: str) -> str:
    if (sku := fields.read_text(text).upper()) not in PRODUCTS:
        raise ValueError("is not in the catalogue")
    return sku


def _clean(text: str) -> str:
    """Drop spaces around a value and use one spelling for each accented letter."""
    return unicodedata.normalize("NFC", text.strip())

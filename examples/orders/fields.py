"""Readers of single fields: dates, amounts and quantities as people and spreadsheets write them.

Each takes stripped text and returns a typed value or raises `ValueError` with the reason, worded to
follow the field's name and value. What can be read in two ways is refused, never guessed: a wrong guess
about money is worse than a question. Nothing here knows of records or files.
"""

from __future__ import annotations

import re
from datetime import date, datetime
from decimal import Decimal

from examples.orders.catalogue import SYMBOLS

_PLAIN_DATES = ("%Y-%m-%d", "%Y/%m/%d", "%Y%m%d", "%d.%m.%Y", "%d %b %Y", "%d %B %Y")
_SLASHED_DATES = ("%d/%m/%Y", "%m/%d/%Y")
_WHOLE = re.compile(r"([+-]?[0-9]+)(?:[.,]0+)?")  # spreadsheets turn 3 into 3.0
_AMOUNT = re.compile(
    r"(?P<whole>-?[0-9]{1,3}(?P<group>[.,'])[0-9]{3}(?:(?P=group)[0-9]{3})*|-?[0-9]+)"
    r"(?:(?!(?P=group))[.,](?P<decimals>[0-9]{1,2}))?"  # the decimal mark is never the thousands' mark
)
_ADDRESS = re.compile(r"[^@\s]+@[^@\s.]+(\.[^@\s.]+)+")
_MARKS = {**SYMBOLS, **{code: code for code in SYMBOLS.values()}}


def read_text(text: str) -> str:
    """Return the text; it must not be empty."""
    if not text:
        raise ValueError("is missing")
    return text


def read_email(text: str) -> str:
    """Return an address in lower case."""
    if not _ADDRESS.fullmatch(read_text(text)):
        raise ValueError("is not an e-mail address")
    return text.lower()


def read_date(text: str) -> date:
    """Return the date; day/month and month/day are told apart only where one of them is impossible."""
    read_text(text)
    for layout in _PLAIN_DATES:
        if found := _try_date(text, layout):
            return found
    readings = sorted({found for layout in _SLASHED_DATES if (found := _try_date(text, layout))})
    if len(readings) > 1:
        raise ValueError(f"is ambiguous: {readings[0]} or {readings[1]}")
    if not readings:
        raise ValueError("is not a date")
    return readings[0]


def _try_date(text: str, layout: str) -> date | None:
    try:
        return datetime.strptime(text, layout).date()  # noqa: DTZ007 - a day needs no time zone
    except ValueError:
        return None


def read_quantity(text: str) -> int:
    """Return a whole number of at least one."""
    match = _WHOLE.fullmatch(read_text(text))
    if not match:
        raise ValueError("is not a whole number")
    if (quantity := int(match[1])) < 1:
        raise ValueError("is below 1")
    return quantity


def read_price(text: str) -> tuple[Decimal, str | None]:
    """Return the amount, and the currency if a symbol or code stands beside it.

    Decimal commas and grouped thousands are understood: `1.299,00`, `1,299.00`, `1 299,00`, `1'299`.
    """
    digits, currency = _split_currency(read_text(text))
    match = _AMOUNT.fullmatch(re.sub(r"\s", "", digits))
    if not match:
        raise ValueError("is not an amount")
    whole, group, decimals = match["whole"], match["group"] or "", match["decimals"]
    if group in {".", ","} and whole.count(group) == 1 and not decimals:
        head, tail = whole.split(group)
        raise ValueError(f"is ambiguous: {head}{tail} or {head}.{tail}")
    amount = Decimal(f"{whole.replace(group, '') if group else whole}.{decimals or '0'}")
    if amount <= 0:
        raise ValueError("is not above zero")
    return amount, currency


def _split_currency(text: str) -> tuple[str, str | None]:
    for mark, currency in _MARKS.items():
        if text.startswith(mark) or text.endswith(mark):
            return text.removeprefix(mark).removesuffix(mark), currency
    return text, None

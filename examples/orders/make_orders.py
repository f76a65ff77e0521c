"""The generator of `orders.csv`; the file is kept beside it, so nothing runs this but a person who edits it.

The same seed gives the same bytes. About one record in seven is spoilt in one of the ways in `SPOILERS`.
"""

from __future__ import annotations

import csv
import io
import random
from collections.abc import Callable
from datetime import date, timedelta
from decimal import Decimal
from pathlib import Path

from examples.orders.catalogue import PRODUCTS
from examples.orders.records import COLUMNS

Record = dict[str, str]

PEOPLE = (
    "Anna Müller", "Łukasz Wójcik", "Sofía García", "Jürgen Groß", "Åsa Lindqvist", "Zoë Faber",
    "Nguyễn Văn An", "中村 健", "Αθηνά Παππά", "Иван Петров", "محمد علي", "Seán O'Brien",
    "Marie-Claire Dupont", "O'Neil, Patrick", 'Dwayne "Rocky" Hall', "Björk Jónsdóttir",
    "Priya Raman", "Tom Baker", "Ema Kovač",
)  # fmt: skip
HOSTS = ("example.com", "example.org", "mail.example.net", "shop.example", "büro.example", "tempmail.example")
NOTES = (
    "", "", "", "", "", "gift, please wrap", "Ring twice,\nleave with the neighbour", 'says "urgent"',
    "2nd floor;\nno lift", "Lieferung bitte nach 18 Uhr", "🎁 for Zoë",
)  # fmt: skip
DATE_LAYOUTS = ("%Y-%m-%d",) * 5 + ("%d.%m.%Y", "%Y/%m/%d", "%Y%m%d", "%d %b %Y")

SPOILERS: tuple[Callable[[Record], Record], ...] = (
    lambda record: record | {"quantity": "-3"},
    lambda record: record | {"quantity": "0"},
    lambda record: record | {"quantity": "2,5"},
    lambda record: record | {"quantity": "two"},
    lambda record: record | {"customer": "   "},
    lambda record: record | {"email": ""},
    lambda record: record | {"email": "anna(at)example.com"},
    lambda record: record | {"sku": "CUP-O7"},
    lambda record: record | {"sku": "", "quantity": ""},
    lambda record: record | {"date": "31.02.2025"},
    lambda record: record | {"date": "03/04/2025"},
    lambda record: record | {"unit_price": "n/a"},
    lambda record: record | {"unit_price": "1.299", "currency": "EUR"},
    lambda record: record | {"unit_price": "99999999.99", "currency": "EUR"},
    lambda record: record | {"unit_price": "$ 49.00", "currency": "EUR"},
    lambda record: record | {"unit_price": "49.00", "currency": ""},
    lambda record: record | {"currency": "XBT"},
    lambda record: record | {"order_id": ""},
    lambda record: record | {"customer": "J\udcfcrgen Gro\udcdf"},  # two bytes of Latin-1
)


def make_orders(count: int = 320, seed: int = 7) -> bytes:
    """Return the file: a BOM, a header, `count` records, some empty lines, and a last line cut short."""
    rng = random.Random(seed)
    spoilers = list(SPOILERS)
    rng.shuffle(spoilers)
    out = io.StringIO(newline="")
    writer = csv.DictWriter(out, COLUMNS, lineterminator="\r\n")
    writer.writeheader()
    past: list[Record] = []
    for number in range(count - 1):
        record = make_record(rng, 1001 + number)
        if number % 17 == 11:
            record = rng.choice(past)  # a duplicate
        elif number % 12 == 5:
            record = spoilers[number // 12 % len(spoilers)](record)
        past.append(record)
        writer.writerow(record)
        if number % 53 == 20:
            out.write("\r\n" if number % 2 else ",,,,,,,,\r\n")
    out.write(f'ORD-{1000 + count},2025-03-14,"Gr')
    return out.getvalue().encode("utf-8-sig", errors="surrogateescape")


def make_record(rng: random.Random, number: int) -> Record:
    """Return one good record, written as untidily as good records are."""
    product = rng.choices(list(PRODUCTS.values()), weights=(9, 8, 7, 5, 4, 5, 5, 8, 3, 2))[0]
    customer = rng.choice(PEOPLE)
    host = rng.choices(HOSTS, weights=(9, 6, 4, 3, 1, 1))[0]
    currency = rng.choices(("EUR", "USD", "GBP"), weights=(7, 2, 1))[0]
    price, column = write_price(rng, product.price, currency)
    quantity = str(rng.choices((1, 2, 3, 5, 12), weights=(9, 5, 3, 2, 1))[0])
    return {
        "order_id": f"ORD-{number}" + rng.choice(("", "", "", " ")),
        "date": write_date(rng, date(2025, 1, 6) + timedelta(days=(number - 1001) // 4)),
        "customer": rng.choice((customer, customer, customer, f" {customer}  ")),
        "email": f"customer{number}@{host}",
        "sku": rng.choice((product.sku, product.sku, product.sku.lower(), f"{product.sku} ")),
        "quantity": rng.choice((quantity, quantity, quantity, f"{quantity}.0", f" {quantity}")),
        "unit_price": price,
        "currency": column,
        "note": rng.choice(NOTES),
    }


def write_date(rng: random.Random, day: date) -> str:
    """Write a date in one of the ways seen in the wild; slashes only where they can be read one way."""
    layouts = DATE_LAYOUTS + (("%d/%m/%Y", "%m/%d/%Y") if day.day > 12 else ())
    return day.strftime(rng.choice(layouts))


def write_price(rng: random.Random, price: Decimal, currency: str) -> tuple[str, str]:
    """Return an amount and the currency column beside it."""
    symbol = {"EUR": "€", "USD": "$", "GBP": "£"}[currency]
    continental = f"{price:,.2f}".translate(str.maketrans(",.", ".,"))
    return rng.choice(
        (
            (f"{price:.2f}", currency),
            (f"{price:.2f}", currency),
            (f"{price:,.2f}", currency.lower()),
            (continental, currency),
            (f"{continental} {symbol}", ""),
            (f"{symbol}{price:,.2f}", ""),
            (f"{price:.2f}", symbol),
            (f"{symbol}\N{NO-BREAK SPACE}{price:.2f}", currency),
        )
    )


if __name__ == "__main__":
    Path(__file__).with_name("orders.csv").write_bytes(make_orders())

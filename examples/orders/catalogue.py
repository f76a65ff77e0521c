"""What the shop sells, what the warehouse has, and the limits of money: plain tables, never changed here."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal


@dataclass(frozen=True, slots=True)
class Product:
    """One article; `stock` is the most that a single order can get."""

    sku: str
    name: str
    price: Decimal
    stock: int


PRODUCTS = {
    product.sku: product
    for product in (
        Product("BOOK-01", "Notebook, dotted", Decimal("12.90"), 400),
        Product("CUP-07", "Enamel cup", Decimal("9.50"), 250),
        Product("LAMP-22", "Desk lamp", Decimal("49.00"), 40),
        Product("KEYB-88", "Mechanical keyboard", Decimal("129.00"), 25),
        Product("DESK-10", "Standing desk", Decimal("589.00"), 8),
        Product("CHAIR-4", "Office chair", Decimal("349.00"), 12),
        Product("SCRN-27", "Monitor, 27 inch", Decimal("279.00"), 15),
        Product("CABL-3M", "Cable, 3 m", Decimal("7.25"), 1000),
        Product("SOFA-03", "Lounge sofa", Decimal("1890.00"), 3),
        Product("PLNT-05", "Monstera", Decimal("34.50"), 0),
    )
}

# Symbols as they stand beside amounts in order files.
SYMBOLS = {"€": "EUR", "$": "USD", "£": "GBP"}

# Above this total, in the order's own currency, a human is asked before money is taken.
APPROVAL_ABOVE = {"EUR": Decimal(1000), "USD": Decimal(1100), "GBP": Decimal(850)}

# No honest order of this shop is larger, whatever the currency.
LARGEST_TOTAL = Decimal(250_000)

"""The human of the demo: a rule that answers the questions of `approve`, always in the same way."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

SMALL_ENOUGH = Decimal(4000)


def decide(question: Mapping[str, Any]) -> dict[str, Any]:
    """Return the answer that `approve` waits for."""
    approved = question["total"] <= SMALL_ENOUGH
    reason = f"up to {SMALL_ENOUGH} is fine" if approved else f"{question['total']} is more than {SMALL_ENOUGH}"
    return {"approved": approved, "by": "Dana", "reason": reason}

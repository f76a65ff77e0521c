"""Results and how they are shown. Pure: numbers in, text or JSON-ready values out."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Result:
    """The numbers of one kernel, per package; smaller is better in every unit."""

    kernel: str
    title: str
    unit: str
    numbers: Mapping[str, list[float]] = field(default_factory=dict)

    def median(self, package: str) -> float | None:
        """The median of all repetitions of all processes; None if the package was not run."""
        numbers = self.numbers.get(package)
        return statistics.median(numbers) if numbers else None

    @property
    def ratio(self) -> float | None:
        """How many times less Everstep takes than LangGraph: the ratio of the medians."""
        ours, peers = self.median("everstep"), self.median("langgraph")
        return peers / ours if ours and peers else None

    def as_json(self) -> dict[str, object]:
        """The result with its medians, for a file."""
        return {
            "kernel": self.kernel,
            "title": self.title,
            "unit": self.unit,
            "median": {package: self.median(package) for package in self.numbers},
            "ratio": self.ratio,
            "numbers": dict(self.numbers),
        }


def show_number(value: float | None, unit: str) -> str:
    """A number with three digits that count, and its unit."""
    if value is None:
        return "-"
    digits = 0 if value >= 100 else 1 if value >= 10 else 2
    return f"{value:,.{digits}f} {unit}"


def show_table(results: Sequence[Result], *, with_peer: bool) -> str:
    """A Markdown table that also reads well in a terminal."""
    head = ["work", "LangGraph", "Everstep", "ratio"] if with_peer else ["work", "Everstep"]
    rows = [head]
    for result in results:
        row = [result.title, show_number(result.median("everstep"), result.unit)]
        if with_peer:
            row.insert(1, show_number(result.median("langgraph"), result.unit))
            row.append("-" if result.ratio is None else f"{result.ratio:.1f}x")
        rows.append(row)
    widths = [max(len(row[i]) for row in rows) for i in range(len(head))]
    rule = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]
    lines = [_line(head, widths), _line(rule, widths), *(_line(row, widths) for row in rows[1:])]
    return "\n".join(lines)


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    first, *others = cells
    aligned = [first.ljust(widths[0]), *(c.rjust(w) for c, w in zip(others, widths[1:], strict=True))]
    return f"| {' | '.join(aligned)} |"

"""A graph in layers, nodes in rows and lines between the rows; and its drawing in text.

Pure; knows names and edges only. Lines run downwards: what leads back up is listed beneath the text. A dotted
line may not be taken. Where lines cross, the upright one is drawn.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

# From, to, and whether it may not be taken.
Edge = tuple[str, str, bool]

_GAP = 3


class Cell:
    """A place in a row: a node's box, or (without a label) where a long edge passes through.

    Attributes:
        x: Column of its left edge, in characters; `width` likewise.
    """

    __slots__ = ("label", "width", "x")

    def __init__(self, label: str | None) -> None:
        self.label = label
        self.width = 1 if label is None else len(label)
        self.x = 0

    @property
    def middle(self) -> int:
        return self.x + self.width // 2


class Line:
    """A part of an edge between two neighbouring rows."""

    __slots__ = ("dotted", "source", "target")

    def __init__(self, source: Cell, target: Cell, dotted: bool) -> None:
        self.source, self.target, self.dotted = source, target, dotted


@dataclass(frozen=True, slots=True)
class Layout:
    """Where everything is.

    Attributes:
        cells: The box of each node.
        lines: Between each row and the next.
        back: Edges that lead up, or from a node to itself.
        dotted: Edge -> may it be left out?
    """

    cells: Mapping[str, Cell]
    rows: Sequence[Sequence[Cell]]
    lines: Sequence[Sequence[Line]]
    back: Sequence[tuple[str, str]]
    dotted: Mapping[tuple[str, str], bool]


def lay_out(labels: Mapping[str, str], edges: Iterable[Edge]) -> Layout:
    """Place nodes (id -> label) and edges; several edges between two nodes become one."""
    merged: dict[tuple[str, str], bool] = {}
    for source, target, dotted in edges:
        merged[source, target] = merged.get((source, target), True) and dotted
    down, back = _split(list(labels), list(merged))
    layers = _layers(list(labels), down)
    cells = {name: _box(labels[name]) for name in layers}
    rows, lines = _fill(cells, layers, down, merged)
    _place(rows, lines)
    return Layout(cells, rows, lines, back, merged)


def draw_text(labels: Mapping[str, str], edges: Iterable[Edge]) -> str:
    """Draw nodes (id -> label) and edges."""
    layout = lay_out(labels, edges)
    text: list[str] = []
    for number, row in enumerate(layout.rows):
        text += _boxes(row)
        if number < len(layout.lines):
            text += _between(layout.lines[number])
    for source, target in layout.back:
        arrow = "..>" if layout.dotted[source, target] else "-->"
        text.append(f"{labels[source]} {arrow} {labels[target]} (back)")
    return "\n".join(line.rstrip() for line in text)


def _split(
    names: Sequence[str], edges: Sequence[tuple[str, str]]
) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """Edges without the ones that close a cycle, seen depth first from the first node; and those."""
    targets: dict[str, list[str]] = {name: [] for name in names}
    for source, target in edges:
        targets[source].append(target)
    back: set[tuple[str, str]] = set()
    done: set[str] = set()
    for root in names:
        if root in done:
            continue
        path = [(root, iter(targets[root]))]
        on_path = {root}
        while path:
            name, rest = path[-1]
            for target in rest:
                if target in on_path:
                    back.add((name, target))
                elif target not in done:
                    path.append((target, iter(targets[target])))
                    on_path.add(target)
                    break
            else:
                path.pop()
                on_path.discard(name)
                done.add(name)
    return [edge for edge in edges if edge not in back], [edge for edge in edges if edge in back]


def _layers(names: Sequence[str], edges: Sequence[tuple[str, str]]) -> dict[str, int]:
    """The row of each node: one below the lowest of those that lead to it."""
    layers = dict.fromkeys(names, 0)
    for _ in names:
        changed = False
        for source, target in edges:
            if layers[target] <= layers[source]:
                layers[target] = layers[source] + 1
                changed = True
        if not changed:
            break
    return layers


def _fill(
    cells: Mapping[str, Cell],
    layers: Mapping[str, int],
    edges: Sequence[tuple[str, str]],
    dotted: Mapping[tuple[str, str], bool],
) -> tuple[list[list[Cell]], list[list[Line]]]:
    """The rows with their cells, and the lines from each row to the next."""
    depth = max(layers.values(), default=-1) + 1
    rows: list[list[Cell]] = [[] for _ in range(depth)]
    for name, layer in layers.items():
        rows[layer].append(cells[name])
    lines: list[list[Line]] = [[] for _ in range(max(depth - 1, 0))]
    for source, target in edges:
        above = cells[source]
        for layer in range(layers[source] + 1, layers[target]):
            through = Cell(None)
            rows[layer].append(through)
            lines[layer - 1].append(Line(above, through, dotted[source, target]))
            above = through
        lines[layers[target] - 1].append(Line(above, cells[target], dotted[source, target]))
    return rows, lines


def _box(label: str) -> Cell:
    # Odd widths have a middle, so that boxes of one column stand straight.
    return Cell(f"| {label} |" if len(label) % 2 else f"| {label}  |")


def _place(rows: Sequence[list[Cell]], lines: Sequence[Sequence[Line]]) -> None:
    """Order each row by what leads to it, and centre the rows on one another."""
    width = max((sum(cell.width + _GAP for cell in row) for row in rows), default=0)
    for number, row in enumerate(rows):
        if number:
            row.sort(key=lambda cell: _pull(cell, lines[number - 1]))
        x = (width - sum(cell.width + _GAP for cell in row) + _GAP) // 2
        for cell in row:
            cell.x = x
            x += cell.width + _GAP


def _pull(cell: Cell, lines: Sequence[Line]) -> float:
    above = [line.source.middle for line in lines if line.target is cell]
    return sum(above) / len(above) if above else 0.0


def _boxes(row: Sequence[Cell]) -> list[str]:
    edge, middle = _Canvas(), _Canvas()
    for cell in row:
        if cell.label is None:
            edge.put(cell.x, "|")
            middle.put(cell.x, "|")
        else:
            edge.put(cell.x, f"+{'-' * (cell.width - 2)}+")
            middle.put(cell.x, cell.label)
    return [edge.text, middle.text, edge.text]


def _between(lines: Sequence[Line]) -> list[str]:
    """Rows of text that lead lines from one row to the next: one lane for each cell whose lines turn."""
    lanes = _lanes(lines)
    turned: set[int] = set()
    text = []
    for lane in lanes:
        own = [line for line in lines if line.source is lane]
        ends = [lane.middle, *(line.target.middle for line in own)]
        canvas = _Canvas()
        dash = "." if all(line.dotted for line in own) else "-"
        canvas.put(min(ends), dash * (max(ends) - min(ends) + 1))
        for line in lines:
            if line.source is not lane:
                where = line.target if id(line.source) in turned else line.source
                canvas.put(where.middle, ":" if line.dotted else "|")
        for x in ends:
            canvas.put(x, "+")
        turned.add(id(lane))
        text.append(canvas.text)
    arrows = _Canvas()
    for line in lines:
        arrows.put(line.target.middle, "v" if line.target.label is not None else ":" if line.dotted else "|")
    return [*text, arrows.text]


def _lanes(lines: Sequence[Line]) -> list[Cell]:
    """The cells whose lines turn, so ordered that no line comes down where another has still to turn."""
    turning = [line.source for line in lines if line.source.middle != line.target.middle]
    left = {cell.middle: cell for cell in sorted(turning, key=lambda cell: cell.middle)}
    lanes = []
    while left:
        free = (cell for cell in left.values() if not _ends_on_another(cell, lines, left))
        # Two lines that change places have no such order; one of them goes first all the same.
        lane = next(free, next(iter(left.values())))
        lanes.append(left.pop(lane.middle))
    return lanes


def _ends_on_another(cell: Cell, lines: Sequence[Line], others: Mapping[int, Cell]) -> bool:
    return any(others.get(line.target.middle, cell) is not cell for line in lines if line.source is cell)


class _Canvas:
    """One row of text."""

    def __init__(self) -> None:
        self._characters: list[str] = []

    def put(self, x: int, text: str) -> None:
        """Write text at a column, over what is there."""
        self._characters += " " * (x + len(text) - len(self._characters))
        self._characters[x : x + len(text)] = text

    @property
    def text(self) -> str:
        return "".join(self._characters)

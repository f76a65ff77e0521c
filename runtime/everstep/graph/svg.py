"""A graph as an SVG image: the layers of `everstep.graph.layout`, drawn with boxes and curves.

Pure; knows boxes and edges only, and needs no library. Dashed lines may not be taken. Edges that lead back up
run around the right side.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Literal

from everstep.graph.layout import Cell, Layout, lay_out

# Pixels: of a column of the layout, of a box, from row to row, around everything.
_COLUMN, _HEIGHT, _ROW, _MARGIN = 9, 36, 84, 16
# How far apart edges run that lead back up.
_LANE = 14

_HEAD = """\
<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}">
<style>
rect {{ fill: #f2f0ff; stroke: #7a6fd0; }}
rect.start {{ fill: none; }}
rect.end {{ fill: #bfb6fc; }}
path {{ fill: none; stroke: #555; }}
path.dotted {{ stroke-dasharray: 4 4; }}
text {{ font: 13px sans-serif; text-anchor: middle; fill: #222; }}
text.within, text.label {{ font-size: 10px; fill: #666; }}
text.label {{ text-anchor: start; }}
</style>
<defs><marker id="arrow" markerWidth="9" markerHeight="8" refX="8" refY="4" orient="auto">\
<path d="M0,0 L9,4 L0,8 z" style="fill: #555; stroke: none"/></marker></defs>
"""


@dataclass(frozen=True, slots=True)
class Box:
    """A node to draw.

    Attributes:
        within: Where it is inside of, in small type above its name.
        details: Shown when the pointer rests on it.
    """

    name: str
    kind: Literal["node", "start", "end"] = "node"
    within: str = ""
    details: str = ""


@dataclass(frozen=True, slots=True)
class Arrow:
    """An edge to draw, from box to box."""

    source: str
    target: str
    label: str = ""
    dotted: bool = False


def draw_svg(boxes: Mapping[str, Box], arrows: Sequence[Arrow]) -> str:
    """Draw boxes (by id) and arrows."""
    labels = {key: max(box.name, box.within, key=len) for key, box in boxes.items()}
    layout = lay_out(labels, [(arrow.source, arrow.target, arrow.dotted) for arrow in arrows])
    tops = {id(cell): _MARGIN + number * _ROW for number, row in enumerate(layout.rows) for cell in row}
    right = max((cell.x + cell.width for cell in layout.cells.values()), default=0) * _COLUMN + _MARGIN
    width = right + _MARGIN + _LANE * (len(layout.back) + 1)
    height = 2 * _MARGIN + max(len(layout.rows) - 1, 0) * _ROW + _HEIGHT
    body = [
        *_down(layout, tops),
        *_back(layout, tops, right),
        *_labels(layout, tops, arrows),
        *(part for key, box in boxes.items() for part in _box(box, layout.cells[key], tops)),
    ]
    return _HEAD.format(width=width, height=height) + "\n".join(body) + "\n</svg>\n"


def _middle(cell: Cell) -> float:
    return _MARGIN + (cell.x + cell.width / 2) * _COLUMN


def _down(layout: Layout, tops: Mapping[int, int]) -> Iterator[str]:
    for lines in layout.lines:
        for line in lines:
            x1, y1 = _middle(line.source), tops[id(line.source)] + _HEIGHT
            x2, y2 = _middle(line.target), tops[id(line.target)]
            curve = f"M{x1:g},{y1} C{x1:g},{y1 + 20} {x2:g},{y2 - 20} {x2:g},{y2}"
            if line.target.label is None:  # an edge on its way through this row
                curve += f" V{y2 + _HEIGHT}"
            yield _path(curve, dotted=line.dotted, has_arrow=line.target.label is not None)


def _back(layout: Layout, tops: Mapping[int, int], right: float) -> Iterator[str]:
    for number, (source, target) in enumerate(layout.back, 1):
        start, end = layout.cells[source], layout.cells[target]
        y1, y2 = tops[id(start)] + _HEIGHT * 2 // 3, tops[id(end)] + _HEIGHT // 3
        x1, x2 = (_MARGIN + (cell.x + cell.width) * _COLUMN for cell in (start, end))
        curve = f"M{x1:g},{y1} H{right + number * _LANE:g} V{y2} H{x2:g}"
        yield _path(curve, dotted=layout.dotted[source, target], has_arrow=True)


def _path(curve: str, *, dotted: bool, has_arrow: bool) -> str:
    style = ' class="dotted"' if dotted else ""
    arrow = ' marker-end="url(#arrow)"' if has_arrow else ""
    return f'<path d="{curve}"{style}{arrow}/>'


def _labels(layout: Layout, tops: Mapping[int, int], arrows: Iterable[Arrow]) -> Iterator[str]:
    """What routes return stands where they arrive: beside the arrow's head."""
    named: dict[tuple[str, str], list[str]] = {}
    for arrow in arrows:
        if arrow.label:
            named.setdefault((arrow.source, arrow.target), []).append(arrow.label)
    at: dict[tuple[str, bool], int] = {}
    for (source, target), texts in named.items():
        cell, is_back = layout.cells[target], (source, target) in layout.back
        line = at[target, is_back] = at.get((target, is_back), -1) + 1
        x = _MARGIN + (cell.x + cell.width) * _COLUMN if is_back else _middle(cell)
        y = tops[id(cell)] - 6 - 11 * line + 14 * is_back
        yield f'<text class="label" x="{x + 8:g}" y="{y}">{escape(", ".join(texts))}</text>'


def _box(box: Box, cell: Cell, tops: Mapping[int, int]) -> Iterator[str]:
    x, y, width = _MARGIN + cell.x * _COLUMN, tops[id(cell)], cell.width * _COLUMN
    radius = 6 if box.kind == "node" else _HEIGHT // 2
    kind = "" if box.kind == "node" else f' class="{box.kind}"'
    title = f"<title>{escape(box.details)}</title>" if box.details else ""
    yield f'<rect x="{x}" y="{y}" width="{width}" height="{_HEIGHT}" rx="{radius}"{kind}>{title}</rect>'
    if box.within:
        yield f'<text class="within" x="{_middle(cell):g}" y="{y + 13}">{escape(box.within)}</text>'
    yield f'<text x="{_middle(cell):g}" y="{y + (28 if box.within else 23)}">{escape(box.name)}</text>'

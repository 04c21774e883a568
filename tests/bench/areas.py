"""Charts of docs/scale.md as SVG: stacked areas, and cumulative shares."""

from __future__ import annotations

from html import escape
from math import floor, log10
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

COLOURS: Final = ("#8d99ae", "#3a86c8", "#2a9d6f", "#e07a3f", "#9b5de5")
DARK: Final = (
    "<style>@media (prefers-color-scheme: dark) { svg { fill: #e6edf3 }"
    ' [fill="#fff"] { fill: #0d1117 } [stroke="#ddd"] { stroke: #30363d } }</style>'
)
WIDTH, HEIGHT = 880, 330
LEFT, RIGHT, TOP, BOTTOM = 70, 250, 40, 50


def page(panels: Sequence[str]) -> str:
    """The panels, one below the other."""
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT * len(panels)}"'
        ' font-family="sans-serif" font-size="12" fill="#222">',
        DARK,
        '<rect width="100%" height="100%" fill="#fff"/>',
    ]
    for number, panel in enumerate(panels):
        parts.append(f'<g transform="translate(0 {number * HEIGHT})">{panel}</g>')
    return "\n".join([*parts, "</svg>\n"])


def layers(
    title: str, below: str, places: Sequence[float], heights: Mapping[str, Sequence[float]]
) -> str:
    """Areas on top of each other."""
    sums = [0.0] * len(places)
    bands: list[tuple[str, list[float], list[float]]] = []
    for name, values in heights.items():
        floor, sums = sums, [a + b for a, b in zip(sums, values, strict=True)]
        bands.append((name, floor, sums))
    frame = _Frame(max(places), max(sums))
    parts = [frame.axes(title, below, "{:,.0f}")]
    for number, (name, floor, roof) in enumerate(bands):
        forth = [frame.point(x, y) for x, y in zip(places, roof, strict=True)]
        back = [frame.point(x, y) for x, y in zip(places, floor, strict=True)]
        colour = COLOURS[number]
        points = " ".join([*forth, *reversed(back)])
        parts.append(f'<polygon points="{points}" fill="{colour}" fill-opacity="0.85"/>')
        parts.append(_legend(len(bands) - 1 - number, name, colour))
    return "".join(parts)


def curves(title: str, below: str, lines: Mapping[str, Sequence[tuple[float, float]]]) -> str:
    """Shares from 0 to 1; each line continues to the right edge at its last share."""
    frame = _Frame(max(x for line in lines.values() for x, _ in line), 1.0)
    parts = [frame.axes(title, below, "{:.0%}")]
    for number, (name, line) in enumerate(lines.items()):
        colour = COLOURS[1 + number]
        points = " ".join(frame.point(x, y) for x, y in (*line, (frame.right, line[-1][1])))
        parts.append(
            f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>'
        )
        parts.append(_legend(number, name, colour))
    return "".join(parts)


class _Frame:
    """The position of a value in the picture."""

    def __init__(self, right: float, top: float) -> None:
        self.right = right or 1.0
        self.top = top or 1.0

    def point(self, x: float, y: float) -> str:
        across = LEFT + x / self.right * (WIDTH - LEFT - RIGHT)
        return f"{across:.1f},{HEIGHT - BOTTOM - y / self.top * (HEIGHT - TOP - BOTTOM):.1f}"

    def axes(self, title: str, below: str, form: str) -> str:
        ground, edge = HEIGHT - BOTTOM, WIDTH - RIGHT
        parts = [
            _text(LEFT, 24, title, "start", 15),
            _text((LEFT + edge) / 2, HEIGHT - 12, below, "middle"),
        ]
        for level in _marks(self.top):
            y = float(self.point(0, level).split(",")[1])
            parts.append(f'<path d="M{LEFT} {y}H{edge}" stroke="#ddd"/>')
            parts.append(_text(LEFT - 8, y + 4, form.format(level), "end"))
        for place in _marks(self.right):
            x = float(self.point(place, 0).split(",")[0])
            parts.append(_text(x, ground + 18, f"{place:,.0f}", "middle"))
        return "".join(parts)


def _marks(end: float) -> list[float]:
    """Round numbers from 0, at most seven."""
    size = 10.0 ** floor(log10(end))
    step = next(step for part in (0.2, 0.5, 1, 2) if (step := part * size) * 6 >= end)
    return [step * number for number in range(int(end / step + 1e-9) + 1)]


def _legend(place: int, name: str, colour: str) -> str:
    x, y = WIDTH - RIGHT + 16, TOP + 14 + 22 * place
    mark = f'<rect x="{x}" y="{y - 10}" width="12" height="12" fill="{colour}"/>'
    return mark + _text(x + 18, y, name, "start")


def _text(x: float, y: float, text: str, anchor: str, size: int = 12) -> str:
    where = f'x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}" font-size="{size}"'
    return f"<text {where}>{escape(text)}</text>"

"""Small charts side by side, as SVG. Both scales are logarithmic, so a power law is a line."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

WIDTH: Final = 400
HEIGHT: Final = 250
LEFT: Final = 56
RIGHT: Final = 22
TOP: Final = 44
BOTTOM: Final = 40
INK: Final = "#1f2933"
SOFT: Final = "#d5dae0"
LINE: Final = "#0b6bcb"
QUIET: Final = "#52606d"
GROUND: Final = "#ffffff"
DARK: Final = (
    "<style>@media (prefers-color-scheme: dark) { svg { fill: #e6edf3 }"
    f' [fill="{GROUND}"] {{ fill: #0d1117 }} [fill="{QUIET}"] {{ fill: #9198a1 }}'
    f' [fill="{LINE}"] {{ fill: #58a6ff }} [stroke="{LINE}"] {{ stroke: #58a6ff }}'
    f' [stroke="{SOFT}"] {{ stroke: #30363d }} }}</style>'
)


def panels(unit: str, data: Mapping[str, Sequence[tuple[float, float]]]) -> str:
    """One panel per series, two in a row, with the same scale of costs."""
    costs = [cost for points in data.values() for _, cost in points]
    low, high = _decades(min(costs), max(costs))
    rows = math.ceil(len(data) / 2)
    width, height = 2 * WIDTH, rows * HEIGHT
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}" font-family="system-ui, sans-serif" font-size="12" '
        f'fill="{INK}" role="img" aria-label="{unit}">',
        DARK,
        f'<rect width="{width}" height="{height}" fill="{GROUND}"/>',
    ]
    for number, (title, points) in enumerate(data.items()):
        x, y = number % 2 * WIDTH, number // 2 * HEIGHT
        parts.append(f'<g transform="translate({x} {y})">')
        parts += _panel(title, unit, points, low, high)
        parts.append("</g>")
    return "\n".join([*parts, "</svg>"]) + "\n"


def _decades(low: float, high: float) -> tuple[int, int]:
    return math.floor(math.log10(low)), math.ceil(math.log10(high))


def _panel(
    title: str, unit: str, points: Sequence[tuple[float, float]], low: int, high: int
) -> list[str]:
    first, last = math.log2(points[0][0]), math.log2(points[-1][0])

    def across(value: float) -> float:
        share = (math.log2(value) - first) / (last - first)
        return LEFT + share * (WIDTH - LEFT - RIGHT)

    def up(cost: float) -> float:
        share = (math.log10(cost) - low) / (high - low)
        return HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)

    parts = [
        f'<text x="{LEFT}" y="18" font-weight="600">{title.split(" ", 1)[0]}'
        f'<tspan font-weight="400"> {title.split(" ", 1)[1]}</tspan></text>',
        f'<text x="{LEFT}" y="34" font-size="11" fill="{QUIET}">{unit}</text>',
    ]
    for decade in range(low, high + 1):
        y = up(10**decade)
        parts.append(
            f'<line x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}" stroke="{SOFT}"/>'
            f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{10**decade:,.0f}</text>'
        )
    for value, _ in points[:: math.ceil(len(points) / 5)]:
        parts.append(
            f'<text x="{across(value):.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">'
            f"{value:,.0f}</text>"
        )
    line = " ".join(f"{across(value):.1f},{up(cost):.1f}" for value, cost in points)
    parts.append(f'<polyline points="{line}" fill="none" stroke="{LINE}" stroke-width="2"/>')
    parts += [
        f'<circle cx="{across(value):.1f}" cy="{up(cost):.1f}" r="3" fill="{LINE}"/>'
        for value, cost in points
    ]
    for value, cost in (points[0], points[-1]):
        anchor = "start" if value == points[0][0] else "end"
        parts.append(
            f'<text x="{across(value):.1f}" y="{up(cost) - 8:.1f}" text-anchor="{anchor}" '
            f'font-weight="600" fill="{LINE}">{cost:,.0f}</text>'
        )
    return parts

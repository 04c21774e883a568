"""Draws the Grafana dashboard from a Prometheus, as a picture for the docs.

    python scripts/draw_dashboard.py http://127.0.0.1:9090 docs/assets/dashboard.svg --minutes 5

Grafana is no package of a registry, so this stands in for it: places, titles and units are those of
the dashboard, the values are Prometheus' answers to its expressions.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any, Final

import httpx

ROOT: Final = Path(__file__).resolve().parent.parent
DASHBOARD: Final = ROOT / "server-mock/deploy/grafana/hanzo-pubsub.json"
VARIABLES: Final = {"$job": ".*", "$instance": ".*", "$__rate_interval": "15s"}
CELL: Final = (60, 34)
POINTS: Final = 90
COLOURS: Final = ("#73bf69", "#f2cc0c", "#5794f2", "#ff780a", "#f2495c", "#b877d9", "#8ab8ff")
PREFIXES: Final = ((1e9, "G"), (1e6, "M"), (1e3, "k"))
SUFFIXES: Final = {
    "mps": " msg/s",
    "ops": " /s",
    "cps": " /s",
    "reqps": " req/s",
    "Bps": "B/s",
    "bytes": "B",
}


@dataclass(frozen=True, slots=True)
class Line:
    """One series: its name, and its values by time."""

    name: str
    points: list[tuple[float, float]]


def ask(http: httpx.Client, panel: dict[str, Any], start: float, end: float) -> list[Line]:
    """What Prometheus answers to a panel."""
    lines: list[Line] = []
    for target in panel["targets"]:
        expression: str = target["expr"]
        for name, value in VARIABLES.items():
            expression = expression.replace(name, value)
        step = (end - start) / POINTS
        query: dict[str, str | float] = {
            "query": expression,
            "start": start,
            "end": end,
            "step": step,
        }
        answer = http.get("/api/v1/query_range", params=query).raise_for_status().json()
        for series in answer["data"]["result"]:
            name = target["legendFormat"]
            for label, value in series["metric"].items():
                name = name.replace("{{" + label + "}}", value)
            points = [(float(t), float(v)) for t, v in series["values"] if v != "NaN"]
            if points:
                lines.append(Line(name, points))
    return lines


def shown(value: float, unit: str) -> str:
    """A value with its unit, short."""
    if unit == "s":
        return f"{value:.2g} s" if value >= 1 else f"{value * 1000:.3g} ms"
    for size, letter in PREFIXES:
        if value >= size:
            return f"{value / size:.3g} {letter}{SUFFIXES.get(unit, '')}"
    return f"{value:.3g}{SUFFIXES.get(unit, '')}"


def text(x: float, y: float, said: str, **more: str) -> str:
    """A piece of writing."""
    given = "".join(f' {name.replace("_", "-")}="{value}"' for name, value in more.items())
    return f'<text x="{x:.0f}" y="{y:.0f}"{given}>{escape(said)}</text>'


def graph(lines: list[Line], unit: str, box: tuple[float, ...], span: tuple[float, float]) -> str:
    """Lines over time, with a scale and a legend."""
    x, y, width, height = box
    top = max((value for line in lines for _, value in line.points), default=0) or 1
    left, bottom, right = x + 62, y + height - 26, x + width - 10
    roof = y + 30
    parts: list[str] = []
    for share in (0, 0.5, 1):
        level = bottom - share * (bottom - roof)
        parts.append(f'<path class="grid" d="M{left:.0f} {level:.0f}H{right:.0f}"/>')
        parts.append(text(left - 6, level + 4, shown(top * share, unit), text_anchor="end"))
    place = left
    for number, line in enumerate(lines):
        colour = COLOURS[number % len(COLOURS)]
        path = " ".join(
            f"{left + (t - span[0]) / (span[1] - span[0]) * (right - left):.1f},"
            f"{bottom - value / top * (bottom - roof):.1f}"
            for t, value in line.points
        )
        parts.append(f'<polyline points="{path}" stroke="{colour}"/>')
        wide = 22 + 5.8 * len(line.name)
        if place + wide < x + width:
            parts.append(
                f'<rect x="{place}" y="{bottom + 12}" width="10" height="3" fill="{colour}"/>'
            )
            parts.append(text(place + 14, bottom + 17, line.name))
        place += wide
    if not lines:
        parts.append(text(x + width / 2, y + height / 2, "No data", text_anchor="middle"))
    return "".join(parts)


def draw(board: dict[str, Any], http: httpx.Client, start: float, end: float) -> str:
    """The dashboard."""
    across, down = CELL
    rows = max(p["gridPos"]["y"] + p["gridPos"]["h"] for p in board["panels"])
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {24 * across} {rows * down + 8}"'
        ' font-family="sans-serif" font-size="11" fill="#ccccdc">',
        "<style>.panel{fill:#181b1f;stroke:#2f3238}.grid{stroke:#2f3238}.title{font-size:13px}"
        "polyline{fill:none;stroke-width:1.4}</style>",
        '<rect width="100%" height="100%" fill="#111217"/>',
    ]
    for panel in board["panels"]:
        place = panel["gridPos"]
        x, y = place["x"] * across + 4, place["y"] * down + 4
        width, height = place["w"] * across - 8, place["h"] * down - 8
        if panel["type"] == "row":
            parts.append(text(x + 4, y + 20, panel["title"], font_size="15", font_weight="bold"))
            continue
        parts.append(f'<rect class="panel" x="{x}" y="{y}" width="{width}" height="{height}"/>')
        parts.append(text(x + 10, y + 18, panel["title"], **{"class": "title"}))
        lines = ask(http, panel, start, end)
        unit = panel["fieldConfig"]["defaults"]["unit"]
        if panel["type"] == "stat":
            said = shown(lines[0].points[-1][1], unit) if lines else "none"
            middle = {"text_anchor": "middle", "font_size": "30", "fill": "#73bf69"}
            parts.append(text(x + width / 2, y + height * 0.68, said, **middle))
        else:
            parts.append(graph(lines, unit, (x, y, width, height), (start, end)))
    return "\n".join([*parts, "</svg>\n"])


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description="Draws the dashboard from a Prometheus.")
    parser.add_argument("prometheus", help="its URL")
    parser.add_argument("picture", type=Path, help="the SVG to write")
    parser.add_argument("--minutes", type=float, default=5, help="up to now [5]")
    given = parser.parse_args()
    board = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    end = time.time()
    with httpx.Client(base_url=given.prometheus, trust_env=False) as http:
        picture = draw(board, http, end - 60 * given.minutes, end)
    given.picture.write_text(picture, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Draws traces of `spec/traces/streams/` as timelines: the frames, and the text of the program.

Each picture has three lifelines, in the direction of the answer from left to right, and a row per
step of the trace. The picture of a reader ends with the text that the program shows.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from html import escape
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

PICTURES: Final = {
    "loss": "gap-until-the-next-snapshot",
    "late-join": "late-joiner-from-a-snapshot",
    "stop": "cancelled-by-a-reader",
    "takeover": "stalled-writer-is-replaced",
}
"""Which trace a picture shows."""

WIDTH: Final = 760
LINES: Final = (132, 372, 612)
"""Places of the lifelines."""
ROW: Final = 34
BOX: Final = 30
LONGEST: Final = 40
"""Characters of a label between two lifelines."""
FRAMES: Final = {
    "stream.start": "start",
    "message.complete": "complete",
    "stream.abort": "abort",
    "stream.cancel": "cancel",
    "stream.steer": "steer",
}
STYLE: Final = """\
svg { --ground: #ffffff; --ink: #1d2430; --quiet: #5a6472; --line: #c3cad5; --accent: #1d4ed8;
  --warn: #8a5200; --stale: #fff1d6; --box: #eef3ff; }
@media (prefers-color-scheme: dark) { svg { --ground: #14171d; --ink: #e9ecf1; --quiet: #99a3b3;
  --line: #465062; --accent: #8fb4ff; --warn: #f3c06a; --stale: #33290f; --box: #1d2740; } }
text { font: 12px system-ui, sans-serif; fill: var(--ink); text-anchor: middle; }
.ground { fill: var(--ground); } .life { stroke: var(--line); stroke-dasharray: 2 4; }
.head { font-weight: 650; font-size: 13px; } .time { fill: var(--quiet); text-anchor: end; }
.arrow { stroke: var(--accent); fill: var(--accent); } .arrow + text { fill: var(--ink); }
.ignored { stroke: var(--quiet); fill: var(--quiet); } .ignored + text { fill: var(--quiet); }
.warn { stroke: var(--warn); fill: var(--warn); } .warn + text { fill: var(--warn); }
.note { fill: var(--warn); } .view { fill: var(--box); stroke: var(--accent); }
.view.stale { fill: var(--stale); stroke: var(--warn); stroke-dasharray: 4 3; }
.shown { font: 12px ui-monospace, "SFMono-Regular", Menlo, monospace; white-space: pre; }"""


def pictures(traces: Path) -> Mapping[str, str]:
    """All timelines as SVG, by file name."""
    drawn: dict[str, str] = {}
    for name, source in PICTURES.items():
        trace = json.loads((traces / f"{source}.json").read_text(encoding="utf-8"))
        drawn[f"stream-{name}.svg"] = _reader(trace) if "reader" in trace else _writer(trace)
    return drawn


@dataclass(slots=True)
class _Timeline:
    """A picture that grows at the bottom."""

    heads: Sequence[str]
    title: str
    shapes: list[str] = field(default_factory=list[str])
    height: int = 46
    at: int = 0
    _labelled: int = -1

    def arrow(self, start: int, end: int, label: str, look: str = "") -> None:
        """An arrow between two lifelines."""
        self._label()
        y = self.height + 18
        x1, x2 = LINES[start], LINES[end]
        tip = -1 if x2 > x1 else 1
        head = f"M{x2} {y}l{7 * tip} -4v8z"
        self.shapes.append(
            f'<path class="arrow {look}" d="M{x1} {y}H{x2 + 6 * tip}{head}"/>'
            f'<text x="{(x1 + x2) // 2}" y="{y - 5}">{_text(label)}</text>'
        )
        self.height += ROW

    def note(self, line: int, label: str) -> None:
        """A note on a lifeline."""
        self._label()
        y = self.height + 18
        self.shapes.append(f'<text class="note" x="{LINES[line]}" y="{y}">{_text(label)}</text>')
        self.height += ROW - 6

    def view(self, line: int, text: str, *, stale: bool = False) -> None:
        """The present text, on a lifeline."""
        x, y = LINES[line] - 118, self.height - 2
        shown = f"{text}  (stale)" if stale else text
        self.shapes.append(
            f'<rect class="view{" stale" if stale else ""}" x="{x}" y="{y}" width="236" '
            f'height="{BOX - 6}" rx="6"/>'
            f'<text class="shown" x="{LINES[line]}" y="{y + 16}">{escape(shown) or "&#160;"}</text>'
        )
        self.height += BOX + 4

    def _label(self) -> None:
        """The time of this row, if it differs from the row above."""
        if self.at == self._labelled:
            return
        self._labelled = ms = self.at
        time = f"{ms} ms" if ms < 1_000 else f"{ms / 1_000:.3f}".rstrip("0").rstrip(".") + " s"
        self.shapes.append(f'<text class="time" x="68" y="{self.height + 22}">{time}</text>')

    def svg(self) -> str:
        """The picture."""
        height = self.height + 14
        life = "".join(f'<path class="life" d="M{x} 40V{height - 10}"/>' for x in LINES)
        heads = "".join(
            f'<text class="head" x="{x}" y="28">{escape(head)}</text>'
            for x, head in zip(LINES, self.heads, strict=True)
        )
        return (
            "<!-- Generated from spec/traces/streams/ by `make generate`; do not edit. -->\n"
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
            f'width="{WIDTH}" height="{height}" role="img">\n'
            f"<title>{escape(self.title)}</title>\n<style>\n{STYLE}\n</style>\n"
            f'<rect class="ground" width="{WIDTH}" height="{height}" rx="8"/>\n'
            + "\n".join([life, heads, *self.shapes])
            + "\n</svg>\n"
        )


def _reader(trace: Mapping[str, Any]) -> str:
    """The frames that the reader of a trace receives, and the events of its program."""
    picture = _Timeline(("topic", "reader", "your program"), trace["description"])
    shown: tuple[str, bool] = ("", False)
    ignored = 0
    several = len({epoch for step in trace["steps"] for epoch in _epochs(step)}) > 1
    for step in trace["steps"]:
        picture.at = step["at"]
        ((name, given),) = step["in"].items()
        drops = step["ignored"] > ignored
        ignored = step["ignored"]
        if name == "take":
            label = _frame(given, epochs=several) + (" (ignored)" if drops else "")
            picture.arrow(0, 1, label, "ignored" if drops else "")
        elif name in ("begin", "healed"):
            held = ", ".join(_frame(message, texts=False) for message in given)
            picture.arrow(0, 1, f"history: {held or 'empty'}")
        elif name == "tick":
            picture.note(1, "no frame arrived")
        for effect in step["out"]:
            _event(picture, effect)
        view = step["view"]
        if (view["text"], view["stale"]) != shown:
            shown = (view["text"], view["stale"])
            picture.view(2, view["text"], stale=view["stale"])
    return picture.svg()


def _event(picture: _Timeline, effect: Mapping[str, Any]) -> None:
    """An event that a reader passes to its program."""
    match effect["kind"]:
        case "heal":
            picture.arrow(1, 0, "requests the history")
        case "delta":
            picture.arrow(1, 2, f"delta “{''.join(effect['pieces'])}”")
        case "gap":
            first, last = effect["first"], effect["last"]
            tokens = f"token {last}" if last == first else f"tokens {first} to {last}"
            picture.arrow(1, 2, f"gap: {tokens} missing", "warn")
        case "stalled":
            picture.arrow(1, 2, f"stalled: {effect['ms'] // 1_000} s", "warn")
        case kind:
            picture.arrow(1, 2, kind)


def _writer(trace: Mapping[str, Any]) -> str:
    """The parts that a program writes, the published messages, and the requests of readers."""
    picture = _Timeline(("your program", "writer", "topic"), trace["description"])
    for step in trace["steps"]:
        ((name, given),) = step["in"].items()
        picture.at = step["at"]
        if name == "write":
            picture.arrow(0, 1, f"write “{given}”")
        elif name == "receive":
            kind, data, sender = given
            label = f"{FRAMES[kind]} by {sender}"
            if data["stream"] != trace["writer"]["stream"]:
                label += ", other stream (ignored)"
            elif not step["out"]:
                label += f", epoch {data['epoch']} (ignored)"
            picture.arrow(2, 1, label, "" if step["out"] else "ignored")
        for effect in step["out"]:
            if effect["kind"] == "publish":
                picture.arrow(1, 2, _frame(effect))
                if "text" in effect["data"]:
                    picture.view(2, effect["data"]["text"])
            elif effect["kind"] == "cancelled":
                picture.arrow(1, 0, "error cancelled, signal aborted", "warn")
    return picture.svg()


def _frame(message: Mapping[str, Any], *, epochs: bool = False, texts: bool = True) -> str:
    """A short description of a frame."""
    kind, data = message["type"], message["data"]
    if kind == "token":
        label = f"token {data['index']}" + (f" “{data['content']}”" if texts else "")
    elif kind == "token.snapshot":
        count = data["upto"]
        label = f"snapshot of {count} token{'' if count == 1 else 's'}" if texts else "snapshot"
    else:
        label = FRAMES[kind]
    return f"epoch {data['epoch']}: {label}" if epochs else label


def _epochs(step: Mapping[str, Any]) -> set[int]:
    ((name, given),) = step["in"].items()
    return {given["data"]["epoch"]} if name == "take" else set()


def _text(label: str) -> str:
    return escape(label if len(label) <= LONGEST else f"{label[: LONGEST - 1]}…")


__all__ = ["pictures"]

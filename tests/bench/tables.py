"""Tables of the page, and whether a target is met."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.bench.processes import Json


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table: the first column is a name, the others are numbers."""
    lines = [head, ["---", *["--:"] * (len(head) - 1)], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def met(met: bool) -> str:
    """Format the result of a target."""
    return "met" if met else "**missed**"


def measured(room: Json) -> str:
    """A sentence, after a space, on when a room was measured, and where if on another machine."""
    run = room["run"]
    where = f" on another machine ({run['cpu']})" if "cpu" in run else ""
    return (
        f" Measured on {run['date']}{where}. Load average: {run['load'][0]:.1f} at the start, "
        f"{run['load'][1]:.1f} at the end."
    )


def spread(median: float, values: Sequence[float], digits: int = 2) -> str:
    """A median, followed by the minimum and maximum if there are several values."""
    text = f"{median:.{digits}f}"
    if len(values) > 1:
        text += f" ({min(values):.{digits}f} to {max(values):.{digits}f})"
    return text


def rounds_of(room: Json) -> str:
    """The sentence on how the figures of a room are computed."""
    return "one round" if room["rounds"] == 1 else f"medians of {room['rounds']} rounds"

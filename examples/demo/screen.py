"""Draws the demonstration on a terminal of at least 80 x 24."""

from __future__ import annotations

import asyncio
import math
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from rich import box
from rich.console import Console, Group, RenderableType
from rich.layout import Layout
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from examples.demo.ledger import Reading, percentile
from examples.demo.stage import SYMBOLS, Kind, Stage

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterable

FRAMES = 12
"""Pictures per second."""
ENCORE = 1.5
"""Seconds that the last picture stays."""
STYLES: dict[Kind, str] = {
    "cut": "bold red",
    "back": "bold green",
    "rotated": "bold cyan",
    "people": "magenta",
    "stream": "dim",
    "loss": "bold red",
}
STATES = {"connected": "green", "reconnecting": "red", "suspended": "red"}
BARS = "▁▂▃▄▅▆▇█"


@asynccontextmanager
async def show(stage: Stage, console: Console) -> AsyncGenerator[None]:
    """Draw the stage until the block ends."""
    with Live(
        draw(stage, console.width, console.height),
        console=console,
        screen=True,
        auto_refresh=False,
    ) as live:

        async def play() -> None:
            while True:
                live.update(draw(stage, console.width, console.height), refresh=True)
                await asyncio.sleep(1 / FRAMES)

        player = asyncio.create_task(play())
        try:
            yield
            live.update(draw(stage, console.width, console.height), refresh=True)
            await asyncio.sleep(ENCORE)
        finally:
            player.cancel()


def draw(stage: Stage, width: int, height: int) -> RenderableType:
    """Draw one picture."""
    side = 46 if width >= 110 else 36
    present = min(max(len(stage.members), 1), 4)
    layout = Layout()
    layout.split_column(Layout(name="head", size=3), Layout(name="body"))
    layout["body"].split_row(Layout(name="text"), Layout(name="side", size=side))
    layout["side"].split_column(
        Layout(_people(stage), size=present + 2),
        Layout(_readers(stage), size=5),
        Layout(_latency(stage, side - 4), size=4),
        Layout(_connection(stage, side - 4, height - 16 - present)),
    )
    layout["head"].update(_head(stage, width))
    layout["text"].update(_text(stage, width - side - 4, height - 5))
    return layout


def _head(stage: Stage, width: int) -> Panel:
    published = len(stage.ledger.words)
    figures = Text.assemble(
        (f" {published:,}", "bold"),
        f"/{stage.total:,} words  ",
        (f"{stage.rate:3.0f}", "bold"),
        "/s  ",
        (f"{stage.elapsed:4.1f}", "bold"),
        " s ",
    )
    room = max(8, width - 6 - figures.cell_len - 15)
    done = round(room * stage.progress)
    bar = Text.assemble(("━" * done, "green"), ("━" * (room - done), "grey30"))
    line = Text.assemble((" Hanzo PubSub  ", "bold"), bar, " ", figures)
    watch = f"in a browser: [bold]{stage.page}[/bold]" if stage.page else None
    return Panel(line, subtitle=watch, box=box.ROUNDED, border_style="grey50", padding=(0, 0))


def _text(stage: Stage, width: int, height: int) -> Panel:
    lines = _wrap(stage, max(width, 10))[-height:]
    if lines and stage.ended is None:
        lines[-1].append("▌", style="bold green" if stage.state == "connected" else "bold red")
    return Panel(
        Group(*lines),
        title=f"[bold]{stage.topic}[/bold] as the reader sees it",
        subtitle="[yellow]in this color: written during a cut[/yellow]",
        box=box.ROUNDED,
        border_style=STATES.get(stage.state, "grey50"),
    )


def _wrap(stage: Stage, width: int) -> list[Text]:
    lines, column = [Text()], 0
    for word in stage.words[-2500:]:
        bare = word.content.rstrip()
        if column and column + 1 + len(bare) > width:
            lines.append(Text())
            column = 0
        if column:
            lines[-1].append(" ")
            column += 1
        lines[-1].append(bare, style="yellow" if word.healed else "")
        column += len(bare)
        if word.content.endswith("\n\n"):
            lines += [Text(), Text()]
            column = 0
    return lines


def _people(stage: Stage) -> Panel:
    table = Table.grid(padding=(0, 1))
    for name, status in sorted(stage.members)[:4]:
        style = "yellow" if status == "typing" else "green"
        note = "typing …" if status == "typing" else status
        table.add_row(Text("●", style=style), Text(name, style="bold"), Text(note, style=style))
    return Panel(table, title="present", box=box.ROUNDED, border_style="grey50")


def _readers(stage: Stage) -> Panel:
    table = Table.grid(padding=(0, 1))
    for _ in range(3):
        table.add_column(justify="right")
    table.add_column()
    table.columns[0].justify = "left"
    published = len(stage.ledger.words)
    for reading in (stage.reader, stage.observer):
        behind = max(0, published - reading.count)
        table.add_row(
            Text(f"{reading.name} ({reading.transport})", style="bold"),
            f"{reading.count:,}",
            Text(f"{behind} behind", style="yellow" if behind > 3 else "dim"),
        )
    late = stage.latecomer
    table.add_row(
        Text(late.name, style="bold" if late.count else "dim"),
        f"{late.count:,}" if late.count else "-",
        Text("from history", style="dim") if late.count else "",
    )
    return Panel(table, title="words received", box=box.ROUNDED, border_style="grey50")


def _latency(stage: Stage, width: int) -> Panel:
    values = stage.reader.latencies
    line = Text.assemble(
        ("p50 ", "dim"),
        f"{percentile(values, 0.5) * 1000:.1f} ms",
        ("  p99 ", "dim"),
        f"{percentile(values, 0.99) * 1000:.0f} ms",
        ("  log scale" if width > 38 else "", "dim"),
    )
    spark = Text("".join(sparkline(stage.lag, stage.elapsed, width)), style="cyan")
    return Panel(
        Group(spark, line), title="publish → reader", box=box.ROUNDED, border_style="grey50"
    )


def sparkline(lag: Iterable[tuple[float, float]], now: float, width: int) -> list[str]:
    """Bars for the slowest message of each half second, 1 ms to 1 s on a logarithmic scale."""
    step = 0.5
    first = max(0, math.floor(now / step) - width + 1)
    slowest: dict[int, float] = {}
    for at, seconds in lag:
        slot = math.floor(at / step)
        slowest[slot] = max(slowest.get(slot, 0.0), seconds)
    bars: list[str] = []
    for slot in range(first, math.floor(now / step) + 1):
        if slot not in slowest:
            bars.append(" ")
            continue
        height = (math.log10(max(slowest[slot], 1e-3)) + 3) / 3
        bars.append(BARS[min(len(BARS) - 1, int(height * len(BARS)))])
    return bars


def _connection(stage: Stage, width: int, height: int) -> Panel:
    lines: list[RenderableType] = [_track(stage, width)]
    room = max(1, height - 1)
    for event in stage.happenings[-room:]:
        text = Text.assemble(
            (f"{event.at:5.1f} ", "dim"),
            (f"{SYMBOLS[event.kind]} ", STYLES[event.kind]),
            event.text,
        )
        text.truncate(width, overflow="ellipsis")
        lines.append(text)
    state = Text(stage.state, style=STATES.get(stage.state, "yellow"))
    title = Text.assemble("connection: ", state)
    return Panel(Group(*lines), title=title, box=box.ROUNDED, border_style="grey50")


def _track(stage: Stage, width: int) -> Text:
    """The connection from the start until now: a line with its cuts and rotations."""
    span = max(stage.elapsed, 1.0)
    track = [("━", "green")] * width
    down_since: float | None = None
    marks: list[tuple[int, Kind]] = []

    def column(at: float) -> int:
        return min(width - 1, int(at / span * width))

    for event in [*stage.happenings]:
        if event.kind == "cut":
            down_since = event.at
            marks.append((column(event.at), "cut"))
        elif event.kind == "back" and down_since is not None:
            for i in range(column(down_since), column(event.at)):
                track[i] = ("┄", "red")
            down_since = None
        elif event.kind == "rotated":
            marks.append((column(event.at), "rotated"))
    if down_since is not None:
        for i in range(column(down_since), width):
            track[i] = ("┄", "red")
    for i, kind in marks:
        track[i] = (SYMBOLS[kind], STYLES[kind])
    return Text.assemble(*track)


def result(console: Console, rows: list[tuple[Reading, list[str]]], columns: list[str]) -> None:
    """Print the table at the end."""
    table = Table(
        box=box.SIMPLE_HEAD, header_style="bold", pad_edge=False, padding=0, show_edge=False
    )
    for i, name in enumerate(columns):
        table.add_column(name, justify="left" if i < 2 else "right", no_wrap=True)
    for reading, cells in rows:
        bad = any(cell not in ("0", "-") for cell in cells[3:6])
        table.add_row(*cells, style="bold red" if bad or not reading.finished else "")
    console.print(table, end="\n\n")

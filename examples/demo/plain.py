"""Prints the demonstration as lines, for output that is not a terminal."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from examples.demo.ledger import percentile
from examples.demo.stage import SYMBOLS, Stage

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

BEAT = 5.0
"""Seconds between two lines of figures."""


@asynccontextmanager
async def show(stage: Stage) -> AsyncGenerator[None]:
    """Print the events until the block ends."""
    printed = 0

    def report() -> None:
        nonlocal printed
        for event in stage.happenings[printed:]:
            print(f"{event.at:5.1f}s {SYMBOLS[event.kind]} {event.text}", flush=True)
        printed = len(stage.happenings)

    async def play() -> None:
        beat = BEAT
        while True:
            report()
            if stage.elapsed >= beat:
                beat += BEAT
                if stage.ledger.words:
                    print(figures(stage), flush=True)
            await asyncio.sleep(0.1)

    player = asyncio.create_task(play())
    try:
        yield
    finally:
        player.cancel()
        report()


def figures(stage: Stage) -> str:
    """The state of the demonstration, in one line."""
    slow = percentile(stage.reader.latencies, 0.99) * 1000
    return (
        f"{stage.elapsed:5.1f}s   {len(stage.ledger.words):,}/{stage.total:,} words, "
        f"{stage.rate:.0f}/s · reader {stage.reader.count:,} · "
        f"observer {stage.observer.count:,} · "
        f"p50 {percentile(stage.reader.latencies, 0.5) * 1000:.1f} ms, p99 {slow:.0f} ms"
    )


def result(rows: list[list[str]], columns: list[str]) -> None:
    """Print the table at the end."""
    texts = [columns, *rows]
    widths = [max(len(row[i]) for row in texts) for i in range(len(columns))]
    for row in texts:
        cells = [
            cell.ljust(width) if i < 2 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        print("  ".join(cells).rstrip())

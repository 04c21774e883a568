"""Runs the demonstration, and compares what was published with what was received."""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal
import sys
import time
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import httpx
from rich.console import Console

from examples.chat import site as sites
from examples.chat.local_site import PageFailed
from examples.chat.server import START, Server, ServerFailed, start
from examples.demo import opening, plain, screen, spark_job
from examples.demo import page as pages
from examples.demo.cast import (
    TOPIC,
    Reader,
    Tokens,
    come_late,
    cut_pages,
    observe,
    sabotage,
    speak,
    visit,
)
from examples.demo.ledger import Reading, judge, percentile, summary
from examples.demo.stage import Stage
from examples.demo.story import Word, load_words
from hanzoai.pubsub import PubSubError

if TYPE_CHECKING:
    from collections.abc import Sequence

CUTS = (0.12, 0.46, 0.8)
"""Where the reader's connection is cut, as shares of the text."""
ROTATIONS = (0.3, 0.64)
"""Where its token is renewed."""
RATE, FAST = 54.0, 240.0
"""Words per second: the speed of a fast model, and the speed with --fast."""
NOTICE = 3.0
"""Seconds left on a tab's token after its user has selected the button to expire it."""
FEWEST = 100
"""Fewest words: a shorter text leaves no time for the cuts and rotations."""
PATIENCE = 30.0
"""Seconds after the expected end at which the demonstration is stopped."""
COLUMNS = [
    "reader",
    "over",
    "received",
    "lost",
    "twice",
    "altered",
    "gaps",
    "reconnects",
    "rotations",
    "p50 ms",
    "p99 ms",
]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the demonstration.

    Returns:
        0 if every reader received every word once and in order, with the planned number of cuts
        and rotations; otherwise 1.
    """
    args = _parser().parse_args(argv)
    # The demonstration itself cuts the connections, and reports each cut.
    logging.getLogger("hanzoai.pubsub").setLevel(logging.ERROR)
    try:
        return asyncio.run(perform(args))
    except (ServerFailed, PageFailed) as error:
        print(error, file=sys.stderr)
        return 1
    except (KeyboardInterrupt, asyncio.CancelledError):
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="make demo",
        description="Stream a text while connections fail and tokens expire. Takes two minutes.",
    )
    parser.add_argument("--fast", action="store_true", help="write at four times the usual speed")
    parser.add_argument(
        "--plain", action="store_true", help="print lines instead of drawing on the terminal"
    )
    parser.add_argument(
        "--words", type=int, metavar="N", help="stream only the first N words (default: all)"
    )
    parser.add_argument(
        "--seed", type=int, default=56, metavar="N", help="seed of the pauses between words"
    )
    parser.add_argument(
        "--lose",
        action="store_true",
        help="empty the history during the first cut; the next snapshot repairs the text",
    )
    parser.add_argument(
        "--spark", action="store_true", help="then run a Spark job that reports its progress"
    )
    parser.add_argument(
        "--stay",
        action="store_true",
        help="start when a browser opens the page, and serve the page until Ctrl-C",
    )
    return parser


async def perform(args: argparse.Namespace) -> int:
    """Run one demonstration, from the start of the server to the result."""
    task = asyncio.current_task()
    if task is not None and sys.platform != "win32":
        # Stop the server also if the demonstration is interrupted.
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    words = load_words(args.words)
    if len(words) < FEWEST or (args.words and args.words > len(words)):
        print(f"--words must be from {FEWEST} to {len(load_words()):,}", file=sys.stderr)
        return 2
    stage = Stage(TOPIC, len(words))
    console = Console()
    plainly = args.plain or not console.is_terminal
    length = len(words) / _rate(args)
    async with start() as server, AsyncExitStack() as stack:
        chat = await _open_chat(stack, server, args)
        page = await _open(stack, server, stage, length, args)
        show = plain.show(stage) if plainly else screen.show(stage, console)
        wrong: list[str] = []
        stage.began = time.perf_counter()
        async with show:
            if chat is not None:
                wrong += await opening.play(server, chat, stage)
            try:
                async with asyncio.timeout(length + PATIENCE):
                    await _play(server, stage, page, words, args)
            except TimeoutError:
                wrong.append(
                    f"still running {PATIENCE:.0f} s after the expected end; "
                    f"the reader is {stage.state}"
                )
            except ExceptionGroup as failures:
                known, other = failures.split((PubSubError, httpx.HTTPError))
                if other is not None:
                    raise
                wrong += [str(failure) for failure in known.exceptions] if known else []
            stage.ended = time.perf_counter()
        if args.spark:
            await spark_job.show(server)
        wrong += judge(
            stage.ledger,
            len(words),
            _readings(stage),
            reconnects=len(CUTS),
            rotations=len(ROTATIONS),
        )
        _conclude(stage, console, wrong, plainly=plainly)
        if args.stay:
            await _stay(stage)
    return 1 if wrong else 0


async def _open_chat(
    stack: AsyncExitStack, server: Server, args: argparse.Namespace
) -> sites.Site | None:
    """Serve `examples/chat` on this server during the demonstration."""
    try:
        site = await stack.enter_async_context(sites.serve(server, rate=_rate(args)))
        async with asyncio.timeout(START):
            await site.writer.ready()
    except PageFailed:
        return None  # The page of the demonstration fails for the same reason and reports it.
    except TimeoutError:
        print("no chat: the process that writes the answers did not start", file=sys.stderr)
        return None
    print(f"chat: {site.url}", flush=True)
    return site


async def _open(
    stack: AsyncExitStack,
    server: Server,
    stage: Stage,
    length: float,
    args: argparse.Namespace,
) -> pages.Page | None:
    """Serve the page for browsers. Without it, the demonstration continues unless --stay is set."""
    life = max(2 * NOTICE, 0.7 * length)
    serving = pages.serve(server, stage, life=life, notice=NOTICE, stays=args.stay)
    try:
        page = await stack.enter_async_context(serving)
    except PageFailed as error:
        if args.stay:
            raise
        print(error, file=sys.stderr)
        return None
    stage.page = page.url
    print(f"in a browser: {page.url}", flush=True)
    if args.stay:
        print("The demonstration starts when you open the page.", flush=True)
        await page.opened.wait()
    return page


async def _stay(stage: Stage) -> None:
    print(f"The page stays at {stage.page}. Press Ctrl-C to stop.", flush=True)
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is not None:
            task.uncancel()


def _rate(args: argparse.Namespace) -> float:
    return FAST if args.fast else RATE


async def _play(
    server: Server,
    stage: Stage,
    page: pages.Page | None,
    words: Sequence[Word],
    args: argparse.Namespace,
) -> None:
    rate = _rate(args)
    length = len(words) / rate
    # The server asks for another token when half of the life has passed.
    shares = [b - a for a, b in zip((0, *ROTATIONS), ROTATIONS, strict=False)]
    reader = Reader(server, stage, Tokens(server, stage, [2 * max(2, length * n) for n in shares]))
    observing = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(reader.read())
        group.create_task(observe(server, stage, observing))
        await reader.subscribed.wait()
        await observing.wait()
        stage.report("stream", f"{len(words):,} words at {rate:.0f} per second")
        group.create_task(visit(server, stage, "alice", come=0.06, leave=0.72))
        group.create_task(visit(server, stage, "bob", come=0.24, leave=0.88))
        group.create_task(sabotage(server, stage, reader, CUTS, lose=args.lose))
        if page is not None:
            group.create_task(cut_pages(page, stage, CUTS))
        group.create_task(
            speak(
                server,
                stage,
                words,
                rate=rate,
                seed=args.seed,
                finale=lambda: (
                    stage.reader.reconnects >= len(CUTS)
                    and stage.reader.rotations >= len(ROTATIONS)
                ),
            )
        )
    await come_late(server, stage)


def _conclude(stage: Stage, console: Console, wrong: list[str], *, plainly: bool) -> None:
    rows = [(reading, _cells(stage, reading)) for reading in _readings(stage)]
    if plainly:
        plain.result([cells for _, cells in rows], COLUMNS)
    else:
        screen.result(console, rows, COLUMNS)
    for difference in wrong:
        print(f"✗ {difference}", file=sys.stderr)
    print(summary(stage.ledger, stage.reader), flush=True)


def _readings(stage: Stage) -> list[Reading]:
    return [stage.reader, stage.observer, stage.latecomer]


def _cells(stage: Stage, reading: Reading) -> list[str]:
    account = stage.ledger.account(reading)
    counts = (
        account.received,
        account.lost,
        account.twice,
        account.altered,
        reading.gaps,
        reading.reconnects,
        reading.rotations,
    )
    cells = [reading.name, reading.transport, *(f"{count:,}" for count in counts)]
    if not reading.latencies:
        return [*cells, "-", "-"]
    return [*cells, *(f"{percentile(reading.latencies, p) * 1000:.1f}" for p in (0.5, 0.99))]

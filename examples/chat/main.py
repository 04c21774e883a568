"""Starts a development server, the service that answers, and the page."""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from typing import TYPE_CHECKING

from examples.chat import site as sites
from examples.chat.local_site import PageFailed
from examples.chat.server import ServerFailed, start

if TYPE_CHECKING:
    from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Serve the chat until Ctrl-C.

    Returns:
        0, or 1 where the server or the page cannot be started.
    """
    parser = argparse.ArgumentParser(prog="make chat", description=__doc__)
    parser.add_argument(
        "--rate", type=float, metavar="N", help="words per second of an answer; default: 35"
    )
    args = parser.parse_args(argv)
    if args.rate is not None and not 0.1 <= args.rate <= 10_000:
        parser.error("--rate is from 0.1 to 10,000")
    try:
        asyncio.run(serve(args.rate))
    except (ServerFailed, PageFailed) as error:
        print(error, file=sys.stderr)
        return 1
    except (KeyboardInterrupt, asyncio.CancelledError):
        pass
    return 0


async def serve(rate: float | None) -> None:
    """Serve the chat until this task is cancelled."""
    task = asyncio.current_task()
    if task is not None and sys.platform != "win32":
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    async with start() as server, sites.serve(server, rate=rate) as site:
        await site.writer.ready()
        print(f"chat: {site.url}", flush=True)
        print("Open it in two tabs. Press Ctrl-C to stop.", flush=True)
        await asyncio.Event().wait()

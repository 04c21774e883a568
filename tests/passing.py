"""Lets the time of an event loop pass at once, so that no test waits for a timeout."""

from __future__ import annotations

import asyncio


def let_pass(seconds: float) -> None:
    """Let the running loop call its timers of the next seconds now.

    A timeout that a test starts with many seconds cannot end early on a busy machine.
    """
    loop = asyncio.get_running_loop()
    time = loop.time
    loop.time = lambda: time() + seconds  # type: ignore[method-assign]

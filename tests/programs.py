"""Programs as processes of a test, which end with it."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator


@asynccontextmanager
async def started(
    *command: str, within: float, out: int = asyncio.subprocess.PIPE, **more: Any
) -> AsyncGenerator[asyncio.subprocess.Process]:
    """A process with nothing to read, whose errors can be read; killed with all that it started.

    Args:
        *command: Its program and arguments.
        within: Seconds for all that is done with it.
        out: Where its output goes.
        **more: Of `asyncio.create_subprocess_exec`.
    """
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=out,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
        **more,
    )
    try:
        async with asyncio.timeout(within):
            yield process
    finally:
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)
            await process.wait()

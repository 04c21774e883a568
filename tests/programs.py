"""Programs in processes that end with the test."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator


@asynccontextmanager
async def started(
    *command: str,
    within: float,
    stdin: int = asyncio.subprocess.DEVNULL,
    out: int = asyncio.subprocess.PIPE,
    **more: Any,
) -> AsyncGenerator[asyncio.subprocess.Process]:
    """Run a process with a pipe for errors; kill it and its children at the end.

    Args:
        *command: Program and arguments.
        within: Maximum seconds of the context.
        stdin: Source of its input; empty by default.
        out: Destination of its output.
        **more: Arguments of `asyncio.create_subprocess_exec`.
    """
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=stdin,
        stdout=out,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
        **more,
    )
    try:
        async with asyncio.timeout(within):
            yield process
    finally:
        # It may have ended, and its exit code be on the way.
        with suppress(ProcessLookupError):
            if process.returncode is None:
                os.killpg(process.pid, signal.SIGKILL)
        await process.wait()

"""File descriptors: raises the limit, and warns if none is left.

Neither event loop reports a connection that it could not accept without a descriptor: uvloop closes
it, asyncio leaves it in the backlog. So a periodic check opens one.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import sys
from typing import Final

if sys.platform != "win32":
    import resource

CHECK_EVERY: Final = 1.0
"""Seconds between two checks."""
LOG_EVERY: Final = 60.0
"""Seconds between two log lines about the same problem."""

_LOG: Final = logging.getLogger("pubsub_server")


def raise_limit(wanted: int | None) -> None:
    """Raise the limit of this process as far as allowed, and warn if it is below `wanted`.

    Args:
        wanted: Connections that the settings allow; None never warns.
    """
    if sys.platform == "win32":
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard and hard != resource.RLIM_INFINITY:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        soft = hard
    if wanted is not None and soft != resource.RLIM_INFINITY and soft < wanted:
        _LOG.warning(
            "the limit of file descriptors allows fewer than %d connections, and max_connections is"
            " %d: raise LimitNOFILE of the unit or `ulimit -n`, or lower max_connections",
            soft,
            wanted,
        )


class Descriptors:
    """Warns when no file descriptor is left. Runs from `start` to `stop`.

    Args:
        check_every: Seconds between two checks.
    """

    def __init__(self, check_every: float = CHECK_EVERY) -> None:
        self._check_every = check_every
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Start the checks."""
        self._timer = self._loop.call_later(self._check_every, self._check)

    def stop(self) -> None:
        """Stop the checks."""
        if self._timer is not None:
            self._timer.cancel()

    def _check(self) -> None:
        pause = self._check_every
        try:
            taken = os.open(os.devnull, os.O_RDONLY)
        except OSError as error:
            if error.errno in {errno.EMFILE, errno.ENFILE}:
                _LOG.error(
                    "no file descriptors left (limit %s): connections are rejected; raise"
                    " LimitNOFILE of the unit or `ulimit -n`",
                    _limit(),
                )
                pause = LOG_EVERY
        else:
            os.close(taken)
        self._timer = self._loop.call_later(pause, self._check)


def _limit() -> str:
    return (
        "unknown" if sys.platform == "win32" else str(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    )

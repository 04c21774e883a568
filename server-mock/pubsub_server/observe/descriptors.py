"""File descriptors: as many as there may be, and a word where none is left.

Neither event loop tells of a connection that was turned away for want of one: uvloop closes it,
asyncio leaves it in the backlog. So one is taken every now and then, to see whether that goes.
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

LOOK_EVERY: Final = 1.0
"""Seconds between two looks."""
SAY_EVERY: Final = 60.0
"""Seconds between two lines about the same."""

_LOG: Final = logging.getLogger("pubsub_server")


def raise_limit(wanted: int | None) -> None:
    """Raise the limit of this process as far as its user may, and warn where it is below `wanted`.

    Args:
        wanted: Connections that the settings allow; None warns of nothing.
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
    """Says when no file descriptor is left. Started by `start`, ended by `stop`.

    Args:
        look_every: Seconds between two looks.
    """

    def __init__(self, look_every: float = LOOK_EVERY) -> None:
        self._look_every = look_every
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin."""
        self._timer = self._loop.call_later(self._look_every, self._look)

    def stop(self) -> None:
        """End."""
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        pause = self._look_every
        try:
            taken = os.open(os.devnull, os.O_RDONLY)
        except OSError as error:
            if error.errno in {errno.EMFILE, errno.ENFILE}:
                _LOG.error(
                    "no file descriptors left (limit %s): connections are rejected; raise"
                    " LimitNOFILE of the unit or `ulimit -n`",
                    _limit(),
                )
                pause = SAY_EVERY
        else:
            os.close(taken)
        self._timer = self._loop.call_later(pause, self._look)


def _limit() -> str:
    return (
        "unknown" if sys.platform == "win32" else str(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    )

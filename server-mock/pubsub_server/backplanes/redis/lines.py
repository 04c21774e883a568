"""Connections for the calls that a node makes all day. Each carries one call at a time.

The client of redis-py takes each call through a pool, a retry and an encoder in Python, which costs
more than twice as much processor time as its connection alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from typing import TYPE_CHECKING, Any, Final, cast

import hiredis

if TYPE_CHECKING:
    from collections.abc import Callable

    from redis.asyncio import Redis

ANSWER_WITHIN: Final = 5.0
"""Seconds. A Redis that has not answered by then counts as lost."""

_pack = cast("Callable[[tuple[str | bytes | int, ...]], bytes]", hiredis.pack_command)  # pyright: ignore[reportUnknownMemberType]


class Lines:
    """Several connections to one server.

    Args:
        client: Names the server and its credentials. Its connections have no timeout of their own.
        count: Calls that may be under way at once, at least 1. Further ones wait.
    """

    def __init__(self, client: Redis, count: int) -> None:
        self._pool: Any = client.connection_pool
        self._all: list[Any] = []
        self._free: list[Any] = []
        self._turn = asyncio.Semaphore(count)

    async def execute_command(self, *words: str | bytes | int) -> Any:
        """Send a command and wait for its answer.

        Raises:
            RedisError: The server refuses the command, or the connection is lost.
            OSError: As above; `TimeoutError` where no answer came within `ANSWER_WITHIN`.
        """
        async with self._turn:
            if not self._free:
                line = self._pool.make_connection()
                self._all.append(line)
            else:
                line = self._free.pop()
            try:
                async with asyncio.timeout(ANSWER_WITHIN):
                    # What has come unasked is the end of the connection.
                    if line.is_connected and await line.can_read():
                        await line.disconnect(nowait=True)
                    # An unfinished call hangs up, so that no answer is taken for another's.
                    await line.send_packed_command(_pack(words), check_health=False)
                    return await line.read_response(timeout=math.inf)
            finally:
                self._free.append(line)

    async def drop(self) -> None:
        """Hang up what is idle. The next call dials."""
        for line in self._free:
            await _hang_up(line)

    async def close(self) -> None:
        """Hang up everything."""
        for line in self._all:
            await _hang_up(line)


async def _hang_up(line: Any) -> None:
    with contextlib.suppress(Exception):
        await line.disconnect(nowait=True)

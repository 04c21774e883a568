"""A few connections to one server for calls that may overtake each other.

Unlike the pool of redis-py, it owns its connections also while they are being dialed, opens none
after it has closed, and ends a cancelled call immediately: on Python 3.11 redis-py may swallow a
cancellation while it writes.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import ReadOnlyError

from pubsub_server.backplanes.redis.wire import ANSWER_WITHIN, unused

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Sequence

    from pubsub_server.backplanes.redis.wire import Wire, Word


class Pool:
    """Connections that have one call at a time.

    Args:
        wire: Creates a connection, which dials with its first call.
        most: Maximum connections.
    """

    def __init__(self, wire: Callable[[], Wire], most: int) -> None:
        self._wire = wire
        self._most = most
        self._all: list[Wire] = []
        # The last one is used first, so that the others can stay closed.
        self._idle: list[Wire] = []
        self._waiting: deque[asyncio.Future[Wire]] = deque()
        self._over = False

    async def execute_command(self, *words: Word) -> Any:
        """Send a command and wait for its answer.

        Raises:
            RedisError: See `Wire.execute_command`; also if no connection becomes free within
                `ANSWER_WITHIN`.
            OSError: See `Wire.execute_command`.
        """
        async with self._one() as wire:
            return await wire.execute_command(*words)

    async def execute_commands(self, commands: Sequence[tuple[Word, ...]]) -> list[Any]:
        """Send several commands together and wait for all answers.

        Raises:
            RedisError: As above, or the first refusal.
            OSError: As above.
        """
        async with self._one() as wire:
            return await wire.execute_commands(commands)

    def drop(self) -> None:
        """Close the connections without a call. The next calls dial again."""
        for wire in self._idle:
            wire.close()

    def close(self) -> None:
        """Close all connections permanently; current and further calls fail."""
        self._over = True
        waiting, self._waiting = self._waiting, deque()
        for future in waiting:
            if not future.done():
                future.set_exception(unused())
        for wire in self._all:
            wire.hang_up()

    # ------------------------------------------------------------ inside

    @asynccontextmanager
    async def _one(self) -> AsyncGenerator[Wire]:
        wire = self._acquire() or await self._next()
        try:
            yield wire
        except ReadOnlyError:
            # The next call must not find the server that has become a replica.
            wire.close()
            raise
        finally:
            self._give_back(wire)

    def _acquire(self) -> Wire | None:
        if self._over:
            raise unused()
        if self._idle:
            return self._idle.pop()
        if len(self._all) == self._most:
            return None
        wire = self._wire()
        self._all.append(wire)
        return wire

    async def _next(self) -> Wire:
        """The connection of a call that ends; calls get one in their order."""
        future: asyncio.Future[Wire] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        try:
            async with asyncio.timeout(ANSWER_WITHIN):
                return await future
        except BaseException as error:
            if not future.done():
                future.cancel()
            elif not future.cancelled() and future.exception() is None:
                # It became free in the turn of the cancellation.
                self._give_back(future.result())
            if isinstance(error, TimeoutError):
                raise RedisConnectionError(
                    f"no connection became free within {ANSWER_WITHIN:g} s"
                ) from None
            raise

    def _give_back(self, wire: Wire) -> None:
        while self._waiting:
            future = self._waiting.popleft()
            if not future.done():
                future.set_result(wire)
                return
        self._idle.append(wire)

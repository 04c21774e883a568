"""Proof that a node hears what is published: it publishes to itself, and counts what comes back."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Final

from pubsub_server.backplanes.redis.servers import LINK_ERRORS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from pubsub_server.tasks import Tasks

BEATS: Final = 8
"""Beats without an answer after which a feed counts as silent."""
LOST_AFTER: Final = 3
"""Beats without an answer after which the connection that listens is dialed again."""
LOST_AFTER_AT_MOST: Final = 48
"""A connection that never answers doubles that for the next one, up to this: where dialing itself
takes long, it has to succeed at some time."""


class Pulse:
    """The pulse of one feed.

    Silence is counted in beats, not by the clock: a process that was stopped has not listened, so
    that time proves nothing.

    Args:
        timeout: Seconds of silence after which a node does not hear what is published.
        send: Publishes to the node itself, on the way that messages take.
        tasks: Keeps what sends.
        changed: Called when `hears` changes.

    Attributes:
        every: Seconds between two beats.
        hears: Whether the feed has heard its node within the timeout.
        silences: Times that it had not.
    """

    def __init__(
        self,
        timeout: float,
        send: Callable[[], Awaitable[None]],
        tasks: Tasks,
        changed: Callable[[], None],
    ) -> None:
        self.every = timeout / BEATS
        self.hears = True
        self.silences = 0
        self._send = send
        self._tasks = tasks
        self._changed = changed
        self._sending: asyncio.Task[None] | None = None
        self._answered = False
        self._missed = 0
        # Beats that the present connection did not answer.
        self._lacking = 0
        self._patience = LOST_AFTER
        self._lost = asyncio.Event()

    async def run(self) -> None:
        """Beat."""
        while True:
            self.beat()
            await asyncio.sleep(self.every)
            self._look()

    def beat(self) -> None:
        """Publish to the node itself, unless that is under way."""
        if self._sending is None or self._sending.done():
            self._sending = self._tasks.spawn(self._try_to_send())

    def heard(self) -> None:
        """What the node published to itself has come."""
        self._answered = True
        self._missed = self._lacking = 0
        self._patience = LOST_AFTER
        if not self.hears:
            self.hears = True
            self._changed()

    def connect(self) -> None:
        """A connection is dialed."""
        self._lacking = 0
        self._lost.clear()

    async def watch(self) -> None:
        """Wait until the present connection has missed too many beats in a row.

        Raises:
            RedisError: It has.
        """
        await self._lost.wait()
        silent = self._patience * self.every
        self._patience = min(LOST_AFTER_AT_MOST, self._patience * 2)
        raise LINK_ERRORS[1](f"nothing was received for {silent:g} s")

    def _look(self) -> None:
        answered, self._answered = self._answered, False
        if answered:
            return
        self._missed += 1
        self._lacking += 1
        if self._lacking >= self._patience:
            self._lost.set()
        if self.hears and self._missed >= BEATS:
            self.hears = False
            self.silences += 1
            self._changed()

    async def _try_to_send(self) -> None:
        # What keeps it from being sent shows as silence.
        with contextlib.suppress(TimeoutError, *LINK_ERRORS):
            async with asyncio.timeout(self._patience * self.every):
                await self._send()

"""What the transport of a test has received."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hanzoai.pubsub.transports import Incoming, Transport, TransportEnd


class Received:
    """A receiver that keeps everything."""

    def __init__(self) -> None:
        self._frames: list[Incoming] = []
        self._end: TransportEnd | None = None
        self._changed = asyncio.Event()

    def frames(self, frames: Iterable[Incoming], /) -> None:
        self._frames += frames
        self._changed.set()

    def ended(self, end: TransportEnd, /) -> None:
        assert self._end is None
        self._end = end
        self._changed.set()

    async def next(self) -> list[Incoming]:
        """Return the frames that have arrived since the last call: one or more.

        Raises:
            TransportEnd: It has ended, and all frames were returned.
        """
        while not self._frames:
            if self._end is not None:
                raise self._end
            self._changed.clear()
            await self._changed.wait()
        frames, self._frames = self._frames, []
        return frames


_received: WeakKeyDictionary[Transport, Received] = WeakKeyDictionary()


async def open_transport(transport: Transport) -> None:
    """Open a transport, and read it."""
    received = _received[transport] = Received()
    await transport.open(received)
    transport.resume()


async def receive(transport: Transport) -> list[Incoming]:
    """Return the next frames of an open transport."""
    return await _received[transport].next()

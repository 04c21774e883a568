"""Passes frames to a server in the same process, for tests: no socket, no thread, no wait.

Frames still go through the codec, so tests cover the bytes of the wire.
"""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING, Protocol
from weakref import WeakValueDictionary

from hanzoai.pubsub.errors import InvalidOption
from hanzoai.pubsub.transports import MEMORY_SCHEME, TransportClosed, TransportFailed
from hanzoai.pubsub.wire.codec import decode, encode

if TYPE_CHECKING:
    from collections.abc import Callable

    import httpx

    from hanzoai.pubsub.clock import Clock
    from hanzoai.pubsub.generated.wire import ClientFrame
    from hanzoai.pubsub.session.ports import TransportName
    from hanzoai.pubsub.transports import Receiver
    from hanzoai.pubsub.wire.codec import Decoded


class MemoryEnd(Protocol):
    """The server's end of one connection."""

    def receive(self, data: bytes) -> None:
        """Receive one frame of the client."""

    def closed(self, code: int | None) -> None:
        """The client has disconnected."""


class MemoryPeer(Protocol):
    """A server that programs in this process reach without a socket."""

    @property
    def clock(self) -> Clock:
        """Clock of the server and its clients."""
        ...

    @property
    def random(self) -> Callable[[], float]:
        """Numbers from 0 up to 1, for the jitter of retries."""
        ...

    async def accept(self, client: MemoryTransport, transport: TransportName) -> MemoryEnd:
        """Accept a connection.

        Raises:
            TransportFailed: The server rejects it.
        """
        ...

    def http_transport(self) -> httpx.AsyncBaseTransport:
        """The httpx transport to its HTTP API."""
        ...


_peers: WeakValueDictionary[str, MemoryPeer] = WeakValueDictionary()


def register(name: str, peer: MemoryPeer) -> str:
    """Register a peer, and return its URL."""
    _peers[name] = peer
    return f"{MEMORY_SCHEME}{name}"


def forget(name: str) -> None:
    """Remove a peer."""
    _peers.pop(name, None)


def find(url: str) -> MemoryPeer:
    """Return the peer of a URL.

    Raises:
        InvalidOption: No peer has this URL.
    """
    peer = _peers.get(url.removeprefix(MEMORY_SCHEME).partition("/")[0])
    if peer is None:
        raise InvalidOption(
            "No server of that name runs in this process.",
            remedy="Take the `url` of a running hanzoai.pubsub.testing.MemoryServer.",
            field="url",
        )
    return peer


class MemoryTransport:
    """One connection to a server of this process.

    Args:
        peer: The server.
        name: Name of the transport that it replaces.
    """

    incremental: bool = True
    largest = math.inf

    def __init__(self, peer: MemoryPeer, name: TransportName = "websocket") -> None:
        self._peer = peer
        self._name: TransportName = name
        self._end: MemoryEnd | None = None
        self._arrived: list[Decoded] = []
        self._over: TransportClosed | None = None
        self._receiver: Receiver
        self._paused = True
        self._closed = False
        self.last_received: float = peer.clock.now()

    async def open(self, receiver: Receiver) -> None:
        """Connect.

        Raises:
            TransportFailed: The server rejects the connection.
        """
        self._receiver = receiver
        end = await self._peer.accept(self, self._name)
        if self._closed:
            end.closed(None)
            raise TransportFailed(None, "The connection was abandoned while it was being opened.")
        self._end = end
        self.last_received = self._peer.clock.now()

    def send(self, frame: ClientFrame) -> None:
        """Pass a frame to the server."""
        if self._end is not None and not self._closed:
            self._end.receive(encode(frame))

    def pause(self) -> None:
        """Keep what arrives."""
        self._paused = True

    def resume(self) -> None:
        """Pass on what has arrived, and from now on what arrives."""
        self._paused = False
        self._pass_on()

    def _pass_on(self) -> None:
        if self._arrived and not self._paused:
            frames, self._arrived = self._arrived, []
            self._receiver.frames(frames)
        if self._over is not None and not self._paused:
            self._paused = True
            self._receiver.ended(self._over)

    async def close(self, code: int = 1000) -> None:
        """End it."""
        self.pause()
        if not self._closed:
            self._closed = True
            if self._end is not None and self._over is None:
                self._end.closed(code)
            self.ended(code, "closed by the client")

    # ------------------------------------------------------------ the server's side

    def arrived(self, data: str | bytes) -> None:
        """The server has sent one frame."""
        if self._over is None:
            self._arrived.append(decode(data))
            self.last_received = self._peer.clock.now()
            self._wake()

    def pinged(self) -> None:
        """The server has sent a byte that is not a frame."""
        self.last_received = self._peer.clock.now()

    def ended(self, code: int | None, reason: str, *, lose: bool = False) -> None:
        """The connection has ended.

        Args:
            code: Close code; None if it broke.
            reason: Description of the reason.
            lose: Whether data in transit is lost, as in a network failure.
        """
        if self._over is None:
            if lose:
                self._arrived.clear()
            self._over = TransportClosed(code, reason)
            self._wake()

    def _wake(self) -> None:
        # The server answers within `send`, and so within a step of the client.
        asyncio.get_running_loop().call_soon(self._pass_on)

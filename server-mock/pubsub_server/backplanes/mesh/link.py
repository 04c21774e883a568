"""One connection with another node: an asyncio protocol around a `Peering`."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol, cast

from hanzoai.pubsub.links.unparsed import FrameError
from pubsub_server.backplanes.mesh import codec
from pubsub_server.backplanes.mesh.lanes import Unacknowledged

if TYPE_CHECKING:
    from pubsub_server.backplanes.mesh.peering import Event, Peering


class Owner(Protocol):
    """What a link reports to the mesh."""

    def opened(self, link: Link) -> None:
        """The connection is open."""

    def on_event(self, link: Link, event: Event) -> None:
        """The peer has sent frames.

        Raises:
            FrameError: Close the connection.
        """

    def lost(self, link: Link, reason: str, detail: str) -> None:
        """The connection has ended; called once.

        Args:
            link: The connection.
            reason: One word for counters.
            detail: One sentence for the log.
        """


class Link(asyncio.Protocol):
    """See the module.

    Args:
        owner: Gets every event.
        peering: The protocol.
        clock: Monotonic seconds.
        queue_bytes: Unsent bytes above which the peer has stalled, and is cut.
        address: The address that this node has dialed; None if the peer dialed.

    Attributes:
        refused: Whether the peer has rejected subscriptions of this node.
    """

    def __init__(
        self,
        owner: Owner,
        peering: Peering,
        loop: asyncio.AbstractEventLoop,
        queue_bytes: int,
        address: str | None,
    ) -> None:
        self.peering = peering
        self.address = address
        self.ended = False
        self.refused = False
        self.peer_host = ""
        self.forwarded_bytes = 0
        self._owner = owner
        self._loop = loop
        self._queue_bytes = queue_bytes
        self._transport: asyncio.Transport | None = None
        self._pieces: list[bytes] = []
        self._size = 0
        # For a plain peer: a message that is sent on several topics at once.
        self._topics: dict[bytes, None] = {}
        self._data = b""
        self._flushing = False
        # The pong that answers the first ping after the last forwarded message.
        self._confirming = 0

    # ------------------------------------------------------------ asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See `asyncio.Protocol`."""
        self._transport = cast("asyncio.Transport", transport)
        peer = cast("tuple[object, ...] | None", transport.get_extra_info("peername"))
        self.peer_host = str(peer[0]) if peer else ""
        self._owner.opened(self)
        self.write_pending()

    def data_received(self, data: bytes) -> None:
        """See `asyncio.Protocol`."""
        try:
            for event in self.peering.received(data, self._loop.time()):
                self._owner.on_event(self, event)
                if self.ended:
                    return
        except FrameError as error:
            # The peer finds the reason in the hello of this node, if it is the version or the key.
            self.flush()
            self.cut(error.reason, str(error))
            return
        self.write_pending()

    def connection_lost(self, exc: Exception | None) -> None:
        """See `asyncio.Protocol`."""
        detail = "the peer has closed the connection" if exc is None else type(exc).__name__
        self._end("closed", detail)

    # ------------------------------------------------------------ the mesh

    def tick(self) -> None:
        """Send what is due, and close the connection if the peer is dead."""
        try:
            self.peering.tick(self._loop.time())
        except FrameError as error:
            self.cut(error.reason, str(error))
            return
        except Unacknowledged:
            self.cut("unacknowledged", "the peer does not acknowledge subscriptions")
            return
        self.write_pending()

    def announce(self) -> None:
        """Send the subscriptions of this node that are due."""
        try:
            self.peering.announce(self._loop.time())
        except Unacknowledged:
            self.cut("unacknowledged", "the peer does not acknowledge subscriptions")
            return
        self.write_pending()

    def write_pending(self) -> None:
        """Write the pending bytes of the protocol."""
        data = self.peering.output()
        if data:
            self._put(data)

    def send(self, frame: bytes) -> None:
        """Forward a message, with others of the same loop turn."""
        self._confirming = self.peering.pings + 1
        self._put(frame)
        self.forwarded_bytes += len(frame)

    @property
    def unconfirmed(self) -> bool:
        """Whether a forwarded message may be lost if the connection ends now.

        The peer may have sent what arrives after a message before it lost the connection. Only the
        answer to a later ping shows that the message has arrived.
        """
        return self.peering.pongs < self._confirming

    def send_data(self, topic: bytes, data: bytes) -> None:
        """Forward a message to a plain peer, which accepts data only.

        The same data on several topics is one frame, as the proposal specifies (Z-27).
        """
        topics = self._topics
        if topics and (data != self._data or topic in topics or len(topics) == codec.MAX_TOPICS):
            self._close_forward()
        self._topics[topic] = None
        self._data = data
        self._flush_soon()

    def flush(self) -> None:
        """Write the batched messages."""
        self._flushing = False
        if self._topics:
            self._close_forward()
        pieces, self._pieces, self._size = self._pieces, [], 0
        if not pieces or self._transport is None or self.ended:
            return
        self._transport.write(pieces[0] if len(pieces) == 1 else b"".join(pieces))

    def finish(self) -> None:
        """Write everything, then close."""
        self.peering.leave()
        self.write_pending()
        self.flush()
        if self._transport is not None:
            self._transport.close()

    def cut(self, reason: str, detail: str) -> None:
        """Close the connection now, and discard unsent bytes."""
        if self._transport is not None:
            self._transport.abort()
        self._end(reason, detail)

    # ------------------------------------------------------------ inside

    def _close_forward(self) -> None:
        frame = codec.forward(list(self._topics), self._data)
        self._topics = {}
        self.send(frame)

    def _put(self, data: bytes) -> None:
        transport = self._transport
        if self.ended or transport is None:
            return
        self._pieces.append(data)
        self._size += len(data)
        if self._size + transport.get_write_buffer_size() > self._queue_bytes:
            self.cut("stalled", "the peer does not read what is forwarded to it")
            return
        self._flush_soon()

    def _flush_soon(self) -> None:
        if not self._flushing:
            self._flushing = True
            self._loop.call_soon(self.flush)

    def _end(self, reason: str, detail: str) -> None:
        if self.ended:
            return
        self.ended = True
        self._pieces, self._size, self._topics = [], 0, {}
        self._owner.lost(self, reason, detail)

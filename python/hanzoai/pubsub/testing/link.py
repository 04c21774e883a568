"""One connection between a client and the hub, both in this process."""

from __future__ import annotations

import json
from collections import deque
from typing import TYPE_CHECKING, Any, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hanzoai.pubsub.session.ports import TransportName
    from hanzoai.pubsub.transports.memory import MemoryTransport
    from pubsub_server.hub.hub import Hub
    from pubsub_server.shared.connection import Connection

_TEXT: Final = 0x1
_PING: Final = 0x9


class Server(Protocol):
    """The server, from the view of a link."""

    @property
    def is_frozen(self) -> bool:
        """Whether no data passes in either direction."""
        ...

    def takes(self, type: str) -> bool:
        """Return whether a frame of this type may arrive."""
        ...

    def note(self, frame: dict[str, Any]) -> None:
        """Keep a frame of a client for the test to look at."""

    def gone(self, link: Link) -> None:
        """A connection has ended."""


class Link:
    """The server's end: the hub's sink, and the target of the client's transport."""

    def __init__(self, server: Server, client: MemoryTransport, transport: TransportName) -> None:
        self.transport = transport
        self._server = server
        self._client = client
        self._hub: Hub | None = None
        self._connection: Connection | None = None
        self._held: list[tuple[bool, bytes]] = []  # while the server is frozen: (inbound, data)
        self._unread: deque[bytes] = deque()  # while the hub holds this client
        self._reads = True
        self._ended = False

    def open(self, hub: Hub) -> None:
        """Introduce the connection to the hub."""
        from pubsub_server.listeners.websocket.encoder import SOCKET

        self._hub = hub
        self._connection = hub.open(self, SOCKET)

    # ------------------------------------------------------------ from the client

    def receive(self, data: bytes) -> None:
        """See ``MemoryEnd``."""
        if self._server.is_frozen:
            self._held.append((True, data))
            return
        if not self._reads:
            self._unread.append(data)
            return
        self._server.note(json.loads(data))
        if self._hub is not None and self._connection is not None and not self._ended:
            self._hub.touch(self._connection)
            self._hub.receive(self._connection, data.decode())

    def closed(self, code: int | None) -> None:
        """See ``MemoryEnd``."""
        if not self._ended:
            self._ended = True
            self._server.gone(self)
            if self._hub is not None and self._connection is not None:
                self._hub.closed(self._connection, code)

    # ------------------------------------------------------------ the hub's sink

    @property
    def caller(self) -> None:
        """See ``pubsub_server.interfaces.Sink``: memory has no addresses."""
        return

    def write(self, data: bytes) -> None:
        """See ``pubsub_server.interfaces.Sink``."""
        if self._server.is_frozen:
            self._held.append((False, data))
            return
        for opcode, payload in frames(data):
            if opcode == _PING:
                # A WebSocket library answers by itself, whatever the program is doing.
                self._client.pinged()
                if self._hub is not None and self._connection is not None:
                    self._hub.touch(self._connection)
            elif opcode == _TEXT and self._server.takes(frame_type(payload)):
                self._client.arrived(payload)

    def buffered(self) -> int:
        """See ``pubsub_server.interfaces.Sink``: memory has no backpressure."""
        return 0

    def close(self, code: int, reason: str) -> None:
        """See ``pubsub_server.interfaces.Sink``."""
        self._ended = True
        self._server.gone(self)
        self._client.ended(code, reason)

    def abort(self) -> None:
        """See ``pubsub_server.interfaces.Sink``."""
        self.cut(None, "the server cut the connection")

    def hold(self, on: bool) -> None:
        """See ``pubsub_server.interfaces.Sink``."""
        self._reads = not on
        while self._reads and self._unread:
            self.receive(self._unread.popleft())

    def freeze(self, frozen: bool) -> None:
        """See ``pubsub_server.interfaces.Sink``; a memory server is frozen as a whole."""

    # ------------------------------------------------------------ faults

    def cut(self, code: int | None, reason: str) -> None:
        """Break the connection for both sides."""
        self._client.ended(code, reason or "the connection was lost", lose=code is None)
        self.closed(None)

    def thaw(self) -> None:
        """Deliver the held data."""
        held, self._held = self._held, []
        for inbound, data in held:
            if inbound:
                self.receive(data)
            else:
                self.write(data)


def frames(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield opcode and payload of a WebSocket server's frames, which are whole and unmasked."""
    at = 0
    while at < len(data):
        opcode = data[at] & 0x0F
        length = data[at + 1] & 0x7F
        at += 2
        if length >= 126:
            size = 2 if length == 126 else 8
            length = int.from_bytes(data[at : at + size], "big")
            at += size
        yield opcode, data[at : at + length]
        at += length


def frame_type(payload: bytes) -> str:
    """Return the type of a frame."""
    if payload.startswith(b'{"type":"message"'):
        return "message"
    frame: Any = json.loads(payload)
    return str(frame.get("type"))

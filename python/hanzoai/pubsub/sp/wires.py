"""Encodes the messages of one connection with the SP codec, or as WebSocket messages. No I/O."""

from __future__ import annotations

from collections import deque
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, Protocol, cast
from urllib.parse import urlsplit

from websockets.client import ClientProtocol
from websockets.exceptions import PayloadTooBig
from websockets.frames import Frame, Opcode
from websockets.http11 import Request, Response
from websockets.protocol import SEND_EOF, State
from websockets.server import ServerProtocol
from websockets.uri import parse_uri

from hanzoai.pubsub.links.unparsed import FrameError
from hanzoai.pubsub.sp.codec import Decoder, Framing, Role, encode_hello, encode_message

if TYPE_CHECKING:
    from websockets.typing import Subprotocol

_NAMES: Final = {Role.PUB: "pub.sp.nanomsg.org", Role.SUB: "sub.sp.nanomsg.org"}
"""WebSocket subprotocol by the role of the listening side."""


class Wire(Protocol):
    """Encoder and decoder of one connection."""

    encoding: str
    """Connections with the same `encoding` encode a message to the same bytes."""

    ended: bool
    """Whether the peer has ended the connection, and this side is to close it."""

    @property
    def ready(self) -> bool:
        """Whether the peer has completed the handshake."""
        ...

    def feed(self, data: bytes) -> None:
        """Append bytes from the peer."""
        ...

    def decode(self, limit: int) -> list[bytes]:
        """Decode at most `limit` messages; see `Decoder.decode`."""
        ...

    def output(self) -> bytes:
        """Bytes that the protocol itself sends: handshakes, pongs and close frames."""
        ...

    def encode(self, body: bytes) -> bytes:
        """Encode one message."""
        ...

    def finish(self) -> None:
        """Send a close frame, if the protocol has one."""
        ...


class StreamWire:
    """SP on TCP, TLS or a Unix socket."""

    ended = False

    def __init__(self, role: Role, framing: Framing, max_message_size: int) -> None:
        self.encoding = framing.value
        self._framing = framing
        self._decoder = Decoder(role, framing, max_message_size=max_message_size)
        self._output = encode_hello(role)
        self.feed = self._decoder.feed
        self.decode = self._decoder.decode

    @property
    def ready(self) -> bool:
        """Whether the peer's hello has arrived."""
        return self._decoder.greeted

    def output(self) -> bytes:
        """The hello, once."""
        output, self._output = self._output, b""
        return output

    def encode(self, body: bytes) -> bytes:
        """Encode one message."""
        return encode_message(body, self._framing)

    def finish(self) -> None:
        """Do nothing: a stream has no close frame."""


class WebSocketWire:
    """SP in WebSocket messages, one binary message each.

    Args:
        role: The role of this side.
        max_message_size: Longest accepted body, in bytes.
        url: URL that receives the upgrade request; None on the side that listens.
        resource: The path at which this side listens.
    """

    def __init__(
        self, role: Role, max_message_size: int, *, url: str | None = None, resource: str = "/"
    ) -> None:
        self._role = role
        self._resource = resource
        self._found: deque[bytes] = deque()
        self._parts: list[bytes] = []
        self._fault: FrameError | None = None
        self.ready = False
        self.ended = False
        listening = role if url is None else role.peer
        names = [cast("Subprotocol", _NAMES[listening])]
        self._protocol: ClientProtocol | ServerProtocol
        if url is None:
            self.encoding = "ws"
            self._protocol = ServerProtocol(subprotocols=names, max_size=max_message_size)
        else:
            self.encoding = "masked ws"
            self._protocol = ClientProtocol(
                parse_uri(url), subprotocols=names, max_size=max_message_size
            )
            self._protocol.send_request(self._protocol.connect())

    def feed(self, data: bytes) -> None:
        """Append bytes from the peer: handshakes, messages and control frames."""
        self._protocol.receive_data(data)
        for event in self._protocol.events_received():
            if isinstance(event, Request):
                self._answer(event)
            elif isinstance(event, Response):
                self._check_answer()
            elif self._fault is None:
                self._collect(event)
        error = self._protocol.parser_exc or self._protocol.handshake_exc
        if self._fault is None and error is not None:
            oversize = isinstance(error, PayloadTooBig)
            reason = "oversize" if oversize else "bad_frame" if self.ready else "bad_hello"
            self._fault = FrameError(reason, str(error))

    def decode(self, limit: int) -> list[bytes]:
        """Return at most `limit` messages; raise the error once there are no more messages."""
        found = self._found
        if found:
            return [found.popleft() for _ in range(min(limit, len(found)))]
        if self._fault is not None:
            raise self._fault
        return []

    def output(self) -> bytes:
        """Handshakes, pongs and close frames to send."""
        output = self._protocol.data_to_send()
        self.ended |= SEND_EOF in output
        return b"".join(output)

    def encode(self, body: bytes) -> bytes:
        """Encode one binary message; the side that dialed masks it."""
        return Frame(Opcode.BINARY, body).serialize(mask=self.encoding == "masked ws")

    def finish(self) -> None:
        """Queue a close frame."""
        if self._protocol.state is State.OPEN:
            self._protocol.send_close(1000)

    def _answer(self, request: Request) -> None:
        protocol = cast("ServerProtocol", self._protocol)
        if urlsplit(request.path).path != urlsplit(self._resource).path:
            response = protocol.reject(HTTPStatus.NOT_FOUND, "No SP socket is at this path.\n")
        else:
            response = protocol.accept(request)
        # Broken frames right after the request have ended the connection already.
        if response.status_code == HTTPStatus.SWITCHING_PROTOCOLS or not protocol.eof_sent:
            protocol.send_response(response)
        self.ready = protocol.state is State.OPEN
        if not self.ready:
            self._fault = FrameError(
                "bad_hello", f"The upgrade was refused: {response.status_code}."
            )

    def _check_answer(self) -> None:
        protocol = self._protocol
        if protocol.handshake_exc is None and protocol.subprotocol != _NAMES[self._role.peer]:
            self._fault = FrameError("bad_hello", "The peer did not confirm the subprotocol.")
        self.ready = protocol.handshake_exc is None and self._fault is None

    def _collect(self, frame: Frame) -> None:
        if frame.opcode not in (Opcode.BINARY, Opcode.CONT):
            if frame.opcode is Opcode.TEXT:
                self._fault = FrameError("bad_type", "SP messages are binary.")
            return
        if self._role is Role.PUB:
            self._fault = FrameError("unexpected_data", "A subscriber sends no messages.")
        else:
            self._parts.append(bytes(frame.data))
            if frame.fin:
                self._found.append(b"".join(self._parts))
                self._parts = []

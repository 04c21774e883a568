"""The wire format of WebSockets: each frame of the hub is one text message."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import orjson

from pubsub_server.shared.encoder import Attends, Encoder, Liveness

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pubsub_server.backplane import Entry


class SocketEncoder(Encoder):
    """See `encoder.Encoder`."""

    name = "socket"
    keepalive = b"\x89\x00"
    """A ping without payload, which browsers answer automatically."""
    liveness = Liveness.ANSWERS
    presence = Attends.CHANGES
    resubscribes = True
    echoes = True

    def message(self, entry: Entry) -> bytes:
        """See `encoder.Encoder`."""
        body = entry.body
        length = len(body) + _WRAPPED
        if 126 <= length < 65_536:
            # Like `text_frame`, but copies the envelope only once.
            return b'\x81\x7e%b{"type":"message","message":%b}' % (length.to_bytes(2, "big"), body)
        return text_frame(b'{"type":"message","message":%b}' % body)

    def frame(self, frame: Mapping[str, object]) -> bytes:
        """See `encoder.Encoder`."""
        return text_frame(orjson.dumps(frame))


SOCKET: Final = SocketEncoder()


def text_frame(payload: bytes) -> bytes:
    """A whole WebSocket text message, unmasked as servers send it. RFC 6455, 5.2."""
    length = len(payload)
    if length < 126:
        return bytes((0x81, length)) + payload
    if length < 65_536:
        return b"\x81\x7e" + length.to_bytes(2, "big") + payload
    return b"\x81\x7f" + length.to_bytes(8, "big") + payload


_WRAPPED: Final = len(b'{"type":"message","message":}')

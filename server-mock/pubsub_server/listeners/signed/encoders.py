"""The wire formats of signed topics: each message of the hub is one SOC frame."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final

import orjson

from hanzoai.pubsub.errors import InvalidPayload
from hanzoai.pubsub.soc import SignedData, from_data
from pubsub_server.listeners.signed.modes import Parameters
from pubsub_server.shared.encoder import Encoder, Liveness
from pubsub_server.shared.envelopes import data_of

if TYPE_CHECKING:
    from pubsub_server.backplane import Entry
    from pubsub_server.listeners.signed.stream_codec import Numbering

TOPICS_MAX: Final = 10_000
"""Maximum topics whose id and owner are remembered for handshakes."""


class SocketFrames(Encoder):
    """See `encoder.Encoder`. Each message is one binary WebSocket message."""

    name = "signed"
    keepalive = b"\x89\x00"
    liveness = Liveness.ANSWERS

    def message(self, entry: Entry) -> bytes:
        """See `encoder.Encoder`."""
        signed = _signed(entry)
        return b"" if signed is None else binary_message(signed.frame)


class StreamFrames(Encoder):
    """See `encoder.Encoder`. Each message is a data frame; a session makes its first a handshake.

    Args:
        numbering: Revision of the type bytes.
    """

    name = "signed_stream"

    def __init__(self, numbering: Numbering) -> None:
        self.numbering = numbering
        self._data = bytes((numbering.data,))
        self._parameters: OrderedDict[str, Parameters] = OrderedDict()

    def message(self, entry: Entry) -> bytes:
        """See `encoder.Encoder`."""
        signed = _signed(entry)
        if signed is None:
            return b""
        self._parameters[entry.topic] = Parameters(signed.owner, signed.id)
        self._parameters.move_to_end(entry.topic)
        if len(self._parameters) > TOPICS_MAX:
            self._parameters.popitem(last=False)
        return self._data + signed.frame

    def handshake(self, topic: str, data: bytes) -> bytes | None:
        """The first bytes for a receiver, with id and owner in the first frame.

        Args:
            topic: Its name in the hub.
            data: Data frames.

        Returns:
            The bytes; None if no message of the topic has been encoded yet.
        """
        parameters = self._parameters.get(topic)
        if parameters is None:
            return None
        head = bytes((self.numbering.handshake,)) + parameters.id + parameters.owner
        return head + data[1:]


SOCKET_FRAMES: Final = SocketFrames()


def binary_message(payload: bytes) -> bytes:
    """A whole binary WebSocket message, unmasked as servers send it. RFC 6455, 5.2."""
    length = len(payload)
    if length < 126:
        return bytes((0x82, length)) + payload
    return b"\x82\x7e" + length.to_bytes(2, "big") + payload


def _signed(entry: Entry) -> SignedData | None:
    """The signed message of an entry; None if another node accepted something else."""
    try:
        return from_data(orjson.loads(data_of(entry.body)))
    except InvalidPayload:
        return None

"""The wire format of SP: the body of a message is its topic, a space and the envelope."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hanzoai.pubsub.sp.codec import Framing, encode_message
from pubsub_server.shared.encoder import Encoder

if TYPE_CHECKING:
    from pubsub_server.backplane import Entry


class SpEncoder(Encoder):
    """See `encoder.Encoder`.

    Args:
        framing: How the transport separates messages.
    """

    name = "sp"

    def __init__(self, framing: Framing) -> None:
        self._framing = framing

    def message(self, entry: Entry) -> bytes:
        """See `encoder.Encoder`."""
        return encode_message(b"%b %b" % (entry.topic.encode(), entry.body), self._framing)


ENCODERS: Final = {framing: SpEncoder(framing) for framing in Framing}

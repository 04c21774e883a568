"""The wire format of the event stream: each message is one event."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hanzoai.pubsub.eventstream.codec import MAX_PAYLOAD, MAX_TOPIC, encode_event
from hanzoai.pubsub.payload_bytes import to_bytes
from pubsub_server.shared.encoder import Encoder
from pubsub_server.shared.envelopes import data_of

if TYPE_CHECKING:
    from pubsub_server.backplane import Entry


class EventEncoder(Encoder):
    """See `encoder.Encoder`. The protocol has no answers, no errors and no keep-alive."""

    name = "events"
    resubscribes = False
    echoes = False
    queue_bytes = 2 * (MAX_TOPIC + MAX_PAYLOAD + 6)
    """Bytes of two events of the maximum size."""

    def message(self, entry: Entry) -> bytes:
        """See `encoder.Encoder`."""
        data = to_bytes(data_of(entry.body))
        # With a high `max_payload`, a message can exceed what an event can hold.
        return encode_event(entry.topic.encode(), data) if len(data) <= MAX_PAYLOAD else b""


EVENTS: Final = EventEncoder()

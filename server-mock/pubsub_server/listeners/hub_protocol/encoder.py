"""The wire format of the hub protocol: each message is one push."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from hanzoai.pubsub.hub.codec import MAX_DATA, MAX_TOPIC, SUBSCRIBE, Added, Push, Subscribed, encode
from hanzoai.pubsub.payload_bytes import to_bytes
from pubsub_server.shared.encoder import Encoder
from pubsub_server.shared.envelopes import data_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pubsub_server.backplane import Entry


class PushEncoder(Encoder):
    """See `encoder.Encoder`. Of the hub's answers, the protocol supports those to subscriptions."""

    name = "hub"
    queue_bytes = 2 * (MAX_TOPIC + MAX_DATA + 9)
    """Bytes of two messages of the maximum size."""

    def message(self, entry: Entry) -> bytes:
        """See `encoder.Encoder`."""
        return encode(Push(entry.topic.encode(), to_bytes(data_of(entry.body))))

    def frame(self, frame: Mapping[str, object]) -> bytes:
        """See `encoder.Encoder`."""
        ref = frame.get("ref")
        if not isinstance(ref, str) or frame["type"] not in {"subscribed", "error"}:
            return b""
        granted = len(cast("Sequence[str]", frame.get("topics", ())))
        opcode, id, kept = (int(part, 16) for part in ref.split("-"))
        return answer(opcode, id, kept, granted)


def reference(opcode: int, id: int, kept: int) -> str:
    """Data of a subscription for its answer.

    Args:
        opcode: Opcode of the request.
        id: Id of the subscriber.
        kept: Topics that stay on this listener.
    """
    return f"{opcode:x}-{id:x}-{kept:x}"


def answer(opcode: int, id: int, kept: int, granted: int) -> bytes:
    """The answer to a subscription for which the hub granted this many topics."""
    count = kept + granted
    return encode(Subscribed(id, count) if opcode == SUBSCRIBE else Added(count))


PUSHES: Final = PushEncoder()

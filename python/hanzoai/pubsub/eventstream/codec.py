"""The event stream on a byte stream: bytes ↔ events, without I/O.

An event is a topic length of 16 bits, the topic, a payload length of 32 bits and the payload; all
integers are big-endian. The first event of a connection subscribes to its topic, and its payload
is ignored; each later one publishes. From the broker come only published events.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple

from hanzoai.pubsub.links.unparsed import Bytes, FrameError, Unparsed

MAX_TOPIC: Final = 1024
"""Maximum bytes of a topic."""

MAX_PAYLOAD: Final = 16 * 1024 * 1024
"""Maximum bytes of a payload."""

ALL_TOPICS: Final = b"*"
"""The only wildcard: a subscription to it receives every topic."""

_TOPIC_LENGTH: Final = Struct(">H")
_PAYLOAD_LENGTH: Final = Struct(">I")


class Event(NamedTuple):
    """One event as it is on the wire."""

    topic: bytes
    payload: bytes


def encode_event(topic: Bytes, payload: Bytes = b"") -> bytes:
    """Encode one event.

    Raises:
        ValueError: The topic is longer than 1,024 bytes, or the payload than 16 MiB.
    """
    if len(topic) > MAX_TOPIC:
        raise ValueError(f"A topic has at most {MAX_TOPIC} bytes, not {len(topic)}.")
    if len(payload) > MAX_PAYLOAD:
        raise ValueError(f"A payload has at most {MAX_PAYLOAD} bytes, not {len(payload)}.")
    return b"".join(
        (_TOPIC_LENGTH.pack(len(topic)), topic, _PAYLOAD_LENGTH.pack(len(payload)), payload)
    )


class Decoder:
    """Reads events in pieces of any size.

    Args:
        max_payload: Maximum bytes of an accepted payload.
    """

    __slots__ = ("_unparsed", "max_payload")

    def __init__(self, *, max_payload: int = MAX_PAYLOAD) -> None:
        self._unparsed = Unparsed()
        self.max_payload = max_payload

    @property
    def pending(self) -> int:
        """Number of bytes that were fed and not decoded."""
        return len(self._unparsed)

    def feed(self, data: Bytes) -> None:
        """Append bytes from the peer; `decode` decodes them."""
        self._unparsed.feed(data)

    def decode(self, limit: int = -1) -> list[Event]:
        """Decode the next complete events.

        Args:
            limit: Maximum number; default: all of them.

        Raises:
            FrameError: ``topic_too_long`` or ``oversize``. Events before the fault are returned by
                an earlier call.
        """
        found: list[Event] = []
        unparsed = self._unparsed
        data, at, end = unparsed.data, unparsed.at, len(unparsed.data)
        while len(found) != limit:
            need = 2
            fault = None
            if at + 2 <= end:
                (length,) = _TOPIC_LENGTH.unpack_from(data, at)
                start = at + 6 + length
                need = 6 + length
                if length > MAX_TOPIC:
                    fault = FrameError("topic_too_long", f"A topic of {length} bytes.")
                elif start <= end:
                    (size,) = _PAYLOAD_LENGTH.unpack_from(data, start - 4)
                    stop = start + size
                    if size > self.max_payload:
                        fault = FrameError("oversize", f"A payload of {size} bytes.")
                    elif stop <= end:
                        found.append(Event(data[at + 2 : start - 4], data[start:stop]))
                        at = stop
                        continue
                    need += size
            unparsed.at = at
            if fault is not None:
                if found:
                    return found
                raise fault
            if not unparsed.gather(need):
                return found
            data, at, end = unparsed.data, unparsed.at, len(unparsed.data)
        unparsed.at = at
        return found

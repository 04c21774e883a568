"""Topics and payloads of the byte protocols, which may be any bytes."""

from __future__ import annotations

from hanzoai.pubsub.errors import InvalidTopic
from hanzoai.pubsub.payload_bytes import to_json
from hanzoai.pubsub.topics import validate_topic


def hub_topic(topic: bytes) -> str | None:
    """The topic as HIP-56 names it; None if it is not valid in HIP-56."""
    try:
        return validate_topic(topic.decode("ascii"))
    except (UnicodeDecodeError, InvalidTopic):
        return None


def hub_payload(payload: bytes, limit: int) -> bytes | None:
    """The payload as JSON; None if the JSON has more than `limit` bytes."""
    # No JSON is shorter than the bytes that it encodes, and 16 MiB of them take seconds to convert.
    if len(payload) > limit:
        return None
    encoded = to_json(payload)
    return encoded if len(encoded) <= limit else None


def shown(topic: bytes) -> str:
    """The topic for rules and audit, for any bytes."""
    return topic.decode(errors="replace")

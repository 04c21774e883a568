"""Topics of the byte protocols, which may be any bytes."""

from __future__ import annotations

from hanzoai.pubsub.errors import InvalidTopic
from hanzoai.pubsub.topics import validate_topic


def hub_topic(topic: bytes) -> str | None:
    """The topic as HIP-56 names it; None if it is not valid in HIP-56."""
    try:
        return validate_topic(topic.decode("ascii"))
    except (UnicodeDecodeError, InvalidTopic):
        return None


def shown(topic: bytes) -> str:
    """The topic for rules and audit, for any bytes."""
    return topic.decode(errors="replace")

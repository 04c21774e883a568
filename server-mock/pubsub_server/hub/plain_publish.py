"""The publish that the SDKs send, read in one step; every other frame is left to `codec`.

A frame is plain if it is right and has the nested form, `{"type": "publish", "message": {…}}`,
with no field beside those of HIP-56. What is wrong, or right in another reading, is not plain:
`codec` looks at it, and says what is wrong. It reads a plain frame in the same way, only slower.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Annotated, Any, Final, Literal

import msgspec
import orjson

from hanzoai.pubsub.errors import InvalidTopic
from hanzoai.pubsub.topics import validate_topic
from pubsub_server.shared.codec import MAX_META
from pubsub_server.shared.requests import Draft, PlainPublish

TOPICS_KNOWN: Final = 10_000
"""Names that were found to be right recently."""


class _Message(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    topic: str
    data: Any
    type: Annotated[str, msgspec.Meta(min_length=1, max_length=128)] | None = None
    ttl: Annotated[int, msgspec.Meta(ge=0, lt=2**53)] | None = None
    id: Annotated[str, msgspec.Meta(min_length=1, max_length=128)] | None = None
    meta: dict[str, Any] | None = None


class _Publish(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    type: Literal["publish"]
    message: _Message
    ref: Annotated[str, msgspec.Meta(min_length=1, max_length=64)] | None = None


_read = msgspec.json.Decoder(_Publish).decode
_topic = lru_cache(TOPICS_KNOWN)(validate_topic)


def plain_publish(data: str | bytes, max_payload: int) -> PlainPublish | None:
    """What a plain frame asks; None for every other one.

    Args:
        data: One inbound frame.
        max_payload: Bytes of JSON-encoded ``data``; what has more is not plain.
    """
    try:
        frame = _read(data)
        message = frame.message
        payload = orjson.dumps(message.data)
        meta = None if message.meta is None else orjson.dumps(message.meta)
        topic = _topic(message.topic)
    # Whole numbers beyond 64 bits are read, and cannot be written.
    except (
        msgspec.MsgspecError,
        UnicodeDecodeError,
        orjson.JSONEncodeError,
        RecursionError,
        InvalidTopic,
    ):
        return None
    if len(payload) > max_payload or (meta is not None and len(meta) > MAX_META):
        return None
    draft = Draft(topic, message.type or "message", payload, message.ttl, message.id, meta)
    return PlainPublish(draft, frame.ref)

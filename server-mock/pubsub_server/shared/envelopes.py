"""The JSON of a message, encoded once for all receivers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import orjson

if TYPE_CHECKING:
    from pubsub_server.shared.requests import Draft


def envelope(
    draft: Draft, id: str, timestamp: int, seq: int | None, sender: tuple[str, str]
) -> bytes:
    """The JSON of a message, as every transport delivers it. HIP-56 Message Format."""
    body: dict[str, object] = {
        "id": id,
        "topic": draft.topic,
        "type": draft.type,
        "data": orjson.Fragment(draft.data),
        "sender": {"type": sender[0], "id": sender[1]},
        "timestamp": timestamp,
    }
    if draft.ttl is not None:
        body["ttl"] = draft.ttl
    if seq is not None:
        body["seq"] = seq
    if draft.meta is not None:
        body["meta"] = orjson.Fragment(draft.meta)
    return orjson.dumps(body)


class _Data(msgspec.Struct):
    data: msgspec.Raw


_DATA = msgspec.json.Decoder(_Data)


def data_of(body: bytes) -> bytes:
    """The JSON of a message's ``data``, as it is in the envelope."""
    return bytes(_DATA.decode(body).data)

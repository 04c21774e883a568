"""The messages of the benchmarks: HIP-56 envelopes of about 250 bytes, in each wire format."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

TOPIC = "chat.session.sess_abc123"
START = 1_740_307_200_000
FIRST_SEQ = START * 1000


def envelope(index: int) -> bytes:
    """One token of a streamed response."""
    return json.dumps(
        {
            "id": f"msg_01JMZ3X8Q2{index:016d}",
            "topic": TOPIC,
            "type": "token",
            "data": {"content": " straightforward", "index": index},
            "sender": {"type": "service", "id": "llm-gateway-01"},
            "timestamp": START + index // 10,
            "ttl": 3600,
            "seq": FIRST_SEQ + index,
        },
        separators=(",", ":"),
    ).encode()


def text_frame(payload: bytes) -> bytes:
    """A WebSocket text message as a server sends it (RFC 6455, section 5.2)."""
    size = len(payload)
    if size < 126:
        return bytes((0x81, size)) + payload
    if size < 65_536:
        return b"\x81\x7e" + size.to_bytes(2, "big") + payload
    return b"\x81\x7f" + size.to_bytes(8, "big") + payload


def hip56(index: int) -> bytes:
    return text_frame(b'{"type":"message","message":' + envelope(index) + b"}")


def centrifugo(index: int) -> bytes:
    body = b'{"push":{"channel":"%s","pub":{"data":%s,"offset":%d}}}'
    return text_frame(body % (TOPIC.encode(), envelope(index), index + 1))


def nats(index: int) -> bytes:
    payload = envelope(index)
    return b"MSG %s 1 %d\r\n%s\r\n" % (TOPIC.encode(), len(payload), payload)


WIRE: dict[str, Callable[[int], bytes]] = {"hip56": hip56, "centrifugo": centrifugo, "nats": nats}

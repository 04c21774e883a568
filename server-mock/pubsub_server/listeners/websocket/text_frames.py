"""Decodes whole WebSocket text messages without a parser: nearly all messages of clients.

RFC 6455, 5.2. All other bytes (a control frame, a fragment, a reserved bit, a frame that is too
large or incomplete) go to the sans-I/O core of the `websockets` library, which reports errors.
"""

from __future__ import annotations

from typing import Final

try:
    from websockets.speedups import apply_mask
except ImportError:  # pragma: no cover - a platform for which the library has no compiled part
    from websockets.utils import apply_mask


MOST: Final = 128
"""Maximum messages that are decoded at once."""


def text_frames(data: bytes, limit: int) -> tuple[list[bytes], int]:
    """The complete messages at the beginning of these bytes, at most `MOST`.

    Args:
        data: Received bytes, from the beginning of a frame.
        limit: Maximum bytes of a message.

    Returns:
        Their payloads, unmasked, in order, and the index of the rest.
    """
    found: list[bytes] = []
    at, end = 0, len(data)
    while end - at > 5 and data[at] == 0x81 and len(found) < MOST:
        size, body = data[at + 1] - 0x80, at + 6
        if size == 126:
            size, body = data[at + 2] << 8 | data[at + 3], at + 8
        elif size == 127:
            size, body = int.from_bytes(data[at + 2 : at + 10], "big"), at + 14
        after = body + size
        # A negative size is that of a frame without a mask.
        if size < 0 or size > limit or after > end:
            break
        found.append(apply_mask(data[body:after], data[body - 4 : body]))
        at = after
    return found, at

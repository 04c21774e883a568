"""Remembers message ids after the messages are gone, so that each publish counts once."""

from __future__ import annotations

import struct
from functools import lru_cache
from hashlib import blake2b
from typing import Final, NamedTuple

KEY_BYTES: Final = 16
_PACKED: Final = struct.Struct("<QQq")
_ULID_SIZE: Final = 26
_TIME_SIZE: Final = 10
_DIGITS: Final = str.maketrans(
    "0123456789ABCDEFGHJKMNPQRSTVWXYZ", "0123456789abcdefghijklmnopqrstuv"
)


@lru_cache(maxsize=4096)
def scope(sender: tuple[str, str]) -> str:
    """Separates the ids of a sender (its kind and id) from those of all other senders."""
    kind, user = sender
    return f"{kind} {len(user.encode())} {user}"


def id_key(topic: str, sender: tuple[str, str], id: str) -> bytes:
    """The key of a sender's id in a topic: 16 bytes."""
    return blake2b(f"{topic} {scope(sender)} {id}".encode(), digest_size=KEY_BYTES).digest()


def created_ms(id: str) -> int | None:
    """Unix ms at which an id was probably created; None if it is not `msg_` and a ULID."""
    ulid = id.removeprefix("msg_")
    # `int` also accepts signs, spaces and underscores.
    if len(ulid) != _ULID_SIZE or not (ulid.isascii() and ulid.isalnum()):
        return None
    try:
        return int(ulid[:_TIME_SIZE].translate(_DIGITS), 32)
    except ValueError:
        return None


class Seen(NamedTuple):
    """The result of a publish.

    Attributes:
        timestamp: Unix ms.
        seq: 0 if the message has no position.
        mark: The hash of its envelope, valid in this process.
    """

    timestamp: int
    seq: int
    mark: int


class IdMemory:
    """Remembers the newest ids: at least ``most``, at most twice as many.

    There are two halves. When the newer half is full or old enough, it replaces the older half,
    whose ids are forgotten.

    Args:
        most: Maximum ids of one half.
        age: Milliseconds for which an id is remembered, if there is room.
    """

    def __init__(self, most: int, age: int) -> None:
        self._most = most
        self._age = age
        self._newer: dict[bytes, bytes] = {}
        self._older: dict[bytes, bytes] = {}
        # Start of the newer half, and time of the last id of the older half.
        self._began = 0
        self._ended = 0

    def __len__(self) -> int:
        return len(self._newer) + len(self._older)

    def get(self, topic: str, sender: tuple[str, str], id: str, now: int) -> Seen | None:
        """The result remembered for an id that a sender uses in a topic."""
        key = id_key(topic, sender, id)
        packed = self._newer.get(key) or self._older.get(key)
        if packed is None:
            return None
        seen = Seen(*_PACKED.unpack(packed))
        return None if seen.timestamp + self._age <= now else seen

    def add(self, topic: str, sender: tuple[str, str], id: str, seen: Seen, now: int) -> None:
        """Remember an id."""
        self.expire(now)
        if not self._newer:
            self._began = now
        elif len(self._newer) >= self._most:
            self._turn(now)
        self._newer[id_key(topic, sender, id)] = _PACKED.pack(*seen)

    def expire(self, now: int) -> None:
        """Forget old ids; called periodically."""
        if self._newer and self._began + self._age <= now:
            self._turn(now)
        if self._older and self._ended + self._age <= now:
            self._older = {}

    def clear(self) -> None:
        """Forget all."""
        self._newer, self._older = {}, {}

    def _turn(self, now: int) -> None:
        self._older, self._newer = self._newer, {}
        self._began = self._ended = now

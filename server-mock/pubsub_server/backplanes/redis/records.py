"""What the scripts are given and what they answer, as bytes."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

from pubsub_server.backplane import Entry
from pubsub_server.shared.envelopes import envelope

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pubsub_server.shared.requests import Draft

MARK_BYTES: Final = 12
_STAMP: Final = b',"timestamp":0'


@dataclass(frozen=True, slots=True)
class Parts:
    """An envelope without the two numbers that the store gives it.

    Attributes:
        head: Up to the timestamp.
        middle: Between timestamp and position.
        tail: Behind the position.
        fingerprint: Equal for equal publications of the same sender.
    """

    head: bytes
    middle: bytes
    tail: bytes
    fingerprint: bytes

    @property
    def size(self) -> int:
        """Bytes."""
        return len(self.head) + len(self.middle) + len(self.tail)


def split(draft: Draft, id: str, sender: tuple[str, str]) -> Parts:
    """Cut the envelope of a publication where the store's numbers go."""
    whole = envelope(draft, id, 0, None, sender)
    meta = b"" if draft.meta is None else b',"meta":' + draft.meta
    end = len(whole) - 1 - len(meta)
    ttl = b"" if draft.ttl is None else b',"ttl":%d' % draft.ttl
    stamp = end - len(ttl) - len(_STAMP)
    if whole[stamp : stamp + len(_STAMP)] != _STAMP:
        raise AssertionError("the envelope has its timestamp elsewhere")
    head = whole[: stamp + len(_STAMP) - 1]
    return Parts(head, ttl, meta + b"}", blake2b(whole, digest_size=MARK_BYTES).digest())


def unpack(payload: bytes) -> Iterator[Entry]:
    """The messages of one payload of a channel.

    Raises:
        ValueError: It is not one that `publish.lua` makes.
    """
    at = 0
    while at < len(payload):
        end = payload.index(b"\n", at)
        seq, time, expires, topic, id, body = map(int, payload[at:end].split(b" "))
        at = end + 1
        stop = at + topic + id + body
        if stop > len(payload):
            raise ValueError("a record is cut off")
        yield Entry(
            payload[at : at + topic].decode(),
            payload[at + topic : at + topic + id].decode(),
            time,
            seq or None,
            expires,
            payload[at + topic + id : stop],
        )
        at = stop


@dataclass(frozen=True, slots=True)
class Log:
    """What `read.lua` says of one topic.

    Attributes:
        start: Position of the first message that this log numbered.
        last: Position of the newest one.
        latest: Its time, Unix ms.
        lost: Time, Unix ms, of the newest message that may lack though it is of this topic: let go
            of for want of room, or lost by the store; 0 for none.
        size: Messages in the log, with those whose time is over.
        entries: Those asked for, oldest first, with those whose time is over.
    """

    start: int
    last: int
    latest: int
    lost: int
    size: int
    entries: Sequence[Entry]

    def behind(self, after: int, now: int) -> tuple[list[Entry], bool, bool]:
        """What a reader that is at this position lacks.

        Returns:
            The messages; whether some of what it lacks is gone; whether the position is of another
            log than this one.
        """
        anew = after < self.start - 1 or after > self.last
        mark = self.start - 1 if anew else after
        some = [each for each in self.entries if each.expires > now and (each.seq or 0) > mark]
        return some, len(some) < self.last - mark, anew

    def newer(self, since: int, now: int) -> tuple[list[Entry], bool]:
        """What is newer than this, Unix ms; and whether some of that is gone."""
        some = [each for each in self.entries if each.timestamp > since]
        alive = [each for each in some if each.expires > now]
        whole = not some or some[-1].seq == self.last
        gone = len(alive) < len(some) or self.lost > since
        return alive, gone or not whole or (not some and self.latest > since)


def read_log(
    topic: str, state: bytes, size: int, rows: Sequence[tuple[bytes, Sequence[bytes]]]
) -> Log | None:
    """One topic of an answer of `read.lua`; None where there is no log."""
    if not state:
        return None
    start, last, latest, lost = map(int, state.split(b" "))
    entries = [
        Entry(
            topic,
            fields[5].decode(),
            int(fields[1]),
            int(id.partition(b"-")[0]),
            int(fields[3]),
            fields[7],
        )
        for id, fields in rows
    ]
    return Log(start, last, latest, lost, size, entries)

"""What Redis holds: names of keys and channels, and the records that the scripts take and give.

Each shard has one hash tag, so that a cluster keeps its keys together.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b, sha1
from struct import Struct
from typing import TYPE_CHECKING, Final, Literal
from zlib import crc32

from pubsub_server.backplane import Entry
from pubsub_server.shared.envelopes import envelope
from pubsub_server.shared.roster import MemberChange

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pubsub_server.shared.requests import Draft

VERSION: Final = 2
"""Of what the keys are called and hold; nodes with different ones cannot share them."""


class Layout:
    """Which shard a topic belongs to, and what its keys and channels are called.

    Args:
        prefix: What all names begin with; services that share a Redis take different ones.
        shards: How many; the same on every node, forever.

    Attributes:
        prefix: As given.
        bases: What the names of each shard begin with.
    """

    def __init__(self, prefix: str, shards: int) -> None:
        self.prefix = prefix
        self.bases = tuple(f"{prefix}:{{{shard}}}" for shard in range(shards))

    def shard(self, topic: str) -> int:
        """The shard of a topic: its CRC-32 by the number of shards."""
        return crc32(topic.encode()) % len(self.bases)

    def channel(self, topic: str) -> str:
        """What brings the messages of a topic alone."""
        return f"{self.bases[self.shard(topic)]}:t:{topic}"

    def index(self, shard: int) -> str:
        """The key that holds the topics of a shard by the time of their newest message."""
        return f"{self.bases[shard]}:z"

    def members(self, topic: str) -> str:
        """The key that holds who is on a topic."""
        return f"{self.bases[self.shard(topic)]}:p:{topic}"

    def attended(self, shard: int) -> str:
        """The key that holds the topics of a shard with a member by the time of the last change."""
        return f"{self.bases[shard]}:q"

    def emptied(self, shard: int) -> str:
        """The key of the topics whose last member has left."""
        return f"{self.bases[shard]}:e"

    def starts(self, shard: int) -> str:
        """The key that holds where logs of a shard will start that have no message yet."""
        return f"{self.bases[shard]}:f"

    @property
    def owners(self) -> list[str]:
        """The keys that hold the nodes with members or counters in a shard, one for each shard."""
        return [f"{base}:o" for base in self.bases]

    @property
    def nodes(self) -> str:
        """The key that holds the nodes by the time of their last beat."""
        return f"{self.bases[0]}:nodes"

    @property
    def left(self) -> str:
        """The key that holds the nodes that were stopped in order by the time of that."""
        return f"{self.bases[0]}:left"

    @property
    def laid(self) -> str:
        """The key that holds `mark` of the first node that wrote under the prefix."""
        return f"{self.bases[0]}:layout"

    @property
    def mark(self) -> str:
        """Version and number of shards, which all nodes have to have in common."""
        return f"{VERSION} {len(self.bases)}"

    @property
    def timeout(self) -> str:
        """The key that holds `node_timeout` of the node that was started last, ms."""
        return f"{self.bases[0]}:timeout"

    @property
    def secret(self) -> str:
        """The key that holds what client ids are sealed with."""
        return f"{self.bases[0]}:secret"

    def bucket(self, name: str) -> str:
        """The key that holds what one user may publish over REST."""
        return f"{self.bases[self.shard(name)]}:b:{name}"


# ---------------------------------------------------------------- records

MARK_BYTES: Final = 12
_HEAD: Final = Struct("<cdddHHI")
NUMBERS: Final = Struct("<Hdddd")
"""Of one message for `publish.lua`: index of its key, messages and age of its log, ttl, floor."""
PRESENCE: Final = b"p"
"""First byte of a payload of presence; one of messages begins with `m`."""

_CHANGES: Final[dict[bytes, Literal["join", "leave", "update", "move"]]] = {
    b"pj": "join",
    b"pl": "leave",
    b"pu": "update",
    b"pm": "move",
}
_STAMP: Final = b',"timestamp":0'


@dataclass(frozen=True, slots=True)
class Parts:
    """An envelope without the two numbers that the store gives it.

    Attributes:
        head: Up to the timestamp.
        middle: Between timestamp and position.
        tail: Behind the position.
        fingerprint: Equal for equal publications of the same sender.
        size: Bytes.
    """

    head: bytes
    middle: bytes
    tail: bytes
    fingerprint: bytes
    size: int = 0


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
    print = blake2b(whole, digest_size=MARK_BYTES).digest()
    return Parts(head, ttl, meta + b"}", print, len(whole))


def id_key(topic: str, scope: str, id: str) -> str:
    """What stands for an id of a sender in a topic, as `key_of` in `publish.lua` makes it."""
    return sha1(f"{topic} {scope} {id}".encode(), usedforsecurity=False).hexdigest()[:20]


def unpack(payload: bytes) -> Iterator[Entry]:
    """The messages of one payload of a channel, or of one entry of a log.

    Raises:
        ValueError: It is not one that `record_of` in `shared.lua` makes.
    """
    at, size = 0, len(payload)
    while at < size:
        if size - at < _HEAD.size:
            raise ValueError("a record is cut off")
        kind, seq, time, expires, topic, id, body = _HEAD.unpack_from(payload, at)
        start = at + _HEAD.size
        middle, last = start + topic, start + topic + id
        at = last + body
        if kind != b"m" or at > size:
            raise ValueError("a record is cut off, or of another kind")
        yield Entry(
            payload[start:middle].decode(),
            payload[middle:last].decode(),
            int(time),
            int(seq) or None,
            int(expires),
            payload[last:at],
        )


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


def read_log(state: bytes, size: int, rows: Sequence[tuple[bytes, Sequence[bytes]]]) -> Log | None:
    """One topic of an answer of `read.lua`; None where there is no log."""
    if not state:
        return None
    start, last, latest, lost = map(int, state.split(b" "))
    entries = [entry for _, fields in rows for entry in unpack(fields[1])]
    return Log(start, last, latest, lost, size, entries)


def read_changes(payload: bytes) -> Iterator[MemberChange]:
    """The changes of one payload of a channel.

    Raises:
        ValueError: It is not one that the scripts make.
    """
    at = 0
    while at < len(payload):
        end = payload.index(b"\n", at)
        kind, *numbers = payload[at:end].split(b" ")
        change = _CHANGES.get(kind)
        if change is None:
            raise ValueError(f"there is no change {kind!r}")
        time, *sizes = map(int, numbers)
        parts: list[bytes] = []
        at = end + 1
        for size in sizes:
            parts.append(payload[at : at + size])
            at += size
        if at > len(payload):
            raise ValueError("a change is cut off")
        topic, client_id, id, shown = parts
        yield MemberChange(change, topic.decode(), client_id.decode(), id.decode(), time, shown)


def read_members(row: Sequence[bytes], node: str) -> dict[str, tuple[bool, bytes]]:
    """One topic of an answer of `present.lua`."""
    members: dict[str, tuple[bool, bytes]] = {}
    for client_id, held in zip(row[::2], row[1::2], strict=True):
        owner, _, shown = held.partition(b" ")
        members[client_id.decode()] = (owner == node.encode(), shown)
    return members

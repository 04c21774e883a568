"""The data in Redis: names of keys and channels, and the records of the scripts.

Each shard has one hash tag, so that a cluster keeps its keys together.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from struct import Struct
from struct import error as StructError
from typing import TYPE_CHECKING, Final, Literal
from zlib import crc32

import msgspec
import orjson

from hanzoai.pubsub.wire.ids import message_id
from pubsub_server.backplane import Entry
from pubsub_server.backplanes.ids import id_key, scope
from pubsub_server.shared.envelopes import envelope
from pubsub_server.shared.requests import Draft
from pubsub_server.shared.roster import MemberChange

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pubsub_server.backplanes.retention import Retention

VERSION: Final = 4
"""Version of the names and formats of the keys; nodes with different versions cannot share them."""


class Layout:
    """Maps a topic to its shard, and to the names of its keys and channels.

    Args:
        prefix: Prefix of all names; services that share a Redis need different ones.
        shards: Number of shards; it must be the same on every node and never change.
        cluster: Whether the shards are on a Redis Cluster.

    Attributes:
        prefix: As given.
        bases: The prefix of the names of each shard.
        lanes: Shards that share connections and queues. In a cluster each shard has its own lane,
            so that an unavailable server delays only its own topics.
    """

    def __init__(self, prefix: str, shards: int, *, cluster: bool = False) -> None:
        self.prefix = prefix
        self.bases = tuple(f"{prefix}:{{{shard}}}" for shard in range(shards))
        lanes = shards if cluster else 1
        self.lanes = tuple(range(lane, shards, lanes) for lane in range(lanes))

    def shard(self, topic: str) -> int:
        """The shard of a topic: its CRC-32 modulo the number of shards."""
        return crc32(topic.encode()) % len(self.bases)

    def lane(self, topic: str) -> int:
        """The number of the lane of a topic."""
        return self.shard(topic) % len(self.lanes)

    def channel(self, topic: str) -> str:
        """The channel with the messages of one topic."""
        return f"{self.bases[self.shard(topic)]}:t:{topic}"

    def index(self, shard: int) -> str:
        """The key that holds the topics of a shard by the time of their newest message."""
        return f"{self.bases[shard]}:z"

    def members(self, topic: str) -> str:
        """The key of the members of a topic."""
        return f"{self.bases[self.shard(topic)]}:p:{topic}"

    def attended(self, shard: int) -> str:
        """The key that holds the topics of a shard with a member by the time of the last change."""
        return f"{self.bases[shard]}:q"

    def starts(self, shard: int) -> str:
        """The key of the first positions of those logs of a shard that have no message yet."""
        return f"{self.bases[shard]}:f"

    @property
    def owners(self) -> list[str]:
        """The keys that hold the nodes with members or counters in a shard, one for each shard."""
        return [f"{base}:o" for base in self.bases]

    @property
    def nodes(self) -> str:
        """The key of the nodes by the time of their last heartbeat."""
        return f"{self.bases[0]}:nodes"

    @property
    def revoked(self) -> str:
        """The key of the ids of removed nodes, in the shard of `nodes`."""
        return f"{self.bases[0]}:d"

    @property
    def left(self) -> str:
        """The key of the nodes that were shut down, by the time of their shutdown."""
        return f"{self.bases[0]}:left"

    @property
    def mark_key(self) -> str:
        """The key that holds `mark` of the first node that wrote under the prefix."""
        return f"{self.bases[0]}:layout"

    @property
    def mark(self) -> str:
        """Version and number of shards, which must be equal on all nodes."""
        return f"{VERSION} {len(self.bases)}"

    @property
    def timeout(self) -> str:
        """The key of the `node_timeout` of the most recently started node, ms."""
        return f"{self.bases[0]}:timeout"

    @property
    def secret(self) -> str:
        """The key of the secret that seals client ids."""
        return f"{self.bases[0]}:secret"

    def bucket(self, name: str) -> str:
        """The key of the REST publish budget of one user."""
        return f"{self.bases[self.shard(name)]}:b:{name}"


# ---------------------------------------------------------------- records

MARK_BYTES: Final = 12
KEY_BYTES: Final = 10
KNOWN: Final = 10_000
"""Maximum topics and senders whose part of the messages is cached."""
_CALL: Final = Struct("<HB")
_NUMBERS: Final = Struct("<Bdd")
_REST: Final = Struct(f"<d{KEY_BYTES}s{MARK_BYTES}sHHIHI")
_RECORD: Final = Struct(f"<cdddd{KEY_BYTES + MARK_BYTES}xHHIHI")
PLACE: Final = Struct("<cdd")
"""Answer of `publish.lua` for a message: kind, position and time."""
MESSAGE: Final = b"m"
"""First byte of a payload of messages."""
PRESENCE: Final = b"p"
"""First byte of a presence payload."""

_CHANGES: Final[dict[bytes, Literal["join", "leave", "update", "move"]]] = {
    b"pj": "join",
    b"pl": "leave",
    b"pu": "update",
    b"pm": "move",
}


class Item(msgspec.Struct, gc=False):
    """One message to be published.

    Attributes:
        topic: Its topic.
        shard: The shard of its topic.
        id: As chosen by its publisher or by this node.
        scope: Of the ids of its publisher, see `backplanes.ids.scope`.
        packed: As `publish.lua` takes it, without the numbers of the call; see `argument`.
        size: Bytes of its envelope.
        fresh: Whether this node has created the id, so that no earlier message has it.
        tried: Whether an earlier call may have published it.
    """

    topic: str
    shard: int
    id: str
    scope: str
    packed: bytes
    size: int
    fresh: bool = False
    tried: bool = False

    def argument(self, index: int) -> bytes:
        """The message for a call of `publish.lua`, with the index of its shard from 1."""
        return _CALL.pack(index, self.tried or not self.fresh) + self.packed


class _About(msgspec.Struct, gc=False):
    """What the messages of a topic have in common.

    Attributes:
        shard: The shard of the topic.
        age: Milliseconds for which its log retains a message.
        lead: The retained messages and the topic, as in an argument of `publish.lua`.
        name: The topic.
    """

    shard: int
    age: int
    lead: bytes
    name: bytes


class Packer:
    """Packs publications as `publish.lua` takes them.

    Args:
        layout: Finds the shard of a topic.
        retention: What each log keeps.
    """

    def __init__(self, layout: Layout, retention: Retention) -> None:
        self._layout = layout
        self._retention = retention
        self._about = lru_cache(KNOWN)(self._of)

    def pack(self, draft: Draft, sender: tuple[str, str], floor: int) -> Item:
        """Pack a publication; give it an id if it has none, so that it can be repeated.

        Args:
            draft: The publication.
            sender: Kind and id of the publisher.
            floor: The highest position of the topic that this node knows; 0 for none.
        """
        topic = draft.topic
        about = self._about(topic)
        fresh = draft.id is None
        id = draft.id = draft.id or message_id()
        head, middle, tail = split(draft, id, sender)
        age = about.age
        ttl = age if draft.ttl is None else min(draft.ttl * 1000, age)
        key = id_key(topic, sender, id)[:KEY_BYTES]
        mark = blake2b(head + middle + tail, digest_size=MARK_BYTES).digest()
        name, text = about.name, id.encode()
        sizes = len(name), len(text), len(head), len(middle), len(tail)
        # A message with ttl 0 gets no position.
        numbers = _NUMBERS.pack(draft.ttl != 0, age, floor)
        rest = _REST.pack(ttl, key, mark, *sizes)
        packed = b"".join((numbers, about.lead, rest, name, text, head, middle, tail))
        size = sum(sizes[2:])
        return Item(topic, about.shard, id, scope(sender), packed, size, fresh)

    def _of(self, topic: str) -> _About:
        keep, name = self._retention.of(topic), topic.encode()
        kept = b"%d" % keep.messages
        lead = b"".join((bytes((len(kept),)), kept, len(name).to_bytes(2, "little"), name))
        return _About(self._layout.shard(topic), keep.age, lead, name)


def split(draft: Draft, id: str, sender: tuple[str, str]) -> tuple[bytes, bytes, bytes]:
    """The envelope of a publication before, between and after the numbers of the store.

    The store assigns the timestamp and, behind ``ttl``, the position.
    """
    before, after = _around_data(draft.topic, draft.type, sender)
    head = b'{"id":%b%b%b%b' % (orjson.dumps(id), before, draft.data, after)
    middle = b"" if draft.ttl is None else b',"ttl":%d' % draft.ttl
    tail = b"}" if draft.meta is None else b',"meta":%b}' % draft.meta
    return head, middle, tail


@lru_cache(maxsize=KNOWN)
def _around_data(topic: str, type: str, sender: tuple[str, str]) -> tuple[bytes, bytes]:
    """The envelope between id and data, and between data and timestamp."""
    draft = Draft(topic, type, b"0", None, None, None)
    whole = envelope(draft, "", 0, None, sender)
    data = whole.index(b',"data":0,') + len(b',"data":')
    return whole[len(b'{"id":""') : data], whole[data + 1 : -len(b"0}")]


def sent_at(payload: bytes) -> int:
    """Unix ms at which Redis has sent a payload of a channel; later ones have no older messages.

    A payload without messages has the microseconds in its second word. 0 for any other format.
    """
    try:
        if payload.startswith(MESSAGE):
            return int(_RECORD.unpack_from(payload)[2])
        return int(payload.split(b" ", 2)[1]) // 1000
    except (IndexError, OverflowError, ValueError, StructError):
        return 0


def unpack(payload: bytes) -> Iterator[Entry]:
    """The messages of one payload of a channel, or of one entry of a log.

    Raises:
        ValueError: It does not have the format of `logs.lua`.
    """
    at, end = 0, len(payload)
    while at < end:
        if end - at < _RECORD.size:
            raise ValueError("a record is cut off")
        kind, seq, time, _, ttl, *sizes = _RECORD.unpack_from(payload, at)
        topic_size, id_size, head_size, middle_size, tail_size = sizes
        topic = at + _RECORD.size
        id = topic + topic_size
        head = id + id_size
        middle = head + head_size
        tail = middle + middle_size
        at = tail + tail_size
        if kind != MESSAGE or at > end:
            raise ValueError("a record is cut off, or of another kind")
        seq, time = int(seq), int(time)
        yield Entry(
            payload[topic:id].decode(),
            payload[id:head].decode(),
            time,
            seq or None,
            time + int(ttl),
            b'%b%d%b,"seq":%d%b'
            % (payload[head:middle], time, payload[middle:tail], seq, payload[tail:at])
            if seq
            else b"%b%d%b" % (payload[head:middle], time, payload[middle:at]),
        )


@dataclass(frozen=True, slots=True)
class Log:
    """The answer of `read.lua` for one topic.

    Attributes:
        start: Position of the first message that this log numbered.
        last: Position of the newest one.
        latest: Its time, Unix ms.
        lost: Unix ms of the newest message that may be missing: evicted, or lost by the store; 0
            for none.
        size: Messages in the log, including expired ones.
        entries: The requested messages, oldest first, including expired ones.
    """

    start: int
    last: int
    latest: int
    lost: int
    size: int
    entries: Sequence[Entry]

    def behind(self, after: int, now: int) -> tuple[list[Entry], bool, bool]:
        """The messages after a position.

        Returns:
            The messages; whether some messages after the position are gone; whether the position
            belongs to another log.
        """
        restarted = after < self.start - 1 or after > self.last
        mark = self.start - 1 if restarted else after
        some = [each for each in self.entries if each.expires > now and (each.seq or 0) > mark]
        return some, len(some) < self.last - mark, restarted

    def newer(self, since: int, now: int, *, to_end: bool = True) -> tuple[list[Entry], bool]:
        """The messages newer than this, Unix ms; and whether some of them are gone.

        Args:
            since: The time.
            now: Redis time, Unix ms.
            to_end: Whether the newest messages of the log were requested.
        """
        some = [each for each in self.entries if each.timestamp > since]
        alive = [each for each in some if each.expires > now]
        gone = len(alive) < len(some) or self.lost > since
        if to_end:
            gone = gone or (some[-1].seq != self.last if some else self.latest > since)
        return alive, gone


def read_log(state: bytes, size: int, rows: Sequence[tuple[bytes, Sequence[bytes]]]) -> Log | None:
    """One topic of an answer of `read.lua`; None if there is no log."""
    if not state:
        return None
    start, last, latest, lost = map(int, state.split(b" "))
    entries = [entry for _, fields in rows for entry in unpack(fields[1])]
    return Log(start, last, latest, lost, size, entries)


def read_changes(payload: bytes) -> Iterator[MemberChange]:
    """The changes of one payload of a channel.

    Raises:
        ValueError: It does not have the format of the scripts.
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

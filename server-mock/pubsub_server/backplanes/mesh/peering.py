"""The protocol of one connection to another node, without I/O.

Both sides send a hello. If there is a shared key, both nodes then prove that they know it. If there
are two connections, the node with the lower id selects the one that stays and sends a welcome; the
other node answers it. A peer whose first frame is not a hello uses only the six opcodes of the
proposal.
"""

from __future__ import annotations

import hmac
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Final, TypeAlias

from hanzoai.pubsub.links.unparsed import FrameError
from hanzoai.pubsub.topics import is_wildcard
from pubsub_server.backplanes.mesh import codec
from pubsub_server.backplanes.mesh.codec import Frame, FrameDecoder, Hello, Member, Record
from pubsub_server.backplanes.mesh.lanes import Announcements

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

DEAD_AFTER: Final = 3
"""Missed heartbeats after which a peer is dead (Z-28)."""
GREETING: Final = 4
"""Number of acknowledgement windows for a hello, and then for the answer of a peer without one."""
SAME_KEY: Final = "set the same mesh_key on both nodes, and restart them."
_ACKS: Final = {
    codec.SUBSCRIBE: codec.SUBSCRIBE_ACK,
    codec.UNSUBSCRIBE: codec.UNSUBSCRIBE_ACK,
    codec.PATTERNS: codec.PATTERNS_ACK,
    codec.PATTERNS_END: codec.PATTERNS_END_ACK,
}
_PLAIN: Final = frozenset(range(codec.HEARTBEAT, codec.FORWARD + 1))
_LABEL: Final = b"hanzo-pubsub mesh 1"


class MeshError(FrameError):
    """The peer violates the protocol, or this node rejects it. Close the connection."""


@dataclass(frozen=True, slots=True)
class Introduced:
    """The peer is a node with the right key. Call `accept`, or wait for `Welcomed`."""

    hello: Hello


@dataclass(frozen=True, slots=True)
class Welcomed:
    """The connection is in use.

    Attributes:
        plain: Whether the peer uses only the six opcodes.
        missed: Whether the peer has published something that this node subscribes to.
    """

    plain: bool
    missed: bool


@dataclass(frozen=True, slots=True)
class Subscribed:
    """The peer subscribes to these topics or patterns. Answer with `acknowledge`."""

    opcode: int
    names: Sequence[str]


@dataclass(frozen=True, slots=True)
class Unsubscribed:
    """The peer has unsubscribed from these topics or patterns."""

    names: Sequence[str]


@dataclass(frozen=True, slots=True)
class Forwarded:
    """A message of a node that sent a hello."""

    record: Record


@dataclass(frozen=True, slots=True)
class Raw:
    """A message of a peer that uses only the six opcodes."""

    topics: Sequence[bytes]
    data: bytes


@dataclass(frozen=True, slots=True)
class MembersListed:
    """The nodes that the peer is connected to."""

    members: Sequence[Member]


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """The peer has answered a request.

    Attributes:
        ok: Whether it accepts the request.
    """

    ok: bool


@dataclass(frozen=True, slots=True)
class Left:
    """The peer stops. It has sent all its messages."""


Event: TypeAlias = (
    Introduced
    | Welcomed
    | Subscribed
    | Unsubscribed
    | Forwarded
    | Raw
    | MembersListed
    | Acknowledged
    | Left
)


@dataclass(frozen=True, slots=True)
class Terms:
    """Settings that all connections of a node share.

    Attributes:
        node: Id of this node.
        start: See `codec.Hello`.
        address: Address at which other nodes reach it.
        key: The shared key; None for none.
        heartbeat: Seconds between two pings.
        window: Seconds after which an acknowledgement is late.
        max_message: Maximum bytes of the body of a message from a peer.
    """

    node: str
    start: str
    address: str
    key: bytes | None
    heartbeat: float
    window: float
    max_message: int


class Peering:
    """One connection.

    Args:
        terms: Of this node.
        nonce: Random and new with each connection.
        dialed: Whether this node opened it.
        now: Monotonic seconds.

    Attributes:
        hello: The peer's hello; None before it arrives, and for a plain peer.
        ready: Whether messages and interest may be exchanged.
        plain: Whether the peer uses only the six opcodes; known when `ready`.
        announcements: The subscriptions of this node at the peer; set when `ready`.
        pings: Number of pings sent.
        pongs: Number of pings that the peer has answered.
    """

    def __init__(self, terms: Terms, nonce: bytes, *, dialed: bool, now: float) -> None:
        self._terms = terms
        self._dialed = dialed
        self._decoder = FrameDecoder(terms.max_message, trusted=terms.key is None)
        self._out: list[bytes] = []
        self._mine = Hello(
            codec.VERSION, terms.node, terms.start, terms.address, nonce, terms.key is not None
        )
        self.hello: Hello | None = None
        self.ready = False
        self.plain = False
        self._proven = False
        self._welcomed = False
        self.announcements = Announcements(terms.window, wildcards=True)
        self.pings = 0
        self.pongs = 0
        self._began = now
        # When a peer that had sent nothing was asked to answer.
        self._asked: float | None = None
        self._received_at = now
        self._ping_at = now + terms.heartbeat
        self._unanswered = 0
        self._out.append(codec.hello(self._mine))

    @property
    def skipped(self) -> int:
        """Frames whose opcode this node does not know."""
        return self._decoder.skipped

    def output(self) -> bytes:
        """The bytes to write now; empty if there are none."""
        out, self._out = self._out, []
        return out[0] if len(out) == 1 else b"".join(out)

    def received(self, data: bytes, now: float) -> Iterable[Event]:
        """Process bytes from the peer.

        Raises:
            FrameError: Close the connection; its `reason` is the label for counters.
        """
        for each in self._decoder.feed(data):
            self._received_at = now
            self._unanswered = 0
            yield from self._frame(each)

    def tick(self, now: float) -> None:
        """Send the heartbeats and requests that are due, and detect a dead peer.

        Raises:
            FrameError: Close the connection.
            Unacknowledged: Close the connection.
        """
        terms = self._terms
        if not self.ready:
            self._await_greeting(now)
            return
        if now >= self._ping_at:
            # Count pings, not seconds, so that a node that was suspended gives its peers time to
            # answer.
            if self._unanswered >= DEAD_AFTER:
                raise MeshError("dead", f"{DEAD_AFTER} heartbeats were not answered.")
            self._unanswered += 1
            self.pings += 1
            self._ping_at = now + terms.heartbeat
            self._out.append(codec.frame(codec.HEARTBEAT, codec.PING))
        self.announce(now)

    def announce(self, now: float) -> None:
        """Send the subscriptions and unsubscriptions of this node that are due.

        Raises:
            Unacknowledged: Close the connection.
        """
        due = self.announcements.due(now)
        if due:
            self._out.append(due)

    def accept(self, *, missed: bool) -> None:
        """Use this connection: send a welcome. The node with the lower id does so first.

        Args:
            missed: Whether this node has published something that the peer subscribes to.
        """
        self._out.append(codec.frame(codec.WELCOME, codec.OK if missed else codec.REFUSED))
        self.ready = True

    def silence(self, now: float) -> float:
        """Seconds since the last frame of the peer."""
        return now - self._received_at

    def acknowledge(self, opcode: int, *, ok: bool) -> None:
        """Answer a request."""
        self._out.append(codec.frame(_ACKS[opcode], codec.OK if ok else codec.REFUSED))

    def send_members(self, members: Sequence[Member]) -> None:
        """Send the list of connected nodes to the peer."""
        self._out.append(codec.members(members))

    def leave(self) -> None:
        """Announce the end, after everything else."""
        if self.ready and not self.plain:
            self._out.append(codec.frame(codec.LEAVING))

    # ------------------------------------------------------------ inside

    def _frame(self, frame: Frame) -> Iterable[Event]:
        opcode, body = frame
        if opcode == codec.HELLO:
            yield from self._greeted(codec.read_hello(body))
            return
        if not self.ready and self.hello is None and opcode in _PLAIN:
            if self._terms.key is not None:
                raise MeshError("wrong_key", f"The peer does not have the shared key; {SAME_KEY}")
            yield self._as_plain()
        if opcode == codec.PROOF:
            yield from self._prove(body)
        elif opcode == codec.WELCOME:
            yield from self._welcome(body)
        elif opcode == codec.HEARTBEAT and not self.ready:
            # A node that was suspended finds the question whether it is a plain peer.
            return
        elif not self.ready or (self.plain and opcode not in _PLAIN):
            raise MeshError("bad_order", f"Opcode {opcode} arrived before the greeting.")
        else:
            yield from self._served(opcode, body)

    def _await_greeting(self, now: float) -> None:
        """Ask a peer that has sent nothing whether it is a plain peer.

        Close a peer that does not answer: it is a node that hangs, whose system still accepts
        connections, or a program that checks the port.
        """
        patience = GREETING * self._terms.window
        if now - (self._began if self._asked is None else self._asked) < patience:
            return
        if self.hello is not None or self._terms.key is not None:
            raise MeshError("no_greeting", "The peer has not completed the greeting.")
        if self._asked is not None:
            raise MeshError("no_greeting", "The peer sends nothing.")
        self._asked = now
        self._out.append(codec.frame(codec.HEARTBEAT, codec.PING))

    def _as_plain(self) -> Event:
        self.ready = self.plain = True
        self.announcements = Announcements(self._terms.window, wildcards=False)
        return Welcomed(plain=True, missed=False)

    def _greeted(self, hello: Hello) -> Iterable[Event]:
        mine = self._mine
        if self.hello is not None or self.ready:
            raise MeshError("bad_order", "A hello arrived after the greeting.")
        if hello.version != mine.version:
            raise MeshError(
                "version",
                f"The peer uses version {hello.version} of the mesh, this node {mine.version};"
                " install the same server on both nodes.",
            )
        if hello.node == mine.node:
            if hello.start == mine.start:
                raise MeshError("myself", "This is the address of this node.")
            raise MeshError("duplicate_id", "The peer has the id of this node.")
        if hello.keyed != mine.keyed:
            raise MeshError("wrong_key", f"Only one of the two nodes has a shared key; {SAME_KEY}")
        self.hello = hello
        if self._terms.key is None:
            self._proven = True
            yield Introduced(hello)
        else:
            proof = self._proof(mine, hello, dialer=self._dialed)
            self._out.append(codec.frame(codec.PROOF, proof))

    def _prove(self, body: bytes) -> Iterable[Event]:
        hello = self.hello
        if hello is None or self._proven:
            raise MeshError("bad_order", "A proof arrived that this node did not request.")
        if not hmac.compare_digest(body, self._proof(hello, self._mine, dialer=not self._dialed)):
            raise MeshError("wrong_key", f"The peer has another shared key; {SAME_KEY}")
        self._proven = self._decoder.trusted = True
        yield Introduced(hello)

    def _proof(self, whose: Hello, other: Hello, *, dialer: bool) -> bytes:
        """A proof that a node has the key; valid only on this connection and in this role."""
        assert self._terms.key is not None
        parts = (
            _LABEL,
            b"dialer" if dialer else b"listener",
            *(whose.nonce, other.nonce, whose.node.encode(), other.node.encode()),
        )
        text = b"".join(len(part).to_bytes(2) + part for part in parts)
        return hmac.digest(self._terms.key, text, sha256)

    def _welcome(self, body: bytes) -> Iterable[Event]:
        hello = self.hello
        if hello is None or not self._proven:
            raise MeshError("bad_order", "A welcome arrived before the greeting.")
        first = hello.node < self._mine.node
        if self.ready is first or self._welcomed:
            raise MeshError("bad_order", "A welcome arrived twice, or before that of this node.")
        self._welcomed = True
        yield Welcomed(plain=False, missed=body == codec.OK)

    def _served(self, opcode: int, body: bytes) -> Iterable[Event]:
        match opcode:
            case codec.HEARTBEAT:
                if body == codec.PING:
                    self._out.append(codec.frame(codec.HEARTBEAT, codec.PONG))
                elif body == codec.PONG:
                    self.pongs = min(self.pongs + 1, self.pings)
                else:
                    raise MeshError("bad_body", "A heartbeat is `ping` or `pong`.")
            case codec.SUBSCRIBE | codec.PATTERNS:
                names = codec.read_topic_list(body)
                if names:
                    yield Subscribed(opcode, list(_wanted(opcode, names)))
                else:
                    self.acknowledge(opcode, ok=False)
            case codec.UNSUBSCRIBE | codec.PATTERNS_END:
                names = codec.read_topic_list(body)
                yield Unsubscribed([name.decode("latin-1") for name in names])
                self.acknowledge(opcode, ok=bool(names))
            case codec.FORWARD:
                topics, data = codec.read_forward(body)
                yield Raw(topics, data)
            case codec.MEMBERS:
                yield MembersListed(codec.read_members(body))
            case codec.ENVELOPE:
                yield Forwarded(codec.read_record(body))
            case codec.LEAVING:
                yield Left()
            case _:
                if self.announcements.acknowledged(opcode):
                    yield Acknowledged(ok=body != codec.REFUSED)


def _wanted(opcode: int, names: Sequence[bytes]) -> Iterator[str]:
    """The names of a subscription. Among topics, a name with a wildcard is that of no topic."""
    for name in names:
        text = name.decode("latin-1")
        if opcode == codec.PATTERNS or not is_wildcard(text):
            yield text

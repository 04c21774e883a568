"""The interface of a backplane for the hub: the logs of topics, and messages of other nodes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import msgspec

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from pubsub_server.errors import ServiceError
    from pubsub_server.instruments import Instrument
    from pubsub_server.shared.requests import Draft
    from pubsub_server.shared.topic_index import Survey


class Entry(msgspec.Struct, gc=False):
    """One message: its position, and the JSON of its envelope, encoded once.

    Attributes:
        topic: Its topic.
        id: Its id.
        timestamp: Unix ms, not less than that of the previous message of the topic.
        seq: Its position; None if it is not stored.
        expires: Unix ms at which it leaves the log.
        body: The envelope as JSON.
        given: Whether its publisher chose the id, and may repeat the message with it.
        sender: Kind and id of the publisher; ids are unique per publisher. Empty if another node
            keeps the log.
        late: Milliseconds after ``timestamp`` at which a log of this node alone stored it.
    """

    topic: str
    id: str
    timestamp: int
    seq: int | None
    expires: int
    body: bytes
    given: bool = False
    sender: tuple[str, str] = ("", "")
    late: int = 0

    @property
    def stored(self) -> int:
        """Unix ms at which its log stored it: a reader that resumes by time compares with this."""
        return self.timestamp + self.late


@dataclass(frozen=True, slots=True)
class Replay:
    """The replay with which a subscription begins.

    Attributes:
        entries: Messages, oldest first.
        positions: Newest position by topic. A topic without a message also has one, if it was
            subscribed to by name: the position before its first message.
        truncated: Topics whose log does not reach back to the requested position.
        reset: Topics whose numbering began after the requested position.
        unbroken: Unix ms since which the store has lost no acknowledged message.
        floors: By topic, the position up to which this node may still deliver messages that the
            subscriber has, or gets with the replay.
        ends: Topics without a log for which the subscriber has a position. By topic, the position
            at which the lost numbering ends at the latest; the next numbering begins behind it.
        begun: Unix ms by the clock of the store; messages that follow the replay are newer. None if
            messages have the time of this node.
    """

    entries: Sequence[Entry]
    positions: Mapping[str, int]
    truncated: Sequence[str]
    reset: Sequence[str]
    unbroken: int = 0
    floors: Mapping[str, int] = field(default_factory=dict[str, int])
    ends: Mapping[str, int] = field(default_factory=dict[str, int])
    begun: int | None = None


@dataclass(frozen=True, slots=True)
class Standing:
    """The positions of the log of a topic.

    Attributes:
        topic: Name of the topic.
        first: Position of the oldest retained message; ``last + 1`` if there is none.
        last: Newest position that was assigned in this log; 0 if there is no log.
        at: Position of the first retained message that is not older than the requested time; ``last
            + 1`` if there is none. None if no time was requested.
    """

    topic: str
    first: int
    last: int
    at: int | None = None


class Published(msgspec.Struct, gc=False):
    """Result of a publication."""

    id: str
    timestamp: int
    seq: int | None
    duplicate: bool


@dataclass(frozen=True, slots=True)
class Page:
    """Retained messages of one topic, oldest first; each is the JSON of an envelope."""

    messages: Sequence[bytes]
    has_more: bool
    position: int | None
    truncated: bool
    reset: bool


@dataclass(frozen=True, slots=True)
class TopicReport:
    """One active topic."""

    topic: str
    subscribers: int
    messages: int
    position: int | None
    last_message_at: int | None


class Origin(Protocol):
    """Where a publish comes from.

    Attributes:
        closed: Whether the answer can no longer be sent.
    """

    closed: bool


class Logs(Protocol):
    """The logs that a backplane keeps: their positions and messages."""

    def survey(self, patterns: Sequence[str], allowed: Callable[[str], bool]) -> Survey | None:
        """The topics that a replay of these patterns begins with, to be found step by step.

        None if `Backplane.replay` is fast, or does not delay others.
        """
        ...

    async def names(self, patterns: Sequence[str], allowed: Callable[[str], bool]) -> Sequence[str]:
        """Topics with a log that the patterns match and that are allowed."""
        ...

    async def positions(
        self, topics: Sequence[str], at: int | None, *, joined: Sequence[str]
    ) -> tuple[int, Sequence[Standing]]:
        """Return the positions of those of these topics that have a log.

        Args:
            topics: Concrete topics.
            at: Unix ms; see `Standing.at`.
            joined: Topics and patterns that this node has joined; messages published on them after
                this call are delivered.

        Returns:
            The time of the store at the query, Unix ms, and the positions in any order.
        """
        ...

    async def page(
        self,
        topic: str,
        *,
        since: int | None,
        before: str | int | None,
        after: int | None,
        limit: int,
    ) -> Page:
        """One page of one topic; `before` is an id or a position."""
        ...

    async def reports(self, prefix: str, limit: int) -> list[TopicReport]:
        """Return topics with a log and this prefix, sorted by name; ``subscribers`` is 0."""
        ...

    def expire(self) -> None:
        """Remove old messages; called periodically."""
        ...

    def evict(self, topic: str | None, *, log_too: bool) -> None:
        """Drop retained messages and the numbering (of all topics for None), for tests."""
        ...


class Backplane(Protocol):
    """Keeps the logs and joins the nodes.

    A backplane assigns a position to every published message, stores it, and calls ``deliver`` on
    every node, including this one, in the order of positions within each topic. `MemoryBackplane`
    does everything in the call; a backplane with a network batches the publishes of one loop turn
    and answers later.

    Attributes:
        lasting: Whether its logs outlive this process, so that others can read them.
    """

    lasting: bool

    @property
    def logs(self) -> Logs:
        """Its logs."""
        ...

    @property
    def node(self) -> str | None:
        """Id of the node whose clients can use its positions; None for every node."""
        ...

    def start(
        self, deliver: Callable[[Entry], None], on_gap: Callable[[str], None] | None = None
    ) -> None:
        """Start delivery; a second call replaces the callbacks.

        Args:
            deliver: Called with each message.
            on_gap: Called with a topic before the first message after a gap that no log fills. None
                keeps the callback of the previous call.
        """
        ...

    @property
    def receiving(self) -> bool:
        """Whether published messages reach this node, at least those of some topics."""
        ...

    def receives(self, pattern: str) -> bool:
        """Whether messages of this topic, or any messages of this pattern, reach this node."""
        ...

    def settled(self) -> int:
        """Unix ms of the store: ``deliver`` has got all wanted messages from before this time.

        It may be earlier, for example while the node searches for missed messages. 0 if unknown.
        """
        ...

    def watch(self, changed: Callable[[], None]) -> None:
        """Call this each time `receiving` or an answer of `receives` changes."""
        ...

    def join(self, pattern: str) -> None:
        """The first client of this node has subscribed to this topic or pattern."""
        ...

    def leave(self, pattern: str) -> None:
        """The last client of this node has unsubscribed from it."""
        ...

    def publish(
        self,
        drafts: Sequence[Draft],
        sender: tuple[str, str],
        done: Callable[[list[Published | ServiceError]], None],
        origin: Origin | None = None,
    ) -> None:
        """Number, store and deliver messages, except those with an id that this sender has used.

        Args:
            drafts: Validated and authorized publications.
            sender: Kind and id of the publisher.
            done: Called once, with one answer per draft: immediately, or when the store has
                answered.
            origin: The connection of a publisher that repeats unacknowledged messages. If it
                closes, waiting messages may be rejected.
        """
        ...

    def replay(
        self,
        topics: Sequence[str],
        patterns: Sequence[str],
        *,
        since: int | None,
        after: Mapping[str, int],
        newest: int | None,
        allowed: Callable[[str], bool],
    ) -> Replay | Awaitable[Replay]:
        """Retained messages of the topics, and of all topics that match the patterns, oldest first.

        From this call on, ``deliver`` gets each message that the replay does not include. If the
        answer takes time, it also gets messages that the replay includes, until the answer and,
        for topics in `Replay.floors`, after it.
        """
        ...

    def instruments(self) -> Sequence[Instrument]:
        """Measurements of the backplane."""
        ...

    async def finish_writing(self) -> None:
        """Complete accepted publishes, and reject new ones."""
        ...

    async def deliver_rest(self) -> None:
        """Deliver everything that was stored before this call; the caller limits the time."""
        ...

    async def close(self) -> None:
        """Stop the backplane."""
        ...

"""The interface of a backplane for the hub: the logs of topics, and messages of other nodes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import msgspec

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence

    from pubsub_server.errors import ServiceError
    from pubsub_server.instruments import Instrument
    from pubsub_server.interfaces import Page, Published, TopicReport
    from pubsub_server.shared.requests import Draft
    from pubsub_server.shared.topic_index import Survey


class Entry(msgspec.Struct, gc=False):
    """One stored or passing message: its position, and its envelope's JSON, encoded once.

    Attributes:
        topic: Where.
        id: Its id.
        timestamp: Unix ms, never less than that of an earlier one of the topic.
        seq: Its position; None for one that is not kept.
        expires: Unix ms when it leaves the log.
        body: The envelope as JSON.
        given: Whether its publisher gave the id, and may send the message again under it.
        sender: Kind and id of the publisher, whose ids are apart from those of others; empty where
            another node keeps the log.
    """

    topic: str
    id: str
    timestamp: int
    seq: int | None
    expires: int
    body: bytes
    given: bool = False
    sender: tuple[str, str] = ("", "")


@dataclass(frozen=True, slots=True)
class Replay:
    """The replay with which a subscription begins.

    Attributes:
        entries: Messages, oldest first.
        positions: Newest position by topic. A topic without a message has one too, if it was named:
            the one before its first message.
        truncated: Topics whose log does not reach back to what was asked for.
        reset: Topics whose numbering began after the position that was asked for.
        unbroken: Unix ms since when the store has lost nothing that it acknowledged.
        overlapping: Topics of which this node may still deliver messages up to ``positions``.
    """

    entries: Sequence[Entry]
    positions: Mapping[str, int]
    truncated: Sequence[str]
    reset: Sequence[str]
    unbroken: int = 0
    overlapping: Collection[str] = ()


@dataclass(frozen=True, slots=True)
class Standing:
    """The positions of the log of a topic.

    Attributes:
        topic: Which.
        first: Position of the oldest message that is retained; ``last + 1`` where none is.
        last: Newest position that was ever given in this log; 0 where there is no log.
        at: Position of the first retained message that is not older than the time asked for;
            ``last + 1`` where there is none. None where no time was asked for.
    """

    topic: str
    first: int
    last: int
    at: int | None = None


class Origin(Protocol):
    """Where a publish comes from.

    Attributes:
        closed: Whether its answer cannot be sent any more.
    """

    closed: bool


class Logs(Protocol):
    """What a backplane has kept: the positions of logs, and what is in them."""

    def survey(self, patterns: Sequence[str], allowed: Callable[[str], bool]) -> Survey | None:
        """How to find the topics that a replay of these patterns begins with, piece by piece.

        None where `Backplane.replay` is fast, or takes its time without holding up others.
        """
        ...

    async def names(self, patterns: Sequence[str], allowed: Callable[[str], bool]) -> Sequence[str]:
        """Topics with a log that the patterns match and that are allowed."""
        ...

    async def positions(
        self, topics: Sequence[str], at: int | None, *, hear: Sequence[str]
    ) -> tuple[int, Sequence[Standing]]:
        """Return the positions of those of these topics that have a log.

        Args:
            topics: Concrete topics.
            at: Unix ms; see `Standing.at`.
            hear: Topics and patterns that were joined: what of them is published after this is
                delivered.

        Returns:
            The time of the store when it was asked, Unix ms, and the positions in any order.
        """
        ...

    async def page(
        self,
        topic: str,
        *,
        since: int | None,
        before: str | None,
        after: int | None,
        limit: int,
    ) -> Page:
        """One page of one topic."""
        ...

    async def reports(self, prefix: str, limit: int) -> list[TopicReport]:
        """Return topics with a log and this prefix, sorted by name; ``subscribers`` is 0."""
        ...

    def expire(self) -> None:
        """Remove old messages; called periodically."""
        ...

    def evict(self, topic: str | None, *, log_too: bool) -> None:
        """Drop retained messages (of all topics for None), for tests; the numbering too."""
        ...


class Backplane(Protocol):
    """Keeps the logs and joins the nodes.

    A backplane gives every published message a position, keeps it, and calls ``deliver`` on every
    node, this one too, in the order of positions a topic. `MemoryBackplane` does all in the call;
    one that goes over a network gathers what one loop turn publishes and answers later.

    Attributes:
        lasting: Whether what it keeps outlives this process, for others to read.
    """

    lasting: bool

    @property
    def logs(self) -> Logs:
        """What it has kept."""
        ...

    @property
    def node(self) -> str | None:
        """Whose positions it gives: the id of this node; None where they hold on every node."""
        ...

    def start(
        self, deliver: Callable[[Entry], None], lack: Callable[[str], None] | None = None
    ) -> None:
        """Begin to deliver; called again, deliver to another from then on.

        Args:
            deliver: Called with each message.
            lack: Called with a topic before the first message behind a hole that no log fills. None
                leaves the one of the call before.
        """
        ...

    @property
    def hears(self) -> bool:
        """Whether what is published reaches this node."""
        ...

    def watch(self, changed: Callable[[bool], None]) -> None:
        """Call this with `hears` whenever it changes."""
        ...

    def join(self, pattern: str) -> None:
        """Some client of this node subscribes to this topic or pattern; the first of them."""
        ...

    def leave(self, pattern: str) -> None:
        """No client of this node does any more."""
        ...

    def publish(
        self,
        drafts: Sequence[Draft],
        sender: tuple[str, str],
        done: Callable[[list[Published | ServiceError]], None],
        origin: Origin | None = None,
    ) -> None:
        """Number, keep and deliver. An id that this sender has used is not delivered again.

        Args:
            drafts: Checked and allowed publications.
            sender: Kind and id of the publisher.
            done: Called once, with one answer for each: at once, or when the store has answered.
            origin: The connection of a publisher that repeats what is not acknowledged. What waits
                when it closes may be refused.
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
        """Retained messages of the topics and of whatever the patterns match, oldest first.

        From this call on, ``deliver`` gets each message that the replay does not include. If the
        answer takes time, it also gets messages that the replay includes, until the answer and,
        for topics that are `Replay.overlapping`, after it.
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
        """Stop."""
        ...

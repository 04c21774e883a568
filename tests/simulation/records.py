"""What a server keeps: messages by topic, connections, and what subscriptions began with."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from hanzoai.pubsub.generated.wire import Envelope, ServerFrame


class Record:
    """A message that was published.

    Attributes:
        index: Its place among all of its topic, over resets of the log.
        log: Which log of the topic holds it.
        until: When its retention ends, or None.
        gone: History has let go of it.
    """

    __slots__ = ("gone", "index", "log", "message", "until")

    def __init__(self, message: Envelope, index: int, log: int, until: int | None) -> None:
        self.message = message
        self.index = index
        self.log = log
        self.until = until
        self.gone = False


class Log:
    """The retained messages of one topic."""

    __slots__ = ("base", "entries", "next", "number")

    def __init__(self, base: int, number: int) -> None:
        self.base = base
        self.number = number
        self.next = base
        self.entries: list[Record] = []


class Connection:
    """The server's side of one connection."""

    __slots__ = (
        "answers_at",
        "authenticated",
        "close",
        "expiry",
        "open",
        "patterns",
        "send",
        "stream",
        "watched",
    )

    def __init__(
        self, send: Callable[[ServerFrame], None], close: Callable[[int, str, int | None], None]
    ) -> None:
        self.send = send
        self.close = close
        self.open = True
        self.authenticated = False
        self.patterns: dict[str, None] = {}
        self.watched: dict[str, None] = {}  # patterns with presence
        self.expiry = 0
        self.answers_at = 0  # a plain peer answers in the order of the requests
        self.stream = 0  # which event stream; one takes the place of another


class Start(NamedTuple):
    """What a subscription that was answered began with.

    Attributes:
        counts: How many messages there were, by topic.
        granted: The patterns in force.
        at: When it was.
        offered: The messages of a replay that was asked for by their number.
    """

    counts: dict[str, int]
    granted: tuple[str, ...]
    at: int
    offered: list[Envelope]

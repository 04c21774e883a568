"""The records of a server: messages by topic, connections, and the starts of subscriptions."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from hanzoai.pubsub.generated.wire import Message, ServerFrame


class Record:
    """A message that was published.

    Attributes:
        index: Its index among all messages of its topic, across resets of the log.
        log: Number of the log that contains it.
        until: End of its retention, or None.
        gone: Whether it was removed from history.
    """

    __slots__ = ("gone", "index", "log", "message", "until")

    def __init__(self, message: Message, index: int, log: int, until: int | None) -> None:
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
        self.answers_at = 0  # a plain peer answers in request order
        self.stream = 0  # number of the event stream; a new one replaces the previous one


class Start(NamedTuple):
    """The state at the start of an answered subscription.

    Attributes:
        counts: Number of messages by topic.
        granted: The granted patterns.
        at: Time of the answer.
        offered: The messages of a replay that was requested by number.
    """

    counts: dict[str, int]
    granted: tuple[str, ...]
    at: int
    offered: list[Message]

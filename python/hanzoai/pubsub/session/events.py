"""Inputs of a session that have fields: events of the connection, and requests of the user."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

from hanzoai.pubsub.generated.lifecycle import Timer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hanzoai.pubsub.generated.wire import Publication, ServerFrame

SendPolicy: TypeAlias = Literal["error", "drop_oldest", "latest"]
"""Policy for a publish if the send queue is full; the client handles the policy `block`."""


@dataclass(frozen=True, slots=True)
class Token:
    """The token callback answered.

    Attributes:
        fetch: The call of `fetch_token` that this answers; answers to other calls are ignored.
        value: The token, with or without `Bearer `.
        expires_in: Milliseconds until it expires, if the callback returned it.
    """

    fetch: int
    value: str = field(repr=False)
    expires_in: int | None = None


@dataclass(frozen=True, slots=True)
class TokenFailed:
    """The token callback raised.

    Attributes:
        fetch: The call of `fetch_token` that this answers.
        refused: It raised `AuthRefused`, so another call is useless.
        message: The error text, without secrets.
    """

    fetch: int
    refused: bool
    message: str


@dataclass(frozen=True, slots=True)
class Dropped:
    """The transport was closed, or could not be opened.

    Attributes:
        code: WebSocket close code, or the code for an HTTP status; None without one.
        reason: The reason in words.
        retry_after: Milliseconds that the server requested to wait.
    """

    code: int | None
    reason: str
    retry_after: int | None = None


@dataclass(frozen=True, slots=True)
class Probed:
    """Whether a WebSocket could be opened in addition to the fallback."""

    ok: bool


@dataclass(frozen=True, slots=True)
class Answered:
    """Whether the HTTP address answers as a PubSub service."""

    ok: bool


@dataclass(frozen=True, slots=True)
class Received:
    """A frame that concerns the lifecycle.

    Attributes:
        frame: The decoded frame.
        at: Wall clock, Unix milliseconds.
    """

    frame: ServerFrame
    at: int


@dataclass(frozen=True, slots=True)
class TimerFired:
    """A timer has run out.

    Attributes:
        name: The timer.
        idle: Milliseconds since the last byte of the transport.
    """

    name: TimerName
    idle: int


@dataclass(frozen=True, slots=True)
class Subscribe:
    """The user wants messages.

    Attributes:
        sub: Unique number from the caller; identifies the subscription in ports.
        topics: Valid patterns, at least one, none twice.
        since: Replay messages newer than this, Unix milliseconds.
        history: Replay at most this many of the newest messages per topic.
        after: Replay the messages after these positions, by concrete topic.
        presence: Whether presence is wanted.
    """

    sub: int
    topics: tuple[str, ...]
    since: int | None = None
    history: int | None = None
    after: Mapping[str, int] = field(default_factory=dict[str, int])
    presence: bool = False


@dataclass(slots=True)  # not frozen: that makes it four times as slow to create
class Publish:
    """The user publishes.

    Attributes:
        ref: Unique number from the caller; identifies the publish in `settle`.
        messages: Valid publications in order, each with an id; one, unless `batch`.
        size: Their size on the wire in bytes, for the limit of the queue.
        policy: What to do if the queue is full.
        key: With the policy `latest`, this publish replaces an unsent one with the same key.
        batch: Sent as one frame with one answer per item.
        background: Sent after the others when the rate is used up.
    """

    ref: int
    messages: tuple[Publication, ...]
    size: int
    policy: SendPolicy = "error"
    key: str | None = None
    batch: bool = False
    background: bool = False


SessionTimer: TypeAlias = Literal["pace", "rejoin", "hold", "grace"]
"""Timers of the session that are not in the table: the publish budget, the retry of a subscription,
the time in which calls of the program do not start an early attempt, and the time for members to
return to a server that has lost them.
"""

TimerName: TypeAlias = Timer | SessionTimer

Event: TypeAlias = Token | TokenFailed | Dropped | Probed | Answered | Received | TimerFired | None
"""Input of the guards and actions of the lifecycle; None for a plain call."""

"""Inputs of a session that have fields: events of the connection, and requests of the user."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

from hanzoai.pubsub.generated.lifecycle import Timer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hanzoai.pubsub.generated.wire import Publication, ServerFrame

SendPolicy: TypeAlias = Literal["error", "drop_oldest", "latest"]
"""What a full send queue does with one more publish; the policy `block` is the client's matter."""


@dataclass(frozen=True, slots=True)
class Token:
    """The token callback answered.

    Attributes:
        fetch: The call of `fetch_token` that this answers; an answer to another one is ignored.
        value: The token, with or without `Bearer `.
        expires_in: Milliseconds until it ends, if the callback said it.
    """

    fetch: int
    value: str = field(repr=False)
    expires_in: int | None = None


@dataclass(frozen=True, slots=True)
class TokenFailed:
    """The token callback raised.

    Attributes:
        fetch: The call of `fetch_token` that this answers.
        refused: It raised `AuthRefused`: asking again is pointless.
        message: What it said, in words, without any secret.
    """

    fetch: int
    refused: bool
    message: str


@dataclass(frozen=True, slots=True)
class Dropped:
    """The transport is gone, or could not be opened.

    Attributes:
        code: WebSocket close code, or the one that an HTTP status stands for; None if none came.
        reason: What was said, in words.
        retry_after: Milliseconds the server asked to wait.
    """

    code: int | None
    reason: str
    retry_after: int | None = None


@dataclass(frozen=True, slots=True)
class Probed:
    """Whether a WebSocket could be opened beside the fallback."""

    ok: bool


@dataclass(frozen=True, slots=True)
class Answered:
    """Whether the HTTP address answers as a PubSub service."""

    ok: bool


@dataclass(frozen=True, slots=True)
class Received:
    """A frame that the lifecycle is about.

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
        sub: Chosen by the caller, not used before; names the subscription in ports.
        topics: Valid patterns, at least one, none twice.
        since: Replay what is newer than this, Unix milliseconds.
        history: Replay at most this many of the newest messages per topic.
        after: Replay what follows these positions, by concrete topic.
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
        ref: Chosen by the caller, not used before; names the publish in `settle`.
        messages: Valid publications in order, each with an id; one, unless `batch`.
        size: Their size on the wire in bytes, for the bound of the queue.
        policy: What to do if the queue is full.
        key: With the policy `latest`: an unsent publish of the same key is given up for this one.
        batch: Sent as one frame with one answer an item.
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
"""Timers of the session itself, in no table: the publish budget; a subscription refused for now;
how long a call of the program cannot bring the next attempt forward; how long members may take to
return to a server that has forgotten them."""

TimerName: TypeAlias = Timer | SessionTimer

Event: TypeAlias = Token | TokenFailed | Dropped | Probed | Answered | Received | TimerFired | None
"""What the guards and actions of the lifecycle may look at; None for a plain call."""

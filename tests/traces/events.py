"""The events of a session as data, with the names of `spec/traces/`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from hanzoai.pubsub.session.ports import Publish, SessionTimer, Subscribe, TimerName
from hanzoai.pubsub.settings.options import SendPolicy

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hanzoai.pubsub.generated.wire import Message, ServerFrame
    from hanzoai.pubsub.session.session import Session


@dataclass(frozen=True, slots=True)
class Connect:
    """The user requests a connection."""

    opened: bool = False


@dataclass(frozen=True, slots=True)
class Close:
    """The user closes the client after pending publishes are settled, or after so long."""

    wait: int | None = None


@dataclass(frozen=True, slots=True)
class Abort:
    """The user closes the client immediately."""


@dataclass(frozen=True, slots=True)
class Token:
    """The token callback answers a call."""

    fetch: int
    value: str
    expires_in: int | None = None


@dataclass(frozen=True, slots=True)
class TokenFailed:
    """The token callback raises."""

    fetch: int
    refused: bool
    message: str


@dataclass(frozen=True, slots=True)
class Opened:
    """The transport is open."""

    incremental: bool


@dataclass(frozen=True, slots=True)
class Dropped:
    """The transport is closed, or cannot be opened."""

    code: int | None
    reason: str
    retry_after: int | None = None


@dataclass(frozen=True, slots=True)
class Probed:
    """A WebSocket can be opened in addition to the fallback, or not."""

    ok: bool


@dataclass(frozen=True, slots=True)
class Answered:
    """The HTTP address answers as a PubSub service, or not."""

    ok: bool


@dataclass(frozen=True, slots=True)
class Woke:
    """The machine slept, or the network is back."""


@dataclass(frozen=True, slots=True)
class Offline:
    """The platform reports that the network is down."""


@dataclass(frozen=True, slots=True)
class Received:
    """A frame arrives."""

    frame: ServerFrame
    at: int


@dataclass(frozen=True, slots=True)
class ReceivedMessages:
    """Live messages arrive together."""

    messages: tuple[Message, ...]


@dataclass(frozen=True, slots=True)
class TimerFired:
    """A timer runs out; `idle`: milliseconds since the last byte of the transport."""

    name: TimerName
    idle: int


@dataclass(frozen=True, slots=True)
class Unsubscribe:
    """The user ends a subscription."""

    sub: int


@dataclass(frozen=True, slots=True)
class Expire:
    """The timeout of a publish has elapsed."""

    ref: int


@dataclass(frozen=True, slots=True)
class UpdatePresence:
    """The user's own presence changes."""

    topic: str | None
    data: Mapping[str, Any]
    ref: int


Event: TypeAlias = (
    Connect
    | Close
    | Abort
    | Token
    | TokenFailed
    | Opened
    | Dropped
    | Probed
    | Answered
    | Woke
    | Offline
    | Received
    | ReceivedMessages
    | TimerFired
    | Subscribe
    | Unsubscribe
    | Publish
    | Expire
    | UpdatePresence
)

EVENTS: Final[tuple[type[Event], ...]] = (
    Connect,
    Close,
    Abort,
    Token,
    TokenFailed,
    Opened,
    Dropped,
    Probed,
    Answered,
    Woke,
    Offline,
    Received,
    ReceivedMessages,
    TimerFired,
    Subscribe,
    Unsubscribe,
    Publish,
    Expire,
    UpdatePresence,
)
"""Every kind of event."""


def call(session: Session, event: Event) -> None:
    """Call the session's method for an event."""
    match event:
        case Connect(opened):
            session.connect(opened=opened)
        case Close(wait):
            session.close(wait)
        case Abort():
            session.abort()
        case Token(fetch, value, expires_in):
            session.token(fetch, value, expires_in)
        case TokenFailed(fetch, refused, message):
            session.token_failed(fetch, message, refused=refused)
        case Opened(incremental):
            session.opened(incremental=incremental)
        case Dropped(code, reason, retry_after):
            session.dropped(code, reason, retry_after)
        case Probed(ok):
            session.probed(ok=ok)
        case Answered(ok):
            session.answered(ok=ok)
        case Woke():
            session.woke()
        case Offline():
            session.offline()
        case Received(frame, at):
            session.receive(frame, at)
        case ReceivedMessages(messages):
            session.messages(messages)
        case TimerFired(name, idle):
            session.timer_fired(name, idle)
        case Subscribe():
            session.subscribe(event)
        case Unsubscribe(sub):
            session.unsubscribe(sub)
        case Publish():
            session.publish(event)
        case Expire(ref):
            session.expire([ref])
        case UpdatePresence(topic, data, ref):
            session.update_presence(topic, data, ref)


__all__ = [
    "EVENTS",
    "Abort",
    "Answered",
    "Close",
    "Connect",
    "Dropped",
    "Event",
    "Expire",
    "Offline",
    "Opened",
    "Probed",
    "Publish",
    "Received",
    "ReceivedMessages",
    "SendPolicy",
    "SessionTimer",
    "Subscribe",
    "TimerFired",
    "TimerName",
    "Token",
    "TokenFailed",
    "Unsubscribe",
    "UpdatePresence",
    "Woke",
    "call",
]

"""The events of the lifecycle, and what the codes in them mean."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from hanzoai.pubsub.generated.errors import CODES, close_action
from hanzoai.pubsub.session.ports import Rejected

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hanzoai.pubsub.generated.errors import CloseAction
    from hanzoai.pubsub.generated.wire import AuthErrorFrame, ErrorFrame
    from hanzoai.pubsub.session.ports import Peer, TimerName

RATE_LIMITED: Final = "rate_limited"
"""The code of a rejection because of the publish rate."""

_UNEXPLAINED: Final = frozenset({None, 1000, 1002, 1005, 1006, 1011, 1015})
"""Close codes that a middlebox may have caused; other codes are from the server."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionEvent:
    """Input of the guards and actions of the lifecycle: an event sets the fields that it has.

    Durations are in milliseconds.
    """

    timer: TimerName | None = None  # the one that fired
    code: str | int | None = None  # error code or close code of the cause
    message: str | None = None  # the cause in words, without secrets
    remedy: str | None = None  # stated by the server
    retry_after_ms: int | None = None  # the wait that the server requested
    at: int | None = None  # when a frame arrived, by this machine's clock, Unix milliseconds
    peer: Peer | None = None  # the content of `auth.ok`
    left: int | None = None  # until the token expires, from `auth.expiring`
    token: str | None = field(default=None, repr=False)  # with or without `Bearer `
    expires_in: int | None = None  # until it expires, if the callback returned it
    ok: bool = False  # the result of a probe
    wait: int | None = None  # the wait for publishes before the end
    idle: int = 0  # since the last byte of the transport


NO_DETAILS: Final = SessionEvent()
"""An event without fields."""

TIMEOUTS: Final[Mapping[TimerName, SessionEvent]] = {
    "fetch": SessionEvent(code="timeout", message="The token callback did not answer in time."),
    "open": SessionEvent(code="timeout", message="The connection could not be opened in time."),
    "pong": SessionEvent(code="idle_timeout", message="The server sent nothing."),
    "suspend": SessionEvent(message="The client has not been connected for a long time."),
    "fallback": SessionEvent(
        message="The WebSocket does not open; the client tries the event stream."
    ),
    "drain": SessionEvent(code="timeout", message="Some publishes were not settled in time."),
}
"""The cause for a timer that fired."""


def event_of(frame: AuthErrorFrame | ErrorFrame) -> SessionEvent:
    """The event of an error that the server sent."""
    return SessionEvent(
        code=frame.code,
        message=frame.message,
        remedy=frame.remedy,
        retry_after_ms=frame.retry_after_ms,
    )


def rejection(frame: ErrorFrame) -> Rejected:
    """The outcome for an error frame."""
    return Rejected(**frame.model_dump(exclude={"type", "ref"}))


def action_of(code: str | int | None) -> CloseAction:
    """What an error code or close code means for a connection: `retry`, `reauth` or `stop`."""
    if not isinstance(code, str):
        return close_action(code)
    known = CODES.get(code)
    return "retry" if known is None else known.action


def unexplained(event: SessionEvent) -> bool:
    """Whether a middlebox may have ended the connection, and not the server."""
    return event.retry_after_ms is None and event.code in _UNEXPLAINED


def ends_connection(frame: ErrorFrame) -> bool:
    """Whether this is the server's reason for closing the connection."""
    known = CODES.get(frame.code)
    return frame.ref is None and known is not None and known.close is not None


def is_retryable(code: str) -> bool:
    """Whether to retry after a rejection automatically."""
    known = CODES.get(code)
    return known is not None and known.retryable


def code_of(given: str | int | None) -> str:
    """The error code itself, or that of a close code."""
    if isinstance(given, str):
        return given
    by_close = (known.code for known in CODES.values() if known.close and known.close == given)
    return next(by_close, "connection_failed")

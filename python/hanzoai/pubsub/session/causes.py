"""Extracts the cause of a state change from an event: code, text, and requested wait."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hanzoai.pubsub.generated.errors import CODES, close_action
from hanzoai.pubsub.generated.wire import AuthErrorFrame, ErrorFrame
from hanzoai.pubsub.session.events import Answered, Dropped, Received, TimerFired, TokenFailed

if TYPE_CHECKING:
    from hanzoai.pubsub.session.events import Event

_UNEXPLAINED: Final = frozenset({None, 1000, 1002, 1005, 1006, 1011, 1015})
"""Close codes that a middlebox may have caused; other codes are from the server."""


def action_of(code: str | int | None) -> str:
    """What an error code or close code means for a connection: `retry`, `reauth` or `stop`."""
    if not isinstance(code, str):
        return close_action(code)
    known = CODES.get(code)
    return "retry" if known is None else known.action


def unexplained(event: Dropped) -> bool:
    """Whether a middlebox may have ended the connection, and not the server."""
    return event.retry_after is None and event.code in _UNEXPLAINED


def ends_connection(frame: ErrorFrame) -> bool:
    """Whether this is the server's reason for closing the connection."""
    known = CODES.get(frame.code)
    return frame.ref is None and known is not None and known.close is not None


def retry_after(event: Event) -> int:
    """Milliseconds that the server requested to wait; 0 if none."""
    if isinstance(event, Dropped):
        return event.retry_after or 0
    if isinstance(event, Received) and isinstance(event.frame, AuthErrorFrame | ErrorFrame):
        return event.frame.retry_after_ms or 0
    return 0


_TIMEOUTS: Final[dict[str, tuple[str | None, str]]] = {
    "fetch": ("timeout", "The token callback did not answer in time."),
    "open": ("timeout", "The connection could not be opened in time."),
    "pong": ("idle_timeout", "The server sent nothing."),
    "suspend": (None, "The client has not been connected for a long time."),
    "fallback": (None, "The WebSocket does not open; the client tries the event stream."),
    "drain": ("timeout", "Some publishes were not settled in time."),
}


def cause(event: Event) -> tuple[str | int | None, str | None]:
    """The code of a state change, and the reason in words."""
    match event:
        case Dropped(code, reason):
            return code, reason
        case TokenFailed(_, refused, message):
            return "auth_refused" if refused else "token_unavailable", message
        case Received(frame=AuthErrorFrame() | ErrorFrame() as frame):
            return frame.code, frame.message
        case TimerFired(name):
            return _TIMEOUTS.get(name, (None, None))
        case Answered():
            return _TIMEOUTS["fallback"]
        case _:
            return None, None

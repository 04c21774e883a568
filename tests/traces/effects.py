"""The log of a session: each call of a port as data, with the names of `spec/traces/`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from hanzoai.pubsub.session.ports import Acked, Outcome, Rejected, StateChanged, Unknown

if TYPE_CHECKING:
    from hanzoai.pubsub.gap import GapReason
    from hanzoai.pubsub.generated.wire import (
        AuthFrame,
        ClientFrame,
        Denial,
        Message,
        PresenceMember,
    )
    from hanzoai.pubsub.session.ports import TimerName, TransportName
    from hanzoai.pubsub.values import PresenceChangeKind, TokenReason


@dataclass(frozen=True, slots=True)
class Fetch:
    """Call the token callback; answer with `Token` or `TokenFailed` of the same id."""

    id: int
    reason: TokenReason
    attempt: int


@dataclass(frozen=True, slots=True)
class AbandonFetch:
    """Cancel the token callback: it took too long, or its token is no longer needed."""

    id: int


@dataclass(frozen=True, slots=True)
class Dial:
    """Open a transport; answer with `Opened` or `Dropped`. At most one is open at a time."""

    transport: TransportName


@dataclass(frozen=True, slots=True)
class HangUp:
    """Close the transport, or stop opening it; no event of it is reported after that."""

    code: int


@dataclass(frozen=True, slots=True)
class Send:
    """Write a frame."""

    frame: ClientFrame


@dataclass(frozen=True, slots=True)
class StartTimer:
    """Start or restart a timer; `TimerFired` is reported after this number of milliseconds."""

    name: TimerName
    after: int


@dataclass(frozen=True, slots=True)
class CancelTimer:
    """Stop a running timer."""

    name: TimerName


@dataclass(frozen=True, slots=True)
class Probe:
    """Try to open a WebSocket during the fallback; answer with `Probed`."""


@dataclass(frozen=True, slots=True)
class ProbeHttp:
    """Check whether the HTTP address is a PubSub service; answer with `Answered`."""

    auth: AuthFrame


@dataclass(frozen=True, slots=True)
class Deliver:
    """Deliver a message to a subscription, in order, once."""

    sub: int
    message: Message


@dataclass(frozen=True, slots=True)
class Gap:
    """Report missing messages of a topic at their place in the subscription."""

    sub: int
    topic: str
    from_: int | None
    to: int | None
    missed: int | None
    reason: GapReason


@dataclass(frozen=True, slots=True)
class Joined:
    """The server answered a subscription, the first time or after a reconnect."""

    sub: int
    topics: tuple[str, ...]
    denied: tuple[Denial, ...] = ()


@dataclass(frozen=True, slots=True)
class PresenceChanged:
    """The members of a topic have changed."""

    sub: int
    topic: str
    members: tuple[PresenceMember, ...]
    change: PresenceChangeKind
    member: PresenceMember | None = None


@dataclass(frozen=True, slots=True)
class Settle:
    """The outcome of a publish; reported exactly once for each."""

    ref: int
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class Problem:
    """An error of the server that does not answer a request."""

    code: str
    message: str
    topic: str | None = None
    retry_after: int | None = None
    """Milliseconds to wait before the next attempt."""


@dataclass(frozen=True, slots=True)
class Finished:
    """The session has ended: on request (None), or by a permanent error."""

    error: Rejected | None


Effect: TypeAlias = (
    StateChanged
    | Fetch
    | AbandonFetch
    | Dial
    | HangUp
    | Send
    | StartTimer
    | CancelTimer
    | Probe
    | ProbeHttp
    | Deliver
    | Gap
    | Joined
    | PresenceChanged
    | Settle
    | Problem
    | Finished
)

EFFECTS: Final[tuple[type[Effect], ...]] = (
    StateChanged,
    Fetch,
    AbandonFetch,
    Dial,
    HangUp,
    Send,
    StartTimer,
    CancelTimer,
    Probe,
    ProbeHttp,
    Deliver,
    Gap,
    Joined,
    PresenceChanged,
    Settle,
    Problem,
    Finished,
)
"""Every kind of effect."""

__all__ = [
    "EFFECTS",
    "AbandonFetch",
    "Acked",
    "CancelTimer",
    "Deliver",
    "Dial",
    "Effect",
    "Fetch",
    "Finished",
    "Gap",
    "HangUp",
    "Joined",
    "Outcome",
    "PresenceChanged",
    "Probe",
    "ProbeHttp",
    "Problem",
    "Rejected",
    "Send",
    "Settle",
    "StartTimer",
    "StateChanged",
    "Unknown",
]

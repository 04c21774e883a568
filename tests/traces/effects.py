"""The log of a session: each call of a port as data, in the words of `spec/traces/`."""

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
        Envelope,
        PresenceMember,
    )
    from hanzoai.pubsub.session.events import TimerName
    from hanzoai.pubsub.session.ports import (
        FetchReason,
        TransportName,
    )
    from hanzoai.pubsub.values import PresenceChangeKind


@dataclass(frozen=True, slots=True)
class Fetch:
    """Call the token callback; answer with `Token` or `TokenFailed` of the same id."""

    id: int
    reason: FetchReason
    attempt: int


@dataclass(frozen=True, slots=True)
class AbandonFetch:
    """Cancel the token callback: it took too long, or nobody needs it any more."""

    id: int


@dataclass(frozen=True, slots=True)
class Dial:
    """Open a transport; answer with `Opened` or `Dropped`. At most one is open at a time."""

    transport: TransportName


@dataclass(frozen=True, slots=True)
class HangUp:
    """Close the transport, or give up opening it; nothing of it is reported after that."""

    code: int


@dataclass(frozen=True, slots=True)
class Send:
    """Write a frame."""

    frame: ClientFrame


@dataclass(frozen=True, slots=True)
class StartTimer:
    """Start a timer, or start it anew; `TimerFired` tells when so many milliseconds have passed."""

    name: TimerName
    after: int


@dataclass(frozen=True, slots=True)
class CancelTimer:
    """Stop a timer that is running."""

    name: TimerName


@dataclass(frozen=True, slots=True)
class Probe:
    """Try to open a WebSocket beside the fallback; answer with `Probed`."""


@dataclass(frozen=True, slots=True)
class ProbeHttp:
    """See whether the HTTP address answers as a PubSub service; answer with `Answered`."""

    auth: AuthFrame


@dataclass(frozen=True, slots=True)
class Deliver:
    """A message for a subscription, in order, once."""

    sub: int
    message: Envelope


@dataclass(frozen=True, slots=True)
class Gap:
    """Messages of a topic are missing, right here in the order of the subscription."""

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
    """Who is present on a topic has changed."""

    sub: int
    topic: str
    members: tuple[PresenceMember, ...]
    change: PresenceChangeKind
    member: PresenceMember | None = None


@dataclass(frozen=True, slots=True)
class Settle:
    """What became of a publish; comes exactly once for each."""

    ref: int
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class Problem:
    """An error of the server that answers nothing in particular."""

    code: str
    message: str
    topic: str | None = None
    retry_after: int | None = None
    """Milliseconds to wait before another try."""


@dataclass(frozen=True, slots=True)
class Finished:
    """The session has ended: as asked (None), or by an error that no retry mends."""

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

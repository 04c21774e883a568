"""What comes out of a session: each effect is data, performed by the driver in the order given."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

if TYPE_CHECKING:
    from hanzoai.pubsub.generated.lifecycle import PublicState, State
    from hanzoai.pubsub.generated.wire import (
        AuthFrame,
        ClientFrame,
        Denial,
        Envelope,
        PresenceMember,
        PublishResult,
    )
    from hanzoai.pubsub.session.events import TimerName

TransportName: TypeAlias = Literal["websocket", "sse"]
FetchReason: TypeAlias = Literal["connect", "expiring", "rejected"]
GapReason: TypeAlias = Literal["history_trimmed", "log_reset", "slow_consumer", "unproven"]
PresenceChangeKind: TypeAlias = Literal[
    "snapshot", "join", "connect", "update", "disconnect", "leave"
]


@dataclass(frozen=True, slots=True)
class Acked:
    """The server took the publish: one result for each message, in order.

    Against a peer that acknowledges nothing, the results hold the ids alone.
    """

    results: tuple[PublishResult, ...]


@dataclass(frozen=True, slots=True)
class Rejected:
    """Something was refused, by the server or by the client itself.

    Attributes:
        code: A code of `spec/errors.yaml`, or one that a later server made up.
        message: What went wrong, in words.
        remedy: What to do about it, if the server said so; else the table knows.
        topic: The topic it concerns.
        retry_after: Milliseconds to wait before another try.
    """

    code: str
    message: str
    remedy: str | None = None
    topic: str | None = None
    retry_after: int | None = None


@dataclass(frozen=True, slots=True)
class Unknown:
    """The publish was sent, and the answer will never come: `outcome_unknown`."""


Outcome: TypeAlias = Acked | Rejected | Unknown


@dataclass(frozen=True, slots=True)
class StateChanged:
    """The session is in another state of the table.

    Attributes:
        from_: The state left.
        to: The state entered.
        public: What users see of `to`; several states look alike.
        code: The error code or close code behind it, if any.
        reason: Why, in words.
        retry_in: Milliseconds until the next attempt.
        attempt: How many attempts have failed in a row.
    """

    from_: State
    to: State
    public: PublicState
    code: str | int | None = None
    reason: str | None = None
    retry_in: int | None = None
    attempt: int = 0


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
    """See whether the HTTP address answers as a PubSub service; answer with `Answered`.

    Attributes:
        auth: What the service is to answer.
    """

    auth: AuthFrame


@dataclass(slots=True)
class Deliver:
    """A message for a subscription, in order, once."""

    # Not frozen, as its kin are: one is made for each message, and freezing doubles the price.
    sub: int
    message: Envelope


@dataclass(frozen=True, slots=True)
class Gap:
    """Messages of a topic are missing, right here in the order of the subscription.

    Attributes:
        sub: The subscription.
        topic: The concrete topic.
        from_: `seq` of the first missing message; None where the peer has no `seq`.
        to: `seq` of the last missing message; None if unknown.
        missed: How many are missing, `to - from_ + 1`; None if nobody can know.
        reason: `history_trimmed`: no longer retained. `log_reset`: the log began anew.
            `slow_consumer`: the reader's own queue was full. `unproven`: nobody can tell.
    """

    sub: int
    topic: str
    from_: int | None
    to: int | None
    missed: int | None
    reason: GapReason


@dataclass(frozen=True, slots=True)
class Joined:
    """The server answered a subscription, the first time or after a reconnect.

    Attributes:
        sub: The subscription.
        topics: The patterns in force. If empty, the subscription has ended; `denied` says why.
        denied: The patterns refused this time.
    """

    sub: int
    topics: tuple[str, ...]
    denied: tuple[Denial, ...] = ()


@dataclass(frozen=True, slots=True)
class PresenceChanged:
    """Who is present on a topic has changed.

    Attributes:
        sub: The subscription that asked for presence.
        topic: The concrete topic.
        members: Everybody present now, by time of joining.
        change: `snapshot` for the first complete list; then what `member` did.
        member: Who joined, was updated, or left; None for `snapshot`.
    """

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

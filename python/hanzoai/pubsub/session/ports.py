"""What a session calls: the ports of the world outside, and the values that they carry.

The runtime implements them with sockets, timers and queues; tests implement them with a log. A port
is called at once, in the middle of a step, and must not call the session back before the step ends.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

if TYPE_CHECKING:
    from hanzoai.pubsub.gap import GapReason
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
    from hanzoai.pubsub.session.peer import Peer
    from hanzoai.pubsub.values import PresenceChangeKind

TransportName: TypeAlias = Literal["websocket", "sse"]
FetchReason: TypeAlias = Literal["connect", "expiring", "rejected"]


@dataclass(slots=True)  # not frozen, as `Publish`
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
        remedy: What to do about it, if the server said it; else the table knows.
        topic: The topic it concerns.
        retry_after: Milliseconds to wait before another try.
        field: Parameter or member of the payload at fault, if the server named it.
    """

    code: str
    message: str
    remedy: str | None = None
    topic: str | None = None
    retry_after: int | None = None
    field: str | None = None


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


class Ports(Protocol):
    """The world outside, as a session sees it."""

    # ---------------------------------------------------------------- connection

    def state_changed(self, change: StateChanged, /) -> None:
        """The session is in another state; what the change does follows."""

    def dial(self, transport: TransportName, /) -> None:
        """Open a transport; answer with `opened` or `dropped`. At most one is open at a time."""

    def hang_up(self, code: int, /) -> None:
        """Close the transport, or give up opening it; report nothing of it after that."""

    def send(self, frame: ClientFrame, /) -> None:
        """Write a frame."""

    def welcomed(self, peer: Peer, /) -> None:
        """The server sent `auth.ok`: for a connection, or for a renewed token."""

    def probe(self) -> None:
        """Try to open a WebSocket beside the fallback; answer with `probed`."""

    def probe_http(self, auth: AuthFrame, /) -> None:
        """See whether the HTTP address answers `auth` as a PubSub service does; `answered`."""

    # ---------------------------------------------------------------- token, timers

    def fetch_token(self, call: int, reason: FetchReason, attempt: int, /) -> None:
        """Call the token callback; answer with `token` or `token_failed` of the same call."""

    def abandon_fetch(self, call: int, /) -> None:
        """Cancel the token callback: it took too long, or its answer is not needed any more."""

    def start_timer(self, name: TimerName, after: int, /) -> None:
        """Start a timer, or restart it: call `timer_fired` after so many milliseconds."""

    def cancel_timer(self, name: TimerName, /) -> None:
        """Stop a timer that is running."""

    # ---------------------------------------------------------------- subscriptions

    def deliver(self, sub: int, message: Envelope, /) -> None:
        """A live message for a subscription, in order, once."""

    def deliver_replay(self, sub: int, messages: list[Envelope], /) -> None:
        """Messages for a subscription that an answer of the server brought together, in order."""

    def gap(
        self,
        sub: int,
        topic: str,
        from_: int | None,
        to: int | None,
        missed: int | None,
        reason: GapReason,
        /,
    ) -> None:
        """Messages of a topic are missing, right here in the order of the subscription.

        Args:
            sub: The subscription.
            topic: The concrete topic.
            from_: `seq` of the first missing message; None where the peer has no `seq`.
            to: `seq` of the last missing message; None if unknown.
            missed: How many are missing, `to - from_ + 1`; None if unknown.
            reason: `history_trimmed`: no longer retained. `log_reset`: the log began again.
                `node_changed`: the peer is another node, with a log of its own.
                `slow_consumer`: the reader's own queue was full. `unproven`: cannot be known.
        """

    def joined(self, sub: int, topics: tuple[str, ...], denied: tuple[Denial, ...], /) -> None:
        """The server answered a subscription, the first time or after a reconnect.

        Args:
            sub: The subscription.
            topics: The patterns in force. If empty, the subscription has ended; `denied` says why.
            denied: The patterns refused this time.
        """

    def presence_changed(
        self,
        sub: int,
        topic: str,
        members: tuple[PresenceMember, ...],
        change: PresenceChangeKind,
        member: PresenceMember | None,
        /,
    ) -> None:
        """Who is present on a topic has changed.

        Args:
            sub: The subscription that asked for presence.
            topic: The concrete topic.
            members: Everybody present now, by time of joining.
            change: `snapshot` for the first complete list; then what `member` did.
            member: Who joined, was updated, or left; None for `snapshot`.
        """

    # ---------------------------------------------------------------- outcomes

    def settle(self, ref: int, outcome: Outcome, /) -> None:
        """What became of a publish or an update of presence; called exactly once for each."""

    def problem(
        self, code: str, message: str, topic: str | None, retry_after: int | None, /
    ) -> None:
        """The server sent an error that answers nothing in particular; milliseconds to wait."""

    def finished(self, error: Rejected | None, /) -> None:
        """The session has ended: as asked (None), or by an error that no retry fixes."""

"""The ports that a session calls, and their values.

The runtime implements them with sockets, timers and queues; tests implement them with a log. A port
is called during a step, and must not call the session before the step ends.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

from hanzoai.pubsub.generated.lifecycle import Timer
from hanzoai.pubsub.generated.wire import ErrorInfo

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hanzoai.pubsub.gap import Gap
    from hanzoai.pubsub.generated.lifecycle import State
    from hanzoai.pubsub.generated.wire import AuthFrame, ClientFrame, Denial, Message, PublishResult
    from hanzoai.pubsub.session.peer import Peer
    from hanzoai.pubsub.values import PresenceChange, TokenReason

TransportName: TypeAlias = Literal["websocket", "sse"]

SessionTimer: TypeAlias = Literal["pace", "rejoin", "hold", "grace"]
"""Timers of the session that are not in the table: the publish budget, the retry of a subscription,
the time in which calls of the program do not start an early attempt, and the time for members to
return to a server that has lost them.
"""

TimerName: TypeAlias = Timer | SessionTimer


@dataclass(slots=True)  # not frozen, as `Publish`
class Acked:
    """The server accepted the publish: one result per message, in order.

    If the peer does not acknowledge publishes, the results contain only the ids.
    """

    results: tuple[PublishResult, ...]


Rejected: TypeAlias = ErrorInfo
"""The server or the client itself rejected an operation, or the server sent another error.

Without a remedy, that of the code in `spec/errors.yaml` applies.
"""


@dataclass(frozen=True, slots=True)
class Unknown:
    """The publish was sent, but its answer can no longer arrive: `outcome_unknown`."""


Outcome: TypeAlias = Acked | Rejected | Unknown


@dataclass(frozen=True, slots=True)
class StateChanged:
    """The session has changed its state in the table."""

    from_: State
    to: State
    code: str | int | None = None  # error code or close code of the cause, if any
    reason: str | None = None  # in words
    retry_in: int | None = None  # milliseconds until the next attempt
    attempt: int = 0  # number of consecutive failed attempts


class Ports(Protocol):
    """The interface of a session to its environment."""

    # ---------------------------------------------------------------- connection

    def state_changed(self, change: StateChanged, /) -> None:
        """The session has changed its state; the effects of the change follow."""

    def dial(self, transport: TransportName, /) -> None:
        """Open a transport; answer with `opened` or `dropped`. At most one is open at a time."""

    def hang_up(self, code: int, /) -> None:
        """Close the transport, or stop opening it; report nothing of it afterwards."""

    def send(self, frame: ClientFrame, /) -> None:
        """Write a frame."""

    def welcomed(self, peer: Peer, /) -> None:
        """The server sent `auth.ok`: for a connection, or for a renewed token."""

    def probe(self, auth: AuthFrame | None = None, /) -> None:
        """Try to open a WebSocket in addition to the fallback, and answer with `probed`.

        With `auth`, send it to the HTTP address instead, and answer with `answered` whether this is
        a PubSub service.
        """

    # ---------------------------------------------------------------- token, timers

    def fetch_token(self, call: int, reason: TokenReason, attempt: int, /) -> None:
        """Call the token callback; answer with `token` or `token_failed` of the same call."""

    def abandon_fetch(self, call: int, /) -> None:
        """Cancel the token callback: it took too long, or is no longer needed."""

    def start_timer(self, name: TimerName, after: int, /) -> None:
        """Start or restart a timer: call `timer_fired` after this many milliseconds."""

    def cancel_timer(self, name: TimerName, /) -> None:
        """Stop a timer that is running."""

    # ---------------------------------------------------------------- subscriptions

    def deliver(self, sub: int, messages: Sequence[Message], many: bool = False, /) -> None:
        """Messages for a subscription, in order, once: consecutive live ones of one topic.

        If `many`, they are of one answer of the server with several messages, of any topics.
        """

    def gap(self, sub: int, gap: Gap, many: bool = False, /) -> None:
        """Messages of a topic are missing at this point in the order of the subscription.

        If `many`, the gap is in an answer of the server with several messages.
        """

    def joined(self, sub: int, topics: tuple[str, ...], denied: tuple[Denial, ...], /) -> None:
        """The server answered: the active patterns, and those that this answer denied.

        Without an active pattern, the subscription has ended.
        """

    def presence_changed(self, sub: int, change: PresenceChange, /) -> None:
        """The members of a topic have changed, for a subscription that asked for presence."""

    # ---------------------------------------------------------------- outcomes

    def settle(self, ref: int, outcome: Outcome, /) -> None:
        """The outcome of a publish or presence update; called exactly once for each."""

    def problem(self, problem: Rejected, /) -> None:
        """The server sent an error that is not an answer."""

    def finished(self, error: Rejected | None, /) -> None:
        """The session has ended: as requested (None), or with an error that no retry fixes."""

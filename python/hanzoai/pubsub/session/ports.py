"""The border of a session: requests of the program, the server, ports; and what its parts share.

The runtime implements the ports with sockets, timers and queues; tests implement them with a log. A
port is called during a step, and must not call the session before the step ends.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Final, Literal, Protocol, TypeAlias

from hanzoai.pubsub.generated.lifecycle import Timer
from hanzoai.pubsub.generated.wire import ErrorInfo, Limits

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from hanzoai.pubsub.gap import Gap
    from hanzoai.pubsub.generated.lifecycle import State
    from hanzoai.pubsub.generated.wire import (
        AuthFrame,
        AuthOkFrame,
        ClientFrame,
        Denial,
        Message,
        Publication,
        PublishResult,
    )
    from hanzoai.pubsub.settings.options import SendPolicy
    from hanzoai.pubsub.settings.session import SessionOptions
    from hanzoai.pubsub.values import PresenceChange, TokenReason


@dataclass(frozen=True, slots=True)
class Subscribe:
    """The program subscribes."""

    sub: int  # unique number from the caller, which names the subscription in ports
    topics: tuple[str, ...]  # valid patterns, at least one, none twice
    since: int | None = None  # replay messages newer than this, Unix milliseconds
    history: int | None = None  # replay at most this many of the newest messages per topic
    # Replay the messages after these positions, by concrete topic; None: unknown to this peer.
    after: Mapping[str, int | None] = field(default_factory=dict[str, "int | None"])
    presence: bool = False


@dataclass(slots=True)  # not frozen: that makes it four times as slow to create
class Publish:
    """The program publishes."""

    ref: int  # unique number from the caller, which names the publish in `settle`
    messages: tuple[Publication, ...]  # valid, each with an id: one, or at least one with `batch`
    size: int  # their bytes on the wire, for the limit of the queue
    policy: SendPolicy = "error"  # for a full queue; with `block`, it takes the publish anyway
    key: str | None = None  # replaces an unsent one with this key; only with the policy `latest`
    batch: bool = False  # sent as one frame with one answer per message
    background: bool = False  # sent after the others when the rate is used up


@dataclass(frozen=True)
class Peer:
    """The other side of one connection."""

    client_id: str = ""  # assigned to this client
    features: frozenset[str] = frozenset()  # empty for a plain peer
    limits: Limits = field(default_factory=Limits)
    token_life: int | None = None  # milliseconds until the token expires, if stated
    plain: bool = True  # it implements only HIP-56, so the client sends nothing else
    acks: bool = False  # it answers publishes; on an event stream, each is a request
    resends: bool = False  # unanswered publishes can be sent again under the same id
    incremental: bool = True  # single subscriptions can be added; not on an event stream
    rate: int = 0  # allowed publishes per second; 0 if no limit is known
    node: str | None = None  # for which its positions are valid; None if for all
    user_id: str | None = None  # of this client, if stated

    @cached_property  # it is read for each publish
    def burst(self) -> float:
        """Maximum publishes at once: a tenth less than the rate; infinite without a limit."""
        # With equal budgets, network jitter alone would cause rejections by the server when both
        # are used up; and a rejected publish would be overtaken by later ones.
        return self.rate - min(max(1, self.rate // 10), self.rate // 2) or math.inf


def read_peer(frame: AuthOkFrame, at: int, *, incremental: bool) -> Peer:
    """Read `auth.ok`, which arrived at this time, Unix milliseconds by the client's clock."""
    features = frozenset(() if frame.version is None else frame.features or ())
    limits = frame.limits or Limits()
    now = at if frame.server_time is None else frame.server_time
    return Peer(
        client_id=frame.client_id,
        features=features,
        limits=limits,
        token_life=None if frame.expires_at is None else frame.expires_at - now,
        plain=frame.version is None,
        acks=not incremental or features >= {"ack", "ref"},
        resends="idempotency" in features,
        incremental=incremental,
        rate=limits.publish_rate or 0,
        node=frame.node,
        user_id=frame.user_id,
    )


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


MAX_TIMER: Final = 2**31 - 1
"""Maximum timer that every platform supports, milliseconds: 24.8 days."""


class Timers:
    """The running timers, with their milliseconds."""

    def __init__(self, ports: Ports) -> None:
        self._ports = ports
        self._running: dict[TimerName, int] = {}

    def __contains__(self, name: TimerName) -> bool:
        return name in self._running

    def after(self, name: TimerName) -> int | None:
        """Milliseconds of a timer that is running; None for others."""
        return self._running.get(name)

    def start(self, name: TimerName, after: int) -> None:
        """Start a timer, or restart it."""
        self._running[name] = after
        self._ports.start_timer(name, after)

    def stop(self, *names: TimerName) -> None:
        """Stop the timers that are running."""
        for name in names:
            if self._running.pop(name, None) is not None:
                self._ports.cancel_timer(name)

    def stop_all(self) -> None:
        """Stop every timer."""
        self.stop(*self._running)

    def limit(self, name: TimerName, after: int | None) -> None:
        """Let a timer fire after this time, if it is in the future and a timer can be that long."""
        self.stop(name)
        if after is not None and 0 < after <= MAX_TIMER:
            self.start(name, after)

    def fired(self, name: TimerName) -> bool:
        """Record that a timer has fired; False if it was not running."""
        return self._running.pop(name, None) is not None


class Context:
    """Options, ports, randomness, timers, and the peer of the current connection."""

    def __init__(self, options: SessionOptions, ports: Ports, random: Callable[[], float]) -> None:
        self.options = options
        self.ports = ports
        self.random = random
        self.timers = Timers(ports)
        self.peer: Peer | None = None  # None without an authenticated connection

"""The interfaces between the parts of the server.

Listeners use the `Service` of `service.py`. The hub uses `Sink`, the `Backplane` of `backplane.py`,
and for identities, permissions and limits: `Identity`, `Authenticator`, `Policy`, `RateLimiter`,
`ConnectionLimiter`, `Audit`, `Webhooks`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

from pubsub_server.instruments import Distribution

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from pubsub_server.auth.identity import Identity as Identity
    from pubsub_server.backplane import Entry, Published, Standing
    from pubsub_server.errors import ServiceError
    from pubsub_server.shared.requests import Draft


# ---------------------------------------------------------------- identity and permissions


class Caller(NamedTuple):
    """Where a token comes from.

    Attributes:
        address: The client's IP address; None if unknown.
        request_id: Id of an HTTP request; None over a WebSocket.
    """

    address: str | None
    request_id: str | None = None


class Authenticator(Protocol):
    """Turns a token or API key into an identity."""

    async def authenticate(self, token: str) -> Identity:
        """Check a token, given with or without ``Bearer``.

        Raises:
            ServiceError: `token_invalid`, `token_expired` or `unavailable`.
        """
        ...


class Policy(Protocol):
    """The access rules. Answers are immediate, and constant until the identity changes."""

    def may_subscribe(self, identity: Identity, topic: str) -> bool:
        """Whether this identity may read this concrete topic."""
        ...

    def may_subscribe_pattern(self, identity: Identity, pattern: str) -> bool:
        """Whether to accept a subscription to a topic or pattern.

        Messages of a pattern are filtered by `may_subscribe` for each concrete topic; False denies
        the whole pattern.
        """
        ...

    def may_publish(self, identity: Identity, topic: str) -> bool:
        """Whether this identity may publish to this topic."""
        ...

    def may_administer(self, identity: Identity) -> bool:
        """Whether this identity may list topics and similar data."""
        ...


class Inspector(Protocol):
    """Checks publications before the hub accepts them.

    The hub calls each inspector after the access rules and the rate, for every publication of every
    listener, within one turn of the loop.
    """

    def inspect(self, draft: Draft) -> None:
        """Accept a publication by returning.

        Raises:
            ServiceError: It is rejected; the publisher gets this error, and no subscriber receives
                it.
        """
        ...


class RateLimiter(Protocol):
    """The publish rate, HIP-56 Security 4."""

    def take(self, identity: Identity, client_id: str | None, count: int) -> tuple[int, int]:
        """Take up to ``count`` publishes from the budget.

        Args:
            identity: The publisher.
            client_id: Its connection.
            count: Number of messages.

        Returns:
            The number of granted messages (the first ones), and the milliseconds until the next
            would be granted (0 if all are).
        """
        ...

    async def share(
        self, identity: Identity, count: int, *, batch: bool = False
    ) -> tuple[int, int]:
        """Like `take`, for REST: from the budget that all nodes share.

        Args:
            identity: The publisher.
            count: Number of messages.
            batch: Whether they are one batch; a bulk publisher has a separate budget for batches.
        """
        ...

    def rate(self, identity: Identity, *, batch: bool = False) -> int:
        """Publishes per second of this identity, as in ``auth.ok.limits``; or for batches."""
        ...

    def forget(self, identity: Identity, client_id: str) -> None:
        """Note that the connection is closed."""
        ...


class ConnectionLimiter(Protocol):
    """Connections per user and per organization, HIP-56 Security 7."""

    def acquire(self, identity: Identity, held: Identity | None = None) -> Awaitable[None] | None:
        """Count one connection.

        Args:
            identity: Its identity.
            held: The identity under which it is already counted, at a reauthentication.

        Returns:
            An awaitable that grants it or raises; None if it is granted immediately.

        Raises:
            ServiceError: `connection_limit`.
        """
        ...

    def release(self, identity: Identity, kept: Identity | None = None) -> None:
        """Release one connection. Called once for each `acquire` that did not raise.

        Args:
            identity: The identity under which it was counted.
            kept: The identity under which it remains counted.
        """
        ...


# ---------------------------------------------------------------- who listens to what happens

AuditAction = Literal["subscribe", "unsubscribe", "publish"]
HookEvent = Literal[
    "publish",
    "join",
    "leave",
    "update",
    "subscribe",
    "unsubscribe",
    "pubsub.subscribed",
    "pubsub.unsubscribed",
    "pubsub.published",
]


class Audit(Protocol):
    """Writes audit records of sensitive topics, HIP-56 Security 9. Never blocks."""

    def record(
        self,
        action: AuditAction,
        identity: Identity,
        topic: str,
        *,
        client_id: str | None,
        message_id: str | None = None,
        refused: str | None = None,
    ) -> None:
        """Record one operation; ``refused`` is the error code if it was denied."""
        ...

    def auth(
        self,
        identity: Identity | None,
        caller: Caller | None,
        *,
        client_id: str | None = None,
        refused: str | None = None,
    ) -> None:
        """Record that a token was accepted, or rejected with an error code.

        Args:
            identity: The identity of the token; None if unknown.
            caller: Its origin.
            client_id: The connection, or the one to resume; None for a request.
            refused: The error code.
        """
        ...

    def cut(
        self,
        identity: Identity,
        caller: Caller | None,
        *,
        client_id: str,
        refused: str | None = None,
    ) -> None:
        """Record that an administrator closed a connection, or was denied with an error code.

        Args:
            identity: The administrator.
            caller: The origin of the request.
            client_id: The connection.
            refused: The error code.
        """
        ...


class Webhooks(Protocol):
    """Notifies receivers of events. Never blocks."""

    def wants(self, event: HookEvent, topic: str) -> bool:
        """Whether a receiver requested this event; `notify` is called only in this case."""
        ...

    def notify(self, event: HookEvent, topic: str, body: bytes) -> None:
        """Queue one event.

        Args:
            event: The kind of event.
            topic: Its topic.
            body: JSON: the envelope of a publish or presence message, otherwise the user.
        """
        ...


class Tracing(Protocol):
    """Traces messages that carry a trace context."""

    def publishing(
        self,
        items: Sequence[Draft | ServiceError],
        done: Callable[[list[Published | ServiceError]], None],
    ) -> Callable[[list[Published | ServiceError]], None]:
        """Record a publish and its result.

        Args:
            items: The messages.
            done: The callback for the answers.

        Returns:
            The callback to use instead.
        """
        ...

    def delivering(self, entry: Entry, listeners: int, deliver: Callable[[], None]) -> None:
        """Record a delivery and its number of connections."""
        ...


@dataclass(slots=True)
class Stats:
    """Counters and durations of the hub; `/metrics` reads them on demand. Never reset.

    Attributes:
        connections: Open connections, by the name of their encoder.
        refused: Requests, by error code.
        tokens_refused: Tokens, by error code.
        local: Messages of a byte protocol that stayed among its own subscribers, by listener.
        denied: Publishes of a byte protocol that the access rules deny, by listener.
        broken: Connections of a byte protocol that the server closed, by listener and reason.
        answering: Seconds from a publish to its answer, if the backplane answers later.
        writing: Seconds from the first bytes that a loop turn has to send to the end of its
            writes.
        publish_to_write: Seconds from the timestamp of the first message that a loop turn delivers
            to the end of its writes, with millisecond resolution; its accuracy depends on the
            clocks of the nodes.
    """

    connections: dict[str, int] = field(default_factory=dict[str, int])
    authenticated: int = 0
    subscriptions: int = 0
    connections_total: int = 0
    frames_in: int = 0
    published: int = 0
    duplicates: int = 0
    published_bytes: int = 0
    delivered: int = 0
    writes: int = 0
    bytes_out: int = 0
    replayed: int = 0
    slow_consumers: int = 0
    presence_changes: int = 0
    tokens: int = 0
    refused: dict[str, int] = field(default_factory=dict[str, int])
    tokens_refused: dict[str, int] = field(default_factory=dict[str, int])
    local: dict[str, int] = field(default_factory=dict[str, int])
    denied: dict[str, int] = field(default_factory=dict[str, int])
    broken: dict[str, int] = field(default_factory=dict[str, int])
    answering: Distribution = field(default_factory=Distribution)
    writing: Distribution = field(default_factory=Distribution)
    publish_to_write: Distribution = field(default_factory=Distribution)

    def token(self, refused: str | None) -> None:
        """Count a checked token; ``refused`` is the error code if it was rejected."""
        self.tokens += 1
        if refused is not None:
            self.tokens_refused[refused] = self.tokens_refused.get(refused, 0) + 1


# ---------------------------------------------------------------- listeners and the hub


class Sink(Protocol):
    """A listener's side of one connection."""

    @property
    def caller(self) -> Caller | None:
        """Address of the client; None on a Unix socket."""
        ...

    def write(self, data: bytes) -> None:
        """Pass encoded bytes to the transport; called once per connection and loop turn.

        A sink with too many unsent bytes calls `Service.pause`, and `Service.resume` when they are
        sent; the hub queues messages in between. Pings and keep-alive comments also use this
        method. After the end it does nothing.
        """
        ...

    def buffered(self) -> int:
        """Bytes that the transport still holds."""
        ...

    def close(self, code: int, reason: str) -> None:
        """Send the written bytes, then end the connection with this close code."""
        ...

    def hold(self, on: bool) -> None:
        """Stop reading from the client until its requests are done, or continue."""
        ...

    def abort(self) -> None:
        """Cut the connection without a close frame, like a network failure."""
        ...


@dataclass(frozen=True, slots=True)
class AuthOk:
    """The answer to a successful authentication."""

    client_id: str
    user_id: str
    version: int
    features: tuple[str, ...]
    expires_at: int | None
    server_time: int
    limits: Mapping[str, int]
    node: str | None = None


@dataclass(frozen=True, slots=True)
class PositionList:
    """Positions of topics, by name.

    Attributes:
        positions: One per topic.
        timestamp: Time of the store at the query, Unix ms.
        has_more: More topics match.
    """

    positions: Sequence[Standing]
    timestamp: int
    has_more: bool


@dataclass(frozen=True, slots=True)
class ConnectionReport:
    """One open connection, for administrators.

    Attributes:
        client_id: Identifies it.
        user_id: Its user.
        kind: `user`, `service`, `admin` or `agent`.
        name: Display name of the user.
        transport: Its protocol, as in the label of the metrics.
        address: IP address of the client; None if unknown.
        connected_at: Time of the first authentication, Unix ms.
        patterns: The first topics and patterns that it is subscribed to.
        subscriptions: Total number of subscriptions.
        queued_bytes: Bytes that the client has not read yet.
        queue_limit: Maximum queued bytes before the server closes the connection.
        stalled: Whether it accepts no data now.
    """

    client_id: str
    user_id: str
    kind: str
    name: str | None
    transport: str
    address: str | None
    connected_at: int
    patterns: tuple[str, ...]
    subscriptions: int
    queued_bytes: int
    queue_limit: int
    stalled: bool


@dataclass(frozen=True, slots=True)
class Member:
    """One connected client of a topic. HIP-56 Presence."""

    client_id: str
    user_id: str
    name: str
    avatar_url: str | None
    status: str | None
    metadata: Mapping[str, object] | None
    joined_at: int
    last_seen: int
    kind: str = "user"

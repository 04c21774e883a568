"""The interfaces between the parts of the server.

Listeners know the `Service` of `service.py`; the hub knows `Sink`, the `Backplane` of
`backplane.py`, and who, what may be and how much: `Identity`, `Authenticator`, `Policy`,
`RateLimiter`, `ConnectionLimiter`, `Audit`, `Webhooks`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

import msgspec

from pubsub_server.instruments import Distribution

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from pubsub_server.auth.identity import Identity as Identity
    from pubsub_server.backplane import Entry, Standing
    from pubsub_server.errors import ServiceError
    from pubsub_server.shared.requests import Draft


# ---------------------------------------------------------------- identity and permissions


class Caller(NamedTuple):
    """Where a token comes from.

    Attributes:
        address: The client's IP address; None where it is not known.
        request_id: Of an HTTP request; None over a WebSocket.
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
    """The access rules. Every answer is immediate and the same until the identity changes."""

    def may_subscribe(self, identity: Identity, topic: str) -> bool:
        """Whether this identity may read this concrete topic."""
        ...

    def may_subscribe_pattern(self, identity: Identity, pattern: str) -> bool:
        """Whether a subscription to a pattern with `*` or `**` is allowed at all.

        What it delivers is filtered by `may_subscribe` for each concrete topic; False refuses the
        pattern outright.
        """
        ...

    def may_publish(self, identity: Identity, topic: str) -> bool:
        """Whether this identity may publish to this topic."""
        ...

    def may_administer(self, identity: Identity) -> bool:
        """Whether this identity may list topics and similar data."""
        ...


class Inspector(Protocol):
    """Looks at publications before the hub accepts them.

    The hub asks each inspector after the access rules and the rate, for every publication of every
    listener, in one turn of the loop.
    """

    def inspect(self, draft: Draft) -> None:
        """Accept a publication by returning.

        Raises:
            ServiceError: It is refused; the publisher gets this error, and no subscriber hears it.
        """
        ...


class RateLimiter(Protocol):
    """The publish rate, HIP-56 Security 4."""

    def take(self, identity: Identity, client_id: str | None, count: int) -> tuple[int, int]:
        """Take up to ``count`` publishes from the budget.

        Args:
            identity: Who publishes.
            client_id: The connection.
            count: How many messages.

        Returns:
            How many are granted (the first ones), and in how many milliseconds the next one would
            be (0 where all are granted).
        """
        ...

    async def share(
        self, identity: Identity, count: int, *, batch: bool = False
    ) -> tuple[int, int]:
        """As `take`, over REST: of the budget that all nodes share.

        Args:
            identity: Who publishes.
            count: How many messages.
            batch: They come as one batch; who publishes in bulk has a budget for these alone.
        """
        ...

    def rate(self, identity: Identity, *, batch: bool = False) -> int:
        """Publishes per second of this identity, as in ``auth.ok.limits``; or by batches."""
        ...

    def forget(self, identity: Identity, client_id: str) -> None:
        """Note that the connection is closed."""
        ...


class ConnectionLimiter(Protocol):
    """Connections per user and per organization, HIP-56 Security 7."""

    def acquire(self, identity: Identity, held: Identity | None = None) -> Awaitable[None] | None:
        """Count one connection.

        Args:
            identity: Whose it is.
            held: As whom it is counted already, where it authenticates again.

        Returns:
            What has to be awaited before it is granted, and may raise; None where it is.

        Raises:
            ServiceError: `connection_limit`.
        """
        ...

    def release(self, identity: Identity, kept: Identity | None = None) -> None:
        """Release one connection. Called once for each `acquire` that did not raise.

        Args:
            identity: As whom it was counted.
            kept: As whom it goes on to be counted.
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
    """Keeps records of what happens to sensitive topics, HIP-56 Security 9. Never blocks."""

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
        """Note one operation; ``refused`` is the error code where it was not allowed."""
        ...

    def auth(
        self,
        identity: Identity | None,
        caller: Caller | None,
        *,
        client_id: str | None = None,
        refused: str | None = None,
    ) -> None:
        """Note that a token was taken, or refused with an error code.

        Args:
            identity: Whom the token names; None where no one knows.
            caller: From where it came.
            client_id: The connection, or the one that should be resumed; None for a request.
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
        """Note that an administrator closed a connection, or was refused with an error code.

        Args:
            identity: Who asked for it.
            caller: From where the request came.
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
            event: What happened.
            topic: Where.
            body: JSON: the envelope of a publish or presence message, the user otherwise.
        """
        ...


class Tracing(Protocol):
    """Follows messages that carry a trace context."""

    def publishing(
        self,
        items: Sequence[Draft | ServiceError],
        done: Callable[[list[Published | ServiceError]], None],
    ) -> Callable[[list[Published | ServiceError]], None]:
        """Note that these are published, and with the answers how that went.

        Args:
            items: What is published.
            done: What the answers are for.

        Returns:
            What gets the answers instead.
        """
        ...

    def delivering(self, entry: Entry, listeners: int, deliver: Callable[[], None]) -> None:
        """Record a delivery and its number of connections."""
        ...


@dataclass(slots=True)
class Stats:
    """What the hub counts and times; `/metrics` reads it when asked. Never reset.

    Attributes:
        connections: The open ones, by the name of their encoder.
        refused: Requests, by error code.
        tokens_refused: Tokens, by error code.
        local: Messages of a byte protocol that stayed among its own subscribers, by listener.
        denied: Publishes of a byte protocol that the access rules do not allow, by listener.
        broken: Connections of a byte protocol that the server closed, by listener and reason.
        answering: Seconds from a publish to its answer, where the backplane answers later.
        writing: Seconds from the first bytes that a loop turn has to send to the end of its
            writes.
        publish_to_write: Seconds from the time in the first message that a loop turn delivers to
            the end of its writes; a millisecond fine, and as right as the clocks of the nodes.
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
        """Count a token that was checked; ``refused`` is the error code if it was."""
        self.tokens += 1
        if refused is not None:
            self.tokens_refused[refused] = self.tokens_refused.get(refused, 0) + 1


# ---------------------------------------------------------------- listeners and the hub


class Sink(Protocol):
    """A listener's side of one connection."""

    @property
    def caller(self) -> Caller | None:
        """Address of the client; None without a network."""
        ...

    def write(self, data: bytes) -> None:
        """Pass encoded bytes to the transport at once; called once per connection and loop turn.

        A sink whose transport has more unsent bytes than it should calls `Service.pause`, and
        `Service.resume` when they are gone; the hub keeps what comes in between. Pings and the
        comments that keep a stream alive come this way too. After the end it does nothing.
        """
        ...

    def buffered(self) -> int:
        """Bytes that the transport still holds."""
        ...

    def close(self, code: int, reason: str) -> None:
        """Send what was written, then end the connection with this close code."""
        ...

    def hold(self, on: bool) -> None:
        """Stop reading from the client until its requests are done, or continue."""
        ...

    def abort(self) -> None:
        """Cut the connection without a close frame, like a network failure."""
        ...


@dataclass(frozen=True, slots=True)
class AuthOk:
    """What a client learns when it is authenticated."""

    client_id: str
    user_id: str
    version: int
    features: tuple[str, ...]
    expires_at: int | None
    server_time: int
    limits: Mapping[str, int]
    node: str | None = None


class Published(msgspec.Struct, gc=False):
    """Result of a publication."""

    id: str
    timestamp: int
    seq: int | None
    duplicate: bool


@dataclass(frozen=True, slots=True)
class Page:
    """Retained messages of one topic, oldest first; each is the JSON of an envelope."""

    messages: Sequence[bytes]
    has_more: bool
    position: int | None
    truncated: bool
    reset: bool


@dataclass(frozen=True, slots=True)
class PositionList:
    """Positions of topics, by name.

    Attributes:
        positions: One per topic.
        timestamp: Time of the store when it was asked, Unix ms.
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
        user_id: Whose it is.
        kind: `user`, `service`, `admin` or `agent`.
        name: Display name of the user.
        transport: Its protocol, as in the label of the metrics.
        address: IP address of the client; None where it is not known.
        connected_at: When it was authenticated first, Unix ms.
        patterns: The first topics and patterns that it is subscribed to.
        subscriptions: How many there are.
        queued_bytes: Bytes that the client has not taken yet.
        queue_limit: Bytes that may wait before the server closes the connection.
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
class TopicReport:
    """One active topic."""

    topic: str
    subscribers: int
    messages: int
    position: int | None
    last_message_at: int | None


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

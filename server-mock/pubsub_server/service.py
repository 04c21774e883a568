"""`Service`: the interface of the hub for listeners."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Mapping, Sequence

    from pubsub_server.errors import ServiceError
    from pubsub_server.interfaces import (
        AuditAction,
        AuthOk,
        Caller,
        ConnectionReport,
        Identity,
        Member,
        Page,
        PositionList,
        Published,
        Sink,
        Stats,
        TopicReport,
    )
    from pubsub_server.shared.connection import Connection
    from pubsub_server.shared.encoder import Encoder
    from pubsub_server.shared.requests import (
        Draft,
        PositionsRequest,
        SubscribeRequest,
        UnsubscribeRequest,
    )
    from pubsub_server.shared.wheel import Wheel


class Service(Protocol):
    """The interface of the hub for listeners."""

    @property
    def stats(self) -> Stats:
        """Counters."""
        ...

    @property
    def refusing(self) -> bool:
        """Whether new connections are rejected."""
        ...

    @property
    def wheel(self) -> Wheel:
        """The timer of all deadlines."""
        ...

    @property
    def clock(self) -> Callable[[], float]:
        """Monotonic seconds, of `Connection.last_heard`."""
        ...

    @property
    def node(self) -> str | None:
        """Id of this node if its positions are valid only on this node, otherwise None."""
        ...

    def open(self, sink: Sink, encoder: Encoder) -> Connection:
        """Open a connection. It has `auth_deadline` until `authenticate` or `enter`.

        Args:
            sink: The listener's side.
            encoder: Its wire format; one object for all connections that have it.

        Raises:
            ServiceError: `going_away` while draining.
        """
        ...

    def end(self, connection: Connection, error: ServiceError, ref: str | None = None) -> None:
        """End a connection: send the error, then close with its code.

        Args:
            connection: Which.
            error: Why.
            ref: Of the frame that this answers.
        """
        ...

    def receive(self, connection: Connection, data: str | bytes) -> None:
        """Process one inbound frame. Never raises; asynchronous work (auth) runs in one task."""
        ...

    async def identify(self, token: str, caller: Caller | None = None) -> Identity:
        """Return the identity of a request without a connection; `caller` is for the audit log.

        Raises:
            ServiceError: `token_invalid`, `token_expired`, `unavailable`.
        """
        ...

    def session(self, identity: Identity, client_id: str | None = None) -> AuthOk:
        """Return the content of `auth.ok` for this identity, for its event stream.

        Args:
            identity: Of the caller, who has no connection yet.
            client_id: The client that the stream resumes. The answer names another one where
                this identity may not resume it.
        """
        ...

    async def authenticate(
        self, connection: Connection, token: str, *, client_id: str | None = None
    ) -> AuthOk:
        """Authenticate the connection, initially or to renew its token.

        Args:
            connection: Of `open`.
            token: With or without ``Bearer``.
            client_id: The connection that this one resumes, for presence.

        Raises:
            ServiceError: `token_invalid`, `token_expired`, `connection_limit`, `unavailable`.
        """
        ...

    async def enter(self, connection: Connection, identity: Identity) -> None:
        """Give the connection the identity of the configuration, without a token.

        Raises:
            ServiceError: `connection_limit`, `unavailable`.
        """
        ...

    def subscribe(self, connection: Connection, request: SubscribeRequest) -> None:
        """Subscribe, replay, then deliver live messages; answers through the connection."""
        ...

    def unsubscribe(self, connection: Connection, request: UnsubscribeRequest) -> None:
        """End subscriptions by exactly these patterns; answers through the connection."""
        ...

    def heard(self, connection: Connection) -> None:
        """Note that the client sent a byte of any kind."""
        ...

    def pause(self, connection: Connection) -> None:
        """Stop writing until `resume`, because the transport is full."""
        ...

    def resume(self, connection: Connection) -> None:
        """Continue to write: the transport has space again."""
        ...

    def closed(self, connection: Connection, code: int | None = None) -> None:
        """Note that the connection is closed; `code` is None without a close handshake. Idempotent.

        Presence leaves at once for a close code 1000 or 1001 from the client, else after the grace.
        """
        ...

    async def publish(
        self,
        identity: Identity,
        drafts: Sequence[Draft],
        *,
        connection: Connection | None = None,
        batch: bool = False,
    ) -> list[Published | ServiceError]:
        """Publish in order; returns one answer per item.

        Args:
            identity: Who publishes.
            drafts: What, its form checked.
            connection: By which; None over REST.
            batch: Over REST, as one batch.
        """
        ...

    def put(
        self,
        identity: Identity,
        drafts: Sequence[Draft],
        connection: Connection,
        done: Callable[[list[Published | ServiceError]], None],
    ) -> None:
        """As `publish`; ``done`` is called once, and at once where the backplane needs no time."""
        ...

    def send(self, connection: Connection, data: bytes) -> None:
        """Send bytes of the listener at the end of this loop turn, in order with all others."""
        ...

    def budget(self, connection: Connection, count: int) -> tuple[int, int]:
        """Take up to ``count`` publishes from the rate of a connection that has an identity.

        For what a listener delivers itself; `put` does it for what goes through the hub.

        Returns:
            How many are granted, and in how many milliseconds the next one would be.
        """
        ...

    def note(
        self,
        action: AuditAction,
        connection: Connection,
        topic: str,
        refused: str | None = None,
    ) -> None:
        """Audit and count an operation that a listener performs or rejects itself.

        Args:
            action: What the client asked for.
            connection: Who; it has an identity.
            topic: Where.
            refused: The error code, if it was refused.
        """
        ...

    def reach(self, topic: str) -> int:
        """The number of connections of this node that receive messages of a topic now."""
        ...

    async def history(
        self,
        identity: Identity,
        topic: str,
        *,
        since: int | None = None,
        before: str | None = None,
        after: int | None = None,
        limit: int | None = None,
    ) -> Page:
        """One page of a topic's retained messages: the newest, or the first behind ``after``.

        Raises:
            ServiceError: `forbidden`, `invalid_topic`, `invalid_option`.
        """
        ...

    async def positions(
        self, identity: Identity, wanted: PositionsRequest, gone: asyncio.Future[None]
    ) -> PositionList:
        """Return the positions of topics; if requested, wait until one of them changes.

        Args:
            identity: Who asks.
            wanted: What for.
            gone: Done when no one waits for the answer any more.

        Raises:
            ServiceError: `forbidden`, `connection_limit`, `unavailable`.
        """
        ...

    async def presence(self, identity: Identity, topic: str) -> list[Member]:
        """Return the members of a topic.

        Raises:
            ServiceError: `forbidden`, `invalid_topic`, `unavailable`.
        """
        ...

    async def topics(
        self, identity: Identity, *, prefix: str = "", limit: int = 100
    ) -> tuple[list[TopicReport], bool]:
        """Return active topics by name, and whether there are more.

        Raises:
            ServiceError: `forbidden`, `invalid_option`.
        """
        ...

    async def connections(
        self,
        identity: Identity,
        *,
        user: str | None = None,
        topic: str | None = None,
        limit: int = 100,
    ) -> tuple[list[ConnectionReport], int]:
        """Open connections of this node, those with the longest queues first.

        Args:
            identity: Who asks.
            user: Only those of this user.
            topic: Only those that are subscribed to this topic, also by a pattern.
            limit: Maximum number of reports.

        Returns:
            The reports, and how many connections match in all.

        Raises:
            ServiceError: `forbidden`, `invalid_option`, `invalid_topic`.
        """
        ...

    def cut(self, identity: Identity, client_id: str, caller: Caller | None = None) -> None:
        """Close a connection of this node with a code after which its client reconnects.

        Raises:
            ServiceError: `forbidden`, `not_found`.
        """
        ...

    async def drain(
        self, seconds: float, spread: float = 0.0, hurry: asyncio.Event | None = None
    ) -> None:
        """Reject new work, answer received publishes, and close every connection with 1001.

        Args:
            seconds: For all of it.
            spread: Seconds between the first end and the last; at most 3/4 of all.
            hurry: When it is set, the rest ends at once.
        """
        ...


class FaultDoor(Protocol):
    """Injects faults, for tests."""

    def perform(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Perform the fault in the body of a request, and return the result.

        Raises:
            ServiceError: `invalid_frame`, naming the field.
        """
        ...

"""`Service`: the interface of the hub for listeners."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Mapping, Sequence

    from pubsub_server.backplane import Page, Published, TopicReport
    from pubsub_server.errors import ServiceError
    from pubsub_server.interfaces import (
        AuditAction,
        AuthOk,
        Caller,
        ConnectionReport,
        Identity,
        Member,
        PositionList,
        Sink,
        Stats,
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
        """Monotonic seconds, of `Connection.last_received`."""
        ...

    @property
    def node(self) -> str | None:
        """Id of this node if its positions are valid only on this node, otherwise None."""
        ...

    def settled(self) -> int:
        """See `backplane.Backplane`."""
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
            connection: The connection.
            error: The reason.
            ref: The `ref` of the frame that this answers.
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
            identity: Identity of the caller, which has no connection yet.
            client_id: The client that the stream resumes. The answer has another id if this
                identity may not resume it.
        """
        ...

    async def authenticate(
        self, connection: Connection, token: str, *, client_id: str | None = None
    ) -> AuthOk:
        """Authenticate the connection, initially or to renew its token.

        Args:
            connection: From `open`.
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

    def touch(self, connection: Connection) -> None:
        """Note that the client sent a byte of any kind."""
        ...

    def pause(self, connection: Connection) -> None:
        """Stop writing until `resume`, because the transport is full."""
        ...

    def resume(self, connection: Connection) -> None:
        """Continue to write: the transport has space again."""
        ...

    def mute(self, connection: Connection) -> None:
        """End the subscriptions of a connection whose client no longer reads, and discard answers.

        The connection can publish until `closed`.
        """
        ...

    def closed(self, connection: Connection, code: int | None = None) -> None:
        """Note that the connection is closed; `code` is None without a close handshake. Idempotent.

        The client leaves presence immediately if it closes with 1000 or 1001, otherwise after the
        grace period.
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
            identity: The publisher.
            drafts: The validated publications.
            connection: The connection; None over REST.
            batch: Whether they are one REST batch.
        """
        ...

    def put(
        self,
        identity: Identity,
        drafts: Sequence[Draft],
        connection: Connection,
        done: Callable[[list[Published | ServiceError]], None],
    ) -> None:
        """Like `publish`; calls ``done`` once, immediately if the backplane can."""
        ...

    def send(self, connection: Connection, data: bytes) -> None:
        """Send bytes of the listener at the end of this loop turn, in order with all others."""
        ...

    async def turn(self, size: int) -> None:
        """Wait until a batch of messages may be handled, so that it does not delay others.

        Args:
            size: Bytes of the batch.
        """
        ...

    def budget(self, connection: Connection, count: int) -> tuple[int, int]:
        """Take up to ``count`` publishes from the rate of a connection that has an identity.

        For messages that a listener delivers itself; `put` does it for messages through the hub.

        Returns:
            The number of granted messages, and the milliseconds until the next would be granted.
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
            action: The operation.
            connection: The client's connection, which has an identity.
            topic: The topic.
            refused: The error code, if it was rejected.
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
        before: str | int | None = None,
        after: int | None = None,
        limit: int | None = None,
    ) -> Page:
        """One page of a topic's retained messages: the newest, or the first after ``after``.

        ``before`` is the id or the position of the message that the page ends before.

        Raises:
            ServiceError: `forbidden`, `invalid_topic`, `invalid_option`.
        """
        ...

    async def positions(
        self, identity: Identity, wanted: PositionsRequest, gone: asyncio.Future[None]
    ) -> PositionList:
        """Return the positions of topics; if requested, wait until one of them changes.

        Args:
            identity: The caller.
            wanted: The request.
            gone: A future that is done when the caller no longer waits for the answer.

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
            identity: The caller.
            user: Only connections of this user.
            topic: Only connections that are subscribed to this topic, also by a pattern.
            limit: Maximum number of reports.

        Returns:
            The reports, and the total number of matching connections.

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
            seconds: Maximum time in total.
            spread: Seconds between the first end and the last; at most 3/4 of `seconds`.
            hurry: Set it to end the rest immediately.
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

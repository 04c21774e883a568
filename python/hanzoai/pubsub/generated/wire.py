# Generated from spec/pubsub.schema.json by `make generate`; do not edit.

from __future__ import annotations

from typing import Annotated, Any, Generic, Literal

from pydantic import Field
from typing_extensions import TypeAliasType

from hanzoai.pubsub.model import Data_co, Model, Payload

Topic = TypeAliasType(
    "Topic",
    Annotated[
        str,
        Field(max_length=255, min_length=1, pattern="^[a-zA-Z0-9_-]+(\\.[a-zA-Z0-9_-]+)*$"),
    ],
)
"""Name of a topic: dot-separated, no empty segment, no `*`. HIP-56 Topics, Security 8."""


TopicPattern = TypeAliasType(
    "TopicPattern",
    Annotated[
        str,
        Field(
            max_length=255,
            min_length=1,
            pattern="^([a-zA-Z0-9_-]+|\\*\\*?)(\\.([a-zA-Z0-9_-]+|\\*\\*?))*$",
        ),
    ],
)
"""Topic name in which whole segments may be `*` (exactly one segment) or `**` (one or more). HIP-56 Wildcard Subscriptions."""


Timestamp = TypeAliasType("Timestamp", Annotated[int, Field(ge=0, le=9007199254740991)])
"""Unix epoch, milliseconds."""


Seq = TypeAliasType("Seq", Annotated[int, Field(ge=0, le=9007199254740991)])
"""Position of a message in the log of its topic: contiguous, +1 per message. A new log starts at its Unix milliseconds x 1000. At most 2^53-1."""


MessageId = TypeAliasType("MessageId", Annotated[str, Field(max_length=128, min_length=1)])
"""Unique message id, recommended `msg_` and a ULID."""


ErrorCode = TypeAliasType(
    "ErrorCode",
    Literal[
        "invalid_frame",
        "invalid_topic",
        "invalid_payload",
        "invalid_option",
        "schema",
        "payload_too_large",
        "unauthenticated",
        "token_invalid",
        "token_expired",
        "auth_timeout",
        "forbidden",
        "not_found",
        "conflict",
        "rate_limited",
        "connection_limit",
        "subscription_limit",
        "slow_consumer",
        "idle_timeout",
        "unsupported",
        "unavailable",
        "going_away",
        "internal",
    ]
    | str,
)
"""Error code. Later servers may send other codes; `spec/errors.yaml` has meanings and remedies."""


class Sender(Model):
    """Identity of the publisher, set by the server.

    Attributes:
        type: `service`, `user`, `agent` or `admin`.
        id: Identifier of the publisher.
    """

    type: str
    id: str


class Message(Payload, Generic[Data_co]):
    """A published message as every transport delivers it. HIP-56 Message Format.

    Attributes:
        id: Unique id: that of the publisher, or `msg_` and a ULID.
        topic: The topic, without wildcards.
        type: Application-defined message type.
        data: Payload. HIP-56 names an object; any JSON value is passed through.
        sender: Who published it, set by the server.
        timestamp: When the server accepted it, in Unix milliseconds.
        ttl: Retention in history, seconds; 0 stores nothing.
        seq: Position in the log of its topic: +1 per message. Messages with `ttl` 0 have none.
        meta: Passed on unchanged, for example a W3C `traceparent`.
    """

    id: MessageId
    topic: Topic
    type: str
    data: Data_co
    sender: Sender | None = None
    timestamp: Timestamp
    ttl: Annotated[int | None, Field(ge=0)] = None
    seq: Seq | None = None
    meta: dict[str, Any] | None = None


class Publication(Payload):
    """The fields of a message that the publisher sets; the server adds the others.

    Attributes:
        topic: The topic, without wildcards.
        type: Application-defined message type.
        data: Payload, any JSON value, at most 262,144 bytes of JSON.
        ttl: Retention in history, seconds; 0 stores nothing.
        id: Id, at most 128 characters; the server publishes an id once. Default: `msg_` and a ULID.
        meta: Passed on unchanged.
    """

    topic: Topic
    type: Annotated[str, Field(max_length=128, min_length=1)] = "message"
    data: Any
    ttl: Annotated[int | None, Field(ge=0, le=9007199254740991)] = None
    id: MessageId | None = None
    meta: dict[str, Any] | None = None


class PresenceMember(Model):
    """One connected client of a topic. HIP-56 Presence.

    Attributes:
        client_id: Identifies the connection, and stays the same after a resume.
        user_id: Identifies the user or service.
        name: Display name.
        avatar_url: URL of a picture.
        status: For example `online`, `typing`, `idle`.
        metadata: Application keys.
        joined_at: When it joined, in Unix milliseconds.
        last_seen: When the server last received data from it, in Unix milliseconds.
    """

    client_id: str
    user_id: str
    name: str
    avatar_url: str | None = None
    status: str | None = None
    metadata: dict[str, Any] | None = None
    joined_at: Timestamp
    last_seen: Timestamp


class ClientInfo(Model):
    """The client software.

    Attributes:
        name: Library or program.
        version: Its version.
        lang: Its language, for example `python`.
    """

    name: str
    version: str | None = None
    lang: str | None = None


class Limits(Model):
    """What the server allows this connection.

    Attributes:
        publish_rate: Maximum publishes per second.
        bulk_rate: Maximum messages per second in batches over REST, if these have a separate limit.
        max_payload: Maximum bytes of JSON-encoded `data`.
        history_max: Messages retained per topic.
        max_subscriptions: Maximum patterns per connection.
        max_batch: Maximum messages per batch.
    """

    publish_rate: Annotated[int | None, Field(ge=0)] = None
    bulk_rate: Annotated[int | None, Field(ge=0)] = None
    max_payload: Annotated[int | None, Field(ge=0)] = None
    history_max: Annotated[int | None, Field(ge=0)] = None
    max_subscriptions: Annotated[int | None, Field(ge=0)] = None
    max_batch: Annotated[int | None, Field(ge=0)] = None


class Denial(Model):
    """A pattern of a subscribe frame that the server rejected.

    Attributes:
        topic: The pattern as sent.
        message: Explanation of the error.
    """

    topic: str
    code: ErrorCode
    message: str | None = None


class ErrorInfo(Model):
    """Why the server rejected an item.

    Attributes:
        message: Explanation of the error.
        remedy: How to fix it.
        field: Invalid parameter, or invalid member of the payload, as a path such as
            `data.items[0].sku`.
        retry_after_ms: Earliest time to try again, milliseconds.
        topic: The topic it concerns.
    """

    code: ErrorCode
    message: str
    remedy: str | None = None
    field: str | None = None
    retry_after_ms: Annotated[int | None, Field(ge=0)] = None
    topic: str | None = None


class PublishResult(Model):
    """Result of one message of a batch: an error or an id.

    Attributes:
        id: Id of the message.
        timestamp: When the server accepted it, in Unix milliseconds.
        seq: Position in the log of its topic. Absent with `ttl` 0.
        duplicate: The id was already published; the server did not send the message again.
    """

    id: MessageId | None = None
    timestamp: Timestamp | None = None
    seq: Seq | None = None
    duplicate: bool | None = None
    error: ErrorInfo | None = None


class AuthFrame(Model):
    """Authenticates the connection with a bearer token or API key, initially or to renew it. HIP-56 WebSocket, Security 10.

    Attributes:
        token: Token or API key, with or without `Bearer `.
        version: Protocol version of the client.
        client_id: Client id of the connection that this one resumes, for presence.
        ref: Chosen by the client, echoed in the answer to this frame.
    """

    type: Literal["auth"] = "auth"
    token: Annotated[str, Field(max_length=16384, min_length=1)]
    version: Annotated[int | None, Field(ge=0)] = None
    client: ClientInfo | None = None
    client_id: Annotated[str | None, Field(max_length=64)] = None
    ref: Annotated[str | None, Field(max_length=64, min_length=1)] = None


class SubscribeFrame(Model):
    """Subscribes, optionally replaying retained messages. H-042, H-043.

    Attributes:
        topics: Patterns to receive.
        since: Replay messages newer than this time, on topics without a position in `after`.
        after: Replay the messages after these positions, by topic.
        history: Replay at most this number of the newest messages per topic.
        presence: Whether to receive presence of these topics; default true on a socket.
        ref: Chosen by the client, echoed in the answer to this frame.
    """

    type: Literal["subscribe"] = "subscribe"
    topics: Annotated[list[TopicPattern], Field(max_length=1000, min_length=1)]
    since: Timestamp | None = None
    after: dict[str, Seq] | None = None
    history: Annotated[int | None, Field(ge=0, le=10000)] = None
    presence: bool | None = None
    ref: Annotated[str | None, Field(max_length=64, min_length=1)] = None


class UnsubscribeFrame(Model):
    """Ends subscriptions, matched by exactly these patterns. H-046.

    Attributes:
        topics: Patterns to end.
        ref: Chosen by the client, echoed in the answer to this frame.
    """

    type: Literal["unsubscribe"] = "unsubscribe"
    topics: Annotated[list[TopicPattern], Field(max_length=1000, min_length=1)]
    ref: Annotated[str | None, Field(max_length=64, min_length=1)] = None


class PublishFrame(Model):
    """Publishes: canonically `message` or `messages`; the flat form of HIP-56 (`topic`, `data`, `message_type`) is accepted too. H-045.

    Attributes:
        messages: A batch, with one result per item.
        topic: Flat form: the topic.
        data: Flat form: the payload.
        message_type: Flat form: the application type.
        ttl: Flat form: retention, seconds.
        id: Flat form: message id.
        ref: Chosen by the client, echoed in the answer to this frame.
    """

    type: Literal["publish"] = "publish"
    message: Publication | None = None
    messages: Annotated[list[Publication] | None, Field(max_length=1000, min_length=1)] = None
    topic: str | None = None
    data: Any | None = None
    message_type: str | None = None
    ttl: Annotated[int | None, Field(ge=0, le=9007199254740991)] = None
    id: str | None = None
    ref: Annotated[str | None, Field(max_length=64, min_length=1)] = None


class PresenceUpdateFrame(Model):
    """Updates the sender's presence on one topic or on every topic it is a member of. H-047.

    Attributes:
        topic: The topic. Absent: every topic of which this connection is a member.
        data: `status`, `name`, `avatar_url` update the member, other keys merge into `metadata`;
            null deletes.
        ref: Chosen by the client, echoed in the answer to this frame.
    """

    type: Literal["presence.update"] = "presence.update"
    topic: Topic | None = None
    data: dict[str, Any]
    ref: Annotated[str | None, Field(max_length=64, min_length=1)] = None


class PingFrame(Model):
    """Keepalive. H-048.

    Attributes:
        ref: Chosen by the client, echoed in the answer to this frame.
    """

    type: Literal["ping"] = "ping"
    ref: Annotated[str | None, Field(max_length=64, min_length=1)] = None


ClientFrame = TypeAliasType(
    "ClientFrame",
    Annotated[
        AuthFrame
        | SubscribeFrame
        | UnsubscribeFrame
        | PublishFrame
        | PresenceUpdateFrame
        | PingFrame,
        Field(discriminator="type"),
    ],
)
"""Every frame that a client may send on a WebSocket."""


class AuthOkFrame(Model):
    """Authentication succeeded. Without `version`, the peer implements only HIP-56.

    Attributes:
        client_id: Identifies the connection.
        user_id: Identity in the token.
        version: Protocol version of the server.
        features: Features of the server beyond HIP-56: `ref`, `ack`, `seq`, `idempotency`, `batch`,
            `resume`, `meta`.
        expires_at: When the token expires.
        server_time: Time of the server, in Unix milliseconds.
        node: Id of the node that assigned the positions. They are not valid on other nodes: a
            client that changes the node reports a gap of unknown size. Absent if positions are
            valid on every node.
        ref: Chosen by the client, echoed in the answer to this frame.
    """

    type: Literal["auth.ok"] = "auth.ok"
    client_id: str
    user_id: str | None = None
    version: Annotated[int | None, Field(ge=0)] = None
    features: list[str] | None = None
    expires_at: Timestamp | None = None
    server_time: Timestamp | None = None
    limits: Limits | None = None
    node: Annotated[str | None, Field(max_length=64, min_length=1)] = None
    ref: Annotated[str | None, Field(max_length=64, min_length=1)] = None


class AuthErrorFrame(Model):
    """Authentication failed. H-041.

    Attributes:
        message: Explanation of the error.
        remedy: How to fix it.
        retry_after_ms: Earliest time to try again, milliseconds.
        ref: Chosen by the client, echoed in the answer to this frame.
    """

    type: Literal["auth.error"] = "auth.error"
    code: ErrorCode
    message: str
    remedy: str | None = None
    retry_after_ms: Annotated[int | None, Field(ge=0)] = None
    ref: Annotated[str | None, Field(max_length=64, min_length=1)] = None


class AuthExpiringFrame(Model):
    """The token expires soon; answer with `auth`. H-153.

    Attributes:
        expires_at: When the token expires.
        expires_in: Milliseconds left.
    """

    type: Literal["auth.expiring"] = "auth.expiring"
    expires_at: Timestamp | None = None
    expires_in: Annotated[int | None, Field(ge=0)] = None


class SubscribedFrame(Model):
    """Answers `subscribe`. H-042, H-103.

    Attributes:
        topics: Patterns granted.
        history: Replayed messages, oldest first.
        positions: Newest position of each matching topic when the subscription began. A topic
            without messages that is subscribed to by name is included, with the position before its
            first message.
        timestamp: Server time when the subscription began.
        truncated: Topics whose history no longer reaches back to the requested position.
        reset: Topics whose log was reset after the requested position, during the replay, or, if a
            stream resumes, after its last event. A stream that resumes on another node of a mesh
            also gets its patterns.
        denied: Rejected patterns.
        more: Further `subscribed` frames of the same `ref` follow with the rest of the history.
        ref: Chosen by the client, echoed in the answer to this frame.
    """

    type: Literal["subscribed"] = "subscribed"
    topics: list[str]
    history: list[Message] | None = None
    positions: dict[str, Seq] | None = None
    timestamp: Timestamp | None = None
    truncated: list[Topic] | None = None
    reset: list[str] | None = None
    denied: list[Denial] | None = None
    more: bool | None = None
    ref: Annotated[str | None, Field(max_length=64, min_length=1)] = None


class UnsubscribedFrame(Model):
    """Answers an `unsubscribe` with a `ref`.

    Attributes:
        topics: Patterns ended.
        ref: Chosen by the client, echoed in the answer to this frame.
    """

    type: Literal["unsubscribed"] = "unsubscribed"
    topics: list[str]
    ref: Annotated[str | None, Field(max_length=64, min_length=1)] = None


class MessageFrame(Model):
    """A published message. H-044."""

    type: Literal["message"] = "message"
    message: Message


class PublishedFrame(Model):
    """Answers a `publish` with a `ref`.

    Attributes:
        id: Id of the message.
        timestamp: When the server accepted it, in Unix milliseconds.
        seq: Position in the log of its topic. Absent with `ttl` 0.
        duplicate: The id was already published; the server did not send the message again.
        results: One per item, for a batch.
        ref: Chosen by the client, echoed in the answer to this frame.
    """

    type: Literal["published"] = "published"
    id: MessageId | None = None
    timestamp: Timestamp | None = None
    seq: Seq | None = None
    duplicate: bool | None = None
    results: list[PublishResult] | None = None
    ref: Annotated[str | None, Field(max_length=64, min_length=1)] = None


class PresenceSnapshotFrame(Model):
    """All members of a topic. H-049.

    Attributes:
        topic: The topic, without wildcards.
        members: All members, including the receiver.
    """

    type: Literal["presence.snapshot"] = "presence.snapshot"
    topic: Topic
    members: list[PresenceMember]


class PongFrame(Model):
    """Answers `ping`. H-048.

    Attributes:
        server_time: Time of the server, in Unix milliseconds.
        ref: Chosen by the client, echoed in the answer to this frame.
    """

    type: Literal["pong"] = "pong"
    server_time: Timestamp | None = None
    ref: Annotated[str | None, Field(max_length=64, min_length=1)] = None


class ErrorFrame(Model):
    """The server rejected a frame. H-050.

    Attributes:
        message: Explanation of the error.
        remedy: How to fix it.
        topic: The topic it concerns.
        field: Invalid parameter, or invalid member of the payload, as a path such as
            `data.items[0].sku`.
        retry_after_ms: Earliest time to try again, milliseconds.
        ref: Chosen by the client, echoed in the answer to this frame.
    """

    type: Literal["error"] = "error"
    code: ErrorCode
    message: str
    remedy: str | None = None
    topic: str | None = None
    field: str | None = None
    retry_after_ms: Annotated[int | None, Field(ge=0)] = None
    ref: Annotated[str | None, Field(max_length=64, min_length=1)] = None


ServerFrame = TypeAliasType(
    "ServerFrame",
    Annotated[
        AuthOkFrame
        | AuthErrorFrame
        | AuthExpiringFrame
        | SubscribedFrame
        | UnsubscribedFrame
        | MessageFrame
        | PublishedFrame
        | PresenceSnapshotFrame
        | PongFrame
        | ErrorFrame,
        Field(discriminator="type"),
    ],
)
"""Every frame that a server may send on a WebSocket."""


class PublishRequest(Payload):
    """Body of `POST /v1/topics/{topic}/messages`. H-070.

    Attributes:
        type: Application-defined message type.
        data: Payload, any JSON value, at most 262,144 bytes of JSON.
        ttl: Retention in history, seconds; 0 stores nothing.
        id: Id, at most 128 characters; the server publishes an id once. Default: `msg_` and a ULID.
        meta: Passed on unchanged.
    """

    type: Annotated[str, Field(max_length=128, min_length=1)] = "message"
    data: Any
    ttl: Annotated[int | None, Field(ge=0, le=9007199254740991)] = None
    id: MessageId | None = None
    meta: dict[str, Any] | None = None


class PublishResponse(Model):
    """Answer to a publish.

    Attributes:
        id: Id of the message.
        timestamp: When the server accepted it, in Unix milliseconds.
        seq: Position in the log of its topic. Absent with `ttl` 0.
        duplicate: The id was already published; the server did not send the message again.
    """

    id: MessageId
    timestamp: Timestamp
    seq: Seq | None = None
    duplicate: bool | None = None


class BatchRequest(Model):
    """Body of `POST /v1/messages:batch`.

    Attributes:
        messages: Published in order; each has its own result.
    """

    messages: Annotated[list[Publication], Field(max_length=1000, min_length=1)]


class BatchResponse(Model):
    """Answer to a batch, one result per item in the same order.

    Attributes:
        results: One per item.
    """

    results: list[PublishResult]


class HistoryPage(Model):
    """Retained messages of one topic, oldest first inside the page. H-072.

    Attributes:
        messages: The page.
        has_more: Older messages (with `after`: newer ones) remain.
        position: Newest position of the topic.
        truncated: With `after`: a position after it, up to the last message of the page (up to
            `position` if the page is empty), is missing. With `since`: some messages newer than it
            are no longer retained.
        reset: The log was reset after the position in `after`. Position 0 is before every log.
    """

    messages: list[Message]
    has_more: bool
    position: Seq | None = None
    truncated: bool | None = None
    reset: bool | None = None


class PresenceList(Model):
    """All members of a topic. H-073.

    Attributes:
        members: All members.
    """

    members: list[PresenceMember]


class Occupancy(Model):
    """The number of members of one topic. Subscribers of a matching pattern are not counted.

    Attributes:
        members: Connections that subscribe to exactly this topic.
        users: Users with at least one of these connections.
    """

    members: Annotated[int, Field(ge=0)]
    users: Annotated[int, Field(ge=0)]


class TopicInfo(Model):
    """One active topic.

    Attributes:
        topic: The topic, without wildcards.
        subscribers: Number of connections subscribed to it.
        messages: Number of retained messages.
        position: Newest position.
        last_message_at: When the newest message was published.
    """

    topic: Topic
    subscribers: Annotated[int, Field(ge=0)]
    messages: Annotated[int, Field(ge=0)]
    position: Seq | None = None
    last_message_at: Timestamp | None = None


class TopicList(Model):
    """Active topics, by name. H-074.

    Attributes:
        topics: The topics.
        has_more: Further topics match; narrow `prefix` or raise `limit`.
    """

    topics: list[TopicInfo]
    has_more: bool | None = None


class ConnectionInfo(Model):
    """One open connection, as an administrator sees it.

    Attributes:
        client_id: Id of the connection, as in `auth.ok`.
        user_id: Identity in the token.
        kind: Kind of the identity.
        name: Display name of the user.
        transport: Protocol of the connection, as in the label `transport` of the metrics: `socket`,
            `event_stream`, `signed`, `sp`, `events` or `hub`.
        address: IP address of the client. Absent if the server does not know it.
        connected_at: When the client first authenticated on this connection.
        patterns: Topics and patterns that it is subscribed to, at most 20.
        subscriptions: Number of its subscriptions.
        queued_bytes: Bytes that wait on the server because the client has not read them.
        queue_limit: Maximum bytes that may wait. If more would wait, the server closes the
            connection with `slow_consumer`.
        stalled: The connection accepts no data now.
    """

    client_id: str
    user_id: str
    kind: Literal["user", "service", "admin", "agent"]
    name: str | None = None
    transport: str
    address: str | None = None
    connected_at: Timestamp
    patterns: list[str]
    subscriptions: Annotated[int, Field(ge=0)]
    queued_bytes: Annotated[int, Field(ge=0)]
    queue_limit: Annotated[int, Field(ge=0)]
    stalled: bool | None = None


class ConnectionList(Model):
    """Open connections of the node that answers, those with the longest queues first.

    Attributes:
        connections: The connections.
        total: Number of matching connections of this node. The list contains fewer if `limit` is
            lower.
    """

    connections: list[ConnectionInfo]
    total: Annotated[int, Field(ge=0)]


class PositionsRequest(Model):
    """Body of `POST /v1/positions`: asks for the positions of topics, or waits for a change.

    Attributes:
        topics: Topics and patterns.
        after: Positions that the caller knows, by topic; at most 10,000. With `wait_ms`, a
            difference from these is a change.
        at: Also return the position of each topic at this time.
        wait_ms: Milliseconds to wait until the `last` of a topic differs from `after`, or a topic
            is not in `after`; default 0.
    """

    topics: Annotated[list[TopicPattern], Field(max_length=1000, min_length=1)]
    after: dict[str, Seq] | None = None
    at: Timestamp | None = None
    wait_ms: Annotated[int | None, Field(ge=0, le=30000)] = None


class TopicPosition(Model):
    """Positions of one topic. A topic without a log has `first` 1 and `last` 0.

    Attributes:
        topic: The topic, without wildcards.
        first: Position of the oldest retained message; `last` + 1 if none is retained.
        last: Newest position in this log.
        at: If `at` was requested: position of the oldest retained message that is not older than
            `at`; `last` + 1 if there is none.
    """

    topic: Topic
    first: Seq
    last: Seq
    at: Seq | None = None


class PositionList(Model):
    """Answer of `POST /v1/positions`.

    Attributes:
        positions: The topics, by name. For a pattern, the topics that have a log and that the
            caller may subscribe to.
        timestamp: Time of the store when it answered. The positions include every message published
            before it.
        has_more: More than 10,000 topics match. The answer contains the first ones by name.
    """

    positions: list[TopicPosition]
    timestamp: Timestamp
    has_more: bool | None = None


class StreamSubscription(Model):
    """One subscription of an event stream, like a `subscribe` frame.

    Attributes:
        topics: Patterns to receive.
        since: Replay messages newer than this time.
        after: Replay the messages after these positions.
        history: Replay at most this number of the newest messages per topic.
        ref: Chosen by the client, echoed in the answer to this frame.
    """

    topics: Annotated[list[TopicPattern], Field(max_length=1000, min_length=1)]
    since: Timestamp | None = None
    after: dict[str, Seq] | None = None
    history: Annotated[int | None, Field(ge=0, le=10000)] = None
    ref: Annotated[str | None, Field(max_length=64, min_length=1)] = None


class SessionInfo(Model):
    """Answer of `GET /v1/session`: the content of `auth.ok` on a WebSocket.

    Attributes:
        client_id: Id for the event stream that the caller opens next, if the caller passes it in
            `client_id`.
        user_id: Identity in the token.
        version: Protocol version of the server.
        features: Features of the server beyond HIP-56.
        expires_at: When the token expires.
        server_time: Time of the server, in Unix milliseconds.
        node: Id of the node that assigned the positions. They are not valid on other nodes: a
            client that changes the node reports a gap of unknown size. Absent if positions are
            valid on every node.
    """

    client_id: str
    user_id: str | None = None
    version: Annotated[int, Field(ge=0)]
    features: list[str] | None = None
    expires_at: Timestamp | None = None
    server_time: Timestamp | None = None
    limits: Limits | None = None
    node: Annotated[str | None, Field(max_length=64, min_length=1)] = None


class AccessInfo(Model):
    """Answer of `GET /v1/access`: the permissions of the caller on a topic or pattern, and the reason.

    Attributes:
        topic: As requested.
        subscribe: Whether the caller may subscribe to it.
        publish: Whether the caller may publish to it.
        rule: The access rule that decides, if any.
        reason: Reason for the decision.
    """

    topic: str
    subscribe: bool
    publish: bool
    rule: str | None = None
    reason: str


class Problem(Model):
    """Body of every HTTP error, `application/problem+json` (RFC 9457).

    Attributes:
        type: URI reference of the error code.
        title: Meaning of the error code.
        status: HTTP status.
        detail: Explanation of this error.
        remedy: How to fix it.
        instance: The id of this request, as in `X-Request-Id` and in the server's log.
        field: Parameter or body field with the error.
        topic: The topic it concerns.
        retry_after_ms: Earliest time to try again, milliseconds.
    """

    type: str | None = None
    title: str
    status: Annotated[int, Field(ge=0)]
    code: ErrorCode
    detail: str | None = None
    remedy: str | None = None
    instance: str | None = None
    field: str | None = None
    topic: str | None = None
    retry_after_ms: Annotated[int | None, Field(ge=0)] = None


class SubscribeRequest(Model):
    """Body of `POST /v1/subscribe`: the subscriptions of the event stream.

    Attributes:
        subscriptions: Each is answered by its own `subscribed` event.
        presence: Whether to send presence events; default false.
        client_id: `Client-Id` of a stream, or `client_id` of `auth.ok`, that this stream replaces,
            so that presence continues.
    """

    subscriptions: Annotated[list[StreamSubscription], Field(max_length=1000, min_length=1)]
    presence: bool | None = None
    client_id: Annotated[str | None, Field(max_length=64)] = None

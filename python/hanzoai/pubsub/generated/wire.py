# Generated from spec/pubsub.schema.json by `make generate`; do not edit.

from __future__ import annotations

from typing import Annotated, Any, Generic, Literal

from pydantic import Field
from typing_extensions import TypeAliasType

from hanzoai.pubsub.model import Data, Model, Payload

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
    """Identity of the publisher, set by the server."""

    type: str
    """`service`, `user`, `agent` or `admin`."""
    id: str
    """Identifier of the publisher."""


class Message(Payload, Generic[Data]):
    """A published message as every transport delivers it. HIP-56 Message Format."""

    id: MessageId
    """Unique id: that of the publisher, or `msg_` and a ULID."""
    topic: Topic
    """The topic, without wildcards."""
    type: str
    """Application-defined message type."""
    data: Data
    """Payload. HIP-56 names an object; any JSON value is passed through."""
    sender: Sender | None = None
    """Who published it, set by the server."""
    timestamp: Timestamp
    """When the server accepted it, in Unix milliseconds."""
    ttl: Annotated[int | None, Field(ge=0)] = None
    """Retention in history, seconds; 0 stores nothing."""
    seq: Seq | None = None
    """Position in the log of its topic: +1 per message. Messages with `ttl` 0 have none."""
    meta: dict[str, Any] | None = None
    """Passed on unchanged, for example a W3C `traceparent`."""


class Publication(Payload):
    """The fields of a message that the publisher sets; the server adds the others."""

    topic: Topic
    """The topic, without wildcards."""
    type: Annotated[str, Field(max_length=128, min_length=1)] = "message"
    """Application-defined message type."""
    data: Any
    """Payload, any JSON value, at most 262,144 bytes of JSON."""
    ttl: Annotated[int | None, Field(ge=0)] = None
    """Retention in history, seconds; 0 stores nothing."""
    id: MessageId | None = None
    """Id, at most 128 characters; the server publishes an id once. Default: `msg_` and a ULID."""
    meta: dict[str, Any] | None = None
    """Passed on unchanged."""


class PresenceMember(Model):
    """One connected client of a topic. HIP-56 Presence."""

    client_id: str
    """Identifies the connection, and stays the same after a resume."""
    user_id: str
    """Identifies the user or service."""
    name: str
    """Display name."""
    avatar_url: str | None = None
    """URL of a picture."""
    status: str | None = None
    """For example `online`, `typing`, `idle`."""
    metadata: dict[str, Any] | None = None
    """Application keys."""
    joined_at: Timestamp
    """When it joined, in Unix milliseconds."""
    last_seen: Timestamp
    """When the server last received data from it, in Unix milliseconds."""


class ClientInfo(Model):
    """The client software."""

    name: str
    """Library or program."""
    version: str | None = None
    """Its version."""
    lang: str | None = None
    """Its language, for example `python`."""


class Limits(Model):
    """What the server allows this connection."""

    publish_rate: Annotated[int | None, Field(ge=0)] = None
    """Maximum publishes per second."""
    bulk_rate: Annotated[int | None, Field(ge=0)] = None
    """Maximum messages per second in batches over REST, if these have a separate limit."""
    max_payload: Annotated[int | None, Field(ge=0)] = None
    """Maximum bytes of JSON-encoded `data`."""
    history_max: Annotated[int | None, Field(ge=0)] = None
    """Messages retained per topic."""
    max_subscriptions: Annotated[int | None, Field(ge=0)] = None
    """Maximum patterns per connection."""
    max_batch: Annotated[int | None, Field(ge=0)] = None
    """Maximum messages per batch."""


class Denial(Model):
    """A pattern of a subscribe frame that the server rejected."""

    topic: str
    """The pattern as sent."""
    code: ErrorCode
    message: str | None = None
    """Explanation of the error."""


class ErrorInfo(Model):
    """Why the server rejected an item."""

    code: ErrorCode
    message: str
    """Explanation of the error."""
    remedy: str | None = None
    """How to fix it."""
    field: str | None = None
    """Invalid parameter, or invalid member of the payload, as a path such as `data.items[0].sku`."""
    retry_after_ms: Annotated[int | None, Field(ge=0)] = None
    """Earliest time to try again, milliseconds."""
    topic: str | None = None
    """The topic it concerns."""


class PublishResult(Model):
    """Result of one message of a batch: an error or an id."""

    id: MessageId | None = None
    """Id of the message."""
    timestamp: Timestamp | None = None
    """When the server accepted it, in Unix milliseconds."""
    seq: Seq | None = None
    """Position in the log of its topic. Absent with `ttl` 0."""
    duplicate: bool | None = None
    """The id was already published; the server did not send the message again."""
    error: ErrorInfo | None = None


class AuthFrame(Model):
    """Authenticates the connection with a bearer token or API key, initially or to renew it. HIP-56 WebSocket, Security 10."""

    type: Literal["auth"] = "auth"
    token: Annotated[str, Field(max_length=16384, min_length=1)]
    """Token or API key, with or without `Bearer `."""
    version: Annotated[int | None, Field(ge=0)] = None
    """Protocol version of the client."""
    client: ClientInfo | None = None
    client_id: Annotated[str | None, Field(max_length=64)] = None
    """Client id of the connection that this one resumes, for presence."""
    ref: Annotated[str | None, Field(max_length=64, min_length=1)] = None
    """Chosen by the client, echoed in the answer to this frame."""


class SubscribeFrame(Model):
    """Subscribes, optionally replaying retained messages. H-042, H-043."""

    type: Literal["subscribe"] = "subscribe"
    topics: Annotated[list[TopicPattern], Field(max_length=1000, min_length=1)]
    """Patterns to receive."""
    since: Timestamp | None = None
    """Replay messages newer than this time, on topics without a position in `after`."""
    after: dict[str, Seq] | None = None
    """Replay the messages after these positions, by topic."""
    history: Annotated[int | None, Field(ge=0, le=10000)] = None
    """Replay at most this number of the newest messages per topic."""
    presence: bool | None = None
    """Whether to receive presence of these topics; default true on a socket."""
    ref: Annotated[str | None, Field(max_length=64, min_length=1)] = None
    """Chosen by the client, echoed in the answer to this frame."""


class UnsubscribeFrame(Model):
    """Ends subscriptions, matched by exactly these patterns. H-046."""

    type: Literal["unsubscribe"] = "unsubscribe"
    topics: Annotated[list[TopicPattern], Field(max_length=1000, min_length=1)]
    """Patterns to end."""
    ref: Annotated[str | None, Field(max_length=64, min_length=1)] = None
    """Chosen by the client, echoed in the answer to this frame."""


class PublishFrame(Model):
    """Publishes: canonically `message` or `messages`; the flat form of HIP-56 (`topic`, `data`, `message_type`) is accepted too. H-045."""

    type: Literal["publish"] = "publish"
    message: Publication | None = None
    messages: Annotated[list[Publication] | None, Field(max_length=1000, min_length=1)] = None
    """A batch, with one result per item."""
    topic: str | None = None
    """Flat form: the topic."""
    data: Any | None = None
    """Flat form: the payload."""
    message_type: str | None = None
    """Flat form: the application type."""
    ttl: Annotated[int | None, Field(ge=0)] = None
    """Flat form: retention, seconds."""
    id: str | None = None
    """Flat form: message id."""
    ref: Annotated[str | None, Field(max_length=64, min_length=1)] = None
    """Chosen by the client, echoed in the answer to this frame."""


class PresenceUpdateFrame(Model):
    """Updates the sender's presence on one topic or on every topic it is a member of. H-047."""

    type: Literal["presence.update"] = "presence.update"
    topic: Topic | None = None
    """The topic. Absent: every topic of which this connection is a member."""
    data: dict[str, Any]
    """`status`, `name`, `avatar_url` update the member, other keys merge into `metadata`; null deletes."""
    ref: Annotated[str | None, Field(max_length=64, min_length=1)] = None
    """Chosen by the client, echoed in the answer to this frame."""


class PingFrame(Model):
    """Keepalive. H-048."""

    type: Literal["ping"] = "ping"
    ref: Annotated[str | None, Field(max_length=64, min_length=1)] = None
    """Chosen by the client, echoed in the answer to this frame."""


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
    """Authentication succeeded. Without `version`, the peer implements only HIP-56."""

    type: Literal["auth.ok"] = "auth.ok"
    client_id: str
    """Identifies the connection."""
    user_id: str | None = None
    """Identity in the token."""
    version: Annotated[int | None, Field(ge=0)] = None
    """Protocol version of the server."""
    features: list[str] | None = None
    """Features of the server beyond HIP-56: `ref`, `ack`, `seq`, `idempotency`, `batch`, `resume`, `meta`."""
    expires_at: Timestamp | None = None
    """When the token expires."""
    server_time: Timestamp | None = None
    """Time of the server, in Unix milliseconds."""
    limits: Limits | None = None
    node: Annotated[str | None, Field(max_length=64, min_length=1)] = None
    """Id of the node that assigned the positions. They are not valid on other nodes: a client that changes the node reports a gap of unknown size. Absent if positions are valid on every node."""
    ref: Annotated[str | None, Field(max_length=64, min_length=1)] = None
    """Chosen by the client, echoed in the answer to this frame."""


class AuthErrorFrame(Model):
    """Authentication failed. H-041."""

    type: Literal["auth.error"] = "auth.error"
    code: ErrorCode
    message: str
    """Explanation of the error."""
    remedy: str | None = None
    """How to fix it."""
    retry_after_ms: Annotated[int | None, Field(ge=0)] = None
    """Earliest time to try again, milliseconds."""
    ref: Annotated[str | None, Field(max_length=64, min_length=1)] = None
    """Chosen by the client, echoed in the answer to this frame."""


class AuthExpiringFrame(Model):
    """The token expires soon; answer with `auth`. H-153."""

    type: Literal["auth.expiring"] = "auth.expiring"
    expires_at: Timestamp | None = None
    """When the token expires."""
    expires_in: Annotated[int | None, Field(ge=0)] = None
    """Milliseconds left."""


class SubscribedFrame(Model):
    """Answers `subscribe`. H-042, H-103."""

    type: Literal["subscribed"] = "subscribed"
    topics: list[str]
    """Patterns granted."""
    history: list[Message] | None = None
    """Replayed messages, oldest first."""
    positions: dict[str, Seq] | None = None
    """Newest position of each matching topic when the subscription began. A topic without messages that is subscribed to by name is included, with the position before its first message."""
    timestamp: Timestamp | None = None
    """Server time when the subscription began."""
    truncated: list[Topic] | None = None
    """Topics whose history no longer reaches back to the requested position."""
    reset: list[str] | None = None
    """Topics whose log was reset after the requested position, during the replay, or, if a stream resumes, after its last event. A stream that resumes on another node of a mesh also gets its patterns."""
    denied: list[Denial] | None = None
    """Rejected patterns."""
    more: bool | None = None
    """Further `subscribed` frames of the same `ref` follow with the rest of the history."""
    ref: Annotated[str | None, Field(max_length=64, min_length=1)] = None
    """Chosen by the client, echoed in the answer to this frame."""


class UnsubscribedFrame(Model):
    """Answers an `unsubscribe` with a `ref`."""

    type: Literal["unsubscribed"] = "unsubscribed"
    topics: list[str]
    """Patterns ended."""
    ref: Annotated[str | None, Field(max_length=64, min_length=1)] = None
    """Chosen by the client, echoed in the answer to this frame."""


class MessageFrame(Model):
    """A published message. H-044."""

    type: Literal["message"] = "message"
    message: Message


class PublishedFrame(Model):
    """Answers a `publish` with a `ref`."""

    type: Literal["published"] = "published"
    id: MessageId | None = None
    """Id of the message."""
    timestamp: Timestamp | None = None
    """When the server accepted it, in Unix milliseconds."""
    seq: Seq | None = None
    """Position in the log of its topic. Absent with `ttl` 0."""
    duplicate: bool | None = None
    """The id was already published; the server did not send the message again."""
    results: list[PublishResult] | None = None
    """One per item, for a batch."""
    ref: Annotated[str | None, Field(max_length=64, min_length=1)] = None
    """Chosen by the client, echoed in the answer to this frame."""


class PresenceSnapshotFrame(Model):
    """All members of a topic. H-049."""

    type: Literal["presence.snapshot"] = "presence.snapshot"
    topic: Topic
    """The topic, without wildcards."""
    members: list[PresenceMember]
    """All members, including the receiver."""


class PongFrame(Model):
    """Answers `ping`. H-048."""

    type: Literal["pong"] = "pong"
    server_time: Timestamp | None = None
    """Time of the server, in Unix milliseconds."""
    ref: Annotated[str | None, Field(max_length=64, min_length=1)] = None
    """Chosen by the client, echoed in the answer to this frame."""


class ErrorFrame(Model):
    """The server rejected a frame. H-050."""

    type: Literal["error"] = "error"
    code: ErrorCode
    message: str
    """Explanation of the error."""
    remedy: str | None = None
    """How to fix it."""
    topic: str | None = None
    """The topic it concerns."""
    field: str | None = None
    """Invalid parameter, or invalid member of the payload, as a path such as `data.items[0].sku`."""
    retry_after_ms: Annotated[int | None, Field(ge=0)] = None
    """Earliest time to try again, milliseconds."""
    ref: Annotated[str | None, Field(max_length=64, min_length=1)] = None
    """Chosen by the client, echoed in the answer to this frame."""


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
    """Body of `POST /v1/topics/{topic}/messages`. H-070."""

    type: Annotated[str, Field(max_length=128, min_length=1)] = "message"
    """Application-defined message type."""
    data: Any
    """Payload, any JSON value, at most 262,144 bytes of JSON."""
    ttl: Annotated[int | None, Field(ge=0)] = None
    """Retention in history, seconds; 0 stores nothing."""
    id: MessageId | None = None
    """Id, at most 128 characters; the server publishes an id once. Default: `msg_` and a ULID."""
    meta: dict[str, Any] | None = None
    """Passed on unchanged."""


class PublishResponse(Model):
    """Answer to a publish."""

    id: MessageId
    """Id of the message."""
    timestamp: Timestamp
    """When the server accepted it, in Unix milliseconds."""
    seq: Seq | None = None
    """Position in the log of its topic. Absent with `ttl` 0."""
    duplicate: bool | None = None
    """The id was already published; the server did not send the message again."""


class BatchRequest(Model):
    """Body of `POST /v1/messages:batch`."""

    messages: Annotated[list[Publication], Field(max_length=1000, min_length=1)]
    """Published in order; each has its own result."""


class BatchResponse(Model):
    """Answer to a batch, one result per item in the same order."""

    results: list[PublishResult]
    """One per item."""


class HistoryPage(Model):
    """Retained messages of one topic, oldest first inside the page. H-072."""

    messages: list[Message]
    """The page."""
    has_more: bool
    """Older messages (with `after`: newer ones) remain."""
    position: Seq | None = None
    """Newest position of the topic."""
    truncated: bool | None = None
    """With `after`: a position after it, up to the last message of the page (up to `position` if the page is empty), is missing. With `since`: some messages newer than it are no longer retained."""
    reset: bool | None = None
    """The log was reset after the position in `after`. Position 0 is before every log."""


class PresenceList(Model):
    """All members of a topic. H-073."""

    members: list[PresenceMember]
    """All members."""


class Occupancy(Model):
    """The number of members of one topic. Subscribers of a matching pattern are not counted."""

    members: Annotated[int, Field(ge=0)]
    """Connections that subscribe to exactly this topic."""
    users: Annotated[int, Field(ge=0)]
    """Users with at least one of these connections."""


class TopicInfo(Model):
    """One active topic."""

    topic: Topic
    """The topic, without wildcards."""
    subscribers: Annotated[int, Field(ge=0)]
    """Number of connections subscribed to it."""
    messages: Annotated[int, Field(ge=0)]
    """Number of retained messages."""
    position: Seq | None = None
    """Newest position."""
    last_message_at: Timestamp | None = None
    """When the newest message was published."""


class TopicList(Model):
    """Active topics, by name. H-074."""

    topics: list[TopicInfo]
    """The topics."""
    has_more: bool | None = None
    """Further topics match; narrow `prefix` or raise `limit`."""


class ConnectionInfo(Model):
    """One open connection, as an administrator sees it."""

    client_id: str
    """Id of the connection, as in `auth.ok`."""
    user_id: str
    """Identity in the token."""
    kind: Literal["user", "service", "admin", "agent"]
    """Kind of the identity."""
    name: str | None = None
    """Display name of the user."""
    transport: str
    """Protocol of the connection, as in the label `transport` of the metrics: `socket`, `event_stream`, `signed`, `sp`, `events` or `hub`."""
    address: str | None = None
    """IP address of the client. Absent if the server does not know it."""
    connected_at: Timestamp
    """When the client first authenticated on this connection."""
    patterns: list[str]
    """Topics and patterns that it is subscribed to, at most 20."""
    subscriptions: Annotated[int, Field(ge=0)]
    """Number of its subscriptions."""
    queued_bytes: Annotated[int, Field(ge=0)]
    """Bytes that wait on the server because the client has not read them."""
    queue_limit: Annotated[int, Field(ge=0)]
    """Maximum bytes that may wait. If more would wait, the server closes the connection with `slow_consumer`."""
    stalled: bool | None = None
    """The connection accepts no data now."""


class ConnectionList(Model):
    """Open connections of the node that answers, those with the longest queues first."""

    connections: list[ConnectionInfo]
    """The connections."""
    total: Annotated[int, Field(ge=0)]
    """Number of matching connections of this node. The list contains fewer if `limit` is lower."""


class PositionsRequest(Model):
    """Body of `POST /v1/positions`: asks for the positions of topics, or waits for a change."""

    topics: Annotated[list[TopicPattern], Field(max_length=1000, min_length=1)]
    """Topics and patterns."""
    after: dict[str, Seq] | None = None
    """Positions that the caller knows, by topic; at most 10,000. With `wait_ms`, a difference from these is a change."""
    at: Timestamp | None = None
    """Also return the position of each topic at this time."""
    wait_ms: Annotated[int | None, Field(ge=0, le=30000)] = None
    """Milliseconds to wait until the `last` of a topic differs from `after`, or a topic is not in `after`; default 0."""


class TopicPosition(Model):
    """Positions of one topic. A topic without a log has `first` 1 and `last` 0."""

    topic: Topic
    """The topic, without wildcards."""
    first: Seq
    """Position of the oldest retained message; `last` + 1 if none is retained."""
    last: Seq
    """Newest position in this log."""
    at: Seq | None = None
    """If `at` was requested: position of the oldest retained message that is not older than `at`; `last` + 1 if there is none."""


class PositionList(Model):
    """Answer of `POST /v1/positions`."""

    positions: list[TopicPosition]
    """The topics, by name. For a pattern, the topics that have a log and that the caller may subscribe to."""
    timestamp: Timestamp
    """Time of the store when it answered. The positions include every message published before it."""
    has_more: bool | None = None
    """More than 10,000 topics match. The answer contains the first ones by name."""


class StreamSubscription(Model):
    """One subscription of an event stream, like a `subscribe` frame."""

    topics: Annotated[list[TopicPattern], Field(max_length=1000, min_length=1)]
    """Patterns to receive."""
    since: Timestamp | None = None
    """Replay messages newer than this time."""
    after: dict[str, Seq] | None = None
    """Replay the messages after these positions."""
    history: Annotated[int | None, Field(ge=0, le=10000)] = None
    """Replay at most this number of the newest messages per topic."""
    ref: Annotated[str | None, Field(max_length=64, min_length=1)] = None
    """Chosen by the client, echoed in the answer to this frame."""


class SessionInfo(Model):
    """Answer of `GET /v1/session`: the content of `auth.ok` on a WebSocket."""

    client_id: str
    """Id for the event stream that the caller opens next, if the caller passes it in `client_id`."""
    user_id: str | None = None
    """Identity in the token."""
    version: Annotated[int, Field(ge=0)]
    """Protocol version of the server."""
    features: list[str] | None = None
    """Features of the server beyond HIP-56."""
    expires_at: Timestamp | None = None
    """When the token expires."""
    server_time: Timestamp | None = None
    """Time of the server, in Unix milliseconds."""
    limits: Limits | None = None
    node: Annotated[str | None, Field(max_length=64, min_length=1)] = None
    """Id of the node that assigned the positions. They are not valid on other nodes: a client that changes the node reports a gap of unknown size. Absent if positions are valid on every node."""


class AccessInfo(Model):
    """Answer of `GET /v1/access`: the permissions of the caller on a topic or pattern, and the reason."""

    topic: str
    """As requested."""
    subscribe: bool
    """Whether the caller may subscribe to it."""
    publish: bool
    """Whether the caller may publish to it."""
    rule: str | None = None
    """The access rule that decides, if any."""
    reason: str
    """Reason for the decision."""


class Problem(Model):
    """Body of every HTTP error, `application/problem+json` (RFC 9457)."""

    type: str | None = None
    """URI reference of the error code."""
    title: str
    """Meaning of the error code."""
    status: Annotated[int, Field(ge=0)]
    """HTTP status."""
    code: ErrorCode
    detail: str | None = None
    """Explanation of this error."""
    remedy: str | None = None
    """How to fix it."""
    instance: str | None = None
    """The id of this request, as in `X-Request-Id` and in the server's log."""
    field: str | None = None
    """Parameter or body field with the error."""
    topic: str | None = None
    """The topic it concerns."""
    retry_after_ms: Annotated[int | None, Field(ge=0)] = None
    """Earliest time to try again, milliseconds."""


class SubscribeRequest(Model):
    """Body of `POST /v1/subscribe`: the subscriptions of the event stream."""

    subscriptions: Annotated[list[StreamSubscription], Field(max_length=1000, min_length=1)]
    """Each is answered by its own `subscribed` event."""
    presence: bool | None = None
    """Whether to send presence events; default false."""
    client_id: Annotated[str | None, Field(max_length=64)] = None
    """`Client-Id` of a stream, or `client_id` of `auth.ok`, that this stream replaces, so that presence continues."""

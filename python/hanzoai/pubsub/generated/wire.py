# Generated from spec/pubsub.schema.json by `make generate`; do not edit.

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field
from typing_extensions import TypeAliasType

from hanzoai.pubsub.model import Model, Payload

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
"""Position of a message in the log of its topic: contiguous, +1 a message; a log that begins anew starts at its Unix milliseconds x 1000. At most 2^53-1."""


MessageId = TypeAliasType("MessageId", Annotated[str, Field(max_length=128, min_length=1)])
"""Unique message id, recommended `msg_` and a ULID."""


ErrorCode = TypeAliasType(
    "ErrorCode",
    Literal[
        "invalid_frame",
        "invalid_topic",
        "invalid_payload",
        "invalid_option",
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
"""What went wrong. Open: later servers may send further codes; `spec/errors.yaml` has meaning and remedy."""


class Sender(Model):
    """Publisher identity, stamped by the server."""

    type: str
    """`service`, `user`, `agent` or `admin`."""
    id: str
    """Identifier of the publisher."""


class Envelope(Payload):
    """A published message as every transport delivers it. HIP-56 Message Format."""

    id: MessageId
    topic: Topic
    type: str
    """Application-defined message type."""
    data: Any
    """Payload: an object by HIP-56; any JSON value is passed through."""
    sender: Sender | None = None
    timestamp: Timestamp
    ttl: Annotated[int | None, Field(ge=0)] = None
    """Retention in history, seconds; 0 keeps nothing."""
    seq: Seq | None = None
    meta: dict[str, Any] | None = None
    """Passed through untouched, for example a W3C `traceparent`."""


class Publication(Payload):
    """What a publisher supplies of a message; the server adds the rest."""

    topic: Topic
    type: Annotated[str, Field(max_length=128, min_length=1)] = "message"
    """Application-defined message type."""
    data: Any
    """Payload, any JSON value, at most 262,144 bytes of JSON."""
    ttl: Annotated[int | None, Field(ge=0)] = None
    """Retention in history, seconds; 0 keeps nothing."""
    id: MessageId | None = None
    meta: dict[str, Any] | None = None
    """Passed through untouched."""


class PresenceMember(Model):
    """One connected client of a topic. HIP-56 Presence."""

    client_id: str
    """Identifies the connection, kept over a resume."""
    user_id: str
    """Identifies the person or service."""
    name: str
    """Display name."""
    avatar_url: str | None = None
    """Picture."""
    status: str | None = None
    """For example `online`, `typing`, `idle`."""
    metadata: dict[str, Any] | None = None
    """Application keys."""
    joined_at: Timestamp
    last_seen: Timestamp


class ClientInfo(Model):
    """Which client speaks."""

    name: str
    """Library or program."""
    version: str | None = None
    """Its version."""
    lang: str | None = None
    """Its language, for example `python`."""


class Limits(Model):
    """What the server allows this connection."""

    publish_rate: Annotated[int | None, Field(ge=0)] = None
    """Publishes a second."""
    bulk_rate: Annotated[int | None, Field(ge=0)] = None
    """Publishes a second by batches over REST, where these have a budget of their own."""
    max_payload: Annotated[int | None, Field(ge=0)] = None
    """Bytes of JSON-encoded `data`."""
    history_max: Annotated[int | None, Field(ge=0)] = None
    """Messages kept a topic."""
    max_subscriptions: Annotated[int | None, Field(ge=0)] = None
    """Patterns a connection."""
    max_batch: Annotated[int | None, Field(ge=0)] = None
    """Messages a batch."""


class Denial(Model):
    """A pattern of a subscribe frame that was refused."""

    topic: str
    """The pattern as sent."""
    code: ErrorCode
    message: str | None = None
    """What went wrong, in words."""


class ErrorInfo(Model):
    """Why one item was refused."""

    code: ErrorCode
    message: str
    """What went wrong, in words."""
    remedy: str | None = None
    """What to do about it."""
    retry_after_ms: Annotated[int | None, Field(ge=0)] = None
    """Earliest time to try again, milliseconds."""
    topic: str | None = None
    """The topic it concerns."""


class PublishResult(Model):
    """What became of one publication of a batch: either an error or an id."""

    id: MessageId | None = None
    timestamp: Timestamp | None = None
    seq: Seq | None = None
    duplicate: bool | None = None
    """The id was published before; nothing was sent again."""
    error: ErrorInfo | None = None


class AuthFrame(Model):
    """Presents a bearer token or API key, first or again. HIP-56 WebSocket, Security 10."""

    type: Literal["auth"] = "auth"
    token: Annotated[str, Field(max_length=16384, min_length=1)]
    """Token or API key, with or without `Bearer `."""
    version: Annotated[int | None, Field(ge=0)] = None
    """Protocol version of the client."""
    client: ClientInfo | None = None
    client_id: Annotated[str | None, Field(max_length=64)] = None
    """The client id of the connection this one resumes, for presence."""
    ref: Annotated[str | None, Field(max_length=64, min_length=1)] = None
    """Chosen by the client, echoed in the answer to this frame."""


class SubscribeFrame(Model):
    """Subscribes, optionally replaying retained messages. H-042, H-043."""

    type: Literal["subscribe"] = "subscribe"
    topics: Annotated[list[TopicPattern], Field(max_length=1000, min_length=1)]
    """Patterns to receive."""
    since: Timestamp | None = None
    """Replay what is newer than this, where `after` does not say more."""
    after: dict[str, Seq] | None = None
    """Replay what follows these positions, by concrete topic."""
    history: Annotated[int | None, Field(ge=0, le=10000)] = None
    """Replay at most this many of the newest messages a topic."""
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
    """A batch with one answer an item."""
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
"""Everything a client may send on a socket."""


class AuthOkFrame(Model):
    """Authentication succeeded; without `version` the peer knows HIP-56 and nothing more."""

    type: Literal["auth.ok"] = "auth.ok"
    client_id: str
    """Identifies the connection."""
    user_id: str | None = None
    """Whom the token names."""
    version: Annotated[int | None, Field(ge=0)] = None
    """Protocol version of the server."""
    features: list[str] | None = None
    """What the server can do beyond HIP-56: `ref`, `ack`, `seq`, `idempotency`, `batch`, `resume`, `meta`."""
    expires_at: Timestamp | None = None
    """When the token ends."""
    server_time: Timestamp | None = None
    limits: Limits | None = None
    ref: Annotated[str | None, Field(max_length=64, min_length=1)] = None
    """Chosen by the client, echoed in the answer to this frame."""


class AuthErrorFrame(Model):
    """Authentication failed. H-041."""

    type: Literal["auth.error"] = "auth.error"
    code: ErrorCode
    message: str
    """What went wrong, in words."""
    remedy: str | None = None
    """What to do about it."""
    retry_after_ms: Annotated[int | None, Field(ge=0)] = None
    """Earliest time to try again, milliseconds."""
    ref: Annotated[str | None, Field(max_length=64, min_length=1)] = None
    """Chosen by the client, echoed in the answer to this frame."""


class AuthExpiringFrame(Model):
    """The token ends soon; answer with `auth`. H-153."""

    type: Literal["auth.expiring"] = "auth.expiring"
    expires_at: Timestamp | None = None
    """When the token ends."""
    expires_in: Annotated[int | None, Field(ge=0)] = None
    """Milliseconds left."""


class SubscribedFrame(Model):
    """Answers `subscribe`. H-042, H-103."""

    type: Literal["subscribed"] = "subscribed"
    topics: list[str]
    """Patterns granted."""
    history: list[Envelope] | None = None
    """Replayed messages, oldest first."""
    positions: dict[str, Seq] | None = None
    """Newest position of each matching concrete topic when the subscription began. A topic that is subscribed to by name and has no message has one too: the position before its first message."""
    timestamp: Timestamp | None = None
    """Server time when the subscription began."""
    truncated: list[Topic] | None = None
    """Topics whose log does not reach back to what was asked."""
    reset: list[Topic] | None = None
    """Topics whose log began anew after the position that was asked for, or maybe more than once within what is replayed, or, where a stream resumes, since its last event."""
    denied: list[Denial] | None = None
    """Patterns refused."""
    more: bool | None = None
    """Further `subscribed` frames of the same `ref` follow with the rest of the history."""
    ref: Annotated[str | None, Field(max_length=64, min_length=1)] = None
    """Chosen by the client, echoed in the answer to this frame."""


class UnsubscribedFrame(Model):
    """Answers `unsubscribe` where it carried a `ref`."""

    type: Literal["unsubscribed"] = "unsubscribed"
    topics: list[str]
    """Patterns ended."""
    ref: Annotated[str | None, Field(max_length=64, min_length=1)] = None
    """Chosen by the client, echoed in the answer to this frame."""


class MessageFrame(Model):
    """A published message. H-044."""

    type: Literal["message"] = "message"
    message: Envelope


class PublishedFrame(Model):
    """Answers `publish` where it carried a `ref`."""

    type: Literal["published"] = "published"
    id: MessageId | None = None
    timestamp: Timestamp | None = None
    seq: Seq | None = None
    duplicate: bool | None = None
    """The id was published before; nothing was sent again."""
    results: list[PublishResult] | None = None
    """One an item, for a batch."""
    ref: Annotated[str | None, Field(max_length=64, min_length=1)] = None
    """Chosen by the client, echoed in the answer to this frame."""


class PresenceSnapshotFrame(Model):
    """Everybody present on a topic. H-049."""

    type: Literal["presence.snapshot"] = "presence.snapshot"
    topic: Topic
    members: list[PresenceMember]
    """All members, the receiver included."""


class PongFrame(Model):
    """Answers `ping`. H-048."""

    type: Literal["pong"] = "pong"
    server_time: Timestamp | None = None
    ref: Annotated[str | None, Field(max_length=64, min_length=1)] = None
    """Chosen by the client, echoed in the answer to this frame."""


class ErrorFrame(Model):
    """Something was refused. H-050."""

    type: Literal["error"] = "error"
    code: ErrorCode
    message: str
    """What went wrong, in words."""
    remedy: str | None = None
    """What to do about it."""
    topic: str | None = None
    """The topic it concerns."""
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
"""Everything a server may send on a socket."""


class PublishRequest(Payload):
    """Body of `POST /v1/topics/{topic}/messages`. H-070."""

    type: Annotated[str, Field(max_length=128, min_length=1)] = "message"
    """Application-defined message type."""
    data: Any
    """Payload, any JSON value, at most 262,144 bytes of JSON."""
    ttl: Annotated[int | None, Field(ge=0)] = None
    """Retention in history, seconds; 0 keeps nothing."""
    id: MessageId | None = None
    meta: dict[str, Any] | None = None
    """Passed through untouched."""


class PublishResponse(Model):
    """Answer to a publish."""

    id: MessageId
    timestamp: Timestamp
    seq: Seq | None = None
    duplicate: bool | None = None
    """The id was published before; nothing was sent again."""


class BatchRequest(Model):
    """Body of `POST /v1/messages:batch`."""

    messages: Annotated[list[Publication], Field(max_length=1000, min_length=1)]
    """Published in order; each has its own result."""


class BatchResponse(Model):
    """Answer to a batch, one result an item in the same order."""

    results: list[PublishResult]
    """One an item."""


class HistoryPage(Model):
    """Retained messages of one topic, oldest first inside the page. H-072."""

    messages: list[Envelope]
    """The page."""
    has_more: bool
    """Older messages (with `after`: newer ones) remain."""
    position: Seq | None = None
    """Newest position of the topic."""
    truncated: bool | None = None
    """With `after`: a position behind it, up to the last message of the page (to `position`, where the page has none), is missing. With `since`: messages newer than that are retained no more."""
    reset: bool | None = None
    """The log began anew after the position in `after`; 0 is before every log."""


class PresenceList(Model):
    """Everybody present on a topic. H-073."""

    members: list[PresenceMember]
    """All members."""


class TopicInfo(Model):
    """One active topic."""

    topic: Topic
    subscribers: Annotated[int, Field(ge=0)]
    """Connections that receive it."""
    messages: Annotated[int, Field(ge=0)]
    """Messages retained."""
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


class PositionsRequest(Model):
    """Body of `POST /v1/positions`: where the logs of topics stand, or where they have moved to."""

    topics: Annotated[list[TopicPattern], Field(max_length=1000, min_length=1)]
    """Topics and patterns."""
    after: dict[str, Seq] | None = None
    """Positions that the caller knows, by concrete topic; at most 10,000. With `wait_ms`: what counts as moved."""
    at: Timestamp | None = None
    """Asks for the position of each topic at this time."""
    wait_ms: Annotated[int | None, Field(ge=0, le=30000)] = None
    """Milliseconds to hold the answer until a topic has another `last` than in `after`, or is not in `after` at all; default 0."""


class TopicPosition(Model):
    """Where the log of one topic stands. A topic without a log has `first` 1 and `last` 0."""

    topic: Topic
    first: Seq
    """Position of the oldest retained message; `last` + 1 where none is retained."""
    last: Seq
    """Newest position that was ever given in this log."""
    at: Seq | None = None
    """Where `at` was asked for: position of the first retained message that is not older; `last` + 1 where there is none."""


class PositionList(Model):
    """Answer of `POST /v1/positions`."""

    positions: list[TopicPosition]
    """The topics, by name; of patterns those that have a log and that the caller may subscribe to."""
    timestamp: Timestamp
    """Time of the store when it was asked: what was published before is counted."""
    has_more: bool | None = None
    """More than 10,000 topics match; these are the first by name."""


class StreamSubscription(Model):
    """One subscription of an event stream, with the meaning of a `subscribe` frame."""

    topics: Annotated[list[TopicPattern], Field(max_length=1000, min_length=1)]
    """Patterns to receive."""
    since: Timestamp | None = None
    """Replay what is newer than this."""
    after: dict[str, Seq] | None = None
    """Replay what follows these positions."""
    history: Annotated[int | None, Field(ge=0, le=10000)] = None
    """Replay at most this many of the newest messages a topic."""
    ref: Annotated[str | None, Field(max_length=64, min_length=1)] = None
    """Chosen by the client, echoed in the answer to this frame."""


class SessionInfo(Model):
    """Answer of `GET /v1/session`: what `auth.ok` says on a socket."""

    client_id: str
    """Id of the event stream that the caller opens next, when it names it in `client_id`."""
    user_id: str | None = None
    """Whom the token names."""
    version: Annotated[int, Field(ge=0)]
    """Protocol version of the server."""
    features: list[str] | None = None
    """What the server can do beyond HIP-56."""
    expires_at: Timestamp | None = None
    """When the token ends."""
    server_time: Timestamp | None = None
    limits: Limits | None = None


class AccessInfo(Model):
    """Answer of `GET /v1/access`: what the caller may do with a topic or pattern, and why."""

    topic: str
    """As asked."""
    subscribe: bool
    """Whether the caller may subscribe to it."""
    publish: bool
    """Whether the caller may publish to it."""
    rule: str | None = None
    """The access rule that decides, if one does."""
    reason: str
    """Why, in words."""


class Problem(Model):
    """Body of every HTTP error, `application/problem+json` (RFC 9457)."""

    type: str | None = None
    """A URI reference for the kind of problem."""
    title: str
    """The code's meaning."""
    status: Annotated[int, Field(ge=0)]
    """HTTP status."""
    code: ErrorCode
    detail: str | None = None
    """What went wrong here, in words."""
    remedy: str | None = None
    """What to do about it."""
    instance: str | None = None
    """The id of this request, as in `X-Request-Id` and in the server's log."""
    field: str | None = None
    """The parameter or body field at fault."""
    topic: str | None = None
    """The topic it concerns."""
    retry_after_ms: Annotated[int | None, Field(ge=0)] = None
    """Earliest time to try again, milliseconds."""


class SubscribeRequest(Model):
    """Body of `POST /v1/subscribe`: everything the event stream shall carry."""

    subscriptions: Annotated[list[StreamSubscription], Field(max_length=1000, min_length=1)]
    """Each is answered by its own `subscribed` event."""
    presence: bool | None = None
    """Whether presence events are sent; default false."""
    client_id: Annotated[str | None, Field(max_length=64)] = None
    """`Client-Id` of a stream, or `client_id` of `auth.ok`, in whose place this stream comes; so presence goes on."""

// Generated from spec/pubsub.schema.json by `make generate`; do not edit.

import { type Guard, isCount, isSome, isText, type JsonObject, shape } from '../wire/guard.js';
import {
  type Envelope,
  type ErrorCode,
  isEnvelope,
  isLimits,
  isPresenceMember,
  isPublication,
  isPublishResult,
  isTopicPattern,
  type Limits,
  type MessageId,
  type PresenceMember,
  type Publication,
  type PublishResult,
  type Seq,
  type Timestamp,
  type Topic,
  type TopicPattern,
} from './wire.js';

/** Body of `POST /v1/topics/{topic}/messages`. H-070. */
export interface PublishRequest {
  /** Application-defined message type. */
  readonly type?: string;
  /** Payload, any JSON value, at most 262,144 bytes of JSON. */
  readonly data: unknown;
  /** Retention in history, seconds; 0 stores nothing. */
  readonly ttl?: number;
  /** Id, at most 128 characters; the server publishes an id once. Default: `msg_` and a ULID. */
  readonly id?: MessageId;
  /** Passed on unchanged. */
  readonly meta?: JsonObject;
}

/** Whether a value read from JSON is a PublishRequest. */
export const isPublishRequest: Guard<PublishRequest> = /* @__PURE__ */ shape(
  'type?:id data:any ttl?:count id?:id meta?:object',
);

/** Answer to a publish. */
export interface PublishResponse {
  /** Id of the message. */
  readonly id: MessageId;
  /** When the server accepted it, in Unix milliseconds. */
  readonly timestamp: Timestamp;
  /** Position in the log of its topic. Absent with `ttl` 0. */
  readonly seq?: Seq;
  /** The id was already published; the server did not send the message again. */
  readonly duplicate?: boolean;
}

/** Whether a value read from JSON is a PublishResponse. */
export const isPublishResponse: Guard<PublishResponse> = /* @__PURE__ */ shape(
  'id:id timestamp:count seq?:count duplicate?:flag',
);

/** Body of `POST /v1/messages:batch`. */
export interface BatchRequest {
  /** Published in order; each has its own result. */
  readonly messages: readonly Publication[];
}

/** Whether a value read from JSON is a BatchRequest. */
export const isBatchRequest: Guard<BatchRequest> = /* @__PURE__ */ shape('messages:0', (value) =>
  isSome(value, 1000, isPublication),
);

/** Answer to a batch, one result per item in the same order. */
export interface BatchResponse {
  /** One per item. */
  readonly results: readonly PublishResult[];
}

/** Whether a value read from JSON is a BatchResponse. */
export const isBatchResponse: Guard<BatchResponse> = /* @__PURE__ */ shape(
  'results:0[]',
  isPublishResult,
);

/** Retained messages of one topic, oldest first inside the page. H-072. */
export interface HistoryPage {
  /** The page. */
  readonly messages: readonly Envelope[];
  /** Older messages (with `after`: newer ones) remain. */
  readonly has_more: boolean;
  /** Newest position of the topic. */
  readonly position?: Seq;
  /** With `after`: a position after it, up to the last message of the page (up to `position` if the page is empty), is missing. With `since`: some messages newer than it are no longer retained. */
  readonly truncated?: boolean;
  /** The log was reset after the position in `after`. Position 0 is before every log. */
  readonly reset?: boolean;
}

/** Whether a value read from JSON is a HistoryPage. */
export const isHistoryPage: Guard<HistoryPage> = /* @__PURE__ */ shape(
  'messages:0[] has_more:flag position?:count truncated?:flag reset?:flag',
  isEnvelope,
);

/** All members of a topic. H-073. */
export interface PresenceList {
  /** All members. */
  readonly members: readonly PresenceMember[];
}

/** Whether a value read from JSON is a PresenceList. */
export const isPresenceList: Guard<PresenceList> = /* @__PURE__ */ shape(
  'members:0[]',
  isPresenceMember,
);

/** The number of members of one topic. Subscribers of a matching pattern are not counted. */
export interface Occupancy {
  /** Connections that subscribe to exactly this topic. */
  readonly members: number;
  /** Users with at least one of these connections. */
  readonly users: number;
}

/** Whether a value read from JSON is an Occupancy. */
export const isOccupancy: Guard<Occupancy> = /* @__PURE__ */ shape('members:int users:int');

/** One active topic. */
export interface TopicInfo {
  /** The topic, without wildcards. */
  readonly topic: Topic;
  /** Number of connections subscribed to it. */
  readonly subscribers: number;
  /** Number of retained messages. */
  readonly messages: number;
  /** Newest position. */
  readonly position?: Seq;
  /** When the newest message was published. */
  readonly last_message_at?: Timestamp;
}

/** Whether a value read from JSON is a TopicInfo. */
export const isTopicInfo: Guard<TopicInfo> = /* @__PURE__ */ shape(
  'topic:topic subscribers:int messages:int position?:count last_message_at?:count',
);

/** Active topics, by name. H-074. */
export interface TopicList {
  /** The topics. */
  readonly topics: readonly TopicInfo[];
  /** Further topics match; narrow `prefix` or raise `limit`. */
  readonly has_more?: boolean;
}

/** Whether a value read from JSON is a TopicList. */
export const isTopicList: Guard<TopicList> = /* @__PURE__ */ shape(
  'topics:0[] has_more?:flag',
  isTopicInfo,
);

/** One open connection, as an administrator sees it. */
export interface ConnectionInfo {
  /** Id of the connection, as in `auth.ok`. */
  readonly client_id: string;
  /** Identity in the token. */
  readonly user_id: string;
  /** Kind of the identity. */
  readonly kind: string;
  /** Display name of the user. */
  readonly name?: string;
  /** Protocol of the connection, as in the label `transport` of the metrics: `socket`, `event_stream`, `signed`, `sp`, `events` or `hub`. */
  readonly transport: string;
  /** IP address of the client. Absent if the server does not know it. */
  readonly address?: string;
  /** When the client first authenticated on this connection. */
  readonly connected_at: Timestamp;
  /** Topics and patterns that it is subscribed to, at most 20. */
  readonly patterns: readonly string[];
  /** Number of its subscriptions. */
  readonly subscriptions: number;
  /** Bytes that wait on the server because the client has not read them. */
  readonly queued_bytes: number;
  /** Maximum bytes that may wait. If more would wait, the server closes the connection with `slow_consumer`. */
  readonly queue_limit: number;
  /** The connection accepts no data now. */
  readonly stalled?: boolean;
}

/** Whether a value read from JSON is a ConnectionInfo. */
export const isConnectionInfo: Guard<ConnectionInfo> = /* @__PURE__ */ shape(
  'client_id user_id kind name? transport address? connected_at:count patterns:text[] subscriptions:int queued_bytes:int queue_limit:int stalled?:flag',
);

/** Open connections of the node that answers, those with the longest queues first. */
export interface ConnectionList {
  /** The connections. */
  readonly connections: readonly ConnectionInfo[];
  /** Number of matching connections of this node. The list contains fewer if `limit` is lower. */
  readonly total: number;
}

/** Whether a value read from JSON is a ConnectionList. */
export const isConnectionList: Guard<ConnectionList> = /* @__PURE__ */ shape(
  'connections:0[] total:int',
  isConnectionInfo,
);

/** Body of `POST /v1/positions`: asks for the positions of topics, or waits for a change. */
export interface PositionsRequest {
  /** Topics and patterns. */
  readonly topics: readonly TopicPattern[];
  /** Positions that the caller knows, by topic; at most 10,000. With `wait_ms`, a difference from these is a change. */
  readonly after?: Readonly<Record<string, Seq>>;
  /** Also return the position of each topic at this time. */
  readonly at?: Timestamp;
  /** Milliseconds to wait until the `last` of a topic differs from `after`, or a topic is not in `after`; default 0. */
  readonly wait_ms?: number;
}

/** Whether a value read from JSON is a PositionsRequest. */
export const isPositionsRequest: Guard<PositionsRequest> = /* @__PURE__ */ shape(
  'topics:0 after?:count{} at?:count wait_ms?:1',
  (value) => isSome(value, 1000, isTopicPattern),
  (value) => isCount(value, 30000),
);

/** Positions of one topic. A topic without a log has `first` 1 and `last` 0. */
export interface TopicPosition {
  /** The topic, without wildcards. */
  readonly topic: Topic;
  /** Position of the oldest retained message; `last` + 1 if none is retained. */
  readonly first: Seq;
  /** Newest position in this log. */
  readonly last: Seq;
  /** If `at` was requested: position of the oldest retained message that is not older than `at`; `last` + 1 if there is none. */
  readonly at?: Seq;
}

/** Whether a value read from JSON is a TopicPosition. */
export const isTopicPosition: Guard<TopicPosition> = /* @__PURE__ */ shape(
  'topic:topic first:count last:count at?:count',
);

/** Answer of `POST /v1/positions`. */
export interface PositionList {
  /** The topics, by name. For a pattern, the topics that have a log and that the caller may subscribe to. */
  readonly positions: readonly TopicPosition[];
  /** Time of the store when it answered. The positions include every message published before it. */
  readonly timestamp: Timestamp;
  /** More than 10,000 topics match. The answer contains the first ones by name. */
  readonly has_more?: boolean;
}

/** Whether a value read from JSON is a PositionList. */
export const isPositionList: Guard<PositionList> = /* @__PURE__ */ shape(
  'positions:0[] timestamp:count has_more?:flag',
  isTopicPosition,
);

/** Body of `POST /v1/subscribe`: the subscriptions of the event stream. */
export interface SubscribeRequest {
  /** Each is answered by its own `subscribed` event. */
  readonly subscriptions: readonly StreamSubscription[];
  /** Whether to send presence events; default false. */
  readonly presence?: boolean;
  /** `Client-Id` of a stream, or `client_id` of `auth.ok`, that this stream replaces, so that presence continues. */
  readonly client_id?: string;
}

/** Whether a value read from JSON is a SubscribeRequest. */
export const isSubscribeRequest: Guard<SubscribeRequest> = /* @__PURE__ */ shape(
  'subscriptions:0 presence?:flag client_id?:1',
  (value) => isSome(value, 1000, isStreamSubscription),
  (value) => isText(value, 0, 64),
);

/** One subscription of an event stream, like a `subscribe` frame. */
export interface StreamSubscription {
  /** Patterns to receive. */
  readonly topics: readonly TopicPattern[];
  /** Replay messages newer than this time. */
  readonly since?: Timestamp;
  /** Replay the messages after these positions. */
  readonly after?: Readonly<Record<string, Seq>>;
  /** Replay at most this number of the newest messages per topic. */
  readonly history?: number;
  /** Chosen by the client, echoed in the answer to this frame. */
  readonly ref?: string;
}

/** Whether a value read from JSON is a StreamSubscription. */
export const isStreamSubscription: Guard<StreamSubscription> = /* @__PURE__ */ shape(
  'topics:0 since?:count after?:count{} history?:1 ref?:ref',
  (value) => isSome(value, 1000, isTopicPattern),
  (value) => isCount(value, 10000),
);

/** Answer of `GET /v1/session`: the content of `auth.ok` on a WebSocket. */
export interface SessionInfo {
  /** Id for the event stream that the caller opens next, if the caller passes it in `client_id`. */
  readonly client_id: string;
  /** Identity in the token. */
  readonly user_id?: string;
  /** Protocol version of the server. */
  readonly version: number;
  /** Features of the server beyond HIP-56. */
  readonly features?: readonly string[];
  /** When the token expires. */
  readonly expires_at?: Timestamp;
  /** Time of the server, in Unix milliseconds. */
  readonly server_time?: Timestamp;
  readonly limits?: Limits;
  /** Id of the node that assigned the positions. They are not valid on other nodes: a client that changes the node reports a gap of unknown size. Absent if positions are valid on every node. */
  readonly node?: string;
}

/** Whether a value read from JSON is a SessionInfo. */
export const isSessionInfo: Guard<SessionInfo> = /* @__PURE__ */ shape(
  'client_id user_id? version:int features?:text[] expires_at?:count server_time?:count limits?:0 node?:ref',
  isLimits,
);

/** Answer of `GET /v1/access`: the permissions of the caller on a topic or pattern, and the reason. */
export interface AccessInfo {
  /** As requested. */
  readonly topic: string;
  /** Whether the caller may subscribe to it. */
  readonly subscribe: boolean;
  /** Whether the caller may publish to it. */
  readonly publish: boolean;
  /** The access rule that decides, if any. */
  readonly rule?: string;
  /** Reason for the decision. */
  readonly reason: string;
}

/** Whether a value read from JSON is an AccessInfo. */
export const isAccessInfo: Guard<AccessInfo> = /* @__PURE__ */ shape(
  'topic subscribe:flag publish:flag rule? reason',
);

/** Body of every HTTP error, `application/problem+json` (RFC 9457). */
export interface Problem {
  /** URI reference of the error code. */
  readonly type?: string;
  /** Meaning of the error code. */
  readonly title: string;
  /** HTTP status. */
  readonly status: number;
  readonly code: ErrorCode;
  /** Explanation of this error. */
  readonly detail?: string;
  /** How to fix it. */
  readonly remedy?: string;
  /** The id of this request, as in `X-Request-Id` and in the server's log. */
  readonly instance?: string;
  /** Parameter or body field with the error. */
  readonly field?: string;
  /** The topic it concerns. */
  readonly topic?: string;
  /** Earliest time to try again, milliseconds. */
  readonly retry_after_ms?: number;
}

/** Whether a value read from JSON is a Problem. */
export const isProblem: Guard<Problem> = /* @__PURE__ */ shape(
  'type? title status:int code detail? remedy? instance? field? topic? retry_after_ms?:int',
);

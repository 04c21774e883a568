// Generated from spec/pubsub.schema.json by `make generate`; do not edit.

import { isPattern, isTopic } from '../topics.js';
import {
  type Guard,
  isCount,
  isObject,
  isText,
  type JsonObject,
  shape,
  type Test,
} from '../wire/guard.js';

export type { JsonObject };

/** Name of a topic: dot-separated, no empty segment, no `*`. HIP-56 Topics, Security 8. */
export type Topic = string;

export { isTopic };

/** Topic name in which whole segments may be `*` (exactly one segment) or `**` (one or more). HIP-56 Wildcard Subscriptions. */
export type TopicPattern = string;

/** Whether a value read from JSON is a TopicPattern. */
export const isTopicPattern: Test = isPattern;

/** Unix epoch, milliseconds. */
export type Timestamp = number;

/** Position of a message in the log of its topic: contiguous, +1 per message. A new log starts at its Unix milliseconds x 1000. At most 2^53-1. */
export type Seq = number;

/** Unique message id, recommended `msg_` and a ULID. */
export type MessageId = string;

/** Error code. Later servers may send other codes; `spec/errors.yaml` has meanings and remedies. */
export type ErrorCode =
  | 'invalid_frame'
  | 'invalid_topic'
  | 'invalid_payload'
  | 'invalid_option'
  | 'schema'
  | 'payload_too_large'
  | 'unauthenticated'
  | 'token_invalid'
  | 'token_expired'
  | 'auth_timeout'
  | 'forbidden'
  | 'not_found'
  | 'conflict'
  | 'rate_limited'
  | 'connection_limit'
  | 'subscription_limit'
  | 'slow_consumer'
  | 'idle_timeout'
  | 'unsupported'
  | 'unavailable'
  | 'going_away'
  | 'internal'
  | (string & {});

/** Identity of the publisher, set by the server. */
export interface Sender {
  /** `service`, `user`, `agent` or `admin`. */
  readonly type: string;
  /** Identifier of the publisher. */
  readonly id: string;
}

/** Whether a value read from JSON is a Sender. */
export function isSender(value: unknown): value is Sender {
  if (!isObject(value)) return false;
  const { type, id } = value;
  return typeof type === 'string' && typeof id === 'string';
}

/** A published message as every transport delivers it. HIP-56 Message Format. */
export interface Envelope {
  /** Unique id: that of the publisher, or `msg_` and a ULID. */
  readonly id: MessageId;
  /** The topic, without wildcards. */
  readonly topic: Topic;
  /** Application-defined message type. */
  readonly type: string;
  /** Payload. HIP-56 names an object; any JSON value is passed through. */
  readonly data: unknown;
  /** Who published it, set by the server. */
  readonly sender?: Sender;
  /** When the server accepted it, in Unix milliseconds. */
  readonly timestamp: Timestamp;
  /** Retention in history, seconds; 0 stores nothing. */
  readonly ttl?: number;
  /** Position in the log of its topic: +1 per message. Messages with `ttl` 0 have none. */
  readonly seq?: Seq;
  /** Passed on unchanged, for example a W3C `traceparent`. */
  readonly meta?: JsonObject;
}

/** Whether a value read from JSON is an Envelope. */
export function isEnvelope(value: unknown): value is Envelope {
  if (!isObject(value)) return false;
  const { id, topic, type, data, sender, timestamp, ttl, seq, meta } = value;
  return (
    isText(id, 1, 128) &&
    isTopic(topic) &&
    typeof type === 'string' &&
    data !== undefined &&
    (sender === undefined || isSender(sender)) &&
    isCount(timestamp) &&
    (ttl === undefined || isCount(ttl, Infinity)) &&
    (seq === undefined || isCount(seq)) &&
    (meta === undefined || isObject(meta))
  );
}

/** The fields of a message that the publisher sets; the server adds the others. */
export interface Publication {
  /** The topic, without wildcards. */
  readonly topic: Topic;
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

/** Whether a value read from JSON is a Publication. */
export const isPublication: Guard<Publication> = /* @__PURE__ */ shape(
  'topic:topic type?:id data:any ttl?:count id?:id meta?:object',
);

/** One connected client of a topic. HIP-56 Presence. */
export interface PresenceMember {
  /** Identifies the connection, and stays the same after a resume. */
  readonly client_id: string;
  /** Identifies the user or service. */
  readonly user_id: string;
  /** Display name. */
  readonly name: string;
  /** URL of a picture. */
  readonly avatar_url?: string;
  /** For example `online`, `typing`, `idle`. */
  readonly status?: string;
  /** Application keys. */
  readonly metadata?: JsonObject;
  /** When it joined, in Unix milliseconds. */
  readonly joined_at: Timestamp;
  /** When the server last received data from it, in Unix milliseconds. */
  readonly last_seen: Timestamp;
}

/** Whether a value read from JSON is a PresenceMember. */
export const isPresenceMember: Guard<PresenceMember> = /* @__PURE__ */ shape(
  'client_id user_id name avatar_url? status? metadata?:object joined_at:count last_seen:count',
);

/** The client software. */
export interface ClientInfo {
  /** Library or program. */
  readonly name: string;
  /** Its version. */
  readonly version?: string;
  /** Its language, for example `python`. */
  readonly lang?: string;
}

/** Whether a value read from JSON is a ClientInfo. */
export const isClientInfo: Guard<ClientInfo> = /* @__PURE__ */ shape('name version? lang?');

/** What the server allows this connection. */
export interface Limits {
  /** Maximum publishes per second. */
  readonly publish_rate?: number;
  /** Maximum messages per second in batches over REST, if these have a separate limit. */
  readonly bulk_rate?: number;
  /** Maximum bytes of JSON-encoded `data`. */
  readonly max_payload?: number;
  /** Messages retained per topic. */
  readonly history_max?: number;
  /** Maximum patterns per connection. */
  readonly max_subscriptions?: number;
  /** Maximum messages per batch. */
  readonly max_batch?: number;
}

/** Whether a value read from JSON is a Limits. */
export const isLimits: Guard<Limits> = /* @__PURE__ */ shape(
  'publish_rate?:int bulk_rate?:int max_payload?:int history_max?:int max_subscriptions?:int max_batch?:int',
);

/** A pattern of a subscribe frame that the server rejected. */
export interface Denial {
  /** The pattern as sent. */
  readonly topic: string;
  readonly code: ErrorCode;
  /** Explanation of the error. */
  readonly message?: string;
}

/** Whether a value read from JSON is a Denial. */
export const isDenial: Guard<Denial> = /* @__PURE__ */ shape('topic code message?');

/** Why the server rejected an item. */
export interface ErrorInfo {
  readonly code: ErrorCode;
  /** Explanation of the error. */
  readonly message: string;
  /** How to fix it. */
  readonly remedy?: string;
  /** Invalid parameter, or invalid member of the payload, as a path such as `data.items[0].sku`. */
  readonly field?: string;
  /** Earliest time to try again, milliseconds. */
  readonly retry_after_ms?: number;
  /** The topic it concerns. */
  readonly topic?: string;
}

/** Whether a value read from JSON is an ErrorInfo. */
export const isErrorInfo: Guard<ErrorInfo> = /* @__PURE__ */ shape(
  'code message remedy? field? retry_after_ms?:int topic?',
);

/** Result of one message of a batch: an error or an id. */
export interface PublishResult {
  /** Id of the message. */
  readonly id?: MessageId;
  /** When the server accepted it, in Unix milliseconds. */
  readonly timestamp?: Timestamp;
  /** Position in the log of its topic. Absent with `ttl` 0. */
  readonly seq?: Seq;
  /** The id was already published; the server did not send the message again. */
  readonly duplicate?: boolean;
  readonly error?: ErrorInfo;
}

/** Whether a value read from JSON is a PublishResult. */
export const isPublishResult: Guard<PublishResult> = /* @__PURE__ */ shape(
  'id?:id timestamp?:count seq?:count duplicate?:flag error?:0',
  isErrorInfo,
);

/** Authenticates the connection with a bearer token or API key, initially or to renew it. HIP-56 WebSocket, Security 10. */
export interface AuthFrame {
  readonly type: 'auth';
  /** Token or API key, with or without `Bearer `. */
  readonly token: string;
  /** Protocol version of the client. */
  readonly version?: number;
  readonly client?: ClientInfo;
  /** Client id of the connection that this one resumes, for presence. */
  readonly client_id?: string;
  /** Chosen by the client, echoed in the answer to this frame. */
  readonly ref?: string;
}

/** Subscribes, optionally replaying retained messages. H-042, H-043. */
export interface SubscribeFrame {
  readonly type: 'subscribe';
  /** Patterns to receive. */
  readonly topics: readonly TopicPattern[];
  /** Replay messages newer than this time, on topics without a position in `after`. */
  readonly since?: Timestamp;
  /** Replay the messages after these positions, by topic. */
  readonly after?: Readonly<Record<string, Seq>>;
  /** Replay at most this number of the newest messages per topic. */
  readonly history?: number;
  /** Whether to receive presence of these topics; default true on a socket. */
  readonly presence?: boolean;
  /** Chosen by the client, echoed in the answer to this frame. */
  readonly ref?: string;
}

/** Ends subscriptions, matched by exactly these patterns. H-046. */
export interface UnsubscribeFrame {
  readonly type: 'unsubscribe';
  /** Patterns to end. */
  readonly topics: readonly TopicPattern[];
  /** Chosen by the client, echoed in the answer to this frame. */
  readonly ref?: string;
}

/** Publishes: canonically `message` or `messages`; the flat form of HIP-56 (`topic`, `data`, `message_type`) is accepted too. H-045. */
export interface PublishFrame {
  readonly type: 'publish';
  readonly message?: Publication;
  /** A batch, with one result per item. */
  readonly messages?: readonly Publication[];
  /** Flat form: the topic. */
  readonly topic?: string;
  /** Flat form: the payload. */
  readonly data?: unknown;
  /** Flat form: the application type. */
  readonly message_type?: string;
  /** Flat form: retention, seconds. */
  readonly ttl?: number;
  /** Flat form: message id. */
  readonly id?: string;
  /** Chosen by the client, echoed in the answer to this frame. */
  readonly ref?: string;
}

/** Updates the sender's presence on one topic or on every topic it is a member of. H-047. */
export interface PresenceUpdateFrame {
  readonly type: 'presence.update';
  /** The topic. Absent: every topic of which this connection is a member. */
  readonly topic?: Topic;
  /** `status`, `name`, `avatar_url` update the member, other keys merge into `metadata`; null deletes. */
  readonly data: JsonObject;
  /** Chosen by the client, echoed in the answer to this frame. */
  readonly ref?: string;
}

/** Keepalive. H-048. */
export interface PingFrame {
  readonly type: 'ping';
  /** Chosen by the client, echoed in the answer to this frame. */
  readonly ref?: string;
}

/** Every frame that a client may send on a WebSocket. */
export type ClientFrame =
  | AuthFrame
  | SubscribeFrame
  | UnsubscribeFrame
  | PublishFrame
  | PresenceUpdateFrame
  | PingFrame;

/** Authentication succeeded. Without `version`, the peer implements only HIP-56. */
export interface AuthOkFrame {
  readonly type: 'auth.ok';
  /** Identifies the connection. */
  readonly client_id: string;
  /** Identity in the token. */
  readonly user_id?: string;
  /** Protocol version of the server. */
  readonly version?: number;
  /** Features of the server beyond HIP-56: `ref`, `ack`, `seq`, `idempotency`, `batch`, `resume`, `meta`. */
  readonly features?: readonly string[];
  /** When the token expires. */
  readonly expires_at?: Timestamp;
  /** Time of the server, in Unix milliseconds. */
  readonly server_time?: Timestamp;
  readonly limits?: Limits;
  /** Id of the node that assigned the positions. They are not valid on other nodes: a client that changes the node reports a gap of unknown size. Absent if positions are valid on every node. */
  readonly node?: string;
  /** Chosen by the client, echoed in the answer to this frame. */
  readonly ref?: string;
}

/** Authentication failed. H-041. */
export interface AuthErrorFrame {
  readonly type: 'auth.error';
  readonly code: ErrorCode;
  /** Explanation of the error. */
  readonly message: string;
  /** How to fix it. */
  readonly remedy?: string;
  /** Earliest time to try again, milliseconds. */
  readonly retry_after_ms?: number;
  /** Chosen by the client, echoed in the answer to this frame. */
  readonly ref?: string;
}

/** The token expires soon; answer with `auth`. H-153. */
export interface AuthExpiringFrame {
  readonly type: 'auth.expiring';
  /** When the token expires. */
  readonly expires_at?: Timestamp;
  /** Milliseconds left. */
  readonly expires_in?: number;
}

/** Answers `subscribe`. H-042, H-103. */
export interface SubscribedFrame {
  readonly type: 'subscribed';
  /** Patterns granted. */
  readonly topics: readonly string[];
  /** Replayed messages, oldest first. */
  readonly history?: readonly Envelope[];
  /** Newest position of each matching topic when the subscription began. A topic without messages that is subscribed to by name is included, with the position before its first message. */
  readonly positions?: Readonly<Record<string, Seq>>;
  /** Server time when the subscription began. */
  readonly timestamp?: Timestamp;
  /** Topics whose history no longer reaches back to the requested position. */
  readonly truncated?: readonly Topic[];
  /** Topics whose log was reset after the requested position, during the replay, or, if a stream resumes, after its last event. A stream that resumes on another node of a mesh also gets its patterns. */
  readonly reset?: readonly string[];
  /** Rejected patterns. */
  readonly denied?: readonly Denial[];
  /** Further `subscribed` frames of the same `ref` follow with the rest of the history. */
  readonly more?: boolean;
  /** Chosen by the client, echoed in the answer to this frame. */
  readonly ref?: string;
}

/** Answers an `unsubscribe` with a `ref`. */
export interface UnsubscribedFrame {
  readonly type: 'unsubscribed';
  /** Patterns ended. */
  readonly topics: readonly string[];
  /** Chosen by the client, echoed in the answer to this frame. */
  readonly ref?: string;
}

/** A published message. H-044. */
export interface MessageFrame {
  readonly type: 'message';
  readonly message: Envelope;
}

/** Answers a `publish` with a `ref`. */
export interface PublishedFrame {
  readonly type: 'published';
  /** Id of the message. */
  readonly id?: MessageId;
  /** When the server accepted it, in Unix milliseconds. */
  readonly timestamp?: Timestamp;
  /** Position in the log of its topic. Absent with `ttl` 0. */
  readonly seq?: Seq;
  /** The id was already published; the server did not send the message again. */
  readonly duplicate?: boolean;
  /** One per item, for a batch. */
  readonly results?: readonly PublishResult[];
  /** Chosen by the client, echoed in the answer to this frame. */
  readonly ref?: string;
}

/** All members of a topic. H-049. */
export interface PresenceSnapshotFrame {
  readonly type: 'presence.snapshot';
  /** The topic, without wildcards. */
  readonly topic: Topic;
  /** All members, including the receiver. */
  readonly members: readonly PresenceMember[];
}

/** Answers `ping`. H-048. */
export interface PongFrame {
  readonly type: 'pong';
  /** Time of the server, in Unix milliseconds. */
  readonly server_time?: Timestamp;
  /** Chosen by the client, echoed in the answer to this frame. */
  readonly ref?: string;
}

/** The server rejected a frame. H-050. */
export interface ErrorFrame {
  readonly type: 'error';
  readonly code: ErrorCode;
  /** Explanation of the error. */
  readonly message: string;
  /** How to fix it. */
  readonly remedy?: string;
  /** The topic it concerns. */
  readonly topic?: string;
  /** Invalid parameter, or invalid member of the payload, as a path such as `data.items[0].sku`. */
  readonly field?: string;
  /** Earliest time to try again, milliseconds. */
  readonly retry_after_ms?: number;
  /** Chosen by the client, echoed in the answer to this frame. */
  readonly ref?: string;
}

/** Every frame that a server may send on a WebSocket. */
export type ServerFrame =
  | AuthOkFrame
  | AuthErrorFrame
  | AuthExpiringFrame
  | SubscribedFrame
  | UnsubscribedFrame
  | MessageFrame
  | PublishedFrame
  | PresenceSnapshotFrame
  | PongFrame
  | ErrorFrame;

/** Guards of each ServerFrame by its `type`; they don't check this field. */
export const SERVER_FRAMES: ReadonlyMap<unknown, Guard<ServerFrame>> = /* @__PURE__ */ new Map<
  unknown,
  Guard<ServerFrame>
>([
  [
    'auth.ok',
    /* @__PURE__ */ shape(
      'client_id user_id? version?:int features?:text[] expires_at?:count server_time?:count limits?:0 node?:ref ref?:ref',
      isLimits,
    ),
  ],
  ['auth.error', /* @__PURE__ */ shape('code message remedy? retry_after_ms?:int ref?:ref')],
  ['auth.expiring', /* @__PURE__ */ shape('expires_at?:count expires_in?:int')],
  [
    'subscribed',
    /* @__PURE__ */ shape(
      'topics:text[] history?:0[] positions?:count{} timestamp?:count truncated?:topic[] reset?:text[] denied?:1[] more?:flag ref?:ref',
      isEnvelope,
      isDenial,
    ),
  ],
  ['unsubscribed', /* @__PURE__ */ shape('topics:text[] ref?:ref')],
  ['message', /* @__PURE__ */ shape('message:0', isEnvelope)],
  [
    'published',
    /* @__PURE__ */ shape(
      'id?:id timestamp?:count seq?:count duplicate?:flag results?:0[] ref?:ref',
      isPublishResult,
    ),
  ],
  ['presence.snapshot', /* @__PURE__ */ shape('topic:topic members:0[]', isPresenceMember)],
  ['pong', /* @__PURE__ */ shape('server_time?:count ref?:ref')],
  [
    'error',
    /* @__PURE__ */ shape('code message remedy? topic? field? retry_after_ms?:int ref?:ref'),
  ],
]);

/** Whether a value read from JSON is a ServerFrame. */
export function isServerFrame(value: unknown): value is ServerFrame {
  return isObject(value) && (SERVER_FRAMES.get(value['type'])?.(value) ?? false);
}

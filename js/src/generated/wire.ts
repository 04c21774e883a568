// Generated from spec/pubsub.schema.json by `make generate`; do not edit.

/** Any JSON object. */
export interface JsonObject {
  readonly [key: string]: unknown;
}

function isObject(value: unknown): value is JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function isInteger(value: unknown, least: number, most: number): value is number {
  return Number.isSafeInteger(value) && (value as number) >= least && (value as number) <= most;
}

function isText(value: unknown, least: number, most: number): value is string {
  if (typeof value !== 'string' || value.length < least) return false;
  // JSON Schema counts code points; there are never more of them than of UTF-16 units.
  return value.length <= most || [...value].length <= most;
}

function isList(
  value: unknown,
  least: number,
  most: number,
  isItem: (item: unknown) => boolean,
): boolean {
  return (
    Array.isArray(value) && value.length >= least && value.length <= most && value.every(isItem)
  );
}

function isMap(value: unknown, isItem: (item: unknown) => boolean): boolean {
  return isObject(value) && Object.values(value).every(isItem);
}

/** Name of a topic: dot-separated, no empty segment, no `*`. HIP-56 Topics, Security 8. */
export type Topic = string;

/** Whether a value read from JSON is a Topic. */
export function isTopic(value: unknown): value is Topic {
  return isText(value, 1, 255) && /^[a-zA-Z0-9_-]+(\.[a-zA-Z0-9_-]+)*$/.test(value);
}

/** Topic name in which whole segments may be `*` (exactly one segment) or `**` (one or more). HIP-56 Wildcard Subscriptions. */
export type TopicPattern = string;

/** Whether a value read from JSON is a TopicPattern. */
export function isTopicPattern(value: unknown): value is TopicPattern {
  return isText(value, 1, 255) && /^([a-zA-Z0-9_-]+|\*\*?)(\.([a-zA-Z0-9_-]+|\*\*?))*$/.test(value);
}

/** Unix epoch, milliseconds. */
export type Timestamp = number;

/** Whether a value read from JSON is a Timestamp. */
export function isTimestamp(value: unknown): value is Timestamp {
  return isInteger(value, 0, 9007199254740991);
}

/** Position of a message in the log of its topic: contiguous, +1 a message; a log that begins anew starts at its Unix milliseconds x 1000. At most 2^53-1. */
export type Seq = number;

/** Whether a value read from JSON is a Seq. */
export function isSeq(value: unknown): value is Seq {
  return isInteger(value, 0, 9007199254740991);
}

/** Unique message id, recommended `msg_` and a ULID. */
export type MessageId = string;

/** Whether a value read from JSON is a MessageId. */
export function isMessageId(value: unknown): value is MessageId {
  return isText(value, 1, 128);
}

/** What went wrong. Open: later servers may send further codes; `spec/errors.yaml` has meaning and remedy. */
export type ErrorCode =
  | 'invalid_frame'
  | 'invalid_topic'
  | 'invalid_payload'
  | 'invalid_option'
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

/** Whether a value read from JSON is an ErrorCode. */
export function isErrorCode(value: unknown): value is ErrorCode {
  return typeof value === 'string';
}

/** Publisher identity, stamped by the server. */
export interface Sender {
  /** `service`, `user`, `agent` or `admin`. */
  readonly type: string;
  /** Identifier of the publisher. */
  readonly id: string;
}

/** Whether a value read from JSON is a Sender. */
export function isSender(value: unknown): value is Sender {
  return isObject(value) && typeof value['type'] === 'string' && typeof value['id'] === 'string';
}

/** A published message as every transport delivers it. HIP-56 Message Format. */
export interface Envelope {
  readonly id: MessageId;
  readonly topic: Topic;
  /** Application-defined message type. */
  readonly type: string;
  /** Payload: an object by HIP-56; any JSON value is passed through. */
  readonly data: unknown;
  readonly sender?: Sender;
  readonly timestamp: Timestamp;
  /** Retention in history, seconds; 0 keeps nothing. */
  readonly ttl?: number;
  readonly seq?: Seq;
  /** Passed through untouched, for example a W3C `traceparent`. */
  readonly meta?: JsonObject;
}

/** Whether a value read from JSON is an Envelope. */
export function isEnvelope(value: unknown): value is Envelope {
  return (
    isObject(value) &&
    isMessageId(value['id']) &&
    isTopic(value['topic']) &&
    typeof value['type'] === 'string' &&
    'data' in value &&
    (value['sender'] === undefined || isSender(value['sender'])) &&
    isTimestamp(value['timestamp']) &&
    (value['ttl'] === undefined || isInteger(value['ttl'], 0, Infinity)) &&
    (value['seq'] === undefined || isSeq(value['seq'])) &&
    (value['meta'] === undefined || isObject(value['meta']))
  );
}

/** What a publisher supplies of a message; the server adds the rest. */
export interface Publication {
  readonly topic: Topic;
  /** Application-defined message type. */
  readonly type?: string;
  /** Payload, any JSON value, at most 262,144 bytes of JSON. */
  readonly data: unknown;
  /** Retention in history, seconds; 0 keeps nothing. */
  readonly ttl?: number;
  readonly id?: MessageId;
  /** Passed through untouched. */
  readonly meta?: JsonObject;
}

/** Whether a value read from JSON is a Publication. */
export function isPublication(value: unknown): value is Publication {
  return (
    isObject(value) &&
    isTopic(value['topic']) &&
    (value['type'] === undefined || isText(value['type'], 1, 128)) &&
    'data' in value &&
    (value['ttl'] === undefined || isInteger(value['ttl'], 0, Infinity)) &&
    (value['id'] === undefined || isMessageId(value['id'])) &&
    (value['meta'] === undefined || isObject(value['meta']))
  );
}

/** One connected client of a topic. HIP-56 Presence. */
export interface PresenceMember {
  /** Identifies the connection, kept over a resume. */
  readonly client_id: string;
  /** Identifies the person or service. */
  readonly user_id: string;
  /** Display name. */
  readonly name: string;
  /** Picture. */
  readonly avatar_url?: string;
  /** For example `online`, `typing`, `idle`. */
  readonly status?: string;
  /** Application keys. */
  readonly metadata?: JsonObject;
  readonly joined_at: Timestamp;
  readonly last_seen: Timestamp;
}

/** Whether a value read from JSON is a PresenceMember. */
export function isPresenceMember(value: unknown): value is PresenceMember {
  return (
    isObject(value) &&
    typeof value['client_id'] === 'string' &&
    typeof value['user_id'] === 'string' &&
    typeof value['name'] === 'string' &&
    (value['avatar_url'] === undefined || typeof value['avatar_url'] === 'string') &&
    (value['status'] === undefined || typeof value['status'] === 'string') &&
    (value['metadata'] === undefined || isObject(value['metadata'])) &&
    isTimestamp(value['joined_at']) &&
    isTimestamp(value['last_seen'])
  );
}

/** Which client speaks. */
export interface ClientInfo {
  /** Library or program. */
  readonly name: string;
  /** Its version. */
  readonly version?: string;
  /** Its language, for example `python`. */
  readonly lang?: string;
}

/** Whether a value read from JSON is a ClientInfo. */
export function isClientInfo(value: unknown): value is ClientInfo {
  return (
    isObject(value) &&
    typeof value['name'] === 'string' &&
    (value['version'] === undefined || typeof value['version'] === 'string') &&
    (value['lang'] === undefined || typeof value['lang'] === 'string')
  );
}

/** What the server allows this connection. */
export interface Limits {
  /** Publishes a second. */
  readonly publish_rate?: number;
  /** Bytes of JSON-encoded `data`. */
  readonly max_payload?: number;
  /** Messages kept a topic. */
  readonly history_max?: number;
  /** Patterns a connection. */
  readonly max_subscriptions?: number;
  /** Messages a batch. */
  readonly max_batch?: number;
}

/** Whether a value read from JSON is a Limits. */
export function isLimits(value: unknown): value is Limits {
  return (
    isObject(value) &&
    (value['publish_rate'] === undefined || isInteger(value['publish_rate'], 0, Infinity)) &&
    (value['max_payload'] === undefined || isInteger(value['max_payload'], 0, Infinity)) &&
    (value['history_max'] === undefined || isInteger(value['history_max'], 0, Infinity)) &&
    (value['max_subscriptions'] === undefined ||
      isInteger(value['max_subscriptions'], 0, Infinity)) &&
    (value['max_batch'] === undefined || isInteger(value['max_batch'], 0, Infinity))
  );
}

/** A pattern of a subscribe frame that was refused. */
export interface Denial {
  /** The pattern as sent. */
  readonly topic: string;
  readonly code: ErrorCode;
  /** What went wrong, in words. */
  readonly message?: string;
}

/** Whether a value read from JSON is a Denial. */
export function isDenial(value: unknown): value is Denial {
  return (
    isObject(value) &&
    typeof value['topic'] === 'string' &&
    isErrorCode(value['code']) &&
    (value['message'] === undefined || typeof value['message'] === 'string')
  );
}

/** Why one item was refused. */
export interface ErrorInfo {
  readonly code: ErrorCode;
  /** What went wrong, in words. */
  readonly message: string;
  /** What to do about it. */
  readonly remedy?: string;
  /** Earliest time to try again, milliseconds. */
  readonly retry_after_ms?: number;
  /** The topic it concerns. */
  readonly topic?: string;
}

/** Whether a value read from JSON is an ErrorInfo. */
export function isErrorInfo(value: unknown): value is ErrorInfo {
  return (
    isObject(value) &&
    isErrorCode(value['code']) &&
    typeof value['message'] === 'string' &&
    (value['remedy'] === undefined || typeof value['remedy'] === 'string') &&
    (value['retry_after_ms'] === undefined || isInteger(value['retry_after_ms'], 0, Infinity)) &&
    (value['topic'] === undefined || typeof value['topic'] === 'string')
  );
}

/** What became of one publication of a batch: either an error or an id. */
export interface PublishResult {
  readonly id?: MessageId;
  readonly timestamp?: Timestamp;
  readonly seq?: Seq;
  /** The id was published before; nothing was sent again. */
  readonly duplicate?: boolean;
  readonly error?: ErrorInfo;
}

/** Whether a value read from JSON is a PublishResult. */
export function isPublishResult(value: unknown): value is PublishResult {
  return (
    isObject(value) &&
    (value['id'] === undefined || isMessageId(value['id'])) &&
    (value['timestamp'] === undefined || isTimestamp(value['timestamp'])) &&
    (value['seq'] === undefined || isSeq(value['seq'])) &&
    (value['duplicate'] === undefined || typeof value['duplicate'] === 'boolean') &&
    (value['error'] === undefined || isErrorInfo(value['error']))
  );
}

/** Presents a bearer token or API key, first or again. HIP-56 WebSocket, Security 10. */
export interface AuthFrame {
  readonly type: 'auth';
  /** Token or API key, with or without `Bearer `. */
  readonly token: string;
  /** Protocol version of the client. */
  readonly version?: number;
  readonly client?: ClientInfo;
  /** The client id of the connection this one resumes, for presence. */
  readonly client_id?: string;
  /** Chosen by the client, echoed in the answer to this frame. */
  readonly ref?: string;
}

/** Whether a value read from JSON is an AuthFrame. */
export function isAuthFrame(value: unknown): value is AuthFrame {
  return (
    isObject(value) &&
    value['type'] === 'auth' &&
    isText(value['token'], 1, 16384) &&
    (value['version'] === undefined || isInteger(value['version'], 0, Infinity)) &&
    (value['client'] === undefined || isClientInfo(value['client'])) &&
    (value['client_id'] === undefined || isText(value['client_id'], 0, 64)) &&
    (value['ref'] === undefined || isText(value['ref'], 1, 64))
  );
}

/** Subscribes, optionally replaying retained messages. H-042, H-043. */
export interface SubscribeFrame {
  readonly type: 'subscribe';
  /** Patterns to receive. */
  readonly topics: readonly TopicPattern[];
  /** Replay what is newer than this, where `after` does not say more. */
  readonly since?: Timestamp;
  /** Replay what follows these positions, by concrete topic. */
  readonly after?: Readonly<Record<string, Seq>>;
  /** Replay at most this many of the newest messages a topic. */
  readonly history?: number;
  /** Whether to receive presence of these topics; default true on a socket. */
  readonly presence?: boolean;
  /** Chosen by the client, echoed in the answer to this frame. */
  readonly ref?: string;
}

/** Whether a value read from JSON is a SubscribeFrame. */
export function isSubscribeFrame(value: unknown): value is SubscribeFrame {
  return (
    isObject(value) &&
    value['type'] === 'subscribe' &&
    isList(value['topics'], 1, 1000, isTopicPattern) &&
    (value['since'] === undefined || isTimestamp(value['since'])) &&
    (value['after'] === undefined || isMap(value['after'], isSeq)) &&
    (value['history'] === undefined || isInteger(value['history'], 0, 10000)) &&
    (value['presence'] === undefined || typeof value['presence'] === 'boolean') &&
    (value['ref'] === undefined || isText(value['ref'], 1, 64))
  );
}

/** Ends subscriptions, matched by exactly these patterns. H-046. */
export interface UnsubscribeFrame {
  readonly type: 'unsubscribe';
  /** Patterns to end. */
  readonly topics: readonly TopicPattern[];
  /** Chosen by the client, echoed in the answer to this frame. */
  readonly ref?: string;
}

/** Whether a value read from JSON is an UnsubscribeFrame. */
export function isUnsubscribeFrame(value: unknown): value is UnsubscribeFrame {
  return (
    isObject(value) &&
    value['type'] === 'unsubscribe' &&
    isList(value['topics'], 1, 1000, isTopicPattern) &&
    (value['ref'] === undefined || isText(value['ref'], 1, 64))
  );
}

/** Publishes: canonically `message` or `messages`; the flat form of HIP-56 (`topic`, `data`, `message_type`) is accepted too. H-045. */
export interface PublishFrame {
  readonly type: 'publish';
  readonly message?: Publication;
  /** A batch with one answer an item. */
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

/** Whether a value read from JSON is a PublishFrame. */
export function isPublishFrame(value: unknown): value is PublishFrame {
  return (
    isObject(value) &&
    value['type'] === 'publish' &&
    (value['message'] === undefined || isPublication(value['message'])) &&
    (value['messages'] === undefined || isList(value['messages'], 1, 1000, isPublication)) &&
    (value['topic'] === undefined || typeof value['topic'] === 'string') &&
    (value['message_type'] === undefined || typeof value['message_type'] === 'string') &&
    (value['ttl'] === undefined || isInteger(value['ttl'], 0, Infinity)) &&
    (value['id'] === undefined || typeof value['id'] === 'string') &&
    (value['ref'] === undefined || isText(value['ref'], 1, 64))
  );
}

/** Updates the sender's presence on one topic or on every topic it is a member of. H-047. */
export interface PresenceUpdateFrame {
  readonly type: 'presence.update';
  readonly topic?: Topic;
  /** `status`, `name`, `avatar_url` update the member, other keys merge into `metadata`; null deletes. */
  readonly data: JsonObject;
  /** Chosen by the client, echoed in the answer to this frame. */
  readonly ref?: string;
}

/** Whether a value read from JSON is a PresenceUpdateFrame. */
export function isPresenceUpdateFrame(value: unknown): value is PresenceUpdateFrame {
  return (
    isObject(value) &&
    value['type'] === 'presence.update' &&
    (value['topic'] === undefined || isTopic(value['topic'])) &&
    isObject(value['data']) &&
    (value['ref'] === undefined || isText(value['ref'], 1, 64))
  );
}

/** Keepalive. H-048. */
export interface PingFrame {
  readonly type: 'ping';
  /** Chosen by the client, echoed in the answer to this frame. */
  readonly ref?: string;
}

/** Whether a value read from JSON is a PingFrame. */
export function isPingFrame(value: unknown): value is PingFrame {
  return (
    isObject(value) &&
    value['type'] === 'ping' &&
    (value['ref'] === undefined || isText(value['ref'], 1, 64))
  );
}

/** Everything a client may send on a socket. */
export type ClientFrame =
  | AuthFrame
  | SubscribeFrame
  | UnsubscribeFrame
  | PublishFrame
  | PresenceUpdateFrame
  | PingFrame;

const clientFrames = new Map<unknown, (value: unknown) => boolean>([
  ['auth', isAuthFrame],
  ['subscribe', isSubscribeFrame],
  ['unsubscribe', isUnsubscribeFrame],
  ['publish', isPublishFrame],
  ['presence.update', isPresenceUpdateFrame],
  ['ping', isPingFrame],
]);

/** Whether a value read from JSON is a ClientFrame. */
export function isClientFrame(value: unknown): value is ClientFrame {
  return isObject(value) && (clientFrames.get(value['type'])?.(value) ?? false);
}

/** Authentication succeeded; without `version` the peer knows HIP-56 and nothing more. */
export interface AuthOkFrame {
  readonly type: 'auth.ok';
  /** Identifies the connection. */
  readonly client_id: string;
  /** Whom the token names. */
  readonly user_id?: string;
  /** Protocol version of the server. */
  readonly version?: number;
  /** What the server can do beyond HIP-56: `ref`, `ack`, `seq`, `idempotency`, `batch`, `resume`, `meta`. */
  readonly features?: readonly string[];
  /** When the token ends. */
  readonly expires_at?: Timestamp;
  readonly server_time?: Timestamp;
  readonly limits?: Limits;
  /** Chosen by the client, echoed in the answer to this frame. */
  readonly ref?: string;
}

/** Whether a value read from JSON is an AuthOkFrame. */
export function isAuthOkFrame(value: unknown): value is AuthOkFrame {
  return (
    isObject(value) &&
    value['type'] === 'auth.ok' &&
    typeof value['client_id'] === 'string' &&
    (value['user_id'] === undefined || typeof value['user_id'] === 'string') &&
    (value['version'] === undefined || isInteger(value['version'], 0, Infinity)) &&
    (value['features'] === undefined ||
      isList(value['features'], 0, Infinity, (item) => typeof item === 'string')) &&
    (value['expires_at'] === undefined || isTimestamp(value['expires_at'])) &&
    (value['server_time'] === undefined || isTimestamp(value['server_time'])) &&
    (value['limits'] === undefined || isLimits(value['limits'])) &&
    (value['ref'] === undefined || isText(value['ref'], 1, 64))
  );
}

/** Authentication failed. H-041. */
export interface AuthErrorFrame {
  readonly type: 'auth.error';
  readonly code: ErrorCode;
  /** What went wrong, in words. */
  readonly message: string;
  /** What to do about it. */
  readonly remedy?: string;
  /** Earliest time to try again, milliseconds. */
  readonly retry_after_ms?: number;
  /** Chosen by the client, echoed in the answer to this frame. */
  readonly ref?: string;
}

/** Whether a value read from JSON is an AuthErrorFrame. */
export function isAuthErrorFrame(value: unknown): value is AuthErrorFrame {
  return (
    isObject(value) &&
    value['type'] === 'auth.error' &&
    isErrorCode(value['code']) &&
    typeof value['message'] === 'string' &&
    (value['remedy'] === undefined || typeof value['remedy'] === 'string') &&
    (value['retry_after_ms'] === undefined || isInteger(value['retry_after_ms'], 0, Infinity)) &&
    (value['ref'] === undefined || isText(value['ref'], 1, 64))
  );
}

/** The token ends soon; answer with `auth`. H-153. */
export interface AuthExpiringFrame {
  readonly type: 'auth.expiring';
  /** When the token ends. */
  readonly expires_at?: Timestamp;
  /** Milliseconds left. */
  readonly expires_in?: number;
}

/** Whether a value read from JSON is an AuthExpiringFrame. */
export function isAuthExpiringFrame(value: unknown): value is AuthExpiringFrame {
  return (
    isObject(value) &&
    value['type'] === 'auth.expiring' &&
    (value['expires_at'] === undefined || isTimestamp(value['expires_at'])) &&
    (value['expires_in'] === undefined || isInteger(value['expires_in'], 0, Infinity))
  );
}

/** Answers `subscribe`. H-042, H-103. */
export interface SubscribedFrame {
  readonly type: 'subscribed';
  /** Patterns granted. */
  readonly topics: readonly string[];
  /** Replayed messages, oldest first. */
  readonly history?: readonly Envelope[];
  /** Newest position of each matching concrete topic when the subscription began. */
  readonly positions?: Readonly<Record<string, Seq>>;
  /** Server time when the subscription began. */
  readonly timestamp?: Timestamp;
  /** Topics whose log does not reach back to what was asked. */
  readonly truncated?: readonly Topic[];
  /** Topics whose log began anew after the position asked. */
  readonly reset?: readonly Topic[];
  /** Patterns refused. */
  readonly denied?: readonly Denial[];
  /** Further `subscribed` frames of the same `ref` follow with the rest of the history. */
  readonly more?: boolean;
  /** Chosen by the client, echoed in the answer to this frame. */
  readonly ref?: string;
}

/** Whether a value read from JSON is a SubscribedFrame. */
export function isSubscribedFrame(value: unknown): value is SubscribedFrame {
  return (
    isObject(value) &&
    value['type'] === 'subscribed' &&
    isList(value['topics'], 0, Infinity, (item) => typeof item === 'string') &&
    (value['history'] === undefined || isList(value['history'], 0, Infinity, isEnvelope)) &&
    (value['positions'] === undefined || isMap(value['positions'], isSeq)) &&
    (value['timestamp'] === undefined || isTimestamp(value['timestamp'])) &&
    (value['truncated'] === undefined || isList(value['truncated'], 0, Infinity, isTopic)) &&
    (value['reset'] === undefined || isList(value['reset'], 0, Infinity, isTopic)) &&
    (value['denied'] === undefined || isList(value['denied'], 0, Infinity, isDenial)) &&
    (value['more'] === undefined || typeof value['more'] === 'boolean') &&
    (value['ref'] === undefined || isText(value['ref'], 1, 64))
  );
}

/** Answers `unsubscribe` where it carried a `ref`. */
export interface UnsubscribedFrame {
  readonly type: 'unsubscribed';
  /** Patterns ended. */
  readonly topics: readonly string[];
  /** Chosen by the client, echoed in the answer to this frame. */
  readonly ref?: string;
}

/** Whether a value read from JSON is an UnsubscribedFrame. */
export function isUnsubscribedFrame(value: unknown): value is UnsubscribedFrame {
  return (
    isObject(value) &&
    value['type'] === 'unsubscribed' &&
    isList(value['topics'], 0, Infinity, (item) => typeof item === 'string') &&
    (value['ref'] === undefined || isText(value['ref'], 1, 64))
  );
}

/** A published message. H-044. */
export interface MessageFrame {
  readonly type: 'message';
  readonly message: Envelope;
}

/** Whether a value read from JSON is a MessageFrame. */
export function isMessageFrame(value: unknown): value is MessageFrame {
  return isObject(value) && value['type'] === 'message' && isEnvelope(value['message']);
}

/** Answers `publish` where it carried a `ref`. */
export interface PublishedFrame {
  readonly type: 'published';
  readonly id?: MessageId;
  readonly timestamp?: Timestamp;
  readonly seq?: Seq;
  /** The id was published before; nothing was sent again. */
  readonly duplicate?: boolean;
  /** One an item, for a batch. */
  readonly results?: readonly PublishResult[];
  /** Chosen by the client, echoed in the answer to this frame. */
  readonly ref?: string;
}

/** Whether a value read from JSON is a PublishedFrame. */
export function isPublishedFrame(value: unknown): value is PublishedFrame {
  return (
    isObject(value) &&
    value['type'] === 'published' &&
    (value['id'] === undefined || isMessageId(value['id'])) &&
    (value['timestamp'] === undefined || isTimestamp(value['timestamp'])) &&
    (value['seq'] === undefined || isSeq(value['seq'])) &&
    (value['duplicate'] === undefined || typeof value['duplicate'] === 'boolean') &&
    (value['results'] === undefined || isList(value['results'], 0, Infinity, isPublishResult)) &&
    (value['ref'] === undefined || isText(value['ref'], 1, 64))
  );
}

/** Everybody present on a topic. H-049. */
export interface PresenceSnapshotFrame {
  readonly type: 'presence.snapshot';
  readonly topic: Topic;
  /** All members, the receiver included. */
  readonly members: readonly PresenceMember[];
}

/** Whether a value read from JSON is a PresenceSnapshotFrame. */
export function isPresenceSnapshotFrame(value: unknown): value is PresenceSnapshotFrame {
  return (
    isObject(value) &&
    value['type'] === 'presence.snapshot' &&
    isTopic(value['topic']) &&
    isList(value['members'], 0, Infinity, isPresenceMember)
  );
}

/** Answers `ping`. H-048. */
export interface PongFrame {
  readonly type: 'pong';
  readonly server_time?: Timestamp;
  /** Chosen by the client, echoed in the answer to this frame. */
  readonly ref?: string;
}

/** Whether a value read from JSON is a PongFrame. */
export function isPongFrame(value: unknown): value is PongFrame {
  return (
    isObject(value) &&
    value['type'] === 'pong' &&
    (value['server_time'] === undefined || isTimestamp(value['server_time'])) &&
    (value['ref'] === undefined || isText(value['ref'], 1, 64))
  );
}

/** Something was refused. H-050. */
export interface ErrorFrame {
  readonly type: 'error';
  readonly code: ErrorCode;
  /** What went wrong, in words. */
  readonly message: string;
  /** What to do about it. */
  readonly remedy?: string;
  /** The topic it concerns. */
  readonly topic?: string;
  /** Earliest time to try again, milliseconds. */
  readonly retry_after_ms?: number;
  /** Chosen by the client, echoed in the answer to this frame. */
  readonly ref?: string;
}

/** Whether a value read from JSON is an ErrorFrame. */
export function isErrorFrame(value: unknown): value is ErrorFrame {
  return (
    isObject(value) &&
    value['type'] === 'error' &&
    isErrorCode(value['code']) &&
    typeof value['message'] === 'string' &&
    (value['remedy'] === undefined || typeof value['remedy'] === 'string') &&
    (value['topic'] === undefined || typeof value['topic'] === 'string') &&
    (value['retry_after_ms'] === undefined || isInteger(value['retry_after_ms'], 0, Infinity)) &&
    (value['ref'] === undefined || isText(value['ref'], 1, 64))
  );
}

/** Everything a server may send on a socket. */
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

const serverFrames = new Map<unknown, (value: unknown) => boolean>([
  ['auth.ok', isAuthOkFrame],
  ['auth.error', isAuthErrorFrame],
  ['auth.expiring', isAuthExpiringFrame],
  ['subscribed', isSubscribedFrame],
  ['unsubscribed', isUnsubscribedFrame],
  ['message', isMessageFrame],
  ['published', isPublishedFrame],
  ['presence.snapshot', isPresenceSnapshotFrame],
  ['pong', isPongFrame],
  ['error', isErrorFrame],
]);

/** Whether a value read from JSON is a ServerFrame. */
export function isServerFrame(value: unknown): value is ServerFrame {
  return isObject(value) && (serverFrames.get(value['type'])?.(value) ?? false);
}

/** Body of `POST /v1/topics/{topic}/messages`. H-070. */
export interface PublishRequest {
  /** Application-defined message type. */
  readonly type?: string;
  /** Payload, any JSON value, at most 262,144 bytes of JSON. */
  readonly data: unknown;
  /** Retention in history, seconds; 0 keeps nothing. */
  readonly ttl?: number;
  readonly id?: MessageId;
  /** Passed through untouched. */
  readonly meta?: JsonObject;
}

/** Whether a value read from JSON is a PublishRequest. */
export function isPublishRequest(value: unknown): value is PublishRequest {
  return (
    isObject(value) &&
    (value['type'] === undefined || isText(value['type'], 1, 128)) &&
    'data' in value &&
    (value['ttl'] === undefined || isInteger(value['ttl'], 0, Infinity)) &&
    (value['id'] === undefined || isMessageId(value['id'])) &&
    (value['meta'] === undefined || isObject(value['meta']))
  );
}

/** Answer to a publish. */
export interface PublishResponse {
  readonly id: MessageId;
  readonly timestamp: Timestamp;
  readonly seq?: Seq;
  /** The id was published before; nothing was sent again. */
  readonly duplicate?: boolean;
}

/** Whether a value read from JSON is a PublishResponse. */
export function isPublishResponse(value: unknown): value is PublishResponse {
  return (
    isObject(value) &&
    isMessageId(value['id']) &&
    isTimestamp(value['timestamp']) &&
    (value['seq'] === undefined || isSeq(value['seq'])) &&
    (value['duplicate'] === undefined || typeof value['duplicate'] === 'boolean')
  );
}

/** Body of `POST /v1/messages:batch`. */
export interface BatchRequest {
  /** Published in order; each has its own result. */
  readonly messages: readonly Publication[];
}

/** Whether a value read from JSON is a BatchRequest. */
export function isBatchRequest(value: unknown): value is BatchRequest {
  return isObject(value) && isList(value['messages'], 1, 1000, isPublication);
}

/** Answer to a batch, one result an item in the same order. */
export interface BatchResponse {
  /** One an item. */
  readonly results: readonly PublishResult[];
}

/** Whether a value read from JSON is a BatchResponse. */
export function isBatchResponse(value: unknown): value is BatchResponse {
  return isObject(value) && isList(value['results'], 0, Infinity, isPublishResult);
}

/** Retained messages of one topic, oldest first inside the page. H-072. */
export interface HistoryPage {
  /** The page. */
  readonly messages: readonly Envelope[];
  /** Older messages (with `after`: newer ones) remain. */
  readonly has_more: boolean;
  /** Newest position of the topic. */
  readonly position?: Seq;
  /** The log does not reach back to `after`. */
  readonly truncated?: boolean;
  /** The log began anew after the position in `after`. */
  readonly reset?: boolean;
}

/** Whether a value read from JSON is a HistoryPage. */
export function isHistoryPage(value: unknown): value is HistoryPage {
  return (
    isObject(value) &&
    isList(value['messages'], 0, Infinity, isEnvelope) &&
    typeof value['has_more'] === 'boolean' &&
    (value['position'] === undefined || isSeq(value['position'])) &&
    (value['truncated'] === undefined || typeof value['truncated'] === 'boolean') &&
    (value['reset'] === undefined || typeof value['reset'] === 'boolean')
  );
}

/** Everybody present on a topic. H-073. */
export interface PresenceList {
  /** All members. */
  readonly members: readonly PresenceMember[];
}

/** Whether a value read from JSON is a PresenceList. */
export function isPresenceList(value: unknown): value is PresenceList {
  return isObject(value) && isList(value['members'], 0, Infinity, isPresenceMember);
}

/** One active topic. */
export interface TopicInfo {
  readonly topic: Topic;
  /** Connections that receive it. */
  readonly subscribers: number;
  /** Messages retained. */
  readonly messages: number;
  /** Newest position. */
  readonly position?: Seq;
  /** When the newest message was published. */
  readonly last_message_at?: Timestamp;
}

/** Whether a value read from JSON is a TopicInfo. */
export function isTopicInfo(value: unknown): value is TopicInfo {
  return (
    isObject(value) &&
    isTopic(value['topic']) &&
    isInteger(value['subscribers'], 0, Infinity) &&
    isInteger(value['messages'], 0, Infinity) &&
    (value['position'] === undefined || isSeq(value['position'])) &&
    (value['last_message_at'] === undefined || isTimestamp(value['last_message_at']))
  );
}

/** Active topics, by name. H-074. */
export interface TopicList {
  /** The topics. */
  readonly topics: readonly TopicInfo[];
  /** Further topics match; narrow `prefix` or raise `limit`. */
  readonly has_more?: boolean;
}

/** Whether a value read from JSON is a TopicList. */
export function isTopicList(value: unknown): value is TopicList {
  return (
    isObject(value) &&
    isList(value['topics'], 0, Infinity, isTopicInfo) &&
    (value['has_more'] === undefined || typeof value['has_more'] === 'boolean')
  );
}

/** Body of `POST /v1/subscribe`: everything the event stream shall carry. */
export interface SubscribeRequest {
  /** Each is answered by its own `subscribed` event. */
  readonly subscriptions: readonly StreamSubscription[];
  /** Whether presence events are sent; default false. */
  readonly presence?: boolean;
}

/** Whether a value read from JSON is a SubscribeRequest. */
export function isSubscribeRequest(value: unknown): value is SubscribeRequest {
  return (
    isObject(value) &&
    isList(value['subscriptions'], 1, 1000, isStreamSubscription) &&
    (value['presence'] === undefined || typeof value['presence'] === 'boolean')
  );
}

/** One subscription of an event stream, with the meaning of a `subscribe` frame. */
export interface StreamSubscription {
  /** Patterns to receive. */
  readonly topics: readonly TopicPattern[];
  /** Replay what is newer than this. */
  readonly since?: Timestamp;
  /** Replay what follows these positions. */
  readonly after?: Readonly<Record<string, Seq>>;
  /** Replay at most this many of the newest messages a topic. */
  readonly history?: number;
  /** Chosen by the client, echoed in the answer to this frame. */
  readonly ref?: string;
}

/** Whether a value read from JSON is a StreamSubscription. */
export function isStreamSubscription(value: unknown): value is StreamSubscription {
  return (
    isObject(value) &&
    isList(value['topics'], 1, 1000, isTopicPattern) &&
    (value['since'] === undefined || isTimestamp(value['since'])) &&
    (value['after'] === undefined || isMap(value['after'], isSeq)) &&
    (value['history'] === undefined || isInteger(value['history'], 0, 10000)) &&
    (value['ref'] === undefined || isText(value['ref'], 1, 64))
  );
}

/** Answer of `GET /v1/session`: what `auth.ok` says on a socket. */
export interface SessionInfo {
  /** Identifies the caller. */
  readonly client_id: string;
  /** Whom the token names. */
  readonly user_id?: string;
  /** Protocol version of the server. */
  readonly version: number;
  /** What the server can do beyond HIP-56. */
  readonly features?: readonly string[];
  /** When the token ends. */
  readonly expires_at?: Timestamp;
  readonly server_time?: Timestamp;
  readonly limits?: Limits;
}

/** Whether a value read from JSON is a SessionInfo. */
export function isSessionInfo(value: unknown): value is SessionInfo {
  return (
    isObject(value) &&
    typeof value['client_id'] === 'string' &&
    (value['user_id'] === undefined || typeof value['user_id'] === 'string') &&
    isInteger(value['version'], 0, Infinity) &&
    (value['features'] === undefined ||
      isList(value['features'], 0, Infinity, (item) => typeof item === 'string')) &&
    (value['expires_at'] === undefined || isTimestamp(value['expires_at'])) &&
    (value['server_time'] === undefined || isTimestamp(value['server_time'])) &&
    (value['limits'] === undefined || isLimits(value['limits']))
  );
}

/** Answer of `GET /v1/access`: what the caller may do with a topic or pattern, and why. */
export interface AccessInfo {
  /** As asked. */
  readonly topic: string;
  /** Whether the caller may subscribe to it. */
  readonly subscribe: boolean;
  /** Whether the caller may publish to it. */
  readonly publish: boolean;
  /** The access rule that decides, if one does. */
  readonly rule?: string;
  /** Why, in words. */
  readonly reason: string;
}

/** Whether a value read from JSON is an AccessInfo. */
export function isAccessInfo(value: unknown): value is AccessInfo {
  return (
    isObject(value) &&
    typeof value['topic'] === 'string' &&
    typeof value['subscribe'] === 'boolean' &&
    typeof value['publish'] === 'boolean' &&
    (value['rule'] === undefined || typeof value['rule'] === 'string') &&
    typeof value['reason'] === 'string'
  );
}

/** Body of every HTTP error, `application/problem+json` (RFC 9457). */
export interface Problem {
  /** A URI reference for the kind of problem. */
  readonly type?: string;
  /** The code's meaning. */
  readonly title: string;
  /** HTTP status. */
  readonly status: number;
  readonly code: ErrorCode;
  /** What went wrong here, in words. */
  readonly detail?: string;
  /** What to do about it. */
  readonly remedy?: string;
  /** The id of this request, as in `X-Request-Id` and in the server's log. */
  readonly instance?: string;
  /** The parameter or body field at fault. */
  readonly field?: string;
  /** The topic it concerns. */
  readonly topic?: string;
  /** Earliest time to try again, milliseconds. */
  readonly retry_after_ms?: number;
}

/** Whether a value read from JSON is a Problem. */
export function isProblem(value: unknown): value is Problem {
  return (
    isObject(value) &&
    (value['type'] === undefined || typeof value['type'] === 'string') &&
    typeof value['title'] === 'string' &&
    isInteger(value['status'], 0, Infinity) &&
    isErrorCode(value['code']) &&
    (value['detail'] === undefined || typeof value['detail'] === 'string') &&
    (value['remedy'] === undefined || typeof value['remedy'] === 'string') &&
    (value['instance'] === undefined || typeof value['instance'] === 'string') &&
    (value['field'] === undefined || typeof value['field'] === 'string') &&
    (value['topic'] === undefined || typeof value['topic'] === 'string') &&
    (value['retry_after_ms'] === undefined || isInteger(value['retry_after_ms'], 0, Infinity))
  );
}

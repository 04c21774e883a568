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
  /** Retention in history, seconds; 0 keeps nothing. */
  readonly ttl?: number;
  readonly id?: MessageId;
  /** Passed through untouched. */
  readonly meta?: JsonObject;
}

/** Whether a value read from JSON is a PublishRequest. */
export const isPublishRequest: Guard<PublishRequest> = /* @__PURE__ */ shape(
  'type?:id data:any ttl?:count id?:id meta?:object',
);

/** Answer to a publish. */
export interface PublishResponse {
  readonly id: MessageId;
  readonly timestamp: Timestamp;
  readonly seq?: Seq;
  /** The id was published before; nothing was sent again. */
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

/** Answer to a batch, one result an item in the same order. */
export interface BatchResponse {
  /** One an item. */
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
  /** With `after`: a position behind it, up to the last message of the page (to `position`, where the page has none), is missing. With `since`: messages newer than that are retained no more. */
  readonly truncated?: boolean;
  /** The log began anew after the position in `after`; 0 is before every log. */
  readonly reset?: boolean;
}

/** Whether a value read from JSON is a HistoryPage. */
export const isHistoryPage: Guard<HistoryPage> = /* @__PURE__ */ shape(
  'messages:0[] has_more:flag position?:count truncated?:flag reset?:flag',
  isEnvelope,
);

/** Everybody present on a topic. H-073. */
export interface PresenceList {
  /** All members. */
  readonly members: readonly PresenceMember[];
}

/** Whether a value read from JSON is a PresenceList. */
export const isPresenceList: Guard<PresenceList> = /* @__PURE__ */ shape(
  'members:0[]',
  isPresenceMember,
);

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
export const isTopicInfo: Guard<TopicInfo> = /* @__PURE__ */ shape(
  'topic:topic subscribers:count messages:count position?:count last_message_at?:count',
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

/** Body of `POST /v1/positions`: where the logs of topics stand, or where they have moved to. */
export interface PositionsRequest {
  /** Topics and patterns. */
  readonly topics: readonly TopicPattern[];
  /** Positions that the caller knows, by concrete topic; at most 10,000. With `wait_ms`: what counts as moved. */
  readonly after?: Readonly<Record<string, Seq>>;
  /** Asks for the position of each topic at this time. */
  readonly at?: Timestamp;
  /** Milliseconds to hold the answer until a topic has another `last` than in `after`, or is not in `after` at all; default 0. */
  readonly wait_ms?: number;
}

/** Whether a value read from JSON is a PositionsRequest. */
export const isPositionsRequest: Guard<PositionsRequest> = /* @__PURE__ */ shape(
  'topics:0 after?:count{} at?:count wait_ms?:1',
  (value) => isSome(value, 1000, isTopicPattern),
  (value) => isCount(value, 30000),
);

/** Where the log of one topic stands. A topic without a log has `first` 1 and `last` 0. */
export interface TopicPosition {
  readonly topic: Topic;
  /** Position of the oldest retained message; `last` + 1 where none is retained. */
  readonly first: Seq;
  /** Newest position that was ever given in this log. */
  readonly last: Seq;
  /** Where `at` was asked for: position of the first retained message that is not older; `last` + 1 where there is none. */
  readonly at?: Seq;
}

/** Whether a value read from JSON is a TopicPosition. */
export const isTopicPosition: Guard<TopicPosition> = /* @__PURE__ */ shape(
  'topic:topic first:count last:count at?:count',
);

/** Answer of `POST /v1/positions`. */
export interface PositionList {
  /** The topics, by name; of patterns those that have a log and that the caller may subscribe to. */
  readonly positions: readonly TopicPosition[];
  /** Time of the store when it was asked: what was published before is counted. */
  readonly timestamp: Timestamp;
  /** More than 10,000 topics match; these are the first by name. */
  readonly has_more?: boolean;
}

/** Whether a value read from JSON is a PositionList. */
export const isPositionList: Guard<PositionList> = /* @__PURE__ */ shape(
  'positions:0[] timestamp:count has_more?:flag',
  isTopicPosition,
);

/** Body of `POST /v1/subscribe`: everything the event stream shall carry. */
export interface SubscribeRequest {
  /** Each is answered by its own `subscribed` event. */
  readonly subscriptions: readonly StreamSubscription[];
  /** Whether presence events are sent; default false. */
  readonly presence?: boolean;
  /** `Client-Id` of a stream, or `client_id` of `auth.ok`, in whose place this stream comes; so presence goes on. */
  readonly client_id?: string;
}

/** Whether a value read from JSON is a SubscribeRequest. */
export const isSubscribeRequest: Guard<SubscribeRequest> = /* @__PURE__ */ shape(
  'subscriptions:0 presence?:flag client_id?:1',
  (value) => isSome(value, 1000, isStreamSubscription),
  (value) => isText(value, 0, 64),
);

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
export const isStreamSubscription: Guard<StreamSubscription> = /* @__PURE__ */ shape(
  'topics:0 since?:count after?:count{} history?:1 ref?:ref',
  (value) => isSome(value, 1000, isTopicPattern),
  (value) => isCount(value, 10000),
);

/** Answer of `GET /v1/session`: what `auth.ok` says on a socket. */
export interface SessionInfo {
  /** Id of the event stream that the caller opens next, when it names it in `client_id`. */
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
export const isSessionInfo: Guard<SessionInfo> = /* @__PURE__ */ shape(
  'client_id user_id? version:count features?:text[] expires_at?:count server_time?:count limits?:0',
  isLimits,
);

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
export const isAccessInfo: Guard<AccessInfo> = /* @__PURE__ */ shape(
  'topic subscribe:flag publish:flag rule? reason',
);

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
export const isProblem: Guard<Problem> = /* @__PURE__ */ shape(
  'type? title status:count code detail? remedy? instance? field? topic? retry_after_ms?:count',
);

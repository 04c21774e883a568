/**
 * Values that a program receives from the client: messages, gaps, presence, state changes, publish
 * results.
 */

import type { PubSubError } from './errors.js';
import type { Gap, GapReason } from './gap.js';
import type { Occupancy, TopicInfo } from './generated/http.js';
import type { PublicState } from './generated/lifecycle.js';
import type { Envelope, JsonObject, PresenceMember } from './generated/wire.js';

export type { Gap, GapReason, JsonObject, Occupancy, PresenceMember, TopicInfo };

/**
 * Payloads of topics without a declared type. The sample of HIP-56 reads `msg.data.content` from
 * them.
 */
// biome-ignore lint/suspicious/noExplicitAny: a program that names no type is not held up by one
export type AnyPayload = any;

/** The default map of a client. A client with any other map is assignable to it. */
// biome-ignore lint/suspicious/noExplicitAny: maps are compared as wholes, and only this fits all
export type AnyTopics = any;

declare const only: unique symbol;

/**
 * A map of topics to payloads that excludes all other topics: `new PubSub<OnlyTopics<{…}>>(…)`
 * rejects them at compile time.
 */
export type OnlyTopics<Topics extends object> = Topics & { readonly [only]: true };

/**
 * The payload of a topic in a map of topics to payloads; keys may be template literals.
 *
 * Topics outside the map have the payload `any`, or that of a key `[other: string]`. A pattern that
 * a key covers has the payload of the key. With `OnlyTopics`, other patterns have the payloads of
 * all keys that they match, or `unknown` if they match none.
 */
export type PayloadOf<Topics extends object, Topic extends string> = string extends keyof Topics
  ? Topics[Topic & keyof Topics]
  : Topic extends keyof Topics
    ? Topics[Topic]
    : Topics extends OnlyTopics<object>
      ? [Matched<keyof Topics, Glob<Topic>>] extends [never]
        ? unknown
        : Topics[Matched<keyof Topics, Glob<Topic>>]
      : AnyPayload;

/**
 * The topics and patterns that a client accepts: any string, or with `OnlyTopics` only the keys of
 * the map and patterns with wildcards. Editors complete the keys in both cases.
 */
export type Allowed<Topics extends object> =
  | (keyof Topics & string)
  | (Topics extends OnlyTopics<object> ? `${string}*${string}` : string & {});

/** The keys that match a text with placeholders. */
type Matched<Key, Text extends string> = Key extends Text ? Key : never;

/** A pattern with placeholders instead of wildcards. */
type Glob<Pattern extends string> = Pattern extends `${infer Before}**${infer After}`
  ? `${Glob<Before>}${string}${Glob<After>}`
  : Pattern extends `${infer Before}*${infer After}`
    ? `${Before}${string}${Glob<After>}`
    : Pattern;

/** A received message: `id, topic, type, data, sender, timestamp, ttl, seq, meta`. */
export interface Message<Data = AnyPayload> extends Envelope {
  /** The payload: any JSON value, of the type that the topic has in the map of the client. */
  readonly data: Data;
}

/** A time: Unix milliseconds, or a `Date`. */
export type Since = number | Date;

/** A message to publish. */
export interface Outgoing<Data = unknown> {
  /** Application-defined type; default `message`. */
  readonly type?: string | undefined;
  /** The payload: any JSON value, at most 262,144 bytes of JSON by default. */
  readonly data: Data;
  /** Retention in seconds; 0 stores nothing. */
  readonly ttl?: number | undefined;
  /** Message id, at most 128 characters; default `msg_` and a ULID. */
  readonly id?: string | undefined;
  /** Passed through unchanged, for example a W3C `traceparent`. */
  readonly meta?: JsonObject | undefined;
}

/** The route of a publish: over the open connection, over HTTP, or chosen automatically. */
export type Via = 'auto' | 'socket' | 'rest';

/** The states of a client (docs/lifecycle.md). */
export type StateName = PublicState;

/** The reason why a token is needed. */
export type TokenReason = 'connect' | 'expiring' | 'rejected';

/** A token with its expiry. */
export interface Token {
  /** The bearer token or API key, with or without `Bearer `. */
  readonly value: string;
  /** Expiry in Unix milliseconds; undefined if unknown. */
  readonly expiresAt?: number | undefined;
}

/** The context of a `getToken` call. */
export interface TokenContext {
  /**
   * `connect` before a connection, `expiring` when the current token expires soon, `rejected` when
   * the server rejected the last one.
   */
  readonly reason: TokenReason;
  /** 0 for the first call for this reason; each retry adds 1. */
  readonly attempt: number;
}

/**
 * `getToken`: returns a token for the user. Throw `AuthRefused` to stop the client permanently; after
 * any other error, the client calls it again, and logs the message of a `PubSubError`, and only the class
 * of another. The signal is aborted when the client no longer needs the token.
 */
export type TokenCallback = (
  context: TokenContext,
  options: { readonly signal: AbortSignal },
) => string | Token | PromiseLike<string | Token>;

/** A change of state of a client (LIFE-1). */
export interface StateChange {
  /** State before. */
  readonly from: StateName;
  /** State after. */
  readonly to: StateName;
  /**
   * Error code of `spec/errors.yaml`, or the close code: 1006 for a connection that was lost or could
   * not be opened. Undefined if the change has a cause other than a failure.
   */
  readonly code: string | number | undefined;
  /**
   * What happened, for logs: a sentence in English, of this client, the server or a proxy, or only a
   * code of the server, such as `going_away`. Empty if nothing failed, as after `close()`, or when a
   * client connects again after the machine slept. For users, choose words by `to` and `code`.
   */
  readonly reason: string;
  /** Milliseconds until the next attempt, if one is planned. */
  readonly retryIn: number | undefined;
  /** Number of attempts since the connection was last stable. */
  readonly attempt: number;
}

/** What happened to the members of a topic; `MemberChange.change` describes each kind. */
export type PresenceChangeKind =
  | 'snapshot'
  | 'join'
  | 'connect'
  | 'update'
  | 'disconnect'
  | 'leave';

/** The first complete list of the members of a topic. */
export interface PresenceSnapshot {
  /** The topic. */
  readonly topic: string;
  /**
   * All current connections, in the order in which they joined. Connections that joined within the
   * same millisecond are sorted by `client_id`. `usersOf` lists each user once.
   */
  readonly members: readonly PresenceMember[];
  /** Distinguishes a list from a change of one member. */
  readonly change: 'snapshot';
  /** A list has no changed member. */
  readonly member: undefined;
}

/** What one member of a topic did, and the members after it. */
export interface MemberChange {
  /** The topic. */
  readonly topic: string;
  /** All current connections, in the order of `PresenceSnapshot.members`. */
  readonly members: readonly PresenceMember[];
  /**
   * What `member` did: `join` and `leave` for the first and last connection of a user, `connect` and
   * `disconnect` for further connections, `update` for changed data.
   */
  readonly change: Exclude<PresenceChangeKind, 'snapshot'>;
  /** The connection that joined, was updated or left. */
  readonly member: PresenceMember;
}

/** The members of a topic after a change. Check `change` to know whether there is a `member`. */
export type PresenceChange = PresenceSnapshot | MemberChange;

/** A publish that the server accepted. */
export interface Published {
  /** Id of the message. */
  readonly id: string;
  /** Server time, Unix milliseconds; undefined if the server sends no acknowledgements. */
  readonly timestamp: number | undefined;
  /** Position in the log of the topic; undefined for ephemeral messages and plain HIP-56. */
  readonly seq: number | undefined;
  /** Whether the id was already published; the server then did not publish it again. */
  readonly duplicate: boolean;
}

/**
 * Counters of the messages of one subscription (FLOW-1).
 *
 * `received === handled + dropped + queued` holds at any time.
 */
export interface SubscriptionStats {
  /** Messages that have arrived for this subscription. */
  readonly received: number;
  /** Messages that the program has taken. */
  readonly handled: number;
  /** Messages dropped because the queue was full, or the subscription ended. */
  readonly dropped: number;
  /** Messages in the queue. */
  readonly queued: number;
  /** Approximate size of the queue. */
  readonly queuedBytes: number;
  /** Reported gaps, for any reason. */
  readonly gaps: number;
}

/** What `Subscription.events()` yields, in order. */
export type SubscriptionEvent<Data = AnyPayload> =
  | { readonly kind: 'message'; readonly message: Message<Data> }
  | { readonly kind: 'gap'; readonly gap: Gap }
  | { readonly kind: 'presence'; readonly presence: PresenceChange };

/** The events of `ps.on`. */
export interface ClientEvents {
  /** Every change of state, in order. */
  readonly state: StateChange;
  /** Every gap of any subscription, when the program reaches its place. */
  readonly gap: Gap;
  /**
   * Errors that no call can throw: exceptions of handlers, and errors of the server that belong to
   * no call.
   */
  readonly error: PubSubError | Error;
}

/** Receives log messages of the client; never a token or a payload. */
export interface Logger {
  debug?(message: string, ...details: unknown[]): void;
  info?(message: string, ...details: unknown[]): void;
  warn(message: string, ...details: unknown[]): void;
  error(message: string, ...details: unknown[]): void;
}

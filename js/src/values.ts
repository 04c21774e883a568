/** What a program gets from the client: messages, gaps, presence, state changes, publish results. */

import type { PubSubError } from './errors.js';
import type { Occupancy, TopicInfo } from './generated/http.js';
import type { PublicState } from './generated/lifecycle.js';
import type { Envelope, JsonObject, PresenceMember } from './generated/wire.js';
import type { FetchReason, GapReason, PresenceChangeKind } from './session/ports.js';

export type { GapReason, JsonObject, Occupancy, PresenceChangeKind, PresenceMember, TopicInfo };

/** Payloads without a type of their own: HIP-56's sample reads `msg.data.content` of them. */
// biome-ignore lint/suspicious/noExplicitAny: a program that names no type is not held up by one
export type AnyPayload = any;

/** The map of a client without one. A client of any other map can stand in its place. */
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

/** What a topic or pattern has to be beside a string: nothing more, or of `OnlyTopics`. */
export type Allowed<Topics extends object, Topic extends string> =
  Topics extends OnlyTopics<object>
    ? [Topic] extends [keyof Topics | `${string}*${string}`]
      ? unknown
      : never
    : unknown;

/** Keys that a text with placeholders stands for. */
type Matched<Key, Text extends string> = Key extends Text ? Key : never;

/** A pattern with placeholders instead of wildcards. */
type Glob<Pattern extends string> = Pattern extends `${infer Before}**${infer After}`
  ? `${Glob<Before>}${string}${Glob<After>}`
  : Pattern extends `${infer Before}*${infer After}`
    ? `${Before}${string}${Glob<After>}`
    : Pattern;

/** A message as it was delivered: `id, topic, type, data, sender, timestamp, ttl, seq, meta`. */
export interface Message<Data = AnyPayload> extends Envelope {
  readonly data: Data;
}

/** A time: Unix milliseconds, or a date. */
export type Since = number | Date;

/** What is published. */
export interface Outgoing<Data = unknown> {
  /** Application-defined type; default `message`. */
  readonly type?: string | undefined;
  readonly data: Data;
  /** Seconds in history; 0 stores nothing. */
  readonly ttl?: number | undefined;
  /** Message id; default `msg_` and a ULID. */
  readonly id?: string | undefined;
  readonly meta?: JsonObject | undefined;
}

/** How a publish travels: over the open connection, over HTTP, or whichever fits. */
export type Via = 'auto' | 'socket' | 'rest';

/** The states of a client (docs/lifecycle.md). */
export type StateName = PublicState;

/** Why a token is asked for. */
export type TokenReason = FetchReason;

/** A token with what is known about its end. */
export interface Token {
  /** The bearer token or API key, with or without `Bearer `. */
  readonly value: string;
  /** When it ends, Unix milliseconds; undefined where unknown. */
  readonly expiresAt?: number | undefined;
}

/** Why `getToken` is called. */
export interface TokenContext {
  /**
   * `connect` before a connection, `expiring` when the current token expires soon, `rejected` when
   * the server rejected the last one.
   */
  readonly reason: TokenReason;
  /** 0 for the first call of its kind, then counting up. */
  readonly attempt: number;
}

/** `getToken`: throws AuthRefused to stop permanently; the signal is aborted when no call waits any more. */
export type TokenCallback = (
  context: TokenContext,
  options: { readonly signal: AbortSignal },
) => string | Token | PromiseLike<string | Token>;

/** One step in the life of a client (LIFE-1). */
export interface StateChange {
  readonly from: StateName;
  readonly to: StateName;
  /**
   * Code of `spec/errors.yaml` or the close code, 1006 for a connection that was lost or could not
   * be opened; undefined without a new failure.
   */
  readonly code: string | number | undefined;
  /** What happened, in words. */
  readonly reason: string;
  /** Milliseconds until the next attempt, where one is planned. */
  readonly retryIn: number | undefined;
  /** Number of attempts since the client was last stable. */
  readonly attempt: number;
}

/** Messages of one topic that could not be delivered, reported at their place (REC-2). */
export interface Gap {
  /** The concrete topic, or the pattern where the topic is unknown. */
  readonly topic: string;
  /** Position of the first missing message; undefined against a server without positions. */
  readonly from: number | undefined;
  /** Position of the last missing message; undefined where unknown. */
  readonly to: number | undefined;
  /** How many messages are missing; undefined if it cannot be known. */
  readonly missed: number | undefined;
  /**
   * `history_trimmed`: no longer retained. `log_reset`: the numbering starts again, because the
   * server lost its history, or a mesh lost messages between two nodes. `node_changed`: the client
   * moved to another node, which has its own history. `slow_consumer`: the queue of this
   * subscription was full. `unproven`: the server cannot prove that none is missing.
   */
  readonly reason: GapReason;
}

/** Who is present on a topic after a change. */
export interface PresenceChange {
  readonly topic: string;
  /** Every connection present now, by time of joining; `usersOf` names each user once. */
  readonly members: readonly PresenceMember[];
  /**
   * `snapshot` for the first complete list, then what `member` did: `join` and `leave` for the
   * first and last connection of a user, `connect` and `disconnect` for further connections,
   * `update` for changed data.
   */
  readonly change: PresenceChangeKind;
  /** The connection that came, was updated or went; undefined for `snapshot`. */
  readonly member: PresenceMember | undefined;
}

/** A publish that the server accepted. */
export interface Published {
  readonly id: string;
  /** Server time, Unix milliseconds; undefined where the server acknowledges nothing. */
  readonly timestamp: number | undefined;
  /** Position in the log of its topic; undefined for ephemeral messages and plain HIP-56. */
  readonly seq: number | undefined;
  /** The id was published before and nothing was sent again. */
  readonly duplicate: boolean;
}

/**
 * Counters of the messages of one subscription (FLOW-1).
 *
 * `received === handled + dropped + queued` holds at any time.
 */
export interface SubscriptionStats {
  /** Messages that the session delivered to this subscription. */
  readonly received: number;
  /** Messages that the program has taken. */
  readonly handled: number;
  /** Messages given up because the queue was full, or the subscription ended. */
  readonly dropped: number;
  /** Messages waiting. */
  readonly queued: number;
  /** Their approximate size. */
  readonly queuedBytes: number;
  /** Reported gaps, for any reason. */
  readonly gaps: number;
}

/** What `Subscription.events()` yields, in order. */
export type SubscriptionEvent<Data = AnyPayload> =
  | { readonly kind: 'message'; readonly message: Message<Data> }
  | { readonly kind: 'gap'; readonly gap: Gap }
  | { readonly kind: 'presence'; readonly presence: PresenceChange };

/** What `ps.on` tells, by name. */
export interface ClientEvents {
  /** Every change of state, in order. */
  readonly state: StateChange;
  /** Every gap of any subscription, when the program comes to its place. */
  readonly gap: Gap;
  /** Errors that no call can raise: of handlers, or refusals that concern no call. */
  readonly error: PubSubError | Error;
}

/** Where the client writes what no program asked for; never a token, never a payload. */
export interface Logger {
  debug?(message: string, ...details: unknown[]): void;
  info?(message: string, ...details: unknown[]): void;
  warn(message: string, ...details: unknown[]): void;
  error(message: string, ...details: unknown[]): void;
}

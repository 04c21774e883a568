/**
 * Every setting of a client, with its default, its unit and its range.
 *
 * Defaults come from `spec/defaults.yaml`. Times are milliseconds, sizes bytes.
 */

import type { Logger, Token, TokenCallback } from '../values.js';
import type { SessionOptions, TransportChoice } from './session.js';

/** The same type with optional fields. Undefined means the default, as if the field were absent. */
export type Optional<T> = { readonly [K in keyof T]?: T[K] | undefined };

/**
 * What the client does when its send queue is full: reject with QueueFull, wait, drop the oldest
 * message, or keep only the newest of each key.
 */
export type SendPolicy = 'error' | 'block' | 'drop_oldest' | 'latest';

/**
 * What the client does when the queue of a subscription is full: drop the oldest messages and report
 * a gap, or end the subscription with an error.
 */
export type ReceivePolicy = 'gap' | 'error';

/** Bounds of the publishes that wait to be sent or acknowledged. */
export interface SendQueue {
  /** Maximum number of messages, 1 to 1,000,000; default 1,000. */
  readonly messages: number;
  /** Maximum bytes of JSON, 1 to 1 GiB; default 1 MiB. */
  readonly bytes: number;
  /** What happens when the queue is full; default `error`. */
  readonly policy: SendPolicy;
}

/** Bounds of the messages of one subscription that the program has not read yet. */
export interface ReceiveQueue {
  /** Maximum number of messages, 1 to 1,000,000; default 1,024. */
  readonly messages: number;
  /** Maximum bytes, 1 to 1 GiB; default 8 MiB. */
  readonly bytes: number;
  /** What happens when the queue is full; default `gap`. */
  readonly policy: ReceivePolicy;
}

/**
 * Delays before the client reconnects.
 *
 * The client waits a random time, evenly distributed from 0 to a bound. The bound is `base` for the
 * first attempt and twice `base` for the next ones. It then grows with the square of the time without
 * a connection, up to `cap`: it is 4 s after 25 s, and 10 s after 40 s. While a publish waits, the
 * bound does not grow. A call of your program starts the next attempt early, at most once per second.
 */
export interface RetryOptions {
  /** First bound in milliseconds; default 1,000. */
  readonly base: number;
  /**
   * Maximum delay in milliseconds, at least `base`; default 30,000. The client respects a longer
   * `retry_after` of the server.
   */
  readonly cap: number;
  /** Milliseconds after which a connection resets the bound; default 10,000. */
  readonly stableAfter: number;
}

/** The part of a WebSocket that the client uses. Those of browsers, Node 22 and `ws` have it. */
export interface WebSocketLike {
  binaryType: string;
  readonly readyState: number;
  readonly bufferedAmount?: number;
  send(data: string): void;
  close(code?: number, reason?: string): void;
  // biome-ignore lint/suspicious/noExplicitAny: each platform has event types of its own
  addEventListener(type: string, listener: (event: any) => void): void;
}

/** The constructor of a WebSocket. */
export type WebSocketConstructor = new (url: string) => WebSocketLike;

/** Times and limits by name. */
export interface Settings {
  /** Timeout of the token callback in milliseconds; default 10,000. */
  readonly fetchTimeout: number;
  /** Timeout to connect and authenticate in milliseconds; default 5,000. */
  readonly openTimeout: number;
  /** Timeout of publish, subscribe, history and presence in milliseconds; default 10,000. */
  readonly operationTimeout: number;
  /** Milliseconds that `close` waits for unanswered publishes; default 5,000. */
  readonly closeTimeout: number;
  /**
   * Milliseconds without traffic before the client sends a ping; default 15,000. The server closes
   * an idle connection after 30,000.
   */
  readonly pingInterval: number;
  /** Milliseconds that the client waits for any byte after a ping; default 10,000. */
  readonly pongTimeout: number;
  /** Milliseconds without a connection until the state is `suspended`; default 120,000. */
  readonly suspendAfter: number;
  /**
   * Time before the expiry of a token at which the client renews it, in milliseconds, if the server
   * sends no `auth.expiring`; default 45,000.
   */
  readonly refreshMargin: number;
  /**
   * Milliseconds after which the client falls back to server-sent events if the first WebSocket is
   * not open and HTTP answers; default 8,000.
   */
  readonly fallbackAfter: number;
  /** Failed WebSocket openings after which the client falls back, if HTTP answers; default 2. */
  readonly fallbackFailures: number;
  /**
   * Replaces `fallbackFailures` once a WebSocket has worked in this process. A connection that is
   * lost before the server answers a request counts as a failed opening; default 3.
   */
  readonly shortLife: number;
  /**
   * Milliseconds on server-sent events before the client tries a WebSocket. The time doubles with
   * each attempt, up to ten minutes; default 30,000.
   */
  readonly upgradeAfter: number;
  /**
   * Milliseconds replayed before the newest message, with a server without `seq`; default 5,000.
   */
  readonly overlap: number;
  /**
   * Message ids kept per topic to detect duplicates, with a server without `seq`; default 1,000.
   */
  readonly rememberedIds: number;
  /** Topics per subscription whose position the client tracks; default 20,000. */
  readonly rememberedTopics: number;
  /** Live messages per subscription that may wait for its replay; default 10,000. */
  readonly heldMessages: number;
  /** Maximum bytes of a received frame, event or answer; default 32 MiB. */
  readonly maxFrame: number;
  /**
   * Maximum bytes of JSON-encoded `data`, unless the server states another limit; default 262,144.
   */
  readonly maxPayload: number;
  /** Maximum attempts of an HTTP request; default 4. */
  readonly restAttempts: number;
  /** Messages per page of history; default 100. */
  readonly historyPage: number;
}

/** Options of `new PubSub`. */
export interface PubSubOptions extends Optional<Settings> {
  /** `wss://host:8057/ws`; default `HANZO_PUBSUB_URL` of the environment, if there is one. */
  readonly url?: string | URL | undefined;
  /**
   * Bearer token or API key, with or without `Bearer `, or what `TokenSigner` returns; default
   * `HANZO_PUBSUB_TOKEN`. The server decides when it expires, so `expiresAt` is not used.
   */
  readonly token?: string | Token | undefined;
  /**
   * Callback that returns a token, before a connection and before the token expires; instead of
   * `token`.
   */
  readonly getToken?: TokenCallback | undefined;
  /** `auto` starts with a WebSocket and falls back to server-sent events; default `auto`. */
  readonly transport?: TransportChoice | undefined;
  /** Base URL of the HTTP API; default derived from `url` (port 8057 becomes 8056). */
  readonly restUrl?: string | URL | undefined;
  /**
   * Whether the client may send the token over `ws://` or `http://` to other machines; default
   * false.
   */
  readonly allowInsecure?: boolean | undefined;
  /** Name of the program, which the client sends to the server; at most 128 characters. */
  readonly name?: string | undefined;
  /** Whether subscriptions receive the messages that this client publishes; default true. */
  readonly echo?: boolean | undefined;
  /**
   * Share one connection with the other tabs of this origin that use the same URL, identity and
   * name, if the platform can. A string shares only with tabs that pass the same string. Default
   * false.
   */
  readonly shareTabs?: boolean | string | undefined;
  /**
   * After a reload of the page, continue as the same client from its positions. A string
   * identifies the client if the page has several. Not with `shareTabs`. Default false.
   */
  readonly recover?: boolean | string | undefined;
  /** Bounds of the messages that wait to be sent or acknowledged. */
  readonly sendQueue?: Optional<SendQueue> | undefined;
  /** Bounds of a subscription without its own `queue`. */
  readonly receiveQueue?: Optional<ReceiveQueue> | undefined;
  /** Delays before the client reconnects. */
  readonly retry?: Optional<RetryOptions> | undefined;
  /**
   * Constructor of WebSockets, if there is no global one, as in Node 20: that of the package `ws`.
   */
  readonly WebSocket?: WebSocketConstructor | undefined;
  /** Function for HTTP requests; default the global `fetch`. */
  readonly fetch?: typeof fetch | undefined;
  /**
   * Destination of warnings and errors; default the console. It never receives a token or a
   * payload.
   */
  readonly logger?: Logger | undefined;
}

/** @internal All settings of a client, and of its session. */
export interface ClientOptions extends Settings, SessionOptions {
  readonly socketUrl: string;
  readonly httpUrl: string;
  /** Whether `httpUrl` was derived from another address. */
  readonly httpDerived: boolean;
  readonly token: string | undefined;
  readonly getToken?: TokenCallback | undefined;
  readonly name?: string | undefined;
  readonly echo: boolean;
  /** The name of the shared group; undefined to share nothing. */
  readonly shareTabs: string | undefined;
  /** The name of the state kept over a reload; undefined to keep nothing. */
  readonly recover: string | undefined;
  readonly sendPolicy: SendPolicy;
  readonly receiveQueue: ReceiveQueue;
  readonly WebSocket?: WebSocketConstructor | undefined;
  readonly fetch: typeof fetch;
  readonly logger: Logger;
}

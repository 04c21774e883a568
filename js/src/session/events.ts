/** What goes into a session. Each event is data; a session never calls back. */

import type { Timer } from '../generated/lifecycle.js';
import type { JsonObject, Publication, ServerFrame } from '../generated/wire.js';

/** What a full send queue does with one more publish; the policy `block` is the client's matter. */
export type SendPolicy = 'error' | 'drop_oldest' | 'latest';

/** The user wants a connection. */
export interface Connect {
  readonly kind: 'connect';
  /** A WebSocket to this address has worked in this process before. */
  readonly opened?: boolean | undefined;
}

/** The user wants the end, after what is published has been settled. */
export interface Close {
  readonly kind: 'close';
}

/** The user wants the end now; what is unsettled is settled as unknown or refused. */
export interface Abort {
  readonly kind: 'abort';
}

/** The token callback answered the `Fetch` of this id. */
export interface Token {
  readonly kind: 'token';
  /** The id of the effect `Fetch` that this answers; an answer to another one is ignored. */
  readonly fetch: number;
  /** The token, with or without `Bearer `. */
  readonly value: string;
  /** Milliseconds until it ends, if the callback said so. */
  readonly expiresIn?: number | undefined;
}

/** The token callback failed. */
export interface TokenFailed {
  readonly kind: 'tokenFailed';
  /** The id of the effect `Fetch` that this answers. */
  readonly fetch: number;
  /** It threw `AuthRefused`: asking again is pointless. */
  readonly refused: boolean;
  /** What it said, in words, without any secret. */
  readonly message: string;
}

/** The transport is open. */
export interface Opened {
  readonly kind: 'opened';
  /** Subscriptions may come and go one by one. False for SSE, where one request carries them all. */
  readonly incremental: boolean;
}

/** The transport is gone, or could not be opened. */
export interface Dropped {
  readonly kind: 'dropped';
  /** WebSocket close code, or the one that an HTTP status stands for; undefined if none came. */
  readonly code: number | undefined;
  /** What was said, in words. */
  readonly reason: string;
  /** Milliseconds the server asked to wait. */
  readonly retryAfter?: number | undefined;
}

/** Whether a WebSocket could be opened beside the fallback. */
export interface Probed {
  readonly kind: 'probed';
  readonly ok: boolean;
}

/** Whether the HTTP address answers as a PubSub service; the answer to `ProbeHttp`. */
export interface Answered {
  readonly kind: 'answered';
  readonly ok: boolean;
}

/** The platform says that the network is gone; it may be wrong about this connection. */
export interface Offline {
  readonly kind: 'offline';
}

/** The machine slept, or the network is back. */
export interface Woke {
  readonly kind: 'woke';
  /** There was no sleep: the token is as good as it was. */
  readonly rested?: boolean | undefined;
}

/** A frame of the transport. */
export interface Received {
  readonly kind: 'received';
  /** The decoded frame. */
  readonly frame: ServerFrame;
  /** Wall clock, Unix milliseconds. */
  readonly at: number;
}

/** A timer that `StartTimer` started has run out. */
export interface TimerFired {
  readonly kind: 'timerFired';
  /** The timer. */
  readonly name: TimerName;
  /** Milliseconds since the last byte of the transport. */
  readonly idle: number;
}

/** The user wants messages. */
export interface Subscribe {
  readonly kind: 'subscribe';
  /** Chosen by the caller, not used before; names the subscription in effects. */
  readonly sub: number;
  /** Valid patterns, at least one, none twice. */
  readonly topics: readonly string[];
  /** Replay what is newer than this, Unix milliseconds. */
  readonly since?: number | undefined;
  /** Replay at most so many of the newest messages a topic. */
  readonly history?: number | undefined;
  /** Replay what follows these positions, by concrete topic. */
  readonly after?: ReadonlyMap<string, number> | undefined;
  /** Whether presence is wanted; default false. */
  readonly presence?: boolean | undefined;
}

/** The user is done with a subscription. */
export interface Unsubscribe {
  readonly kind: 'unsubscribe';
  readonly sub: number;
}

/** The user publishes. */
export interface Publish {
  readonly kind: 'publish';
  /** Chosen by the caller, not used before; names the publish in `Settle`. */
  readonly ref: number;
  /** Valid publications in order, each with an id; one, unless `batch`. */
  readonly messages: readonly Publication[];
  /** Their size on the wire in bytes, for the bound of the queue. */
  readonly size: number;
  /** What to do if the queue is full; default `error`. */
  readonly policy?: SendPolicy | undefined;
  /** With the policy `latest`: an unsent publish of the same key is given up for this one. */
  readonly key?: string | undefined;
  /** Sent as one frame with one answer an item. */
  readonly batch?: boolean | undefined;
}

/** The time that the user gave a publish has passed. It is never sent after that. */
export interface Expire {
  readonly kind: 'expire';
  readonly ref: number;
}

/** The user's own presence changes, on one topic or (undefined) on all it is a member of. */
export interface UpdatePresence {
  readonly kind: 'updatePresence';
  readonly topic: string | undefined;
  readonly data: JsonObject;
  /** Chosen by the caller, not used before; names the update in `Settle`. None: nobody waits. */
  readonly ref?: number | undefined;
}

/**
 * Timers of the session itself, in no table: the publish budget; a subscription refused for now;
 * how long a call of the program cannot bring the next attempt forward.
 */
export type SessionTimer = 'pace' | 'rejoin' | 'hold';

export type TimerName = Timer | SessionTimer;

export type Event =
  | Connect
  | Close
  | Abort
  | Token
  | TokenFailed
  | Opened
  | Dropped
  | Probed
  | Answered
  | Offline
  | Woke
  | Received
  | TimerFired
  | Subscribe
  | Unsubscribe
  | Publish
  | Expire
  | UpdatePresence;

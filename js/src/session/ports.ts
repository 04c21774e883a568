/** The ports of a session, which act on the outside world, and the values that they carry. */

import type { PublicState, State, Timer } from '../generated/lifecycle.js';
import type {
  AuthFrame,
  ClientFrame,
  Denial,
  Envelope,
  PresenceMember,
  PublishResult,
} from '../generated/wire.js';
import type { Loose } from '../wire/compact.js';
import type { Peer } from './peer.js';

export type TransportName = 'websocket' | 'sse';
export type FetchReason = 'connect' | 'expiring' | 'rejected';
export type GapReason =
  | 'history_trimmed'
  | 'log_reset'
  | 'node_changed'
  | 'slow_consumer'
  | 'unproven';
export type PresenceChangeKind =
  | 'snapshot'
  | 'join'
  | 'connect'
  | 'update'
  | 'disconnect'
  | 'leave';

/**
 * Timers of the session itself, which are in no table: the publish budget; a subscription that was
 * refused for now; the time in which a call of the program cannot start the next attempt early; the
 * time for members to return to a server that has forgotten them.
 */
export type SessionTimer = 'pace' | 'rejoin' | 'hold' | 'grace';

export type TimerName = Timer | SessionTimer;

/**
 * The server took the publish: one result for each message, in order.
 *
 * If the peer does not acknowledge publishes, the results contain only the ids.
 */
export interface Acked {
  readonly kind: 'acked';
  readonly results: readonly PublishResult[];
}

/** The server or the client itself refused something. */
export interface Rejected {
  readonly kind: 'rejected';
  /** A code of `spec/errors.yaml`, or of a newer server. */
  readonly code: string;
  /** A description of the problem. */
  readonly message: string;
  /** The server's remedy; undefined uses the one of the table. */
  readonly remedy?: string | undefined;
  /** The topic it concerns. */
  readonly topic?: string | undefined;
  /** The invalid parameter or payload member, if the server named it. */
  readonly field?: string | undefined;
  /** Milliseconds to wait before another try. */
  readonly retry_after_ms?: number | undefined;
}

/** The publish was sent and will get no answer: `outcome_unknown`. */
export interface Unknown {
  readonly kind: 'unknown';
}

export type Outcome = Acked | Rejected | Unknown;

/** @internal The session entered another state of the table. */
export interface StateChanged {
  /** The previous state. */
  readonly from: State;
  /** The new state. */
  readonly to: State;
  /** The state that users see for `to`; several states map to the same one. */
  readonly public: PublicState;
  /** The error code or close code that caused it, if any. */
  readonly code: string | number | undefined;
  /** The reason, as text. */
  readonly reason: string | undefined;
  /** Milliseconds until the next attempt. */
  readonly retryIn: number | undefined;
  /** Number of failed attempts in a row. */
  readonly attempt: number;
}

/** Messages of a topic are missing at this position of the subscription. */
export interface Gap {
  /** The concrete topic. */
  readonly topic: string;
  /** `seq` of the first missing message; undefined if the peer has no `seq`. */
  readonly from: number | undefined;
  /** `seq` of the last missing message; undefined if unknown. */
  readonly to: number | undefined;
  /** Number of missing messages, `to - from + 1`; undefined if unknown. */
  readonly missed: number | undefined;
  /**
   * `history_trimmed`: no longer retained. `log_reset`: the log restarted. `node_changed`: the peer
   * is another node, with its own log. `slow_consumer`: the reader's own queue was full.
   * `unproven`: the client cannot prove that none is missing.
   */
  readonly reason: GapReason;
}

/** One change of the members of a topic. */
export interface PresenceChange {
  /** The concrete topic. */
  readonly topic: string;
  /** All members now, by time of joining. */
  readonly members: readonly PresenceMember[];
  /** `snapshot` for the first complete list; after that, the change of `member`. */
  readonly change: PresenceChangeKind;
  /** The member that joined, was updated, or left; undefined for `snapshot`. */
  readonly member: PresenceMember | undefined;
}

/** An error of the server that is not the answer to a request. */
export interface Problem {
  readonly code: string;
  readonly message: string;
  readonly topic?: string | undefined;
  /** Milliseconds to wait before another attempt. */
  readonly retry_after_ms?: number | undefined;
}

/**
 * @internal The effects of a session, in the order of the calls. A port never calls back
 * synchronously.
 */
export interface Ports {
  /** The session entered another state; the effects of the transition follow. */
  stateChanged(change: StateChanged): void;
  /** A server accepted the token: the peer that it described. */
  welcomed(peer: Peer): void;
  /** Call the token callback; answer with `token` or `tokenFailed` under the same number. */
  fetchToken(call: number, reason: FetchReason, attempt: number): void;
  /** Cancel the call of the token callback. */
  abandonFetch(call: number): void;
  /** Open a transport; answer with `opened` or `dropped`. At most one is open at a time. */
  dial(transport: TransportName): void;
  /** Close the transport, or stop opening it; report nothing about it after that. */
  hangUp(code: number): void;
  /** Write a frame. */
  send(frame: Loose<ClientFrame>): void;
  /** Start or restart a timer; answer with `timerFired` after the given milliseconds. */
  startTimer(name: TimerName, after: number): void;
  /** Stop a running timer. */
  cancelTimer(name: TimerName): void;
  /** Try to open a WebSocket beside the event stream; answer with `probed`. */
  probe(): void;
  /** Check that the HTTP address answers as a PubSub service; answer with `answered`. */
  probeHttp(auth: Loose<AuthFrame>): void;
  /** A message for a subscription, in order, once; `many`: one of several in a replay. */
  deliver(sub: number, message: Envelope, many: boolean): void;
  /** Messages are missing here; `many`: among several messages of a replay. */
  gap(sub: number, gap: Gap, many: boolean): void;
  /**
   * The server answered: the patterns in force (none: the subscription ended) and those refused.
   */
  joined(sub: number, topics: readonly string[], denied: readonly Denial[]): void;
  /** The members of a topic changed, for a subscription with presence. */
  presenceChanged(sub: number, change: PresenceChange): void;
  /** The outcome of a publish or an update of presence; called exactly once for each. */
  settle(ref: number, outcome: Outcome): void;
  /** The server sent an error that is not the answer to a request. */
  problem(problem: Problem): void;
  /** The session has ended: on request (undefined), or with an error that a retry cannot fix. */
  finished(error: Rejected | undefined): void;
}

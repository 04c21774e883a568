/** What comes out of a session: each effect is data, performed by the driver in the order given. */

import type { PublicState, State } from '../generated/lifecycle.js';
import type {
  AuthFrame,
  ClientFrame,
  Denial,
  Envelope,
  PresenceMember,
  PublishResult,
} from '../generated/wire.js';
import type { TimerName } from './events.js';

export type TransportName = 'websocket' | 'sse';
export type FetchReason = 'connect' | 'expiring' | 'rejected';
export type GapReason = 'history_trimmed' | 'log_reset' | 'slow_consumer' | 'unproven';
export type PresenceChangeKind =
  | 'snapshot'
  | 'join'
  | 'connect'
  | 'update'
  | 'disconnect'
  | 'leave';

/**
 * The server took the publish: one result for each message, in order.
 *
 * Against a peer that acknowledges nothing, the results hold the ids alone.
 */
export interface Acked {
  readonly kind: 'acked';
  readonly results: readonly PublishResult[];
}

/** Something was refused, by the server or by the client itself. */
export interface Rejected {
  readonly kind: 'rejected';
  /** A code of `spec/errors.yaml`, or one that a later server made up. */
  readonly code: string;
  /** What went wrong, in words. */
  readonly message: string;
  /** What to do about it, if the server said so; else the table knows. */
  readonly remedy?: string | undefined;
  /** The topic it concerns. */
  readonly topic?: string | undefined;
  /** Milliseconds to wait before another try. */
  readonly retryAfter?: number | undefined;
}

/** The publish was sent, and the answer will never come: `outcome_unknown`. */
export interface Unknown {
  readonly kind: 'unknown';
}

export type Outcome = Acked | Rejected | Unknown;

/** The session is in another state of the table. */
export interface StateChanged {
  readonly kind: 'stateChanged';
  /** The state left. */
  readonly from: State;
  /** The state entered. */
  readonly to: State;
  /** What users see of `to`; several states look alike. */
  readonly public: PublicState;
  /** The error code or close code behind it, if any. */
  readonly code: string | number | undefined;
  /** Why, in words. */
  readonly reason: string | undefined;
  /** Milliseconds until the next attempt. */
  readonly retryIn: number | undefined;
  /** How many attempts have failed in a row. */
  readonly attempt: number;
}

/** Call the token callback; answer with `Token` or `TokenFailed` of the same id. */
export interface Fetch {
  readonly kind: 'fetch';
  readonly id: number;
  readonly reason: FetchReason;
  readonly attempt: number;
}

/** Cancel the token callback: it took too long, or nobody needs it any more. */
export interface AbandonFetch {
  readonly kind: 'abandonFetch';
  readonly id: number;
}

/** Open a transport; answer with `Opened` or `Dropped`. At most one is open at a time. */
export interface Dial {
  readonly kind: 'dial';
  readonly transport: TransportName;
}

/** Close the transport, or give up opening it; nothing of it is reported after that. */
export interface HangUp {
  readonly kind: 'hangUp';
  readonly code: number;
}

/** Write a frame. */
export interface Send {
  readonly kind: 'send';
  readonly frame: ClientFrame;
}

/** Start a timer, or start it anew; `TimerFired` tells when so many milliseconds have passed. */
export interface StartTimer {
  readonly kind: 'startTimer';
  readonly name: TimerName;
  readonly after: number;
}

/** Stop a timer that is running. */
export interface CancelTimer {
  readonly kind: 'cancelTimer';
  readonly name: TimerName;
}

/** Try to open a WebSocket beside the fallback; answer with `Probed`. */
export interface Probe {
  readonly kind: 'probe';
}

/** See whether the HTTP address answers as a PubSub service; answer with `Answered`. */
export interface ProbeHttp {
  readonly kind: 'probeHttp';
  /** What the service is to answer. */
  readonly auth: AuthFrame;
}

/** A message for a subscription, in order, once. */
export interface Deliver {
  readonly kind: 'deliver';
  readonly sub: number;
  readonly message: Envelope;
}

/** Messages of a topic are missing, right here in the order of the subscription. */
export interface Gap {
  readonly kind: 'gap';
  /** The subscription. */
  readonly sub: number;
  /** The concrete topic. */
  readonly topic: string;
  /** `seq` of the first missing message; undefined where the peer has no `seq`. */
  readonly from: number | undefined;
  /** `seq` of the last missing message; undefined if unknown. */
  readonly to: number | undefined;
  /** How many are missing, `to - from + 1`; undefined if nobody can know. */
  readonly missed: number | undefined;
  /**
   * `history_trimmed`: no longer retained. `log_reset`: the log began anew. `slow_consumer`: the
   * reader's own queue was full. `unproven`: nobody can tell.
   */
  readonly reason: GapReason;
}

/** The server answered a subscription, the first time or after a reconnect. */
export interface Joined {
  readonly kind: 'joined';
  /** The subscription. */
  readonly sub: number;
  /** The patterns in force. If empty, the subscription has ended; `denied` says why. */
  readonly topics: readonly string[];
  /** The patterns refused this time. */
  readonly denied: readonly Denial[];
}

/** Who is present on a topic has changed. */
export interface PresenceChanged {
  readonly kind: 'presenceChanged';
  /** The subscription that asked for presence. */
  readonly sub: number;
  /** The concrete topic. */
  readonly topic: string;
  /** Everybody present now, by time of joining. */
  readonly members: readonly PresenceMember[];
  /** `snapshot` for the first complete list; then what `member` did. */
  readonly change: PresenceChangeKind;
  /** Who joined, was updated, or left; undefined for `snapshot`. */
  readonly member: PresenceMember | undefined;
}

/** What became of a publish or an update of presence; comes exactly once for each. */
export interface Settle {
  readonly kind: 'settle';
  readonly ref: number;
  readonly outcome: Outcome;
}

/** An error of the server that answers nothing in particular. */
export interface Problem {
  readonly kind: 'problem';
  readonly code: string;
  readonly message: string;
  readonly topic?: string | undefined;
  /** Milliseconds to wait before another try. */
  readonly retryAfter?: number | undefined;
}

/** The session has ended: as asked (undefined), or by an error that no retry mends. */
export interface Finished {
  readonly kind: 'finished';
  readonly error: Rejected | undefined;
}

export type Effect =
  | StateChanged
  | Fetch
  | AbandonFetch
  | Dial
  | HangUp
  | Send
  | StartTimer
  | CancelTimer
  | Probe
  | ProbeHttp
  | Deliver
  | Gap
  | Joined
  | PresenceChanged
  | Settle
  | Problem
  | Finished;

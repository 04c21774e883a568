/** What a session calls: ports to the world, and the values that they carry. */

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
 * Timers of the session itself, in no table: the publish budget; a subscription refused for now;
 * how long a call of the program cannot bring the next attempt forward; how long members may take to
 * return to a server that has forgotten them.
 */
export type SessionTimer = 'pace' | 'rejoin' | 'hold' | 'grace';

export type TimerName = Timer | SessionTimer;

/**
 * The server took the publish: one result for each message, in order.
 *
 * Against a peer that acknowledges nothing, the results hold the ids alone.
 */
export interface Acked {
  readonly kind: 'acked';
  readonly results: readonly PublishResult[];
}

/** The server, or the client itself, refused something. */
export interface Rejected {
  readonly kind: 'rejected';
  /** A code of `spec/errors.yaml`, or one of a later server. */
  readonly code: string;
  /** What went wrong, in words. */
  readonly message: string;
  /** The server's remedy; undefined: that of the table. */
  readonly remedy?: string | undefined;
  /** The topic it concerns. */
  readonly topic?: string | undefined;
  /** Parameter or member of the payload at fault, if the server named it. */
  readonly field?: string | undefined;
  /** Milliseconds to wait before another try. */
  readonly retryAfter?: number | undefined;
}

/** The publish was sent and no answer will come: `outcome_unknown`. */
export interface Unknown {
  readonly kind: 'unknown';
}

export type Outcome = Acked | Rejected | Unknown;

/** The session entered another state of the table. */
export interface StateChanged {
  /** The state left. */
  readonly from: State;
  /** The state entered. */
  readonly to: State;
  /** What users see of `to`; several states look alike. */
  readonly public: PublicState;
  /** The error code or close code behind it, if any. */
  readonly code: string | number | undefined;
  /** The reason, in words. */
  readonly reason: string | undefined;
  /** Milliseconds until the next attempt. */
  readonly retryIn: number | undefined;
  /** How many attempts have failed in a row. */
  readonly attempt: number;
}

/** Messages of a topic are missing, right here in the order of the subscription. */
export interface Gap {
  /** The concrete topic. */
  readonly topic: string;
  /** `seq` of the first missing message; undefined where the peer has no `seq`. */
  readonly from: number | undefined;
  /** `seq` of the last missing message; undefined if unknown. */
  readonly to: number | undefined;
  /** How many are missing, `to - from + 1`; undefined if unknown. */
  readonly missed: number | undefined;
  /**
   * `history_trimmed`: no longer retained. `log_reset`: the log restarted. `node_changed`: the
   * peer is another node, with a log of its own. `slow_consumer`: the
   * reader's own queue was full. `unproven`: nothing proves that none is missing.
   */
  readonly reason: GapReason;
}

/** One change of the members of a topic. */
export interface PresenceChange {
  /** The concrete topic. */
  readonly topic: string;
  /** Everybody present now, by time of joining. */
  readonly members: readonly PresenceMember[];
  /** `snapshot` for the first complete list; then what `member` did. */
  readonly change: PresenceChangeKind;
  /** Who joined, was updated, or left; undefined for `snapshot`. */
  readonly member: PresenceMember | undefined;
}

/** An error of the server that answers nothing in particular. */
export interface Problem {
  readonly code: string;
  readonly message: string;
  readonly topic?: string | undefined;
  /** Milliseconds to wait before another try. */
  readonly retryAfter?: number | undefined;
}

/** What a session does to the world, in the order of the calls. No port calls back at once. */
export interface Ports {
  /** The session entered another state; what follows from that comes after. */
  stateChanged(change: StateChanged): void;
  /** A server took the token: what it said of itself. */
  welcomed(peer: Peer): void;
  /** Call the token callback; answer with `token` or `tokenFailed` under the same number. */
  fetchToken(call: number, reason: FetchReason, attempt: number): void;
  /** Cancel the token callback. */
  abandonFetch(call: number): void;
  /** Open a transport; answer with `opened` or `dropped`. At most one is open at a time. */
  dial(transport: TransportName): void;
  /** Close the transport, or give up opening it; nothing of it is reported after that. */
  hangUp(code: number): void;
  /** Write a frame. */
  send(frame: Loose<ClientFrame>): void;
  /** Start or restart a timer; answer with `timerFired` after so many milliseconds. */
  startTimer(name: TimerName, after: number): void;
  /** Stop a timer that is running. */
  cancelTimer(name: TimerName): void;
  /** Try to open a WebSocket beside the event stream; answer with `probed`. */
  probe(): void;
  /** See whether the HTTP address answers as a PubSub service; answer with `answered`. */
  probeHttp(auth: AuthFrame): void;
  /** A message for a subscription, in order, once; `many`: one of several of a replay. */
  deliver(sub: number, message: Envelope, many: boolean): void;
  /** Messages are missing here; `many`: between several messages of a replay. */
  gap(sub: number, gap: Gap, many: boolean): void;
  /** The server answered: patterns in force (none: the subscription ended), patterns refused. */
  joined(sub: number, topics: readonly string[], denied: readonly Denial[]): void;
  /** Who is present on a topic has changed, for a subscription with presence. */
  presenceChanged(sub: number, change: PresenceChange): void;
  /** What became of a publish or an update of presence; comes exactly once for each. */
  settle(ref: number, outcome: Outcome): void;
  /** The server sent an error that answers nothing in particular. */
  problem(problem: Problem): void;
  /** The session has ended: as asked (undefined), or with an error that a retry cannot fix. */
  finished(error: Rejected | undefined): void;
}

/** The ports of a session, which act on the outside world, and the values that they carry. */

import type { Loose } from '../compact.js';
import type { Gap } from '../gap.js';
import type { PublicState, State, Timer } from '../generated/lifecycle.js';
import type {
  AuthFrame,
  ClientFrame,
  Denial,
  Envelope,
  ErrorInfo,
  PublishResult,
} from '../generated/wire.js';
import type { PresenceChange, StateChange, TokenReason } from '../values.js';
import type { Peer } from './peer.js';

export type TransportName = 'websocket' | 'sse';

/**
 * Timers of the session itself, which are in no table: the publish budget; a subscription that was
 * rejected temporarily; the time in which a call of the program cannot start the next attempt early; the
 * time for members to return to a server that has forgotten them.
 */
export type SessionTimer = 'pace' | 'rejoin' | 'hold' | 'grace';

export type TimerName = Timer | SessionTimer;

/**
 * The server accepted the publish: one result for each message, in order.
 *
 * If the peer does not acknowledge publishes, the results contain only the ids.
 */
export interface Acked {
  readonly kind: 'acked';
  readonly results: readonly PublishResult[];
}

/** The server or the client rejected something; without a remedy, that of the code applies. */
export interface Rejected extends Loose<ErrorInfo> {
  readonly kind: 'rejected';
}

/** The publish was sent and will get no answer: `outcome_unknown`. */
export interface Unknown {
  readonly kind: 'unknown';
}

export type Outcome = Acked | Rejected | Unknown;

/** @internal The session entered another state of the table. */
export interface StateChanged extends Omit<StateChange, 'from' | 'to' | 'reason'> {
  readonly from: State;
  readonly to: State;
  /** The state that users see for `to`; several states map to the same one. */
  readonly public: PublicState;
  readonly reason: string | undefined;
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
  fetchToken(call: number, reason: TokenReason, attempt: number): void;
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
  /**
   * Try to open a WebSocket beside the event stream, and answer with `probed`; or send `auth` to the
   * HTTP address, and answer with `answered` whether it is a PubSub service.
   */
  probe(auth?: Loose<AuthFrame>): void;
  /** The server sent an error that is not the answer to a request. */
  problem(problem: Loose<ErrorInfo>): void;
  /** The session has ended: on request (undefined), or with an error that a retry cannot fix. */
  finished(error: Rejected | undefined): void;
}

/** @internal The ports of subscriptions. */
export interface DeliveryPorts {
  /** A message for a subscription, in order, once; `many`: one of several in a replay. */
  deliver(sub: number, message: Envelope, many: boolean): void;
  /** Messages are missing here; `many`: among several messages of a replay. */
  gap(sub: number, gap: Gap, many: boolean): void;
  /**
   * The server answered: the active patterns (none: the subscription ended) and the denied ones.
   */
  joined(sub: number, topics: readonly string[], denied: readonly Denial[]): void;
  /** The members of a topic changed, for a subscription with presence. */
  presenceChanged(sub: number, change: PresenceChange): void;
}

/** @internal The port of publishes and updates of presence. */
export interface OutcomePort {
  /** The outcome of a publish or an update of presence; called exactly once for each. */
  settle(ref: number, outcome: Outcome): void;
}

/**
 * The border of a session: requests of the program, the peer, and the ports, which act on the outside
 * world; and what its parts share.
 */

import type { Loose } from '../compact.js';
import type { Gap } from '../gap.js';
import type { PublicState, State, Timer } from '../generated/lifecycle.js';
import type {
  AuthFrame,
  AuthOkFrame,
  ClientFrame,
  Denial,
  Envelope,
  ErrorInfo,
  Publication,
  PublishResult,
} from '../generated/wire.js';
import type { SendPolicy } from '../settings/options.js';
import type { SessionOptions } from '../settings/session.js';
import type { PresenceChange, StateChange, TokenReason } from '../values.js';

/** Longest timer that every platform supports, milliseconds: 24.8 days. */
const MAX_TIMER = 2_147_483_647;

export type TransportName = 'websocket' | 'sse';

/**
 * Timers of the session itself, which are in no table: the publish budget; a subscription that was
 * rejected temporarily; the time in which a call of the program cannot start the next attempt early; the
 * time for members to return to a server that has forgotten them.
 */
export type SessionTimer = 'pace' | 'rejoin' | 'hold' | 'grace';

export type TimerName = Timer | SessionTimer;

export interface Subscribe {
  /** Chosen by the caller, not used before; identifies the subscription at the ports. */
  readonly sub: number;
  /** Valid patterns, at least one, none twice. */
  readonly topics: readonly string[];
  /** Replay messages newer than this, Unix milliseconds. */
  readonly since?: number | undefined;
  /** Replay at most this many of the newest messages per topic. */
  readonly history?: number | undefined;
  /** Replay messages after these positions, by concrete topic. Undefined: unknown to this peer. */
  readonly after?: ReadonlyMap<string, number | undefined> | undefined;
  /** Whether presence is wanted; default false. */
  readonly presence?: boolean | undefined;
}

export interface Publish {
  /** Chosen by the caller, not used before; identifies the publish at the port `settle`. */
  readonly ref: number;
  /** Valid publications in order, each with an id: one, or at least one with `batch`. */
  readonly messages: readonly Publication[];
  /** Their size on the wire in bytes, for the limit of the queue. */
  readonly size: number;
  /** What to do if the queue is full; default `error`. With `block`, the queue takes it anyway. */
  readonly policy?: SendPolicy | undefined;
  /** This publish replaces an unsent one of the same key; only with the policy `latest`. */
  readonly key?: string | undefined;
  /** Send as one frame, with one answer per item. */
  readonly batch?: boolean | undefined;
  /** Send after the others when the rate is used up. */
  readonly background?: boolean | undefined;
}

/** @internal The server of one connection: the fields of `auth.ok`, and what follows from them. */
export interface Peer extends Omit<AuthOkFrame, 'type' | 'features'> {
  /** Milliseconds until the token expires, if the server sent it. */
  readonly tokenLife: number | undefined;
  /** Its features beyond HIP-56. */
  readonly features: ReadonlySet<string>;
  /** Subscriptions can be added and removed one by one; false for an event stream. */
  readonly incremental: boolean;
  /** It answers publishes; on an event stream, each is a separate request. */
  readonly acks: boolean;
  /** The client can send unanswered publishes again under the same id. */
  readonly resends: boolean;
  /** Publishes per second that it allows; 0 if the limit is not known. */
  readonly rate: number;
  /**
   * Maximum burst of publishes: a tenth less than the server allows; infinite without a limit.
   *
   * With equal budgets on two clocks, network jitter alone makes the server reject a publish at the
   * limit. A rejected publish then arrives after the ones that follow it.
   */
  readonly burst: number;
}

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
  send(frame: Loose<ClientFrame>): void;
  /** Start or restart a timer; answer with `timerFired` after the given milliseconds. */
  startTimer(name: TimerName, after: number): void;
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

/** @internal Timers by name. */
export class Timers {
  /** Milliseconds of the running timers. */
  private readonly _running = new Map<TimerName, number>();

  constructor(private readonly _ports: Ports) {}

  has(name: TimerName): boolean {
    return this._running.has(name);
  }

  /** Its milliseconds; infinite if it does not run. */
  after(name: TimerName): number {
    return this._running.get(name) ?? Infinity;
  }

  start(name: TimerName, after: number): void {
    this._running.set(name, after);
    this._ports.startTimer(name, after);
  }

  stop(...names: readonly TimerName[]): void {
    for (const name of names) {
      if (this._running.delete(name)) this._ports.cancelTimer(name);
    }
  }

  stopAll(): void {
    this.stop(...this._running.keys());
  }

  /**
   * Let it fire after the given time, if that is in the future and within the maximum of a timer.
   */
  limit(name: TimerName, after = 0): void {
    this.stop(name);
    if (after > 0 && after <= MAX_TIMER) this.start(name, after);
  }

  /** It fired; returns whether it was running. */
  fired(name: TimerName): boolean {
    return this._running.delete(name);
  }
}

/** @internal What all parts of a session share. */
export class Context {
  /** The server while authenticated: only then do frames of subscriptions and publishes count. */
  peer: Peer | undefined;
  readonly timers: Timers;

  constructor(
    public options: SessionOptions,
    readonly ports: Ports,
    readonly random: () => number,
  ) {
    this.timers = new Timers(ports);
  }
}

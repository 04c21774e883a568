/**
 * The machine of a session: its state, its timers, and what the guards of the table ask.
 *
 * The table is compiled from `spec/lifecycle.yaml`; `lifecycle` has what its actions do.
 */

import { closeAction } from '../generated/errors.js';
import {
  type Action,
  type Guard,
  INITIAL,
  type Event as Name,
  PUBLIC,
  type Row,
  type State,
  type Steps,
  TABLE,
} from '../generated/lifecycle.js';
import type { SessionOptions } from '../settings/session.js';
import { actionOf, cause } from './causes.js';
import { Credentials } from './credentials.js';
import type { Effect, TransportName } from './effects.js';
import type { Event, TimerName } from './events.js';
import { Joins } from './joins.js';
import { Outbox } from './outbox.js';
import { type Peer, readPeer } from './peer.js';
import { OwnPresence } from './presence.js';

/** The state of a session and the guards of its table. */
export abstract class Machine implements Pick<Steps<Event>, Guard> {
  state: State = INITIAL;
  /** Rows that fired, as `state event number`, if anybody wants to know. */
  fired: Set<string> | undefined;
  readonly outbox: Outbox;
  readonly joins: Joins;
  protected readonly _credentials: Credentials;
  protected readonly _own: OwnPresence = new OwnPresence();
  protected readonly _timers: Set<TimerName> = new Set();
  protected _out: Effect[] = [];
  protected _transport: TransportName;
  /** A transport is being opened, or open. */
  protected _linked = false;
  protected _incremental = true;
  /** Authenticated: frames of subscriptions and publishes count. */
  protected _online = false;
  protected _clientId: string | undefined;
  protected _attempt = 0;
  protected _failures = 0;
  protected _shortLives = 0;
  protected _stable = false;
  protected _overdue = false;
  protected _draining = false;
  protected _retryIn: number | undefined;
  protected _refs = 0;
  protected _peer: Peer = readPeer({}, true);

  /**
   * @param _options What it is set to.
   * @param _random A number from 0 inclusive to 1 exclusive.
   */
  constructor(
    protected readonly _options: SessionOptions,
    protected readonly _random: () => number,
  ) {
    const { sendQueueMessages, sendQueueBytes, paceInterval } = _options;
    this.outbox = new Outbox(sendQueueMessages, sendQueueBytes, paceInterval);
    this.joins = new Joins(_options);
    this._credentials = new Credentials(_options.renewable);
    this._transport = _options.transport === 'sse' ? 'sse' : 'websocket';
  }

  // ---------------------------------------------------------------- the table

  /** Take one step of a row. */
  protected abstract _act(action: Action, event: Event): void;

  /** Take the first row whose guards hold; a pair without one has no meaning now. */
  protected _fire(name: Name, event: Event): void {
    const { state } = this;
    for (const [n, row] of (TABLE[state][name] ?? []).entries()) {
      if (row.guards.every((guard) => this[guard](event))) {
        this.fired?.add(`${state} ${name} ${n}`);
        this._take(row, event);
        return;
      }
    }
  }

  private _take(row: Row, event: Event): void {
    const from = this.state;
    const at = this._out.length;
    const { to } = row;
    this._retryIn = undefined;
    this.state = to;
    for (const action of row.actions) this._act(action, event);
    if (to !== from) {
      const [code, reason] = cause(event);
      this._out.splice(at, 0, {
        kind: 'stateChanged',
        from,
        to,
        public: PUBLIC[to],
        code,
        reason,
        retryIn: this._retryIn,
        attempt: this._attempt,
      });
    }
  }

  // ---------------------------------------------------------------- timers

  protected _start(name: TimerName, after: number): void {
    this._timers.delete(name);
    this._timers.add(name);
    this._out.push({ kind: 'startTimer', name, after });
  }

  protected _stop(name: TimerName): void {
    if (this._timers.delete(name)) this._out.push({ kind: 'cancelTimer', name });
  }

  /** Full jitter (LIFE-2). */
  protected _delay(attempt: number): number {
    const { retryBase, retryCap } = this._options;
    const ceiling = Math.min(retryCap, retryBase * 2 ** Math.min(attempt, 30));
    return Math.floor(this._random() * ceiling);
  }

  // ---------------------------------------------------------------- guards

  /** The close code says that the token is at fault. */
  authClose(event: Event): boolean {
    return event.kind === 'dropped' && closeAction(event.code) === 'reauth';
  }

  /** The error says that the token is at fault. */
  authFault(event: Event): boolean {
    return actionOf(cause(event)[0]) === 'reauth';
  }

  /** The token is a fixed one (AUTH-4). */
  cannotRenew(_event: Event): boolean {
    return !this._credentials.renewable;
  }

  /** The user has asked for the end, after what is published has been settled. */
  draining(_event: Event): boolean {
    return this._draining;
  }

  /** The close code says that another try is pointless (LIFE-9). */
  finalClose(event: Event): boolean {
    return event.kind === 'dropped' && closeAction(event.code) === 'stop';
  }

  /** The error says that another try is pointless. */
  finalError(event: Event): boolean {
    return actionOf(cause(event)[0]) === 'stop';
  }

  /** A token is held. */
  hasToken(_event: Event): boolean {
    return this._credentials.token !== undefined;
  }

  /** Something has come since the ping; an event stream, which has none, is given longer. */
  heard(event: Event): boolean {
    const { pongTimeout, pingInterval } = this._options;
    const patience = pongTimeout + (this._incremental ? 0 : pingInterval);
    return event.kind === 'timerFired' && event.idle < patience;
  }

  /** The transport is a WebSocket, and the user leaves the choice to us. */
  mayFallBack(_event: Event): boolean {
    return this._options.transport === 'auto' && this._transport === 'websocket';
  }

  /** Apart for so long that history may be gone. */
  overdue(_event: Event): boolean {
    return this._overdue;
  }

  /** A WebSocket could be opened. */
  reachable(event: Event): boolean {
    return event.kind === 'probed' && event.ok;
  }

  /** The token callback refuses for good (AUTH-3). */
  refused(event: Event): boolean {
    return event.kind === 'tokenFailed' && event.refused;
  }

  /** A publish has no outcome yet. */
  unsettled(_event: Event): boolean {
    return this.outbox.size > 0;
  }
}

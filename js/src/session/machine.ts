/** What the parts of a session share: its effects, its timers, and the peer of the moment. */

import { INITIAL, type State } from '../generated/lifecycle.js';
import type { ClientFrame } from '../generated/wire.js';
import type { SessionOptions } from '../settings/session.js';
import type { Loose } from '../wire/compact.js';
import type { Effect } from './effects.js';
import type { SessionTimer, TimerName } from './events.js';
import type { Parts } from './parts.js';
import type { Peer } from './peer.js';

/** The ground that every part of a session stands on. */
export class Machine {
  state: State = INITIAL;
  /** Rows that fired, as `state event number`, if anybody wants to know. */
  fired: Set<string> | undefined;
  /** The server, while authenticated: only then do frames of subscriptions and publishes count. */
  _peer: Peer | undefined;
  /** What is loaded where it is needed. */
  readonly _parts: Partial<Parts> = {};
  /** Timers to be started when the event at hand is done with, with their milliseconds. */
  readonly _due: Record<SessionTimer, number | undefined> = {
    pace: undefined,
    rejoin: undefined,
    hold: undefined,
  };
  protected _out: Effect[] = [];
  protected readonly _timers: Set<TimerName> = new Set();

  /**
   * @param _options What it is set to.
   * @param _random A number from 0 inclusive to 1 exclusive.
   */
  constructor(
    readonly _options: SessionOptions,
    protected readonly _random: () => number,
  ) {}

  /** Have an effect performed, after those before. */
  _tell(effect: Effect): void {
    this._out.push(effect);
  }

  /** Have a frame written, in the words of the peer. */
  _send(frame: Loose<ClientFrame>): void {
    const { plain } = this._parts;
    this._tell({ kind: 'send', frame: plain ? plain._translate(frame) : (frame as ClientFrame) });
  }

  /** Whether a timer is running, or about to be started. */
  _runs(name: SessionTimer): boolean {
    return this._timers.has(name) || this._due[name] !== undefined;
  }

  _start(name: TimerName, after: number): void {
    this._timers.delete(name);
    this._timers.add(name);
    this._tell({ kind: 'startTimer', name, after });
  }

  _stop(...names: TimerName[]): void {
    for (const name of names) {
      if (this._timers.delete(name)) this._tell({ kind: 'cancelTimer', name });
    }
  }

  protected _startDue(): void {
    for (const name of ['pace', 'rejoin'] as const) {
      const after = this._due[name];
      if (after === undefined) continue;
      this._due[name] = undefined;
      this._start(name, after);
    }
  }
}

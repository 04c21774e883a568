/** Which transport is taken: the WebSocket, or the event stream where it does not work (LIFE-6). */

import type { Context } from './context.js';
import type { TransportName } from './ports.js';

/** The transport of the next attempt, and what speaks for the other one. */
export class TransportChoice {
  _name: TransportName;
  /** HTTP has answered since the last WebSocket that failed. */
  _answered = false;
  /** HTTP is being asked. */
  _asking = false;
  /** A WebSocket has worked in this process. */
  _hasOpened = false;
  /** The time within which the first WebSocket should open has passed. */
  _late = false;
  /** WebSockets that failed one after the other, while HTTP answered between them. */
  private _failures = 0;
  /** Probes for a WebSocket since one was of use. */
  _probes = 0;

  constructor(private readonly _context: Context) {
    this._name = _context.options.transport === 'sse' ? 'sse' : 'websocket';
  }

  /** Whether the transport is a WebSocket, and the user leaves the choice to us. */
  get _mayFallBack(): boolean {
    return this._context.options.transport === 'auto' && this._name === 'websocket';
  }

  /**
   * Count a WebSocket that failed without a word of the server; whether to ask the HTTP address now.
   *
   * A WebSocket gives way after some failures between which the HTTP address answered: an address
   * that does not answer at all says nothing about WebSockets, and one without event streams offers
   * no alternative.
   */
  _failed(): boolean {
    const answered = this._answered;
    this._answered = false;
    if (answered || !this._failures) this._failures += 1;
    const { shortLife, fallbackFailures } = this._context.options;
    if (!answered || this._failures < (this._hasOpened ? shortLife : fallbackFailures)) return true;
    this._change();
    return false;
  }

  /** The HTTP address answered as a PubSub service, or it did not. */
  _httpAnswered(ok: boolean): void {
    this._asking = false;
    this._answered = ok;
    if (!ok) this._failures = 0;
  }

  /** Take the event stream; or the WebSocket, on the event stream. */
  _change(): void {
    const { options, timers } = this._context;
    timers.stop('upgrade');
    this._failures = 0;
    this._answered = this._hasOpened = false;
    if (options.transport === 'auto') this._name = this._mayFallBack ? 'sse' : 'websocket';
  }

  /** Take the WebSocket while the event stream serves, which one failure brings back. */
  _upgrade(): void {
    this._change();
    this._failures = this._context.options.fallbackFailures - 1;
    this._answered = true;
  }

  /** Probe for a WebSocket after so long on the fallback, however often its stream is cut. */
  _startUpgrade(): void {
    const { options, timers } = this._context;
    const { transport, upgradeAfter, upgradeCap } = options;
    if (this._name !== 'sse' || transport !== 'auto' || timers.has('upgrade')) return;
    const after = Math.min(upgradeAfter * 2 ** this._probes, Math.max(upgradeAfter, upgradeCap));
    timers.start('upgrade', after);
  }

  /** A connection is of use: what failed before says nothing about the way any more. */
  _provesWell(): void {
    if (this._name === 'sse') return;
    this._failures = this._probes = 0;
    this._answered = false;
  }
}

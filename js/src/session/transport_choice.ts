/** Choice of the transport: the WebSocket, or the event stream if WebSockets fail (LIFE-6). */

import type { Context } from './context.js';
import type { TransportName } from './ports.js';

/** The transport of the next attempt, and the evidence for the other one. */
export class TransportChoice {
  _name: TransportName;
  /** HTTP has answered since the last failure of a WebSocket. */
  _httpWorks = false;
  /** An HTTP check is running. */
  _isProbingHttp = false;
  /** A WebSocket has opened in this process. */
  _hasOpened = false;
  /** The timeout of the first WebSocket has passed. */
  _isLate = false;
  /** WebSocket failures in a row with an HTTP answer between them. */
  private _failures = 0;
  /** WebSocket probes since the last useful connection. */
  _probes = 0;

  constructor(private readonly _context: Context) {
    this._name = _context.options.transport === 'sse' ? 'sse' : 'websocket';
  }

  /** Whether the transport is a WebSocket and `auto` is set. */
  get _mayFallBack(): boolean {
    return this._context.options.transport === 'auto' && this._name === 'websocket';
  }

  /**
   * Count a WebSocket that failed without an answer of the server; returns whether to check HTTP
   * now.
   *
   * The client falls back after several failures with HTTP answers between them. If the address
   * does not answer at all, the WebSocket is not to blame. If it has no event streams, there is no
   * alternative.
   */
  _countFailure(): boolean {
    const httpWorks = this._httpWorks;
    this._httpWorks = false;
    if (httpWorks || !this._failures) this._failures += 1;
    const { shortLife, fallbackFailures } = this._context.options;
    if (!httpWorks || this._failures < (this._hasOpened ? shortLife : fallbackFailures))
      return true;
    this._change();
    return false;
  }

  /** The result of the check whether the HTTP address answers as a PubSub service. */
  _httpAnswered(ok: boolean): void {
    this._isProbingHttp = false;
    this._httpWorks = ok;
    if (!ok) this._failures = 0;
  }

  /** Switch to the event stream; or from it to the WebSocket. */
  _change(): void {
    const { options, timers } = this._context;
    timers.stop('upgrade');
    this._failures = 0;
    this._httpWorks = this._hasOpened = false;
    if (options.transport === 'auto') this._name = this._mayFallBack ? 'sse' : 'websocket';
  }

  /** Try the WebSocket while the event stream works; one failure switches back. */
  _upgrade(): void {
    this._change();
    this._failures = this._context.options.fallbackFailures;
    this._httpWorks = true;
  }

  /**
   * Schedule a WebSocket probe after this time on the fallback, however often the stream breaks.
   */
  _startUpgrade(): void {
    const { options, timers } = this._context;
    const { transport, upgradeAfter, upgradeCap } = options;
    if (this._name !== 'sse' || transport !== 'auto' || timers.has('upgrade')) return;
    const after = Math.min(upgradeAfter * 2 ** this._probes, Math.max(upgradeAfter, upgradeCap));
    timers.start('upgrade', after);
  }

  /** The connection is useful: earlier failures no longer count. */
  _noteUseful(): void {
    if (this._name === 'sse') return;
    this._failures = this._probes = 0;
  }
}

/** What the next attempt to connect needs: the wait before it, the token, and the transport. */

import type { Context, TransportName } from './ports.js';

/** Maximum wait that a server can request, milliseconds. */
const MAX_RETRY_AFTER = 3_600_000;

/** Milliseconds. An outage of 25 s allows waits of up to 4 s, one of 70 s waits of up to 30 s. */
const UNHURRIED = 160_000;

/** Minimum milliseconds between two calls for a token that the server's notices cause. */
const NOTICE_INTERVAL = 1_000;

/**
 * Counts consecutive failed attempts, and calculates the wait before the next one (LIFE-2, LIFE-3).
 *
 * There is no clock: the length of an outage is the sum of its waits and failed openings.
 */
export class Attempts {
  /** Number of consecutive failed attempts. */
  _failed = 0;
  /** Milliseconds of waits and failed openings since the last useful connection. */
  _outage = 0;
  /** Milliseconds that the server requested before it ended the connection. */
  _requestedWait = 0;
  /** Whether a call of the program ends the running wait early. */
  _canShorten = false;
  /** Whether one will end it when the timer `hold` fires. */
  _shortenLater = false;
  /** Milliseconds of the planned wait. */
  _wait = 0;
  /** Milliseconds of the wait that no call of the program saves. */
  private _minimum = 0;

  constructor(private readonly _context: Context) {}

  /** Draw a wait with full jitter (LIFE-2). */
  _delay(attempt: number, bound: number = Infinity): number {
    const { retryBase, retryCap } = this._context.options;
    const ceiling = Math.min(retryCap, retryBase * 2 ** attempt, bound);
    return Math.floor(this._context.random() * ceiling);
  }

  /**
   * Count an attempt that failed, and draw the wait before the next one.
   *
   * Its bound grows with the length of the outage, so that clients return soon after a short outage
   * and are spread out after a long one. It stays low while a publish waits.
   *
   * @param retryAfter Milliseconds that the server requested now.
   * @param unsettled Whether a publish waits.
   */
  _plan(retryAfter: number, unsettled: boolean | undefined): number {
    const { callInterval, retryBase } = this._context.options;
    const grown = unsettled ? 0 : Math.floor(this._outage ** 2 / UNHURRIED);
    const requested = Math.min(MAX_RETRY_AFTER, Math.max(retryAfter, this._requestedWait));
    this._wait = Math.max(this._delay(this._failed, Math.max(2 * retryBase, grown)), requested);
    this._minimum = Math.max(callInterval, requested);
    this._failed += 1;
    this._outage += this._wait;
    return this._wait;
  }

  _schedule(): void {
    const { timers } = this._context;
    timers.start('retry', this._wait);
    this._shortenLater = false;
    this._canShorten = this._wait > this._minimum;
    if (this._canShorten) timers.start('hold', this._minimum);
  }

  /** A call of the program ends the wait early. */
  _shorten(): void {
    this._outage -= this._wait - this._minimum;
  }
}

const noToken = (): undefined => undefined;

/**
 * The token of a session, and the pending call of the token callback.
 *
 * At most one call is in flight; answers to other calls are ignored (AUTH-1, AUTH-2, AUTH-6).
 */
export class Credentials {
  /** The token, inside a function, so that inspectors and serializers do not show it. */
  _token: () => string | undefined = noToken;
  /** Stated lifetime of the token in milliseconds when it arrived. */
  _life: number | undefined;
  /** Milliseconds that it had left when a server first accepted it. */
  _span: number | undefined;
  /** Number of consecutive failed calls. */
  _failed = 0;
  /** Whether the server rejected the last token. */
  _rejected = false;
  private _calls = 0;
  /** The number of the call in flight; 0 for none. */
  private _call = 0;
  /** When a notice last caused a call, or will cause one; Unix milliseconds. */
  private _noticed = NaN;

  constructor(private readonly _context: Context) {}

  /**
   * Call the callback, unless a call is in flight or the token is fixed.
   *
   * A server may send many notices that the token expires; one call handles all that arrive too
   * soon.
   *
   * @param expiring Whether the current token is valid.
   * @param at When the notice arrived, if one did; Unix milliseconds.
   */
  _fetch(expiring: boolean, at?: number): void {
    const { options, ports, timers } = this._context;
    if (this._call || (expiring && !options.renewable)) return;
    if (at !== undefined) {
      let wait = this._noticed - at;
      if (wait <= 0) wait += NOTICE_INTERVAL;
      if (!(wait > 0 && wait <= NOTICE_INTERVAL)) wait = 0;
      this._noticed = at + wait;
      if (wait) {
        timers.start('refresh', wait);
        return;
      }
    }
    this._call = ++this._calls;
    const reason = expiring ? 'expiring' : this._rejected ? 'rejected' : 'connect';
    ports.fetchToken(this._call, reason, this._failed);
    timers.start('fetch', options.fetchTimeout);
  }

  /** The callback answered; false if the answer is not awaited. */
  _endCall(call: number): boolean {
    if (call !== this._call) return false;
    this._call = 0;
    this._context.timers.stop('fetch');
    return true;
  }

  _abandon(): void {
    if (!this._call) return;
    this._failed += 1;
    this._context.ports.abandonFetch(this._call);
    this._call = 0;
  }

  _keep(token: string | undefined, life: number | undefined): void {
    this._token = () => token;
    this._life = life;
    this._span = undefined;
    this._failed = 0;
    this._context.timers.limit('expiry', life);
  }

  _forget(): void {
    this._token = noToken;
    this._life = undefined;
  }

  /**
   * A server accepted the token: start the timers to renew it before it expires, and to drop it
   * afterwards.
   *
   * @param left Milliseconds that it has left, if the server sent that.
   */
  _accepted(left: number | undefined): void {
    const { options, timers } = this._context;
    const life = (left ?? this._life) as number;
    if (left !== undefined) timers.limit('expiry', left);
    this._span ??= life;
    // Without a lifetime this is NaN, which starts no timer.
    const early = Math.max(life - options.refreshMargin, Math.floor((life * 4) / 5));
    timers.limit('refresh', options.renewable ? early : undefined);
  }
}

/**
 * The transport of the next attempt, and the evidence for the other one: the WebSocket, or the event
 * stream if WebSockets fail (LIFE-6).
 */
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

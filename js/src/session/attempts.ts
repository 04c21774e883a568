/**
 * The waits between attempts to connect (LIFE-2, LIFE-3).
 *
 * There is no clock: the length of an outage is the sum of its waits and failed openings.
 */

import type { Context } from './context.js';

/** Maximum wait that a server can request, milliseconds. */
const MAX_RETRY_AFTER = 3_600_000;

/** Milliseconds. An outage of 25 s allows waits of up to 4 s, one of 70 s waits of up to 30 s. */
const UNHURRIED = 160_000;

/** Counts consecutive failed attempts, and calculates the wait before the next one. */
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

  /** Start the planned wait. */
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

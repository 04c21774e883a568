/**
 * The token of a session, and the pending call of the token callback.
 *
 * At most one call is in flight; answers to other calls are ignored (AUTH-1, AUTH-2, AUTH-6).
 */

import type { Context } from './context.js';

/** Minimum milliseconds between two calls for a token that the server's notices cause. */
const NOTICE_INTERVAL = 1_000;

const noToken = (): undefined => undefined;

/** The token and the calls for it. */
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

  /** Cancel the call in flight, if there is one. */
  _abandon(): void {
    if (!this._call) return;
    this._failed += 1;
    this._context.ports.abandonFetch(this._call);
    this._call = 0;
  }

  /** Set the token. */
  _keep(token: string | undefined, life: number | undefined): void {
    this._token = () => token;
    this._life = life;
    this._span = undefined;
    this._failed = 0;
    this._context.timers.limit('expiry', life);
  }

  /** Drop the token. */
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

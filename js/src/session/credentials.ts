/**
 * The token of a session: which one is held, and which answer of the callback is awaited.
 *
 * One call of the callback is in flight at most; an answer to another call has no meaning any more
 * (AUTH-1, AUTH-2, AUTH-6).
 */

import type { Context } from './context.js';

/** Milliseconds between two calls for a token that notices of the server lead to. */
const NOTICE_INTERVAL = 1_000;

const noToken = (): undefined => undefined;

/** The token and the calls for it. */
export class Credentials {
  /** The token held: inside a function, where no inspector and no serializer shows it. */
  _token: () => string | undefined = noToken;
  /** Milliseconds that the token was said to last when it came. */
  _life: number | undefined;
  /** Milliseconds that it had left when a server first took it. */
  _span: number | undefined;
  /** Calls in a row that failed. */
  _failed = 0;
  /** The server refused the last token. */
  _rejected = false;
  private _calls = 0;
  /** The number of the call in flight; 0 for none. */
  private _call = 0;
  /** When a notice last led to a call, or is about to; Unix milliseconds. */
  private _noticed = Number.NaN;

  constructor(private readonly _context: Context) {}

  /**
   * Call for a token, unless a call is in flight or a fixed token could only come again.
   *
   * A server may send many notices that the token expires; those that come too soon are answered by
   * one call together.
   *
   * @param expiring Whether the token at hand is good.
   * @param at When the notice came, if one did; Unix milliseconds.
   */
  _fetch(expiring: boolean, at?: number): void {
    const { options, ports, timers } = this._context;
    if (this._call || (expiring && !options.renewable)) return;
    if (at !== undefined) {
      const due = this._noticed > at ? this._noticed : this._noticed + NOTICE_INTERVAL;
      const wait = due - at > 0 && due - at <= NOTICE_INTERVAL ? due - at : 0;
      this._noticed = at + wait;
      if (wait) {
        timers.start('refresh', wait);
        return;
      }
    }
    this._calls += 1;
    this._call = this._calls;
    const reason = expiring ? 'expiring' : this._rejected ? 'rejected' : 'connect';
    ports.fetchToken(this._call, reason, this._failed);
    timers.start('fetch', options.fetchTimeout);
  }

  /** The callback answered; false if no one waits for that answer. */
  _answered(call: number): boolean {
    if (call !== this._call) return false;
    this._call = 0;
    this._context.timers.stop('fetch');
    return true;
  }

  /** Give up the call in flight, if there is one. */
  _abandon(): void {
    if (!this._call) return;
    this._failed += 1;
    this._context.ports.abandonFetch(this._call);
    this._call = 0;
  }

  /** Hold a token. */
  _keep(token: string | undefined, life: number | undefined): void {
    this._token = () => token;
    this._life = life;
    this._span = undefined;
    this._failed = 0;
    this._rejected = false;
    this._context.timers.limit('expiry', life);
  }

  /** Hold none. */
  _forget(): void {
    this._token = noToken;
    this._life = undefined;
  }

  /**
   * A server took the token: renew it before it ends, forget it when it has.
   *
   * @param left Milliseconds that it has left, if the server sent that.
   */
  _taken(left: number | undefined): void {
    const { options, timers } = this._context;
    const life = left ?? this._life;
    if (left !== undefined) timers.limit('expiry', left);
    this._span ??= life;
    const early = Math.max(
      Number(life) - options.refreshMargin,
      Math.floor((Number(life) * 4) / 5),
    );
    timers.limit('refresh', options.renewable ? early : undefined);
  }
}

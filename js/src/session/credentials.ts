/**
 * The token of a session: which one is held, and which answer of the callback is awaited.
 *
 * One call of the callback is in flight at most; an answer to another call is not listened to
 * (AUTH-1, AUTH-2, AUTH-6).
 */

import type { Fetch } from './effects.js';
import type { Token } from './events.js';

/** Longest timer that every platform has, milliseconds: 24.8 days. */
export const MAX_TIMER = 2_147_483_647;

/** The token and the calls for it. */
export class Credentials {
  /** Calls in a row that failed. */
  attempt = 0;
  /** The server refused the last token. */
  rejected = false;
  /** Milliseconds that the token was said to last when it came. */
  life: number | undefined;
  // A private field: no inspector and no serializer shows it.
  #token: string | undefined;
  private _awaited: number | undefined;
  private _calls = 0;

  /** @param renewable Asking again may give another token. */
  constructor(readonly renewable: boolean) {}

  /** The token held. */
  get token(): string | undefined {
    return this.#token;
  }

  /** Call for a token; undefined if a call is in flight, or a fixed token could only come again. */
  ask(expiring: boolean): Fetch | undefined {
    if (this._awaited !== undefined || (expiring && !this.renewable)) return undefined;
    this._calls += 1;
    this._awaited = this._calls;
    const reason = expiring ? 'expiring' : this.rejected ? 'rejected' : 'connect';
    return { kind: 'fetch', id: this._calls, reason, attempt: this.attempt };
  }

  /** The callback answered; false if nobody waits for that answer. */
  answered(fetch: number): boolean {
    if (fetch !== this._awaited) return false;
    this._awaited = undefined;
    return true;
  }

  /** Give up the call in flight; its id. */
  abandon(): number | undefined {
    const call = this._awaited;
    this._awaited = undefined;
    return call;
  }

  /** Hold a token. */
  keep(event: Token): void {
    this.#token = event.value;
    this.life = event.expiresIn;
    this.attempt = 0;
    this.rejected = false;
  }

  /** Hold none. */
  forget(): void {
    this.#token = undefined;
    this.life = undefined;
  }
}

/** Asks the program for a token, without ever holding up the reader. */

import type { Clock } from '../clock.js';
import { PubSubError } from '../errors.js';
import { checkToken, kind } from '../settings/checks.js';
import type { ClientOptions } from '../settings/options.js';
import type { Token, TokenCallback, TokenReason } from '../values.js';
import { within } from './waiting.js';

interface Call {
  readonly answer: Promise<Token>;
  readonly abort: AbortController;
  waiting: number;
}

/** Where socket and HTTP get tokens: one callback at a time, both share its answer (AUTH-1). */
export class TokenSource {
  /** The last token; the one that never changes, where the program gave such a one. */
  last: Token | undefined;
  private readonly _callback: TokenCallback | undefined;
  private _call: Call | undefined;
  private _fetchedAt = 0;
  private _life: number | undefined;

  /**
   * @param options `token` or `getToken`.
   * @param _clock Tells when a token ends.
   */
  constructor(
    { token, getToken }: ClientOptions,
    private readonly _clock: Clock,
  ) {
    this._callback = getToken;
    this.last = token === undefined ? undefined : { value: token };
  }

  /** Whether another token can be had. */
  get renewable(): boolean {
    return this._callback !== undefined;
  }

  /**
   * Ask the program for a token. Concurrent calls share the answer.
   *
   * @param signal Stops the wait. The signal of the callback is aborted when no call waits any more.
   * @throws InvalidOption The callback returned something else than a token.
   */
  async fetch(reason: TokenReason, attempt: number, signal?: AbortSignal): Promise<Token> {
    if (!this._callback) return this.last as Token;
    const call = this._call ?? this._begin(this._callback, reason, attempt);
    this._call = call;
    call.waiting += 1;
    try {
      return (await within(call.answer, signal)) as Token;
    } finally {
      call.waiting -= 1;
      if (!call.waiting && this._call === call) {
        this._call = undefined;
        call.abort.abort();
      }
    }
  }

  /**
   * Take note of how long the server says that the token still lasts.
   *
   * Tokens of one issuer live equally long, as a rule. So the next one that does not tell its end is
   * not kept for longer, and one that ended while the client was offline is renewed before it is
   * tried (AUTH-7). A wrong guess costs one call of the callback.
   */
  learn(left: number): void {
    this._life = left + this._clock.now() - this._fetchedAt;
  }

  private _begin(callback: TokenCallback, reason: TokenReason, attempt: number): Call {
    const abort = new AbortController();
    const ask = async (): Promise<Token> => {
      const given = await callback({ reason, attempt }, { signal: abort.signal });
      const { value, expiresAt }: Token =
        typeof given === 'string' ? { value: given } : Object(given);
      const life = this._life;
      const guess = life === undefined ? life : Math.round(this._clock.wallMs() + life);
      const token = { value: checkToken(value, 'getToken()'), expiresAt: expiresAt ?? guess };
      if (!abort.signal.aborted) {
        this._fetchedAt = this._clock.now();
        this.last = token;
      }
      return token;
    };
    const call = { answer: ask(), abort, waiting: 0 };
    const ended = (): void => {
      if (this._call === call) this._call = undefined;
    };
    call.answer.then(ended, ended);
    return call;
  }
}

/**
 * Why there is no token, in words. The words of a stranger's error may hold a secret; its class says
 * enough.
 */
export function tokenProblem(error: unknown): string {
  if (error instanceof PubSubError) return error.message;
  return `getToken threw ${error instanceof Error ? error.name : kind(error)}.`;
}

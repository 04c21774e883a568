/** Asks the program for a token, without ever holding up the reader. */

import type { Clock } from '../clock.js';
import { AuthError, InvalidOption, PubSubError } from '../errors.js';
import { checkToken, kind } from '../settings/checks.js';
import type { ClientOptions } from '../settings/options.js';
import type { Token, TokenCallback, TokenContext, TokenReason } from '../values.js';

interface Call {
  readonly answer: Promise<Token>;
  readonly abort: AbortController;
  waiting: number;
}

/** Where socket and HTTP get tokens: one callback at a time, both share its answer (AUTH-1). */
export class TokenSource {
  /** The token that never changes, where the program gave one. */
  readonly fixed: Token | undefined;
  private readonly _callback: TokenCallback | undefined;
  private _current: Token | undefined;
  private _call: Call | undefined;
  private _rejections = 0;
  private _fetchedAt = 0;
  private _life: number | undefined;

  /**
   * @param options `token` or `getToken`.
   * @param _clock Tells whether a token has ended.
   */
  constructor(
    options: ClientOptions,
    private readonly _clock: Clock,
  ) {
    this.fixed = options.token === undefined ? undefined : { value: options.token };
    this._callback = options.getToken;
    this._current = this.fixed;
  }

  /**
   * Ask the program for a token; whoever asks meanwhile gets the same answer.
   *
   * @param signal Gives up waiting; the callback is told when nobody waits any more.
   * @throws InvalidOption The callback returned something else than a token.
   */
  async fetch(reason: TokenReason, attempt: number, signal?: AbortSignal): Promise<Token> {
    if (this.fixed || !this._callback) return this.fixed as Token;
    const call = this._call ?? this._begin(this._callback, { reason, attempt });
    this._call = call;
    call.waiting += 1;
    try {
      return await untilAborted(call.answer, signal);
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

  /** A token for a request over HTTP: the last one, unless it has ended. */
  async current(signal?: AbortSignal): Promise<string> {
    let token = this._current;
    if (!token) token = await this._ask('connect', signal);
    else if (token.expiresAt !== undefined && token.expiresAt <= this._clock.wallMs()) {
      token = await this._ask('expiring', signal);
    }
    this._rejections = 0;
    return token.value;
  }

  /** Another token in place of one that the server refused; undefined where there is none. */
  async replace(rejected: string, signal?: AbortSignal): Promise<string | undefined> {
    if (!this._callback) return undefined;
    if (!this._current || this._current.value === rejected) {
      await this._ask('rejected', signal);
      this._rejections += 1;
    }
    const value = this._current?.value;
    return value === rejected ? undefined : value;
  }

  private _begin(callback: TokenCallback, context: TokenContext): Call {
    const abort = new AbortController();
    const answer = fetchToken(callback, context, abort.signal).then((token) => {
      if (abort.signal.aborted) return token;
      const known =
        token.expiresAt === undefined && this._life !== undefined
          ? { ...token, expiresAt: Math.round(this._clock.wallMs() + this._life) }
          : token;
      this._fetchedAt = this._clock.now();
      this._current = known;
      return known;
    });
    const call: Call = { answer, abort, waiting: 0 };
    const ended = (): void => {
      if (this._call === call) this._call = undefined;
    };
    answer.then(ended, ended);
    return call;
  }

  private async _ask(reason: TokenReason, signal: AbortSignal | undefined): Promise<Token> {
    try {
      return await this.fetch(reason, reason === 'rejected' ? this._rejections : 0, signal);
    } catch (error) {
      if (error instanceof PubSubError || signal?.aborted) throw error;
      // Its words may hold a secret; its class says enough.
      throw new AuthError(`getToken threw ${nameOf(error)}.`, {
        code: 'token_unavailable',
        cause: error,
      });
    }
  }
}

/** What was thrown, by its class: the words of a stranger's error may hold a secret. */
export function nameOf(error: unknown): string {
  return error instanceof Error ? error.name : kind(error);
}

/** A promise, or the reason of a signal that is aborted first. */
export function untilAborted<T>(promise: Promise<T>, signal: AbortSignal | undefined): Promise<T> {
  if (!signal) return promise;
  return new Promise<T>((resolve, reject) => {
    const abort = (): void => reject(signal.reason);
    if (signal.aborted) abort();
    signal.addEventListener('abort', abort, { once: true });
    const done = (): void => signal.removeEventListener('abort', abort);
    promise.then(
      (value) => {
        done();
        resolve(value);
      },
      (error: unknown) => {
        done();
        reject(error);
      },
    );
  });
}

async function fetchToken(
  callback: TokenCallback,
  context: TokenContext,
  signal: AbortSignal,
): Promise<Token> {
  const given = await callback(context, { signal });
  if (typeof given === 'string') return { value: checkToken(given) };
  if (typeof given === 'object' && given !== null && 'value' in given) {
    const { value, expiresAt } = given;
    return { value: checkToken(value), expiresAt };
  }
  throw new InvalidOption(`\`getToken\` returned ${kind(given)}.`, {
    remedy: 'Return the token as a string, or { value, expiresAt }.',
    field: 'getToken',
  });
}

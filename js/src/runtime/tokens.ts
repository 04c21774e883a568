/** Gets tokens from the program, without blocking the reader. */

import { DEVELOPMENT } from '../build.js';
import type { Clock } from '../clock.js';
import { PubSubError } from '../errors.js';
import { untilOpened } from '../prerendering.js';
import { checkToken, isTime, withoutToken } from '../settings/checks.js';
import type { ClientOptions } from '../settings/options.js';
import type { Token, TokenCallback, TokenReason } from '../values.js';
import { within } from './waiting.js';

/** Maximum tokens that are hidden in the texts of servers. */
const KEPT = 9;

interface Call {
  readonly answer: Promise<Token>;
  readonly abort: AbortController;
  waiting: number;
}

/** Tokens for socket and HTTP: one callback at a time, whose result both share (AUTH-1). */
export class TokenSource {
  /** The last token, or the fixed token of the program. */
  last: Token | undefined;
  /** The values of the last tokens of socket and HTTP: a server may quote any of them. */
  private _values: readonly string[];
  private readonly _callback: TokenCallback | undefined;
  private _call: Call | undefined;
  private _fetchedAt = 0;
  private _life: number | undefined;

  constructor(
    { token, getToken }: ClientOptions,
    private readonly _clock: Clock,
  ) {
    this._callback = getToken;
    this.last = token === undefined ? undefined : { value: token };
    this._values = [token ?? ''];
  }

  /**
   * Get a token from the program. Concurrent calls share the result. In a prerendered page, wait
   * until the user opens it.
   *
   * @param signal Stops the wait. The signal of the callback is aborted when no call waits.
   * @throws InvalidOption The callback did not return a token.
   */
  async fetch(reason: TokenReason, attempt: number, signal?: AbortSignal): Promise<Token> {
    // Even in an open page, the callback runs later: the session asks within a step, and the callback
    // may use the client.
    await untilOpened();
    signal?.throwIfAborted();
    if (!this._callback) return this.last as Token;
    const call = this._call ?? this._begin(this._callback, reason, attempt);
    this._call = call;
    call.waiting += 1;
    try {
      return (await within(call.answer, { signal })) as Token;
    } finally {
      call.waiting -= 1;
      if (!call.waiting && this._call === call) {
        this._call = undefined;
        call.abort.abort();
      }
    }
  }

  /** A text of a server without the tokens. */
  _redacted(text: string): string {
    return this._values.reduce(withoutToken, text);
  }

  /** Remove the tokens from what a server says about an error. */
  _redact(error: object): void {
    const texts = error as Record<string, unknown>;
    for (const name in texts) {
      if (typeof texts[name] === 'string') texts[name] = this._redacted(texts[name]);
    }
  }

  /**
   * Record the remaining lifetime of the token, as stated by the server.
   *
   * Tokens of one issuer usually have the same lifetime. So a later token without a known expiry is
   * not kept for longer, and one that expired while the client was offline is renewed before it is
   * used (AUTH-7). A wrong guess costs one call of the callback.
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
      const field = DEVELOPMENT && value !== given && given ? 'getToken().value' : 'getToken()';
      if (DEVELOPMENT && Object(given) === given && !(value && isTime(expiresAt ?? 0))) {
        (await import('../settings/hints.js')).checkAnswer(given as Token);
      }
      const token = { value: checkToken(value, field), expiresAt: expiresAt ?? guess };
      if (!abort.signal.aborted) {
        this._fetchedAt = this._clock.now();
        this._values = [...new Set([token.value, ...this._values])].slice(0, KEPT);
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
 * The reason why there is no token, in words. The text of a foreign error may contain a secret; its
 * class and, in the development build, its position do not.
 */
export function tokenProblem(error: unknown): string {
  if (error instanceof PubSubError) return error.message;
  const thrown: Partial<Error> = error instanceof Error ? error : { name: typeof error };
  return `getToken threw ${thrown.name}${DEVELOPMENT ? placeOf(thrown) : ''}.`;
}

/** Where an error was thrown, for its text: the first frame, as V8 or another engine writes it. */
function placeOf({ message, stack }: Partial<Error>): string {
  // Without the text, whose lines may look like frames.
  const frames = String(stack).replace(message as string, '');
  const place = frames.match(/^( +at |\S*?@)(.+:\d.*)/m)?.[2];
  return place ? ` at ${place}` : '';
}

/**
 * The HTTP API on `fetch`.
 *
 * A call is repeated while its time lasts: after a refusal that asks to wait (429, 503), and after
 * an answer that got lost where asking twice does no more than asking once. `Retry-After` is the
 * least wait, full jitter spreads what is above it.
 */

import type { Clock } from '../clock.js';
import { ConnectionFailed, OperationTimeout, ProtocolError, PubSubError } from '../errors.js';
import { bareToken } from '../settings/checks.js';
import type { ClientOptions } from '../settings/options.js';
import { type Call, readError } from './calls.js';
import { statusOf } from './status.js';

/** The server says that it did nothing, and that later it may. */
const NOT_DONE = new Set([429, 503]);

/** Where the token of a request comes from. */
export interface Tokens {
  /** A token, as good as is known. */
  current(signal?: AbortSignal): Promise<string>;
  /** Another one, after the server refused `rejected`; undefined if there is none. */
  replace(rejected: string, signal?: AbortSignal): Promise<string | undefined>;
}

/** How long and for whom a call is made. */
export interface Limits {
  /** Milliseconds for all attempts. */
  readonly timeout: number;
  /** At most so many; default `restAttempts`. */
  readonly attempts?: number | undefined;
  readonly signal?: AbortSignal | undefined;
}

interface Failed {
  readonly error: PubSubError;
  /** Whether it may be repeated. */
  readonly again: boolean;
  /** Whether the server may have done it. */
  readonly unknown: boolean;
}

/** Performs calls of the HTTP API. */
export class Rest {
  /** What the peer can do, as `auth.ok` said; undefined where that is not known. */
  features: ReadonlySet<string> | undefined;

  /**
   * @param _options `httpUrl`, `restAttempts`, `retry`, `maxFrame` and `fetch` are used.
   * @param _tokens Asked before each request; a refused one is replaced once.
   * @param _clock Waits between attempts.
   * @param _random Numbers from 0 up to 1, for the jitter.
   */
  constructor(
    private readonly _options: ClientOptions,
    private readonly _tokens: Tokens,
    private readonly _clock: Clock,
    private readonly _random: () => number,
  ) {}

  /**
   * Perform a call, repeating it as its kind allows.
   *
   * @throws PubSubError One of the tree; `OperationTimeout.outcomeUnknown` tells whether the server
   *   may have done it all the same.
   */
  async perform<T>(call: Call<T>, { timeout, attempts, signal }: Limits): Promise<T> {
    const { topic, id } = call;
    signal?.throwIfAborted();
    const limit = new AbortController();
    const give = (): void => limit.abort();
    const timer = this._clock.callLater(timeout, give);
    signal?.addEventListener('abort', give);
    let unknown = false;
    try {
      for (let attempt = 1; ; attempt += 1) {
        const made = await this._attempt(call, limit.signal);
        if ('result' in made) return made.result;
        const { error, again } = made;
        unknown ||= made.unknown;
        if (!again || attempt >= (attempts ?? this._options.restAttempts)) {
          // The last attempt did nothing, but an earlier one may have.
          throw unknown && !made.unknown && call.publishes ? lost(call, error) : error;
        }
        const { base, cap } = this._options.retry;
        const jitter = this._random() * Math.min(cap, base * 2 ** (attempt - 1));
        await this._sleep(Math.max(jitter, error.retryAfter ?? 0), limit.signal);
      }
    } catch (error) {
      signal?.throwIfAborted();
      if (!limit.signal.aborted || error instanceof PubSubError) throw error;
      throw new OperationTimeout(`No answer within ${timeout} ms.`, {
        topic,
        id,
        outcomeUnknown: call.publishes ?? false,
      });
    } finally {
      timer.cancel();
      signal?.removeEventListener('abort', give);
    }
  }

  private async _attempt<T>(
    call: Call<T>,
    signal: AbortSignal,
  ): Promise<Failed | { readonly result: T }> {
    const token = await this._tokens.current(signal);
    let answer: { readonly response: Response; readonly body: string };
    try {
      answer = await this._exchange(call, token, signal);
      if (answer.response.status === 401) {
        const other = await this._tokens.replace(token, signal);
        if (other !== undefined) answer = await this._exchange(call, other, signal);
      }
    } catch (cause) {
      if (signal.aborted || cause instanceof PubSubError) throw cause;
      const again = this._isRepeatable(call);
      if (call.publishes) return { error: lost(call, cause), again, unknown: true };
      const reason = `${new URL(this._options.httpUrl).hostname} cannot be reached.`;
      const { topic } = call;
      return { error: new ConnectionFailed(reason, { topic, cause }), again, unknown: false };
    }
    const { response, body } = answer;
    const { headers } = response;
    const status = statusOf(response);
    if (response.ok) return { result: call.read(body) };
    const unknown = status >= 500 && !NOT_DONE.has(status) && status !== 501;
    return {
      error: readError(status, headers, body, this._clock.wallMs(), call.topic),
      again: NOT_DONE.has(status) || (unknown && this._isRepeatable(call)),
      unknown,
    };
  }

  private async _exchange<T>(
    call: Call<T>,
    token: string,
    signal: AbortSignal,
  ): Promise<{ response: Response; body: string }> {
    const { fetch, httpUrl, maxFrame } = this._options;
    const response = await fetch(`${httpUrl}${call.path}`, {
      method: call.method,
      headers: {
        Authorization: `Bearer ${bareToken(token)}`,
        ...(call.body === undefined ? {} : { 'Content-Type': 'application/json' }),
        ...call.headers,
      },
      ...(call.body === undefined ? {} : { body: call.body }),
      // A redirect would carry the token away.
      redirect: 'manual',
      credentials: 'omit',
      cache: 'no-store',
      signal,
    });
    return { response, body: await readBody(response, maxFrame) };
  }

  private _sleep(milliseconds: number, signal: AbortSignal): Promise<void> {
    return new Promise((resolve, reject) => {
      const timer = this._clock.callLater(milliseconds, () => {
        signal.removeEventListener('abort', give);
        resolve();
      });
      const give = (): void => {
        timer.cancel();
        reject(signal.reason);
      };
      if (signal.aborted) give();
      else signal.addEventListener('abort', give);
    });
  }

  private _isRepeatable<T>(call: Call<T>): boolean {
    return !call.publishes || this.features === undefined || this.features.has('idempotency');
  }
}

async function readBody(response: Response, limit: number): Promise<string> {
  const reader = response.body?.getReader();
  if (!reader) return '';
  const decoder = new TextDecoder();
  let text = '';
  for (let size = 0; ; ) {
    const { done, value } = await reader.read();
    if (done) return text + decoder.decode();
    size += value.length;
    if (size > limit) {
      await reader.cancel();
      throw new ProtocolError(`The server's answer has more than ${limit} bytes.`, {
        remedy: 'Ask for smaller pages, or raise `maxFrame`.',
      });
    }
    text += decoder.decode(value, { stream: true });
  }
}

function lost<T>({ topic, id }: Call<T>, cause: unknown): OperationTimeout {
  return new OperationTimeout(undefined, { code: 'outcome_unknown', topic, id, cause });
}

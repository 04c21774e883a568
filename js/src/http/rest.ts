/**
 * The HTTP API on `fetch`.
 *
 * A call is repeated until its timeout: after an answer that asks to wait (429, 503), and after a
 * lost answer if the request is idempotent. The wait is `Retry-After` or the backoff with full
 * jitter, whichever is longer.
 */

import { DEVELOPMENT } from '../build.js';
import type { Clock } from '../clock.js';
import { compact } from '../compact.js';
import {
  ConnectionFailed,
  NotFound,
  OperationTimeout,
  ProtocolError,
  PubSubError,
  Unsupported,
} from '../errors.js';
import type { ErrorInfo, Publication, PublishResult } from '../generated/wire.js';
import { within } from '../runtime/waiting.js';
import type { ClientOptions } from '../settings/options.js';
import { doubtAddress } from './address.js';
import { type Call, publish, publishBatch } from './calls.js';
import { describeAnswer, readError } from './problems.js';
import { remedyOf } from './remedies.js';
import { ask, statusOf, textOf } from './request.js';

/** The server reports that it did nothing, and that a later attempt may succeed. */
const NOT_DONE: readonly number[] = [429, 503];

/** Error codes of Node for a connection that could not be opened. */
const NOT_SENT: readonly string[] = ['ECONNREFUSED', 'ENOTFOUND', 'EAI_AGAIN'];

const FOREIGN =
  'Check that the URL is that of a PubSub server, and that no login page or proxy answers instead.';

const NO_TIME = 'The timeout was over before the request was sent.';

/** The source of tokens for requests. */
export interface Tokens {
  /** A token that is valid as far as known. */
  current(signal?: AbortSignal): Promise<string>;
  /** Another one, after the server rejected `rejected`; undefined if there is none. */
  replace(rejected: string, signal?: AbortSignal): Promise<string | undefined>;
  /** The server did not reject the last token. */
  accepted?(): void;
}

/** Timeout and signal of a call. */
export interface Limits {
  /** Milliseconds of the call, for the text of an error. */
  readonly timeout: number;
  /** The deadline of all attempts by the clock; default: after `timeout`. */
  readonly end?: number | undefined;
  /** Maximum number of attempts; default `restAttempts`. */
  readonly attempts?: number | undefined;
  readonly signal?: AbortSignal | undefined;
  /** Aborted when the client has ended; undefined for a call that `close` waits for. */
  readonly over?: AbortSignal | undefined;
}

/** All attempts of a call. */
interface Run {
  /** Deadline by the clock. */
  readonly end: number;
  /** Aborted at the end. */
  readonly signal: AbortSignal;
  /** Whether the server may have published it. */
  outcomeUnknown?: boolean | undefined;
}

/** The result of one attempt, or its error. */
type Attempt<T> =
  | { readonly result: T }
  | {
      /** What to throw if it was the last attempt. */
      readonly error: PubSubError;
      /** Whether it may be repeated. */
      readonly again?: boolean;
      /** Whether the server may have performed it. */
      readonly unknown?: boolean;
    };

/** Performs calls of the HTTP API. */
export class Rest {
  /** Features of the peer from `auth.ok`; undefined if unknown. */
  features: ReadonlySet<string> | undefined;
  private _batchless = false;

  /**
   * @param _options `httpUrl`, `restAttempts`, `retry`, `maxFrame` and `fetch` are used.
   * @param _tokens Called before each request; a rejected token is replaced once.
   * @param _clock Waits between attempts.
   * @param _random Numbers from 0 up to 1, for the jitter.
   */
  constructor(
    private readonly _options: ClientOptions,
    private readonly _tokens: Tokens,
    private readonly _clock: Clock,
    private readonly _random: () => number,
  ) {}

  /** Whether the peer accepts batches, as far as known. */
  get hasBatch(): boolean {
    return !this._batchless && this.features?.has('batch') !== false;
  }

  /**
   * Perform a call, and repeat it if possible.
   *
   * @throws PubSubError Any class of the tree; `OperationTimeout.outcomeUnknown` shows whether the
   *   server may have performed it.
   */
  async perform<T>(
    call: Call<T>,
    { timeout, end = this._clock.now() + timeout, attempts, signal, over }: Limits,
  ): Promise<T> {
    signal?.throwIfAborted();
    const { topic, id } = call;
    const abort = new AbortController();
    const run: Run = { end, signal: abort.signal };
    const hasTime = end > this._clock.now();
    if (hasTime) {
      const answer = this._repeat(call, run, attempts ?? this._options.restAttempts);
      const result = await within(
        within(answer, { signal: over }),
        { signal, end },
        this._clock,
      ).finally(() => abort.abort());
      if (result) return result;
    }
    const { outcomeUnknown } = run;
    const message = DEVELOPMENT && !hasTime ? NO_TIME : `No answer within ${timeout} ms.`;
    throw new OperationTimeout(message, { topic, id, outcomeUnknown });
  }

  /**
   * Publish in order: in one batch if the peer accepts batches, otherwise one by one; one result
   * each.
   *
   * @throws PubSubError All messages went in one request, and it failed.
   */
  async publish(messages: readonly Publication[], given: Limits): Promise<PublishResult[]> {
    const [first] = messages;
    const limits = { end: this._clock.now() + given.timeout, ...given };
    if (first && messages.length === 1) return [await this.perform(publish(first), limits)];
    if (this.hasBatch) {
      try {
        return await this.perform(publishBatch(messages), limits);
      } catch (error) {
        if (!(error instanceof NotFound || error instanceof Unsupported)) throw error;
        this._batchless = true;
      }
    }
    const results: PublishResult[] = [];
    for (const message of messages) {
      try {
        results.push(await this.perform(publish(message), limits));
      } catch (error) {
        if (!(error instanceof PubSubError)) throw error;
        results.push(compact<PublishResult>({ id: message.id, error: errorInfo(error) }));
      }
    }
    return results;
  }

  private async _repeat<T>(call: Call<T>, run: Run, attempts: number): Promise<T> {
    const { retryBase: base, retryCap: cap } = this._options;
    for (let attempt = 1; ; attempt += 1) {
      const { outcomeUnknown: before } = run;
      const made = await this._attempt(call, run);
      if ('result' in made) return made.result;
      const { error, again, unknown } = made;
      const jitter = this._random() * Math.min(cap, base * 2 ** (attempt - 1));
      const wait = Math.max(jitter, error.retryAfter ?? 0);
      const next = this._clock.now() + wait;
      if (!again || attempt >= attempts || next >= run.end) {
        // The last attempt had no effect, but an earlier one may have.
        throw before && !unknown ? lost(call, error) : error;
      }
      run.outcomeUnknown = before || (call.isPublish && unknown);
      await within(new Promise(() => {}), { signal: run.signal, end: next }, this._clock);
    }
  }

  private async _attempt<T>(call: Call<T>, run: Run): Promise<Attempt<T>> {
    const { topic, isPublish } = call;
    const { maxFrame, httpUrl, httpDerived } = this._options;
    const { host } = new URL(httpUrl);
    const { signal } = run;
    const doubt = DEVELOPMENT ? doubtAddress(this._options) : undefined;
    const mayRepeat = !isPublish || this.features?.has('idempotency') !== false;
    let response: Response;
    let body: string;
    let token = '';
    try {
      token = await this._tokens.current(signal);
      run.outcomeUnknown = isPublish;
      response = await ask(this._options, token, call, signal);
      const other = response.status === 401 && (await this._tokens.replace(token, signal));
      if (other) {
        token = other;
        response = await ask(this._options, token, call, signal);
      }
      body = await textOf(response, maxFrame);
    } catch (cause) {
      if (signal.aborted) throw cause;
      if (cause instanceof PubSubError) return { error: cause };
      if (cause instanceof RangeError) {
        throw new ProtocolError(`The server's answer has more than ${maxFrame} bytes.`, {
          remedy: 'Request smaller pages, or raise `maxFrame`.',
        });
      }
      if (isPublish && !(DEVELOPMENT && NOT_SENT.includes(codeOf(cause)))) {
        const who = DEVELOPMENT && httpDerived ? `${host}, which was derived from \`url\`,` : host;
        const why = DEVELOPMENT
          ? `${reasonOf(cause)}; whether the message was published is unknown`
          : '';
        const problem = `${who} did not answer${why}.`;
        return { error: lost(call, cause, problem), again: mayRepeat, unknown: true };
      }
      // Browsers hide the reason.
      const problem = `${host} cannot be reached${DEVELOPMENT ? reasonOf(cause) : ''}.`;
      const error = new ConnectionFailed(problem, {
        topic,
        cause,
        ...(DEVELOPMENT && { remedy: bothOf(httpDerived ? doubt?.remedy : '', remedyOf(problem)) }),
      });
      return { error, again: true };
    }
    if (response.status !== 401) this._tokens.accepted?.();
    if (response.ok) {
      try {
        return { result: call.read(body) };
      } catch (strange) {
        if (!(strange instanceof ProtocolError)) throw strange;
        const answered = `${host} answered ${call.method} ${call.path} with ${describeAnswer(response, body)}.`;
        const unknown = isPublish ? ' Whether the message was published is unknown.' : '';
        const why = DEVELOPMENT ? ` ${strange.message}` : '';
        throw new ProtocolError(`${answered}${why}${unknown}`, {
          topic,
          ...(DEVELOPMENT && { remedy: bothOf(FOREIGN, doubt?.remedy) }),
        });
      }
    }
    const status = statusOf(response);
    const refused = NOT_DONE.includes(status);
    const unknown = status >= 500 && !refused && status !== 501;
    const error = readError(response, body, this._clock.wallMs(), {
      host,
      token,
      topic,
      ...(DEVELOPMENT && doubt),
    });
    return { error, again: refused || (unknown && mayRepeat), unknown };
  }
}

/** Two remedies as one. */
function bothOf(...remedies: (string | undefined)[]): string | undefined {
  return remedies.filter(Boolean).join(' ') || undefined;
}

/** An error as the result of one message. */
export function errorInfo(error: PubSubError): ErrorInfo {
  const { code, message, remedy, retryAfter, topic, field } = error;
  const unknown = error instanceof OperationTimeout && error.outcomeUnknown;
  return compact<ErrorInfo>({
    code: (unknown ? 'outcome_unknown' : code) as ErrorInfo['code'],
    message,
    remedy,
    retry_after_ms: retryAfter,
    topic,
    field,
  });
}

/** Why a request failed, as the end of a sentence; empty if the platform hides it. */
function reasonOf(error: unknown): string {
  const code = codeOf(error);
  return code && `: ${code}`;
}

/** The platform's code for a failed request, if it has one; its text may contain secrets. */
function codeOf(error: unknown): string {
  const { code } = Object(Object(error).cause);
  return /^[A-Z][A-Z_\d]+$/.test(code) ? code : '';
}

function lost<T>({ topic, id }: Call<T>, cause: unknown, message?: string): OperationTimeout {
  return new OperationTimeout(message, { code: 'outcome_unknown', topic, id, cause });
}

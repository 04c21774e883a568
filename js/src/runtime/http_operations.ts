/** Operations over HTTP: history, presence, topics, publishes; and their tokens. */

import { DEVELOPMENT } from '../build.js';
import { fromCode, NotFound, OperationTimeout, PermissionDenied, PubSubError } from '../errors.js';
import type { Occupancy, TopicInfo } from '../generated/http.js';
import type { Envelope, PresenceMember, Publication } from '../generated/wire.js';
import * as calls from '../http/calls.js';
import { beyond, type PageCursor } from '../http/page_cursor.js';
import { type Limits, Rest, type Tokens } from '../http/rest.js';
import type { Acked } from '../session/ports.js';
import { checkNumber, checkType, invalid, kind } from '../settings/checks.js';
import { checkName } from '../topic_names.js';
import type { Message, Published, Since, TokenReason } from '../values.js';
import { isObject } from '../wire/guard.js';
import type { Client } from './environment.js';
import { unixMs } from './times.js';
import { tokenProblem } from './tokens.js';
import { type Timed, within } from './waiting.js';

/** Milliseconds after which a missing HTTP API is tried again. */
const ASK_AGAIN = 60_000;

/** Selects retained messages. */
export interface HistoryOptions {
  /** Only messages newer than this time: Unix milliseconds or a Date. */
  readonly since?: Since | undefined;
  /**
   * Only messages older than this one: a message of the topic, what `publish` returned, a position
   * (`seq`), or an id. What `publish` returned must be for a message of this topic that history
   * retains. Several senders can use the same id, so prefer a message or a position. If no retained
   * message has the id, there are none. Not together with `after`.
   */
  readonly before?: Message | Pick<Published, 'id' | 'seq'> | number | string | undefined;
  /**
   * Only messages after this position; the client requests further pages during the iteration.
   * History reports no gap: where the server no longer retains messages, also because it removed
   * them during the iteration, `seq` has a hole.
   */
  readonly after?: number | undefined;
  /** Maximum number of messages: the newest, or with `after` the first. */
  readonly limit?: number | undefined;
  /** Milliseconds for each page; default `operationTimeout`. */
  readonly timeout?: number | undefined;
  /** Cancels the call; the iteration then rejects with the reason of the signal. */
  readonly signal?: AbortSignal | undefined;
}

function checkSelection(topic: string, { before, after, limit }: HistoryOptions): void {
  const { MAX_SAFE_INTEGER: most } = Number;
  if (before !== undefined) {
    checkEnd(topic, before);
    if (after !== undefined) {
      throw invalid('after', 'cannot be used together with `before`', 'Leave out one of them.');
    }
  }
  if (after !== undefined) checkNumber('after', after, [0, most, 'a position']);
  // Infinity selects all messages, as undefined does.
  if (limit !== undefined && limit !== Infinity)
    checkNumber('limit', limit, [0, Infinity, 'a number of messages']);
}

function checkEnd(topic: string, before: NonNullable<HistoryOptions['before']>): void {
  const remedy = 'Pass a message, a position, or the id of a message.';
  if (typeof before === 'number') {
    checkNumber('before', before, [0, Number.MAX_SAFE_INTEGER, 'a position']);
    return;
  }
  const given: object = isObject(before) ? before : { id: before };
  const { id, seq, topic: other, ttl } = given as Partial<Message>;
  if (typeof id !== 'string') {
    const isMissing = given === before && (id ?? undefined) === undefined;
    throw isMissing
      ? invalid('before', 'has no `id`', remedy)
      : invalid(given === before ? 'before.id' : 'before', `is ${kind(id)}`, remedy);
  }
  if (id === '') throw invalid('before', 'is empty', remedy);
  if (seq !== undefined) checkNumber('before.seq', seq, [0, Number.MAX_SAFE_INTEGER, 'a position']);
  const fitting = `Pass a message from the history of ${topic}, or a position.`;
  if (other !== undefined && other !== topic)
    throw invalid('before', `is a message of the topic ${other}`, fitting);
  if (ttl === 0) throw invalid('before', 'is a message with `ttl` 0, which history omits', fitting);
}

/** The messages of a page, until the call is cancelled. */
function* unaborted(page: readonly Envelope[], { signal }: Timed): Generator<Message> {
  for (const message of page) {
    signal?.throwIfAborted();
    yield message;
  }
}

/** @internal The HTTP side of a client. Its requests use the token of the socket until it expires. */
export class HttpApi implements Tokens {
  private readonly _rest: Rest;
  private _rejections = 0;
  private _found = false;
  private _askAgain = 0;

  constructor(private readonly _client: Client) {
    const { options, environment, clock } = _client;
    this._rest = new Rest(options, this, clock, environment.random);
  }

  /**
   * Publish after earlier publishes over HTTP.
   *
   * @param certain The program requested HTTP; otherwise, first check that the API exists.
   * @param before Resolves when these are settled.
   * @returns Undefined if there is no API and nothing was published.
   */
  async publish(
    messages: readonly Publication[],
    options: Timed,
    certain: boolean,
    before: Promise<unknown> | undefined,
  ): Promise<Acked | undefined> {
    const { topic = '', id } = messages[0] ?? {};
    if (!(await within(Promise.allSettled([before]), options, this._client.clock))) {
      throw new OperationTimeout(undefined, { topic, id });
    }
    if (!certain && !(await this._isThere(topic, options))) return undefined;
    return { kind: 'acked', results: await this._api.publish(messages, options) };
  }

  /** Check once, with a read-only request that every HIP-56 server supports. */
  private async _isThere(topic: string, options: Timed): Promise<boolean> {
    const { clock } = this._client;
    if (this._found || clock.now() < this._askAgain) return this._found;
    // Without an API, the rest of the time is for the connection.
    const end = (clock.now() + options.end) / 2;
    try {
      await this._api.perform(calls.history(topic, { limit: 1 }), { ...options, end, attempts: 1 });
      this._found = true;
    } catch (error) {
      options.signal?.throwIfAborted();
      this._found = error instanceof PermissionDenied;
      this._askAgain = clock.now() + ASK_AGAIN;
    }
    return this._found;
  }

  async presence(topic: string, options: Timed): Promise<PresenceMember[]> {
    return this._perform(calls.presence(checkName(topic, 'topic')), options);
  }

  /** The number of members of a topic, counted here if the server does not count them. */
  async occupancy(topic: string, options: Timed): Promise<Occupancy> {
    try {
      return await this._perform(calls.occupancy(checkName(topic, 'topic')), options);
    } catch (error) {
      if (!(error instanceof NotFound)) throw error;
      const members = await this.presence(topic, options);
      const users = new Set(members.map(({ user_id, client_id }) => user_id || client_id)).size;
      return { members: members.length, users };
    }
  }

  topics(
    prefix: string | undefined,
    options: Timed & { readonly limit?: number | undefined },
  ): Promise<TopicInfo[]> {
    const { limit } = options;
    if (DEVELOPMENT) {
      checkType('prefix', prefix, 'string', 'Give the beginning of topics.');
      if (limit !== undefined) checkNumber('limit', limit, [1, 1000, 'a number of topics']);
    }
    return this._perform(calls.topics(prefix, limit), options);
  }

  /**
   * Retained messages of a topic, oldest first; the timeout has begun for the first page.
   *
   * Messages after a position are yielded page by page. The newest messages are read backwards and
   * then yielded in order: the log of a topic is limited, and so are the pages kept. A message that
   * is trimmed in the meantime is the oldest and ends the reading.
   */
  async *history(topic: string, options: HistoryOptions & Timed): AsyncGenerator<Message> {
    checkName(topic, 'topic');
    if (DEVELOPMENT) checkSelection(topic, options);
    const since = options.since === undefined ? undefined : unixMs(options.since);
    const { before: end, after } = options;
    const { id: before, seq: before_seq }: Partial<Pick<Published, 'id' | 'seq'>> =
      typeof end === 'object' ? (end ?? {}) : { [typeof end === 'string' ? 'id' : 'seq']: end };
    const query = { since, before, before_seq, after };
    let cursor: PageCursor | undefined = { query, newest: after };
    const pages: (readonly Envelope[])[] = [];
    let { limit: left = Infinity } = options;
    let limits: Limits = options;
    while (cursor && left > 0) {
      const limit = Math.min(left, this._client.options.historyPage);
      let page: calls.Page;
      try {
        page = await this._perform(calls.history(topic, { ...cursor.query, limit }), limits);
      } catch (error) {
        if (!pages.length || !(error instanceof NotFound)) throw error;
        break;
      }
      limits = { ...options, end: undefined };
      cursor = beyond(cursor, page, topic);
      if (!cursor) break;
      const { messages, has_more } = page;
      left = has_more ? left - messages.length : 0;
      if (after === undefined) pages.push(messages);
      else yield* unaborted(messages, options);
    }
    yield* unaborted(pages.reverse().flat(), options);
  }

  /** Read; the end of the client cancels it. */
  private _perform<T>(call: calls.Call<T>, limits: Limits): Promise<T> {
    return this._api.perform(call, { ...limits, over: this._client.over });
  }

  private get _api(): Rest {
    this._rest.features = this._client.peer?.features;
    return this._rest;
  }

  // ---------------------------------------------------------------- tokens of the requests

  async current(signal?: AbortSignal): Promise<string> {
    const { clock, tokens } = this._client;
    const { last } = tokens;
    if (!last || Number(last.expiresAt) <= clock.wallMs()) {
      return this._ask(last ? 'expiring' : 'connect', 0, signal);
    }
    return last.value;
  }

  async replace(rejected: string, signal?: AbortSignal): Promise<string | undefined> {
    const { options, tokens } = this._client;
    if (!options.renewable) return undefined;
    let other = tokens.last?.value;
    if (other === rejected) {
      other = await this._ask('rejected', this._rejections, signal);
      this._rejections += 1;
    }
    return other === rejected ? undefined : other;
  }

  accepted(): void {
    this._rejections = 0;
  }

  private async _ask(
    reason: TokenReason,
    attempt: number,
    signal: AbortSignal | undefined,
  ): Promise<string> {
    try {
      return (await this._client.tokens.fetch(reason, attempt, signal)).value;
    } catch (error) {
      if (error instanceof PubSubError || signal?.aborted) throw error;
      throw fromCode('token_unavailable', tokenProblem(error), { cause: error });
    }
  }
}

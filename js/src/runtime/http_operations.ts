/** What a client does over HTTP: history, presence, topics, publishes. */

import type { Clock } from '../clock.js';
import { NotFound, PubSubError, Unsupported } from '../errors.js';
import type {
  AuthOkFrame,
  Envelope,
  HistoryPage,
  PresenceMember,
  PublishResult,
  TopicInfo,
} from '../generated/wire.js';
import * as calls from '../http/calls.js';
import { type Limits, Rest } from '../http/rest.js';
import type { ClientOptions } from '../settings/options.js';
import type { Message, Since } from '../values.js';
import type { Prepared } from './publishing.js';
import { unixMs } from './times.js';
import type { TokenSource } from './tokens.js';

/** Which of the retained messages. */
export interface HistoryOptions {
  /** Only what is newer. */
  readonly since?: Since | undefined;
  /** Only what is older than the message of this id. */
  readonly before?: string | undefined;
  /** Only what follows this position; then pages are read as the iteration goes on. */
  readonly after?: number | undefined;
  /** At most so many: the newest, or with `after` the first. */
  readonly limit?: number | undefined;
  /** Milliseconds for each page; default `operationTimeout`. */
  readonly timeout?: number | undefined;
  readonly signal?: AbortSignal | undefined;
}

/** The HTTP side of a client. */
export class HttpApi {
  private readonly _rest: Rest;
  private _order: Promise<unknown> = Promise.resolve();

  /**
   * @param _options Addresses and bounds.
   * @param tokens Shared with the socket.
   * @param clock Time.
   * @param random For the jitter of retries.
   */
  constructor(
    private readonly _options: ClientOptions,
    tokens: TokenSource,
    clock: Clock,
    random: () => number,
  ) {
    this._rest = new Rest(_options, tokens, clock, random);
  }

  /** Take note of what the server can do. */
  learn(frame: AuthOkFrame): void {
    this._rest.features = new Set(frame.version === undefined ? [] : frame.features);
  }

  /** Publish after what was published so before; one result a message, in order. */
  async publish(items: readonly Prepared[], limits: Limits): Promise<PublishResult[]> {
    const turn = this._order.then(() => this._publish(items, limits));
    this._order = turn.catch(() => {});
    return turn;
  }

  private async _publish(items: readonly Prepared[], limits: Limits): Promise<PublishResult[]> {
    const messages = items.map(({ publication }) => publication);
    if (messages.length > 1 && this._rest.features?.has('batch') !== false) {
      try {
        return await this._rest.perform(calls.publishBatch(messages), limits);
      } catch (error) {
        if (!(error instanceof NotFound || error instanceof Unsupported)) throw error;
      }
    }
    const results: PublishResult[] = [];
    for (const message of messages) {
      try {
        results.push(await this._rest.perform(calls.publish(message), limits));
      } catch (error) {
        if (!(error instanceof PubSubError) || messages.length === 1) throw error;
        results.push({ error: calls.errorInfo(error) });
      }
    }
    return results;
  }

  /** Everybody present on a topic. */
  presence(topic: string, limits: Limits): Promise<PresenceMember[]> {
    return this._rest.perform(calls.presence(topic), limits);
  }

  /** Active topics. */
  topics(
    prefix: string | undefined,
    limit: number | undefined,
    limits: Limits,
  ): Promise<TopicInfo[]> {
    return this._rest.perform(calls.topics(prefix, limit), limits);
  }

  /** Retained messages of a topic, oldest first. */
  history(topic: string, options: HistoryOptions, limits: Limits): AsyncGenerator<Message> {
    const { since, before, after, limit } = options;
    const query = { since: since === undefined ? undefined : unixMs(since), before };
    return after === undefined
      ? this._backward(topic, query, limit, limits)
      : this._forward(topic, query, after, limit, limits);
  }

  /** Pages that follow a position, each yielded before the next is asked for. */
  private async *_forward(
    topic: string,
    query: calls.HistoryQuery,
    start: number,
    limit: number | undefined,
    limits: Limits,
  ): AsyncGenerator<Message> {
    let after = start;
    for (let left = limit ?? Number.POSITIVE_INFINITY; left > 0; ) {
      const size = Math.min(left, this._options.historyPage);
      const asked = calls.history(topic, { ...query, after, limit: size });
      const page = await this._rest.perform(asked, limits);
      for (const message of page.messages) {
        yield message;
        after = Math.max(after, message.seq ?? 0);
      }
      left -= page.messages.length;
      if (!page.has_more || !page.messages.length) return;
    }
  }

  /**
   * The newest pages, read back to the oldest wanted and then yielded in order.
   *
   * The log of a topic is bounded, so this is too; a message that is trimmed meanwhile is the oldest
   * and ends it.
   */
  private async *_backward(
    topic: string,
    query: calls.HistoryQuery,
    limit: number | undefined,
    limits: Limits,
  ): AsyncGenerator<Message> {
    const pages: (readonly Envelope[])[] = [];
    let { before } = query;
    for (let left = limit ?? Number.POSITIVE_INFINITY; left > 0; ) {
      const size = Math.min(left, this._options.historyPage);
      const asked = calls.history(topic, { ...query, before, limit: size });
      let page: HistoryPage;
      try {
        page = await this._rest.perform(asked, limits);
      } catch (error) {
        if (!pages.length || !(error instanceof NotFound)) throw error;
        break;
      }
      const [oldest] = page.messages;
      if (!oldest) break;
      pages.push(page.messages);
      before = oldest.id;
      left -= page.messages.length;
      if (!page.has_more) break;
    }
    for (const messages of pages.reverse()) yield* messages;
  }
}

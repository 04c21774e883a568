/** The operations of a client. */

import type { Clock } from '../clock.js';
import {
  ClosedError,
  ConnectionFailed,
  fromCode,
  OperationTimeout,
  PubSubError,
} from '../errors.js';
import type { JsonObject, PresenceMember, PublishResult, TopicInfo } from '../generated/wire.js';
import type { Limits } from '../http/rest.js';
import type { Outcome } from '../session/effects.js';
import type { Publish, Subscribe } from '../session/events.js';
import { Session } from '../session/session.js';
import { checkTime } from '../settings/checks.js';
import { type ClientOptions, sessionOptionsOf } from '../settings/options.js';
import { validateTopic } from '../topics.js';
import type {
  ClientEvents,
  Gap,
  Message,
  Published,
  StateChange,
  StateName,
  Via,
} from '../values.js';
import { checkData } from '../wire/payloads.js';
import { Driver, type Place } from './driver.js';
import { type Handler, Listener } from './handlers.js';
import { type HistoryOptions, HttpApi } from './http_operations.js';
import type { Inbox } from './inbox.js';
import { PRESENCE_UPDATE, type Prepared, prepare, splitItem, Turnstile } from './publishing.js';
import { reasonOf, StateStream } from './states.js';
import { dial } from './surroundings.js';
import { TokenSource, untilAborted } from './tokens.js';

/** A batch is sent in frames of at most so many bytes of payload. */
const CHUNK_BYTES = 1 << 20;

type Name = keyof ClientEvents;
type Listening = {
  readonly [K in Name]: Map<Handler<[ClientEvents[K]]>, Listener<ClientEvents[K]>>;
};

/** What every operation that waits takes. */
export interface Waiting {
  /** Milliseconds; default `operationTimeout`. */
  readonly timeout?: number | undefined;
  /** Gives up; the promise then rejects with its reason. */
  readonly signal?: AbortSignal | undefined;
}

/** What `publish` takes beside topic and message. */
export interface PublishOptions extends Waiting {
  /** Seconds it is kept in history; 0 keeps nothing. */
  readonly ttl?: number | undefined;
  /** Message id, at most 128 characters; default `msg_` and a ULID. */
  readonly id?: string | undefined;
  /** With the policy `latest`, a newer message of the key replaces one that is not sent yet. */
  readonly key?: string | undefined;
  /** `auto`: the open connection, or HTTP where that carries no publishes. */
  readonly via?: Via | undefined;
}

/** What a client does, once it is used. */
export class Operations {
  private readonly _tokens: TokenSource;
  private readonly _http: HttpApi;
  private readonly _session: Session;
  private readonly _driver: Driver;
  private readonly _turnstile: Turnstile;
  private readonly _streams = new Set<StateStream>();
  private readonly _listening: Listening = { state: new Map(), gap: new Map(), error: new Map() };
  private _refs = 0;
  private _subs = 0;

  /**
   * @param _options What the client is set to.
   * @param _clock Time and timers.
   * @param random A number from 0 inclusive to 1 exclusive.
   */
  constructor(
    private readonly _options: ClientOptions,
    private readonly _clock: Clock,
    random: () => number,
  ) {
    this._tokens = new TokenSource(_options, _clock);
    this._http = new HttpApi(_options, this._tokens, _clock, random);
    this._session = new Session(sessionOptionsOf(_options), random);
    this._driver = new Driver(
      this._session,
      _options,
      _clock,
      this._tokens,
      (name) => dial(name, _options, _clock, random),
      {
        state: (change) => this._stateChanged(change),
        error: (error) => this.report(error),
        welcome: (frame) => this._http.learn(frame),
        settled: () => this._turnstile.check(),
        finished: () => this._turnstile.open(),
      },
    );
    const { outbox } = this._session;
    this._turnstile = new Turnstile((count, size) => outbox.hasRoom(count, size), _clock);
  }

  // ---------------------------------------------------------------- life

  /** The state at this moment. */
  get state(): StateName {
    return this._driver.state;
  }

  /** The id the server gave. */
  get clientId(): string | undefined {
    return this._driver.clientId;
  }

  /** Connect, and wait until that is so; see `PubSub.connect`. */
  async connect({ timeout, signal }: Waiting): Promise<void> {
    const driver = this._driver;
    this._refuseEnded();
    signal?.throwIfAborted();
    driver.connect();
    const patience = this._patience(timeout);
    if (!(await driver.until(() => driver.state === 'connected', patience, signal))) {
      this._refuseEnded();
      throw new ConnectionFailed(
        `Not connected within ${patience} ms: ${reasonOf(driver.lastChange)}`,
      );
    }
  }

  /** End; see `PubSub.close`. */
  async close(timeout: number | undefined): Promise<void> {
    await this._driver.close(timeout);
    for (const stream of [...this._streams]) stream.finish();
  }

  /** Changes of state from now on. */
  states(): StateStream {
    const stream = new StateStream((ended) => this._streams.delete(ended));
    if (this._driver.finished) stream.finish();
    else this._streams.add(stream);
    return stream;
  }

  /** Have a function called with each event of a name; the result stops that. */
  on<K extends Name>(name: K, handler: Handler<[ClientEvents[K]]>): () => void {
    const listening = this._listening[name];
    const listener = new Listener<ClientEvents[K]>(handler, (error) => {
      // A listener of errors that throws must not be told of its own error.
      if (name === 'error') this._options.logger.error('A listener of errors threw', error);
      else this.report(error);
    });
    listening.set(handler, listener);
    return () => {
      if (listening.get(handler) === listener) listening.delete(handler);
    };
  }

  /** Tell the program of an error that no call can throw (ERR-1). */
  report(error: unknown): void {
    const told = error instanceof Error ? error : new Error(String(error));
    for (const listener of this._listening.error.values()) listener.tell(told);
    if (this._listening.error.size) return;
    if (told instanceof PubSubError) this._options.logger.error(`${told.code}: ${told.message}`);
    else this._options.logger.error('A handler threw', told);
  }

  /** Tell the listeners of a gap. */
  tellGap(gap: Gap): void {
    for (const listener of this._listening.gap.values()) listener.tell(gap);
  }

  private _stateChanged(change: StateChange): void {
    for (const listener of this._listening.state.values()) listener.tell(change);
    for (const stream of [...this._streams]) {
      stream.put(change);
      if (change.to === 'closed' || change.to === 'failed') stream.finish();
    }
  }

  private _refuseEnded(): void {
    if (this._driver.finished) throw this._driver.error ?? new ClosedError();
  }

  private _patience(timeout: number | undefined): number {
    if (timeout === undefined) return this._options.operationTimeout;
    return checkTime('timeout', timeout, 0);
  }

  // ---------------------------------------------------------------- subscriptions

  /** A number that no subscription has had. */
  nextSubscription(): number {
    this._subs += 1;
    return this._subs;
  }

  /** Begin a subscription. */
  add(event: Subscribe, place: Place): void {
    this._refuseEnded();
    this._driver.add(event.sub, place);
    this._driver.connect();
    this._driver.feed(event);
  }

  /** End a subscription. */
  remove(sub: number): void {
    this._driver.remove(sub);
  }

  /** Wait until the server has answered a subscription, or it has ended. */
  async waitJoined(inbox: Inbox, { timeout, signal }: Waiting): Promise<void> {
    const patience = this._patience(timeout);
    const driver = this._driver;
    if (await driver.until(() => inbox.joined || inbox.finished, patience, signal)) return;
    this._refuseEnded();
    throw new OperationTimeout(
      `The server did not answer the subscription within ${patience} ms. State: ${this.state}.`,
      { topic: inbox.topics[0] },
    );
  }

  // ---------------------------------------------------------------- publishing

  /** Publish one message; see `PubSub.publish`. */
  async publish(topic: string, message: unknown, options: PublishOptions): Promise<Published> {
    const one = prepare(topic, message, this._maxPayload(), options);
    const { data, type } = one.publication;
    if (type === PRESENCE_UPDATE && options.via !== 'rest') {
      await this.updatePresence(topic, data as JsonObject, options);
      return { id: one.id, timestamp: undefined, seq: undefined, duplicate: false };
    }
    const [result] = await this._publish([one], options, false);
    if (!result || result instanceof PubSubError) throw result;
    return result;
  }

  /** Publish several; see `PubSub.publishMany`. */
  async publishMany(
    messages: readonly unknown[],
    options: PublishOptions,
  ): Promise<(Published | PubSubError)[]> {
    const items = messages.map((item) => prepare(...splitItem(item), this._maxPayload()));
    const deadline = this._clock.now() + this._patience(options.timeout);
    const results: (Published | PubSubError)[] = [];
    for (const chunk of chunks(items, this._driver.limits.max_batch || 1_000)) {
      const timeout = Math.max(0, deadline - this._clock.now());
      results.push(...(await this._publish(chunk, { ...options, timeout }, true)));
    }
    return results;
  }

  private async _publish(
    items: readonly Prepared[],
    { timeout, signal, key, via }: PublishOptions,
    batch: boolean,
  ): Promise<(Published | PubSubError)[]> {
    this._refuseEnded();
    signal?.throwIfAborted();
    const patience = this._patience(timeout);
    if (via === 'rest') {
      this._driver.rememberOwn(items.map(({ id }) => id));
      const results = await this._http.publish(items, { timeout: patience, signal });
      return items.map((item, n) => published(results[n] ?? {}, item));
    }
    this._driver.connect();
    const { policy } = this._options.sendQueue;
    const size = items.reduce((sum, item) => sum + item.size, 0);
    this._refs += 1;
    const event: Publish = {
      kind: 'publish',
      ref: this._refs,
      messages: items.map(({ publication }) => publication),
      size,
      policy: policy === 'block' ? 'error' : policy,
      key,
      batch,
    };
    const began = this._clock.now();
    let settled: Promise<Outcome> | undefined;
    const begin = (): void => {
      this._driver.rememberOwn(items.map(({ id }) => id));
      settled = this._driver.begin(event);
    };
    if (policy === 'block') {
      await this._turnstile.enter(items.length, size, patience, begin, signal);
      signal?.throwIfAborted();
    } else {
      begin();
    }
    if (!settled) {
      this._refuseEnded();
      const said = `The queue of publishes had no room within ${patience} ms.`;
      return items.map(
        ({ id, publication: { topic } }) => new OperationTimeout(said, { topic, id }),
      );
    }
    const left = Math.max(0, patience - (this._clock.now() - began));
    const { outcome, expired } = await this._settle(event.ref, settled, left, signal);
    if (outcome.kind !== 'acked') return items.map((item) => failure(outcome, item, expired));
    return items.map((item, n) => published(outcome.results[n] ?? {}, item));
  }

  private async _settle(
    ref: number,
    settled: Promise<Outcome>,
    left: number,
    signal: AbortSignal | undefined,
  ): Promise<{ readonly outcome: Outcome; readonly expired: boolean }> {
    let expired = false;
    const expire = (): void => {
      expired = true;
      this._driver.feed({ kind: 'expire', ref });
    };
    const timer = this._clock.callLater(left, expire);
    signal?.addEventListener('abort', expire);
    try {
      const outcome = await untilAborted(settled, signal);
      return { outcome, expired };
    } finally {
      timer.cancel();
      signal?.removeEventListener('abort', expire);
    }
  }

  private _maxPayload(): number {
    return this._driver.limits.max_payload || this._options.maxPayload;
  }

  // ---------------------------------------------------------------- presence

  /** Change how this client appears; see `PubSub.updatePresence`. */
  async updatePresence(
    topic: string | undefined,
    data: JsonObject,
    { timeout, signal }: Waiting,
  ): Promise<void> {
    if (topic !== undefined) validateTopic(topic);
    checkData(data, this._maxPayload(), topic);
    this._refuseEnded();
    signal?.throwIfAborted();
    const driver = this._driver;
    driver.connect();
    driver.feed({ kind: 'updatePresence', topic, data });
    const patience = this._patience(timeout);
    if (!(await driver.until(() => driver.state === 'connected', patience, signal))) {
      this._refuseEnded();
      throw new ConnectionFailed(
        `Not connected within ${patience} ms: ${reasonOf(driver.lastChange)}`,
        { code: 'not_connected', topic },
      );
    }
  }

  // ---------------------------------------------------------------- over HTTP

  /** Retained messages; see `PubSub.history`. */
  history(topic: string, options: HistoryOptions): AsyncGenerator<Message> {
    this._refuseEnded();
    return this._http.history(validateTopic(topic), options, this._limits(options));
  }

  /** Everybody present on a topic. */
  async presence(topic: string, options: Waiting): Promise<PresenceMember[]> {
    this._refuseEnded();
    return this._http.presence(validateTopic(topic), this._limits(options));
  }

  /** Active topics. */
  async topics(
    prefix: string | undefined,
    limit: number | undefined,
    options: Waiting,
  ): Promise<TopicInfo[]> {
    this._refuseEnded();
    return this._http.topics(prefix, limit, this._limits(options));
  }

  private _limits({ timeout, signal }: Waiting): Limits {
    return { timeout: this._patience(timeout), signal };
  }
}

/** Split a batch by the server's limit and by bytes, in order. */
export function chunks(items: readonly Prepared[], most: number): Prepared[][] {
  const found: Prepared[][] = [];
  let last: Prepared[] = [];
  let size = 0;
  for (const item of items) {
    if (!found.length || last.length >= most || size + item.size > CHUNK_BYTES) {
      last = [];
      found.push(last);
      size = 0;
    }
    last.push(item);
    size += item.size;
  }
  return found;
}

/** What became of one publish, as the program gets it. */
export function published(result: PublishResult, item: Prepared): Published | PubSubError {
  const { error } = result;
  if (error) {
    return fromCode(error.code, error.message, {
      remedy: error.remedy,
      topic: error.topic ?? item.publication.topic,
      retryAfter: error.retry_after_ms,
    });
  }
  const { id, timestamp, seq, duplicate } = result;
  return { id: id ?? item.id, timestamp, seq, duplicate: duplicate ?? false };
}

function failure(
  outcome: Exclude<Outcome, { kind: 'acked' }>,
  item: Prepared,
  expired: boolean,
): PubSubError {
  const { id } = item;
  const { topic } = item.publication;
  if (outcome.kind === 'unknown') {
    if (!expired) return new OperationTimeout(undefined, { code: 'outcome_unknown', topic, id });
    const said = 'No answer came in time; whether it was published is unknown.';
    return new OperationTimeout(said, { topic, id, outcomeUnknown: true });
  }
  if (outcome.code === 'timeout') return new OperationTimeout(outcome.message, { topic, id });
  return fromCode(outcome.code, outcome.message, {
    remedy: outcome.remedy,
    topic: outcome.topic ?? topic,
    retryAfter: outcome.retryAfter,
  });
}

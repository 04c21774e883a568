/// <reference lib="esnext.disposable" preserve="true" />

/**
 * `StreamWriter`: publishes one answer while it is generated. Loaded when a program first writes.
 */

import { DEVELOPMENT } from '../build.js';
import { driverOf } from '../client.js';
import type { Clock, TimerHandle } from '../clock.js';
import { ClosedError, fromCode, PubSubError, UsageError } from '../errors.js';
import type { JsonObject } from '../generated/wire.js';
import { showOnly } from '../inspection.js';
import { logText } from '../log_text.js';
import { decide } from '../runtime/decisions.js';
import { call, Stream } from '../runtime/handlers.js';
import { within } from '../runtime/waiting.js';
import { checkNames, checkNumber, checkType } from '../settings/checks.js';
import type { Message } from '../values.js';
import { messageId } from '../wire/ids.js';
import { StreamCancelled } from './cancelled.js';
import { copyOf, isString, type Part, type Piece, textOf } from './parts.js';
import { type Client, DAY, incoming, RETAINED } from './reader.js';
import { type Incoming, Reading } from './reading.js';
import { checkSource, refusal } from './sources.js';
import {
  type EndKind,
  PATIENCE,
  type PublishFrame,
  type WriterEffect,
  Writing,
} from './writing.js';

/** The stream as this writer took it over. */
interface Before {
  readonly epoch: number;
  readonly base?: number | undefined;
  readonly parts?: readonly Part[];
  readonly messages?: readonly Incoming[];
}

/** Types of the messages that readers send to the writer. */
const WISHES = new Set(['stream.cancel', 'stream.steer']);

/** Names of the options. */
const NAMES: readonly (keyof WriteStreamOptions)[] = [
  'id',
  'epoch',
  'takeOver',
  'sender',
  'meta',
  'window',
  'listen',
  'allow',
  'onSteer',
];

/** Clients for which the warning that readers cannot cancel was logged. */
const deaf = new WeakSet<Client>();
/** Clients for which the warning that publishes are slow was logged. */
const slow = new WeakSet<Client>();

/** Whether this is the id of a stream; a reader chooses streams with the two words. */
const isStreamId = (id: unknown) =>
  isString(id) && id.length > 0 && id.length <= 100 && id !== 'latest' && id !== 'next';

/** Options of `writeStream`. */
export interface WriteStreamOptions {
  /**
   * Id of the stream, for example that of the response: 1 to 100 characters, except `latest` and
   * `next`. Default: `st_` and a ULID.
   */
  readonly id?: string | undefined;
  /** Number of the attempt, higher than that of any earlier writer of the stream; default 0. */
  readonly epoch?: number | undefined;
  /**
   * Continue where an earlier writer of `id` stopped: read the retained messages, take the next
   * epoch, and begin with a snapshot. `writer.text` is the text so far.
   */
  readonly takeOver?: boolean | undefined;
  /** `takeOver` accepts only frames of this sender; default: the sender of the first frame. */
  readonly sender?: string | undefined;
  /** JSON that readers receive with the `start` event, for example the name of the model. */
  readonly meta?: unknown;
  /** Milliseconds to collect text before it is published, after the first token; default 40. */
  readonly window?: number | undefined;
  /** Subscribe to the topic, so that readers can cancel and steer; default true. */
  readonly listen?: boolean | undefined;
  /**
   * Decides whether a sender may cancel and steer. Called with the id of the sender, which is empty
   * if the server sends none. Return a boolean, not a promise; if the function throws, the sender may
   * not. Default: every sender with permission to publish.
   */
  readonly allow?: ((by: string) => boolean) | undefined;
  /** Called with the data of `steer` and the id of its sender: one call at a time, in order. */
  readonly onSteer?: ((data: unknown, by: string) => unknown) | undefined;
}

/**
 * One answer, published token by token; `writeStream` creates it.
 *
 * The end of a block with `await using` aborts an incomplete stream with the reason `incomplete`.
 */
export class StreamWriter implements AsyncDisposable {
  /** Id of the stream. */
  readonly id: string;
  private readonly _clock: Clock;
  private readonly _cancelled = new AbortController();
  private _steering: Promise<unknown> = Promise.resolve();
  private _core!: Writing;
  /** Messages of readers that arrived before the core was created. */
  private readonly _early: Message[] = [];
  private _timer: TimerHandle | undefined;
  private readonly _progress = new Stream();
  /** Ends the subscription to the requests of readers. */
  private readonly _over = new AbortController();
  /** The server has answered this subscription. */
  private _answered: Promise<void> | undefined;
  private _cause: unknown;
  private _error: PubSubError | undefined;
  private _isFinished = false;

  /** @internal Created by `writeStream`. */
  constructor(
    private readonly _client: Client,
    private readonly _topic: string,
    private readonly _options: WriteStreamOptions,
  ) {
    if (DEVELOPMENT) checkNames('options', _options, NAMES);
    const { id, takeOver, epoch = 0, allow, onSteer, window = 0 } = _options;
    checkType('allow', allow, 'function');
    checkType('onSteer', onSteer, 'function');
    checkNumber('window', window, [0, DAY, 'milliseconds']);
    if (takeOver && !id) throw new UsageError('`takeOver` needs the `id` of the stream.');
    if (!Number.isSafeInteger(epoch) || epoch < 0)
      throw fromCode('invalid_option', '`epoch` is not a whole number.', { field: 'epoch' });
    if (id !== undefined && !isStreamId(id)) {
      throw fromCode(
        'invalid_option',
        '`id` is not the id of a stream: 1 to 100 characters, except `latest` and `next`, with which a reader chooses.',
        {
          field: 'id',
          remedy: 'Pass such an id, for example that of the response, or leave it out.',
        },
      );
    }
    this.id = id ?? messageId().replace('msg_', 'st_');
    const driver = driverOf(_client);
    driver.checkOpen();
    this._clock = driver.clock;
  }

  /** Epoch of this writer. */
  get epoch(): number {
    return this._core.epoch;
  }

  /** The text so far, including that of earlier writers. */
  get text(): string {
    return textOf(this._core.parts);
  }

  /** The parts so far, including those of earlier writers. */
  get parts(): readonly Part[] {
    return copyOf(this._core.parts);
  }

  /** Aborted when a reader cancels the stream; the reason is a `StreamCancelled`. */
  get signal(): AbortSignal {
    return this._cancelled.signal;
  }

  /**
   * Numbers of published tokens and snapshots, of repeated publishes, and of publishes that took
   * more than a second. The first slow one of a client is logged as a warning.
   */
  get stats(): { tokens: number; snapshots: number; retries: number; slowed: number } {
    return { ...this._core.stats };
  }

  /** @internal Publish the start of the stream. */
  async open(): Promise<this> {
    const { meta, window, listen = true, takeOver, epoch = 0 } = this._options;
    if (listen) this._answered = this._listen();
    const before: Before = takeOver ? await this._readBefore() : { epoch };
    const core = new Writing(this.id, before.epoch, word(), { ...before, meta, window });
    this._core = core;
    this._perform(core.open(this._now));
    this._perform(core.inherit(before.messages ?? []));
    for (const message of this._early.splice(0)) this._receive(message);
    return this;
  }

  /**
   * Add text, a new part, or `{text}` that continues the last part.
   *
   * Resolves immediately, unless 64 KB wait to be sent.
   *
   * @throws StreamCancelled A reader has cancelled the stream.
   * @throws Conflict Another writer of the stream has a higher epoch.
   * @throws InvalidPayload Not a piece, a part that is not plain JSON, or text with half of a
   *   surrogate pair; the stream is aborted.
   * @throws PayloadTooLarge The answer exceeds 192 KB as JSON; the stream is aborted.
   */
  async write(piece: Piece): Promise<void> {
    this._checkOpen();
    this._perform(this._core.write(piece, this._now), piece);
    while (this._core.full && !this._error) await this._progress.wait();
    if (this._error) throw this._error;
  }

  /**
   * Write all items of an iterator, and complete the stream.
   *
   * When a reader cancels, the iterator is closed immediately. If the source has a `finishReason`
   * and a `usage`, the stream takes them over.
   *
   * @throws StreamCancelled A reader has cancelled the stream.
   * @throws InvalidOption `source` is not an iterator, for example a whole answer; the stream is
   *   aborted with the reason `error`.
   * @throws Error That of the iterator; the stream is aborted with the reason `error`.
   */
  async pipe(
    source: AsyncIterable<Piece> | Iterable<Piece>,
    options: { readonly finishReason?: string | undefined } = {},
  ): Promise<void> {
    let iterator: AsyncIterator<Piece> | Iterator<Piece> | undefined;
    const failed = (async () => {
      while (!this._error) await this._progress.wait();
    })();
    try {
      checkSource('source', source, true);
      const { [Symbol.asyncIterator]: begin } = source as Partial<AsyncIterable<Piece>>;
      iterator = begin ? begin.call(source) : (source as Iterable<Piece>)[Symbol.iterator]();
      while (true) {
        this._checkOpen();
        const next = await Promise.race([iterator.next(), failed]);
        if (next?.done) break;
        // The end of the stream also ends the wait for a piece.
        if (next) await this.write(next.value);
      }
    } catch (error) {
      // A source that the signal of the writer stops may throw an error of its own.
      const cause = this._error ?? error;
      // Its end may throw at once.
      (async () => iterator?.return?.())().catch(() => {});
      await this.abort('error');
      throw cause;
    }
    const { finishReason, usage } = source as { finishReason?: string; usage?: unknown };
    await this.complete({ finishReason: finishReason ?? options.finishReason, usage });
  }

  /**
   * End the stream after all text, and wait until the end is published.
   *
   * @param options `finishReason`: why the model ended, default `stop`; `usage`: JSON that readers
   *   receive with the end, for example token counts.
   */
  async complete(
    options: { readonly finishReason?: string | undefined; readonly usage?: unknown } = {},
  ): Promise<void> {
    const { finishReason: finish_reason = 'stop', usage } = options;
    const more = usage === undefined ? {} : ({ usage } as JsonObject);
    await this._finish('complete', { finish_reason, ...more });
  }

  /** End the stream before the answer is complete. Has no effect after the end. */
  async abort(reason = 'error'): Promise<void> {
    await this._finish('abort', { reason }).catch(() => {});
    await this._drain();
  }

  /** End the stream as a reader's `cancel` does, for example from a route of your own. */
  async cancel(reason = 'cancelled', by = ''): Promise<void> {
    this._cancel(reason, by, !by);
    // `allow` may reject the user.
    if (this._error) await this._drain();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.abort('incomplete');
  }

  private get _now(): number {
    return Math.floor(this._clock.now());
  }

  /** Log a warning, once per client if `seen` remembers them. */
  private _warn(text: string, seen?: WeakSet<Client>): void {
    const { _client: client } = this;
    if (seen?.has(client)) return;
    seen?.add(client);
    driverOf(client).options.logger.warn(text);
  }

  private _checkOpen(): void {
    if (this._error) throw this._error;
    if (this._isFinished) throw new UsageError('The stream has ended.');
  }

  private async _listen(): Promise<void> {
    const { signal } = this._over;
    const onMessage = (message: Message): void => this._receive(message);
    // A program cannot act on a gap in the requests of readers: they ask again.
    const onGap = (): void => {};
    try {
      // While the server does not answer, the subscription stays and may still be granted.
      await this._client.subscribe(this._topic, { onMessage, onGap, signal, timeout: DAY });
    } catch (error) {
      if (this._isFinished || error instanceof ClosedError) return;
      this._warn(
        `Readers cannot cancel or steer the stream ${this.id}: ${logText((error as Error).message)} ` +
          'This applies to every topic that this client may not read; further ones are not logged.',
        deaf,
      );
    }
  }

  private async _readBefore(): Promise<Before> {
    try {
      // A request that arrives while the history is read is in one of the two.
      const answered = Promise.resolve(this._answered);
      await within(answered, driverOf(this._client).timed({}), this._clock);
      const messages: Incoming[] = [];
      for await (const message of this._client.history(this._topic, { limit: RETAINED }))
        messages.push(incoming(message));
      const reading = new Reading(this.id, this._options.sender);
      reading.begin(messages, 0);
      const { ended: isEnded, epoch: last } = reading;
      if (isEnded || last === Number.MAX_SAFE_INTEGER) {
        const problem = isEnded ? 'has ended' : 'has the highest epoch';
        throw fromCode('conflict', `The stream ${this.id} ${problem}.`, {
          topic: this._topic,
          remedy: 'Use another id. If users may publish to the topic, pass `sender`.',
        });
      }
      const epoch = Math.max(this._options.epoch ?? 0, last + 1);
      const { based: isBased, next, parts } = reading;
      return { epoch, messages, base: isBased ? next : undefined, parts };
    } catch (error) {
      this._leave();
      throw error;
    }
  }

  private async _finish(kind: EndKind, fields: JsonObject): Promise<void> {
    this._checkOpen();
    this._isFinished = true;
    this._perform(this._core.finish(kind, fields, this._now));
    await this._drain();
    if (this._error) throw this._error;
  }

  /** Wait until the end is published or the writer has given up. */
  private async _drain(): Promise<void> {
    while (!this._core.ended) await this._progress.wait();
  }

  private _leave(): void {
    this._isFinished = true;
    this._over.abort();
  }

  private _receive(message: Message): void {
    const { type, data, sender } = incoming(message);
    if (this._core) this._perform(this._core.receive(type, data, sender));
    else if (WISHES.has(type) && this._early.length < RETAINED) this._early.push(message);
  }

  private async _publish({ type, id, ttl, data }: PublishFrame): Promise<void> {
    const { _core: core } = this;
    try {
      // As long as the writer is patient: a publish that is repeated loses its place.
      await this._client.publish(
        this._topic,
        { type, id, ttl, data },
        { background: true, timeout: PATIENCE },
      );
    } catch (error) {
      this._cause = error;
      const { code, retryable, retryAfter } =
        error instanceof PubSubError ? error : fromCode('invalid_payload');
      this._perform(core.failed(code, retryable, this._now, retryAfter));
      return;
    }
    this._perform(core.sent(this._now));
  }

  private _perform(effects: readonly WriterEffect[], piece?: Piece): void {
    for (const effect of effects) {
      if (effect.kind === 'publish') void this._publish(effect);
      else if (effect.kind === 'refused') this._error = refusal(effect.code, piece, this._topic);
      else if (effect.kind === 'failed') this._fail(effect.code);
      else if (effect.kind === 'cancelled') this._cancel(effect.reason, effect.by);
      else if (effect.kind === 'steered') this._steer(effect.data, effect.by);
      else if (effect.kind === 'slowed' && !this._client.slowed)
        // If the publish rate is the cause, the client has already logged it.
        this._warn(
          `A publish of the stream ${this.id} took ${effect.ms} ms: the connection or the server was slow or unavailable. Further ones are not logged; \`stats\` counts them.`,
          slow,
        );
    }
    this._timer?.cancel();
    const { due, ended: isEnded } = this._core;
    if (isEnded) this._leave();
    if (due !== undefined)
      this._timer = this._clock.callLater(due - this._now, () =>
        this._perform(this._core.tick(this._now)),
      );
    this._progress.wake();
  }

  private _fail(code: string): void {
    const { _topic: topic, _cause: cause } = this;
    const failure =
      code === 'conflict'
        ? fromCode(
            code,
            `The stream ${this.id} has another writer with this epoch or a higher one.`,
            {
              topic,
              remedy: 'Use another `id` for another answer. A higher `epoch` replaces this one.',
              cause,
            },
          )
        : cause instanceof PubSubError
          ? cause
          : fromCode(code, undefined, { topic, cause });
    // The first error ended the stream.
    this._error ??= failure;
  }

  private _cancel(reason: string, by: string, isOwn = false): void {
    if (this._error || this._isFinished) return;
    if (!isOwn && !this._allows(by)) {
      this._warn(`${by || 'A reader without an id'} may not cancel the stream ${this.id}.`);
      return;
    }
    this._error = new StreamCancelled({ reason, by, topic: this._topic });
    this._cancelled.abort(this._error);
    this._perform(this._core.finish('abort', { reason: reason || 'cancelled', by }, this._now));
  }

  private _steer(data: unknown, by: string): void {
    if (this._allows(by))
      this._steering = this._steering.then(() =>
        call(this._report, this._options.onSteer, data, by),
      );
  }

  private _allows(by: string): boolean | undefined {
    return decide(this._options.allow, [by], this._report);
  }

  private readonly _report = (error: unknown): void =>
    driverOf(this._client).listeners.report(error);
}
if (DEVELOPMENT) showOnly(StreamWriter, 'id', 'epoch', 'stats');

/** 12 random hexadecimal digits. */
const word = (): string =>
  [...crypto.getRandomValues(new Uint8Array(6))]
    .map((byte) => byte.toString(16).padStart(2, '0'))
    .join('');

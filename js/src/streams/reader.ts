/// <reference lib="esnext.disposable" preserve="true" />

/** `StreamReader`: follows one answer while it is generated. */

import { DEVELOPMENT } from '../build.js';
import { driverOf, type PubSub } from '../client.js';
import type { Clock, TimerHandle } from '../clock.js';
import { ClosedError, InvalidTopic, UsageError } from '../errors.js';
import type { JsonObject } from '../generated/wire.js';
import { showOnly } from '../inspection.js';
import { logText } from '../log_text.js';
import { Stream } from '../runtime/handlers.js';
import { lazily } from '../runtime/parts.js';
import { onAbort } from '../runtime/waiting.js';
import { checkNames, checkType } from '../settings/checks.js';
import { isWildcard } from '../topics.js';
import type { Message } from '../values.js';
import { addPiece, copyOf, isString, type Part, type Piece } from './parts.js';
import type { Incoming, ReaderEffect, Reading } from './reading.js';

/** @internal Requested messages per topic: the number that a server keeps by default. */
export const RETAINED = 100;

/** @internal Time to wait for an unreachable server, which the client keeps trying: the longest. */
export const DAY = 86_400_000;

/** How a stream ended; the last event of its reader. */
export type StreamEnd = (
  | {
      /** The answer is complete. */
      readonly kind: 'done';
      /** The reason; `stop` if the writer gives none. */
      readonly reason: string;
      /** The `usage` of the writer. */
      readonly usage: unknown;
    }
  | {
      /** The writer ended the stream before the answer was complete. */
      readonly kind: 'aborted';
      /**
       * The reason: `error` if its program failed, the text that a reader passed to `cancel`, or a
       * code.
       */
      readonly reason: string;
      /** Id of the sender who cancelled it; empty if it was not cancelled. */
      readonly by: string;
    }
) & {
  /** The whole text. */
  readonly text: string;
  /** All parts, including the text. */
  readonly parts: readonly Part[];
  /** Tokens that were published. */
  readonly count: number;
  /** Whether tokens are missing, and the end did not carry the text. */
  readonly stale: boolean;
};

/** What a reader yields, in order. */
export type StreamEvent =
  | {
      /** The stream has begun and has no text yet. */
      readonly kind: 'start';
      /** The `meta` of the writer. */
      readonly meta: unknown;
    }
  | {
      /** The answer has grown; never a repeat. */
      readonly kind: 'delta';
      /** The added text; empty if only other parts have grown. */
      readonly text: string;
      /** Everything that was added, in order. */
      readonly pieces: readonly Piece[];
    }
  | {
      /**
       * The whole answer so far, after a late join or a loss. It replaces what the program shows.
       */
      readonly kind: 'snapshot';
      /** Its text. */
      readonly text: string;
      /** All parts, including the text. */
      readonly parts: readonly Part[];
    }
  | {
      /** Tokens are missing: the view is stale until the next snapshot, about 1.5 seconds. */
      readonly kind: 'gap';
      /** Number of the first missing token. */
      readonly first: number;
      /** Number of the last one. */
      readonly last: number;
    }
  | {
      /** No frame arrived for `ms` milliseconds: first 10,000, then twice as long each time. */
      readonly kind: 'stalled';
      readonly ms: number;
    }
  | StreamEnd;

/** Options of `readStream`. */
export interface ReadStreamOptions {
  /**
   * Id of the stream, `latest` for the newest one, running or ended, or `next` for the first that
   * begins after the reader has subscribed; default `latest`.
   */
  readonly id?: string | undefined;
  /** Accept only frames of this sender; default: the sender of the first frame. */
  readonly sender?: string | undefined;
  /** Called instead of publishing `stream.cancel`, for your own cancel route. */
  readonly onCancel?: ((stream: string, reason: string) => unknown) | undefined;
  /** Closes the reader when it is aborted, as `close()` does. */
  readonly signal?: AbortSignal | undefined;
}

/** @internal The interface of a client for a stream. */
export type Client = Pick<PubSub, 'subscribe' | 'publish' | 'history' | 'slowed' | 'state'>;

/** @internal A message for the logic of a reader. */
export const incoming = ({ type, data, sender }: Message): Incoming => ({
  type,
  data,
  sender: sender?.id ?? '',
});

/**
 * One growing answer; `readStream` creates it.
 *
 * It follows the stream in the background. If the program reads slowly, deltas are joined, or
 * replaced by a snapshot. So `text` and `final()` need no iteration. Leaving the loop or closing
 * the reader never cancels the stream.
 */
export class StreamReader implements AsyncIterable<StreamEvent>, AsyncDisposable {
  private _core: Reading | undefined;
  private readonly _clock: Clock;
  private readonly _over = new AbortController();
  private readonly _final: Promise<StreamEnd>;
  private _settle!: (end: StreamEnd | Promise<never>) => void;
  private readonly _found: Promise<void>;
  private _find!: () => void;
  private _events: StreamEvent[] = [];
  private readonly _reader = new Stream();
  private _timer: TimerHandle | undefined;
  private _isClosed: boolean | undefined;
  private _hasWarned: boolean | undefined;

  /** @internal Created by `readStream`. */
  constructor(
    private readonly _client: Client,
    private readonly _topic: string,
    private readonly _options: ReadStreamOptions,
  ) {
    if (DEVELOPMENT) checkNames('options', _options, ['id', 'sender', 'onCancel', 'signal']);
    checkType('onCancel', _options.onCancel, 'function');
    this._clock = driverOf(_client).clock;
    this._final = new Promise((resolve) => {
      this._settle = resolve;
    });
    this._found = new Promise((resolve) => {
      this._find = resolve;
    });
    // The program may ignore how the stream ended.
    this._final.catch(() => {});
    void this._follow();
  }

  /** Id of the followed stream; undefined before one is found. */
  get id(): string | undefined {
    return this._core?.stream;
  }

  /** The text so far: a prefix of the answer, unless `stale`. */
  get text(): string {
    return this._core?.text ?? '';
  }

  /** All parts so far, including the text. */
  get parts(): readonly Part[] {
    return copyOf(this._core?.parts ?? []);
  }

  /** Whether tokens are missing, until the next snapshot. */
  get stale(): boolean {
    return !!this._core?.stale;
  }

  /** The `meta` of the writer. */
  get meta(): unknown {
    return this._core?.meta;
  }

  /** Number of frames that the reader ignored: invalid ones, and those of another writer. */
  get ignored(): number {
    return this._core?.ignored ?? 0;
  }

  /**
   * Wait for the end of the stream.
   *
   * @throws ClosedError The reader or the client was closed before the end.
   */
  final(): Promise<StreamEnd> {
    return this._final;
  }

  /**
   * Ask the writer to end the stream, which then ends with `aborted`.
   *
   * Before the first event, it waits for the stream: forever, if `id` is one that never begins.
   *
   * @param reason Text for the writer and all readers.
   * @throws PermissionDenied This client may not publish to the topic.
   * @throws ClosedError The reader was closed before it found the stream.
   * @throws UsageError There is no `latest` stream, or the producer does not support this.
   */
  async cancel(reason = 'user'): Promise<void> {
    const { onCancel } = this._options;
    if (onCancel) await onCancel(await this._known(), reason);
    else await this._publish('cancel', { reason });
  }

  /**
   * Send data to the writer, which receives it in `onSteer`. It waits for the stream, as `cancel`
   * does.
   *
   * @param data JSON.
   * @throws PermissionDenied This client may not publish to the topic.
   * @throws ClosedError The reader was closed before it found the stream.
   * @throws UsageError There is no `latest` stream, or the producer does not support this.
   */
  async steer(data: unknown): Promise<void> {
    await this._publish('steer', { data } as JsonObject);
  }

  /** Leave the stream, which continues for other readers. Idempotent. */
  close(): void {
    this._isClosed = true;
    this._stop();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.close();
  }

  async *[Symbol.asyncIterator](): AsyncIterator<StreamEvent, void> {
    while (true) {
      const event = this._events.shift();
      if (event) yield event;
      else if (this._reader.finished) return void (this._isClosed || (await this._final));
      else await this._reader.wait();
    }
  }

  private async _known(): Promise<string> {
    await Promise.race([this._found, this._final]);
    const { stream, epoch = -1 } = this._core ?? {};
    if (stream && epoch >= 0) return stream;
    throw new UsageError('There is no stream to cancel or steer yet.', {
      remedy: 'Wait for the first event, or pass the `id` of the stream.',
    });
  }

  private async _publish(name: string, more: JsonObject): Promise<void> {
    const data = { stream: await this._known(), epoch: this._core?.epoch as number, ...more };
    await this._client.publish(this._topic, { type: `stream.${name}`, data, ttl: 60 });
  }

  private async _follow(): Promise<void> {
    const { _clock: clock, _options: options, _topic: topic } = this;
    const { signal } = this._over;
    const leave = (): void => this.close();
    const ignore = onAbort(options.signal, leave);
    if (options.signal?.aborted) leave();
    try {
      if (isWildcard(String(topic)))
        throw new InvalidTopic('A stream has a topic without wildcards.', { topic });
      const loading = lazily(() => import('./reading.js'))();
      // A stream that begins while the code loads must not count as one that has begun before.
      if (options.id === 'next') await loading;
      const [sub, { Reading }] = await Promise.all([
        this._client.subscribe(topic, { history: RETAINED, signal, timeout: DAY }),
        loading,
      ]);
      const core = new Reading(options.id, options.sender);
      this._core = core;
      // Retained messages arrive in one batch.
      let batch: Incoming[] | undefined = [];
      clock.callSoon(() => {
        this._perform(core, core.begin(batch ?? [], this._now));
        batch = undefined;
        if (core.ended) void sub.unsubscribe();
      });
      for await (const event of sub.events()) {
        if (event.kind === 'message') {
          if (batch) batch.push(incoming(event.message));
          else this._perform(core, core.take(incoming(event.message), this._now));
        } else if (!batch) this._perform(core, core.lost());
        if (core.ended) break;
      }
    } catch (error) {
      this._stop(error);
    }
    ignore();
    this._stop();
  }

  private get _now(): number {
    return Math.floor(this._clock.now());
  }

  private async _heal(core: Reading): Promise<void> {
    const messages: Incoming[] = [];
    try {
      // The next connection replays what a lost one misses; requests would only fail until then.
      if (this._client.state === 'connected')
        for await (const message of this._client.history(this._topic, { limit: RETAINED }))
          messages.push(incoming(message));
    } catch {
      // Without the history, report a gap; the next snapshot closes it.
    }
    this._perform(core, core.healed(messages, this._now));
    if (core.ended) this._over.abort();
  }

  private _perform(core: Reading, effects: ReaderEffect[]): void {
    const { _events: events } = this;
    let isReplaced = false;
    for (const effect of effects) {
      const { kind } = effect;
      if (kind === 'heal') {
        void this._heal(core);
      } else if (kind === 'delta') {
        // The snapshot before it contains the text of the whole step.
        if (isReplaced) continue;
        const last = events.at(-1);
        const pieces = last?.kind === 'delta' ? [...last.pieces] : [];
        if (pieces.length) events.pop();
        for (const piece of effect.pieces) addPiece(pieces, piece);
        events.push({ kind, text: pieces.filter(isString).join(''), pieces });
      } else {
        const isSnapshot = kind === 'snapshot';
        const event =
          isSnapshot || 'reason' in effect
            ? { ...effect, text: core.text, parts: this.parts, stale: core.stale }
            : effect;
        if (isSnapshot) {
          isReplaced = true;
          events.length = 0;
        }
        events.push(event as StreamEvent);
        if ('reason' in effect) this._settle(event as StreamEnd);
      }
    }
    if (DEVELOPMENT && core.foreign !== undefined && core.epoch < 0 && !this._hasWarned) {
      this._hasWarned = true;
      driverOf(this._client).options.logger.warn(
        `The reader of the stream ${core.stream} ignores the frames of ` +
          `${logText(core.foreign) || 'an unknown sender'}, because its \`sender\` is ` +
          `${this._options.sender}. If they are of the writer, pass the user id in its token as ` +
          '`sender`.',
      );
    }
    // Without a retained stream, a later one is not what the program wanted to cancel.
    if (core.epoch >= 0 || core.want === 'latest') this._find();
    this._timer?.cancel();
    if (core.due !== undefined && !this._reader.finished)
      this._timer = this._clock.callLater(core.due - this._now, () =>
        this._perform(core, core.tick(this._now)),
      );
    this._reader.wake();
  }

  private _stop(error: unknown = new ClosedError('The reader was closed.')): void {
    if (this._reader.finished) return;
    // Also if the subscription began, and the code of the reader could not be loaded.
    this._over.abort();
    this._timer?.cancel();
    if (!this._core?.ended) this._settle(Promise.reject(error));
    this._reader.finish();
  }
}
if (DEVELOPMENT) showOnly(StreamReader, 'id', 'stale');

/**
 * Follow a stream: iterate it, or wait for its `final()`.
 *
 * @param client The client that subscribes.
 * @param topic A topic without wildcards; the iteration and `final()` reject another with
 *   `InvalidTopic`.
 */
export function readStream<Topics extends object>(
  client: PubSub<Topics>,
  topic: string,
  options: ReadStreamOptions = {},
): StreamReader {
  return new StreamReader(client as unknown as Client, topic, options);
}

/** View of one stream for a page, updated with its frames; shared by all frameworks. */

import type { PubSub } from '../client.js';
import { type PubSubError, UsageError } from '../errors.js';
import { lazily } from '../runtime/parts.js';
import type { Part } from './parts.js';
import type { ReadStreamOptions, StreamEnd, StreamReader } from './reader.js';

/** Milliseconds after which changes are shown if no frame is drawn, as in hidden pages. */
const HIDDEN = 100;

/** The status of a stream. */
export type StreamStatus =
  | 'idle'
  | 'waiting'
  | 'streaming'
  | 'stalled'
  | 'done'
  | 'aborted'
  | 'failed';

/** The view of a stream. */
export interface StreamState {
  /** The text so far: a prefix of the answer, unless `stale`. */
  readonly text: string;
  /** All parts so far, including the text. */
  readonly parts: readonly Part[];
  /** Whether tokens are missing, until the next snapshot. */
  readonly stale: boolean;
  /**
   * `idle` without a topic, `waiting` before the first frame, `stalled` while no frame arrives,
   * `failed` with an `error`.
   */
  readonly status: StreamStatus;
  /** How it ended. */
  readonly end: StreamEnd | undefined;
  /** The error, with the status `failed`. */
  readonly error: PubSubError | undefined;
}

/** Requests of a page to the writer of the stream that it shows. */
export interface StreamControls {
  /** Ask the writer to end the stream; see `StreamReader.cancel`. */
  readonly cancel: (reason?: string) => Promise<void>;
  /** Send data to the writer; see `StreamReader.steer`. */
  readonly steer: (data: unknown) => Promise<void>;
}

/** The options of `readStream` without `signal`. */
export type StreamOptions = Omit<ReadStreamOptions, 'signal'>;

/** @internal The view without a topic. */
export const IDLE: StreamState = {
  text: '',
  parts: [],
  stale: false,
  status: 'idle',
  end: undefined,
  error: undefined,
};

/** @internal Requests to the writer of the stream that is shown at the call. */
export function controls(shown: () => StreamView | undefined): StreamControls {
  const reader = (): Promise<StreamReader> => {
    const { ready } = shown() ?? {};
    if (ready) return ready;
    throw new UsageError('There is no stream to cancel or steer yet.', {
      remedy: 'Show a stream first.',
    });
  };
  return {
    cancel: async (reason) => (await reader()).cancel(reason),
    steer: async (data) => (await reader()).steer(data),
  };
}

/** @internal A displayed stream. */
export class StreamView {
  /** Its reader, once the code of readers is loaded. */
  readonly ready: Promise<StreamReader>;
  private _reader: StreamReader | undefined;
  private readonly _over = new AbortController();
  private _state: StreamState = { ...IDLE, status: 'waiting' };
  private _isDue = false;

  /** @param _show Called with each state, at most once a frame. */
  constructor(
    client: PubSub,
    topic: string,
    options: StreamOptions,
    private readonly _show: (state: StreamState) => void,
  ) {
    _show(this._state);
    this.ready = this._open(client, topic, options);
    this._follow().catch((error: unknown) =>
      this._change({ status: 'failed', error: error as PubSubError }),
    );
  }

  /** Stop reading; the stream continues. */
  leave(): void {
    this._over.abort();
  }

  private async _open(
    client: PubSub,
    topic: string,
    options: StreamOptions,
  ): Promise<StreamReader> {
    const { readStream } = await lazily(() => import('./reader.js'))();
    this._reader = readStream(client, topic, { ...options, signal: this._over.signal });
    return this._reader;
  }

  private async _follow(): Promise<void> {
    for await (const event of await this.ready) {
      const { kind } = event;
      if (kind === 'done' || kind === 'aborted') this._change({ status: kind, end: event });
      else this._change({ status: kind === 'stalled' ? kind : 'streaming' });
    }
  }

  private _change(changes: Partial<StreamState>): void {
    this._state = { ...this._state, ...changes };
    if (this._isDue) return;
    this._isDue = true;
    const draw = (): void => {
      if (!this._isDue || this._over.signal.aborted) return;
      this._isDue = false;
      const { text = '', parts = [], stale = false } = this._reader ?? {};
      this._show({ ...this._state, text, parts, stale });
    };
    globalThis.requestAnimationFrame?.(draw);
    setTimeout(draw, HIDDEN);
  }
}

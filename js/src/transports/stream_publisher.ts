/** Publishes beside an event stream: by REST, one request at a time, what waits in one batch. */

import { ConnectionFailed, OperationTimeout, PubSubError } from '../errors.js';
import { LIMITS } from '../generated/defaults.js';
import type {
  ErrorFrame,
  ErrorInfo,
  PresenceUpdateFrame,
  Publication,
  PublishedFrame,
  PublishFrame,
  PublishResult,
  ServerFrame,
} from '../generated/wire.js';
import { errorInfo, publish, publishBatch } from '../http/calls.js';
import type { Rest } from '../http/rest.js';
import { compact } from '../wire/compact.js';
import type { TransportEnd } from './transport.js';

type Outgoing = PublishFrame | PresenceUpdateFrame;

/** Publishes frames in their order, and answers each. */
export class StreamPublisher {
  private _queue: Outgoing[] = [];
  private _working = false;

  /**
   * @param _rest Performs the calls.
   * @param _timeout Milliseconds for each.
   * @param _put Takes the answers.
   * @param _end Ends the transport: the session publishes again what was not answered.
   * @param _signal Gives everything up.
   */
  constructor(
    private readonly _rest: Rest,
    private readonly _timeout: number,
    private readonly _put: (frame: ServerFrame) => void,
    private readonly _end: (end: TransportEnd) => void,
    private readonly _signal: AbortSignal,
  ) {}

  /** Queue a frame; the session bounds how many are not answered. */
  put(frame: Outgoing): void {
    this._queue.push(frame);
    if (!this._working) void this._work();
  }

  private async _work(): Promise<void> {
    this._working = true;
    while (this._queue.length && !this._signal.aborted) {
      const frames: Outgoing[] = [];
      const row: Publication[] = [];
      for (let frame = this._queue[0]; frame; frame = this._queue[0]) {
        const messages = publicationsOf(frame);
        if (row.length && row.length + messages.length > LIMITS.maxBatch) break;
        this._queue.shift();
        if (!messages.length) {
          this._refuse(frame);
          continue;
        }
        frames.push(frame);
        row.push(...messages);
      }
      if (row.length) await this._publish(frames, row);
    }
    this._working = false;
  }

  private async _publish(frames: readonly Outgoing[], row: readonly Publication[]): Promise<void> {
    const limits = { timeout: this._timeout, signal: this._signal };
    let results: readonly PublishResult[];
    try {
      const [only] = row;
      results =
        only && row.length === 1
          ? [await this._rest.perform(publish(only), limits)]
          : await this._rest.perform(publishBatch(row), limits);
    } catch (error) {
      if (this._signal.aborted) return;
      const lost = error instanceof ConnectionFailed || error instanceof OperationTimeout;
      if (lost || !(error instanceof PubSubError)) {
        const { message: reason, retryAfter } = lost ? error : { message: String(error) };
        this._queue = [];
        this._end({ code: undefined, reason, retryAfter });
        return;
      }
      for (const frame of frames) this._put(errorFrame(errorInfo(error), frame));
      return;
    }
    let at = 0;
    for (const frame of frames) {
      const count = publicationsOf(frame).length;
      this._answer(frame, results.slice(at, at + count));
      at += count;
    }
  }

  private _answer(frame: Outgoing, results: readonly PublishResult[]): void {
    const { ref } = frame;
    const { error, id, timestamp, seq, duplicate } = results[0] ?? {};
    const published = (rest: object): ServerFrame =>
      compact<PublishedFrame>({ type: 'published', ...rest, ref });
    if (frame.type === 'publish' && frame.messages) this._put(published({ results }));
    else if (error) this._put(errorFrame(error, frame));
    else if (frame.type === 'publish') this._put(published({ id, timestamp, seq, duplicate }));
  }

  private _refuse(frame: Outgoing): void {
    const error: ErrorInfo = {
      code: 'unsupported',
      message: 'An event stream has no presence of its own.',
      remedy: 'Name a topic, or connect by WebSocket.',
    };
    this._put(errorFrame(error, frame));
  }
}

function errorFrame(error: ErrorInfo, { ref }: Outgoing): ErrorFrame {
  return compact<ErrorFrame>({ type: 'error', ...error, ref });
}

/** The messages of a frame in any of its forms; none where it names no topic. */
function publicationsOf(frame: Outgoing): readonly Publication[] {
  if (frame.type === 'presence.update') {
    const { topic, data } = frame;
    return topic === undefined ? [] : [{ topic, type: 'presence.update', data }];
  }
  return frame.messages ?? (frame.message ? [frame.message] : []);
}

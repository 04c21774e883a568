/**
 * Publishes beside an event stream: over REST, one request at a time. Waiting messages share a
 * batch.
 */

import { ConnectionFailed, OperationTimeout, PubSubError } from '../errors.js';
import * as LIMITS from '../generated/limits.js';
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
import { errorInfo, type Rest } from '../http/rest.js';
import { compact } from '../wire/compact.js';

type Outgoing = PublishFrame | PresenceUpdateFrame;

/** A frame with its messages. */
type Turn = readonly [frame: Outgoing, messages: readonly Publication[]];

/** Codes of messages that got no answer. */
const LOST: readonly string[] = ['connection_failed', 'outcome_unknown', 'timeout'];

/** Publishes frames in order, and answers each. */
export class StreamPublisher {
  private _queue: Outgoing[] = [];
  private _working = false;

  /**
   * @param _rest Performs the requests.
   * @param _timeout Timeout of each request, in milliseconds.
   * @param _put Receives the answers.
   * @param _end Ends the transport; the session then publishes unanswered messages again.
   * @param _signal Cancels all requests.
   */
  constructor(
    private readonly _rest: Rest,
    private readonly _timeout: number,
    private readonly _put: (frame: ServerFrame) => void,
    private readonly _end: (reason: string, retryAfter?: number) => void,
    private readonly _signal: AbortSignal,
  ) {}

  /** Queue a frame. The session limits the number of unanswered frames. */
  put(frame: Outgoing): void {
    if (!publicationsOf(frame).length) {
      this._refuse(frame, {
        code: 'unsupported',
        message: 'An event stream without a topic has no presence.',
        remedy: 'Name a topic, or connect by WebSocket.',
      });
      return;
    }
    this._queue.push(frame);
    if (this._working) return;
    this._working = true;
    // Wait for the end of this turn, so that its frames share a request.
    queueMicrotask(() => this._work());
  }

  private async _work(): Promise<void> {
    while (this._queue.length && !this._signal.aborted) {
      const row: Turn[] = [];
      let count = 0;
      for (let frame = this._queue[0]; frame; frame = this._queue[0]) {
        const messages = publicationsOf(frame);
        count += messages.length;
        if (row.length && count > LIMITS.maxBatch) break;
        row.push([frame, messages]);
        this._queue.shift();
      }
      await this._publish(row);
    }
    this._working = false;
  }

  private async _publish(row: readonly Turn[]): Promise<void> {
    const messages = row.flatMap(([, some]) => some);
    const limits = { timeout: this._timeout, signal: this._signal };
    let results: readonly PublishResult[];
    try {
      results = await this._rest.publish(messages, limits);
    } catch (error) {
      if (this._signal.aborted) return;
      const lost = error instanceof ConnectionFailed || error instanceof OperationTimeout;
      const known = error instanceof PubSubError ? error : undefined;
      for (const [frame] of row) {
        // Messages without a `ref` are not sent again.
        if (known && (!lost || frame.ref === undefined)) this._refuse(frame, errorInfo(known));
      }
      if (lost || !known) this._end(known?.message ?? String(error), known?.retryAfter);
      return;
    }
    let at = 0;
    let unanswered = false;
    for (const [frame, { length }] of row) {
      const part = results.slice(at, at + length);
      at += length;
      const lost = part.some(({ error }) => error && LOST.includes(error.code));
      // The session sends this message and all later ones again.
      if (lost && frame.ref !== undefined && this._rest.hasBatch) unanswered = true;
      else this._answer(frame, part);
    }
    if (unanswered) this._end('A part of a batch got no answer.');
  }

  private _answer(frame: Outgoing, results: readonly PublishResult[]): void {
    const { error, ...published } = results[0] ?? {};
    const batch = frame.type === 'publish' && frame.messages;
    if (error && !batch) this._refuse(frame, error);
    else {
      const answer = batch ? { results } : published;
      this._put(compact<PublishedFrame>({ type: 'published', ...answer, ref: frame.ref }));
    }
  }

  private _refuse({ ref }: Outgoing, error: ErrorInfo): void {
    this._put(compact<ErrorFrame>({ type: 'error', ...error, ref }));
  }
}

/** The messages of a frame; none if it has no topic. */
function publicationsOf(frame: Outgoing): readonly Publication[] {
  if (frame.type === 'publish') return frame.messages ?? (frame.message ? [frame.message] : []);
  const { type, topic, data } = frame;
  return topic === undefined ? [] : [{ topic, type, data }];
}

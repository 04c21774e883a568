/**
 * Publishes beside an event stream: over REST, one request at a time. Waiting messages share a
 * batch.
 */

import { DEVELOPMENT } from '../build.js';
import { compact } from '../compact.js';
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
import { errorInfo, type Limits, type Rest } from '../http/rest.js';
import { sizeOf } from '../wire/plain.js';

type Outgoing = PublishFrame | PresenceUpdateFrame;

/** A frame with its messages. */
type Turn = readonly [frame: Outgoing, messages: readonly Publication[]];

/** Maximum bytes of a request with several frames. */
const BATCH_BYTES = 4_194_304;

/** Codes of messages that got no answer. */
const LOST: readonly string[] = ['connection_failed', 'outcome_unknown', 'timeout'];

/** Publishes frames in order, and answers each. */
export class StreamPublisher {
  private _queue: Outgoing[] = [];
  private _working = false;

  /**
   * @param _rest Performs the requests.
   * @param _limits Timeout of each request, and the signal that cancels all of them.
   * @param _put Receives the answers.
   * @param _end Ends the transport; the session then publishes unanswered messages again.
   */
  constructor(
    private readonly _rest: Rest,
    private readonly _limits: Limits & { readonly signal: AbortSignal },
    private readonly _put: (frame: ServerFrame) => void,
    private readonly _end: (reason: string, retryAfter?: number) => void,
  ) {}

  /** Queue a frame. The session limits the number of unanswered frames. */
  put(frame: Outgoing): void {
    if (!publicationsOf(frame).length) {
      const error = {
        code: 'unsupported',
        message: 'An event stream without a topic has no presence.',
        remedy: 'Name a topic, or connect by WebSocket.',
      };
      // The session, which calls this, must have returned.
      queueMicrotask(() => this._refuse(frame, error));
      return;
    }
    this._queue.push(frame);
    if (this._working) return;
    this._working = true;
    // Wait for the end of this turn, so that its frames share a request.
    queueMicrotask(() => this._work());
  }

  private async _work(): Promise<void> {
    while (this._queue.length && !this._limits.signal.aborted) {
      const row: Turn[] = [];
      let count = 0;
      let size = 0;
      for (let frame = this._queue[0]; frame; frame = this._queue[0]) {
        const messages = publicationsOf(frame);
        count += messages.length;
        size += sizeOf(messages);
        if (row.length && (count > LIMITS.maxBatch || size > BATCH_BYTES)) break;
        row.push([frame, messages]);
        this._queue.shift();
      }
      await this._publish(row);
    }
    this._working = false;
  }

  private async _publish(row: readonly Turn[]): Promise<void> {
    const messages = row.flatMap(([, some]) => some);
    let results: readonly PublishResult[];
    try {
      results = await this._rest.publish(messages, this._limits);
    } catch (error) {
      if (this._limits.signal.aborted) return;
      const known = error instanceof PubSubError ? error : new ConnectionFailed(String(error));
      const lost = known instanceof ConnectionFailed || known instanceof OperationTimeout;
      for (const [frame] of row) {
        // Messages without a `ref` are not sent again.
        if (!lost || frame.ref === undefined) this._refuse(frame, errorInfo(known));
      }
      if (lost) this._end(known.message, known.retryAfter);
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
    if (unanswered) this._end(DEVELOPMENT ? 'A part of a batch got no answer.' : '');
  }

  private _answer(frame: Outgoing, results: readonly PublishResult[]): void {
    const { error, ...published } = results[0] ?? {};
    const batch = frame.type === 'publish' && frame.messages;
    if (error && !batch) this._refuse(frame, error);
    else {
      // The answer of a peer may have a type of its own: that of the message, or of a problem.
      const answer = batch ? { results } : published;
      this._put(compact<PublishedFrame>({ ...answer, type: 'published', ref: frame.ref }));
    }
  }

  private _refuse({ ref }: Outgoing, error: ErrorInfo): void {
    this._put(compact<ErrorFrame>({ ...error, type: 'error', ref }));
  }
}

/** The messages of a frame; none if it has no topic. */
function publicationsOf(frame: Outgoing): readonly Publication[] {
  if (frame.type === 'publish') return frame.messages ?? (frame.message ? [frame.message] : []);
  const { type, topic, data } = frame;
  return topic === undefined ? [] : [{ topic, type, data }];
}

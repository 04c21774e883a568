/** Converts a stream to server-sent events, for programs that serve HTTP themselves. */

import { DEVELOPMENT } from './build.js';
import { ClosedError } from './errors.js';
import { checkNames, checkNumber, TIME } from './settings/checks.js';
import type { StreamEvent, StreamReader } from './streams/reader.js';

/** Options of `sse`. */
export interface SseOptions {
  /**
   * Milliseconds without an event after which a comment is sent, from 1 to 86,400,000; default
   * 15,000.
   */
  readonly keepalive?: number | undefined;
}

/** The name and the data of an event, the same as in Python. */
function described(event: StreamEvent): readonly [name: string, data: object] {
  const { kind } = event;
  switch (kind) {
    case 'start':
      return ['started', { meta: event.meta ?? null }];
    case 'delta':
      return [kind, { text: event.text, pieces: event.pieces }];
    case 'snapshot':
      return [kind, { text: event.text, parts: event.parts }];
    case 'gap':
      return [kind, { first: event.first, last: event.last }];
    case 'stalled':
      return [kind, { seconds: event.ms / 1_000 }];
    case 'done':
      return [kind, { text: event.text, reason: event.reason, usage: event.usage ?? null }];
    case 'aborted':
      return [kind, { text: event.text, reason: event.reason, by: event.by }];
  }
}

/**
 * Return the events of a stream as the body of a `text/event-stream` response.
 *
 * The names of the events are `started`, `delta`, `snapshot`, `gap`, `stalled`, `done` and
 * `aborted`; their data is the attributes as JSON, with times in seconds. The end of the response
 * closes the reader. The stream continues.
 *
 * @param reader A reader from `readStream` that nothing else reads.
 * @throws InvalidOption `keepalive` is not such a number, or there is no option of that name.
 */
export function sse(reader: StreamReader, options: SseOptions = {}): ReadableStream<Uint8Array> {
  if (DEVELOPMENT) checkNames('options', options, ['keepalive']);
  const { keepalive = 15_000 } = options;
  checkNumber('keepalive', keepalive, TIME);
  const events = reader[Symbol.asyncIterator]();
  const encoder = new TextEncoder();
  let following: Promise<IteratorResult<StreamEvent, void>> | undefined;
  let hasArrived = false;
  let wake: (() => void) | undefined;

  function follow(): Promise<IteratorResult<StreamEvent, void>> {
    const next = events.next();
    const arrive = (): void => {
      hasArrived = true;
      wake?.();
    };
    // An error waits for a slow connection, as an event does.
    next.then(arrive, arrive);
    return next;
  }

  /** The next frame; undefined at the end. */
  async function frame(): Promise<string | undefined> {
    following ??= follow();
    if (!hasArrived) {
      let timer: ReturnType<typeof setTimeout> | undefined;
      await new Promise<void>((resolve) => {
        wake = resolve;
        timer = setTimeout(resolve, keepalive);
      });
      clearTimeout(timer);
      if (!hasArrived) return ': keepalive\n\n';
    }
    hasArrived = false;
    try {
      const { done, value } = await following;
      following = undefined;
      if (done) return undefined;
      const [name, data] = described(value);
      return `event: ${name}\ndata: ${JSON.stringify(data)}\n\n`;
    } catch (error) {
      // The program closed the client, as at its own end: not an error of the response.
      if (error instanceof ClosedError) return undefined;
      throw error;
    }
  }

  return new ReadableStream(
    {
      async pull(controller) {
        const text = await frame();
        if (text === undefined) controller.close();
        else controller.enqueue(encoder.encode(text));
      },
      cancel: () => reader.close(),
    },
    // The reader joins the deltas that a slow connection does not take.
    { highWaterMark: 0 },
  );
}

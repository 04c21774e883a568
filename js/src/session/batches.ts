/**
 * Publishes of several messages in one frame: the answer of each message, and repeats.
 *
 * The part of a client that publishes batches.
 */

import type { ErrorFrame, PublishedFrame, PublishResult } from '../generated/wire.js';
import {
  type Entry,
  openOf,
  PAUSE,
  type Publishes,
  RATE_LIMITED,
  UNANSWERED,
} from './publishes.js';

/** The server answered: one result for each message without one. */
export function batchAnswered(publishes: Publishes, entry: Entry, frame: PublishedFrame): void {
  const all = frame.results ?? [frame as PublishResult];
  let pause = 0;
  openOf(entry).forEach(([slot], n) => {
    pause = Math.max(pause, note(entry, slot, all[n] ?? UNANSWERED));
  });
  publishes._advance(entry, pause);
}

/**
 * The server answered one message of a batch that a dialect sent in single frames.
 *
 * @param last All others have an answer.
 */
export function slotAnswered(
  publishes: Publishes,
  entry: Entry,
  frame: PublishedFrame | ErrorFrame,
  slot: number,
  last: boolean,
): void {
  const pause = note(
    entry,
    slot,
    frame.type === 'published' ? (frame as PublishResult) : refusal(frame),
  );
  if (last) {
    publishes._advance(entry, pause);
  } else {
    if (pause) publishes.pause(pause);
    publishes.flush();
  }
}

/**
 * Record the result of one message; returns the milliseconds to pause if it was refused for now.
 */
function note(entry: Entry, slot: number, result: PublishResult): number {
  const { error } = result;
  if (error?.code === RATE_LIMITED) return error.retry_after_ms || PAUSE;
  const id = entry._publish.messages[slot]?.id;
  entry._results[slot] = error || result.id ? result : ({ ...result, id } as PublishResult);
  return 0;
}

/** The outcome of a message, from the error about it. */
function refusal({ code, message, remedy, field, retry_after_ms }: ErrorFrame): PublishResult {
  const about = code === RATE_LIMITED ? { retry_after_ms } : { remedy, field };
  return { error: { code, message, ...about } } as PublishResult;
}

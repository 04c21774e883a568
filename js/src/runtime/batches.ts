/** Publishes several messages in one call: splits them into frames that the server accepts. */

import { fromCode, PubSubError } from '../errors.js';
import type { Published } from '../values.js';
import type { Driver } from './driver.js';
import { enter, type Prepared, type PublishOptions, resultsOf } from './publishing.js';

/** Maximum messages of a batch if the server does not state a limit. */
const BATCH = 1_000;

/** Maximum bytes of payload per frame of a batch. */
const BATCH_BYTES = 1 << 20;

/**
 * Publish frame by frame; other publishes in the meantime follow the first frame, without delay.
 *
 * @param end Deadline by the clock; the rest is then given up.
 * @param hasTurn Resolves when earlier publishes have entered the queue.
 */
export async function sendAll(
  driver: Driver,
  items: readonly Prepared[],
  options: PublishOptions,
  end: number,
  hasTurn: boolean,
): Promise<(Published | PubSubError)[]> {
  const results: (Published | PubSubError)[] = [];
  for (const rest = [...items]; rest.length; hasTurn = false) {
    const most = driver.peer?.limits?.max_batch || BATCH;
    // Room is granted for a whole frame.
    const count = firstFrame(rest, Math.min(most, driver.peer?.burst || most));
    const frame = rest.splice(0, count);
    const limited = { ...options, timeout: Math.max(0, Math.round(end - driver.clock.now())) };
    try {
      const outcome = await enter(driver, frame, limited, end, true, hasTurn);
      results.push(...(await resultsOf(driver, frame, limited, end, outcome)));
    } catch (error) {
      // Keep the results of earlier messages if these fail.
      if (!(results[0] && error instanceof PubSubError)) throw error;
      for (const { id, publication } of frame) {
        const details = { ...error, id, topic: publication.topic };
        results.push(fromCode(error.code, error.message, details));
      }
    }
  }
  return results;
}

/** Number of messages that fit into one frame. */
function firstFrame(items: readonly Prepared[], most: number): number {
  let bytes = 0;
  const end = items.findIndex(({ size }, n) => {
    bytes += size;
    return n && (n >= most || bytes > BATCH_BYTES);
  });
  return end < 0 ? items.length : end;
}

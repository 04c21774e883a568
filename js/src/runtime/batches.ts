/** Publishes several messages in one call: splits them into frames that the server accepts. */

import { PubSubError } from '../errors.js';
import type { Published } from '../values.js';
import type { Driver } from './driver.js';
import { enter, type Prepared, type PublishOptions, refused, resultsOf } from './publishing.js';

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
  const { peer, session } = driver;
  const most = peer?.limits?.max_batch || BATCH;
  // Room is granted for a whole frame.
  const count = firstFrame(items, Math.min(most, session.context.peer?.burst || most));
  const timeout = Math.max(0, Math.round(end - driver.clock.now()));
  const limited = { ...options, timeout };
  const frame = items.slice(0, count);
  const rest = items.slice(count);
  if (!frame.length) return [];
  const outcome = await enter(driver, frame, limited, end, true, hasTurn);
  const results = await resultsOf(driver, frame, limited, end, outcome);
  if (!rest.length) return results;
  try {
    return [...results, ...(await sendAll(driver, rest, options, end, false))];
  } catch (error) {
    // Keep the results of earlier messages if these fail.
    if (!(error instanceof PubSubError)) throw error;
    return [...results, ...rest.map((item) => refused(error, item))];
  }
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

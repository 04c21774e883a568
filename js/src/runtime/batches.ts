/** Several messages in one call: split into frames that the server takes. */

import { PubSubError } from '../errors.js';
import * as batches from '../session/batches.js';
import type { Published } from '../values.js';
import type { Driver } from './driver.js';
import { type Prepared, type PublishOptions, refused, send } from './publishing.js';

/** Messages of a batch, where the server does not say how many it takes. */
const BATCH = 1_000;

/** A batch is sent in frames of at most so many bytes of payload. */
const BATCH_BYTES = 1 << 20;

/**
 * Publish frame by frame; what is published meanwhile comes after the first, and is not held up.
 *
 * @param end Time, by the clock; then the rest is given up.
 * @param hasTurn What was published before has entered the queue.
 */
export async function sendAll(
  driver: Driver,
  items: readonly Prepared[],
  options: PublishOptions,
  end: number,
  hasTurn: boolean,
): Promise<(Published | PubSubError)[]> {
  const { peer, session } = driver;
  session.publishes.batches ??= batches;
  const most = peer?.limits?.max_batch || BATCH;
  // What goes in one frame is granted as a whole.
  const count = firstFrame(items, Math.min(most, session.context.peer?.burst || most));
  const timeout = Math.max(0, Math.round(end - driver.clock.now()));
  const limited = { ...options, timeout };
  const results = count ? await send(driver, items.slice(0, count), limited, true, hasTurn) : [];
  const rest = items.slice(count);
  if (!rest.length) return results;
  try {
    return [...results, ...(await sendAll(driver, rest, options, end, false))];
  } catch (error) {
    // What became of the messages before is not lost with these.
    if (!(error instanceof PubSubError)) throw error;
    return [...results, ...rest.map((item) => refused(error, item))];
  }
}

/** How many of these one frame takes. */
function firstFrame(items: readonly Prepared[], most: number): number {
  let bytes = 0;
  const end = items.findIndex(({ size }, n) => {
    bytes += size;
    return n && (n >= most || bytes > BATCH_BYTES);
  });
  return end < 0 ? items.length : end;
}

/** Several messages in one call: split into frames that the server takes. */

import { PubSubError } from '../errors.js';
import * as batches from '../session/batches.js';
import type { Published } from '../values.js';
import type { Driver } from './driver.js';
import { PARTS } from './parts.js';
import { type Prepared, type PublishOptions, prepare, refused, send } from './publishing.js';

/** Messages of a batch, where the server does not say how many it takes. */
const BATCH = 1_000;

/** A batch is sent in frames of at most so many bytes of payload. */
const BATCH_BYTES = 1 << 20;

/** Publish several, whose turn it is, in frames that the server takes; see `PubSub.publishMany`. */
export async function publishMany(
  driver: Driver,
  messages: readonly unknown[],
  options: PublishOptions,
): Promise<(Published | PubSubError)[]> {
  const { maxPayload, session } = driver;
  session.publishes.batches ??= batches;
  if (typeof Object(messages)[Symbol.iterator] !== 'function') {
    return (await driver.part(PARTS.arguments(), options)).refuseMany(messages);
  }
  const items: Prepared[] = [];
  for (const given of messages) {
    const [topic, message] =
      Array.isArray(given) && given.length === 2 ? given : [undefined, given];
    const item = prepare(topic, message, maxPayload);
    if (item) items.push(item);
    else (await driver.part(PARTS.arguments(), options)).refuseMessage(topic, message, maxPayload);
  }
  return sendAll(driver, items, options, true);
}

/** Publish frame by frame; what is published meanwhile comes after the first, and is not held up. */
async function sendAll(
  driver: Driver,
  items: readonly Prepared[],
  options: PublishOptions,
  hasTurn: boolean,
): Promise<(Published | PubSubError)[]> {
  const { clock } = driver;
  const deadline = clock.now() + driver.patience(options.timeout);
  const most = driver.peer?.limits?.max_batch || BATCH;
  // What goes in one frame is granted as a whole.
  const count = firstFrame(items, Math.min(most, driver.session.context.peer?.burst || most));
  const results = count ? await send(driver, items.slice(0, count), options, true, hasTurn) : [];
  const rest = items.slice(count);
  if (!rest.length) return results;
  try {
    const timeout = Math.max(0, deadline - clock.now());
    return [...results, ...(await sendAll(driver, rest, { ...options, timeout }, false))];
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

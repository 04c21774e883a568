/**
 * What a first connection does not need: waiting for it, batches, presence, the queue's turnstile, the
 * watch for sleep, and what is said of wrong arguments.
 */

import { type CodedDetails, ConnectionFailed, PubSubError } from '../errors.js';
import type { JsonObject } from '../generated/wire.js';
import type { Published, StateChange, StateName } from '../values.js';
import type { Driver } from './driver.js';
import { type Prepared, type PublishOptions, prepare, refused, send } from './publishing.js';
import { checkPresence, refuseMessage } from './refusals.js';
import { type Waiting, within } from './waiting.js';

export { refuseMessage, refuseSubscription } from './refusals.js';
export { Turnstile } from './turnstile.js';
export { watch } from './watch.js';

/** Messages of a batch, where the server does not say how many it takes. */
const BATCH = 1_000;

/** A batch is sent in frames of at most so many bytes of payload. */
const BATCH_BYTES = 1 << 20;

/** Wait until the client is connected; see `PubSub.connect`. */
export async function connected(
  driver: Driver,
  { timeout, signal }: Waiting,
  about?: CodedDetails,
): Promise<void> {
  const { clock } = driver;
  const patience = driver.patience(timeout);
  const end = clock.now() + patience;
  const states = driver.states();
  signal?.throwIfAborted();
  while (driver.state !== 'connected') {
    driver.refuseEnded();
    if (!(await within(states.next(), signal, clock, end - clock.now()))) {
      const why = reasonOf(driver.lastFailure, driver.state);
      throw new ConnectionFailed(`Not connected within ${patience} ms: ${why}`, about);
    }
  }
  states.finish();
}

/** Change how this client appears; see `PubSub.updatePresence`. */
export async function updatePresence(
  driver: Driver,
  topic: string | undefined,
  data: JsonObject,
  options: Waiting,
): Promise<void> {
  checkPresence(topic, data, driver.maxPayload);
  options.signal?.throwIfAborted();
  driver.connect();
  driver.feed({ kind: 'updatePresence', topic, data });
  await connected(driver, options, { code: 'not_connected', topic });
}

/** Publish several, in frames that the server takes; see `PubSub.publishMany`. */
export async function publishMany(
  driver: Driver,
  messages: readonly unknown[],
  options: PublishOptions,
): Promise<(Published | PubSubError)[]> {
  const items = messages.map((given) => {
    const [topic, message] =
      Array.isArray(given) && given.length === 2 ? given : [undefined, given];
    const { maxPayload } = driver;
    return prepare(topic, message, maxPayload) ?? refuseMessage(topic, message, maxPayload);
  });
  const { clock } = driver;
  const end = clock.now() + driver.patience(options.timeout);
  const results: (Published | PubSubError)[] = [];
  for (const batch of batches(items, driver.welcome?.limits?.max_batch || BATCH)) {
    const timeout = Math.max(0, end - clock.now());
    try {
      results.push(...(await send(driver, batch, { ...options, timeout }, true)));
    } catch (error) {
      if (!results.length || !(error instanceof PubSubError)) throw error;
      // What became of the messages before is not lost with these.
      results.push(...batch.map((item) => refused(error, item)));
    }
  }
  return results;
}

/** Split by the server's limit and by bytes, in order. */
function batches(items: readonly Prepared[], most: number): Prepared[][] {
  const found: Prepared[][] = [];
  let last: Prepared[] = [];
  let size = 0;
  for (const item of items) {
    if (!found.length || last.length >= most || size + item.size > BATCH_BYTES) {
      last = [];
      found.push(last);
      size = 0;
    }
    last.push(item);
    size += item.size;
  }
  return found;
}

/** Why a client is not connected, in words. */
function reasonOf(failure: StateChange | undefined, state: StateName): string {
  if (!failure) return `nothing failed yet, the state is ${state}.`;
  const said = failure.reason.replace(/\.$/, '') || `the state is ${failure.to}`;
  return failure.code === undefined ? `${said}.` : `${said} (${failure.code}).`;
}

/** One message or several, from what a program hands to `publish` to what became of it. */

import { DEVELOPMENT } from '../build.js';
import { OperationTimeout, PubSubError } from '../errors.js';
import type { JsonObject, PublishResult } from '../generated/wire.js';
import * as batches from '../session/batches.js';
import type { Rejected } from '../session/ports.js';
import type { Publish } from '../session/requests.js';
import { checkCall, checkChoice, invalid, kind } from '../settings/checks.js';
import type { Published, Via } from '../values.js';
import type { Driver } from './driver.js';
import { operations } from './loading.js';
import { PARTS } from './parts.js';
import { type Prepared, prepare } from './prepare.js';
import { rejected } from './rejected.js';
import type { Waiting } from './waiting.js';

/** A message of this type changes the sender's presence (HIP-56, Client SDK). */
const PRESENCE_UPDATE = 'presence.update';

/** Messages of a batch, where the server does not say how many it takes. */
const BATCH = 1_000;

/** A batch is sent in frames of at most so many bytes of payload. */
const BATCH_BYTES = 1 << 20;

const LATE = 'No answer arrived in time. The message may have been published.';

/** What `publish` takes beside topic and message. */
export interface PublishOptions extends Waiting {
  /** Seconds in history; 0 stores nothing. */
  readonly ttl?: number | undefined;
  /** Message id, at most 128 characters; default `msg_` and a ULID. */
  readonly id?: string | undefined;
  /**
   * With the policy `latest`, a newer message with the same key replaces one that is not sent yet.
   */
  readonly key?: string | undefined;
  /**
   * If the publish rate is used up, send it after the other publishes of this client, which may
   * overtake it.
   */
  readonly background?: boolean | undefined;
  /** `auto` uses the open connection, or HTTP if the connection does not carry publishes. */
  readonly via?: Via | undefined;
}

/** @internal The options of a call that names none. */
export const NONE: PublishOptions = {};

/** @internal Refuse options that no publish takes. */
export function checkPublishing(options: PublishOptions): void {
  if (!DEVELOPMENT || options === NONE) return;
  checkCall(options, ['ttl', 'id', 'key', 'background', 'via']);
  const { key = '', via = 'auto' } = options;
  checkChoice('via', via, ['auto', 'socket', 'rest']);
  if (typeof key === 'string') return;
  throw invalid(
    'key',
    `is ${kind(key)}, not a string`,
    'Give any text that names what is replaced.',
  );
}

/** @internal Publish one message; see `PubSub.publish`. */
export async function publish(
  driver: Driver,
  topic: string,
  message: unknown,
  options: PublishOptions,
): Promise<Published> {
  driver.refuseEnded();
  checkPublishing(options);
  const one =
    prepare(topic, message, driver.maxPayload, options) ??
    (await driver.part(PARTS.arguments(), options)).refuseMessage(
      topic,
      message,
      driver.maxPayload,
      options,
    );
  const { data, type } = one.publication;
  if (type === PRESENCE_UPDATE && options.via !== 'rest') {
    const { updatePresence } = await driver.part(operations(), options);
    await updatePresence(driver, topic, data as JsonObject, options);
    return { id: one.id, timestamp: undefined, seq: undefined, duplicate: false };
  }
  const [result] = await send(driver, [one], options, false);
  if (!result || result instanceof PubSubError) throw result;
  return result;
}

/** @internal Publish several, in frames that the server takes; see `PubSub.publishMany`. */
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
  return sendAll(driver, items, options);
}

/** Publish frame by frame; what is published meanwhile comes after the first, and is not held up. */
async function sendAll(
  driver: Driver,
  items: readonly Prepared[],
  options: PublishOptions,
): Promise<(Published | PubSubError)[]> {
  const { clock } = driver;
  const deadline = clock.now() + driver.patience(options.timeout);
  const most = driver.peer?.limits?.max_batch || BATCH;
  // What goes in one frame is granted as a whole.
  const count = firstFrame(items, Math.min(most, driver.session.context.peer?.burst || most));
  const results = count ? await send(driver, items.slice(0, count), options, true) : [];
  const rest = items.slice(count);
  if (!rest.length) return results;
  try {
    const timeout = Math.max(0, deadline - clock.now());
    return [...results, ...(await sendAll(driver, rest, { ...options, timeout }))];
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

/** Publish what fits into one frame, after what was published before it. */
async function send(
  driver: Driver,
  items: readonly Prepared[],
  { timeout, signal, key, background, via }: PublishOptions,
  batch: boolean,
): Promise<(Published | PubSubError)[]> {
  const patience = driver.patience(timeout);
  const { clock } = driver;
  const end = clock.now() + patience;
  signal?.throwIfAborted();
  // A peer of plain HIP-56 acknowledges nothing on a socket, but answers a request.
  const certain = via === 'rest';
  const limits = { timeout: patience, signal };
  if (certain || (via !== 'socket' && !driver.acknowledges)) {
    const api = await driver.part(driver.http(), limits);
    const results = await api.publish(items, limits, certain);
    if (results) return items.map((item, n) => published(results[n], item));
  }
  driver.connect();
  const { sendPolicy: policy } = driver.options;
  const blocks = policy === 'block';
  if (background || policy === 'latest' || policy === 'drop_oldest') {
    driver.session.publishes.policies ??= await driver.part(PARTS.policies(), limits);
  }
  const request: Publish = {
    ref: driver.number(),
    messages: items.map(({ publication }) => publication),
    size: items.reduce((sum, { size }) => sum + size, 0),
    policy: blocks ? 'error' : policy,
    key,
    batch,
    background,
  };
  const outcome = blocks
    ? await (await driver.part(driver.backpressure(), limits)).publish(request, end, signal)
    : await driver.publish(request, end, signal);
  if (outcome.kind === 'acked') return items.map((item, n) => published(outcome.results[n], item));
  if (outcome.kind === 'rejected') {
    const isLate = outcome.code === 'timeout';
    const message = isLate ? (await operations()).unsent(driver, patience) : outcome.message;
    return items.map((item) => refused({ ...outcome, message }, item));
  }
  const late = clock.now() >= end;
  const code = late ? 'timeout' : 'outcome_unknown';
  return items.map(({ id, publication: { topic } }) => {
    const message = DEVELOPMENT && late ? LATE : undefined;
    return new OperationTimeout(message, { code, topic, id, outcomeUnknown: true });
  });
}

/** What became of one publish, as the program gets it. */
function published(result: PublishResult = {}, item: Prepared): Published | PubSubError {
  const { error, id = item.id, timestamp, seq, duplicate = false } = result;
  if (error) return refused({ ...error, retryAfter: error.retry_after_ms }, item);
  return { id, timestamp, seq, duplicate };
}

/** The error of one message, of what was said of it or of its batch. */
function refused(refusal: Omit<Rejected, 'kind'>, { id, publication }: Prepared): PubSubError {
  return rejected(refusal, publication.topic, id);
}

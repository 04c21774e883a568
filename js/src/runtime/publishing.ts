/** Validates messages and the options of their publishes, and hands them to the publisher. */

import { DEVELOPMENT } from '../build.js';
import type { PubSubError } from '../errors.js';
import { isPublication } from '../generated/wire.js';
import { checkCall, checkChoice, checkType } from '../settings/checks.js';
import { isTopic } from '../topics.js';
import type { JsonObject, Published, Via } from '../values.js';
import { isObject } from '../wire/guard.js';
import { messageId } from '../wire/ids.js';
import { isPaired, sizeOf } from '../wire/plain.js';
import type { Driver } from './driver.js';
import { texts } from './parts.js';
import type { Prepared } from './publisher.js';
import type { Waiting } from './waiting.js';

/** Fields of a message. */
const FIELDS = DEVELOPMENT ? isPublication.fields.map(({ name }) => name) : [];

/** Options of `publishMany`. */
export interface PublishManyOptions extends Waiting {
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

/** Options of `publish`. */
export interface PublishOptions extends PublishManyOptions {
  /** Seconds in history; 0 stores nothing. Default: `ttl` of the message, or the server's. */
  readonly ttl?: number | undefined;
  /** Message id, at most 128 characters; default `msg_` and a ULID. */
  readonly id?: string | undefined;
}

/** @internal The default options. */
export const NONE: PublishOptions = {};

/** Reject options other than those of `publishMany` and `more`. */
function checkPublishing(options: PublishManyOptions, more: readonly string[]): void {
  if (!DEVELOPMENT || options === NONE) return;
  checkCall(options, [...more, 'key', 'background', 'via']);
  const { key, via = 'auto' } = options;
  checkChoice('via', via, ['auto', 'socket', 'rest']);
  checkType('key', key, 'string', 'Give a string: messages with the same key replace each other.');
}

/**
 * Create a publication from one message, with an id.
 *
 * @param topic Its topic; undefined if the message contains it.
 * @param message `{type, data}` with optional `ttl`, `id`, `meta`.
 * @param limit Maximum bytes of its JSON data.
 * @param given `ttl` and `id` that override the message's own.
 * @returns Undefined if it cannot be published; `refuseMessage` throws the reason.
 */
function prepare(
  topic: string | undefined,
  message: unknown,
  limit: number,
  given: PublishOptions = NONE,
): Prepared | undefined {
  const source: Readonly<Record<string, unknown>> = Object(message);
  const { topic: named = topic, type, data, meta } = source;
  const ttl = given.ttl ?? source['ttl'];
  const id = given.id ?? source['id'] ?? messageId();
  const publication: Record<string, unknown> = { topic: named, type, data, id };
  if (ttl !== undefined) publication['ttl'] = ttl;
  if (meta !== undefined) publication['meta'] = meta;
  const bytes = sizeOf(data);
  const more = meta === undefined ? 0 : sizeOf(meta);
  const fits = bytes <= limit && more <= limit && (topic ?? named) === named;
  if (!fits || !isPublication(publication) || !isPaired(`${type},${id}`)) return undefined;
  if (DEVELOPMENT && !Object.keys(source).every((name) => FIELDS.includes(name))) return undefined;
  return { _message: publication as Prepared['_message'], size: bytes + more };
}

/** A message of this type changes the sender's presence (HIP-56, Client SDK). */
const PRESENCE_UPDATE = 'presence.update';

/** @internal Publish one message, with its values at the call; see `PubSub.publish`. */
export async function publish(
  driver: Driver,
  topic: string,
  message: unknown,
  options: PublishOptions,
): Promise<Published> {
  driver.checkOpen();
  // After a string, the third argument is probably the message: the error is about the second.
  if (!DEVELOPMENT || typeof message !== 'string') checkPublishing(options, ['ttl', 'id']);
  const { maxPayload } = driver;
  const one = prepare(topic, message, maxPayload, options);
  if (!one)
    return (await texts(driver, options)).refuseMessage(topic, message, maxPayload, options);
  const { data, type, id } = one._message;
  if (type === PRESENCE_UPDATE && options.via !== 'rest') {
    await updatePresence(driver, topic, data as JsonObject, options);
    return { id, timestamp: undefined, seq: undefined, duplicate: false };
  }
  return driver.operate(options, ({ publisher }, timed) => publisher.publish(one, timed));
}

/** @internal Publish several messages, with their values at the call; see `PubSub.publishMany`. */
export async function publishMany(
  driver: Driver,
  messages: readonly unknown[],
  options: PublishManyOptions,
): Promise<(Published | PubSubError)[]> {
  driver.checkOpen();
  checkPublishing(options, []);
  const { maxPayload } = driver;
  if (typeof Object(messages)[Symbol.iterator] !== 'function') {
    return (await texts(driver, options)).refuseMany(messages);
  }
  const items: Prepared[] = [];
  for (const given of messages) {
    const [topic, message] =
      Array.isArray(given) && given.length === 2 ? given : [undefined, given];
    const item = prepare(topic, message, maxPayload);
    if (item) items.push(item);
    else {
      const at = DEVELOPMENT
        ? { item: items.length, isPair: !Object.is(message, given) }
        : undefined;
      (await texts(driver, options)).refuseMessage(topic, message, maxPayload, at);
    }
  }
  if (!items.length) {
    driver.timed(options);
    return [];
  }
  return driver.operate(options, ({ publisher }, timed) => publisher.publishMany(items, timed));
}

/** @internal Change how this client appears; see `PubSub.updatePresence`. */
export async function updatePresence(
  driver: Driver,
  topic: string | undefined,
  data: JsonObject,
  options: Waiting,
): Promise<void> {
  const isFit = (topic === undefined || isTopic(topic)) && isObject(data);
  if (!(isFit && sizeOf(data) <= driver.maxPayload)) {
    (await texts(driver, options)).checkPresence(topic, data, driver.maxPayload);
  }
  await driver.operate(options, ({ publisher }, timed) =>
    publisher.updatePresence(topic, data, timed),
  );
}

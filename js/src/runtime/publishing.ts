/** Validates the arguments of publishes, and hands the messages to the publisher. */

import { DEVELOPMENT } from '../build.js';
import type { PubSubError } from '../errors.js';
import { isTopic } from '../topics.js';
import type { JsonObject, Published } from '../values.js';
import { isObject } from '../wire/guard.js';
import { sizeOf } from '../wire/plain.js';
import type { Driver } from './driver.js';
import { texts } from './parts.js';
import {
  checkPublishing,
  type Prepared,
  type PublishManyOptions,
  type PublishOptions,
  prepare,
} from './publications.js';
import type { Waiting } from './waiting.js';

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

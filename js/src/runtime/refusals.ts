/** Why a message is not taken: loaded only to say so. */

import { InvalidOption, InvalidPayload, type PubSubError } from '../errors.js';
import { kind } from '../settings/checks.js';
import { validateTopic } from '../topics.js';
import type { Outgoing } from '../values.js';

const FIELDS = ['topic', 'type', 'data', 'ttl', 'id', 'meta'];
const ID_MAX = 128;

/**
 * What is wrong with a message that no publication could be made of.
 *
 * @param topic Where it goes; undefined where the message names it.
 * @param message What the program passed.
 * @param given `ttl` and `id` that go before the message's own.
 * @throws InvalidTopic The topic is not valid.
 */
export function whyNot(
  topic: unknown,
  message: unknown,
  given: { readonly ttl?: number | undefined; readonly id?: string | undefined },
): PubSubError {
  if (topic === undefined && Array.isArray(message)) {
    return new InvalidPayload(`An item is ${kind(message)}.`, {
      remedy: 'Give [topic, { type, data }] pairs.',
      field: 'messages',
    });
  }
  if (typeof message !== 'object' || message === null || Array.isArray(message)) {
    return new InvalidPayload(`The message is ${kind(message)}, not an object.`, {
      remedy: 'Publish { type, data }.',
      field: 'message',
    });
  }
  const { type, data, meta, ...fields } = message as Outgoing & { readonly topic?: string };
  for (const name of Object.keys(message)) {
    if (FIELDS.includes(name)) continue;
    return new InvalidOption(`The message has a field \`${name.slice(0, 64)}\`.`, {
      remedy: `Its fields are ${FIELDS.join(', ')}; put everything else into \`data\`.`,
      field: name,
    });
  }
  if (topic !== undefined && fields.topic !== undefined && fields.topic !== topic) {
    return new InvalidOption('The message names another topic than the call.', {
      remedy: 'Leave the topic out of the message.',
      field: 'topic',
      topic: String(topic),
    });
  }
  const name = validateTopic(topic ?? fields.topic);
  if (data === undefined) {
    return new InvalidPayload('The message has no `data`.', {
      remedy: 'Publish { type, data }.',
      field: 'data',
      topic: name,
    });
  }
  const ttl: unknown = given.ttl ?? fields.ttl;
  const id: unknown = given.id || fields.id;
  const isText = (value: unknown): value is string =>
    typeof value === 'string' && value.length > 0 && value.length <= ID_MAX;
  const [field, said] =
    type !== undefined && !isText(type)
      ? ['type', 'is no text of 1 to 128 characters']
      : ttl !== undefined && !(Number.isSafeInteger(ttl) && Number(ttl) >= 0)
        ? ['ttl', 'is no whole number of seconds']
        : id !== undefined && !isText(id)
          ? ['id', 'is no text of 1 to 128 characters']
          : meta !== undefined && (typeof meta !== 'object' || meta === null)
            ? ['meta', 'is no object']
            : ['message', 'is not valid'];
  return new InvalidOption(`\`${field}\` ${said}.`, { field, topic: name });
}

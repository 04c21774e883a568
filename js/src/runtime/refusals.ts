/** Why a message or a subscription is not taken: loaded only to say so. */

import { InvalidOption, InvalidPayload, type PubSubError } from '../errors.js';
import { checkFlag, checkFunction, checkNames, checkWhole, kind } from '../settings/checks.js';
import { validatePattern, validateTopic } from '../topic_names.js';
import type { Outgoing } from '../values.js';
import { checkData, checkPublication } from '../wire/payloads.js';
import type { SubscribeBounds, SubscribeOptions } from './subscribing.js';

const FIELDS = ['topic', 'type', 'data', 'ttl', 'id', 'meta'];
const ID_MAX = 128;

/**
 * What is wrong with a message that no publication could be made of.
 *
 * @param topic Where it goes; undefined where the message names it.
 * @param message What the program passed.
 * @param limit Bytes of JSON its data may have.
 * @param given `ttl` and `id` that go before the message's own.
 * @throws InvalidTopic The topic is not valid.
 * @throws InvalidPayload Its data is not plain JSON.
 * @throws PayloadTooLarge Its data is over the limit.
 */
export function whyNot(
  topic: unknown,
  message: unknown,
  limit: number,
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
  if (field === 'message') checkPublication({ topic: name, data, ...(meta && { meta }) }, limit);
  return new InvalidOption(`\`${field}\` ${said}.`, { field, topic: name });
}

/**
 * Refuse an update of presence.
 *
 * @throws InvalidTopic The topic is not valid.
 * @throws InvalidPayload The data is not plain JSON.
 * @throws PayloadTooLarge The data is over the limit.
 */
export function refusePresence(topic: string | undefined, data: unknown, limit: number): void {
  if (topic !== undefined) validateTopic(topic);
  checkData(data, limit, topic);
}

/**
 * What is wrong with the arguments of `subscribe`.
 *
 * @throws InvalidTopic A pattern or topic is not valid.
 */
export function refuseSubscription(
  topics: unknown,
  options: SubscribeOptions,
  bounds: SubscribeBounds,
): PubSubError {
  checkNames('options', options, [...bounds.others, ...bounds.handlers]);
  for (const name of bounds.handlers) checkFunction(name, options[name]);
  const { history, after, presence } = options;
  if (history !== undefined) checkWhole('history', history, 0, bounds.history, 'messages');
  refusePatterns(topics, bounds.patterns);
  if (after !== undefined) refusePositions(after);
  checkFlag('presence', presence ?? true);
  return new InvalidOption('The subscription is not valid.');
}

function refusePatterns(topics: unknown, most: number): void {
  if (typeof topics === 'string') validatePattern(topics);
  if (typeof topics === 'string') return;
  if (!Array.isArray(topics) || !topics.length) {
    const problem = Array.isArray(topics) ? 'empty' : kind(topics);
    throw new InvalidOption(`\`topics\` is ${problem}.`, {
      remedy: 'Pass a pattern or a list of patterns.',
      field: 'topics',
    });
  }
  if (topics.length > most) {
    throw new InvalidOption(
      `\`topics\` has ${topics.length} patterns; one subscription takes ${most}.`,
      { remedy: 'Use `*` or `**`, or several subscriptions.', field: 'topics' },
    );
  }
  for (const topic of topics) validatePattern(topic);
}

function refusePositions(after: unknown): void {
  if (typeof after !== 'object' || after === null || Array.isArray(after)) {
    throw new InvalidOption(`\`after\` is ${kind(after)}.`, {
      remedy: 'Pass positions by topic, as `sub.positions` gives them.',
      field: 'after',
    });
  }
  for (const [topic, seq] of Object.entries(after)) {
    checkWhole(`after[${validateTopic(topic)}]`, seq, 0, Number.MAX_SAFE_INTEGER);
  }
}

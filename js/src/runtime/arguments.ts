/**
 * Errors about the arguments of `publish` and `subscribe`, and subscriptions with `types` or own
 * presence: loaded with the first of them.
 */

import { DEVELOPMENT } from '../build.js';
import {
  InvalidOption,
  InvalidPayload,
  InvalidTopic,
  type PubSubError,
  UsageError,
} from '../errors.js';
import { isPublication } from '../generated/wire.js';
import {
  checkCall,
  checkNumber,
  checkType,
  HISTORY_MAX,
  invalid,
  kind,
  PATTERNS_MAX,
} from '../settings/checks.js';
import { checkName } from '../topic_names.js';
import { isWildcard } from '../topics.js';
import type { JsonObject, Message, Outgoing } from '../values.js';
import { isObject, isSome, isText } from '../wire/guard.js';
import { checkData, checkPublication, inWords } from '../wire/payloads.js';
import { isPaired } from '../wire/plain.js';
import type { Client } from './environment.js';
import type { Filter, Inbox } from './inbox.js';
import type { Publisher } from './publisher.js';
import { rejected } from './rejected.js';
import { unixMs } from './times.js';

/** Maximum topics with a position while messages wait. */
const SKIPPED = 100_000;

/** What a call gives besides the message. */
interface Given {
  readonly ttl?: number | undefined;
  readonly id?: string | undefined;
  /** The number of the item of `publishMany`. */
  readonly item?: number | undefined;
  /** Whether that item is a pair. */
  readonly isPair?: boolean | undefined;
}

const REMEDIES: Readonly<Record<string, string>> = {
  type: 'Pass a string of 1 to 128 characters.',
  ttl: 'Give whole seconds from 0 to 9007199254740991; 0 stores nothing.',
  id: 'Pass a string of 1 to 128 characters, or leave it out.',
  meta: 'Pass an object of JSON values, or leave it out.',
};

/** The problem of a field of a message. */
function problemOf(field: string, value: unknown): string {
  if (field === 'message') return 'is not valid';
  if (typeof value === 'number' && field === 'ttl') {
    const whole = Number.isInteger(value);
    return `is ${value < 0 ? 'negative' : whole ? 'too large' : 'not a whole number'}`;
  }
  if (typeof value !== 'string' || field === 'ttl' || field === 'meta') return `is ${kind(value)}`;
  return isPaired(value)
    ? `is ${value ? 'too long' : 'empty'}`
    : 'contains half of a surrogate pair';
}

/**
 * Reject a message that cannot be published.
 *
 * @param topic Its topic; undefined if the message contains it.
 * @param limit Maximum bytes of its JSON data.
 * @param given `ttl` and `id` that override the message's own, or the number of the `item` of
 *   `publishMany` and whether it is a pair.
 */
export function refuseMessage(
  topic: unknown,
  message: unknown,
  limit: number,
  given: Given = {},
): never {
  const { item } = given;
  if (!DEVELOPMENT || item === undefined) {
    // A call without arguments; an item of a batch contains its topic.
    if (DEVELOPMENT && topic === undefined && message === undefined) checkName(topic, 'topic');
    return refuse(topic, message, limit, given);
  }
  try {
    return refuse(topic, message, limit, given);
  } catch (error) {
    // The error has the number of the item.
    const { message: problem, field = 'topic' } = error as PubSubError;
    const place = field === 'messages' ? `[${item}]` : `[${item}].${field}`;
    throw Object.assign(error as PubSubError, {
      field: place,
      message: `Item ${item}: ${problem}`,
    });
  }
}

function refuse(topic: unknown, message: unknown, limit: number, given: Given): never {
  const isItem = DEVELOPMENT && given.item !== undefined;
  const isPair = DEVELOPMENT && given.isPair;
  if (topic === undefined && !isPair && (isItem ? !isObject(message) : Array.isArray(message))) {
    throw new InvalidPayload(DEVELOPMENT ? describeItem(message) : undefined, {
      remedy: 'Give [topic, { type, data }] pairs.',
      field: 'messages',
    });
  }
  if (DEVELOPMENT && isObject(topic) && typeof message === 'string') {
    throw new InvalidPayload('The topic and the message are swapped.', {
      remedy: "Publish as in `publish('demo.chat', { type, data })`: the topic comes first.",
      field: 'message',
    });
  }
  if (!isObject(message)) {
    throw new InvalidPayload(
      DEVELOPMENT ? `The message is ${kind(message)}, not an object.` : undefined,
      {
        remedy: 'Publish { type, data }.',
        field: 'message',
      },
    );
  }
  const { type, data, meta, ...fields } = message as Partial<Outgoing> & {
    readonly topic?: string;
  };
  if (isItem && (topic ?? fields.topic) === undefined) {
    throw new InvalidTopic('It has no `topic`.', {
      remedy: 'Give [topic, { type, data }] pairs.',
    });
  }
  if (DEVELOPMENT) checkFields(message);
  if (topic !== undefined && fields.topic !== undefined && fields.topic !== topic) {
    throw new InvalidOption('The message names another topic than the call.', {
      remedy: 'Leave the topic out of the message.',
      field: 'topic',
      topic: String(topic),
    });
  }
  const name = checkName(topic ?? fields.topic, 'topic');
  if (data === undefined) {
    throw new InvalidPayload('The message has no `data`.', {
      remedy: 'Publish { type, data }.',
      field: 'data',
      topic: name,
    });
  }
  const ttl = given.ttl ?? fields.ttl;
  const id = given.id ?? fields.id;
  const options: Readonly<Record<string, unknown>> = { type, ttl, id, meta };
  const wrong = isPublication.fields.find(({ name: field, test }) => {
    const value = options[field];
    if (typeof value === 'string' && !isPaired(value)) return true;
    return value !== undefined && !test(value);
  });
  if (!wrong) checkPublication({ topic: name, data, ...(meta && { meta }) }, limit);
  const field = wrong?.name ?? 'message';
  if (!DEVELOPMENT) throw new InvalidOption(undefined, { field, topic: name });
  throw new InvalidOption(`\`${field}\` ${problemOf(field, options[field])}.`, {
    remedy: REMEDIES[field],
    field,
    topic: name,
  });
}

function describeItem(item: unknown): string {
  const found = Array.isArray(item) ? `an array of ${item.length}` : kind(item);
  return `It is ${found}, not a topic with its message.`;
}

function checkFields(message: object): void {
  const fields = isPublication.fields.map(({ name }) => name);
  for (const name of Object.keys(message)) {
    if (fields.includes(name)) continue;
    throw new InvalidOption(`The message has the unknown field \`${name.slice(0, 64)}\`.`, {
      remedy: `Its fields are ${fields.join(', ')}; put everything else into \`data\`.`,
      field: name,
    });
  }
}

export function refuseMany(messages: unknown): never {
  throw invalid(
    'messages',
    `is ${kind(messages)}, not a list`,
    'Give [topic, { type, data }] pairs.',
  );
}

export function checkPresence(topic: string | undefined, data: unknown, limit: number): void {
  if (topic !== undefined) checkName(topic, 'topic');
  if (!isObject(data)) {
    throw new InvalidPayload('The presence update is not an object.', {
      remedy: 'Pass `status` and other keys with their values.',
      field: 'data',
      topic,
    });
  }
  checkData(data, limit, topic);
}

/**
 * Reject invalid arguments of a subscription.
 *
 * @param names The valid option names.
 * @param limit Maximum bytes of own presence.
 */
export function refuseSubscription(
  topics: unknown,
  options: object,
  names: readonly string[],
  limit: number,
): never {
  const given = options as Readonly<Record<string, unknown>>;
  if (DEVELOPMENT) checkOptions(given, names);
  const patterns: unknown = typeof topics === 'string' ? [topics] : topics;
  checkPatterns(patterns);
  if (DEVELOPMENT) checkOthers(given, patterns, limit);
  throw DEVELOPMENT
    ? new UsageError('The arguments of the subscription are not valid.')
    : invalid('onGap');
}

function checkOptions(given: Readonly<Record<string, unknown>>, names: readonly string[]): void {
  if (typeof given === 'function') {
    throw invalid('options', 'is a function, not an object', 'Pass it as `{ onMessage: … }`.');
  }
  checkCall(given, names);
  const { since, history, onGap } = given;
  for (const name of names) {
    if (/^onM|^onP|Loader$/.test(name)) checkType(name, given[name], 'function');
  }
  if (onGap !== 'raise') checkType('onGap', onGap, 'function', "Pass a function, or 'raise'.");
  if (history !== undefined)
    checkNumber('history', history, [0, HISTORY_MAX, 'a number of messages']);
  if (since !== undefined) unixMs(since);
}

function checkOthers(
  { after, onGap, presence, types }: Readonly<Record<string, unknown>>,
  patterns: readonly string[],
  limit: number,
): void {
  if (after !== undefined) checkPositions(after);
  if (types !== undefined) checkTypes(types);
  if (typeof presence !== 'boolean' && presence !== undefined) checkOwn(presence, patterns, limit);
  if (onGap === 'raise') {
    throw invalid(
      'onGap',
      "is 'raise', and `onMessage` leaves no iteration that could throw",
      'Pass a function as `onGap`, or iterate the subscription.',
    );
  }
}

function checkPatterns(topics: unknown): asserts topics is readonly string[] {
  if (!Array.isArray(topics) || !topics.length) {
    throw invalid(
      'topics',
      `is ${Array.isArray(topics) ? 'empty' : kind(topics)}`,
      'Pass a pattern or a list of patterns.',
    );
  }
  if (topics.length > PATTERNS_MAX) {
    throw invalid(
      'topics',
      `has ${inWords(topics.length)} patterns; a subscription has at most ${inWords(PATTERNS_MAX)}`,
      'Use `*` or `**`, or several subscriptions.',
    );
  }
  for (const topic of topics) checkName(topic, 'pattern');
}

function checkPositions(after: unknown): void {
  if (!isObject(after)) {
    throw invalid('after', `is ${kind(after)}`, 'Pass positions by topic, as in `sub.positions`.');
  }
  for (const [topic, seq] of Object.entries(after)) {
    checkName(topic, 'topic');
    checkNumber(`after[${topic}]`, seq, [0, Number.MAX_SAFE_INTEGER, 'a number']);
  }
}

/**
 * Check `types` and `presence` of a subscription, and let its inbox keep the types. When the server
 * has answered, set the presence of this client, and report a rejection.
 */
export function prepareInbox(
  { listeners, maxPayload }: Client,
  publisher: Publisher,
  inbox: Inbox,
  { types, presence }: { readonly types?: unknown; readonly presence?: unknown },
): void {
  if (types !== undefined) inbox.filter = new TypeFilter(checkTypes(types), inbox);
  if (typeof presence !== 'object') return;
  const own = checkOwn(presence, inbox.topics, maxPayload);
  void inbox.answered.then(() => {
    if (inbox.finished) return;
    for (const topic of inbox.granted) {
      if (isWildcard(topic)) continue;
      void publisher.setPresence(topic, own).then((outcome) => {
        if (outcome.kind !== 'rejected' || outcome.code === 'closed') return;
        listeners.report(rejected(outcome, topic));
      });
    }
  });
}

/** Keeps messages of some types; others only move the positions, after the waiting messages. */
class TypeFilter implements Filter {
  private readonly _skipped = new Map<string, number>();

  constructor(
    private readonly _types: ReadonlySet<string>,
    private readonly _inbox: Inbox,
  ) {}

  skips({ type, topic, seq }: Message): boolean {
    if (this._types.has(type)) return false;
    const { _skipped } = this;
    if (seq !== undefined && (_skipped.has(topic) || _skipped.size < SKIPPED)) {
      _skipped.set(topic, seq);
    }
    this.taken();
    return true;
  }

  taken(): void {
    const { _skipped, _inbox } = this;
    if (!_skipped.size || !_inbox.empty) return;
    for (const [topic, seq] of _skipped) {
      if (seq > (_inbox.positions.get(topic) ?? -1)) _inbox._setPosition(topic, seq);
    }
    _skipped.clear();
  }
}

function checkTypes(types: unknown): ReadonlySet<string> {
  if (!isSome(types, PATTERNS_MAX, (type) => isText(type, 1, 128))) {
    if (!DEVELOPMENT) throw invalid('types');
    const problem = !Array.isArray(types)
      ? `is ${kind(types)}`
      : types.length
        ? types.length > PATTERNS_MAX
          ? `has ${inWords(types.length)} types; a subscription has at most ${inWords(PATTERNS_MAX)}`
          : 'contains something else'
        : 'is empty';
    throw invalid('types', problem, 'Pass 1 to 1,000 message types of 1 to 128 characters.');
  }
  return new Set(types as readonly string[]);
}

function checkOwn(presence: unknown, topics: readonly string[], limit: number): JsonObject {
  if (!isObject(presence)) {
    throw invalid(
      'presence',
      `is ${kind(presence)}`,
      'Pass true, false, or an object of what members see of this client.',
    );
  }
  if (topics.every(isWildcard)) {
    throw invalid(
      'presence',
      'is an object, and every topic has a wildcard',
      'Give a topic by its name: only its subscribers are members.',
    );
  }
  checkData(presence, limit, undefined, 'presence');
  return presence;
}

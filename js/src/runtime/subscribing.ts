/** The arguments of `subscribe`, checked. */

import { InvalidOption } from '../errors.js';
import type { Subscribe } from '../session/events.js';
import { checkFlag, checkFunction, checkNames, checkWhole, kind } from '../settings/checks.js';
import { type ReceiveQueue, readReceiveQueue } from '../settings/options.js';
import { validatePattern, validateTopic } from '../topics.js';
import type { AnyPayload, Gap, Since } from '../values.js';
import type { Handler, MessageHandler, PresenceHandler } from './handlers.js';
import { unixMs } from './times.js';

const PATTERNS_MAX = 1_000;
const HISTORY_MAX = 10_000;
const NAMES = [
  'since',
  'history',
  'after',
  'onMessage',
  'onPresence',
  'onGap',
  'presence',
  'queue',
  'timeout',
  'signal',
];

/** What `subscribe` takes beside the topics. */
export interface SubscribeOptions<Data = AnyPayload> {
  /** Replay what is newer: Unix ms or a Date. */
  readonly since?: Since | undefined;
  /** Replay at most so many of the newest messages of each topic, 0 to 10,000. */
  readonly history?: number | undefined;
  /** Replay what follows these positions, by topic: `sub.positions` of an earlier program. */
  readonly after?: Readonly<Record<string, number>> | undefined;
  /** Called with each message, in order, one at a time; a function, asynchronous or not. */
  readonly onMessage?: MessageHandler<Data> | undefined;
  /** Called with everybody present, and what changed, whenever that changes. */
  readonly onPresence?: PresenceHandler | undefined;
  /** Called with each gap, in its place between the messages. */
  readonly onGap?: Handler<[gap: Gap]> | undefined;
  /** Whether to ask for presence; default where `onPresence` is given. */
  readonly presence?: boolean | undefined;
  /** Bounds of what waits for the program, and what happens when it is full. */
  readonly queue?: Partial<ReceiveQueue> | undefined;
  /** Milliseconds to wait for the server's answer; default `operationTimeout`. */
  readonly timeout?: number | undefined;
  /** Ends the subscription. */
  readonly signal?: AbortSignal | undefined;
}

/** What a program asked for, checked. */
export interface Request {
  readonly event: Subscribe;
  readonly queue: ReceiveQueue;
}

/**
 * Check the arguments of `subscribe`.
 *
 * @param sub The number of the subscription.
 * @param base Bounds of the client.
 * @throws InvalidTopic A pattern is not valid.
 * @throws InvalidOption Another argument is not valid.
 */
export function readRequest(
  sub: number,
  topics: unknown,
  options: SubscribeOptions,
  base: ReceiveQueue,
): Request {
  checkNames('options', options, NAMES);
  const { since, history, after, onMessage, onPresence, onGap, presence, queue } = options;
  checkFunction('onMessage', onMessage);
  checkFunction('onPresence', onPresence);
  checkFunction('onGap', onGap);
  if (history !== undefined) checkWhole('history', history, 0, HISTORY_MAX, 'messages');
  if (presence !== undefined) checkFlag('presence', presence);
  return {
    event: {
      kind: 'subscribe',
      sub,
      topics: patterns(topics),
      since: since === undefined ? undefined : unixMs(since),
      history,
      after: after === undefined ? undefined : positions(after),
      presence: presence ?? onPresence !== undefined,
    },
    queue: readReceiveQueue(queue ?? {}, base, 'queue'),
  };
}

function patterns(topics: unknown): readonly string[] {
  if (typeof topics === 'string') return [validatePattern(topics)];
  if (!Array.isArray(topics) || !topics.length) {
    const problem = Array.isArray(topics) ? 'empty' : kind(topics);
    throw new InvalidOption(`\`topics\` is ${problem}.`, {
      remedy: 'Pass a pattern or a list of patterns.',
      field: 'topics',
    });
  }
  if (topics.length > PATTERNS_MAX) {
    throw new InvalidOption(
      `\`topics\` has ${topics.length} patterns; one subscription takes ${PATTERNS_MAX}.`,
      { remedy: 'Use `*` or `**`, or several subscriptions.', field: 'topics' },
    );
  }
  return [...new Set(topics.map(validatePattern))];
}

function positions(after: unknown): ReadonlyMap<string, number> {
  if (typeof after !== 'object' || after === null || Array.isArray(after)) {
    throw new InvalidOption(`\`after\` is ${kind(after)}.`, {
      remedy: 'Pass positions by topic, as `sub.positions` gives them.',
      field: 'after',
    });
  }
  const found = new Map<string, number>();
  for (const [topic, seq] of Object.entries(after)) {
    const most = Number.MAX_SAFE_INTEGER;
    found.set(validateTopic(topic), checkWhole(`after[${topic}]`, seq, 0, most));
  }
  return found;
}

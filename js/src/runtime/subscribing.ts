/** `subscribe`: its arguments, checked, and the subscription made of them. */

import { InvalidOption, OperationTimeout } from '../errors.js';
import type { Subscribe } from '../session/events.js';
import { checkFlag, checkFunction, checkNames, checkWhole, kind } from '../settings/checks.js';
import { type ReceiveQueue, readReceiveQueue } from '../settings/options.js';
import { validatePattern, validateTopic } from '../topics.js';
import type { AnyPayload, Gap, Since } from '../values.js';
import type { Driver } from './driver.js';
import {
  type Handler,
  Handlers,
  type MessageHandler,
  type PresenceHandler,
  type StateLoader,
} from './handlers.js';
import { Inbox } from './inbox.js';
import { Subscription } from './subscription.js';
import { unixMs } from './times.js';
import { type Waiting, within } from './waiting.js';

const PATTERNS_MAX = 1_000;
const HISTORY_MAX = 10_000;
const HANDLERS = ['onMessage', 'onPresence', 'onGap', 'stateLoader'] as const;
const NAMES = ['since', 'history', 'after', 'presence', 'queue', 'timeout', 'signal'];

/** What `subscribe` takes beside the topics. */
export interface SubscribeOptions<Data = AnyPayload> extends Waiting {
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
  /**
   * Called once for each gap to load the state anew (REC-4), with the positions taken down before;
   * then `onGap` is called, and what follows the gap is delivered.
   */
  readonly stateLoader?: StateLoader | undefined;
  /** Whether to ask for presence; default where `onPresence` is given. */
  readonly presence?: boolean | undefined;
  /** Bounds of what waits for the program, and what happens when it is full. */
  readonly queue?: Partial<ReceiveQueue> | undefined;
  /** Milliseconds to wait for the server's answer; default `operationTimeout`. */
  readonly timeout?: number | undefined;
  /** Ends the subscription. */
  readonly signal?: AbortSignal | undefined;
}

/** Subscribe, and wait until the server has answered; see `PubSub.subscribe`. */
export async function subscribe<Data>(
  driver: Driver,
  topics: unknown,
  options: SubscribeOptions<Data>,
): Promise<Subscription<Data>> {
  const event = readRequest(driver.number(), topics, options);
  const { onMessage, onPresence, queue, signal } = options;
  const bounds = readReceiveQueue(queue ?? {}, driver.options.receiveQueue, 'queue');
  const patience = driver.patience(options.timeout);
  signal?.throwIfAborted();
  const inbox = new Inbox(event.topics, bounds, event.after);
  const handlers = new Handlers(options, driver.listeners);
  const subscription = new Subscription<Data>(inbox, handlers, () => {
    signal?.removeEventListener('abort', end);
    driver.remove(event.sub);
  });
  const end = (): void => void subscription.unsubscribe();
  signal?.addEventListener('abort', end);
  driver.add(event, inbox);
  if (onPresence && !onMessage) {
    // Beside an iteration there is nobody else to call `onPresence`.
    inbox.presence = new Inbox(event.topics, bounds);
  }
  if (onMessage || onPresence) void handlers.run(inbox.presence);
  const { clock } = driver;
  if (!(await within(inbox.answered, signal, clock, patience))) {
    const stays = onMessage ? '; it stays in force and may still be answered' : '';
    // Without a handler there is nobody left who could read it.
    if (!stays) end();
    throw new OperationTimeout(
      `The server did not answer the subscription within ${patience} ms${stays}. State: ${driver.state}.`,
      { topic: event.topics[0], outcomeUnknown: Boolean(stays) },
    );
  }
  if (inbox.error) throw inbox.error;
  return subscription;
}

/**
 * Check the arguments of `subscribe`.
 *
 * @param sub The number of the subscription.
 * @throws InvalidTopic A pattern is not valid.
 * @throws InvalidOption Another argument is not valid.
 */
function readRequest(sub: number, topics: unknown, options: SubscribeOptions): Subscribe {
  checkNames('options', options, [...NAMES, ...HANDLERS]);
  for (const name of HANDLERS) checkFunction(name, options[name]);
  const { since, history, after, onPresence, presence = onPresence !== undefined } = options;
  if (history !== undefined) checkWhole('history', history, 0, HISTORY_MAX, 'messages');
  return {
    kind: 'subscribe',
    sub,
    topics: patterns(topics),
    since: since === undefined ? undefined : unixMs(since),
    history,
    after: after === undefined ? undefined : positions(after),
    presence: checkFlag('presence', presence),
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

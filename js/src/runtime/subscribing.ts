/** `subscribe`: its arguments, checked, and the subscription made of them. */

import { OperationTimeout } from '../errors.js';
import type { Subscribe } from '../session/events.js';
import { type ReceiveQueue, readReceiveQueue } from '../settings/options.js';
import { isPattern, isTopic } from '../topics.js';
import type { AnyPayload, Gap, Since } from '../values.js';
import { isCount, isObject } from '../wire/guard.js';
import type { Driver } from './driver.js';
import {
  type Handler,
  Handlers,
  type MessageHandler,
  type PresenceHandler,
  type StateLoader,
} from './handlers.js';
import { Inbox } from './inbox.js';
import { lazily } from './lazy.js';
import { Subscription } from './subscription.js';
import { unixMs } from './times.js';
import { type Waiting, within } from './waiting.js';

/** What `subscribe` knows, and takes at most. */
export interface SubscribeBounds {
  readonly handlers: readonly ('onMessage' | 'onPresence' | 'onGap' | 'stateLoader')[];
  readonly others: readonly string[];
  /** Patterns of one subscription. */
  readonly patterns: number;
  /** Messages that one may ask to have replayed. */
  readonly history: number;
}

const BOUNDS: SubscribeBounds = {
  handlers: ['onMessage', 'onPresence', 'onGap', 'stateLoader'],
  others: ['since', 'history', 'after', 'presence', 'queue', 'timeout', 'signal'],
  patterns: 1_000,
  history: 10_000,
};

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
  const event = readRequest(driver.number(), topics, options) ?? (await refuse(topics, options));
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

/** What the session is told; undefined where an argument is not valid. */
function readRequest(
  sub: number,
  given: unknown,
  options: SubscribeOptions,
): Subscribe | undefined {
  if (typeof options !== 'object' || !options) return undefined;
  const { handlers, others } = BOUNDS;
  const { since, history = 0, after, onPresence, presence = onPresence !== undefined } = options;
  const topics: unknown[] = [...new Set([given].flat())];
  const positions = Object.entries(after ?? {});
  const fits =
    topics.length > 0 &&
    topics.length <= BOUNDS.patterns &&
    topics.every(isPattern) &&
    Object.keys(options).every((name) => [...handlers, ...others].includes(name)) &&
    handlers.every((name) => ['undefined', 'function'].includes(typeof options[name])) &&
    isCount(history, BOUNDS.history) &&
    isObject(after ?? {}) &&
    positions.every(([topic, seq]) => isTopic(topic) && isCount(seq)) &&
    typeof presence === 'boolean';
  if (!fits) return undefined;
  return {
    kind: 'subscribe',
    sub,
    topics: topics as string[],
    since: since === undefined ? undefined : unixMs(since),
    history: options.history,
    after: after && new Map(positions),
    presence,
  };
}

const refusals = lazily(() => import('./refusals.js'));

/** Say what is wrong with the arguments: code that is loaded only to say so. */
async function refuse(topics: unknown, options: SubscribeOptions): Promise<never> {
  const { refuseSubscription } = await refusals();
  throw refuseSubscription(topics, options, BOUNDS);
}

/** Validates the arguments of `subscribe`. */

import { DEVELOPMENT } from '../build.js';
import { HISTORY_MAX, isSignal, isTime, PATTERNS_MAX } from '../settings/checks.js';
import { checkReceiveQueue } from '../settings/option_checks.js';
import type { Optional, ReceiveQueue } from '../settings/options.js';
import { isPattern, isTopic, isWildcard } from '../topics.js';
import type { AnyPayload, JsonObject, Since } from '../values.js';
import { type Guard, isCount, isObject, isSome, isText, shape } from '../wire/guard.js';
import { sizeOf } from '../wire/plain.js';
import type { Client } from './environment.js';
import type { GapHandler, MessageHandler, PresenceHandler, StateLoader } from './handlers.js';
import { texts } from './parts.js';
import type { Waiting } from './waiting.js';

/**
 * Whether the arguments are valid; the production build checks only the patterns.
 */
const isFit: Guard<SubscribeOptions> = /* @__PURE__ */ shape(
  'since?:0 history?:1 after?:2 onMessage?:3 onPresence?:3 onGap?:5 stateLoader?:3 ' +
    'presence?:any types?:6 queue?:any timeout?:any signal?:4',
  (since) => (typeof since === 'number' || since instanceof Date) && isTime(Math.round(+since)),
  (history) => isCount(history, HISTORY_MAX),
  (after) =>
    isObject(after) &&
    Object.entries(after).every(([topic, seq]) => isTopic(topic) && isCount(seq)),
  (handler) => typeof handler === 'function',
  isSignal,
  (handler) => typeof handler === 'function' || handler === 'raise',
  (types) => isSome(types, PATTERNS_MAX, (type) => isText(type, 1, 128)),
);

/** Options of `subscribe`. */
export interface SubscribeOptions<Data = AnyPayload> extends Waiting {
  /** Replay messages newer than this: Unix milliseconds or a Date; 0 for all retained messages. */
  readonly since?: Since | undefined;
  /**
   * Replay at most this many of the newest messages per topic, 0 to 10,000. The server replays what
   * it retains (`ps.limits.history_max`); if this is less, the client logs a warning.
   */
  readonly history?: number | undefined;
  /**
   * Replay the messages after these positions, by topic: usually `sub.positions` of an earlier run.
   * `since` then applies to the topics without a position, and `history` to all: it omits older
   * messages without a gap.
   */
  readonly after?: Readonly<Record<string, number>> | undefined;
  /** Called with each message, in order, one at a time; a function, asynchronous or not. */
  readonly onMessage?: MessageHandler<Data> | undefined;
  /** Called with all members and the change, after each presence change. */
  readonly onPresence?: PresenceHandler | undefined;
  /**
   * Called with each gap, at its place between the messages. With `raise`, the iteration throws
   * `MessagesMissed` at this place; iterate again to continue after the gap. If there is
   * no `onGap`, no `stateLoader` and no listener of `gap`, the client logs the first gap of each topic
   * as a warning.
   */
  readonly onGap?: GapHandler | undefined;
  /**
   * Called once for each gap with the gap and the positions before it, to load the state again
   * (REC-4). When it returns, the client calls `onGap`, and delivers the messages after the gap.
   */
  readonly stateLoader?: StateLoader | undefined;
  /**
   * Whether to request presence; default: true if `onPresence` is given. An object such as `{
   * status: 'typing' }` also sets what others see of this client on the topics that are exact
   * names, as `updatePresence` does.
   */
  readonly presence?: boolean | JsonObject | undefined;
  /**
   * Deliver only messages of these types, for example `['order.created']`, at most 1,000; default
   * all. The client filters live and replayed messages, so positions, gaps and `history` count
   * messages of every type.
   */
  readonly types?: readonly string[] | undefined;
  /** Bounds of the messages that wait for your program, and what happens when the queue is full. */
  readonly queue?: Optional<ReceiveQueue> | undefined;
  /** Milliseconds to wait for the server's answer; default `operationTimeout`. */
  readonly timeout?: number | undefined;
  /** Ends the subscription. */
  readonly signal?: AbortSignal | undefined;
}

/** Names of the options. */
const NAMES = DEVELOPMENT ? isFit.fields.map(({ name }) => name) : [];

/**
 * @internal The patterns of a subscription, each once; undefined if an argument is not valid.
 *
 * @param limit Maximum bytes of own presence.
 * @throws InvalidOption `queue` is not valid.
 */
export function patternsOf<Data>(
  topics: unknown,
  options: SubscribeOptions<Data>,
  limit: number,
): readonly string[] | undefined {
  const patterns: unknown = typeof topics === 'string' ? [topics] : topics;
  if (DEVELOPMENT) {
    const isKnown = isFit(options) && Object.keys(options).every((name) => NAMES.includes(name));
    if (!isKnown) return undefined;
  }
  // Nothing could throw the gap, and the handler would get no further message.
  const isMute = options.onGap === 'raise' && options.onMessage;
  if (isMute || !isSome(patterns, PATTERNS_MAX, isPattern)) return undefined;
  if (DEVELOPMENT) {
    const { presence = false, queue = {} } = options;
    const isOwn = isObject(presence) && !(patterns as string[]).every(isWildcard);
    if (typeof presence !== 'boolean' && !(isOwn && sizeOf(presence) <= limit)) return undefined;
    checkReceiveQueue(queue);
  }
  return [...new Set(patterns as readonly string[])];
}

/** @internal Describe arguments that are not valid. */
export async function refuse(client: Client, topics: unknown, options: object): Promise<never> {
  return (await texts(client, {})).refuseSubscription(topics, options, NAMES, client.maxPayload);
}

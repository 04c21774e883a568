/** Validates the arguments of `subscribe` and creates the subscription. */

import { DEVELOPMENT } from '../build.js';
import type { Subscribe } from '../session/requests.js';
import { isSignal, merged } from '../settings/checks.js';
import { checkReceiveQueue } from '../settings/option_checks.js';
import type { ReceiveQueue } from '../settings/options.js';
import { isPattern, isTopic } from '../topics.js';
import type { AnyPayload, JsonObject, Since } from '../values.js';
import { type Guard, isCount, isObject, isSome, shape } from '../wire/guard.js';
import { HISTORY_MAX, isTime, PATTERNS_MAX } from './bounds.js';
import type { Driver } from './driver.js';
import type {
  GapHandler,
  Handlers,
  MessageHandler,
  PresenceHandler,
  StateLoader,
} from './handlers.js';
import { Inbox } from './inbox.js';
import { PARTS } from './parts.js';
import { Subscription } from './subscription.js';
import { onAbort, type Waiting, within } from './waiting.js';

/**
 * Whether the arguments are valid; `refuseSubscription` describes the problem. The production build
 * checks only the patterns.
 */
const isFit: Guard<SubscribeOptions> = /* @__PURE__ */ shape(
  'since?:0 history?:1 after?:2 onMessage?:3 onPresence?:3 onGap?:5 stateLoader?:3 ' +
    'presence?:any types?:any queue?:object timeout?:any signal?:4',
  (since) => (typeof since === 'number' || since instanceof Date) && isTime(Math.round(+since)),
  (history) => isCount(history, HISTORY_MAX),
  (after) =>
    isObject(after) &&
    Object.entries(after).every(([topic, seq]) => isTopic(topic) && isCount(seq)),
  (handler) => typeof handler === 'function',
  isSignal,
  (handler) => typeof handler === 'function' || handler === 'raise',
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
   */
  readonly after?: Readonly<Record<string, number>> | undefined;
  /** Called with each message, in order, one at a time; a function, asynchronous or not. */
  readonly onMessage?: MessageHandler<Data> | undefined;
  /** Called with all members and the change, after each presence change. */
  readonly onPresence?: PresenceHandler | undefined;
  /**
   * Called with each gap, at its place between the messages. With `raise`, the iteration throws
   * `MessagesMissed` at this place; iterate again to continue after the gap. Without it,
   * `stateLoader` and `ps.on('gap')`, the client logs the first gap of each topic as a warning.
   */
  readonly onGap?: GapHandler | undefined;
  /**
   * Called once for each gap with the gap and the positions before it, to load the state again
   * (REC-4). After it, `onGap` is called and the messages after the gap are delivered.
   */
  readonly stateLoader?: StateLoader | undefined;
  /**
   * Whether to request presence; default: true if `onPresence` is given. An object such as `{
   * status: 'typing' }` also sets what others see of this client on the topics that are exact
   * names, as `updatePresence` does.
   */
  readonly presence?: boolean | JsonObject | undefined;
  /**
   * Deliver only messages of these types, for example `['order.created']`; default all. The client
   * filters live and replayed messages, so positions, gaps and `history` count messages of every
   * type.
   */
  readonly types?: readonly string[] | undefined;
  /** Bounds of the messages that wait for your program, and what happens when the queue is full. */
  readonly queue?: Partial<ReceiveQueue> | undefined;
  /** Milliseconds to wait for the server's answer; default `operationTimeout`. */
  readonly timeout?: number | undefined;
  /** Ends the subscription. */
  readonly signal?: AbortSignal | undefined;
}

/** @internal Subscribe, and wait until the server has answered; see `PubSub.subscribe`. */
export async function subscribe<Data>(
  driver: Driver,
  topics: unknown,
  options: SubscribeOptions<Data>,
): Promise<Subscription<Data>> {
  const patterns: unknown = typeof topics === 'string' ? [topics] : topics;
  const names = DEVELOPMENT ? isFit.fields.map(({ name }) => name) : [];
  const fits =
    !DEVELOPMENT || (isFit(options) && Object.keys(options).every((name) => names.includes(name)));
  const isMute = DEVELOPMENT && options.onGap === 'raise' && options.onMessage;
  if (!fits || isMute || !isSome(patterns, PATTERNS_MAX, isPattern)) {
    return (await driver.part(PARTS.arguments(), {})).refuseSubscription(patterns, options, names);
  }
  const { history, onMessage, onPresence, presence, queue = {}, signal, types } = options;
  const named = options.since ?? history ?? options.after;
  const isNew = driver.options.recover === undefined || named !== undefined;
  const place = isNew
    ? options
    : (await driver.part(driver.recovery(), {})).place(patterns as string[]);
  const { since, after } = place;
  const request: Subscribe = {
    sub: driver.number(),
    topics: [...new Set(patterns as string[])],
    since: since && Math.round(+since),
    history,
    after: after && new Map(Object.entries(after)),
    presence: Boolean(presence ?? onPresence),
  };
  if (DEVELOPMENT) checkReceiveQueue(queue, 'queue');
  const bounds = merged(queue, driver.options.receiveQueue);
  const limit = driver.timeoutOf(options.timeout);
  signal?.throwIfAborted();
  if (request.presence) {
    await driver.addPresence(options);
    driver.checkOpen();
  }
  const inbox = new Inbox(request.topics, bounds, request.after);
  const special = types ?? (typeof presence === 'boolean' ? undefined : presence);
  const setPresence =
    special === undefined
      ? special
      : (await driver.part(PARTS.arguments(), options)).prepareInbox(driver, inbox, options);
  const handlers = options as Handlers;
  const subscription = new Subscription<Data>(inbox, handlers, driver.listeners, () => {
    ignore();
    driver.remove(request.sub);
  });
  const end = (): void => void subscription.unsubscribe();
  const ignore = onAbort(signal, end);
  if (onPresence && !onMessage) {
    // An iteration does not call `onPresence`, so this inbox does. Each change contains all
    // members, so a full inbox keeps the latest one of each topic.
    inbox.presence = new Inbox(request.topics, { ...bounds, policy: 'gap' });
  }
  driver.add(request, inbox);
  if (setPresence) void inbox.answered.then(setPresence);
  if (onMessage || onPresence) void subscription.run(inbox.presence);
  const { clock } = driver;
  if (!(await within(inbox.answered, signal, clock, limit))) {
    // Without a handler, the program could no longer read it.
    if (!onMessage) end();
    const { late } = await driver.part(PARTS.background(), options);
    throw late(driver, limit, request.topics[0], Boolean(onMessage));
  }
  signal?.throwIfAborted();
  if (inbox.error) {
    end();
    throw inbox.error;
  }
  if (history) {
    PARTS.background().then(
      ({ checkHistory }) => checkHistory(driver, request),
      () => {},
    );
  }
  return subscription;
}

/// <reference lib="esnext.disposable" preserve="true" />

/** `Subscription`: messages of the topics that a program subscribed to, and reports of gaps. */

import { DEVELOPMENT } from '../build.js';
import { fromCode, type PubSubError, UsageError } from '../errors.js';
import type { Denial } from '../generated/wire.js';
import { showOnly } from '../inspection.js';
import { logText } from '../log_text.js';
import type { Peer, Subscribe } from '../session/ports.js';
import type { ClientOptions } from '../settings/options.js';
import type {
  AnyPayload,
  Gap,
  GapReason,
  Logger,
  Message,
  SubscriptionEvent,
  SubscriptionStats,
} from '../values.js';
import { call, type Listeners } from './handlers.js';
import type { Entry, Inbox, Other } from './inbox.js';
import type { SubscribeOptions } from './subscribing.js';

/**
 * Maximum remembered topics with a logged gap; above it, a gap of the oldest may be logged again.
 */
const LOGGED = 1_000;

const REASONS: Readonly<Record<GapReason, string>> = {
  history_trimmed:
    'the history of the server no longer reaches that far back, or one replay cannot contain them',
  log_reset: 'the server lost its history, or messages of other nodes',
  node_changed: 'the client moved to a node that has its own history',
  slow_consumer: 'the program reads too slowly, and the queue of the subscription was full',
  unproven: 'the server cannot prove that none is missing',
};

/** @internal The error of `onGap: 'raise'`: the missing messages and the reason, in one sentence. */
export function missed(gap: Gap): PubSubError {
  const { topic, from, to, missed: count, reason } = gap;
  const about = { topic, ...{ gap } };
  if (!DEVELOPMENT) {
    return fromCode('messages_missed', `Missed messages of topic ${topic}: ${reason}.`, about);
  }
  const possible = reason === 'unproven' || reason === 'node_changed';
  const unknown = possible ? 'Perhaps messages' : 'Messages';
  const what = count === undefined ? unknown : `${inWords(count)} message${count === 1 ? '' : 's'}`;
  const known = count !== undefined && from !== undefined && to !== undefined;
  const where = known ? ` (positions ${from} to ${to})` : '';
  const verb = count === 1 ? 'was' : 'were';
  const message = `${what} of topic ${topic}${where} ${verb} missed: ${REASONS[reason]}.`;
  return fromCode('messages_missed', message, about);
}

/** @internal Warn of a `history` that exceeds what the server retains. */
export function checkHistory(
  { peer, options }: { readonly peer: Peer | undefined; readonly options: ClientOptions },
  { topics, history = 0 }: Subscribe,
): void {
  const most = peer?.limits?.history_max ?? history;
  if (history <= most) return;
  options.logger.warn(
    DEVELOPMENT
      ? `subscribe() to ${topics[0]} asks for \`history\` of ${inWords(history)} messages, and ` +
          `the server retains ${inWords(most)} messages of a topic, unless its settings say otherwise ` +
          'for this topic (`ps.limits.history_max`).'
      : `\`history\` of ${history} is over the limit of ${most}.`,
  );
}

function inWords(count: number): string {
  return count.toLocaleString('en-US');
}

/** @internal Log the first gap of each topic that no handler receives. */
export function warn(gap: Gap, logged: Set<string>, logger: Logger): void {
  if (logged.has(gap.topic)) return;
  logged.add(gap.topic);
  if (logged.size > LOGGED) logged.delete(logged.values().next().value as string);
  const message = logText(missed(gap).message);
  logger.warn(
    DEVELOPMENT
      ? `${message} To handle gaps, pass \`onGap\` (a function, or 'raise') or ` +
          "`stateLoader` to subscribe(), listen to `ps.on('gap')`, or iterate `sub.events()`. " +
          'Further gaps of this topic are not logged for this subscription; `sub.stats` counts them.'
      : message,
  );
}

/**
 * Messages of one or more topics: `for await (const message of sub)`, or handlers.
 *
 * `PubSub.subscribe` returns it. An iteration ends after the waiting messages when you unsubscribe
 * or close the client. It throws the error if the client or the subscription fails. It skips gaps
 * and logs them, unless `onGap`, `stateLoader` or `ps.on('gap')` handles them. `break` in a `for
 * await` unsubscribes, as does the end of a block with `await using`.
 */
export class Subscription<Data = AnyPayload>
  implements AsyncIterable<Message<Data>>, AsyncDisposable
{
  private readonly _logged = new Set<string>();

  /** @internal Created by `PubSub.subscribe`. */
  constructor(
    private readonly _inbox: Inbox,
    private readonly _handlers: SubscribeOptions,
    private readonly _listeners: Listeners,
    private readonly _leave: () => void,
  ) {}

  /** The requested patterns. */
  get topics(): readonly string[] {
    return this._inbox.topics;
  }

  /** The patterns that the server rejected while it granted others. */
  get denied(): readonly Denial[] {
    return this._inbox.denied;
  }

  /** Whether more messages can arrive. */
  get active(): boolean {
    return !this._inbox.finished;
  }

  /** Position of the last message taken, by topic. Pass it as `after` to continue elsewhere. */
  get positions(): Readonly<Record<string, number>> {
    return Object.fromEntries(this._inbox.positions);
  }

  /** Counters of received, handled, dropped and waiting messages. */
  get stats(): SubscriptionStats {
    return this._inbox.stats;
  }

  /**
   * End the subscription, and drop the waiting messages.
   *
   * You can call it several times, and from handlers.
   */
  async unsubscribe(): Promise<void> {
    this._inbox.finish();
    this._inbox.clear();
    this._leave();
  }

  /**
   * Iterate over messages, gaps and, if requested, presence changes, in one order.
   *
   * Presence changes arrive here unless `onPresence` receives them.
   */
  events(): AsyncIterableIterator<SubscriptionEvent<Data>> {
    return this._read<SubscriptionEvent<Data>>(
      (message) => ({ kind: 'message', message }),
      (event) => event,
    );
  }

  [Symbol.asyncIterator](): AsyncIterableIterator<Message<Data>> {
    return this._read((message) => message);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.unsubscribe();
  }

  /** @internal For logs: without messages, and without references to the client. */
  toJSON(): SubscriptionStats {
    return this.stats;
  }

  /** @internal Pass all events of an inbox to the handlers until it has ended. */
  async run(inbox: Inbox): Promise<void> {
    const { onMessage, onPresence } = this._handlers;
    const { report } = this._listeners;
    while (true) {
      for (let entry = inbox.take(); entry; entry = inbox.take()) {
        const called =
          'id' in entry
            ? call(report, onMessage, entry)
            : entry.kind === 'gap'
              ? this._report(entry.gap)
              : call(report, onPresence, entry.presence.members, entry.presence);
        // Do not await a synchronous handler, so that the next message follows immediately.
        if (called) await called;
      }
      if (inbox.finished) return;
      await inbox.wait();
    }
  }

  /** Iterate over messages and, with `show`, all other events. */
  private _read<T>(
    pick: (message: Message<Data>) => T,
    show?: (event: Other) => T,
  ): AsyncIterableIterator<T> {
    type Result = IteratorResult<T, undefined>;
    const { _inbox: inbox, _handlers: handlers } = this;
    if (handlers.onMessage) {
      throw new UsageError('This subscription passes its messages to `onMessage`.', {
        remedy: 'Iterate it, or pass `onMessage`, not both.',
      });
    }
    inbox.observed = true;
    const give = (entry: Entry<Data>): Result | Promise<Result> =>
      'id' in entry ? { done: false, value: pick(entry) } : pass(entry);
    // Not `async`: that would cost more for each message in the queue.
    const next = (): Promise<Result> => {
      const entry = inbox.take() as Entry<Data> | undefined;
      return entry ? Promise.resolve(give(entry)) : wait();
    };
    const pass = async (event: Other): Promise<Result> => {
      if (event.kind === 'gap') await this._report(event.gap, show !== undefined);
      return show ? { done: false, value: show(event) } : next();
    };
    const wait = async (): Promise<Result> => {
      // Another iteration may take what this one was woken for.
      while (inbox.empty) {
        if (inbox.error) throw inbox.error;
        if (inbox.finished) return { done: true, value: undefined };
        await inbox.wait();
      }
      return give(inbox.take() as Entry<Data>);
    };
    const iterator: AsyncIterableIterator<T> = {
      [Symbol.asyncIterator]: () => iterator,
      next,
      return: async () => {
        await this.unsubscribe();
        return { done: true, value: undefined };
      },
    };
    return iterator;
  }

  /**
   * Report a gap: load the state, then call `onGap`. Log it if neither is given.
   *
   * @param seen Whether the program receives the gap itself.
   * @throws MessagesMissed `onGap` is `raise`.
   */
  private async _report(gap: Gap, seen?: boolean): Promise<void> {
    const { stateLoader, onGap } = this._handlers;
    const { _listeners: listeners } = this;
    const handled = listeners.notify('gap', gap);
    await call(listeners.report, stateLoader, gap, this.positions);
    if (onGap === 'raise') throw missed(gap);
    await call(listeners.report, onGap, gap);
    if (seen || handled || stateLoader || onGap) return;
    warn(gap, this._logged, listeners.logger);
  }
}
if (DEVELOPMENT) showOnly(Subscription, 'topics', 'active', 'stats');

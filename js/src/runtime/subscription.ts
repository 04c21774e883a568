/// <reference lib="esnext.disposable" preserve="true" />

/** `Subscription`: what a program holds of what it subscribed to. */

import { DEVELOPMENT } from '../build.js';
import { UsageError } from '../errors.js';
import type { Denial } from '../generated/wire.js';
import type { AnyPayload, Message, SubscriptionEvent, SubscriptionStats } from '../values.js';
import type { Handlers } from './handlers.js';
import type { Inbox } from './inbox.js';

/**
 * Messages of one or more topics: `for await (const message of sub)`, or handlers.
 *
 * `PubSub.subscribe` makes it. An iteration ends when the subscription is unsubscribed or the client
 * is closed, after the messages that wait; it throws where client or subscription failed. It passes
 * over gaps and logs them, unless `onGap`, `stateLoader` or `ps.on('gap')` handles them. Leaving a
 * `for await` by `break` unsubscribes, as does the end of a block with `await using`.
 */
export class Subscription<Data = AnyPayload>
  implements AsyncIterable<Message<Data>>, AsyncDisposable
{
  /** @internal `PubSub.subscribe` makes it. */
  constructor(
    private readonly _inbox: Inbox,
    private readonly _handlers: Handlers,
    private readonly _leave: () => void,
  ) {}

  /** The patterns asked for. */
  get topics(): readonly string[] {
    return this._inbox.topics;
  }

  /** The patterns that the server refused while it granted others. */
  get denied(): readonly Denial[] {
    return this._inbox.denied;
  }

  /** Whether messages may still come. */
  get active(): boolean {
    return !this._inbox.finished;
  }

  /** Position of the last message taken, by topic: as `after` it goes on elsewhere. */
  get positions(): Readonly<Record<string, number>> {
    return Object.fromEntries(this._inbox.positions);
  }

  /** What was received, handled, dropped, and waits. */
  get stats(): SubscriptionStats {
    return this._inbox.stats;
  }

  /**
   * End the subscription; messages that wait are given up.
   *
   * Idempotent, and may be called from handlers.
   */
  async unsubscribe(): Promise<void> {
    await this._inbox.return();
    this._leave();
  }

  /**
   * Messages, gaps and, where asked for, presence changes, in one order.
   *
   * Presence comes here unless it goes to `onPresence`.
   */
  events(): AsyncIterableIterator<SubscriptionEvent<Data>> {
    return this._read((event) => event, true);
  }

  [Symbol.asyncIterator](): AsyncIterableIterator<Message<Data>> {
    return this._read((event) => (event.kind === 'message' ? event.message : undefined));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.unsubscribe();
  }

  private _read<T>(
    pick: (event: SubscriptionEvent<Data>) => T | undefined,
    seesGaps?: boolean,
  ): AsyncIterableIterator<T> {
    const { _inbox: inbox, _handlers: handlers } = this;
    if (handlers.given.onMessage) {
      throw new UsageError(
        DEVELOPMENT ? 'This subscription hands its messages to `onMessage`.' : undefined,
        {
          remedy: DEVELOPMENT ? 'Iterate it, or pass `onMessage`, not both.' : undefined,
        },
      );
    }
    const iterator: AsyncIterableIterator<T> = {
      [Symbol.asyncIterator]: () => iterator,
      next: async () => {
        while (true) {
          const event = inbox.take();
          if (!event) {
            if (inbox.error) throw inbox.error;
            if (inbox.finished) return { done: true, value: undefined };
            await inbox.wait();
            continue;
          }
          if (event.kind === 'gap') await handlers.gap(event.gap, inbox, seesGaps);
          const value = pick(event);
          if (value !== undefined) return { done: false, value };
        }
      },
      return: async () => {
        await this.unsubscribe();
        return { done: true, value: undefined };
      },
    };
    return iterator;
  }
}

/** `TypedTopic`: the operations of a client on one topic, whose payloads a schema checks. */

import { DEVELOPMENT } from '../build.js';
import type { PubSub } from '../client.js';
import type { Denial } from '../generated/wire.js';
import { showOnly } from '../inspection.js';
import type { HistoryOptions } from '../runtime/http_operations.js';
import type { PublishOptions } from '../runtime/publishing.js';
import type { SubscribeOptions } from '../runtime/subscribing.js';
import type { Subscription } from '../runtime/subscription.js';
import type {
  Message,
  Outgoing,
  Published,
  SubscriptionEvent,
  SubscriptionStats,
} from '../values.js';
import type { Payloads } from './payloads.js';

/** @internal The interface of a client for a typed topic. */
export type Client = Pick<PubSub, 'subscribe' | 'publish' | 'history'>;

/**
 * One topic whose payloads match a schema.
 *
 * `Input` is what you publish, the JSON of the payload; `Data` is the output of the schema.
 */
export class TypedTopic<Input, Data> {
  /** @internal Created by `typedTopic`. */
  constructor(
    private readonly _client: Client,
    /** The topic. For `subscribe` only, it may be a pattern. */
    readonly name: string,
    private readonly _payloads: Payloads<Data>,
  ) {}

  /**
   * See `PubSub.subscribe`. A message that does not match follows `onInvalid`; with `onMessage`,
   * the error goes to the listeners of `error`.
   */
  async subscribe(options: SubscribeOptions<Data> = {}): Promise<TypedSubscription<Data>> {
    const { onMessage, ...others } = options;
    const given: SubscribeOptions = others;
    const subscription = await this._client.subscribe(
      this.name,
      onMessage === undefined
        ? given
        : {
            ...given,
            onMessage: async (message) => {
              const read = await this._payloads.read(message);
              if (read) await onMessage(read);
            },
          },
    );
    return new TypedSubscription(subscription, this._payloads);
  }

  /**
   * Check the payload, then publish it as it is. See `PubSub.publish`.
   *
   * @throws SchemaError The payload does not match; nothing was sent.
   */
  async publish(message: Outgoing<Input>, options: PublishOptions = {}): Promise<Published> {
    await this._payloads.check(this.name, message);
    return this._client.publish(this.name, message, options);
  }

  /** See `PubSub.history`. A message that does not match follows `onInvalid`. */
  history(options: HistoryOptions = {}): AsyncIterableIterator<Message<Data>> {
    return mapped(this._client.history(this.name, options), (message) =>
      this._payloads.read(message),
    );
  }
}

/**
 * Messages of a typed topic; see `Subscription`.
 *
 * After a `SchemaError`, iterate again to continue with the next message.
 */
export class TypedSubscription<Data> implements AsyncIterable<Message<Data>>, AsyncDisposable {
  /** @internal Created by `TypedTopic.subscribe`. */
  constructor(
    private readonly _subscription: Subscription,
    private readonly _payloads: Payloads<Data>,
  ) {}

  /** See `Subscription.topics`. */
  get topics(): readonly string[] {
    return this._subscription.topics;
  }

  /** See `Subscription.denied`. */
  get denied(): readonly Denial[] {
    return this._subscription.denied;
  }

  /** See `Subscription.active`. */
  get active(): boolean {
    return this._subscription.active;
  }

  /** See `Subscription.positions`. */
  get positions(): Readonly<Record<string, number>> {
    return this._subscription.positions;
  }

  /** See `Subscription.stats`. */
  get stats(): SubscriptionStats {
    return this._subscription.stats;
  }

  /** See `Subscription.unsubscribe`. */
  unsubscribe(): Promise<void> {
    return this._subscription.unsubscribe();
  }

  /** See `Subscription.events`. */
  events(): AsyncIterableIterator<SubscriptionEvent<Data>> {
    return mapped(this._subscription.events(), async (event) => {
      if (event.kind !== 'message') return event;
      const message = await this._payloads.read(event.message);
      return message && { kind: 'message', message };
    });
  }

  [Symbol.asyncIterator](): AsyncIterableIterator<Message<Data>> {
    return mapped(this._subscription[Symbol.asyncIterator](), (message) =>
      this._payloads.read(message),
    );
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.unsubscribe();
  }
}
if (DEVELOPMENT) showOnly(TypedSubscription, 'topics', 'active', 'stats');

/** An iteration that converts or skips each value; an error does not end it. */
function mapped<From, To>(
  source: AsyncIterableIterator<From>,
  make: (value: From) => Promise<To | undefined>,
): AsyncIterableIterator<To> {
  const iterator: AsyncIterableIterator<To> = {
    [Symbol.asyncIterator]: () => iterator,
    next: async () => {
      while (true) {
        const next = await source.next();
        if (next.done) return { done: true, value: undefined };
        const value = await make(next.value);
        if (value !== undefined) return { done: false, value };
      }
    },
    return: async () => {
      await source.return?.();
      return { done: true, value: undefined };
    },
  };
  return iterator;
}

/** The operations of a client, which load beside its first connection. */

import { Operations } from '../session/operations.js';
import type { Client } from './client.js';
import { Deliveries } from './deliveries.js';
import { connected } from './failures.js';
import { Publisher } from './publisher.js';
import { subscribe } from './subscriber.js';
import type { SubscribeOptions } from './subscribing.js';
import type { Subscription } from './subscription.js';
import type { Timed } from './waiting.js';
import { watch } from './watch.js';

/** The operations of a client. */
export interface Background {
  readonly deliveries: Deliveries;
  readonly publisher: Publisher;
  connected(options: Timed): Promise<void>;
  /** Watch for the network, for a page that is shown again, and for the end of a suspension. */
  watch(): void;
  subscribe<Data>(
    topics: readonly string[],
    options: SubscribeOptions<Data> & Timed,
  ): Promise<Subscription<Data>>;
}

/** Add the operations to a client and its session. */
export function background(client: Client): Background {
  const { session } = client;
  const deliveries = new Deliveries(client);
  const publisher = new Publisher(client, deliveries);
  session.lifecycle.operations = new Operations(session, deliveries, publisher);
  return {
    deliveries,
    publisher,
    connected: (options) => connected(client, options),
    // Without it, an unanswered ping detects the loss: the page of a simulated browser may reject
    // the signal of its listeners.
    watch: () => void watch(client).catch(() => {}),
    subscribe: (topics, options) => subscribe(client, deliveries, publisher, topics, options),
  };
}

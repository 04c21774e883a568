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
export class Background {
  readonly deliveries: Deliveries;
  readonly publisher: Publisher;

  /** Add the operations to the session of a client. */
  constructor(private readonly _client: Client) {
    const { session } = _client;
    this.deliveries = new Deliveries(_client);
    this.publisher = new Publisher(_client, this.deliveries);
    session.lifecycle.operations = new Operations(session, this.deliveries, this.publisher);
  }

  connected(options: Timed): Promise<void> {
    return connected(this._client, options);
  }

  /** Watch for the network, for a page that is shown again, and for the end of a suspension. */
  watch(): void {
    // Without it, an unanswered ping detects the loss: the page of a simulated browser may reject
    // the signal of its listeners.
    watch(this._client).catch(() => {});
  }

  subscribe<Data>(
    topics: readonly string[],
    options: SubscribeOptions<Data> & Timed,
  ): Promise<Subscription<Data>> {
    return subscribe(this._client, this.deliveries, this.publisher, topics, options);
  }
}

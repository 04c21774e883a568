/** The operations of a client, which load beside its first connection. */

import { Operations } from '../session/operations.js';
import type { Subscribe } from '../session/ports.js';
import { merged } from '../settings/checks.js';
import type { Client } from './environment.js';
import { late, notConnected } from './failures.js';
import { Deliveries, Inbox } from './inbox.js';
import { PARTS } from './parts.js';
import { Publisher } from './publisher.js';
import type { SubscribeOptions } from './subscribing.js';
import { checkHistory, Subscription } from './subscription.js';
import { onAbort, type Timed, within } from './waiting.js';
import { watch } from './watch.js';

export class Background {
  readonly deliveries: Deliveries;
  readonly publisher: Publisher;

  constructor(private readonly _client: Client) {
    const { session } = _client;
    this.deliveries = new Deliveries(_client);
    this.publisher = new Publisher(_client, this.deliveries);
    session.lifecycle.operations = new Operations(session, this.deliveries, this.publisher);
  }

  /** Wait until the client is connected; see `PubSub.connect`. */
  async connected(options: Timed): Promise<void> {
    const { _client: client } = this;
    client.perform((session) => session.connect());
    const states = client.states();
    try {
      while (client.state !== 'connected') {
        client.checkOpen();
        if (!(await within(states.next(), options, client.clock))) {
          throw notConnected(client, options);
        }
      }
    } finally {
      states.finish();
    }
  }

  /** Watch for the network, for a page that is shown again, and for the end of a suspension. */
  watch(): void {
    // Without it, an unanswered ping detects the loss: the page of a simulated browser may reject
    // the signal of its listeners.
    watch(this._client).catch(() => {});
  }

  /**
   * Subscribe, and wait until the server has answered; see `PubSub.subscribe`.
   *
   * @param topics Valid patterns, each once.
   */
  async subscribe<Data>(
    topics: readonly string[],
    options: SubscribeOptions<Data> & Timed,
  ): Promise<Subscription<Data>> {
    const { _client: client, deliveries, publisher } = this;
    const { history, onMessage, onPresence, presence, queue = {}, signal, types } = options;
    const named = options.since ?? history ?? options.after;
    const isNew = client.options.recover === undefined || named !== undefined;
    const place = isNew ? options : (await client.part(client.recovery, options)).place(topics);
    const after = place.after && new Map(Object.entries(place.after));
    const request: Subscribe = {
      sub: publisher.number(),
      topics,
      since: place.since && Math.round(+place.since),
      history,
      after,
      presence: Boolean(presence ?? onPresence),
    };
    const bounds = merged(queue, client.options.receiveQueue);
    const inbox = new Inbox(topics, bounds, after);
    const special = types ?? (typeof presence === 'boolean' ? undefined : presence);
    if (special !== undefined) {
      const { prepareInbox } = await client.part(PARTS.arguments, options);
      prepareInbox(client, publisher, inbox, options);
    }
    // From here to its listener, nothing waits.
    signal?.throwIfAborted();
    const leave = (): void => deliveries.remove(request.sub);
    const handlers = options as SubscribeOptions;
    const subscription = new Subscription<Data>(inbox, handlers, client.listeners, leave);
    const stop = (): void => void subscription.unsubscribe();
    if (onPresence && !onMessage) {
      // An iteration does not call `onPresence`, so this inbox does. Each change contains all
      // members, so a full inbox keeps the latest one of each topic.
      inbox.presence = new Inbox(topics, { ...bounds, policy: 'gap' });
    }
    deliveries.add(request, inbox);
    // A signal may outlive the client: it must not keep a subscription that has ended.
    if (!inbox.finished) inbox.ended = onAbort(signal, stop);
    const handled = (onMessage || onPresence) && subscription.run(inbox.presence);
    const answered = await within(inbox.answered, options, client.clock);
    // No call throws the error that ends a subscription later, unless the program iterates it.
    if (!inbox.error) void handled?.then(() => inbox.observed || deliveries.reportEnd(inbox));
    if (!answered) {
      const error = late(client, options, request, Boolean(onMessage));
      // Without a handler, the program could no longer read it.
      if (!onMessage) stop();
      throw error;
    }
    signal?.throwIfAborted();
    if (inbox.error) {
      stop();
      throw inbox.error;
    }
    if (history) checkHistory(client, request);
    return subscription;
  }
}

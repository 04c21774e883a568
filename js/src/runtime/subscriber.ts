/** Creates a subscription from valid arguments. */

import { DEVELOPMENT } from '../build.js';
import type { Subscribe } from '../session/requests.js';
import { merged } from '../settings/checks.js';
import { checkReceiveQueue } from '../settings/option_checks.js';
import type { Client } from './client.js';
import type { Deliveries } from './deliveries.js';
import { late } from './failures.js';
import { checkHistory } from './gaps.js';
import type { Handlers } from './handlers.js';
import { Inbox } from './inbox.js';
import { PARTS } from './parts.js';
import type { Publisher } from './publisher.js';
import type { SubscribeOptions } from './subscribing.js';
import { Subscription } from './subscription.js';
import { onAbort, type Timed, within } from './waiting.js';

/**
 * Subscribe, and wait until the server has answered; see `PubSub.subscribe`.
 *
 * @param topics Valid patterns, each once.
 */
export async function subscribe<Data>(
  client: Client,
  deliveries: Deliveries,
  publisher: Publisher,
  topics: readonly string[],
  options: SubscribeOptions<Data> & Timed,
): Promise<Subscription<Data>> {
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
  if (DEVELOPMENT) checkReceiveQueue(queue);
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
  const { listeners } = client;
  const subscription = new Subscription<Data>(inbox, options as Handlers, listeners, leave);
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
    // Without a handler, the program could no longer read it.
    if (!onMessage) stop();
    throw late(client, options, topics[0], Boolean(onMessage));
  }
  signal?.throwIfAborted();
  if (inbox.error) {
    stop();
    throw inbox.error;
  }
  if (history) checkHistory(client, request);
  return subscription;
}

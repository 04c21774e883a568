/** The session parts for presence. */

import { OwnPresence } from './own_presence.js';
import { Presence } from './presence.js';
import type { OperatedSession } from './session.js';

/** Add presence to a session; a second call has no effect. */
export function install({ context, operations }: OperatedSession): void {
  const { subscriptions, publishes, deliveries, outcomes } = operations;
  subscriptions.presence ??= new Presence(context, subscriptions.watched, deliveries);
  operations.ownPresence ??= new OwnPresence(context, publishes, subscriptions.routes, outcomes);
}

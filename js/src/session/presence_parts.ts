/** The session parts for presence. */

import type { OperatedSession } from './operations.js';
import { OwnPresence } from './own_presence.js';
import { Presence } from './presence.js';

/** Add presence to a session; a second call has no effect. */
export function install({ context, lifecycle, publishes, subscriptions }: OperatedSession): void {
  const { routes } = subscriptions;
  subscriptions.presence ??= new Presence(context, routes);
  lifecycle.ownPresence ??= new OwnPresence(context, publishes, routes);
}

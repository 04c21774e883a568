/** The session parts for presence. */

import { OwnPresence } from './own_presence.js';
import { Presence } from './presence.js';
import type { Session } from './session.js';

/** Add presence to a session; a second call has no effect. */
export function install({ context, lifecycle, publishes, subscriptions }: Session): void {
  const { routes } = subscriptions;
  subscriptions.presence ??= new Presence(context, routes);
  lifecycle.ownPresence ??= new OwnPresence(context, publishes, routes);
}

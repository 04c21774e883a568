/** The session parts for the operations of a program. */

import { Publishes } from './publishes.js';
import type { Session } from './session.js';
import { Subscriptions } from './subscriptions.js';

interface Parts {
  readonly subscriptions: Subscriptions;
  readonly publishes: Publishes;
}

/** A session with these parts. */
export type OperatedSession = Session & Parts;

/** Add the parts to a session that no server has welcomed yet. */
export function operated(session: Session): OperatedSession {
  const { context, lifecycle } = session;
  const parts: Parts = {
    subscriptions: new Subscriptions(context),
    publishes: new Publishes(context),
  };
  Object.assign(lifecycle, parts);
  return Object.assign(session, parts);
}

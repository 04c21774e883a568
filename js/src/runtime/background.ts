/** What a client needs a connection for: it loads beside the first one. */

import { operated } from '../session/operations.js';
import type { Client } from './client.js';
import { connected } from './failures.js';
import { Publisher } from './publisher.js';
import { subscribe } from './subscriber.js';

export { watch } from './watch.js';

/** The operations of a client. */
export interface Operations {
  readonly publisher: Publisher;
  readonly subscribe: typeof subscribe;
  readonly connected: typeof connected;
}

/** Add the operations to a client. */
export function operations(client: Client): Operations {
  const { publishes } = operated(client.session);
  return { publisher: new Publisher(client, publishes), subscribe, connected };
}

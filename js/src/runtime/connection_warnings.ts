/** Warnings about the connection of a client; only for the development build. */

import type { ClientOptions } from '../settings/options.js';
import type { Client } from './client.js';
import { lastRemedy, reasonOf } from './failures.js';

/** A client that is connected, or about to try it again. */
interface Connecting extends Client {
  readonly transport: string | undefined;
  /** Why the last WebSocket did not open, or has ended; undefined if it still opens. */
  readonly socketFailure: string | undefined;
}

/** The options of clients that have logged that server-sent events replace the WebSocket. */
const warned = new WeakSet<ClientOptions>();

/** Log why there is no connection; or, once per client, why it does not use the WebSocket. */
export function warnOfConnection(client: Connecting): void {
  // The failure of a callback is reported as an error.
  if (client.tokenFailure) return;
  const { options, lastFailure, socketFailure = 'it did not open in time' } = client;
  const { transport, socketUrl, logger, WebSocket = globalThis.WebSocket } = options;
  if (lastFailure) {
    const { remedy } = lastRemedy(client);
    const words = [`No connection to ${socketUrl}:`, reasonOf(client), remedy];
    logger.warn([...words, 'The client keeps trying.'].filter(Boolean).join(' '));
    return;
  }
  // A platform without WebSockets has its own warning.
  if (client.transport !== 'sse' || transport !== 'auto' || !WebSocket || warned.has(options))
    return;
  warned.add(options);
  logger.warn(
    `The WebSocket ${socketUrl} failed (${socketFailure.replace(/\.$/, '')}); using server-sent ` +
      'events instead. Check the port and path of `url`, and that proxies pass WebSocket upgrades.',
  );
}

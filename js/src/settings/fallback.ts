/** The warning that server-sent events replace the WebSocket; only for the development build. */

import type { ClientOptions } from './options.js';

/** The options of clients that have logged it. */
const warned = new WeakSet<ClientOptions>();

/**
 * Log once that a client uses server-sent events because its WebSocket does not work.
 *
 * @param options Those of the client.
 * @param reason Why the last WebSocket did not open, or has ended; undefined if it still opens.
 */
export function warnOfFallback(options: ClientOptions, reason = 'it did not open in time'): void {
  const { transport, socketUrl, logger, WebSocket = globalThis.WebSocket } = options;
  // A platform without WebSockets has its own warning.
  if (transport !== 'auto' || !WebSocket || warned.has(options)) return;
  warned.add(options);
  logger.warn(
    `The WebSocket ${socketUrl} failed (${reason.replace(/\.$/, '')}); using server-sent events ` +
      'instead. Check the path of `url`, and that proxies pass WebSocket upgrades.',
  );
}

/** The environment of the platform: time, randomness, transports, and wake-up signals. */

import { SystemClock } from '../clock.js';
import { InvalidOption } from '../errors.js';
import type { ClientOptions } from '../settings/options.js';
import { WebSocketTransport } from '../transports/websocket.js';
import { BACKGROUND } from './background_part.js';
import type { Environment } from './client.js';

/**
 * Warn of a platform without WebSockets, when a client connects for the first time.
 *
 * @throws InvalidOption A WebSocket is required, but the platform has none.
 */
export function checkPlatform(options: ClientOptions, environment: Environment): void {
  if (options.transport === 'sse' || environment.hasWebSocket?.(options) !== false) return;
  const message = 'This platform has no WebSocket.';
  const remedy = 'Pass `WebSocket` of the package `ws`.';
  if (options.transport === 'websocket')
    throw new InvalidOption(message, { remedy, field: 'WebSocket' });
  options.logger.warn(`${message} The client uses server-sent events instead. ${remedy}`);
}

/** The platform's environment; code that the first connection does not need loads in parallel. */
export const platform: Environment = {
  clock: new SystemClock(),
  opened: new Set(),
  random: Math.random,
  hasWebSocket: ({ WebSocket = globalThis.WebSocket }) => Boolean(WebSocket),
  dial(name, options, alone) {
    const { clock, random } = platform;
    if (name === 'websocket') {
      if (options.shareTabs === undefined || alone) return new WebSocketTransport(options, clock);
      return import('../tabs/link.js').then((tabs) => tabs.linkTabs(options, clock));
    }
    return import('../transports/sse.js').then(
      (sse) => new sse.SseTransport(options, clock, random),
    );
  },
  watch(client) {
    // Without it, an unanswered ping detects the loss: it may not load, and the page of a simulated
    // browser may reject the signal of its listeners.
    BACKGROUND.load()
      .then(({ watch }) => watch(client))
      .catch(() => {});
  },
};

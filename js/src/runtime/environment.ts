/** The environment of the platform: time, randomness, transports. */

import { DEVELOPMENT } from '../build.js';
import { SystemClock } from '../clock.js';
import { invalid } from '../settings/checks.js';
import type { ClientOptions } from '../settings/options.js';
import { WebSocketTransport } from '../transports/websocket.js';
import type { Environment } from './client.js';

/** @throws InvalidOption A WebSocket is required, but the platform has none. */
export function checkPlatform(options: ClientOptions, environment: Environment): void {
  if (options.transport !== 'websocket' || environment.hasWebSocket?.(options) !== false) return;
  throw invalid(
    'WebSocket',
    'is required: this platform has none',
    'Pass `WebSocket` of the package `ws`.',
  );
}

/** The platform's environment; code that the first connection does not need loads in parallel. */
export const platform: Environment = {
  clock: new SystemClock(),
  opened: new Set(),
  random: Math.random,
  // Every browser has WebSockets.
  ...(DEVELOPMENT && {
    hasWebSocket: ({ WebSocket = globalThis.WebSocket }: ClientOptions) => Boolean(WebSocket),
  }),
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
};

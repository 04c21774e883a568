/** The environment of the platform: time, randomness, transports. */

import { DEVELOPMENT } from '../build.js';
import { SystemClock } from '../clock.js';
import { invalid } from '../settings/checks.js';
import type { ClientOptions } from '../settings/options.js';
import { WebSocketTransport } from '../transports/websocket.js';
import type { Client, Environment } from './client.js';

/**
 * Use the event stream if the platform has no WebSocket. This is checked when the client connects,
 * because a program may define `globalThis.WebSocket` after it has created the client.
 *
 * @throws InvalidOption A WebSocket is required.
 */
export function checkPlatform({ options, environment, session }: Client): void {
  if (options.transport === 'sse' || environment.hasWebSocket?.(options) !== false) return;
  if (options.transport === 'websocket') {
    throw invalid(
      'WebSocket',
      'is required: this platform has none',
      'Pass `WebSocket` of the package `ws`.',
    );
  }
  session.context.options = { ...options, transport: 'sse' };
  session.lifecycle._choice._name = 'sse';
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

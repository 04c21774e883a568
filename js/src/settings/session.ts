/** Settings of a session. Times in milliseconds, sizes in bytes. */

import { CLIENT, type ClientDefaults } from '../generated/defaults.js';
import type { ClientInfo } from '../generated/wire.js';

/** `auto` starts with a WebSocket and falls back to SSE. */
export type TransportChoice = 'auto' | 'websocket' | 'sse';

/** @internal Settings of a session; the defaults are those of `spec/defaults.yaml`. */
export interface SessionOptions extends ClientDefaults {
  /** Whether another call for a token may return a new one; false for a fixed token. */
  readonly renewable: boolean;
  readonly transport: TransportChoice;
  /** Sent to the server in `auth`. */
  readonly client: ClientInfo;
}

/** @internal All settings: the given ones, and defaults for the rest. */
export function sessionOptions(
  given: Partial<SessionOptions> & Pick<SessionOptions, 'client'>,
): SessionOptions {
  return {
    renewable: true,
    transport: 'auto',
    ...CLIENT,
    ...given,
  };
}

/** Settings of a session. Times in milliseconds, sizes in bytes. */

import { CLIENT, type ClientDefaults } from '../generated/defaults.js';
import type { ClientInfo } from '../generated/wire.js';

/** `auto` starts with a WebSocket and falls back to SSE. */
export type TransportChoice = 'auto' | 'websocket' | 'sse';

/** @internal Settings of a session; the defaults are those of `spec/defaults.yaml`. */
export interface SessionOptions {
  /** Whether another call for a token may return a new one; false for a fixed token. */
  readonly renewable: boolean;
  readonly transport: TransportChoice;
  /** Sent to the server in `auth`. */
  readonly client: ClientInfo;
  readonly fetchTimeout: number;
  readonly openTimeout: number;
  readonly closeTimeout: number;
  readonly pingInterval: number;
  readonly pongTimeout: number;
  readonly checkTimeout: number;
  readonly retryBase: number;
  readonly retryCap: number;
  readonly callInterval: number;
  readonly stableAfter: number;
  readonly suspendAfter: number;
  readonly refreshMargin: number;
  readonly fallbackAfter: number;
  readonly fallbackFailures: number;
  readonly shortLife: number;
  readonly upgradeAfter: number;
  readonly upgradeCap: number;
  readonly overlap: number;
  readonly rememberedIds: number;
  readonly rememberedTopics: number;
  /** Maximum unsent publishes, and maximum sent and unanswered ones. */
  readonly sendQueueMessages: number;
  /** The same two limits in bytes. */
  readonly sendQueueBytes: number;
  readonly heldMessages: number;
  readonly paceInterval: number;
}

/** @internal All settings: the given ones, and defaults for the rest. */
export function sessionOptions(
  given: Partial<SessionOptions> & Pick<SessionOptions, 'client'>,
): SessionOptions & ClientDefaults {
  return {
    renewable: true,
    transport: 'auto',
    ...CLIENT,
    ...given,
  };
}

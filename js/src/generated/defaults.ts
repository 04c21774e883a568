// Generated from spec/defaults.yaml by `make generate`; do not edit.

/** Defaults of the SDKs; times in milliseconds, sizes in bytes. */
export interface ClientDefaults {
  readonly protocolVersion: number;
  /** Timeout of the token callback. */
  readonly fetchTimeout: number;
  /** Timeout to connect and authenticate. */
  readonly openTimeout: number;
  /** Timeout of publish, subscribe, history and presence. */
  readonly operationTimeout: number;
  /** Time that close() waits for unsent publishes. */
  readonly closeTimeout: number;
  /** Interval between pings; the server closes an idle connection after 30000. */
  readonly pingInterval: number;
  /** Time to wait for the answer to a ping. */
  readonly pongTimeout: number;
  /** Time to wait for a pong after the platform reports that the network is offline. */
  readonly checkTimeout: number;
  /** Full jitter: U(0, min(cap, base * 2^attempt, max(2 * base, outage^2 / 160 s))), at most 2 * base while a publish waits, never below the server's retry_after. */
  readonly retryBase: number;
  readonly retryCap: number;
  /** A call of the program starts the next attempt early, at most once in this time. */
  readonly callInterval: number;
  /** The attempt counter resets after a connection of this length. */
  readonly stableAfter: number;
  readonly suspendAfter: number;
  /** Time before the expiry at which the client renews the token, unless auth.expiring arrives first. */
  readonly refreshMargin: number;
  /** The client falls back to SSE if its first WebSocket is not open after this time and HTTP answers. */
  readonly fallbackAfter: number;
  /** The client also falls back after this number of failed attempts, if HTTP answers. */
  readonly fallbackFailures: number;
  /** Replaces fallback_failures once a WebSocket has worked in this process. */
  readonly shortLife: number;
  /** Time on SSE before the client probes a WebSocket; doubles with each probe. */
  readonly upgradeAfter: number;
  /** Maximum time between two probes. */
  readonly upgradeCap: number;
  /** Time before the newest message from which a replay starts, with a server without seq. */
  readonly overlap: number;
  /** Message ids kept per topic, with a server without seq. */
  readonly rememberedIds: number;
  /** Topics tracked per subscription, least recently used removed first; completeness is unknown for the others. */
  readonly rememberedTopics: number;
  readonly sendQueueMessages: number;
  readonly sendQueueBytes: number;
  /** Per subscription. */
  readonly receiveQueueMessages: number;
  readonly receiveQueueBytes: number;
  /** Live messages per subscription that wait for its replay. */
  readonly heldMessages: number;
  /** Inbound; a replay of 100 messages of 256 KB is 25.6 MB. */
  readonly maxFrame: number;
  /** Interval at which the publish budget is refilled. */
  readonly paceInterval: number;
  readonly restAttempts: number;
  readonly historyPage: number;
}

export const CLIENT: ClientDefaults = {
  protocolVersion: 1,
  fetchTimeout: 10000,
  openTimeout: 5000,
  operationTimeout: 10000,
  closeTimeout: 5000,
  pingInterval: 15000,
  pongTimeout: 10000,
  checkTimeout: 3000,
  retryBase: 1000,
  retryCap: 30000,
  callInterval: 1000,
  stableAfter: 10000,
  suspendAfter: 120000,
  refreshMargin: 45000,
  fallbackAfter: 8000,
  fallbackFailures: 2,
  shortLife: 3,
  upgradeAfter: 30000,
  upgradeCap: 600000,
  overlap: 5000,
  rememberedIds: 1000,
  rememberedTopics: 20000,
  sendQueueMessages: 1000,
  sendQueueBytes: 1048576,
  receiveQueueMessages: 1024,
  receiveQueueBytes: 8388608,
  heldMessages: 10000,
  maxFrame: 33554432,
  paceInterval: 100,
  restAttempts: 4,
  historyPage: 100,
};

// Generated from spec/defaults.yaml by `make generate`; do not edit.

/** Defaults of the SDKs; times in milliseconds, sizes in bytes. */
export interface ClientDefaults {
  readonly protocolVersion: number;
  /** Token callback. */
  readonly fetchTimeout: number;
  /** Dial and authenticate. */
  readonly openTimeout: number;
  /** Publish, subscribe, history, presence. */
  readonly operationTimeout: number;
  /** Drain. */
  readonly closeTimeout: number;
  /** The server gives up on a silent client after 30000. */
  readonly pingInterval: number;
  readonly pongTimeout: number;
  /** For the pong when the platform says that the network is gone. */
  readonly checkTimeout: number;
  /** Full jitter: U(0, min(cap, base * 2^attempt, max(2 * base, outage^2 / 160 s))), at most 2 * base while a publish waits, never below the server's retry_after. */
  readonly retryBase: number;
  readonly retryCap: number;
  /** A call of the program brings the next attempt forward, at most once in this time. */
  readonly callInterval: number;
  /** Connected for so long, the attempt counter starts anew. */
  readonly stableAfter: number;
  readonly suspendAfter: number;
  /** Renew the token so long before it ends, where no auth.expiring came. */
  readonly refreshMargin: number;
  /** A first WebSocket that is not open by then gives way to SSE, if HTTP answers. */
  readonly fallbackAfter: number;
  /** Or after so many failed attempts, between which HTTP answers. */
  readonly fallbackFailures: number;
  /** The same once a WebSocket has worked in this process; connections that die before anything comes count too. */
  readonly shortLife: number;
  /** SSE stays for so long, then a WebSocket is probed; the wait doubles with each probe. */
  readonly upgradeAfter: number;
  /** Longest wait between two probes. */
  readonly upgradeCap: number;
  /** Replay so long before the newest message, against a server without seq. */
  readonly overlap: number;
  /** A topic, against a server without seq. */
  readonly rememberedIds: number;
  /** A subscription, least recently used first to go; what comes of others later is unproven. */
  readonly rememberedTopics: number;
  readonly sendQueueMessages: number;
  readonly sendQueueBytes: number;
  /** A subscription. */
  readonly receiveQueueMessages: number;
  readonly receiveQueueBytes: number;
  /** Live messages of one subscription that wait for its replay. */
  readonly heldMessages: number;
  /** Inbound; a replay of 100 messages of 256 KB is 25.6 MB. */
  readonly maxFrame: number;
  /** How often the publish budget is refilled. */
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

/**
 * Settings of the server in memory: the subset of the reference server's settings that tests need.
 */

import * as LIMITS from '../generated/limits.js';
import {
  checkNames,
  checkValues,
  type Kind,
  merged,
  type Range,
  TIME,
} from '../settings/checks.js';
import type { Optional } from '../settings/options.js';
import type { Identity } from './tokens.js';

/** Limits and deadlines. Times are milliseconds unless the description names another unit. */
export interface ServerSettings {
  /** Maximum bytes of the JSON-encoded `data`; default 262,144. */
  readonly maxPayload: number;
  /** Publishes per second of a user or agent; default 1,000,000. The service allows 10. */
  readonly publishRateUser: number;
  /**
   * Publishes per second of a service or administrator; default 1,000,000. The service allows 100.
   */
  readonly publishRateService: number;
  /** Burst: milliseconds of the publish rate that may be used at once; default 1,000. */
  readonly publishBurst: number;
  /** Maximum open connections of one user; default 100. */
  readonly connectionsPerUser: number;
  /** Timeout for the `auth` frame after the connection opened; default 5,000. */
  readonly authDeadline: number;
  /** Idle timeout: closes a connection that sends nothing for this long; default 30,000. */
  readonly presenceTimeout: number;
  /** Grace period after a lost connection before its members leave; default 5,000. */
  readonly presenceGrace: number;
  /** How long before the expiry of a token `auth.expiring` is sent; default 60,000. */
  readonly expiringNotice: number;
  /** Maximum messages retained per topic; default 100. */
  readonly historyMaxMessages: number;
  /** Maximum retention of a message, in seconds; default 3,600. */
  readonly historyMaxAge: number;
  /** Default page size of history, in messages; default 50. */
  readonly historyPageDefault: number;
  /** Maximum page size of history, in messages; default 500. */
  readonly historyPageMax: number;
  /** Maximum messages in one publish; default 1,000. */
  readonly maxBatch: number;
  /** Maximum patterns of a connection; default 1,000. */
  readonly maxSubscriptions: number;
  /**
   * Milliseconds without a frame from the client after which the server sends a ping; default
   * 15,000.
   */
  readonly serverPingInterval: number;
  /** Interval of keepalive comments on an event stream; default 15,000. */
  readonly sseKeepalive: number;
}

/** Access rules. An omitted rule allows everything; an `admin` may do everything. */
export interface Rules {
  /**
   * Whether an identity may read a topic. A pattern with wildcards is always accepted, and delivers
   * the topics that this rule allows.
   */
  maySubscribe?(identity: Identity, topic: string): boolean;
  /** Whether an identity may publish to a topic. */
  mayPublish?(identity: Identity, topic: string): boolean;
}

const COUNT: Range = [1, 10_000_000, 'a number'];
const GRACE: Range = [0, 86_400_000, 'milliseconds'];

const KINDS: Readonly<Record<keyof ServerSettings, Kind>> = {
  maxPayload: [1, 2 ** 30, 'a number of bytes'],
  publishRateUser: COUNT,
  publishRateService: COUNT,
  publishBurst: TIME,
  connectionsPerUser: COUNT,
  authDeadline: TIME,
  presenceTimeout: TIME,
  presenceGrace: GRACE,
  expiringNotice: GRACE,
  historyMaxMessages: [0, 1_000_000, 'a number of messages'],
  historyMaxAge: [0, 31_536_000, 'seconds'],
  historyPageDefault: [1, 10_000, 'a number of messages'],
  historyPageMax: [1, 10_000, 'a number of messages'],
  maxBatch: COUNT,
  maxSubscriptions: COUNT,
  serverPingInterval: TIME,
  sseKeepalive: TIME,
};

/** @throws InvalidOption A setting is unknown, has a wrong type, or is out of range. */
export function readSettings(given: Optional<ServerSettings>): ServerSettings {
  checkNames('options', given, Object.keys(KINDS));
  checkValues(given, KINDS);
  return merged<ServerSettings>(given, {
    maxPayload: LIMITS.maxPayload,
    // The default rates are high, so that they don't slow down tests of other behaviour.
    publishRateUser: 1_000_000,
    publishRateService: 1_000_000,
    publishBurst: 1_000,
    connectionsPerUser: LIMITS.connectionsPerUser,
    authDeadline: LIMITS.authDeadline,
    presenceTimeout: LIMITS.presenceTimeout,
    presenceGrace: LIMITS.presenceGrace,
    expiringNotice: LIMITS.expiringNotice,
    historyMaxMessages: LIMITS.historyMaxMessages,
    historyMaxAge: LIMITS.historyMaxAge,
    historyPageDefault: LIMITS.historyPageDefault,
    historyPageMax: LIMITS.historyPageMax,
    maxBatch: LIMITS.maxBatch,
    maxSubscriptions: LIMITS.maxSubscriptions,
    serverPingInterval: LIMITS.serverPingInterval,
    sseKeepalive: LIMITS.sseKeepalive,
  });
}

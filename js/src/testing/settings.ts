/** Settings of the server in memory: those of the reference server that tests are about. */

import * as LIMITS from '../generated/limits.js';
import { checkNames, checkValues, type Kind, type Range, TIME } from '../settings/checks.js';
import type { Identity } from './tokens.js';

/** Limits and deadlines; times are milliseconds where not said. */
export interface ServerSettings {
  /** Bytes of JSON-encoded `data`; default 262,144. */
  readonly maxPayload: number;
  /** Publishes per second of users and agents; default 1,000,000, where the service has 10. */
  readonly publishRateUser: number;
  /** Of services and admins; default 1,000,000, where the service has 100. */
  readonly publishRateService: number;
  /** Of the rate that may come at once; default 1,000. */
  readonly publishBurst: number;
  /** Open connections of one user; default 100. */
  readonly connectionsPerUser: number;
  /** For `auth` after the opening; default 5,000. */
  readonly authDeadline: number;
  /** Silence after which a client is given up; default 30,000. */
  readonly presenceTimeout: number;
  /** Until a lost client leaves; default 5,000. */
  readonly presenceGrace: number;
  /** Notice before the end of a token; default 60,000. */
  readonly expiringNotice: number;
  /** Messages kept per topic; default 100. */
  readonly historyMaxMessages: number;
  /** Seconds that a message is kept; default 3,600. */
  readonly historyMaxAge: number;
  /** Messages in a page of history that names no number; default 50. */
  readonly historyPageDefault: number;
  /** Messages in a page of history; default 500. */
  readonly historyPageMax: number;
  /** Messages in one publish; default 1,000. */
  readonly maxBatch: number;
  /** Patterns of a connection; default 1,000. */
  readonly maxSubscriptions: number;
  /** Silence before a ping; default 15,000. */
  readonly serverPingInterval: number;
  /** Between comments on an event stream; default 15,000. */
  readonly sseKeepalive: number;
}

/** Who may do what; what is left out is allowed to everybody, and everything to an `admin`. */
export interface Rules {
  /**
   * Whether a topic may be read. A pattern with wildcards is always accepted, and delivers the topics
   * for which this is true.
   */
  maySubscribe?(identity: Identity, topic: string): boolean;
  /** Whether a topic may be published to. */
  mayPublish?(identity: Identity, topic: string): boolean;
}

const COUNT: Range = [1, 10_000_000, 'a number'];
const GRACE: Range = [0, 86_400_000, 'milliseconds'];

const KINDS: Readonly<Record<keyof ServerSettings, Kind>> = {
  maxPayload: [1, 2 ** 30, 'bytes'],
  publishRateUser: COUNT,
  publishRateService: COUNT,
  publishBurst: TIME,
  connectionsPerUser: COUNT,
  authDeadline: TIME,
  presenceTimeout: TIME,
  presenceGrace: GRACE,
  expiringNotice: GRACE,
  historyMaxMessages: [0, 1_000_000, 'messages'],
  historyMaxAge: [0, 31_536_000, 'seconds'],
  historyPageDefault: [1, 10_000, 'messages'],
  historyPageMax: [1, 10_000, 'messages'],
  maxBatch: COUNT,
  maxSubscriptions: COUNT,
  serverPingInterval: TIME,
  sseKeepalive: TIME,
};

/** @throws InvalidOption A setting is not known, of a wrong type, or out of range. */
export function readSettings(given: Partial<ServerSettings>): ServerSettings {
  checkNames('options', given, Object.keys(KINDS));
  return checkValues(
    given,
    {
      maxPayload: LIMITS.maxPayload,
      // A test that is not about rates is not to be slowed down by them.
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
    },
    KINDS,
  );
}

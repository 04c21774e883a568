/** What the server of a connection can do, read from `auth.ok`. */

import { LIMITS } from '../generated/defaults.js';
import type { AuthOkFrame } from '../generated/wire.js';

/** The other side of one connection. */
export interface Peer {
  /** It knows HIP-56 and nothing more, so it is sent nothing more. */
  readonly plain: boolean;
  /** It echoes `ref`. */
  readonly ref: boolean;
  /** It answers `publish`. */
  readonly ack: boolean;
  /** It numbers the messages of a topic. */
  readonly seq: boolean;
  /** It publishes an id once. */
  readonly idempotent: boolean;
  /** It takes `publish` with `messages`. */
  readonly batch: boolean;
  /** Subscriptions may come and go one by one; false for an event stream. */
  readonly incremental: boolean;
  /** Publishes a second that it allows; 0 for no limit that is known. */
  readonly rate: number;
  /**
   * Publishes that may go at once: a tenth less than the server allows.
   *
   * Budgets of two clocks that are equal meet at zero, where the network's jitter alone makes the
   * server refuse; and what was refused comes after what follows it.
   */
  readonly burst: number;
  /** Messages that it retains a topic. */
  readonly history: number;
}

/** What `auth.ok` says of the server. */
export function readPeer(frame: AuthOkFrame, incremental: boolean): Peer {
  const { version, features = [], limits = {} } = frame;
  const plain = version === undefined;
  const can = (feature: string): boolean => !plain && features.includes(feature);
  const ref = can('ref');
  const rate = limits.publish_rate ?? 0;
  return {
    plain,
    ref,
    ack: ref && can('ack'),
    seq: can('seq'),
    idempotent: can('idempotency'),
    batch: can('batch'),
    incremental,
    rate,
    burst: rate - Math.min(Math.max(1, Math.floor(rate / 10)), Math.floor(rate / 2)),
    history: limits.history_max ?? LIMITS.historyMaxMessages,
  };
}

/** Whether it can do all that a session counts on; else it takes the part `plain`. */
export function isCurrent({ ack, seq, idempotent, batch }: Peer): boolean {
  return ack && seq && idempotent && batch;
}

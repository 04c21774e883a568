/** What the server of a connection can do, read from `auth.ok`. */

import type { AuthOkFrame } from '../generated/wire.js';

const COUNTED_ON = ['ref', 'ack', 'seq', 'idempotency', 'batch'];

/** The other side of one connection. */
export interface Peer {
  /** It can do all that a session counts on; else the session takes the part `plain`. */
  readonly current: boolean;
  /** What it can do beyond HIP-56; undefined if it knows HIP-56 and nothing more. */
  readonly features: readonly string[] | undefined;
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
  /** Messages that it retains a topic, if it says so. */
  readonly history: number | undefined;
}

/** What `auth.ok` says of the server. */
export function readPeer(frame: AuthOkFrame, incremental: boolean): Peer {
  const { publish_rate: rate = 0, history_max: history } = frame.limits ?? {};
  const features = frame.version === undefined ? undefined : (frame.features ?? []);
  return {
    current: COUNTED_ON.every((feature) => features?.includes(feature)),
    features,
    incremental,
    rate,
    burst: rate - Math.min(Math.max(1, Math.floor(rate / 10)), Math.floor(rate / 2)),
    history,
  };
}

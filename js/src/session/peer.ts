/** The server of a connection: what `auth.ok` says of it, read once and shared by all parts. */

import type { AuthOkFrame, Limits } from '../generated/wire.js';

/** What a session counts on; a server without one of them needs a dialect. */
const COUNTED_ON = ['ref', 'ack', 'seq', 'idempotency', 'batch'];

/** The other side of one connection. */
export interface Peer {
  /** The id under which others see this client. */
  readonly clientId: string;
  /** What it allows: rates, sizes, retention. */
  readonly limits: Limits | undefined;
  /** Milliseconds until the token expires, if the server sent it. */
  readonly tokenLife: number | undefined;
  /** It speaks a version of the protocol beyond plain HIP-56. */
  readonly versioned: boolean;
  /** What it can do beyond HIP-56. */
  readonly features: ReadonlySet<string>;
  /** Subscriptions may come and go one by one; false for an event stream. */
  readonly incremental: boolean;
  /** It answers publishes: on an event stream, each is a request of its own. */
  readonly acks: boolean;
  /** What was sent and not answered can be sent again under its id. */
  readonly resends: boolean;
  /** Publishes per second that it allows; 0 if no limit is known. */
  readonly rate: number;
  /**
   * Publishes that may go at once: a tenth less than the server allows.
   *
   * Budgets of two clocks that are equal meet at zero, where the network's jitter alone makes the
   * server refuse; and what was refused comes after what follows it.
   */
  readonly burst: number;
  /** The node whose positions it gives; undefined where positions hold on every node. */
  readonly node: string | undefined;
}

/** Whether the server lacks something that a session counts on. */
export function needsDialect({ version, features = [] }: AuthOkFrame): boolean {
  return version === undefined || !COUNTED_ON.every((feature) => features.includes(feature));
}

/**
 * What `auth.ok` says of the server.
 *
 * @param at When it came by our clock, Unix milliseconds.
 */
export function readPeer(frame: AuthOkFrame, incremental: boolean, at: number): Peer {
  const { limits, expires_at: end, server_time: now = at } = frame;
  const rate = limits?.publish_rate ?? 0;
  const versioned = frame.version !== undefined;
  const features = new Set(versioned ? frame.features : []);
  const acks = !incremental || (features.has('ref') && features.has('ack'));
  return {
    clientId: frame.client_id,
    limits,
    tokenLife: end === undefined ? end : end - now,
    versioned,
    features,
    incremental,
    acks,
    resends: acks && features.has('idempotency'),
    rate,
    burst: rate - Math.min(Math.max(1, Math.floor(rate / 10)), Math.floor(rate / 2)),
    node: frame.node,
  };
}

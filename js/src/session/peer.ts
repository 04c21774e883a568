/** The server of a connection: the contents of `auth.ok`, read once and shared by all parts. */

import type { AuthOkFrame } from '../generated/wire.js';

/** @internal The server of one connection: the fields of `auth.ok`, and what follows from them. */
export interface Peer extends Omit<AuthOkFrame, 'type' | 'features'> {
  /** Milliseconds until the token expires, if the server sent it. */
  readonly tokenLife: number | undefined;
  /** Its features beyond HIP-56. */
  readonly features: ReadonlySet<string>;
  /** Subscriptions can be added and removed one by one; false for an event stream. */
  readonly incremental: boolean;
  /** It answers publishes; on an event stream, each is a separate request. */
  readonly acks: boolean;
  /** The client can send unanswered publishes again under the same id. */
  readonly resends: boolean;
  /** Publishes per second that it allows; 0 if the limit is not known. */
  readonly rate: number;
  /**
   * Maximum burst of publishes: a tenth less than the server allows; infinite without a limit.
   *
   * With equal budgets on two clocks, network jitter alone makes the server reject a publish at the
   * limit. A rejected publish then arrives after the ones that follow it.
   */
  readonly burst: number;
}

/**
 * The server that `auth.ok` describes.
 *
 * @param at Arrival time by the local clock, Unix milliseconds.
 */
export function readPeer(frame: AuthOkFrame, incremental: boolean, at: number): Peer {
  const { limits, expires_at: end, server_time: now = at } = frame;
  const rate = limits?.publish_rate ?? 0;
  const features = new Set(frame.version === undefined ? [] : frame.features);
  return {
    ...frame,
    tokenLife: end === undefined ? end : end - now,
    features,
    incremental,
    acks: !incremental || (features.has('ref') && features.has('ack')),
    resends: features.has('idempotency'),
    rate,
    burst: rate - (rate < 2 ? 0 : Math.max(1, Math.floor(rate / 10))) || Infinity,
  };
}

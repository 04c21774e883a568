/** Limits: publishes per second (HIP-56 Security 4) and open connections (Security 7). */

import { Problem } from './problem.js';
import type { ServerSettings } from './settings.js';
import type { Identity } from './tokens.js';

interface Bucket {
  level: number;
  at: number;
}

/**
 * Limits publishes per second for each connection. The HTTP publishes of a user share one budget.
 */
export class RateLimiter {
  private readonly _buckets = new Map<string, Bucket>();

  constructor(
    private readonly _settings: ServerSettings,
    private readonly _now: () => number,
  ) {}

  /** Maximum publishes per second of an identity. */
  rate({ kind }: Identity): number {
    const { publishRateService, publishRateUser } = this._settings;
    return kind === 'service' || kind === 'admin' ? publishRateService : publishRateUser;
  }

  /**
   * Take up to `count` tokens. Returns how many were granted, and the milliseconds until the next
   * one.
   */
  take(
    identity: Identity,
    clientId: string | undefined,
    count: number,
  ): readonly [granted: number, wait: number] {
    const rate = this.rate(identity) / 1000;
    const burst = Math.max(1, rate * this._settings.publishBurst);
    const key = keyOf(identity, clientId);
    const now = this._now();
    const bucket = this._buckets.get(key) ?? { level: burst, at: now };
    this._buckets.set(key, bucket);
    bucket.level = Math.min(burst, bucket.level + (now - bucket.at) * rate);
    bucket.at = now;
    const granted = Math.min(count, Math.floor(bucket.level + 1e-9));
    bucket.level -= granted;
    if (granted === count) return [granted, 0];
    return [granted, Math.ceil(Math.max(0, (1 - bucket.level) / rate))];
  }

  /** Remove the budget of a closed connection. */
  forget(identity: Identity, clientId: string): void {
    this._buckets.delete(keyOf(identity, clientId));
  }
}

/** Limits the open connections of each user, including event streams. */
export class ConnectionLimiter {
  private readonly _users = new Map<string, number>();

  constructor(private readonly _most: number) {}

  /** @throws Problem `connection_limit`; the connection is not counted then. */
  acquire(identity: Identity): void {
    const key = keyOf(identity, undefined);
    const open = this._users.get(key) ?? 0;
    if (open >= this._most) {
      const detail = `${identity.userId} has ${open} connections, which is the maximum for a user`;
      throw new Problem('connection_limit', detail, { retryAfter: 5_000 });
    }
    this._users.set(key, open + 1);
  }

  /** Subtract a closed connection. */
  release(identity: Identity): void {
    const key = keyOf(identity, undefined);
    const left = (this._users.get(key) ?? 0) - 1;
    if (left > 0) this._users.set(key, left);
    else this._users.delete(key);
  }
}

function keyOf({ kind, userId }: Identity, clientId: string | undefined): string {
  return JSON.stringify([kind, userId, clientId]);
}

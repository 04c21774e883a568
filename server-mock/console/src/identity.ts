/** The signed-in identity, from `GET /v1/session`. */

import type { Credentials } from './credentials.js';
import { effect, Signal } from './reactive.js';

/** The identity and its limits. */
export interface Identity {
  readonly userId: string;
  readonly features: readonly string[];
  readonly limits: Readonly<Record<string, number>>;
  /** Expiry of the token, Unix ms of this machine; undefined if it does not expire. */
  readonly expiresAt: number | undefined;
  /** How far the clock of the server is ahead of the clock of this machine, in ms. */
  readonly ahead: number;
}

/** Request it when the client connects and when the token changes. */
export function followIdentity(
  http: string,
  credentials: Credentials,
  connected: () => boolean,
): Signal<Identity | undefined> {
  const identity = new Signal<Identity | undefined>(undefined);
  effect(() => {
    void credentials.life.value;
    const token = credentials.current();
    if (!connected() || !token) return;
    ask(http, token).then(
      (found) => {
        identity.value = found ?? identity.peek();
      },
      () => {},
    );
  });
  return identity;
}

async function ask(http: string, token: string): Promise<Identity | undefined> {
  const answer = await fetch(`${http}/v1/session`, {
    headers: { Authorization: `Bearer ${token}` },
    credentials: 'omit',
  });
  if (!answer.ok) return undefined;
  const body = (await answer.json()) as Record<string, unknown>;
  const { user_id, features, limits, expires_at, server_time } = body;
  const ahead = typeof server_time === 'number' ? server_time - Date.now() : 0;
  return {
    userId: String(user_id),
    features: Array.isArray(features) ? features.map(String) : [],
    limits: (limits ?? {}) as Record<string, number>,
    ahead,
    expiresAt: typeof expires_at === 'number' ? expires_at - ahead : undefined,
  };
}

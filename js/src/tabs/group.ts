/** Which tabs share a connection, and what they send to each other. */

import type { ClientFrame, ServerFrame } from '../generated/wire.js';
import { bareToken } from '../settings/checks.js';
import type { ClientOptions } from '../settings/options.js';
import type { TransportEnd } from '../transports/transport.js';

/** What a tab sends to the relay. */
export interface Said {
  /** The sender. */
  readonly tab: string;
  readonly said: ClientFrame;
}

/** What a relay says. Without `begun`, `frame` and `end`: that it hears the tab. */
export interface Told {
  /** The sender. */
  readonly relay: string;
  /** To whom; undefined for all tabs. */
  readonly to?: string | undefined;
  /** The relay has started. */
  readonly begun?: boolean;
  /** A frame of the server. */
  readonly frame?: ServerFrame;
  /** The connection has ended. */
  readonly end?: TransportEnd;
}

/** The tab with the connection gives it up, or is gone: the way is free at once. */
export const MOVED: TransportEnd = {
  code: 1001,
  reason: 'Another tab takes the connection.',
  again: true,
};

/** An id that no other tab has. */
export function newId(): string {
  return Math.random().toString(36).slice(2);
}

/** When a token ends, in seconds; 0 where it does not say. */
export function endOf(token: string): number {
  return Number(claimsOf(token)?.['exp']) || 0;
}

/**
 * The name of the lock and the channel of the tabs that share a connection.
 *
 * It is a digest of the address, the name, and whom the token speaks for: all claims of a JWT but
 * those that change with each issue, and the whole of a token that names no subject. So two
 * users, or one user with other rights, never share, and the name gives no token away.
 */
export async function groupOf(options: ClientOptions, token: string): Promise<string> {
  const { socketUrl, name, shareTabs } = options;
  const { exp, iat, nbf, jti, ...lasting } = claimsOf(token) ?? {};
  const identity = lasting['sub'] ? Object.entries(lasting).sort() : bareToken(token);
  const stated = JSON.stringify([socketUrl, name, shareTabs, identity]);
  const digest = await crypto.subtle.digest('SHA-256', new TextEncoder().encode(stated));
  // Tabs of another version of what they say to each other are none of this group.
  return `hanzo-pubsub 1 ${new Uint8Array(digest)}`;
}

/** The content of a JWT; undefined for a token of another kind. */
function claimsOf(token: string): Record<string, unknown> | undefined {
  try {
    return JSON.parse(atob(String(token.split('.')[1]).replaceAll('-', '+').replaceAll('_', '/')));
  } catch {
    return undefined;
  }
}

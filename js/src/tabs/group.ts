/** Groups of tabs that share a connection, and their messages. */

import type { ClientFrame, ServerFrame } from '../generated/wire.js';
import { bareToken } from '../settings/checks.js';
import type { ClientOptions } from '../settings/options.js';
import type { TransportEnd } from '../transports/transport.js';

/** A message from a tab to the relay. */
export interface TabMessage {
  /** The sender. */
  readonly tab: string;
  /** A frame for the server. */
  readonly frame: ClientFrame;
}

/**
 * A message of the relay. Without `begun`, `frame` and `end`, it confirms that the relay knows the tab.
 */
export interface RelayMessage {
  /** The sender. */
  readonly relay: string;
  /** The receiver; undefined for all tabs. */
  readonly to?: string | undefined;
  /** The relay has started. */
  readonly begun?: boolean;
  /** A frame of the server. */
  readonly frame?: ServerFrame;
  /** The connection has ended. */
  readonly end?: TransportEnd;
}

/** The tab with the connection gives it up or is gone: reconnect immediately. */
export const MOVED: TransportEnd = {
  code: 1001,
  reason: 'Another tab takes over.',
  again: true,
};

/** An id that is unique among tabs. */
export function newId(): string {
  return Math.random().toString(36).slice(2);
}

/** When a token expires, in seconds; 0 if it has no expiry. */
export function endOf(token: string): number {
  return Number(claimsOf(token)?.['exp']) || 0;
}

/**
 * The name of the lock and the channel of the tabs that share a connection.
 *
 * It is a digest of the address, the name, and the identity of the token: all claims of a JWT
 * except those that change with each issue, or the whole token if it has no subject. So different
 * users, or one user with different rights, never share, and the name does not reveal the token.
 */
export async function groupOf(options: ClientOptions, token: string): Promise<string> {
  const { socketUrl, name, shareTabs } = options;
  const { exp, iat, nbf, jti, ...lasting } = claimsOf(token) ?? {};
  const identity = lasting['sub'] ? Object.entries(lasting).sort() : bareToken(token);
  const stated = JSON.stringify([socketUrl, name, shareTabs, identity]);
  const digest = await crypto.subtle.digest('SHA-256', new TextEncoder().encode(stated));
  // Tabs with another version of the messages belong to another group.
  return `hanzo-pubsub 2 ${new Uint8Array(digest)}`;
}

/** The claims of a JWT; undefined for other tokens. */
function claimsOf(token: string): Record<string, unknown> | undefined {
  try {
    const part = token.split('.')[1] as string;
    return JSON.parse(atob(part.replace(/-/g, '+').replace(/_/g, '/')));
  } catch {
    return undefined;
  }
}

/** Parts of a session that most programs never need: they are loaded and equipped when one does. */

import type { Event } from './events.js';
import type { Lifecycle } from './lifecycle.js';
import { isCurrent, readPeer } from './peer.js';
import type { PlainPeers } from './plain/peers.js';
import type { Presence } from './presence.js';

/** What a session may be equipped with. */
export interface Parts {
  /** Servers that know HIP-56 and little more. */
  plain: PlainPeers;
  /** Who is present on topics, and what the user says of itself. */
  presence: Presence;
}

export type PartName = keyof Parts;

/** The classes of parts. */
export type PartsToEquip = {
  readonly [Name in PartName]?: new (
    session: Lifecycle,
  ) => Parts[Name];
};

/** The part that an event cannot be handled without. */
export function partFor(event: Event): PartName | undefined {
  if (event.kind === 'received') {
    const { frame } = event;
    return frame.type === 'auth.ok' && !isCurrent(readPeer(frame, true)) ? 'plain' : undefined;
  }
  const present = event.kind === 'subscribe' ? event.presence : event.kind === 'updatePresence';
  return present ? 'presence' : undefined;
}

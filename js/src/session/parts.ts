/** Parts of a session that most programs never need: they are loaded and equipped when one does. */

import type { Event } from './events.js';
import type { Lifecycle } from './lifecycle.js';
import { readPeer } from './peer.js';
import type { PlainPeers } from './plain/peers.js';
import type { Presence } from './presence.js';
import type { Rare } from './rare.js';

/** What a session may be equipped with. */
export interface Parts {
  /** Servers that know HIP-56 and little more. */
  plain: PlainPeers;
  /** Refusals, answers in several frames, batches, policies of a full queue. */
  rare: Rare;
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

/** Fields of frames that are seldom there. */
const RARE = ['denied', 'more', 'results'];

/** The part that an event cannot be handled without; the part `plain` takes the part `rare`. */
export function partFor(event: Event): PartName | undefined {
  switch (event.kind) {
    case 'received': {
      const { frame } = event;
      if (frame.type === 'message') return undefined;
      if (frame.type === 'auth.ok') return readPeer(frame, true).current ? undefined : 'plain';
      return frame.type === 'error' || RARE.some((field) => field in frame) ? 'rare' : undefined;
    }
    case 'publish':
      return event.batch || (event.policy ?? 'error') !== 'error' ? 'rare' : undefined;
    case 'subscribe':
      return event.presence ? 'presence' : undefined;
    case 'updatePresence':
      return 'presence';
    default:
      return undefined;
  }
}

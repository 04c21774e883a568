/** Parts of a session that are loaded when an event cannot be handled without them. */

import type { PartName, PartsToEquip } from '../session/parts.js';
import { lazily } from './lazy.js';

/** Loads each part. */
export const PARTS: Readonly<Record<PartName, () => Promise<PartsToEquip>>> = {
  plain: lazily(async () => ({ plain: (await import('../session/plain/peers.js')).PlainPeers })),
  presence: lazily(async () => ({ presence: (await import('../session/presence.js')).Presence })),
};

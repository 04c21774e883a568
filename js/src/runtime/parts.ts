/** Parts of a session that are loaded when an event cannot be handled without them. */

import type { PartName, PartsToEquip } from '../session/parts.js';
import { lazily } from './lazy.js';

const rare = async () => ({ rare: (await import('../session/rare.js')).Rare });

/** Loads each part, with those that it takes. */
export const PARTS: Readonly<Record<PartName, () => Promise<PartsToEquip>>> = {
  rare: lazily(rare),
  plain: lazily(async () => {
    const { PlainPeers } = await import('../session/plain/peers.js');
    return { ...(await rare()), plain: PlainPeers };
  }),
  presence: lazily(async () => ({ presence: (await import('../session/presence.js')).Presence })),
};

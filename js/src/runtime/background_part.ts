/** The part of a client that loads beside its first connection. */

import { lazily } from './parts.js';

/** Loads the part once. */
export const BACKGROUND: { load: () => Promise<typeof import('./background.js')> } = {
  load: lazily(() => import('./background.js')),
};

/** Operations that load when they are first called. */

import { lazily } from './lazy.js';

/** Waiting for a connection, own presence, and the words for late answers. */
export const operations: () => Promise<typeof import('./operations.js')> = lazily(
  () => import('./operations.js'),
);

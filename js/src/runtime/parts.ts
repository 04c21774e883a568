/** Parts of a client that are loaded where they are needed, each whole. */

import { lazily } from './lazy.js';

type Plain = typeof import('../dialects/plain/plain_dialect.js');
type Policies = typeof import('../session/send_policies.js');
type Arguments = typeof import('./arguments.js');
type Presence = typeof import('../session/presence_parts.js');

/** Loads each part once. */
export const PARTS: {
  plain: () => Promise<Plain>;
  policies: () => Promise<Policies>;
  presence: () => Promise<Presence>;
  arguments: () => Promise<Arguments>;
} = {
  /** The dialect of servers of plain HIP-56, before the first `auth.ok` of one is handed in. */
  plain: lazily(() => import('../dialects/plain/plain_dialect.js')),
  /** Policies of the send queue, before the first publish that needs them. */
  policies: lazily(() => import('../session/send_policies.js')),
  /** Presence, before the first call that uses it. */
  presence: lazily(() => import('../session/presence_parts.js')),
  /** What is wrong with arguments, and subscriptions with special ones. */
  arguments: lazily(() => import('./arguments.js')),
};

/** What a first connection does not need, and that knows nothing of the client. */
export const background: () => Promise<typeof import('./background.js')> = lazily(
  () => import('./background.js'),
);

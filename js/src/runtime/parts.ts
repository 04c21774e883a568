/** Parts of a client that are loaded where they are needed, each whole. */

import { DEVELOPMENT } from '../build.js';
import { ConnectionFailed } from '../errors.js';

type Plain = typeof import('../dialects/plain/plain_dialect.js');
type Presence = typeof import('../session/presence_parts.js');
type Arguments = typeof import('./arguments.js');
type Background = typeof import('./background.js');

/** A part that is loaded once; where that failed, its next use tries again. */
export function lazily<Part>(load: () => Promise<Part>): () => Promise<Part> {
  let loading: Promise<Part> | undefined;
  return () => {
    loading ??= load().catch((cause: unknown) => {
      loading = undefined;
      throw new ConnectionFailed(DEVELOPMENT ? 'A part of the client did not load.' : undefined, {
        cause,
      });
    });
    return loading;
  };
}

/** Loads each part once. */
export const PARTS: {
  plain: () => Promise<Plain>;
  presence: () => Promise<Presence>;
  arguments: () => Promise<Arguments>;
  background: () => Promise<Background>;
} = {
  /** The dialect of servers of plain HIP-56, before the first `auth.ok` of one is handed in. */
  plain: lazily(() => import('../dialects/plain/plain_dialect.js')),
  /** Presence, before the first call that uses it. */
  presence: lazily(() => import('../session/presence_parts.js')),
  /** What is wrong with arguments, and subscriptions with special ones. */
  arguments: lazily(() => import('./arguments.js')),
  /** What a first connection does not need; it loads beside that. */
  background: lazily(() => import('./background.js')),
};

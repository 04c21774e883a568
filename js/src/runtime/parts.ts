/** Parts of a client that are loaded on demand. */

import { ConnectionFailed } from '../errors.js';
import { NOT_LOADED } from '../transports/transport.js';
import type { Client } from './environment.js';
import type { Waiting } from './waiting.js';

/** A part that is loaded once; after a failure, its next use tries again. */
export function lazily<Part>(load: () => Promise<Part>): () => Promise<Part> {
  let loading: Promise<Part> | undefined;
  return () => {
    loading ??= load().catch((cause: unknown) => {
      loading = undefined;
      throw new ConnectionFailed(NOT_LOADED.reason, {
        remedy: 'Reload the page or restart the program: a file is missing, see `cause`.',
        cause,
      });
    });
    return loading;
  };
}

export const PARTS: {
  plain: () => Promise<typeof import('../dialects/plain/plain_dialect.js')>;
  arguments: () => Promise<typeof import('./arguments.js')>;
} = {
  /** The dialect of plain HIP-56 servers, needed for their `auth.ok`. */
  plain: lazily(() => import('../dialects/plain/plain_dialect.js')),
  /** Errors about arguments, and subscriptions with special arguments. */
  arguments: lazily(() => import('./arguments.js')),
};

/** Load the errors about arguments, for a call with these options. */
export function texts(client: Client, options: Waiting): Promise<typeof import('./arguments.js')> {
  return client.part(PARTS.arguments, client.timed(options));
}

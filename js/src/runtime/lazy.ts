/** Parts of the client that are loaded when they are first needed. */

import { DEVELOPMENT } from '../build.js';
import { ConnectionFailed } from '../errors.js';

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

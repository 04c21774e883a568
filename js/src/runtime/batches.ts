/** Splits several messages into frames that the server accepts. */

import type { Peer } from '../session/peer.js';
import type { Prepared } from './publications.js';

/** Maximum messages of a batch if the server does not state a limit. */
const BATCH = 1_000;

/** Maximum bytes of payload per frame of a batch. */
const BATCH_BYTES = 1 << 20;

/** Number of messages that fit into one frame. */
export function firstFrame(items: readonly Prepared[], peer: Peer | undefined): number {
  const limit = peer?.limits?.max_batch || BATCH;
  // Room is granted for a whole frame.
  const most = Math.min(limit, peer?.burst || limit);
  let bytes = 0;
  const end = items.findIndex(({ size }, n) => {
    bytes += size;
    return n && (n >= most || bytes > BATCH_BYTES);
  });
  return end < 0 ? items.length : end;
}

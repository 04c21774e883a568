/** The error of an operation that the server or the session rejected. */

import { fromCode, type PubSubError } from '../errors.js';
import type { Rejected } from '../session/ports.js';

/** Build the error; `topic`: its topic, if the rejection does not contain it. */
export function rejected(
  {
    code,
    message,
    remedy,
    field,
    retry_after_ms: retryAfter,
    topic: named,
  }: Omit<Rejected, 'kind'>,
  topic?: string,
  id?: string,
): PubSubError {
  return fromCode(code, message, {
    remedy,
    topic: named ?? topic,
    field,
    retryAfter,
    ...(id && { id }),
  });
}

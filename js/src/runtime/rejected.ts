/** The error of an operation that the server, or the session, refused. */

import { fromCode, type PubSubError } from '../errors.js';
import type { Rejected } from '../session/ports.js';

/**
 * Build the error.
 *
 * @param topic What it concerns, where the refusal does not name it.
 * @param id Of the message.
 */
export function rejected(
  { code, message, remedy, field, retryAfter, topic: named }: Omit<Rejected, 'kind'>,
  topic: string | undefined,
  id?: string,
): PubSubError {
  return fromCode(code, message, { remedy, topic: named ?? topic, field, retryAfter, ...{ id } });
}

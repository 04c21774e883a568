/** Reads the most frequent text: a canonical message. */

import { isEnvelope } from '../generated/wire.js';
import { known } from '../topics.js';
import { decode, hasSurrogate } from './codec.js';
import { DEPTH_MAX, type Decoded, isDeep } from './decoded.js';

/** Start of a canonical message. To parse only the envelope after it is faster. */
const MESSAGE = /^\{"type":"message","message":/;

/** Its length. */
const ENVELOPE = 28;

/** The same as `decode`, and faster for canonical messages. */
export function decodeCanonical(text: string | Uint8Array): Decoded | Promise<Decoded> {
  if (
    typeof text === 'string' &&
    MESSAGE.test(text) &&
    text.endsWith('}}') &&
    !hasSurrogate(text)
  ) {
    try {
      const message: unknown = JSON.parse(text.slice(ENVELOPE, -1));
      if (
        isEnvelope(message) &&
        (text.length <= 2 * DEPTH_MAX || !isDeep(message, DEPTH_MAX - 1))
      ) {
        // `known` equals this topic, which the guard has just checked. Successive messages of a topic
        // share its text, so that it is hashed once.
        (message as { topic: string }).topic = known;
        return { type: 'message', message };
      }
    } catch {
      // It has more fields after the envelope, or is not JSON.
    }
  }
  return decode(text);
}

/**
 * Converts between text and frames: writes one canonical form, and accepts every plausible one.
 *
 * A canonical frame takes the fast path through one generated guard. Every other frame goes through
 * `lenient`, which knows the other forms that HIP-56 allows, and is loaded when the first of them
 * arrives. Input from the network never causes an exception, and no reason or log contains a
 * payload.
 */

import { DEVELOPMENT } from '../build.js';
import { type ClientFrame, isEnvelope, isServerFrame } from '../generated/wire.js';
import { known } from '../topics.js';
import { DEPTH_MAX, type Decoded, isDeep } from './decoded.js';

/**
 * Start of a canonical message. To parse only the envelope after it is faster. The production build
 * does not do so, because browsers spend most of the time of a frame elsewhere.
 */
const MESSAGE = /^\{"type":"message","message":/;
/** Its length. */
const ENVELOPE = 28;

const ESCAPE = '\\';
const SURROGATE = /\\u[dD][89a-fA-F]/;

let lenient: typeof import('./lenient.js') | undefined;

/**
 * Parse one frame of a socket. Returns a promise if the frame is not canonical and the lenient
 * reader is not loaded yet.
 *
 * Never throws; rejects only if the lenient reader cannot be loaded. Integers of a payload beyond
 * 2^53 are rounded, as all numbers of JavaScript are. NaN is read as null, an unpaired surrogate
 * becomes U+FFFD, and nesting deeper than 200 levels is malformed.
 */
export function decode(data: string | Uint8Array): Decoded | Promise<Decoded> {
  if (typeof data === 'string' && !(data.includes(ESCAPE) && SURROGATE.test(data))) {
    try {
      const value =
        DEVELOPMENT && MESSAGE.test(data) && data.endsWith('}}')
          ? { type: 'message', message: JSON.parse(data.slice(ENVELOPE, -1)) }
          : JSON.parse(data);
      const isMessage = value?.type === 'message';
      const isFrame = isMessage ? isEnvelope(value.message) : isServerFrame(value);
      if (isFrame && (data.length <= 2 * DEPTH_MAX || !isDeep(value))) {
        // Let successive messages of a topic share its text, so that it is hashed once.
        if (DEVELOPMENT && isMessage) value.message.topic = known;
        return value;
      }
    } catch {
      // Some peers send text that is almost JSON.
    }
  }
  if (lenient) return lenient.decodeLeniently(data);
  return import('./lenient.js').then((module) => {
    lenient = module;
    return module.decodeLeniently(data);
  });
}

/** Encode one frame as compact JSON without undefined fields. */
export function encode(frame: ClientFrame): string {
  return JSON.stringify(frame);
}

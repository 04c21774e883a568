/**
 * Converts between text and frames: writes one canonical form, and accepts every plausible one.
 *
 * A canonical frame takes the fast path through one generated guard. Every other frame goes through
 * `readings`, which knows the other forms that HIP-56 allows, and is loaded when the first of them
 * arrives. Input from the network never causes an exception, and no reason or log contains a
 * payload.
 */

import { type ClientFrame, isEnvelope, isServerFrame } from '../generated/wire.js';
import { DEPTH_MAX, type Decoded, isDeep } from './decoded.js';

const SURROGATE = /\\u[dD][89a-fA-F]/;

let readings: typeof import('./readings.js') | undefined;

/**
 * Parse one frame of a socket. Returns a promise if the frame is not canonical and the lenient
 * reader is not loaded yet.
 *
 * Never throws; rejects only if the lenient reader cannot be loaded. Integers of a payload beyond
 * 2^53 are rounded, as all numbers of JavaScript are. NaN is read as null, an unpaired surrogate
 * becomes U+FFFD, and nesting deeper than 200 levels is malformed.
 */
export function decode(data: string | Uint8Array): Decoded | Promise<Decoded> {
  if (typeof data === 'string' && !hasSurrogate(data)) {
    try {
      const value = JSON.parse(data);
      const isFrame = value?.type === 'message' ? isEnvelope(value.message) : isServerFrame(value);
      if (isFrame && (data.length <= 2 * DEPTH_MAX || !isDeep(value))) return value;
    } catch {
      // Some peers send text that is almost JSON.
    }
  }
  if (readings) return readings.decodeLeniently(data);
  return import('./readings.js').then((module) => {
    readings = module;
    return module.decodeLeniently(data);
  });
}

/** Whether JSON contains an escaped surrogate, which may be unpaired. */
export function hasSurrogate(text: string): boolean {
  return text.includes('\\') && SURROGATE.test(text);
}

/** Encode one frame as compact JSON without undefined fields. */
export function encode(frame: ClientFrame): string {
  return JSON.stringify(frame);
}

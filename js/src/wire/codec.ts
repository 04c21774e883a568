/**
 * Text ↔ frames: sends one canonical shape, reads every plausible one.
 *
 * A canonical frame takes the short way, one generated guard. Whatever that refuses goes through
 * `lenient`, which knows the other shapes that HIP-56 allows, and is loaded with the first of them.
 * Nothing here throws on anything that came from the network, and no payload gets into a reason or
 * a log.
 */

import { type ClientFrame, isEnvelope, isServerFrame } from '../generated/wire.js';
import { DEPTH_MAX, type Decoded, isDeep } from './decoded.js';

const ESCAPE = '\\u';
const SURROGATE = /\\u[dD][89a-fA-F]/;

let lenient: typeof import('./lenient.js') | undefined;

/**
 * Read one frame of a socket; what is not canonical, later, if what reads that is not loaded yet.
 *
 * Never throws, and rejects only where that cannot be loaded. A payload's integers beyond 2^53 are
 * rounded as all numbers of this language are, NaN is read as null, an unpaired surrogate becomes
 * U+FFFD, and nesting deeper than 200 levels is malformed.
 */
export function decode(data: string | Uint8Array): Decoded | Promise<Decoded> {
  if (typeof data === 'string' && !(data.includes(ESCAPE) && SURROGATE.test(data))) {
    try {
      const value = JSON.parse(data);
      const isFrame = value?.type === 'message' ? isEnvelope(value.message) : isServerFrame(value);
      if (isFrame && (data.length <= 2 * DEPTH_MAX || !isDeep(value))) return value;
    } catch {
      // Some peers write what is almost JSON.
    }
  }
  if (lenient) return lenient.decodeLeniently(data);
  return import('./lenient.js').then((module) => {
    lenient = module;
    return module.decodeLeniently(data);
  });
}

/** Write one frame as compact JSON; what is undefined is left out. */
export function encode(frame: ClientFrame): string {
  return JSON.stringify(frame);
}

/** Limits of the arguments of operations. */

import { isCount } from '../wire/guard.js';

/** Maximum patterns of a subscription. */
export const PATTERNS_MAX = 1_000;

/** Maximum messages per topic for `history`. */
export const HISTORY_MAX = 10_000;

/** The earliest accepted Unix time in milliseconds, in 1973: lower numbers are probably seconds. */
const EARLIEST = 1e11;

/** Whether it is a Unix time in milliseconds; 0 is valid and means the beginning. */
export function isTime(ms: number): boolean {
  return isCount(ms) && (ms === 0 || ms >= EARLIEST);
}

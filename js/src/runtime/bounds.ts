/** Bounds of the arguments of operations. */

import { isCount } from '../wire/guard.js';

/** Patterns that a subscription has at most. */
export const PATTERNS_MAX = 1_000;

/** Messages of a topic that `history` may ask for. */
export const HISTORY_MAX = 10_000;

/** The earliest Unix time in milliseconds, of 1973: a lower number counts seconds. */
const EARLIEST = 1e11;

/** Whether it is a Unix time in milliseconds; 0 is one, for the beginning. */
export function isTime(ms: number): boolean {
  return isCount(ms) && (ms === 0 || ms >= EARLIEST);
}

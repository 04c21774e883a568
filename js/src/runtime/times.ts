/** Parses times in the formats of the API. */

import { invalid, isTime, kind } from '../settings/checks.js';

/**
 * Read `since`: Unix milliseconds or a Date.
 *
 * @throws InvalidOption It is neither, is before 1970, or is so early that it must be in seconds.
 */
export function unixMs(value: unknown): number {
  const ms = value instanceof Date ? value.getTime() : value;
  if (typeof ms !== 'number') {
    throw invalid('since', `is ${kind(value)}`, 'Pass Unix milliseconds or a Date.');
  }
  const whole = Math.round(ms);
  if (!isTime(whole)) {
    throw invalid(
      'since',
      `is ${ms}, which is not a Unix time in milliseconds`,
      'Pass Unix milliseconds, as Date.now() gives them; 0 for the beginning.',
    );
  }
  return whole;
}

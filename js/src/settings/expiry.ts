/** Rejects an expiry that is not in Unix milliseconds; only for the development build. */

import { EARLIEST, invalid, kind } from './checks.js';

/**
 * Check the expiry of a token.
 *
 * @throws InvalidOption It is in seconds, or no number.
 */
export function checkExpiry(name: string, value: unknown): void {
  if (typeof value !== 'number' || !(value >= 0)) {
    throw invalid(
      name,
      `is ${kind(value)}, not a time`,
      'Pass Unix milliseconds, such as `Date.now() + 900_000`.',
    );
  }
  if (value < EARLIEST)
    throw invalid(name, 'is in seconds', 'Pass milliseconds: multiply it by 1000.');
}

/** Rejects what `getToken` must not return; only for the development build. */

import type { Token } from '../values.js';
import { EARLIEST, invalid, kind } from './checks.js';

/**
 * Check an object that `getToken` returned.
 *
 * @throws InvalidOption It has no `value`, or its `expiresAt` is in seconds or not a number.
 */
export function checkAnswer({ value, expiresAt }: Partial<Token>): void {
  if (value === undefined) {
    throw invalid('getToken()', 'has no `value`', 'Return a string, or { value, expiresAt }.');
  }
  const field = 'getToken().expiresAt';
  const time: unknown = expiresAt ?? EARLIEST;
  if (typeof time !== 'number' || !(time >= 0)) {
    throw invalid(
      field,
      `is ${kind(time)}, not a time`,
      'Pass Unix milliseconds, such as `Date.now() + 900_000`.',
    );
  }
  if (time < EARLIEST)
    throw invalid(field, 'is in seconds', 'Pass milliseconds: multiply it by 1000.');
}

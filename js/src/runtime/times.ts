/** Times as programs give them. */

import { DEVELOPMENT } from '../build.js';
import { InvalidOption } from '../errors.js';
import { kind } from '../settings/checks.js';
import { isTime } from './bounds.js';

/**
 * Read a time: Unix milliseconds or a date.
 *
 * @param field What to call it in the error.
 * @throws InvalidOption It is neither, lies before 1970, or is so early that it must be in seconds.
 */
export function unixMs(value: unknown, field = 'since'): number {
  const ms = value instanceof Date ? value.getTime() : value;
  if (typeof ms !== 'number') {
    throw new InvalidOption(`\`${field}\` is ${kind(value)}.`, {
      remedy: DEVELOPMENT ? 'Pass Unix milliseconds or a Date.' : undefined,
      field,
    });
  }
  const whole = Math.round(ms);
  if (!isTime(whole)) {
    throw new InvalidOption(`\`${field}\` is ${ms}, which is not a Unix time in milliseconds.`, {
      remedy: DEVELOPMENT
        ? 'Pass Unix milliseconds, as Date.now() gives them; 0 for the beginning.'
        : undefined,
      field,
    });
  }
  return whole;
}

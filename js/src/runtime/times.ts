/** Parses times in the formats of the API. */

import { InvalidOption } from '../errors.js';
import { kind } from '../settings/checks.js';
import { isTime } from './bounds.js';

/**
 * Read a time: Unix milliseconds or a Date.
 *
 * @param field Name of the option for the error.
 * @throws InvalidOption It is neither, is before 1970, or is so early that it must be in seconds.
 */
export function unixMs(value: unknown, field = 'since'): number {
  const ms = value instanceof Date ? value.getTime() : value;
  if (typeof ms !== 'number') {
    throw new InvalidOption(`\`${field}\` is ${kind(value)}.`, {
      remedy: 'Pass Unix milliseconds or a Date.',
      field,
    });
  }
  const whole = Math.round(ms);
  if (!isTime(whole)) {
    throw new InvalidOption(`\`${field}\` is ${ms}, which is not a Unix time in milliseconds.`, {
      remedy: 'Pass Unix milliseconds, as Date.now() gives them; 0 for the beginning.',
      field,
    });
  }
  return whole;
}

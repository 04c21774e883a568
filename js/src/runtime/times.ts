/** Times as programs give them. */

import { InvalidOption } from '../errors.js';
import { kind } from '../settings/checks.js';

/**
 * Read a time: Unix milliseconds or a date.
 *
 * @param field What to call it in the error.
 * @throws InvalidOption It is neither, or lies before 1970.
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
  if (!(Number.isSafeInteger(whole) && whole >= 0)) {
    throw new InvalidOption(`\`${field}\` is ${ms}, which is no Unix time in milliseconds.`, {
      field,
    });
  }
  return whole;
}

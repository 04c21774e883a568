/** Decisions of the program: functions that return whether another client may do something. */

import { UsageError } from '../errors.js';

/**
 * Call `allow`; everything is allowed without it.
 *
 * @param report Receives its exception. After a promise, which would count as true, it receives an
 *   error about that, and the rejection of the promise.
 * @returns Its decision; undefined if there is none, which denies.
 */
export function decide<A extends unknown[]>(
  allow: ((...given: A) => unknown) | undefined,
  given: A,
  report: (error: unknown) => void,
): boolean | undefined {
  try {
    const decision = (allow ? allow(...given) : true) as PromiseLike<unknown> | undefined;
    if (decision?.then) {
      // Otherwise, its rejection would end the process.
      decision.then(undefined, report);
      throw new UsageError('`allow` returned a promise.', {
        remedy: 'Return true or false immediately; load earlier what it needs.',
      });
    }
    return Boolean(decision);
  } catch (error) {
    report(error);
    return undefined;
  }
}

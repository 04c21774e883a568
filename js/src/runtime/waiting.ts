/** The one way to wait: for a promise, as long as time and signal allow. */

import type { Clock } from '../clock.js';

/** What every operation that waits takes. */
export interface Waiting {
  /** Milliseconds; default `operationTimeout`. */
  readonly timeout?: number | undefined;
  /** Gives up; the promise then rejects with its reason. */
  readonly signal?: AbortSignal | undefined;
}

/**
 * @internal The value of a promise, or undefined where the time passes first.
 *
 * @param clock Measures the time; without one it is not bounded.
 * @throws The reason of the signal, where that is aborted first.
 */
export function within<T>(
  promise: Promise<T>,
  signal: AbortSignal | undefined,
  clock?: Clock,
  milliseconds = 0,
): Promise<T | undefined> {
  let end = (): void => {};
  const givenUp = new Promise<undefined>((resolve, reject) => {
    const abort = (): void => reject(signal?.reason);
    const timer = clock?.callLater(milliseconds, () => resolve(undefined));
    signal?.addEventListener('abort', abort);
    if (signal?.aborted) abort();
    end = () => {
      timer?.cancel();
      signal?.removeEventListener('abort', abort);
    };
  });
  return Promise.race([promise, givenUp]).finally(end);
}

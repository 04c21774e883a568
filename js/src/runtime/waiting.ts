/** Waits for a promise with a timeout and a signal. */

import type { Clock } from '../clock.js';

/** Options of every operation that waits. */
export interface Waiting {
  /** Milliseconds, from 1 to a day; default `operationTimeout`. */
  readonly timeout?: number | undefined;
  /** Cancels the call; the promise then rejects with the reason of the signal. */
  readonly signal?: AbortSignal | undefined;
}

/** @internal Options with the timeout in force. */
export interface Timed extends Waiting {
  readonly timeout: number;
  /** When the call is given up, by the clock. */
  readonly end: number;
}

/** The waiting calls of each signal, which has a single listener for all of them. */
const waiting = new WeakMap<AbortSignal, Set<() => void>>();

/**
 * @internal Call a function when a signal is aborted; it must not be aborted yet.
 *
 * @returns A function that removes the call.
 */
export function onAbort(signal: AbortSignal | undefined, abort: () => void): () => void {
  if (!signal) return () => {};
  const calls = waiting.get(signal) ?? new Set();
  if (!waiting.has(signal)) {
    waiting.set(signal, calls);
    signal.addEventListener('abort', () => {
      // One call may end the wait of another; iterating over a set then skips it.
      for (const call of calls) call();
    });
  }
  calls.add(abort);
  return () => void calls.delete(abort);
}

/**
 * @internal The value of a promise, or undefined after the end.
 *
 * @param clock Measures the time; without one there is no end.
 * @throws Error The reason of the signal, if that is aborted first.
 */
export function within<T>(
  promise: Promise<T>,
  { signal, end = 0 }: Partial<Timed>,
  clock?: Clock,
): Promise<T | undefined> {
  let stop = (): void => {};
  const result = new Promise<T | undefined>((resolve, reject) => {
    const timer = clock?.callLater(end - clock.now(), () => resolve(undefined));
    const abort = (): void => reject(signal?.reason);
    const ignore = onAbort(signal, abort);
    stop = () => {
      timer?.cancel();
      ignore();
    };
    promise.then(resolve, reject);
    if (signal?.aborted) abort();
  });
  result.then(stop, stop);
  return result;
}

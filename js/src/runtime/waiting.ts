/** The one way to wait: for a promise, as long as time and signal allow. */

import type { Clock } from '../clock.js';

/** What every operation that waits takes. */
export interface Waiting {
  /** Milliseconds; default `operationTimeout`. */
  readonly timeout?: number | undefined;
  /** Cancels the call; the promise then rejects with the reason of the signal. */
  readonly signal?: AbortSignal | undefined;
}

/** Who waits for each signal: it has one listener, however many calls it is given to. */
const waiting = new WeakMap<AbortSignal, Set<() => void>>();

/**
 * @internal Have a function called when a signal is aborted; it must not be aborted yet.
 *
 * @returns Stops it.
 */
export function onAbort(signal: AbortSignal | undefined, abort: () => void): () => void {
  if (!signal) return () => {};
  const calls = waiting.get(signal) ?? new Set();
  if (!waiting.has(signal)) {
    waiting.set(signal, calls);
    signal.addEventListener('abort', () => {
      // One call may end the wait of another, which a set then leaves out.
      for (const call of calls) call();
    });
  }
  calls.add(abort);
  return () => void calls.delete(abort);
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
  return new Promise((resolve, reject) => {
    const end = (): void => {
      timer?.cancel();
      ignore?.();
    };
    const timer = clock?.callLater(milliseconds, () => {
      end();
      resolve(undefined);
    });
    const abort = (): void => {
      end();
      reject(signal?.reason);
    };
    const ignore = signal && onAbort(signal, abort);
    promise.then(
      (value) => {
        end();
        resolve(value);
      },
      (error: unknown) => {
        end();
        reject(error);
      },
    );
    if (signal?.aborted) abort();
  });
}

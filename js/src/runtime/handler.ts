/** Calls a function of the program. */

/** A function, synchronous or not; what it returns is not used. */
export type Handler<Arguments extends unknown[]> = (...given: Arguments) => unknown;

/** @internal Call a function of the program; the promise, where it returned one, never rejects. */
export function call<A extends unknown[]>(
  handler: Handler<A> | undefined,
  given: A,
  report: (error: unknown) => void,
): Promise<void> | undefined {
  try {
    const result = handler?.(...given) as PromiseLike<unknown> | undefined;
    if (result?.then) return Promise.resolve(result).then(() => undefined, report);
  } catch (error) {
    report(error);
  }
  return undefined;
}

/** Calls functions of the program: one at a time, in order, never from the reader. */

import type { PresenceMember } from '../generated/wire.js';
import type { Gap, Message, PresenceChange } from '../values.js';

/** A function, synchronous or asynchronous; its result is ignored. */
export type Handler<Arguments extends unknown[]> = (...given: Arguments) => unknown;

/** Called with each message. */
export type MessageHandler<Data> = (message: Message<Data>) => unknown;

/** Called with all members of the topic, and the change. */
export type PresenceHandler = (
  members: readonly PresenceMember[],
  change: PresenceChange,
) => unknown;

/** Called with each gap; `raise`: the iteration throws `MessagesMissed` for each. */
export type GapHandler = ((gap: Gap) => unknown) | 'raise';

/**
 * Loads the state that missing messages led to (REC-4).
 *
 * The positions were recorded before the call, so everything after them is delivered as messages.
 */
export type StateLoader = (gap: Gap, positions: Readonly<Record<string, number>>) => unknown;

/** @internal The handlers of one subscription, as the program gave them. */
export interface Handlers {
  readonly onMessage?: Handler<[Message]> | undefined;
  readonly onPresence?: PresenceHandler | undefined;
  readonly onGap?: GapHandler | undefined;
  readonly stateLoader?: StateLoader | undefined;
}

/** @internal Call a function of the program; the promise, where it returned one, never rejects. */
export function call<A extends unknown[]>(
  report: (error: unknown) => void,
  handler: Handler<A> | undefined,
  ...given: A
): Promise<unknown> | undefined {
  try {
    const result = handler?.(...given) as PromiseLike<unknown> | undefined;
    if (result?.then) return Promise.resolve(result).catch(report);
  } catch (error) {
    report(error);
  }
  return undefined;
}

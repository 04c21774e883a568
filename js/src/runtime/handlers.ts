/** User code that the client calls: one at a time, in order, never from the reader. */

import type { PresenceMember } from '../generated/wire.js';
import type { Gap, Message, PresenceChange, SubscriptionEvent } from '../values.js';
import type { Inbox } from './inbox.js';
import type { Listeners } from './listeners.js';

/** A function, synchronous or not; what it returns is not used. */
export type Handler<Arguments extends unknown[]> = (...given: Arguments) => unknown;

/** Called with each message. */
export type MessageHandler<Data> = Handler<[message: Message<Data>]>;

/** Called with everybody present on the topic, and what changed. */
export type PresenceHandler = Handler<[members: readonly PresenceMember[], change: PresenceChange]>;

/**
 * Loads the state that missing messages led to (REC-4).
 *
 * The positions were taken down before the call, so everything after them follows as messages.
 */
export type StateLoader = Handler<[gap: Gap, positions: Readonly<Record<string, number>>]>;

/** @internal The handlers of one subscription, as the program gave them. */
export interface Given {
  readonly onMessage?: Handler<[Message]> | undefined;
  readonly onPresence?: PresenceHandler | undefined;
  readonly onGap?: Handler<[gap: Gap]> | undefined;
  readonly stateLoader?: StateLoader | undefined;
}

/** @internal Calls the handlers of one subscription. */
export class Handlers {
  /**
   * @param given What the program passed to `subscribe`.
   * @param _listeners Told of gaps, and of what handlers throw.
   */
  constructor(
    readonly given: Given,
    private readonly _listeners: Listeners,
  ) {}

  /** Tell of a gap: first the state is loaded, then the program is told. */
  async gap(gap: Gap, { positions }: Inbox): Promise<void> {
    const { stateLoader, onGap } = this.given;
    this._listeners.tell('gap', gap);
    await this._call(stateLoader, gap, Object.fromEntries(positions));
    await this._call(onGap, gap);
  }

  /**
   * Hand everything of the inbox to the handlers until it has ended.
   *
   * A program that iterates messages itself has no `onMessage`; its inbox is not touched here.
   */
  async run(inbox: Inbox): Promise<void> {
    while (true) {
      for (let event = inbox.take(); event; event = inbox.take()) {
        // What is not asynchronous is not waited for: the next message follows at once.
        const called = this._handle(event, inbox);
        if (called) await called;
      }
      if (inbox.finished) return;
      await inbox.wait();
    }
  }

  private _handle(event: SubscriptionEvent, inbox: Inbox): Promise<void> | undefined {
    const { onMessage, onPresence } = this.given;
    if (event.kind === 'message') return this._call(onMessage, event.message);
    if (event.kind === 'gap') return this.gap(event.gap, inbox);
    return this._call(onPresence, event.presence.members, event.presence);
  }

  private _call<A extends unknown[]>(
    handler: Handler<A> | undefined,
    ...given: A
  ): Promise<void> | undefined {
    return call(handler, given, (error) => this._listeners.report(error));
  }
}

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

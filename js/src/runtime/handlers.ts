/** User code that the client calls: one at a time, in order, never from the reader. */

import type { PresenceMember } from '../generated/wire.js';
import type { Gap, Message, PresenceChange, SubscriptionEvent } from '../values.js';
import type { Inbox } from './inbox.js';

/** State changes or errors that wait for a slow listener; the oldest give way. */
const BACKLOG = 256;

/** A function, synchronous or not; what it returns is not used. */
export type Handler<Arguments extends unknown[]> = (...given: Arguments) => unknown;

/** Called with each message. */
export type MessageHandler<Data> = Handler<[message: Message<Data>]>;

/** Called with everybody present on the topic, and what changed. */
export type PresenceHandler = Handler<[members: readonly PresenceMember[], change: PresenceChange]>;

/** The handlers of one subscription. */
export class Handlers {
  /**
   * @param onMessage Called with each message.
   * @param onPresence Called with each presence change.
   * @param onGap Called with each gap.
   * @param _told Tells the listeners of the whole client of a gap.
   * @param _report Gets the exceptions of handlers.
   */
  constructor(
    readonly onMessage: Handler<[Message]> | undefined,
    readonly onPresence: PresenceHandler | undefined,
    readonly onGap: Handler<[Gap]> | undefined,
    private readonly _told: (gap: Gap) => void,
    private readonly _report: (error: unknown) => void,
  ) {}

  /** Tell of a gap. */
  gap(gap: Gap): void | Promise<void> {
    this._told(gap);
    if (this.onGap) return this._guard(this.onGap, gap);
  }

  /**
   * Hand everything of the inbox to the handlers until it has ended.
   *
   * A program that iterates messages itself has no `onMessage`; its inbox is not touched here.
   */
  async run(inbox: Inbox): Promise<void> {
    while (true) {
      const entry = inbox.take();
      if (entry) {
        const handled = this._handle(entry);
        if (handled) await handled;
      } else if (inbox.finished) {
        return;
      } else {
        await inbox.wait();
      }
    }
  }

  private _handle(entry: SubscriptionEvent): void | Promise<void> {
    if (entry.kind === 'gap') return this.gap(entry.gap);
    if (entry.kind === 'presence') {
      const { presence } = entry;
      if (this.onPresence) return this._guard(this.onPresence, presence.members, presence);
    } else if (this.onMessage) {
      return this._guard(this.onMessage, entry.message);
    }
  }

  private _guard<A extends unknown[]>(handler: Handler<A>, ...given: A): void | Promise<void> {
    return call(handler, given, this._report);
  }
}

/** Calls one function with values, in order, from a turn of its own. */
export class Listener<Value> {
  private readonly _waiting: Value[] = [];
  private _running = false;

  /**
   * @param _function Synchronous or not.
   * @param _report Gets its exceptions.
   */
  constructor(
    private readonly _function: Handler<[Value]>,
    private readonly _report: (error: unknown) => void,
  ) {}

  /** Have the function called with a value, soon. */
  tell(value: Value): void {
    this._waiting.push(value);
    if (this._waiting.length > BACKLOG) this._waiting.shift();
    if (this._running) return;
    this._running = true;
    queueMicrotask(() => void this._run());
  }

  private async _run(): Promise<void> {
    for (let value = this._waiting.shift(); value !== undefined; value = this._waiting.shift()) {
      const called = call(this._function, [value], this._report);
      if (called) await called;
    }
    this._running = false;
  }
}

/** Call a function of the program; the promise, where it returned one, never rejects. */
function call<A extends unknown[]>(
  handler: Handler<A>,
  given: A,
  report: (error: unknown) => void,
): void | Promise<void> {
  try {
    const result = handler(...given);
    if (typeof (result as PromiseLike<unknown> | undefined)?.then === 'function') {
      return Promise.resolve(result).then(() => undefined, report);
    }
  } catch (error) {
    report(error);
  }
}

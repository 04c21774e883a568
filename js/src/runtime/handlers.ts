/**
 * Calls functions of the program: one at a time, in order, never from the reader. Handlers of
 * subscriptions, and listeners of a client's events.
 */

import { explain } from '../error_text.js';
import { PubSubError } from '../errors.js';
import type { PresenceMember } from '../generated/wire.js';
import { logText } from '../log_text.js';
import type { ClientEvents, Gap, Logger, Message, PresenceChange } from '../values.js';

/** Maximum state changes or errors that wait for a slow reader; the oldest are dropped. */
const RECENT = 256;

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

/** @internal Lets readers wait for values, or for the end. */
export class Stream {
  /** Whether it has ended; waiting values can still be taken. */
  finished = false;
  /** The error for the reader at the end. */
  error: Error | undefined;
  private _waiting: (() => void)[] = [];

  /** End it. Idempotent. */
  finish(error?: Error): void {
    if (this.finished) return;
    this.finished = true;
    this.error = error;
    this.wake();
  }

  /** Wait for a value, or the end. */
  wait(): Promise<void> {
    return new Promise((resolve) => this._waiting.push(resolve));
  }

  wake(): void {
    if (this._waiting.length) for (const wake of this._waiting.splice(0)) wake();
  }
}

/** @internal The newest values. */
export class Recent<Value> extends Stream implements AsyncIterableIterator<Value> {
  private readonly _values: Value[] = [];

  constructor(private readonly _ended: () => void) {
    super();
  }

  override finish(): void {
    super.finish();
    this._ended();
  }

  put(value: Value): void {
    if (this._values.push(value) > RECENT) this._values.shift();
    this.wake();
  }

  async next(): Promise<IteratorResult<Value, undefined>> {
    while (!this._values.length) {
      if (this.finished) return { done: true, value: undefined };
      await this.wait();
    }
    return { done: false, value: this._values.shift() as Value };
  }

  async return(): Promise<IteratorResult<Value, undefined>> {
    this.finish();
    this._values.length = 0;
    return this.next();
  }

  [Symbol.asyncIterator](): this {
    return this;
  }
}

type Name = keyof ClientEvents;

/** @internal The listeners of one client, and its iterations over state changes. */
export class Listeners {
  private readonly _readers = new Map<Recent<ClientEvents[Name]>, Name>();

  /** @param logger Receives errors without a listener. */
  constructor(readonly logger: Logger) {}

  /** State changes from now on. */
  open<K extends Name>(name: K): Recent<ClientEvents[K]> {
    const reader = new Recent<ClientEvents[Name]>(() => this._readers.delete(reader));
    this._readers.set(reader, name);
    return reader as Recent<ClientEvents[K]>;
  }

  /**
   * Call a function with every event of a name, one at a time; returns a function that removes it.
   */
  on<K extends Name>(name: K, handler: Handler<[ClientEvents[K]]>): () => void {
    const reader = this.open(name);
    const thrown = (error: unknown): void => {
      // A listener of errors that throws must not get its own error.
      if (name === 'error') this.logger.error('A listener of errors threw', error);
      else this.report(error);
    };
    void (async () => {
      for await (const event of reader) await call(thrown, handler, event);
    })();
    return () => void reader.return();
  }

  /** Report an event; whether there is a listener. */
  notify<K extends Name>(name: K, event: ClientEvents[K]): boolean {
    let handled = false;
    for (const [reader, wanted] of this._readers) {
      if (wanted !== name) continue;
      reader.put(event);
      handled = true;
    }
    return handled;
  }

  /** Report an error that no call can throw to the program (ERR-1). */
  readonly report = (thrown: unknown): void => {
    const error = thrown instanceof Error ? thrown : new Error(String(thrown));
    if (this.notify('error', error)) return;
    const { logger } = this;
    if (!(error instanceof PubSubError)) {
      logger.error('A handler threw', error);
      return;
    }
    const { code, message, remedy } = error;
    // A restarting server sends `going_away`; no action is needed.
    logger[code === 'going_away' ? 'info' : 'error']?.(
      `${logText(code)}: ${explain(logText(message), logText(remedy), code)}`,
    );
  };

  /** End the iterations over state changes. */
  finish(): void {
    for (const [reader, name] of this._readers) if (name === 'state') reader.finish();
  }
}

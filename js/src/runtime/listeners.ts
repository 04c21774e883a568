/** Listeners and iterations of a client's events. */

import { explain } from '../error_text.js';
import { PubSubError } from '../errors.js';
import { logText } from '../log_text.js';
import type { ClientEvents, Logger } from '../values.js';
import { call, type Handler } from './handlers.js';
import { Recent } from './stream.js';

type Name = keyof ClientEvents;

/** The listeners of one client, and its iterations over state changes. */
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
